//! Bucket claims: the time that many of them take at once, and the API requests that they cause, under load, at rest
//! and at startup.

use std::collections::BTreeMap;
use std::ops::ControlFlow::{Break, Continue};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kube_provisioner::BucketOptions;
use kube_provisioner::bucket::BucketCapabilities;
use kube_provisioner::rbac::{Account, bucket_rules, manifests};
use objectbucket_api::{API_VERSION, ClaimPhase, ObjectBucket, ObjectBucketClaim};
use serde_json::json;
use testbed::cluster::{AuditEntry, AuditLog, apply, install_bucket_crds};
use testbed::control_plane::{State, client_from, kubeconfig_for_service_account};
use testbed::figures::Figures;

use crate::burst::mb;
use crate::cluster::{NAMESPACE, at_once};
use crate::contender::in_turns;
use crate::measurement::Measurement;
use crate::process::{Provisioner, sibling};
use crate::wait::until;

const PROVISIONER: &str = "bench.example.com/bucket";
const USER: &str = "system:serviceaccount:bench:provisioner";
/// Connections of the bare client.
const BARE: usize = 32;
const PATIENCE: Duration = Duration::from_secs(900);
const BOUND: &str = "all bound, s";
const PEAK: &str = "peak memory, MB";
const PROCESSOR: &str = "processor time, s";

/// Options of the measurement.
#[derive(Args)]
pub(crate) struct Settings {
    /// Number of claims created at once
    #[arg(long, default_value_t = 1000)]
    claims: usize,
    /// Number of rounds, with the bare client and the provisioner in turns
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Number of bound claims that exist when a process starts
    #[arg(long, default_value_t = 10_000)]
    bound: usize,
    /// Number of reads of all bound claims while the provisioner is idle; with default settings, there are four per
    /// hour
    #[arg(long, default_value_t = 4)]
    resyncs: u32,
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let bench = Bench::new().await?;
    let mut figures = Figures::default();
    // A new control plane processes its first requests faster than all later ones.
    bench.bare_client(settings.claims).await?;
    let ours = sibling("noop-bucket-provisioner")?;
    // The bare client has no program.
    let contenders = [("bare client", None), ("kube-provisioner", Some(&ours))];
    for round in 0..settings.rounds {
        for (name, program) in in_turns(round, &contenders) {
            match program {
                Some(path) => bench.at_once(path, name, settings.claims, &mut figures).await?,
                None => figures.record(name, BOUND, bench.bare_client(settings.claims).await?.as_secs_f64()),
            }
        }
    }
    let written = bench.at_rest(&settings, &ours, &mut figures).await?;
    Ok(Measurement::from(figures).limit(written == 0, "something is written although nothing changes"))
}

struct Bench {
    state: State,
    client: Client,
    kubeconfig: PathBuf,
    audit: AuditLog,
}

struct Started {
    provisioner: Provisioner,
    ready: Duration,
}

