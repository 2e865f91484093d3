//! The NFS provisioner in pods of a node whose kernel mounts NFS, installed as its README says.

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use anyhow::Context;
use e2e::cluster::{ImageOf, TestSpace, claim};
use e2e::control_plane::GuestNode;
use e2e::manifests::project;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::DeleteParams;
use serde_json::{Value, json};

/// A node in user-mode Linux is slow.
const LIMIT: &str = "--timeout=240s";

/// A kustomization of the test's own on top of one in `deploy`, as its users write one.
struct Kustomization {
    folder: PathBuf,
}

impl Kustomization {
    /// `change` is added to it.
    fn new(folder: &Path, base: &str, image: &str, tag: &str, change: &str) -> anyhow::Result<Self> {
        // Kustomize takes relative paths alone.
        let up = "../".repeat(folder.canonicalize()?.components().count() - 1);
        let base = format!("{up}{}/{base}", project().canonicalize()?.display().to_string().trim_start_matches('/'));
        let text = format!(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{base}]\n\
             images:\n  - {{name: localhost/{image}, newTag: {tag}}}\n{change}"
        );
        fs::write(folder.join("kustomization.yaml"), text)?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn path(&self) -> String {
        self.folder.display().to_string()
    }
}

/// The patch that deploy/nfs/README.md shows, for a share at another place, and for pods of one node.
fn share_patch(server: &str, share: &Path, node: &str) -> anyhow::Result<String> {
    let readme = fs::read_to_string(project().join("deploy/nfs/README.md"))?;
    let (_, block) = readme.split_once("resources: [deploy/nfs/subdir]\n").context("the README has no example")?;
    let (patch, _) = block.split_once("```").context("the example has no end")?;
    let patch = patch.replace("nas.example.org", server).replace("/data", &share.display().to_string());
    let spec = "        template:\n          spec:\n";
    assert!(patch.contains(spec), "{patch}");
    Ok(patch.replace(spec, &format!("{spec}            nodeSelector: {{kubernetes.io/hostname: {node}}}\n")))
}

fn script(space: &TestSpace, node: &GuestNode, name: &str, claim: &str, script: &str) -> anyhow::Result<Value> {
    let mut pod = space.script(name, claim, script)?;
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node.name()});
    Ok(pod)
}

async fn delete_claim(space: &TestSpace, volume: &PersistentVolume) -> anyhow::Result<()> {
    let claims = space.api::<PersistentVolumeClaim>();
    claims.delete("data", &DeleteParams::default()).await?;
    space.wait_gone(&claims, "data").await?;
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), volume.metadata.name.as_deref().unwrap_or("")).await
}

#[tokio::test]
async fn ganesha_a_share_serves_the_pods_of_a_node() -> anyhow::Result<()> {
    let space = TestSpace::new("node-share").await?;
    let (server, share) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let state = space.cluster().state();
    let node = space.guest_node(&[ImageOf::NfsSubdir.archive(state)?]).await?;
    let address = SocketAddrV4::new(node.link().here(), 2049);
    let arguments = e2e::nfs::serving(server.path(), address, share.path())?;
    let _server = space.spawn("ganesha", "/usr/bin/ganesha.nfsd", arguments)?;

    let (kubectl, folder) = (space.kubectl(), tempfile::tempdir()?);
    let change = share_patch(&address.ip().to_string(), share.path(), node.name())?;
    let of = |tag| Kustomization::new(folder.path(), "deploy/nfs/subdir", "nfs-subdir-provisioner", tag, &change);
    kubectl.apply(&of("e2e")?.path())?;
    let rolled_out = || {
        kubectl.run(&["rollout", "status", "deployment/nfs-subdir-provisioner", "-n", "nfs-subdir-provisioner", LIMIT])
    };
    rolled_out().with_context(|| node.text())?;

    space.create_claim(claim("data", "nfs-subdir")).await?;
    let (_, volume) = space.wait_bound("data").await?;
    let write = "echo hello > /data/file; mount | grep ' /data '";
    let mount = space.run(&script(&space, &node, "writer", "data", write)?).await?;
    assert!(mount.contains("type nfs4"), "{mount}");
    let directory = share.path().join(volume.metadata.name.as_deref().unwrap_or(""));
    assert_eq!(fs::read_to_string(directory.join("file"))?, "hello\n");
    assert_eq!(space.run(&script(&space, &node, "reader", "data", "cat /data/file")?).await?, "hello");
    space.delete_pod("writer").await?;
    space.delete_pod("reader").await?;
    delete_claim(&space, &volume).await?;
    assert!(!directory.exists());

    kubectl.remove(&of("e2e")?.path()).await?;
    space.done().await
}
