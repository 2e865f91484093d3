//! The root directory, and its state while its disk is not mounted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::DeleteParams;
use testbed::cluster::{TestSpace, eventually};
use testbed::http::ask;
use testbed::ports::free_port;

use super::fixture::*;

fn private(path: &Path) -> anyhow::Result<()> {
    fs::create_dir(path)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o700))?)
}

/// Replaces the root with an empty directory, which is how an unmounted file system looks to a program.
#[tokio::test]
async fn hostpath_creates_and_removes_nothing_while_the_disk_is_missing() -> anyhow::Result<()> {
    let (space, outer) = (TestSpace::new("k1").await?, tempfile::tempdir()?);
    let outer = outer.path().canonicalize()?;
    let (disk, away): (PathBuf, PathBuf) = (outer.join("disk"), outer.join("away"));
    private(&disk)?;
    let access = account(&space).await?;
    let program = started(&space, &access, &disk, &[]).await?;
    let class = space.class_with("class", []).await?;
    let (_, volume) = space.bind(space.claim("first", &class)).await?;
    fs::rename(&disk, &away)?;
    private(&disk)?;
    space.create_claim(space.claim("second", &class)).await?;
    space.wait_for_message("PersistentVolumeClaim", "second", "has no marker").await?;
    space.api::<PersistentVolumeClaim>().delete("first", &DeleteParams::default()).await?;
    let event = space.wait_for_event("PersistentVolume", &volume.name_any(), "VolumeFailedDelete").await?;
    assert!(event.message.is_some_and(|text| text.contains("has no marker")));
    assert_eq!(fs::read_dir(&disk)?.count(), 0);
    // A restart does not turn it into a new root because volumes exist.
    drop(program);
    let program = start(&space, &access, &disk, &[])?;
    program.wait_for_output("has no marker", SOON).await?;
    assert_eq!(fs::read_dir(&disk)?.count(), 0);
    assert!(away.join(volume.name_any()).exists());
    // The disk is mounted again.
    fs::remove_dir(&disk)?;
    fs::rename(&away, &disk)?;
    space.wait_bound("second").await?;
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &volume.name_any()).await?;
    assert!(!disk.join(volume.name_any()).exists());
    space.done().await
}

#[tokio::test]
async fn root_writable_by_other_users_is_refused() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("unsafe").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777))?;
    let mut program = start(&space, &access, root.path(), &[])?;
    assert!(!program.ended(SOON).await?.success());
    assert!(program.output().contains("chmod 0700"), "{}", program.output());
    // A root that other users can list causes a warning.
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))?;
    let program = start(&space, &access, root.path(), &[])?;
    program.wait_for_output("can search it for volumes", SOON).await?;
    program.wait_for_output("ready", SOON).await?;
    space.done().await
}

#[tokio::test]
async fn unenforced_size_is_reported() -> anyhow::Result<()> {
    let (space, _root, _access, _program) = serving("size").await?;
    let told = space.class_with("told", []).await?;
    space.create_claim(space.claim("told", &told)).await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "told", "ProvisioningWarning").await?;
    assert!(event.message.is_some_and(|text| text.contains("not enforced")));
    let accepted = space.class_with("accepted", [("enforceSize", "false")]).await?;
    space.bind(space.claim("accepted", &accepted)).await?;
    let wanted = space.class_with("wanted", [("enforceSize", "true")]).await?;
    space.create_claim(space.claim("wanted", &wanted)).await?;
    space.wait_for_message("PersistentVolumeClaim", "wanted", "which its storage does not support").await?;
    let quiet = eventually(SOON, async || {
        let events = space.events_about("PersistentVolumeClaim", "accepted").await?;
        Ok(events.iter().any(|event| event.reason.as_deref() == Some("ProvisioningSucceeded")).then_some(events))
    });
    let events = quiet.await?.unwrap_or_default();
    assert!(!events.is_empty() && events.iter().all(|event| event.reason.as_deref() != Some("ProvisioningWarning")));
    space.done().await
}

