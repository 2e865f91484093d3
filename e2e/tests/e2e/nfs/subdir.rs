//! Directories on a share.

use std::fs;
use std::time::Instant;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube_provisioner::protocol::PROVISIONED_BY;
use serde_json::json;
use testbed::cluster::{TestSpace, eventually};

use super::fixture::*;

#[tokio::test]
async fn nfs_claim_becomes_a_directory_on_the_share() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("nfs-s1").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let _program = subdir(&space, &access, &[share(root.path())], &[])?;
    let class = space.class_with("class", []).await?;
    let archive = space
        .class_with("archive", [("archiveOnDelete", "true"), ("pathPattern", "${.PVC.namespace}/${.PVC.name}")])
        .await?;
    let mut many = space.claim("claim", &class);
    many.spec.get_or_insert_default().access_modes = Some(vec!["ReadWriteMany".to_owned()]);
    let (_, volume) = space.bind(many).await?;
    let place = source(&volume);
    assert_eq!((place.server.as_str(), place.path), (SERVER, format!("{SHARE}/{}", volume.name_any())));
    let directory = root.path().join(volume.name_any());
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&directory)?.permissions()) & 0o7777;
    assert_eq!(mode, 0o777);
    fs::write(directory.join("SUCCESS"), "x")?;
    space.delete_claim("claim").await?;
    assert!(!directory.exists());
    // The directory is archived with its path, so names cannot collide.
    let (_, volume) = space.bind(space.claim("kept", &archive)).await?;
    let directory = root.path().join(space.namespace()).join("kept");
    fs::write(directory.join("data"), "x")?;
    space.delete_claim("kept").await?;
    assert!(!directory.exists());
    let of_share = ["--share", &share(root.path()), "--allow-local-directory"];
    let (ok, text) = command(&space, &[&["subdir", "trash", "list"][..], &of_share].concat())?;
    assert!(ok && text.contains(&volume.name_any()) && text.contains("never"), "{text}");
    let (ok, text) = command(&space, &[&["subdir", "trash", "restore", &volume.name_any()][..], &of_share].concat())?;
    assert!(ok, "{text}");
    assert!(directory.join("data").exists());
    let (ok, text) = command(&space, &[&["subdir", "orphans"][..], &of_share].concat())?;
    assert!(ok && text.contains("0 orphans"), "{text}");
    space.cluster_api::<PersistentVolume>().delete(&volume.name_any(), &DeleteParams::default()).await?;
    space.done().await
}

#[tokio::test]
async fn nfs_claim_cannot_leave_the_share_or_use_foreign_directories() -> anyhow::Result<()> {
    const KEY: &str = "nfs.io/storage-path";
    let (space, outer) = (TestSpace::new("nfs-s3").await?, tempfile::tempdir()?);
    let root = outer.path().join("share");
    fs::create_dir(&root)?;
    let access = account(&space).await?;
    let _program = subdir(&space, &access, &[share(&root)], &[])?;
    let pattern = [("pathPattern", "shared/${.PVC.annotations.nfs.io/storage-path}"), ("onDelete", "archive")];
    let class = space.class_with("class", pattern).await?;
    for (name, annotation, says) in [
        ("up", Some("../../outside"), "begins with a dot"),
        ("absolute", Some("/etc"), "empty"),
        ("none", None, KEY),
        ("empty", Some(""), KEY),
        ("own", Some(".kube-provisioner"), "begins with a dot"),
    ] {
        let mut claim = space.claim(name, &class);
        claim.annotations_mut().extend(annotation.map(|text| (KEY.to_owned(), text.to_owned())));
        space.create_claim(claim).await?;
        space.wait_for_message("PersistentVolumeClaim", name, says).await?;
    }
    assert_eq!(names(outer.path()), ["share"]);
    let asks = |name: &str| {
        let mut claim = space.claim(name, &class);
        claim.annotations_mut().insert(KEY.to_owned(), "team".to_owned());
        claim
    };
    space.bind(asks("first")).await?;
    fs::write(root.join("shared/team/data"), "x")?;
    space.create_claim(asks("second")).await?;
    space.wait_for_message("PersistentVolumeClaim", "second", "first").await?;
    // The archive keeps both directories, although they had the same path.
    space.delete_claim("first").await?;
    space.wait_bound("second").await?;
    assert_eq!(names(&root.join("shared/team")), Vec::<String>::new());
    space.delete_claim("second").await?;
    let (ok, text) =
        command(&space, &["subdir", "trash", "list", "--share", &share(&root), "--allow-local-directory"])?;
    assert!(ok && text.lines().count() == 3, "{text}");
    space.done().await
}

#[tokio::test]
async fn nfs_settings_of_a_deleted_class_still_apply() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("nfs-s6").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let _program = subdir(&space, &access, &[share(root.path())], &[])?;
    let class = space.class_with("class", [("onDelete", "retain")]).await?;
    let (_, volume) = space.bind(space.claim("claim", &class)).await?;
    space.cluster_api::<StorageClass>().delete(&class.name_any(), &DeleteParams::default()).await?;
    space.delete_claim("claim").await?;
    assert!(root.path().join(volume.name_any()).exists(), "the class retains the data");
    space.done().await
}

