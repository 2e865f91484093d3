//! The tutorial on a real node: the provisioner runs as a pod, installed with its own manifests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use testbed::cluster::{self, eventually};
use testbed::control_plane::{self, BUSYBOX, State};
use testbed::process::output;

use super::report::Report;
use super::stage::Stage;
use super::{CLAIM, NAMESPACE, bound, delete};
use crate::build;

/// The manifests, relative to the project's folder.
const MANIFESTS: &str = "deploy/hostpath/per-node";
/// The name of the installed objects.
const INSTALLED: &str = "hostpath-provisioner";
const CLASS: &str = "hostpath";
const ROOT: &str = "/var/lib/hostpath-provisioner";
const POD: &str = "writer";
/// The first pod takes longer, because its image is unpacked.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) async fn show(stage: &Stage, image: &Path, report: &mut Report) -> anyhow::Result<()> {
    let state = &stage.state;
    let client = control_plane::client_from(&state.kubeconfig).await?;

    report.begin("import the image into the node's containerd");
    control_plane::import_image(state, image)?;
    report.done();

    let root = install(state, report)?;
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), INSTALLED);
    let is_ready = |set: &DaemonSet| set.status.as_ref().is_some_and(|status| status.number_ready > 0);
    let ready = eventually(LIMIT, async || Ok(daemon_sets.get_opt(INSTALLED).await?.filter(is_ready)));
    report.waiting(ready).await?.context("the provisioner's pod is not ready")?;
    report.done();
    report.object::<DaemonSet>(&client, Some(INSTALLED), INSTALLED).await?;
    report.object::<StorageClass>(&client, None, CLASS).await?;

    report.begin("create a claim, and a pod that writes a file into its volume");
    cluster::apply(&client, &[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})])
        .await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    claims.create(&PostParams::default(), &cluster::claim(CLAIM, CLASS)).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    pods.create(&PostParams::default(), &writer()?).await?;
    report.done();

    let volume = bound(&claims, &client, report).await?;
    wait_written(&pods, &client, report).await?;
    let directory = look_at(&volume, &root, report)?;

    report.begin("delete the pod");
    pods.delete(POD, &DeleteParams::default()).await?;
    let gone = eventually(LIMIT, async || Ok(pods.get_opt(POD).await?.is_none().then_some(())));
    report.waiting(gone).await?.context("the pod still exists")?;
    report.done();
    delete(&claims, &client, &volume, &directory, report).await
}

/// Applies the manifests with another root directory, because their own one is a directory of this machine. Returns it.
fn install(state: &State, report: &mut Report) -> anyhow::Result<PathBuf> {
    let kubectl = state.kubectl.as_deref().context("there is no kubectl")?;
    let folder = state.dir.join("demo");
    let root = folder.join("volumes");
    fs::create_dir_all(&folder)?;
    report.begin("install the provisioner from its manifests, wait until it is ready");
    report.show(&format!("kubectl kustomize {MANIFESTS} | sed s|{ROOT}|{}|g | kubectl apply -f -", root.display()));
    let manifests = run(Command::new(kubectl).args(["kustomize", MANIFESTS]))?;
    let file = folder.join("manifests.yaml");
    fs::write(&file, manifests.replace(ROOT, &root.display().to_string()))?;
    let applied =
        run(Command::new(kubectl).arg("--kubeconfig").arg(&state.kubeconfig).args(["apply", "-f"]).arg(&file))?;
    applied.lines().for_each(|line| report.show(line));
    Ok(root)
}

fn writer() -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": POD, "image": BUSYBOX, "command": ["sh", "-c", "echo hello > /data/hello.txt"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}],
        },
    }))?)
}

async fn wait_written(pods: &Api<Pod>, client: &Client, report: &mut Report) -> anyhow::Result<()> {
    report.begin("wait until the pod has succeeded");
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let ended = eventually(LIMIT, async || {
        Ok(pods.get_opt(POD).await?.map(|pod| phase(&pod)).filter(|phase| phase == "Succeeded" || phase == "Failed"))
    });
    let ended = report.waiting(ended).await?.context("the pod has not ended")?;
    ensure!(ended == "Succeeded", "the pod has failed");
    report.done();
    report.object::<Pod>(client, Some(NAMESPACE), POD).await
}

fn look_at(volume: &PersistentVolume, root: &Path, report: &mut Report) -> anyhow::Result<PathBuf> {
    report.begin("read the file on the node's disk");
    let directory = super::directory(volume, root)?;
    let text = fs::read_to_string(directory.join("hello.txt")).context("the pod's file does not exist")?;
    ensure!(text == "hello\n", "the pod's file contains {text:?}");
    report.done();
    report.directory(&directory)?;
    Ok(directory)
}

fn run(command: &mut Command) -> anyhow::Result<String> {
    Ok(String::from_utf8(output(command.current_dir(build::workspace_root()))?)?)
}
