//! Allowed and refused paths of directories.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::cluster::TestSpace;

use super::fixture::*;

const PATTERN: &str = "${pvc.metadata.namespace}/${pvc.metadata.name}";

#[tokio::test]
async fn hostpath_creates_directories_by_the_pattern_of_the_class() -> anyhow::Result<()> {
    let (space, root, _access, _program) = serving("p9").await?;
    let class = space.class_with("class", [("pathPattern", PATTERN)]).await?;
    let (_, volume) = space.bind(space.claim("claim", &class)).await?;
    assert_eq!(path_of(&volume), root.path().canonicalize()?.join(space.namespace()).join("claim"));
    space.delete_claim("claim").await?;
    assert!(directories(&root).is_empty(), "the namespace's directory must be deleted with its last volume");
    space.done().await
}

/// These patterns are refused, and no parameter or annotation can allow them.
#[tokio::test]
async fn hostpath_refuses_patterns_that_could_leave_the_root() -> anyhow::Result<()> {
    let (space, root, _access, _program) = serving("p13").await?;
    let patterns = [
        ("../${pv.metadata.name}", "begins with a dot"),
        ("/etc/${pv.metadata.name}", "absolute"),
        ("", "two claims"),
        ("fixed", "two claims"),
        ("${pvc.metadata.annotations.path}/${pv.metadata.name}", "not a placeholder"),
        ("{{ .PVC.Namespace }}/{{ .PVC.Name }}", "Go templates"),
        ("．．/${pv.metadata.name}", "letters, digits"),
        ("${pv.metadata.name}\n", "letters, digits"),
    ];
    for (number, (pattern, says)) in patterns.into_iter().enumerate() {
        let class = space.class_with(&format!("class-{number}"), [("pathPattern", pattern)]).await?;
        let name = format!("claim-{number}");
        let mut claim = space.claim(&name, &class);
        let annotations = [("nfs.io/storage-path", "../../etc"), ("path", ".."), ("allowUnsafePathPattern", "true")];
        claim.annotations_mut().extend(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())));
        space.create_claim(claim).await?;
        // An earlier event may come from the controller-manager, which does not know the class yet.
        space.wait_for_message("PersistentVolumeClaim", &name, says).await?;
    }
    let class = space.class_with("unsafe", [("allowUnsafePathPattern", "true")]).await?;
    space.create_claim(space.claim("unsafe", &class)).await?;
    space.wait_for_message("PersistentVolumeClaim", "unsafe", "allowUnsafePathPattern").await?;
    assert!(directories(&root).is_empty());
    space.done().await
}

#[tokio::test]
async fn hostpath_two_claims_never_share_a_directory() -> anyhow::Result<()> {
    let (space, root, _access, _program) = serving("s4").await?;
    let kept = space.class_with("kept", [("pathPattern", PATTERN), ("onDelete", "retain")]).await?;
    let (_, first) = space.bind(space.claim("claim", &kept)).await?;
    fs::write(path_of(&first).join("data"), "x")?;
    space.delete_claim("claim").await?;
    space.create_claim(space.claim("claim", &kept)).await?;
    space.wait_for_message("PersistentVolumeClaim", "claim", &first.name_any()).await?;
    assert_eq!(fs::read_to_string(path_of(&first).join("data"))?, "x");
    // A directory without a mark at the volume's path stays as well.
    fs::create_dir(root.path().join(space.namespace()).join("other"))?;
    space.create_claim(space.claim("other", &kept)).await?;
    space.wait_for_message("PersistentVolumeClaim", "other", "no ownership mark").await?;
    fs::remove_dir(root.path().join(space.namespace()).join("other"))?;
    space.wait_bound("other").await?;
    space.done().await
}

/// Deletion does not depend on the label that volumes name.
#[tokio::test]
async fn hostpath_volumes_use_the_node_label_of_the_class() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("p8").await?, tempfile::tempdir()?);
    let access = account_per_node(&space).await?;
    let labels = [("kubernetes.io/hostname", "another.internal"), ("example.com/host", "rack-7")];
    let node = space.create_node("node", &labels).await?.name_any();
    let _program = started(&space, &access, root.path(), &["--node-name", &node]).await?;
    let parameters = [("nodeAffinityKey", "example.com/host"), ("pathPattern", PATTERN)];
    let class = space.waiting_class_with("class", parameters).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    space.create(&space.pod("pod", "claim")).await?;
    let (_, volume) = space.wait_bound("claim").await?;
    let affinity = serde_json::to_value(volume.spec.as_ref().unwrap().node_affinity.as_ref())?;
    let expression = &affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!(expression, &json!({"key": "example.com/host", "operator": "In", "values": ["rack-7"]}));
    space.api::<k8s_openapi::api::core::v1::Pod>().delete("pod", &DeleteParams::default().grace_period(0)).await?;
    space.delete_claim("claim").await?;
    assert!(directories(&root).is_empty(), "the data must be deleted with the volume");
    // The class names a label that the node does not have.
    let class = space.waiting_class_with("missing", [("nodeAffinityKey", "example.com/none")]).await?;
    space.create_claim(space.claim("missing", &class)).await?;
    space.create(&space.pod("missing", "missing")).await?;
    space.wait_for_message("PersistentVolumeClaim", "missing", "has no label example.com/none").await?;
    space.done().await
}

