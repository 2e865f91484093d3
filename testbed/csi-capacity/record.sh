#!/bin/sh
# Records which CSIStorageCapacity objects external-provisioner publishes, for the tests of csi-provisioner. Run it when the version changes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
module=github.com/kubernetes-csi/external-provisioner/v6@v6.4.0
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$(GOWORK=off go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/." "$copy"
chmod -R u+w "$copy"
cd "$copy/pkg/capacity"
cp "$here/recorder_test.go" .
CGO_ENABLED=0 GOWORK=off RECORD_TO="$here/../../provisioners/csi/tests/it/simulated/capacity.jsonl" \
    go test -gcflags=all=-dwarf=false -count=1 . -run '^TestRecord$'
