#!/bin/sh
# Records the topology requirements that external-provisioner sends, for csi-provisioner's tests. Run it when the version changes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../external-provisioner.sh"
cd "$copy/pkg/controller"
sed -i 's/\([ =]\)GenerateAccessibilityRequirements(/\1recordRequirements(/' topology_test.go
cp "$here/recorder_test.go" .
CGO_ENABLED=0 GOWORK=off RECORD_TO="$copy/recorded" go test -gcflags=all=-dwarf=false -count=1 . -run \
    '^(TestStatefulSetSpreading|TestAllowedTopologies|TestTopologyAggregation|TestPreferredTopologies|TestProvisionWithDeletedNodeFromCache|TestNodeTopologyLabelFallback|TestFurtherSituations)$'
LC_ALL=C sort "$copy/recorded" >"$here/../../provisioners/csi/src/topology/requirements.jsonl"
