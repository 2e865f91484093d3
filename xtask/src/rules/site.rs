//! Two running provisioners, for volumes and buckets, on a simulated API server and a simulated Google Cloud.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use kube_provisioner::bucket::BucketCapabilities;
use kube_provisioner::bucket::objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use kube_provisioner::{Capabilities, Options, rbac};
use serde_json::{Value, json};
use testbed::cluster::{self, Program, eventually, is_bound, is_bucket_bound};
use testbed::control_plane::{self, Simulated, State, last_lines};
use testbed::guard::Guard;
use testbed::ports::free_port;
use testbed::progress::SharedProgress;
use testbed::prometheus::Target;

use crate::build::{self, Profile};

const LIMIT: Duration = Duration::from_secs(60);
/// The namespace of the volume provisioner and its claims.
pub(super) const VOLUMES: &str = "volumes";
/// The namespace of the bucket provisioner and its claims.
pub(super) const BUCKETS: &str = "buckets";
const ACCOUNT: &str = "provisioner";
const CLASS_OF_VOLUMES: &str = "directories";
const CLASS_OF_BUCKETS: &str = "google";
/// Number of claims of each kind that exist at a time.
const STAYING: u32 = 3;

/// The cluster, the backends and the provisioners, which all end when this value is dropped.
pub(super) struct Site {
    simulated: Simulated,
    client: Client,
    google: gcs_sim::Server,
    programs: Vec<(Program, Target)>,
    works: bool,
    rounds: u32,
}

