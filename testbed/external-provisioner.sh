# Copies the source of external-provisioner to $copy, for the scripts that record its behavior.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
module=github.com/kubernetes-csi/external-provisioner/v6@v6.4.0
cp -r "$(GOWORK=off go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/." "$copy"
chmod -R u+w "$copy"
