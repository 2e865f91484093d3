//! A volume that is an export of a real NFS server: a claim, two clients that see each other's file, and cleanup.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::DeleteParams;
use kube_provisioner::{Capabilities, Options, rbac};
use serde_json::{Value, json};
use testbed::cluster::{self, eventually, is_bound};
use testbed::guard::Guard;
use testbed::nfs::Client;
use testbed::ports;
use testbed::progress;

use super::report::Report;
use super::stage::{On, Stage};
use crate::build::{self, Profile};

const LIMIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "nfs-demo";
const ACCOUNT: &str = "nfs-provisioner";
const PROVISIONER: &str = "demo.example.com/nfs";
const CLASS: &str = "nfs-demo";
const CLAIM: &str = "data";

pub(crate) async fn run(on: On, guard: &Guard) -> anyhow::Result<ExitCode> {
    on.check()?;
    let progress = progress::terminal();
    let mut report = Report::new(progress.clone());
    report.begin("build nfs-provisioner");
    let program = build::program(Profile::Dev, "nfs-provisioner", &[], guard, &progress).await?;
    report.done();
    let mut stage = Stage::start(on, guard, &mut report, &progress).await?;
    let place = stage.state.dir.join("nfs");
    show(&mut stage, &place, &program, &mut report).await.with_context(|| stage.failure())?;
    stage.end(&mut report).await?;
    report.summary(None);
    Ok(ExitCode::SUCCESS)
}

async fn show(stage: &mut Stage, place: &Path, program: &Path, report: &mut Report) -> anyhow::Result<()> {
    let client = stage.client().await?;
    report.begin("install a service account with RBAC rules, and a class");
    report.waiting(cluster::apply(&client, &objects())).await?;
    let kubeconfig = stage.kubeconfig_for(NAMESPACE, ACCOUNT).await?;
    report.done();

    report.begin("start the provisioner as that service account, and NFS-Ganesha with it");
    let (root, server) = (place.join("export"), Client { port: ports::free_port()? });
    std::fs::create_dir_all(&root)?;
    let arguments = [
        ("server", "--bind-address=127.0.0.1".to_owned()),
        ("--server-hostname", "127.0.0.1".to_owned()),
        ("--nfs-port", server.port.to_string()),
        ("--export-directory", root.display().to_string()),
        ("--runtime-directory", place.join("run").display().to_string()),
        ("--provisioner-name", PROVISIONER.to_owned()),
        ("--kubeconfig", kubeconfig.display().to_string()),
        ("--namespace", NAMESPACE.to_owned()),
    ];
    stage.start_provisioner(ACCOUNT, program, &arguments)?;
    report.done();

    report.begin(&format!("create the claim {CLAIM}, wait until it is bound"));
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {"storageClassName": CLASS, "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
    });
    cluster::apply(&client, &[object]).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let bound = eventually(LIMIT, async || Ok(claims.get_opt(CLAIM).await?.filter(is_bound)));
    let claim = report.waiting(bound).await?.context("the claim is not bound")?;
    let name = claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
    report.done();
    report.object::<PersistentVolume>(&client, None, &name).await?;

    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let source =
        volumes.get(&name).await?.spec.and_then(|spec| spec.nfs).context("the volume is not of the kind nfs")?;
    report.begin("one client writes a file, another one reads it");
    let (file, path) = (place.join("hello"), format!("{}/hello", source.path));
    std::fs::write(&file, "hello from the first client\n")?;
    server.put(&file, &path).await?;
    let text = server.get(&path).await?;
    report.done();
    report.show(&format!("{}:{path}: {}", source.server, text.trim()));

    report.begin("delete the claim, wait until volume, export and directory are deleted");
    claims.delete(CLAIM, &DeleteParams::default()).await?;
    let gone = eventually(LIMIT, async || Ok(volumes.get_opt(&name).await?.is_none().then_some(())));
    ensure!(report.waiting(gone).await?.is_some(), "the volume still exists");
    ensure!(!root.join(&name).exists(), "the directory still exists");
    let refused = server.list(&source.path).await.err().context("the directory is still exported")?;
    report.done();
    report.show(&format!("{refused:#}"));
    Ok(())
}

fn objects() -> Vec<Value> {
    let rules = rbac::rules(&Options::new(PROVISIONER), &Capabilities::default().expansion(), &[]);
    let mut objects = super::account(NAMESPACE, ACCOUNT, &rules);
    objects.push(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "parameters": {"enforceSize": "false"},
    }));
    objects
}
