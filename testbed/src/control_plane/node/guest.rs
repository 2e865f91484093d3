//! An additional node inside user-mode Linux, for features that this machine's kernel lacks: it mounts NFS and runs
//! kube-proxy.
//!
//! Its root is this machine's, read-only, so it uses the same program files. Its writes stay in its memory, and end
//! with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;

use super::runtime::{SOCKET, kubelet_config, write_containerd_config};
use super::{NO_NODE, images, says_ready};
use crate::cluster::eventually;
use crate::control_plane::kubeconfig;
use crate::control_plane::pki::NodePki;
use crate::control_plane::state::State;
use crate::uml::{Disk, Guest, Link, Machine};

/// Long, because its CPU is slow.
const LIMIT: Duration = Duration::from_secs(180);

/// Images and containers need most of the memory.
const MEMORY: u32 = 3072;

/// The directory of images and containers. It is not below `/var`, which is itself an overlay and cannot contain
/// another one.
const CONTAINERD: &str = "/mnt/containerd";

/// A node that ends with this value.
pub struct GuestNode {
    name: String,
    guest: Guest,
    link: Link,
}

impl GuestNode {
    /// Boots a machine that joins a control plane with a node. It has these images in addition to the images of every
    /// node, and an XFS [`Disk`]. The Node object remains after the machine has ended.
    pub async fn join(state: &State, images: &[PathBuf]) -> anyhow::Result<Self> {
        let node = state.node.as_ref().context(NO_NODE)?;
        let link = Link::new()?;
        let name = format!("guest-{}", link.guest_address().to_string().replace('.', "-"));
        let dir = state.dir.join(&name);
        fs::create_dir_all(&dir)?;
        let machine = Machine { disk: Some(Disk::Xfs), link: Some(&link), memory: MEMORY };
        let guest = Guest::start(machine, &script(state, &node.programs, &link, &name, &dir, images)?).await?;
        link.route()?;
        let ready = eventually(LIMIT, async || {
            ensure!(!guest.has_ended(), "its first process has ended");
            Ok(says_ready(state, &name).await.then_some(()))
        });
        let failure = || format!("{name} is not ready; it said:\n{}", guest.text());
        ready.await.with_context(failure)?.with_context(failure)?;
        Ok(Self { name, guest, link })
    }

    /// The name of the Node object, and its label `kubernetes.io/hostname`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The network link between the node and this machine.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The output of its kernel and its programs.
    pub fn text(&self) -> String {
        self.guest.text()
    }
}

/// The script of its first process: the mounts of an init system, the modules of user-mode Linux, and the three
/// programs. The kubelet requires the CPU frequency, which user-mode Linux does not report. For service addresses, the
/// kernel supports only legacy iptables.
fn script(
    state: &State,
    programs: &Path,
    link: &Link,
    name: &str,
    dir: &Path,
    more: &[PathBuf],
) -> anyhow::Result<String> {
    let pki = NodePki::create(dir, &state.dir.join("pki"), name, link.guest_address())?;
    let ca = state.dir.join("pki/ca.crt");
    let write = |file: &str, text: String| fs::write(dir.join(file), text);
    write("kubelet.json", kubelet_config(link.guest_address(), &pki.serving_cert, &pki.serving_key, &ca).to_string())?;
    write("kube-proxy.json", kube_proxy_config(dir).to_string())?;
    write("modprobe", "#!/bin/sh\nexec modprobe -d /run \"$@\"\n".to_owned())?;
    for (file, identity) in [("kubelet", &pki.kubelet), ("kube-proxy", &pki.kube_proxy)] {
        kubeconfig::write_for(&dir.join(format!("{file}.kubeconfig")), &state.server, &state.ca_pem, identity)?;
    }
    let containerd = write_containerd_config(dir, Path::new(CONTAINERD), link.guest_address(), &link.pods())?;
    let archives: Vec<_> = images::write_all(dir)?.iter().chain(more).map(|file| file.display().to_string()).collect();
    let (programs, dir, address) = (programs.display(), dir.display(), link.guest_address());
    let (containerd, archives, here) = (containerd.display(), archives.join(" "), link.host_address());
    Ok(format!(
        "set -e
hostname {name}
cp {dir}/modprobe /run/modprobe
chmod 0755 /run/modprobe
echo /run/modprobe > /proc/sys/kernel/modprobe
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm /mnt/var /mnt/work
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t overlay -o lowerdir=/var,upperdir=/mnt/var,workdir=/mnt/work overlay /var
sed '/^processor/a cpu MHz : 1000.000' /proc/cpuinfo > /run/cpuinfo
mount --bind /run/cpuinfo /proc/cpuinfo
mkdir /run/bin
for tool in iptables ip6tables; do
    for part in '' -save -restore; do ln -s /usr/sbin/xtables-legacy-multi /run/bin/$tool$part; done
done
export PATH=/run/bin:$PATH
mount --make-rshared /
ip route add default via {here}
containerd --config {containerd} --log-level warn &
until ctr --address {SOCKET} version > /run/version 2>&1; do sleep 0.1; done
for archive in {archives}; do ctr --address {SOCKET} --namespace k8s.io images import $archive; done
{programs}/kube-proxy --config {dir}/kube-proxy.json --hostname-override {name} &
{programs}/kubelet --config {dir}/kubelet.json --kubeconfig {dir}/kubelet.kubeconfig \\
    --hostname-override {name} --node-ip {address}
"
    ))
}

fn kube_proxy_config(dir: &Path) -> serde_json::Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": dir.join("kube-proxy.kubeconfig")},
        // The kernel's defaults are enough for a node with one CPU.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}
