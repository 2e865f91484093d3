//! The NFS provisioner in pods of a node whose kernel mounts NFS, installed as its README describes.

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use testbed::cluster::{ImageOf, TestSpace, claim, eventually};
use testbed::control_plane::GuestNode;
use testbed::manifests::project;
use testbed::uml::MOUNT_POINT;

/// Long, because nodes in user-mode Linux are slow.
const LIMIT: &str = "--timeout=600s";

/// The name of the server's manifests and of their namespace.
const SERVER: &str = "nfs-server-provisioner";

/// The longest interruption of a client when another pod becomes the server.
const PATIENCE: Duration = Duration::from_secs(400);

/// The test's own kustomization on top of one in `deploy`, like users write it.
struct Kustomization {
    folder: PathBuf,
}

impl Kustomization {
    /// Writes the kustomization, with `change` added to it.
    fn new(folder: &Path, base: &str, image: &str, tag: &str, change: &str) -> anyhow::Result<Self> {
        // Kustomize accepts only relative paths.
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

/// The example in a YAML block of deploy/nfs/README.md, from this line on.
fn example(begin: &str) -> anyhow::Result<String> {
    let readme = fs::read_to_string(project().join("deploy/nfs/README.md"))?;
    let (_, block) = readme.split_once(begin).context("the README has no example")?;
    let (example, _) = block.split_once("```").context("the example has no end")?;
    Ok(example.to_owned())
}

/// The patch for a share on another server, and for pods of one node.
fn share_patch(server: &str, share: &Path, node: &str) -> anyhow::Result<String> {
    let patch = example("resources: [deploy/nfs/subdir]\n")?;
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

#[tokio::test]
async fn ganesha_pods_on_a_node_use_a_share() -> anyhow::Result<()> {
    // Uses a separate cluster: pods of other tests could be scheduled onto the second node, which lacks their images.
    let space = TestSpace::with_own_node("node-share").await?;
    let (server, share) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let state = space.cluster().state();
    let node = space.guest_node(&[ImageOf::NfsSubdir.archive(state)?]).await?;
    let address = SocketAddrV4::new(node.link().host_address(), 2049);
    let arguments = testbed::nfs::serving(server.path(), address, share.path())?;
    let _server = space.spawn("ganesha", "/usr/bin/ganesha.nfsd", arguments)?;

    let (kubectl, folder) = (space.kubectl(), tempfile::tempdir()?);
    let change = share_patch(&address.ip().to_string(), share.path(), node.name())?;
    let of = |tag| Kustomization::new(folder.path(), "deploy/nfs/subdir", "nfs-subdir-provisioner", tag, &change);
    kubectl.apply(&of("e2e")?.path())?;
    let rolled_out = || {
        kubectl.run(&["rollout", "status", "deployment/nfs-subdir-provisioner", "-n", "nfs-subdir-provisioner", LIMIT])
    };
    rolled_out().with_context(|| node.text())?;

    let (_, volume) = space.bind(claim("data", "nfs-subdir")).await?;
    let write = "echo hello > /data/file; mount | grep ' /data '";
    let mount = space.run(&script(&space, &node, "writer", "data", write)?).await?;
    assert!(mount.contains("type nfs4"), "{mount}");
    let directory = share.path().join(volume.metadata.name.as_deref().unwrap_or(""));
    assert_eq!(fs::read_to_string(directory.join("file"))?, "hello\n");
    assert_eq!(space.run(&script(&space, &node, "reader", "data", "cat /data/file")?).await?, "hello");
    space.delete_pod("writer").await?;
    space.delete_pod("reader").await?;
    space.delete_claim("data").await?;
    assert!(!directory.exists());

    kubectl.remove(&of("e2e")?.path()).await?;
    space.done().await
}

/// The server's disk: the node's own, which its claim selects by name.
fn disk(node: &GuestNode) -> Value {
    let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name()]});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("disk-of-{}", node.name())},
        "spec": {
            "capacity": {"storage": "100Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": MOUNT_POINT},
            "claimRef": {"namespace": SERVER, "name": format!("disk-{SERVER}-0")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        },
    })
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "figures")]
async fn ganesha_pods_on_a_node_use_a_server_in_a_pod() -> anyhow::Result<()> {
    let space = TestSpace::with_own_node("node-server").await?;
    let node = space.guest_node(&[ImageOf::NfsServer.archive(space.cluster().state())?]).await?;
    space.apply(&[disk(&node)]).await?;
    let (kubectl, folder) = (space.kubectl(), tempfile::tempdir()?);
    // The default seccomp profile of Debian's containerd forbids `name_to_handle_at`.
    let seccomp = example("or without Helm:\n\n```yaml\n")?;
    let installed = Kustomization::new(folder.path(), "deploy/nfs/server", SERVER, "e2e", &seccomp)?;
    kubectl.apply(&installed.path())?;
    let in_server = |arguments: &[&str]| kubectl.run(&[arguments, &["-n", SERVER]].concat());
    let ready = || in_server(&["rollout", "status", &format!("statefulset/{SERVER}"), LIMIT]);
    ready().with_context(|| node.text())?;

    space.create_claim(claim("data", "nfs-server")).await?;
    let bound = space.wait_bound("data").await;
    let (_, volume) = bound.with_context(|| in_server(&["logs", &format!("{SERVER}-0")]).unwrap_or_default())?;
    let service = in_server(&["get", "service", SERVER, "-o", "jsonpath={.spec.clusterIP}"])?;
    assert_eq!(volume.spec.as_ref().and_then(|spec| Some(spec.nfs.as_ref()?.server.as_str())), Some(service.as_str()));
    // The client keeps the file open.
    let write = "exec 3>>/data/file; while :; do echo line >&3; echo; sleep 0.2; done";
    let mut writer = script(&space, &node, "writer", "data", "")?;
    writer["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-ec", write]);
    space.start_pod(&writer).await?;
    let reader = script(&space, &node, "reader", "data", "test -s /data/file && mount | grep ' /data '")?;
    let mount = space.run(&reader).await?;
    assert!(mount.contains("type nfs4"), "{mount}");
    space.delete_pod("reader").await?;

    let lines = async || anyhow::Ok(space.logs("writer").await?.lines().count());
    for (how, grace) in [("ended", "--grace-period=30"), ("killed", "--grace-period=0")] {
        let (start, before) = (Instant::now(), lines().await?);
        in_server(&["delete", "pod", &format!("{SERVER}-0"), grace, "--force=false"])?;
        ready()?;
        let up = start.elapsed();
        let goes_on = eventually(PATIENCE, async || Ok((lines().await? > before + 20).then_some(()))).await?;
        goes_on.with_context(|| format!("the writer does not continue; output of the node:\n{}", node.text()))?;
        println!("the server's pod was {how}: another one after {up:.1?}, 20 writes after {:.1?}", start.elapsed());
    }
    space.delete_pod("writer").await?;
    space.delete_claim("data").await?;
    kubectl.remove(&installed.path()).await?;
    space.done().await
}
