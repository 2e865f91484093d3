//! A real node with running pods.

use std::net::Ipv4Addr;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use testbed::cluster::{DEFAULT_LIMIT, TestSpace, eventually, until};
use testbed::control_plane::{BUSYBOX, ControlPlane, Settings, Signal, Versions, client_from};
use testbed::progress;

/// A pod without a claim.
fn plain(space: &TestSpace, name: &str, script: &str) -> anyhow::Result<serde_json::Value> {
    let mut pod = space.script(name, "none", script)?;
    pod["spec"]["volumes"] = json!([]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([]);
    Ok(pod)
}

#[tokio::test]
async fn node_is_ready_and_has_no_taints() -> anyhow::Result<()> {
    let space = TestSpace::new("node").await?;
    let node = space.cluster_api::<Node>().get(&space.cluster().node()?.name).await?;
    let status = node.status.unwrap_or_default();
    let ready = status.conditions.unwrap_or_default().into_iter().find(|condition| condition.type_ == "Ready");
    assert_eq!(ready.map(|condition| condition.status).as_deref(), Some("True"));
    assert_eq!(node.spec.and_then(|spec| spec.taints), None);
    let version = status.node_info.map(|info| info.kubelet_version);
    let asked_for = space.cluster().state().kubernetes.clone();
    let kubernetes = asked_for.map_or_else(|| Versions::of_this_project().map(|own| own.kubernetes), Ok)?;
    assert_eq!(version, Some(format!("v{kubernetes}")));
    space.done().await
}

#[tokio::test]
async fn logs_and_exec_work_in_a_running_pod() -> anyhow::Result<()> {
    let space = TestSpace::new("exec").await?;
    let mut pod = plain(&space, "pod", "")?;
    pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", "echo said; exec sleep 600"]);
    space.start_pod(&pod).await?;
    // A container runs before it prints its output.
    let said = eventually(DEFAULT_LIMIT, async || Ok((space.logs("pod").await? == "said\n").then_some(())));
    anyhow::ensure!(said.await?.is_some(), "the log is {:?}", space.logs("pod").await?);
    assert_eq!(space.exec("pod", "echo $((6 * 7)); hostname")?, "42\npod\n");
    assert!(space.exec("pod", "echo no >&2; exit 3").is_err_and(|error| error.to_string().contains("no\n")));
    let pods = space.api::<Pod>().get("pod").await?;
    let image = pods.spec.and_then(|spec| spec.containers.into_iter().next()?.image);
    assert_eq!(image.as_deref(), Some(BUSYBOX));
    space.delete_pod("pod").await?;
    space.done().await
}

#[tokio::test]
async fn pods_survive_kills_of_kubelet_and_containerd() -> anyhow::Result<()> {
    let mut space = TestSpace::with_own_node("outlive").await?;
    let mut pod = plain(&space, "pod", "")?;
    pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", "exec sleep 600"]);
    space.start_pod(&pod).await?;
    space.exec("pod", "echo kept > /tmp/file")?;
    for component in ["kubelet", "containerd"] {
        space.cluster_mut().restart(component, Signal::KILL).await?;
        let answer = eventually(DEFAULT_LIMIT, async || Ok(space.exec("pod", "cat /tmp/file").ok())).await?;
        assert_eq!(answer.as_deref(), Some("kept\n"), "after the end of {component}");
    }
    space.delete_pod("pod").await?;
    space.done().await
}

#[tokio::test]
async fn second_node_is_independent_and_removed_when_its_owner_crashes() -> anyhow::Result<()> {
    let space = TestSpace::new("second").await?;
    let settings = Settings { node: true, ..Settings::for_tests() };
    let guard = space.cluster().state().guard();
    let second = ControlPlane::start(&settings, &guard, &progress::silent()).await?;
    let state = second.state();
    let node = state.node.clone().context("the control plane has no node")?;
    assert_ne!(node.address, space.cluster().node()?.address);
    let pods: Api<Pod> = Api::namespaced(client_from(&state.kubeconfig).await?, "default");
    let mut pod = plain(&space, "pod", "")?;
    pod["metadata"]["namespace"] = json!("default");
    pod["spec"]["containers"][0]["command"] = json!(["/bin/sleep", "31416"]);
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let sleeper = || processes().find(|id| command(*id) == "/bin/sleep 31416 ");
    until("the pod runs", || sleeper().is_some()).await?;
    let interface = interface_to(node.address);
    assert!(interface.is_some());
    // Drops it without an orderly stop, as if its owner were killed.
    drop(second);
    until("the container is gone", || sleeper().is_none()).await?;
    until("the first process is gone", || !node.init.is_running()).await?;
    until("the interface is removed", || interface_to(node.address) != interface).await?;
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    assert!(!mounts.contains(&state.dir.display().to_string()), "{mounts}");
    space.done().await
}

fn processes() -> impl Iterator<Item = u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn command(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// The index of this machine's interface to a node. Another test's node may get the same address, but not the same
/// index.
fn interface_to(address: Ipv4Addr) -> Option<u32> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    // As in proc_net(5): hexadecimal, in the machine's byte order.
    let destination = format!("{:08X}", u32::from_ne_bytes(address.octets()));
    let route = routes.lines().find(|route| route.split('\t').nth(1) == Some(&destination))?;
    let name = route.split('\t').next()?;
    std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?.trim().parse().ok()
}