/// A node with two disks, whose volumes the provisioner finds after a restart.
#[tokio::test]
async fn class_chooses_one_of_several_roots() -> anyhow::Result<()> {
    let (space, outer) = (TestSpace::new("roots").await?, tempfile::tempdir()?);
    let outer = outer.path().canonicalize()?;
    let (disk, ssd) = (outer.join("disk"), outer.join("ssd"));
    private(&disk)?;
    let (access, fast) = (account(&space).await?, format!("fast={}", ssd.display()));
    let program = started(&space, &access, &disk, &["--root", &fast]).await?;
    let (plain, quick) = (space.class_with("plain", []).await?, space.class_with("quick", [("root", "fast")]).await?);
    // The second disk does not exist yet.
    for (name, class) in [("plain", &plain), ("quick", &quick)] {
        space.create_claim(space.claim(name, class)).await?;
    }
    let (_, on_disk) = space.wait_bound("plain").await?;
    space.wait_for_message("PersistentVolumeClaim", "quick", "cannot be used").await?;
    private(&ssd)?;
    let (_, on_ssd) = space.wait_bound("quick").await?;
    assert!(path_of(&on_disk).starts_with(&disk) && path_of(&on_ssd).starts_with(&ssd));
    let id = |volume: &PersistentVolume| volume.annotations()["hostpath-provisioner/root"].clone();
    assert_ne!(id(&on_disk), id(&on_ssd));
    for (more, volume) in [(&[][..], &on_disk), (&["--root-name", "fast"], &on_ssd)] {
        // A directory without an owner, next to the volume.
        let stray = path_of(volume).with_file_name("stray");
        fs::create_dir(&stray)?;
        let roots = format!("{},{fast}", disk.display());
        let (ok, text) = command(&space, Path::new(&roots), &[&["orphans"], more].concat())?;
        assert!(ok && text.contains("stray") && !text.contains("its directory does not exist"), "{more:?}: {text}");
    }
    let unknown = space.class_with("unknown", [("root", "slow")]).await?;
    space.create_claim(space.claim("unknown", &unknown)).await?;
    space.wait_for_message("PersistentVolumeClaim", "unknown", "no root named \"slow\"").await?;
    drop(program);
    let _program = started(&space, &access, &disk, &["--root", &fast]).await?;
    for (name, volume) in [("plain", &on_disk), ("quick", &on_ssd)] {
        space.delete_claim(name).await?;
        assert!(!path_of(volume).exists());
    }
    space.done().await
}

/// A cluster file system is a root that all replicas share, and pods on all nodes can reach its volumes.
#[tokio::test]
async fn volume_on_a_shared_root_has_no_node_affinity() -> anyhow::Result<()> {
    let (space, root, access, first) = serving("shared").await?;
    let class = space.class_with("class", []).await?;
    let mut claim = space.claim("claim", &class);
    claim.spec.as_mut().unwrap().access_modes = Some(vec!["ReadWriteMany".to_owned()]);
    let (_, volume) = space.bind(claim).await?;
    assert!(volume.spec.as_ref().is_some_and(|spec| spec.node_affinity.is_none()));
    drop(first);
    let _second = start(&space, &access, root.path(), &[])?;
    space.delete_claim("claim").await?;
    assert!(!path_of(&volume).exists());
    space.done().await
}

#[tokio::test]
async fn claim_larger_than_the_free_space_is_reported() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("room").await?, tempfile::tempdir()?);
    let (access, port) = (account(&space).await?, free_port()?);
    let _program = started(&space, &access, root.path(), &["--http-endpoint", &format!("127.0.0.1:{port}")]).await?;
    let huge = |name: &str, class: &_| {
        let mut claim = space.claim(name, class);
        let requests = claim.spec.as_mut().and_then(|spec| spec.resources.as_mut()?.requests.as_mut());
        requests.unwrap().insert("storage".to_owned(), Quantity("4Ei".to_owned()));
        claim
    };
    let checked = space.class_with("checked", [("reserve", "1Mi")]).await?;
    space.create_claim(huge("huge", &checked)).await?;
    space.wait_for_message("PersistentVolumeClaim", "huge", "has no room for a volume of 4Ei").await?;
    space.bind(space.claim("small", &checked)).await?;
    // Without `reserve`, the size is not checked.
    let any = space.class_with("any", []).await?;
    space.bind(huge("any", &any)).await?;
    assert_eq!(directories(&root).len(), 2);
    let line = format!("provisioner_root_free_bytes{{root=\"{}\"}} ", root.path().display());
    let metrics = eventually(SOON, async || {
        Ok(ask(port, "GET /metrics", "").await.ok().filter(|metrics| metrics.contains(&line)))
    });
    assert!(metrics.await?.is_some(), "the metrics do not contain {line}");
    space.done().await
}
