//! A real node of a control plane, with kubelet, containerd and runc, for tests of running pods.
//!
//! It has its own process, mount and network namespaces. The kernel destroys them together with their first process,
//! however that ends, so that no container, mount or interface remains. A pair of interfaces connects the node to this
//! machine. The API server listens on this machine's end, which is the address of the `kubernetes` service, so that
//! pods can reach it as in every cluster. The node has no further connections: images come from [`import_image`], and
//! other services have no proxy.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use serde::{Deserialize, Serialize};

use super::client_from;
use super::state::{Process, State};
use crate::guard::{Guard, Lifetime};
use crate::process::{ProcessId, output};

mod cgroups;
mod guest;
mod images;
mod network;
mod packages;
mod runtime;

pub use guest::GuestNode;
pub use images::BUSYBOX;
pub(super) use images::import_all;
pub(super) use network::Network;
pub use packages::NODE;
pub(super) use runtime::{components, write_kubelet_config};

/// The name of the node.
pub(super) const NAME: &str = "node";

/// The component that keeps the namespaces alive.
pub(super) const NAMESPACES: &str = "namespaces";

/// The real node of a control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// The name of the Node object.
    pub name: String,
    /// The node's address, which this machine can reach.
    pub address: Ipv4Addr,
    /// The first process in the node's namespaces.
    pub init: ProcessId,
    pub(super) network: Network,
    /// The folder of the kubelet and kube-proxy.
    programs: PathBuf,
}

impl Node {
    /// The arguments of `nsenter` for a program that sees the node's mounts and otherwise stays a process of this
    /// machine.
    pub fn nsenter_mount_args(&self) -> Vec<String> {
        vec![format!("--target={}", self.init.pid), "--mount".to_owned(), "--".to_owned()]
    }

    /// The arguments of `nsenter` for a program that runs on the node.
    pub(super) fn nsenter_args(&self) -> Vec<String> {
        let mut arguments = vec![format!("--target={}", self.init.pid)];
        arguments.extend(["--mount", "--net", "--pid", "--"].map(str::to_owned));
        arguments
    }
}

/// Creates the namespaces and the interfaces to them.
pub(super) fn create(
    dir: &Path,
    programs: PathBuf,
    lifetime: Lifetime,
    guard: &Guard,
) -> anyhow::Result<(Node, Process, Child)> {
    NODE.check(crate::dependency::INSTALL)?;
    cgroups::set_weight();
    let dir = dir.join("node");
    for below in ["kubelet", "log", "cni-state", "containerd"] {
        fs::create_dir_all(dir.join(below))?;
    }
    let (script, ready) = (dir.join("init.sh"), dir.join("ready"));
    let _ = fs::remove_file(&ready);
    fs::write(&script, init_script(&dir))?;
    let unshare = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=slave"];
    let arguments = unshare.into_iter().chain(["/bin/sh", &script.to_string_lossy()]).map(str::to_owned).collect();
    let mut process = Process::new(&dir, NAMESPACES, &crate::packages::program("unshare")?, arguments);
    let (mut child, id) = process.start(lifetime, guard)?;
    let made = made(&ready, &process, id, programs, &mut child);
    match made {
        Ok(node) => Ok((node, process, child)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn made(ready: &Path, process: &Process, id: ProcessId, programs: PathBuf, child: &mut Child) -> anyhow::Result<Node> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !ready.exists() {
        if child.try_wait()?.is_some() || Instant::now() > deadline {
            bail!("the node's namespaces were not created:\n{}", super::last_lines(&process.log, 10));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let init = id.children().first().copied().context("the node's first process has ended")?;
    let network = Network::create(init.pid)?;
    Ok(Node { name: NAME.to_owned(), address: network.node(), init, network, programs })
}

/// The script of the first process. As such it also adopts processes whose parent has ended, and waits for them.
///
/// The kubelet, containerd and CNI use fixed paths, on which the script mounts this node's directories. The empty mount
/// points stay forever: removing one would unmount it from every other node of this machine.
fn init_script(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"set -e
mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
own() {{
    mkdir -p "$2"
    mount --bind "$1" "$2"
    mount --make-private "$2"
    mount --make-shared "$2"
}}
own '{dir}/kubelet' /var/lib/kubelet
own '{dir}/cni-state' /var/lib/cni
own '{dir}/log' /var/log
touch '{dir}/ready'
while :; do sleep 1000000 & wait $!; done
"#
    )
}

/// Waits until the node reports that it is ready.
pub(super) async fn is_ready(state: &State) -> bool {
    let Some(node) = &state.node else { return true };
    says_ready(state, &node.name).await
}

async fn says_ready(state: &State, name: &str) -> bool {
    let Ok(client) = client_from(&state.kubeconfig).await else { return false };
    let Ok(object) = Api::<NodeObject>::all(client).get(name).await else { return false };
    let conditions = object.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Kills all processes in the node's namespaces.
pub(super) async fn destroy(state: &State) {
    let Some(namespaces) = state.component(NAMESPACES).and_then(|process| process.id) else { return };
    let init = state.node.as_ref().map(|node| node.init);
    for id in init.into_iter().chain([namespaces]) {
        id.signal(super::Signal::KILL);
        id.ended_within(Duration::from_secs(10)).await;
    }
    remove_traces(&state.dir);
}

/// Removes the traces that outlive the namespaces of a node. `dir` is the control plane's directory.
pub(super) fn remove_traces(dir: &Path) {
    let dir = dir.join("node");
    if !dir.exists() {
        return;
    }
    cgroups::remove(&dir);
}

/// Imports an image archive into the node's container runtime.
pub fn import_image(state: &State, archive: &Path) -> anyhow::Result<()> {
    let node = state.node.as_ref().context(NO_NODE)?;
    let mut nsenter = Command::new(crate::packages::program("nsenter")?);
    nsenter.args(node.nsenter_args()).arg(crate::packages::program("ctr")?);
    output(nsenter.args(["--namespace", "k8s.io", "images", "import"]).arg(archive)).map(drop)
}

/// The error of a test that needs the node if there is none.
pub const NO_NODE: &str = "the control plane has no real node: run `cargo xtask test` as root on Linux, or \
                           `cargo xtask control-plane up --node` first";
