//! What the provisioner may do on its node, as its manifests have it.

use std::fs;

use e2e::cluster::{TestSpace, Variant};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

#[tokio::test]
async fn node_k11_it_has_four_capabilities_and_nothing_to_write_to_but_its_root() -> anyhow::Result<()> {
    for variant in [Variant::PerNode, Variant::Single] {
        let space = TestSpace::new("k11").await?;
        let installed = space.install(variant).await?;
        let process = installed.processes(1).await?.remove(0);
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid))?;
        let value =
            |key: &str| status.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(":\t")?.to_owned()));
        // CHOWN, DAC_OVERRIDE, FOWNER and FSETID have the bits 0, 1, 3 and 4.
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
        let ready = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
        };
        let name = installed.pods().await?.first().map(ResourceExt::name_any).unwrap_or_default();
        space.wait_for(&space.api::<Pod>(), &name, "ready", ready).await?;
        space.done().await?;
    }
    Ok(())
}
