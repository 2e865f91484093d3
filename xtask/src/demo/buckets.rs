//! The bucket demo on a real object store: a claim and its Secret, an object, a second claim for the same bucket, key
//! rotation, and cleanup.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use kube_provisioner::bucket::BucketCapabilities;
use kube_provisioner::bucket::objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use kube_provisioner::protocol::ROTATE_CREDENTIALS;
use kube_provisioner::{Options, rbac};
use serde_json::{Value, json};
use testbed::cluster::{self, BucketUser, eventually, is_bucket_bound};
use testbed::guard::Guard;
use testbed::progress;

use super::backend::{Backend, Store};
use super::report::Report;
use super::stage::{On, Stage};
use crate::build::{self, Profile};
use crate::install::Install;

const LIMIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "bucket-demo";
const ACCOUNT: &str = "bucket-provisioner";
const ADMIN: &str = "admin";
const PROVISIONER: &str = "demo.example.com/bucket";
const CLASS: &str = "bucket-demo";
const CLASS_OF_BUCKET: &str = "bucket-demo-photos";
const BUCKET: &str = "photos";
const OBJECT: &str = "hello.txt";

#[derive(Args)]
pub(crate) struct Arguments {
    /// The object store
    #[arg(long, value_enum, default_value_t = Store::Ceph)]
    backend: Store,

    /// Run on a real control plane; builds Kubernetes on first use
    #[arg(long)]
    real: bool,
}

pub(crate) async fn run(
    Arguments { backend: store, real }: Arguments,
    install: &Install,
    guard: &Guard,
) -> anyhow::Result<ExitCode> {
    if let Some((dependency, command)) = store.dependency() {
        install.prepare(dependency, command, &progress::terminal())?;
    }
    let on = if real { On::Real } else { On::Simulated };
    on.check()?;
    let progress = progress::terminal();
    let mut report = Report::new(progress.clone());
    report.begin(&format!("build {}", store.provisioner()));
    let program = build::program(Profile::Dev, store.provisioner(), &[], guard, &progress).await?;
    report.done();
    report.begin(&format!("start {}", store.what()));
    let backend = store.start(guard, &progress).await?;
    report.done();
    let mut stage = Stage::start(on, guard, &mut report, &progress).await?;
    show(&mut stage, &backend, &program, &mut report).await.with_context(|| stage.failure())?;
    stage.end(&mut report).await?;
    report.begin("stop the object store");
    backend.stop()?;
    report.done();
    report.summary(None);
    Ok(ExitCode::SUCCESS)
}

async fn show(stage: &mut Stage, backend: &Backend, program: &Path, report: &mut Report) -> anyhow::Result<()> {
    let client = stage.client().await?;
    report.begin("install the CRDs, a service account with RBAC rules, classes and the administrator's Secret");
    report.waiting(cluster::install_bucket_crds(&client)).await?;
    report.waiting(cluster::apply(&client, &objects(backend))).await?;
    let kubeconfig = stage.kubeconfig_for(NAMESPACE, ACCOUNT).await?;
    report.done();
    report.object::<StorageClass>(&client, None, CLASS).await?;

    report.begin("start the provisioner as that service account");
    let mut arguments = vec![
        ("--provisioner-name", PROVISIONER.to_owned()),
        ("--kubeconfig", kubeconfig.display().to_string()),
        ("--namespace", NAMESPACE.to_owned()),
    ];
    arguments.extend(backend.arguments());
    stage.start_provisioner(ACCOUNT, program, &arguments)?;
    report.done();

    claim(&client, report, BUCKET, CLASS, Some(BUCKET)).await?;
    report.object::<ObjectBucket>(&client, None, &format!("obc-{NAMESPACE}-{BUCKET}")).await?;
    report.object::<Secret>(&client, Some(NAMESPACE), BUCKET).await?;
    report.object::<ConfigMap>(&client, Some(NAMESPACE), BUCKET).await?;

    report.begin("write and read an object with the keys of the Secret");
    let first = BucketUser::of(&client, NAMESPACE, BUCKET).await?;
    first.put(OBJECT, "hello\n").await?;
    let text = first.get(OBJECT).await?.context("the object does not exist")?;
    report.done();
    report.show(&format!("s3://{BUCKET}/{OBJECT}: {}", text.trim()));

    claim(&client, report, "reader", CLASS_OF_BUCKET, None).await?;
    report.begin("read the object with the second claim's keys");
    let reader = BucketUser::of(&client, NAMESPACE, "reader").await?;
    let read = eventually(LIMIT, async || Ok(reader.get(OBJECT).await.ok().flatten()));
    ensure!(report.waiting(read).await?.is_some(), "the second claim cannot read");
    let error = reader.put("mine", "x").await.err().context("a reader can write")?;
    report.done();
    report.show(&format!("it may read only: {error}"));

    rotate(&client, report, &first).await?;
    delete(&client, backend, report).await
}