/// Replaces the share with an empty directory, which is how an unmounted share looks to a program.
#[tokio::test]
async fn nfs_unavailable_share_does_not_block_other_shares() -> anyhow::Result<()> {
    let (space, outer) = (TestSpace::new("nfs-k1").await?, tempfile::tempdir()?);
    let (one, two, away) = (outer.path().join("one"), outer.path().join("two"), outer.path().join("away"));
    fs::create_dir(&one)?;
    let access = account(&space).await?;
    let shares = [format!("{SERVER}:/one={}", one.display()), format!("other.example.com:/two={}", two.display())];
    let program = subdir(&space, &access, &shares, &[])?;
    let of_one = space.class_with("one", [("server", SERVER), ("share", "/one")]).await?;
    let of_two = space.class_with("two", [("server", "other.example.com"), ("share", "/two/")]).await?;
    let of_none = space.class_with("none", [("share", "/three")]).await?;
    space.create_claim(space.claim("second", &of_two)).await?;
    space.wait_for_message("PersistentVolumeClaim", "second", "other.example.com:/two cannot be used").await?;
    space.create_claim(space.claim("nowhere", &of_none)).await?;
    space.wait_for_message("PersistentVolumeClaim", "nowhere", "other.example.com:/two").await?;
    space.bind(space.claim("first", &of_one)).await?;
    fs::create_dir(&two)?;
    let (_, volume) = space.wait_bound("second").await?;
    assert_eq!(source(&volume).path, format!("/two/{}", volume.name_any()));
    // The share disappears while the provisioner runs.
    fs::rename(&one, &away)?;
    fs::create_dir(&one)?;
    space.create_claim(space.claim("third", &of_one)).await?;
    space.wait_for_message("PersistentVolumeClaim", "third", "has no marker").await?;
    assert_eq!(fs::read_dir(&one)?.count(), 0);
    fs::remove_dir(&one)?;
    fs::rename(&away, &one)?;
    space.wait_bound("third").await?;
    assert!(program.is_running());
    space.done().await
}

/// The volumes have the form that nfs-subdir-external-provisioner and csi-driver-nfs write.
#[tokio::test]
async fn nfs_adopts_volumes_of_other_provisioners() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("nfs-k14").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let former = former(&space);
    let _program = subdir(&space, &access, &[share(root.path())], &["--additional-provisioner-names", &former])?;
    let class = space.class_with("class", []).await?;
    // The share receives its marker before it contains volumes.
    space.bind(space.claim("ours", &class)).await?;
    let attributes = json!({"server": SERVER, "share": SHARE, "subdir": "csi/data"});
    let volumes = [
        ("subdir", "shop-data-pvc-1", json!({"nfs": {"server": SERVER, "path": format!("{SHARE}/shop-data-pvc-1")}})),
        (
            "csi",
            "csi/data",
            json!({"csi": {"driver": "nfs.csi.k8s.io", "volumeHandle": "x#y", "volumeAttributes": attributes}}),
        ),
    ];
    for (name, directory, source) in volumes {
        fs::create_dir_all(root.path().join(directory))?;
        fs::write(root.path().join(directory).join("data"), "x")?;
        let volume = space.cluster_wide_name(name);
        let claim = space.create_claim({
            let mut claim = space.claim(name, &class);
            claim.spec.get_or_insert_default().volume_name = Some(volume.clone());
            claim
        });
        let claim = claim.await?;
        let mut spec = json!({"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class.name_any(),
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": space.namespace(),
                "name": name, "uid": claim.uid()}});
        spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        let object: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": volume, "annotations": {(PROVISIONED_BY): former}}, "spec": spec}))?;
        space.create_cluster_wide(&object).await?;
        space.wait_bound(name).await?;
        let of_share = ["--share", &share(root.path()), "--allow-local-directory"];
        let (ok, text) = command(&space, &[&["subdir", "adopt", "--volume", &volume][..], &of_share].concat())?;
        assert!(ok && text.contains("--additional-provisioner-names"), "{text}");
        space.delete_claim(name).await?;
        assert!(!root.path().join(directory).exists(), "{directory}");
        let (ok, text) = command(&space, &[&["subdir", "trash", "list"][..], &of_share].concat())?;
        assert!(ok && text.contains(&volume), "archived: {text}");
    }
    space.done().await
}

/// Creates many claims at once, and prints the figures.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "figures")]
async fn nfs_many_claims_at_once_are_bound() -> anyhow::Result<()> {
    // A thousand claims would block the control plane for all other tests.
    let count = testbed::count("E2E_CLAIMS", 100)?;
    let (space, root) = (TestSpace::new("nfs-k5").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let class = space.class_with("class", [("enforceSize", "false")]).await?;
    let program = subdir(&space, &access, &[share(root.path())], &[])?;
    program.wait_for_output("ready", SOON).await?;
    let start = Instant::now();
    space.create_claims(&class, count).await?;
    let created = start.elapsed();
    space.wait_all_bound(count, 4 * SOON).await?;
    println!("{count} claims created in {created:.1?}, all bound after {:.1?}", start.elapsed());
    assert_eq!(names(root.path()).len(), space.volumes().await?.len());
    space.delete_claims().await?;
    let empty = eventually(4 * SOON, async || Ok(names(root.path()).is_empty().then_some(()))).await?;
    assert!(empty.is_some(), "left: {}", names(root.path()).len());
    space.done().await
}
