//! Claims and volumes, including kills of the provisioner.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube_provisioner::protocol::STORAGE_PROVISIONER;
use testbed::cluster::{Access, TestSpace, eventually};
use testbed::control_plane::Signal;

use super::fixture::*;

#[tokio::test]
async fn directory_is_created_and_deleted_with_its_claim() -> anyhow::Result<()> {
    let (space, root, _access, _program) = serving("hostpath").await?;
    let class = space.create_class(space.class("class")).await?;
    let (_, volume) = space.bind(space.claim("claim", &class)).await?;
    let path = volume.spec.as_ref().and_then(|spec| spec.host_path.clone()).unwrap().path;
    assert_eq!(Path::new(&path), root.path().canonicalize()?.join(volume.name_any()));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path)?.permissions()) & 0o7777;
    assert_eq!(mode, 0o777);
    std::fs::write(Path::new(&path).join("data"), "x")?;
    space.api::<PersistentVolumeClaim>().delete("claim", &DeleteParams::default()).await?;
    // The directory is removed first: it may exist while the volume exists, but never afterwards.
    let volumes = space.cluster_api::<PersistentVolume>();
    let gone = eventually(SOON, async || {
        let object_is_gone = volumes.get_opt(&volume.name_any()).await?.is_none();
        anyhow::ensure!(!object_is_gone || !Path::new(&path).exists(), "the volume was deleted before its directory");
        Ok(object_is_gone.then_some(()))
    });
    assert!(gone.await?.is_some());
    assert_eq!(directories(&root), BTreeSet::new());
    space.done().await
}

// Rules: G14.
#[tokio::test]
async fn killed_provisioner_finishes_its_work_after_a_restart() -> anyhow::Result<()> {
    let (space, root, access, mut program) = serving("killed").await?;
    let class = space.create_class(space.class("class")).await?;
    let some = async {
        let made = eventually(SOON, async || Ok((directories(&root).len() >= 20).then_some(()))).await?;
        anyhow::ensure!(made.is_some(), "too few directories were created");
        program.kill().await
    };
    tokio::try_join!(space.create_claims(&class, 100), some)?;
    drop(program);
    let mut program = started(&space, &access, root.path(), &[]).await?;
    space.wait_all_bound(100, 4 * SOON).await?;
    let volumes: BTreeSet<_> = space.volumes().await?.iter().map(ResourceExt::name_any).collect();
    assert_eq!(directories(&root), volumes);
    // Kill it again during deletions.
    space.delete_claims().await?;
    let gone = eventually(SOON, async || Ok((directories(&root).len() < 80).then_some(()))).await?;
    anyhow::ensure!(gone.is_some(), "too few directories were removed");
    program.kill().await?;
    drop(program);
    let _program = started(&space, &access, root.path(), &[]).await?;
    let empty = eventually(2 * SOON, async || {
        Ok((space.volumes().await?.is_empty() && directories(&root).is_empty()).then_some(()))
    });
    assert!(empty.await?.is_some(), "left: {:?}", directories(&root));
    space.done().await
}

// Rules: G8.
#[tokio::test]
async fn work_resumes_when_the_api_server_returns() -> anyhow::Result<()> {
    let (mut space, root) = (TestSpace::with_own_cluster("restart").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let program = started(&space, &access, root.path(), &[]).await?;
    let class = space.create_class(space.class("class")).await?;
    let (_, before) = space.bind(space.claim("before", &class)).await?;
    let volumes = space.cluster_api::<PersistentVolume>();
    for (name, signal) in [("after-kill", Signal::KILL), ("after-term", Signal::TERM)] {
        space.cluster_mut().restart("kube-apiserver", signal).await?;
        let mut claim = space.claim(name, &class);
        // The controller-manager is slow after a restart, and this test is only about the provisioner.
        claim.annotations_mut().insert(STORAGE_PROVISIONER.to_owned(), space.provisioner().to_owned());
        let claim = space.create_claim(claim).await?;
        let volume = format!("pvc-{}", claim.uid().unwrap_or_default());
        space.wait_for_within(2 * SOON, &volumes, &volume, "made", |_| true).await?;
    }
    space.api::<PersistentVolumeClaim>().delete("before", &DeleteParams::default()).await?;
    let gone = eventually(4 * SOON, async || Ok(volumes.get_opt(&before.name_any()).await?.is_none().then_some(())));
    assert!(gone.await?.is_some(), "the volume is not deleted");
    assert!(program.is_running(), "the provisioner has ended");
    space.done().await
}

#[tokio::test]
async fn bad_input_is_reported_in_one_line() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("input").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let file = root.path().join("file");
    std::fs::write(&file, "")?;
    let bad_token = root.path().join("kubeconfig");
    let text = std::fs::read_to_string(&access.kubeconfig)?;
    let without_token: String =
        text.lines().filter(|line| !line.contains("token")).map(|line| format!("{line}\n")).collect();
    std::fs::write(&bad_token, without_token)?;
    let nobody = root.path().join("nobody");
    std::fs::write(&nobody, text.replace(&space.cluster().state().server, "https://127.0.0.1:1"))?;
    let case = |root: &Path, kubeconfig: &Path| {
        let access = Access { user: String::new(), kubeconfig: kubeconfig.to_owned() };
        start(&space, &access, root, &[])
    };
    let mut seen = 0;
    for (root, kubeconfig, says) in [
        (Path::new("/no/such/directory"), &access.kubeconfig, "create it, or set another one"),
        (&file, &access.kubeconfig, "not a directory"),
        (root.path(), &root.path().join("missing"), "kubeconfig"),
        (root.path(), &file, "kubeconfig"),
        (root.path(), &nobody, "127.0.0.1:1"),
        (root.path(), &bad_token, "credentials"),
    ] {
        let mut program = case(root, kubeconfig)?;
        let status = program.ended(SOON).await?;
        let output = program.output();
        let lines: Vec<_> = output.lines().skip(seen).collect();
        seen += lines.len();
        assert!(!status.success() && lines.len() == 1, "{says}: {lines:#?}");
        assert!(lines[0].contains(says), "{says}: {}", lines[0]);
    }
    space.done().await
}