#[tokio::test]
async fn hostpath_claim_can_choose_its_volume_type() -> anyhow::Result<()> {
    let (space, _root, _access, _program) = serving("p2").await?;
    let class = space.class_with("class", []).await?;
    let claim = |name: &str, value: &str| {
        let mut claim = space.claim(name, &class);
        claim.annotations_mut().insert("hostpath-provisioner/volume-type".to_owned(), value.to_owned());
        claim
    };
    let (_, volume) = space.bind(claim("host-path", "hostPath")).await?;
    assert!(volume.spec.is_some_and(|spec| spec.host_path.is_some()));
    for (name, value, says) in [("local", "local", "--node-name"), ("wrong", "nfs", "expected hostPath or local")] {
        space.create_claim(claim(name, value)).await?;
        space.wait_for_message("PersistentVolumeClaim", name, says).await?;
    }
    space.done().await
}

/// Users who may create volumes can write any path into them.
#[tokio::test]
async fn hostpath_manually_created_volumes_cannot_delete_foreign_files() -> anyhow::Result<()> {
    let (space, outer) = (TestSpace::new("k8").await?, tempfile::tempdir()?);
    let root = outer.path().canonicalize()?.join("root");
    fs::create_dir(&root)?;
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700))?;
    fs::create_dir(outer.path().join("outside"))?;
    fs::write(outer.path().join("outside/precious"), "x")?;
    let access = account(&space).await?;
    let _program = started(&space, &access, &root, &[]).await?;
    let class = space.class_with("class", []).await?;
    let (_, victim) = space.bind(space.claim("victim", &class)).await?;
    fs::write(path_of(&victim).join("data"), "x")?;
    symlink(outer.path().join("outside"), root.join("link"))?;
    symlink(outer.path().join("outside"), path_of(&victim).join("out"))?;
    let volumes = space.cluster_api::<PersistentVolume>();
    let paths = [
        outer.path().join("outside"),
        root.join("link"),
        root.clone(),
        root.join(".kube-provisioner"),
        root.join(".kube-provisioner/volumes"),
        path_of(&victim),
        path_of(&victim).join("out"),
        Path::new("/etc").to_owned(),
        Path::new("/").to_owned(),
    ];
    let mut made = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let name = space.cluster_wide_name(&format!("made-{number}"));
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": space.provisioner(),
                "kube-provisioner/identity": space.namespace()}},
            "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class.name_any(),
                "hostPath": {"path": path, "type": ""},
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": space.namespace(),
                    "name": format!("gone-{number}"), "uid": "00000000-0000-4000-8000-000000000001"}},
        }))?;
        space.create_cluster_wide(&volume).await?;
        made.push(name);
    }
    for (name, path) in made.iter().zip(&paths) {
        let event = space.wait_for_event("PersistentVolume", name, "VolumeFailedDelete").await?;
        assert!(event.message.is_some(), "{}", path.display());
        assert!(volumes.get_opt(name).await?.is_some(), "{}: the volume stays", path.display());
    }
    assert_eq!(fs::read_to_string(path_of(&victim).join("data"))?, "x");
    assert_eq!(fs::read_to_string(outer.path().join("outside/precious"))?, "x");
    // The victim's own volume is deleted as usual, although it contains symlinks.
    space.delete_claim("victim").await?;
    assert!(!path_of(&victim).exists());
    assert_eq!(fs::read_to_string(outer.path().join("outside/precious"))?, "x");
    for (name, path) in made.iter().zip(&paths) {
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        match volumes.patch(name, &PatchParams::default(), &none).await {
            // The victim's path no longer exists, so the provisioner may have deleted the object.
            Err(kube::Error::Api(status)) if status.code == 404 && path.starts_with(path_of(&victim)) => {}
            other => drop(other?),
        }
    }
    space.done().await
}
