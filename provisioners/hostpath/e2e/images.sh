#!/bin/sh
# Imports the images that Kubernetes' own storage suite uses, except busybox, into the node of
# `cargo xtask control-plane up --node`, which already has busybox. One image with agnhost and busybox replaces all of
# them, because the suite runs only a shell in the others.
#   images.sh AGNHOST KUBECONFIG
set -eu
agnhost=$(realpath "$1")
state=$(dirname "$2")/state.json
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir -p root/bin root/tmp
chmod 1777 root/tmp
cp /bin/busybox root/bin/busybox
cp "$agnhost" root/agnhost
for applet in $(/bin/busybox --list); do
    [ "$applet" = busybox ] || ln -s busybox "root/bin/$applet"
done
# The suite uses options of dd that busybox lacks. The shell of busybox would run its own dd.
rm root/bin/dd root/bin/sh
for file in /bin/dd /bin/sh $(ldd /bin/dd /bin/sh | grep -o '/[^ :]*' | sort -u); do
    mkdir -p "root$(dirname "$file")"
    cp -L "$file" "root$file"
done
tar -cf layer.tar --owner=0 --group=0 -C root .
cat > config.json <<END
{"architecture": "$(go env GOARCH)", "os": "linux",
 "config": {"Entrypoint": ["/agnhost"], "Cmd": ["pause"], "Env": ["PATH=/bin"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum < layer.tar | cut -d' ' -f1)"]}}
END
from=registry.k8s.io/e2e-test-images
cat > manifest.json <<END
[{"Config": "config.json", "Layers": ["layer.tar"],
  "RepoTags": ["$from/agnhost:2.66.1", "$from/nginx:1.27.0-2", "$from/glibc-dns-testing:2.1.1"]}]
END
tar -cf image.tar manifest.json config.json layer.tar
node=$(tr -d ' \n' < "$state" | sed 's/.*"init":{"pid":\([0-9]*\).*/\1/')
nsenter --target="$node" --mount --net --pid -- ctr --namespace k8s.io images import "$folder/image.tar"
