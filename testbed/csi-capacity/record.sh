#!/bin/sh
# Records the CSIStorageCapacity objects that external-provisioner publishes, for csi-provisioner's tests. Run it when the version changes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../external-provisioner.sh"
cd "$copy/pkg/capacity"
cp "$here/recorder_test.go" .
CGO_ENABLED=0 GOWORK=off RECORD_TO="$here/../../provisioners/csi/tests/it/simulated/capacity.jsonl" \
    go test -gcflags=all=-dwarf=false -count=1 . -run '^TestRecord$'
