//! Directories and volumes that other provisioners or administrators created.

use std::collections::BTreeMap;
use std::fs;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;
use testbed::cluster::TestSpace;

use super::fixture::*;

#[tokio::test]
async fn adopted_directory_becomes_a_volume() -> anyhow::Result<()> {
    let (space, root, _access, _program) = serving("adopt").await?;
    let class = space.class_with("class", []).await?;
    fs::create_dir_all(root.path().join("old/data"))?;
    fs::write(root.path().join("old/data/file"), "x")?;
    let claim = format!("{}/claim", space.namespace());
    let name = format!("{}-old", space.namespace());
    let size =
        ["--size", "1Mi", "--storage-class", &class.name_any(), "--claim", &claim, "--name", &name].map(str::to_owned);
    let adopt = |directory: &str, more: &[&str]| {
        let mut arguments = vec!["adopt", directory];
        arguments.extend(size.iter().map(String::as_str));
        arguments.extend(more);
        command(&space, root.path(), &arguments)
    };
    for bad in ["../old", "/etc", "missing", ".kube-provisioner", "old/../../etc"] {
        let (ok, text) = adopt(bad, &[])?;
        assert!(!ok, "{bad}: {text}");
    }
    let (ok, text) = adopt("old/data", &["--reclaim-policy", "Delete"])?;
    assert!(ok, "{text}");
    let (ok, text) = adopt("old/data", &["--reclaim-policy", "Delete"])?;
    assert!(!ok, "twice: {text}");
    let mut claim = space.claim("claim", &class);
    claim.spec.as_mut().unwrap().volume_name = Some(name.clone());
    let (_, volume) = space.bind(claim).await?;
    assert_eq!((volume.name_any(), fs::read_to_string(path_of(&volume).join("file"))?), (name, "x".to_owned()));
    space.delete_claim("claim").await?;
    assert!(directories(&root).is_empty());
    space.done().await
}

/// The volumes have the form that rancher's local path provisioner and the tutorial's demo write.
#[tokio::test]
async fn hostpath_adopts_volumes_of_other_provisioners() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("k14").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let old_name = format!("rancher-{}", space.provisioner());
    let _program = started(&space, &access, root.path(), &["--additional-provisioner-names", &old_name]).await?;
    let class = space.class_with("class", []).await?;
    let root_path = root.path().canonicalize()?;
    let uid = "6d6a8ee0-580a-4204-9cae-9be857ec69cc";
    let made = [
        (format!("pvc-{uid}-{}", space.namespace()), format!("pvc-{uid}_shop_data"), &old_name, "DirectoryOrCreate"),
        (space.cluster_wide_name("demo"), "pvc-demo".to_owned(), &space.provisioner().to_owned(), ""),
    ];
    for (volume, directory, provisioner, kind) in &made {
        fs::create_dir(root.path().join(directory))?;
        fs::write(root.path().join(directory).join("file"), "x")?;
        let annotations = BTreeMap::from([
            ("pv.kubernetes.io/provisioned-by", provisioner.as_str()),
            ("local.path.provisioner/selected-node", "node-1"),
            ("hostPathProvisionerIdentity", "node-1"),
        ]);
        let object: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": volume, "annotations": annotations},
            "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class.name_any(),
                "hostPath": {"path": root_path.join(directory), "type": kind}},
        }))?;
        space.cluster_api::<PersistentVolume>().create(&PostParams::default(), &object).await?;
        let mut claim = space.claim(&format!("claim-{}", directory.len()), &class);
        claim.spec.as_mut().unwrap().volume_name = Some(volume.clone());
        let claim = space.create_claim(claim).await?;
        space.wait_bound(&claim.name_any()).await?;
        let (ok, text) = command(&space, root.path(), &["orphans"])?;
        assert!(ok && (text.contains("adopt") || *provisioner == &old_name), "{text}");
        let (ok, text) = command(&space, root.path(), &["adopt", "--volume", volume])?;
        assert!(ok && (text.contains("--additional-provisioner-names") == (*provisioner == &old_name)), "{text}");
        space.delete_claim(&claim.name_any()).await?;
        assert!(!root.path().join(directory).exists(), "{directory}");
    }
    space.done().await
}
