//! The commands that inspect a root: trash and orphans.

use std::fs;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::cluster::eventually;

use super::fixture::*;

#[tokio::test]
async fn deleted_volume_is_restored_from_the_trash() -> anyhow::Result<()> {
    let (space, root, _access, _program) = serving("trash").await?;
    let pairs = [("onDelete", "trash"), ("trashTtl", "1h"), ("pathPattern", PATTERN)];
    let class = space.class_with("class", pairs).await?;
    let (_, volume) = space.bind(space.claim("claim", &class)).await?;
    fs::write(path_of(&volume).join("data"), "x")?;
    space.delete_claim("claim").await?;
    assert!(!path_of(&volume).exists());
    let (ok, list) = command(&space, root.path(), &["trash", "list"])?;
    assert!(
        ok && list.contains(&volume.name_any()) && list.contains(&format!("{}/claim", space.namespace())),
        "{list}"
    );
    let (ok, text) = command(&space, root.path(), &["trash", "restore", &volume.name_any()])?;
    assert!(ok, "{text}");
    let mut claim = space.claim("claim", &class);
    claim.spec.as_mut().unwrap().volume_name = Some(volume.name_any());
    let (_, restored) = space.bind(claim).await?;
    assert_eq!(
        (restored.name_any(), fs::read_to_string(path_of(&restored).join("data"))?),
        (volume.name_any(), "x".into())
    );
    // The restored volume behaves like any other.
    space.delete_claim("claim").await?;
    let (ok, text) = command(&space, root.path(), &["trash", "purge", &volume.name_any()])?;
    assert!(ok && text.contains("is removed"), "{text}");
    let (_, list) = command(&space, root.path(), &["trash", "list"])?;
    assert!(list.contains("the trash is empty"), "{list}");
    assert!(!command(&space, root.path(), &["trash", "restore", "../volumes"])?.0);
    space.done().await
}

#[tokio::test]
async fn orphans_are_listed_and_removed_on_request() -> anyhow::Result<()> {
    let (space, root, _access, program) = serving("orphans").await?;
    let class = space.class_with("class", []).await?;
    for name in ["used", "forgotten", "missing"] {
        space.create_claim(space.claim(name, &class)).await?;
    }
    let mut volumes = Vec::new();
    for name in ["used", "forgotten", "missing"] {
        volumes.push(space.wait_bound(name).await?.1);
    }
    let kept = space.class_with("kept", [("onDelete", "retain")]).await?;
    let (_, kept) = space.bind(space.claim("kept", &kept)).await?;
    space.delete_claim("kept").await?;
    // A user force-deletes a volume while no provisioner runs.
    drop(program);
    let api = space.cluster_api::<PersistentVolume>();
    let claims = space.api::<k8s_openapi::api::core::v1::PersistentVolumeClaim>();
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let forgotten = volumes[1].name_any();
    claims.patch("forgotten", &PatchParams::default(), &none).await?;
    claims.delete("forgotten", &DeleteParams::default()).await?;
    api.delete(&forgotten, &DeleteParams::default()).await?;
    let gone = eventually(SOON, async || {
        if api.get_opt(&forgotten).await?.is_some() {
            let _ = api.patch(&forgotten, &PatchParams::default(), &none).await;
            return Ok(None);
        }
        Ok(Some(()))
    });
    assert!(gone.await?.is_some());
    // The claim's finalizer may have been restored in between.
    space.wait_gone(&claims, "forgotten").await?;
    fs::remove_dir(path_of(&volumes[2]))?;
    fs::create_dir(root.path().join("stranger"))?;
    let (ok, text) = command(&space, root.path(), &["orphans"])?;
    assert!(ok, "{text}");
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(line(&forgotten).contains("no volume"), "{text}");
    assert!(line(&volumes[2].name_any()).contains("its directory does not exist"), "{text}");
    assert!(line(&kept.name_any()).contains("kept"), "{text}");
    assert!(line("stranger").contains("no ownership mark"), "{text}");
    assert!(text.contains("1 in use, 1 orphan, 0 in the trash"), "{text}");
    assert!(path_of(&volumes[1]).exists(), "listing must not remove anything");
    // There is no answer to the confirmation prompt.
    let (ok, text) = command(&space, root.path(), &["orphans", "--delete"])?;
    assert!(ok && text.contains(&format!("the volume {forgotten}")) && path_of(&volumes[1]).exists(), "{text}");
    let (ok, text) = command(&space, root.path(), &["orphans", "--delete", "--yes"])?;
    assert!(ok && text.contains(&format!("{forgotten} is in the trash")), "{text}");
    let left = directories(&root);
    assert!(!left.contains(&forgotten), "{left:?}");
    for name in [volumes[0].name_any(), kept.name_any(), "stranger".to_owned()] {
        assert!(left.contains(&name), "{name}: {left:?}");
    }
    space.done().await
}

const PATTERN: &str = "${pvc.metadata.namespace}/${pvc.metadata.name}";
