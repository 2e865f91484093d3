//! A simulated cluster with classes, and controller processes that start and stop.

use std::time::Duration;

use kube_sim::{Actors, Cluster, DeleteOptions, PatchKind, Running, SimClock, Target};
use objectbucket_api::{Validation, crds};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Subject;
use crate::bucket::ClaimName;
use crate::conformance::verdict::{CheckResult, RuleVerdict, Violation};
use crate::controller::{BucketController, RunError};
use crate::options::BucketOptions;
use provisioner_runtime::environment::Environment;

const PROVISIONER: &str = "example.com/conformance";
const NAMESPACE: &str = "default";
/// The validity of a key after it was rotated out.
pub(super) const OVERLAP: Duration = Duration::from_secs(2);

pub(super) struct Fixture<'a> {
    subject: &'a Subject,
    pub(super) cluster: Cluster,
    /// The earlier content of the backend.
    pub(super) before: Vec<String>,
    _actors: Running,
}

impl<'a> Fixture<'a> {
    pub(super) async fn new(subject: &'a Subject) -> Self {
        let cluster = Cluster::builder().hide_managed_fields().build();
        let (before, actors) = ((subject.assets)().await, cluster.run(Actors::all()));
        let fixture = Self { subject, cluster, before, _actors: actors };
        for definition in crds(Validation::Standard) {
            fixture.create(serde_json::to_value(&definition).unwrap_or_default());
        }
        subject.objects.iter().cloned().for_each(|object| drop(fixture.create(object)));
        fixture.class("class", &[]);
        if let Some(bucket) = &subject.existing {
            fixture.class("granted", &[("bucketName", bucket)]);
        }
        fixture
    }