impl Bench {
    async fn new() -> anyhow::Result<Self> {
        let state = State::for_tests()?;
        let client = client_from(&state.kubeconfig).await?;
        install_bucket_crds(&client).await?;
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": NAMESPACE},
                "provisioner": PROVISIONER}),
        ];
        let rules = bucket_rules(&BucketOptions::new(PROVISIONER).options, &BucketCapabilities::default(), &[]);
        objects.extend(manifests(&Account { name: "provisioner", namespace: NAMESPACE }, &rules));
        apply(&client, &objects).await?;
        let kubeconfig = kubeconfig_for_service_account(&client, &state, NAMESPACE, "provisioner").await?;
        let audit = AuditLog::of(&state)?;
        Ok(Self { state, client, kubeconfig, audit })
    }

    async fn start(&self, path: &Path, more: &[&str]) -> anyhow::Result<Started> {
        let arguments = [&["--provisioner-name", PROVISIONER, "--namespace", NAMESPACE], more].concat();
        let begun = Instant::now();
        let log = self.state.dir.join("noop-bucket-provisioner.log");
        let mut provisioner = Provisioner::start_buckets(path, &self.kubeconfig, &log, &arguments)?;
        provisioner.wait_ready().await?;
        Ok(Started { provisioner, ready: begun.elapsed() })
    }

    async fn at_once(&self, path: &Path, name: &str, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
        self.free_lease().await?;
        let Started { provisioner, .. } = self.start(path, &[]).await?;
        let before = self.requests()?.len();
        let begun = Instant::now();
        self.create(0..count).await?;
        self.wait_bound(count).await?;
        figures.record(name, BOUND, begun.elapsed().as_secs_f64());
        // Events are written slightly later.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let of_binding = self.requests()?.split_off(before);
        let begun = Instant::now();
        self.delete_all(count).await?;
        self.wait_gone().await?;
        figures.record(name, "all deleted, s", begun.elapsed().as_secs_f64());
        tokio::time::sleep(Duration::from_secs(10)).await;
        let of_deletion = self.requests()?.split_off(before + of_binding.len());
        for (quantity, requests) in [("requests per binding", &of_binding), ("requests per deletion", &of_deletion)] {
            figures.record(name, quantity, per_claim(requests) as f64 / count as f64);
        }
        figures.record(name, PEAK, mb(provisioner.memory("VmHWM")?));
        figures.record(name, PROCESSOR, provisioner.processor_time()?.as_secs_f64());
        print_requests(&format!("of {name} to bind them"), &of_binding);
        print_requests(&format!("of {name} to delete them"), &of_deletion);
        Ok(())
    }

    /// Measures a process that starts when bound claims exist. Returns the number of its writes while nothing changes.
    async fn at_rest(&self, settings: &Settings, path: &Path, figures: &mut Figures) -> anyhow::Result<usize> {
        self.free_lease().await?;
        let first = self.start(path, &[]).await?;
        self.create(0..settings.bound).await?;
        self.wait_bound(settings.bound).await?;
        drop(first);
        self.free_lease().await?;
        let before = self.requests()?.len();
        let resync = Duration::from_secs(15);
        let Started { provisioner, ready } = self.start(path, &["--resync-period", "15s"]).await?;
        let processor = provisioner.processor_time()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let start = self.requests()?.split_off(before);
        tokio::time::sleep(resync * settings.resyncs + resync / 2).await;
        let rest = self.requests()?.split_off(before + start.len());
        let written = rest.iter().filter(|entry| is_write(entry) && entry.resource != "leases").count();
        let name = format!("kube-provisioner, started with {} bound claims", settings.bound);
        figures.record(&name, "ready after, s", ready.as_secs_f64());
        figures.record(&name, PEAK, mb(provisioner.memory("VmHWM")?));
        figures.record(&name, PROCESSOR, processor.as_secs_f64());
        figures.record(&name, "requests at the start", start.len() as f64);
        figures.record(&name, &format!("writes in {} idle resyncs", settings.resyncs), written as f64);
        print_requests("at the start", &start);
        print_requests("at rest", &rest);
        self.delete_all(settings.bound).await?;
        self.wait_gone().await?;
        Ok(written)
    }

    /// The requests of the provisioner without renewals of its Lease, which depend only on time.
    fn requests(&self) -> anyhow::Result<Vec<AuditEntry>> {
        let entries = self.audit.entries_of(USER)?;
        Ok(entries.into_iter().filter(|entry| entry.resource != "leases" || entry.verb != "update").collect())
    }

    /// Frees the Lease, so that the next process does not wait for the one of a killed process.
    async fn free_lease(&self) -> anyhow::Result<()> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), NAMESPACE);
        leases.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Ok(())
    }

    async fn create(&self, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
        let claims = self.claims();
        let create = async |at: usize| {
            let claim: ObjectBucketClaim = serde_json::from_value(json!({
                "apiVersion": API_VERSION, "kind": "ObjectBucketClaim", "metadata": {"name": format!("claim-{at}")},
                "spec": {"storageClassName": NAMESPACE, "generateBucketName": "bench"},
            }))?;
            claims.create(&PostParams::default(), &claim).await?;
            anyhow::Ok(())
        };
        at_once(numbers, create).await
    }

    async fn wait_bound(&self, count: usize) -> anyhow::Result<()> {
        let is_bound = |claim: &ObjectBucketClaim| {
            claim.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(&ClaimPhase::Bound)
        };
        let pause = Duration::from_millis(if count > 5000 { 2000 } else { 200 });
        until(PATIENCE, pause, async || {
            // The list comes from the API server's cache, so that it does not slow down the measured requests.
            let claims = self.claims().list(&ListParams::default().match_any()).await?.items;
            let bound = claims.iter().filter(|claim| is_bound(claim)).count();
            Ok(if bound == count { Break(()) } else { Continue(format!("only {bound} of {count} claims are bound")) })
        })
        .await
    }

    async fn delete_all(&self, count: usize) -> anyhow::Result<()> {
        let claims = self.claims();
        let delete = async |at: usize| {
            claims.delete(&format!("claim-{at}"), &DeleteParams::default()).await?;
            anyhow::Ok(())
        };
        at_once(0..count, delete).await
    }

    /// Writes with a bare client what the provisioner writes for claims: this is the upper limit of the control plane's
    /// throughput.
    async fn bare_client(&self, count: usize) -> anyhow::Result<Duration> {
        let client = client_from(&self.kubeconfig).await?;
        let begun = Instant::now();
        let serve = |at: usize| {
            let client = client.clone();
            async move {
                self.create(at..at + 1).await?;
                write_like_a_provisioner(client, &format!("claim-{at}")).await
            }
        };
        stream::iter(0..count).map(serve).buffer_unordered(BARE).try_collect::<()>().await?;
        let bound = begun.elapsed();
        let namespaced = (Api::<Secret>::namespaced(self.client.clone(), NAMESPACE), self.claims());
        let all = ListParams::default();
        namespaced.0.delete_collection(&DeleteParams::default(), &all.clone().labels("bare")).await?;
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), NAMESPACE);
        maps.delete_collection(&DeleteParams::default(), &all.clone().labels("bare")).await?;
        Api::<ObjectBucket>::all(self.client.clone()).delete_collection(&DeleteParams::default(), &all).await?;
        namespaced.1.delete_collection(&DeleteParams::default(), &all).await?;
        self.wait_gone().await?;
        Ok(bound)
    }

    async fn wait_gone(&self) -> anyhow::Result<()> {
        let objects = Api::<ObjectBucket>::all(self.client.clone());
        until(PATIENCE, Duration::from_millis(200), async || {
            let claims = self.claims().list_metadata(&ListParams::default()).await?.items.len();
            let buckets = objects.list_metadata(&ListParams::default()).await?.items.len();
            let seen = || format!("{claims} claims and {buckets} ObjectBuckets do not go");
            Ok(if claims + buckets == 0 { Break(()) } else { Continue(seen()) })
        })
        .await
    }

    fn claims(&self) -> Api<ObjectBucketClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}