impl Site {
    pub(super) async fn start(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Self> {
        let hostpath = build::program(Profile::Dev, "hostpath-provisioner", &[], guard, progress).await?;
        let gcs = build::program(Profile::Dev, "gcs-provisioner", &[], guard, progress).await?;
        let (simulated, google) = (Simulated::start(guard).await?, gcs_sim::Server::start().await?);
        let client = control_plane::client_from(&simulated.state().kubeconfig).await?;
        cluster::install_bucket_crds(&client).await?;
        cluster::apply(&client, &objects()).await?;
        let mut site = Self { simulated, client, google, programs: Vec::new(), works: true, rounds: 0 };
        let (disk, key) = (site.disk(), site.state().dir.join("key.json"));
        make_private(&disk)?;
        fs::write(&key, site.google.admin_key())?;
        site.spawn(VOLUMES, hostpath, &["--root", &disk.display().to_string()]).await?;
        let (endpoint, key) = (site.google.endpoint.clone(), key.display().to_string());
        let google = ["--endpoint", &endpoint, "--iam-endpoint", &endpoint, "--credentials-file", &key];
        site.spawn(BUCKETS, gcs, &google).await?;
        Ok(site)
    }

    pub(super) fn state(&self) -> &State {
        self.simulated.state()
    }

    /// The targets that Prometheus scrapes.
    pub(super) fn targets(&self) -> Vec<Target> {
        self.programs.iter().map(|(_, target)| target.clone()).collect()
    }

    /// Creates one claim of each kind, and deletes the claims of an earlier round. Waits for operations that are
    /// expected to succeed.
    pub(super) async fn round(&mut self) -> anyhow::Result<()> {
        self.rounds += 1;
        let (volumes, buckets) = self.claims();
        let name = format!("claim-{}", self.rounds);
        volumes.create(&PostParams::default(), &cluster::claim(&name, CLASS_OF_VOLUMES)).await?;
        let claim = json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": {"name": name, "namespace": BUCKETS},
            "spec": {"storageClassName": CLASS_OF_BUCKETS, "generateBucketName": "photos"},
        });
        cluster::apply(&self.client, &[claim]).await?;
        if self.works {
            self.settled().await?;
        }
        if let Some(old) = self.rounds.checked_sub(STAYING).filter(|old| *old > 0) {
            let old = format!("claim-{old}");
            volumes.delete(&old, &DeleteParams::default()).await?;
            buckets.delete(&old, &DeleteParams::default()).await?;
        }
        if self.works {
            self.settled().await?;
        }
        Ok(())
    }

    /// Makes Google unavailable, and the disk look unmounted.
    pub(super) fn break_down(&mut self) -> anyhow::Result<()> {
        self.works = false;
        self.google.model().faults.unavailable = 1;
        fs::rename(self.disk(), self.disk_away())?;
        make_private(&self.disk())
    }

    /// Makes both available again.
    pub(super) fn mend(&mut self) -> anyhow::Result<()> {
        self.works = true;
        self.google.model().faults.unavailable = 0;
        fs::remove_dir(self.disk())?;
        Ok(fs::rename(self.disk_away(), self.disk())?)
    }

    /// Waits until all claims are bound, and deleted claims have no leftovers.
    pub(super) async fn settled(&self) -> anyhow::Result<()> {
        let (volumes, buckets) = self.claims();
        let (all, made) =
            (Api::<PersistentVolume>::all(self.client.clone()), Api::<ObjectBucket>::all(self.client.clone()));
        let listed = ListParams::default();
        let settled = eventually(LIMIT, async || {
            let (volumes, buckets) = (volumes.list(&listed).await?.items, buckets.list(&listed).await?.items);
            let is_settled = volumes.iter().all(is_bound)
                && buckets.iter().all(is_bucket_bound)
                && all.list(&listed).await?.items.len() == volumes.len()
                && made.list(&listed).await?.items.len() == buckets.len();
            Ok(is_settled.then_some(()))
        });
        settled
            .await?
            .with_context(|| format!("claims are not bound, or leftovers of other claims exist\n{}", self.logs()))
    }

    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        for (program, target) in &mut self.programs {
            let status = program.terminate(LIMIT).await?;
            ensure!(status.success(), "{} ended with {status}", target.pod);
        }
        self.simulated.stop()
    }

    async fn spawn(&mut self, namespace: &str, program: PathBuf, more: &[&str]) -> anyhow::Result<()> {
        let state = self.simulated.state();
        let kubeconfig = control_plane::kubeconfig_for_service_account(&self.client, state, namespace, ACCOUNT).await?;
        let (kubeconfig, port) = (kubeconfig.display().to_string(), free_port()?);
        let address = format!("127.0.0.1:{port}");
        let (name, named) = (format!("{namespace}-provisioner"), provisioner(namespace));
        let arguments = [
            ["--provisioner-name", &named],
            ["--kubeconfig", &kubeconfig],
            ["--namespace", namespace],
            ["--http-endpoint", &address],
            // Back-off is not part of the check.
            ["--retry-interval-max", "2s"],
        ];
        let arguments = arguments.concat().into_iter().chain(more.iter().copied());
        let started = Program::spawn(state, &name, program, arguments)?;
        let target = Target {
            port,
            namespace: namespace.to_owned(),
            job: format!("{namespace}/{name}"),
            pod: format!("{name}-0"),
        };
        self.programs.push((started, target));
        Ok(())
    }

    fn logs(&self) -> String {
        let end = |(program, target): &(Program, Target)| {
            format!("the log of {} ends:\n{}", target.pod, last_lines(program.log(), 15))
        };
        self.programs.iter().map(end).collect::<Vec<_>>().join("\n")
    }

    fn claims(&self) -> (Api<PersistentVolumeClaim>, Api<ObjectBucketClaim>) {
        (Api::namespaced(self.client.clone(), VOLUMES), Api::namespaced(self.client.clone(), BUCKETS))
    }

    fn disk(&self) -> PathBuf {
        self.state().dir.join("disk")
    }

    fn disk_away(&self) -> PathBuf {
        self.state().dir.join("disk-away")
    }
}

fn make_private(disk: &std::path::Path) -> anyhow::Result<()> {
    Ok(DirBuilder::new().mode(0o700).create(disk)?)
}

fn provisioner(namespace: &str) -> String {
    format!("rules.example.com/{namespace}")
}

fn objects() -> Vec<Value> {
    let (volumes, buckets) = (Options::new(provisioner(VOLUMES)), Options::new(provisioner(BUCKETS)));
    let mut objects = Vec::new();
    for (namespace, rules) in [
        (VOLUMES, rbac::rules(&volumes, &Capabilities::default().expansion(), &[])),
        (BUCKETS, rbac::bucket_rules(&buckets, &BucketCapabilities::default(), &[])),
    ] {
        objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        objects.extend(rbac::manifests(&rbac::Account { name: ACCOUNT, namespace }, &rules));
    }
    for (name, namespace, parameters) in
        [(CLASS_OF_VOLUMES, VOLUMES, json!({})), (CLASS_OF_BUCKETS, BUCKETS, json!({"location": "europe-west3"}))]
    {
        objects.push(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner(namespace), "reclaimPolicy": "Delete", "parameters": parameters,
        }));
    }
    objects
}