    fn class(&self, name: &str, more: &[(&str, &str)]) {
        let mut parameters = json!(self.subject.parameters);
        parameters["credentialsOverlap"] = format!("{}s", OVERLAP.as_secs()).into();
        for (key, value) in more {
            parameters[*key] = (*value).into();
        }
        self.create(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "parameters": parameters,
        }));
    }

    /// Creates a class with a parameter that every provisioner rejects.
    pub(super) fn bad_class(&self) {
        self.class("bad", &[("noAuthorHasThis", "x")]);
    }

    pub(super) fn start(&self, number: u64) -> JoinHandle<Result<(), RunError>> {
        let mut options = BucketOptions::new(PROVISIONER);
        options.options = self.subject.tempo.options(PROVISIONER);
        options.options.namespace = Some(NAMESPACE.to_owned());
        let client = self.cluster.client(&format!("process-{number}"));
        let backend = (self.subject.start)(client.clone());
        let environment = match self.subject.tempo {
            crate::conformance::tempo::Tempo::Virtual => Environment::simulated(number, SimClock::EPOCH),
            crate::conformance::tempo::Tempo::Real => Environment::default(),
        };
        let controller = BucketController::with_backend(backend, options).environment(environment);
        tokio::spawn(controller.run_with(client, CancellationToken::new()))
    }

    /// Creates a claim and returns its uid.
    pub(super) fn claim(&self, name: &str, class: &str, bucket: Option<&str>) -> String {
        let mut spec = json!({"storageClassName": class, "generateBucketName": "conformance"});
        if let Some(bucket) = bucket {
            spec["bucketName"] = bucket.into();
        }
        self.claim_with(name, spec)
    }

    /// Creates a claim that uses the bucket of another claim.
    pub(super) fn claim_of(&self, name: &str, other: &str) -> String {
        let config = json!({crate::protocol::BUCKET_CLAIM_NAME: other});
        self.claim_with(name, json!({"storageClassName": "class", "additionalConfig": config}))
    }

    fn claim_with(&self, name: &str, spec: Value) -> String {
        let claim = self.create(json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        }));
        claim["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn claim_name(name: &str, uid: &str) -> ClaimName {
        ClaimName { namespace: NAMESPACE.to_owned(), name: name.to_owned(), uid: uid.to_owned() }
    }

    pub(super) fn get(&self, group: &str, plural: &str, name: &str) -> Option<Value> {
        self.cluster.get(group, plural, NAMESPACE, name).ok()
    }

    pub(super) fn get_claim(&self, name: &str) -> Option<Value> {
        self.get("objectbucket.io", "objectbucketclaims", name)
    }

    /// Returns the ID of the key in the claim's Secret.
    pub(super) fn key(&self, claim: &str) -> Option<String> {
        self.credentials(claim).map(|(id, _)| id)
    }

    /// Returns the key in the claim's Secret, including its secret.
    pub(super) fn credentials(&self, claim: &str) -> Option<(String, String)> {
        let secret = self.get("", "secrets", claim)?;
        let text = |key| secret["data"][key].as_str().map(str::to_owned);
        Some((text("AWS_ACCESS_KEY_ID")?, text("AWS_SECRET_ACCESS_KEY").unwrap_or_default()))
    }

    pub(super) fn delete(&self, claim: &str) {
        let target =
            Target { group: "objectbucket.io", plural: "objectbucketclaims", namespace: NAMESPACE, name: claim };
        let _ = self.cluster.delete(&target, DeleteOptions::default());
    }

    pub(super) fn rotate(&self, claim: &str, text: &str) {
        let target =
            Target { group: "objectbucket.io", plural: "objectbucketclaims", namespace: NAMESPACE, name: claim };
        let patch = json!({"metadata": {"annotations": {crate::protocol::ROTATE_CREDENTIALS: text}}});
        let _ = self.cluster.patch(&target, None, PatchKind::Merge, &patch);
    }

    pub(super) async fn wait_until_bound(&self, claim: &str) -> Result<(), Violation> {
        self.wait_until(&format!("the claim {claim} is bound"), || {
            self.get_claim(claim).is_some_and(|claim| claim["status"]["phase"] == "Bound")
        })
        .await
    }

    /// Deletes a claim and waits until it no longer exists.
    pub(super) async fn remove(&self, claim: &str) -> Result<(), Violation> {
        self.delete(claim);
        self.wait_until_deleted(claim).await
    }

    pub(super) async fn wait_until_deleted(&self, claim: &str) -> Result<(), Violation> {
        self.wait_until(&format!("the claim {claim} is deleted"), || self.get_claim(claim).is_none()).await
    }

    pub(super) async fn wait_until(&self, what: &str, so: impl Fn() -> bool) -> Result<(), Violation> {
        let (start, limit) = (Instant::now(), self.subject.tempo.limit());
        while !so() {
            if start.elapsed() > limit {
                return Err(Violation(format!("{what}: not within {} s; {}", limit.as_secs(), self.last_events())));
            }
            sleep(self.subject.tempo.step()).await;
        }
        Ok(())
    }

    /// Waits until the backend contains exactly these assets.
    pub(super) async fn assets(&self, what: &str, wanted: &[String]) -> Result<(), Violation> {
        let (start, limit) = (Instant::now(), self.subject.tempo.appearance());
        loop {
            let found = (self.subject.assets)().await;
            if found == wanted {
                return Ok(());
            }
            if start.elapsed() > limit {
                return Err(Violation(format!(
                    "{what}: the backend has {found:?} instead of {wanted:?}; {}",
                    self.last_events()
                )));
            }
            sleep(self.subject.tempo.step()).await;
        }
    }

    /// Waits until the backend contains what it did before.
    pub(super) async fn wait_for_initial_assets(&self, what: &str) -> Result<(), Violation> {
        self.assets(what, &self.before).await
    }

    /// Deletes the claims, and checks that the backend is then as before.
    pub(super) async fn end<T>(&self, claims: &[&str], process: JoinHandle<T>) -> CheckResult {
        self.end_with(claims, &self.before, process).await
    }

    /// Deletes the claims, and checks that the backend then contains exactly these assets.
    pub(super) async fn end_with<T>(&self, claims: &[&str], left: &[String], process: JoinHandle<T>) -> CheckResult {
        claims.iter().for_each(|claim| self.delete(claim));
        for claim in claims {
            self.wait_until_deleted(claim).await?;
        }
        self.assets("all claims are deleted", left).await?;
        process.abort();
        Ok(RuleVerdict::Kept)
    }

    fn create(&self, object: Value) -> Value {
        self.cluster.create(&object).unwrap_or_default()
    }

    fn last_events(&self) -> String {
        let events = self.cluster.list("", "events", None).unwrap_or_default();
        let texts: Vec<&str> = events.iter().rev().take(3).filter_map(|event| event["message"].as_str()).collect();
        format!("the last events: {texts:?}")
    }
}