/// Sends the same requests as the provisioner until the claim is bound, with bodies of about the same size.
async fn write_like_a_provisioner(client: Client, name: &str) -> anyhow::Result<()> {
    let claims = Api::<ObjectBucketClaim>::namespaced(client.clone(), NAMESPACE);
    let object = format!("bare-{name}");
    let merge = PatchParams::default();
    let labels = json!({"bare": "true"});
    let spec = json!({"bucketName": object, "objectBucketName": object});
    claims.patch(name, &merge, &Patch::Merge(json!({"metadata": {"labels": labels}, "spec": spec}))).await?;
    let record = "x".repeat(500);
    let bucket = json!({"apiVersion": API_VERSION, "kind": "ObjectBucket",
        "metadata": {"name": object, "labels": labels, "annotations": {"bench/record": record}},
        "spec": {"storageClassName": NAMESPACE, "endpoint": {"bucketName": object}}});
    let buckets = Api::<ObjectBucket>::all(client.clone());
    buckets.create(&PostParams::default(), &serde_json::from_value(bucket)?).await?;
    let endpoint = json!({"spec": {"endpoint": {"bucketHost": "objects.example.com", "bucketPort": 443}}});
    buckets.patch(&object, &merge, &Patch::Merge(endpoint)).await?;
    let data: BTreeMap<String, String> =
        ["A", "B", "C", "D", "E"].map(|key| (key.to_owned(), "x".repeat(40))).into_iter().collect();
    let metadata = json!({"name": name, "labels": labels});
    let secret = serde_json::from_value(json!({"metadata": metadata, "stringData": data}))?;
    Api::<Secret>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &secret).await?;
    let map = serde_json::from_value(json!({"metadata": metadata, "data": data}))?;
    Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &map).await?;
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    buckets.patch_status(&object, &merge, &bound).await?;
    claims.patch_status(name, &merge, &bound).await?;
    Ok(())
}

fn is_write(entry: &AuditEntry) -> bool {
    !matches!(entry.verb.as_str(), "get" | "list" | "watch")
}

/// Counts the requests for individual claims.
fn per_claim(requests: &[AuditEntry]) -> usize {
    requests.iter().filter(|entry| !matches!(entry.verb.as_str(), "list" | "watch")).count()
}

fn print_requests(what: &str, requests: &[AuditEntry]) {
    let mut counts: BTreeMap<(String, &str, u16), usize> = BTreeMap::new();
    for entry in requests {
        let slash = if entry.subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{slash}{}", entry.resource, entry.subresource);
        *counts.entry((resource, &entry.verb, entry.code)).or_default() += 1;
    }
    println!("\n| requests {what} | | answer | count |\n|---|---|---|---|");
    for ((resource, verb, code), count) in counts {
        println!("| {verb} | {resource} | {code} | {count} |");
    }
}
