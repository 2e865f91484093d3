//! The provisioner on its node with the privileges of its manifests, and with fewer.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::cluster::{TestSpace, Variant, eventually};
use testbed::process::ProcessId;

const LIMIT: Duration = Duration::from_secs(120);

/// A line of `/proc/<pid>/status`.
fn status(process: ProcessId, key: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(":\t")?.to_owned()))
}

#[tokio::test]
async fn node_needs_four_capabilities_and_writes_only_to_its_root() -> anyhow::Result<()> {
    for variant in [Variant::PerNode, Variant::Single] {
        let space = TestSpace::new("k11").await?;
        let installed = space.install(variant).await?;
        let process = installed.processes(1).await?.remove(0);
        let value = |key: &str| status(process, key);
        // CHOWN, DAC_OVERRIDE, FOWNER and FSETID are the bits 0, 1, 3 and 4.
        let four = Some(format!("{:016x}", 0b11011));
        assert_eq!((value("CapPrm"), value("CapEff"), value("CapBnd")), (four.clone(), four.clone(), four));
        assert_eq!(value("NoNewPrivs").as_deref(), Some("1"));
        assert_eq!(value("Seccomp").as_deref(), Some("2"), "a filter");
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", process.pid))?;
        let options = |path: &str| {
            let of_path = |line: &&str| line.split(' ').nth(4) == Some(path);
            mounts.lines().find(of_path).and_then(|line| line.split(' ').nth(5)).unwrap_or_default().to_owned()
        };
        assert!(options("/").starts_with("ro"), "{mounts}");
        assert!(options(&installed.root().display().to_string()).starts_with("rw"), "{mounts}");
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
        };
        let ready = eventually(LIMIT, async || Ok(installed.pods().await?.iter().any(is_ready).then_some(())));
        assert!(ready.await?.is_some(), "the pod is not ready");
        space.done().await?;
    }
    Ok(())
}

/// The provisioner and all pods run as the same unprivileged user, who owns the root directory.
#[tokio::test]
async fn node_needs_no_capability_when_all_pods_run_as_its_user() -> anyhow::Result<()> {
    let space = TestSpace::new("nonroot").await?;
    let installed = space.install(Variant::PerNode).await?;
    installed.processes(1).await?;
    // Wait until the first provisioner has written its notes at startup; it writes `node` last.
    let noted = installed.root().join(".kube-provisioner/notes/node");
    let has_noted = eventually(LIMIT, async || Ok(noted.exists().then_some(())));
    assert!(has_noted.await?.is_some());
    let given = std::process::Command::new("chown").args(["-R", "1000:1000"]).arg(installed.root()).status()?;
    assert!(given.success());
    let less = json!({"spec": {"template": {"spec": {
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000},
        "containers": [{"name": "hostpath-provisioner", "securityContext": {"capabilities": {"add": null}}}],
    }}}});
    let daemon_sets = space.api::<DaemonSet>();
    daemon_sets.patch("hostpath-provisioner", &PatchParams::default(), &Patch::Strategic(less)).await?;
    let replaced = eventually(LIMIT, async || {
        let process = installed.processes(1).await?.remove(0);
        Ok(status(process, "Uid").filter(|uid| uid.starts_with("1000\t")).map(|_| process))
    });
    let process = replaced.await?.expect("a provisioner of user 1000");
    assert_eq!(status(process, "CapEff").as_deref(), Some("0000000000000000"));
    space.create_claim(testbed::cluster::claim("data", &installed.class("hostpath"))).await?;
    let mut pod = space.script("pod", "data", "mkdir /data/mine; echo > /data/mine/file; chmod 0500 /data/mine")?;
    pod["spec"]["securityContext"] = json!({"runAsUser": 1000});
    space.run(&pod).await?;
    space.delete_pod("pod").await?;
    installed.delete_claim("data").await?;
    space.done().await
}
