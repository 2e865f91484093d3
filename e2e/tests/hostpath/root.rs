//! The root directory, and what is there when it is not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::DeleteParams;
use testbed::cluster::{TestSpace, eventually};
use testbed::http::ask;
use testbed::nfs::free_port;

use crate::fixture::*;

fn private(path: &Path) -> anyhow::Result<()> {
    fs::create_dir(path)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o700))?)
}

/// A directory that takes the place of another one is what a program sees of a file system that is not mounted.
#[tokio::test]
async fn hostpath_k1_nothing_is_made_or_removed_while_the_disk_is_away() -> anyhow::Result<()> {
    let (space, outer) = (TestSpace::new("k1").await?, tempfile::tempdir()?);
    let outer = outer.path().canonicalize()?;
    let (disk, away): (PathBuf, PathBuf) = (outer.join("disk"), outer.join("away"));
    private(&disk)?;
    let access = account(&space).await?;
    let program = started(&space, &access, &disk, &[]).await?;
    let class = space.class_with("class", []).await?;
    space.create_claim(space.claim("first", &class)).await?;
    let (_, volume) = space.wait_bound("first").await?;
    fs::rename(&disk, &away)?;
    private(&disk)?;
    space.create_claim(space.claim("second", &class)).await?;
    space.wait_for_message("PersistentVolumeClaim", "second", "has no marker").await?;
    space.api::<PersistentVolumeClaim>().delete("first", &DeleteParams::default()).await?;
    let event = space.wait_for_event("PersistentVolume", &volume.name_any(), "VolumeFailedDelete").await?;
    assert!(event.message.is_some_and(|text| text.contains("has no marker")));
    assert_eq!(fs::read_dir(&disk)?.count(), 0);
    // A restart makes no new root of it, for there are volumes.
    drop(program);
    let program = start(&space, &access, &disk, &[])?;
    program.wait_for_output("has no marker", SOON).await?;
    assert_eq!(fs::read_dir(&disk)?.count(), 0);
    assert!(away.join(volume.name_any()).exists());
    // It is mounted again.
    fs::remove_dir(&disk)?;
    fs::rename(&away, &disk)?;
    space.wait_bound("second").await?;
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &volume.name_any()).await?;
    assert!(!disk.join(volume.name_any()).exists());
    space.done().await
}

#[tokio::test]
async fn a_root_where_others_may_write_is_refused() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("unsafe").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777))?;
    let mut program = start(&space, &access, root.path(), &[])?;
    assert!(!program.ended(SOON).await?.success());
    assert!(program.output().contains("chmod 0700"), "{}", program.output());
    // One that others may list is named.
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))?;
    let program = start(&space, &access, root.path(), &[])?;
    program.wait_for_output("can look for volumes", SOON).await?;
    program.wait_for_output("ready", SOON).await?;
    space.done().await
}

#[tokio::test]
async fn a_size_that_is_a_mere_number_is_told() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("size").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let _program = started(&space, &access, root.path(), &[]).await?;
    let told = space.class_with("told", []).await?;
    space.create_claim(space.claim("told", &told)).await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "told", "ProvisioningWarning").await?;
    assert!(event.message.is_some_and(|text| text.contains("not enforced")));
    let accepted = space.class_with("accepted", [("enforceSize", "false")]).await?;
    space.create_claim(space.claim("accepted", &accepted)).await?;
    space.wait_bound("accepted").await?;
    let wanted = space.class_with("wanted", [("enforceSize", "true")]).await?;
    space.create_claim(space.claim("wanted", &wanted)).await?;
    space.wait_for_message("PersistentVolumeClaim", "wanted", "no project quotas").await?;
    let quiet = eventually(SOON, async || {
        let events = space.events_about("PersistentVolumeClaim", "accepted").await?;
        Ok(events.iter().any(|event| event.reason.as_deref() == Some("ProvisioningSucceeded")).then_some(events))
    });
    let events = quiet.await?.unwrap_or_default();
    assert!(!events.is_empty() && events.iter().all(|event| event.reason.as_deref() != Some("ProvisioningWarning")));
    space.done().await
}

#[tokio::test]
async fn a_claim_that_has_no_room_says_so() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("room").await?, tempfile::tempdir()?);
    let (access, port) = (account(&space).await?, free_port()?);
    let _program = started(&space, &access, root.path(), &["--http-endpoint", &format!("127.0.0.1:{port}")]).await?;
    let huge = |name: &str, class: &_| {
        let mut claim = space.claim(name, class);
        let requests = claim.spec.as_mut().and_then(|spec| spec.resources.as_mut()?.requests.as_mut());
        requests.unwrap().insert("storage".to_owned(), Quantity("4Ei".to_owned()));
        claim
    };
    let checked = space.class_with("checked", [("reserve", "5%")]).await?;
    space.create_claim(huge("huge", &checked)).await?;
    space.wait_for_message("PersistentVolumeClaim", "huge", "has no room for a volume of 4Ei").await?;
    space.create_claim(space.claim("small", &checked)).await?;
    space.wait_bound("small").await?;
    // A size that is a mere number may be any.
    let any = space.class_with("any", []).await?;
    space.create_claim(huge("any", &any)).await?;
    space.wait_bound("any").await?;
    assert_eq!(directories(&root).len(), 2);
    let line = format!("provisioner_root_free_bytes{{root=\"{}\"}} ", root.path().display());
    let metrics = eventually(SOON, async || {
        Ok(ask(port, "GET /metrics", "").await.ok().filter(|metrics| metrics.contains(&line)))
    });
    assert!(metrics.await?.is_some(), "there is no {line}");
    space.done().await
}