/// Creates a claim and prints how it is bound.
async fn claim(
    client: &Client,
    report: &mut Report,
    name: &str,
    class: &str,
    bucket: Option<&str>,
) -> anyhow::Result<()> {
    report.begin(&format!("create the claim {name} of the class {class}, wait until it is bound"));
    let object = json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"storageClassName": class, "bucketName": bucket},
    });
    cluster::apply(client, &[object]).await?;
    let claims: Api<ObjectBucketClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let bound = eventually(LIMIT, async || Ok(claims.get_opt(name).await?.filter(is_bucket_bound)));
    ensure!(report.waiting(bound).await?.is_some(), "the claim {name} is not bound");
    report.done();
    report.object::<ObjectBucketClaim>(client, Some(NAMESPACE), name).await
}

async fn rotate(client: &Client, report: &mut Report, before: &BucketUser) -> anyhow::Result<()> {
    report.begin("request new keys; the old keys work for 3 more seconds");
    let claims: Api<ObjectBucketClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = json!({"metadata": {"annotations": {(ROTATE_CREDENTIALS): "today"}}});
    claims.patch(BUCKET, &PatchParams::default(), &Patch::Merge(patch)).await?;
    let rotated = eventually(LIMIT, async || {
        let user = BucketUser::of(client, NAMESPACE, BUCKET).await?;
        Ok((user.id != before.id).then_some(user))
    });
    let after = report.waiting(rotated).await?.context("there is no new key")?;
    ensure!(before.get(OBJECT).await.is_ok(), "the old key no longer works");
    ensure!(after.get(OBJECT).await?.is_some(), "the new key does not work");
    let retired = eventually(LIMIT, async || Ok(before.get(OBJECT).await.err()));
    let error = report.waiting(retired).await?.context("the old key keeps working")?;
    report.done();
    report.show(&format!("the old key: {error}"));
    Ok(())
}

async fn delete(client: &Client, backend: &Backend, report: &mut Report) -> anyhow::Result<()> {
    report.begin("delete the claims, wait until everything is deleted");
    let claims: Api<ObjectBucketClaim> = Api::namespaced(client.clone(), NAMESPACE);
    for claim in ["reader", BUCKET] {
        claims.delete(claim, &DeleteParams::default()).await?;
        let gone = eventually(LIMIT, async || Ok(claims.get_opt(claim).await?.is_none().then_some(())));
        ensure!(report.waiting(gone).await?.is_some(), "the claim {claim} still exists");
    }
    let left = backend.nothing_left().await;
    report.done();
    left?.iter().for_each(|line| report.show(line));
    Ok(())
}

fn objects(backend: &Backend) -> Vec<Value> {
    let rules = rbac::bucket_rules(&Options::new(PROVISIONER), &BucketCapabilities::default(), &[]);
    let mut objects = super::account(NAMESPACE, ACCOUNT, &rules);
    objects.push(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": ADMIN, "namespace": NAMESPACE},
        "stringData": backend.admin(),
    }));
    for (name, bucket) in [(CLASS, None), (CLASS_OF_BUCKET, Some(BUCKET))] {
        let mut parameters = backend.parameters();
        for (name, value) in
            [("credentialsOverlap", "3s"), ("adminSecretName", ADMIN), ("adminSecretNamespace", NAMESPACE)]
        {
            parameters[name] = value.into();
        }
        if let Some(bucket) = bucket {
            (parameters["bucketName"], parameters["accessMode"]) = (bucket.into(), "read-only".into());
        }
        objects.push(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "parameters": parameters,
        }));
    }
    objects
}
