//! A fake of COSI's central controller: it binds claims to Buckets, hands over accesses, and deletes both, following
//! the flows in COSI's proposal.

use std::time::Duration;

use anyhow::Context as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const GROUP: &str = "objectstorage.k8s.io";
const FINALIZER: &str = "objectstorage.k8s.io/protection";
const CLAIM_ENDS: &str = "objectstorage.k8s.io/bucketclaim-being-deleted";
const HAS_ACCESSES: &str = "objectstorage.k8s.io/has-bucketaccess-references";
const FINISHED: &str = "objectstorage.k8s.io/sidecar-cleanup-finished";

/// The objects of one namespace, and their cluster-scoped objects.
#[derive(Clone)]
pub(crate) struct Cosi {
    client: Client,
    namespace: String,
}

/// The running controller, which ends with this value.
pub(crate) struct CentralController(JoinHandle<()>);

impl Drop for CentralController {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cosi {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1alpha2", kind), plural(kind));
        match kind {
            "BucketClaim" | "BucketAccess" => Api::namespaced_with(self.client.clone(), &self.namespace, &resource),
            _ => Api::all_with(self.client.clone(), &resource),
        }
    }

    pub(crate) async fn create(&self, kind: &str, name: &str, spec: Value) -> anyhow::Result<DynamicObject> {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1alpha2"), "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let created = self.api(kind).create(&PostParams::default(), &serde_json::from_value(object)?).await;
        created.with_context(|| format!("cannot create {kind} {name}"))
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        self.api(kind).delete(name, &DeleteParams::default()).await.map(drop).context("cannot delete")
    }

    pub(crate) fn start(&self) -> CentralController {
        let cosi = self.clone();
        CentralController(tokio::spawn(async move {
            loop {
                // Retry after a conflict.
                let _ = cosi.claims().await;
                let _ = cosi.accesses().await;
                sleep(Duration::from_millis(50)).await;
            }
        }))
    }

    async fn claims(&self) -> anyhow::Result<()> {
        for claim in self.api("BucketClaim").list(&ListParams::default()).await? {
            let _ = match claim.metadata.deletion_timestamp {
                None => self.bind(&claim).await,
                Some(_) => self.end_claim(&claim).await,
            };
        }
        Ok(())
    }

    async fn bind(&self, claim: &DynamicObject) -> anyhow::Result<()> {
        let (spec, status) = (&claim.data["spec"], &claim.data["status"]);
        if status["readyToUse"] == true {
            return Ok(());
        }
        self.protect("BucketClaim", claim).await?;
        let uid = claim.uid().unwrap_or_default();
        let existing = spec["existingBucketName"].as_str();
        let name = existing.map_or(format!("bc-{uid}"), str::to_owned);
        let reference = json!({"name": claim.name_any(), "namespace": self.namespace, "uid": uid});
        let bucket = match self.api("Bucket").get_opt(&name).await? {
            Some(bucket) => bucket,
            None if existing.is_some() => return Ok(()),
            None => {
                let class = self.api("BucketClass").get(spec["bucketClassName"].as_str().unwrap_or_default()).await?;
                let mut spec_of_bucket = class.data["spec"].clone();
                spec_of_bucket["bucketClaimRef"] = reference.clone();
                if !spec["protocols"].is_null() {
                    spec_of_bucket["protocols"] = spec["protocols"].clone();
                }
                self.create("Bucket", &name, spec_of_bucket).await?
            }
        };
        if bucket.data["spec"]["bucketClaimRef"]["uid"].is_null() {
            self.patch("Bucket", &bucket, None, json!({"spec": {"bucketClaimRef": reference}})).await?;
        }
        let ready = bucket.data["status"]["readyToUse"] == true;
        let mut bound = json!({"boundBucketName": name, "readyToUse": ready});
        if ready {
            bound["protocols"] = bucket.data["status"]["protocols"].clone();
        }
        self.patch("BucketClaim", claim, Some("status"), json!({"status": bound})).await
    }

    async fn end_claim(&self, claim: &DynamicObject) -> anyhow::Result<()> {
        if claim.annotations().contains_key(HAS_ACCESSES) {
            return Ok(());
        }
        let bound = claim.data["status"]["boundBucketName"].as_str().unwrap_or_default();
        let Some(bucket) = self.api("Bucket").get_opt(bound).await? else {
            return self.unprotect("BucketClaim", claim).await;
        };
        if !bucket.annotations().contains_key(CLAIM_ENDS) {
            self.patch("Bucket", &bucket, None, json!({"metadata": {"annotations": {CLAIM_ENDS: ""}}})).await?;
        }
        if bucket.data["spec"]["deletionPolicy"] == "Retain" {
            return self.unprotect("BucketClaim", claim).await;
        }
        if bucket.metadata.deletion_timestamp.is_none() {
            self.delete("Bucket", bound).await?;
        }
        Ok(())
    }

    async fn accesses(&self) -> anyhow::Result<()> {
        let all = self.api("BucketAccess").list(&ListParams::default()).await?.items;
        for access in &all {
            let is_handed_over = access.data["status"]["driverName"].is_string();
            let is_handed_back = access.annotations().contains_key(FINISHED);
            let _ = match access.metadata.deletion_timestamp {
                Some(_) if is_handed_back || !is_handed_over => self.end_access(access, &all).await,
                None if !is_handed_over => self.hand_over(access).await,
                _ => Ok(()),
            };
        }
        Ok(())
    }

    async fn hand_over(&self, access: &DynamicObject) -> anyhow::Result<()> {
        self.protect("BucketAccess", access).await?;
        let spec = &access.data["spec"];
        let class =
            self.api("BucketAccessClass").get(spec["bucketAccessClassName"].as_str().unwrap_or_default()).await?;
        let mut buckets = Vec::new();
        for wanted in spec["bucketClaims"].as_array().into_iter().flatten() {
            let name = wanted["bucketClaimName"].as_str().unwrap_or_default();
            let claim = self.api("BucketClaim").get(name).await?;
            let mark = json!({"metadata": {"annotations": {HAS_ACCESSES: ""}}});
            self.patch("BucketClaim", &claim, None, mark).await?;
            anyhow::ensure!(claim.data["status"]["readyToUse"] == true, "not ready");
            let bound = claim.data["status"]["boundBucketName"].as_str().unwrap_or_default();
            let bucket = self.api("Bucket").get(bound).await?;
            let id = bucket.data["status"]["bucketID"].clone();
            buckets.push(json!({"bucketName": bound, "bucketID": id, "bucketClaimName": name}));
        }
        let class = &class.data["spec"];
        let mut status = json!({
            "readyToUse": false, "accessedBuckets": buckets, "driverName": class["driverName"],
            "authenticationType": class["authenticationType"],
        });
        if !class["parameters"].is_null() {
            status["parameters"] = class["parameters"].clone();
        }
        self.patch("BucketAccess", access, Some("status"), json!({"status": status})).await
    }

    async fn end_access(&self, access: &DynamicObject, all: &[DynamicObject]) -> anyhow::Result<()> {
        let names = |access: &DynamicObject| {
            let claims = access.data["spec"]["bucketClaims"].as_array().cloned().unwrap_or_default();
            claims.iter().filter_map(|claim| Some(claim["bucketClaimName"].as_str()?.to_owned())).collect::<Vec<_>>()
        };
        for name in names(access) {
            let is_last = !all.iter().any(|other| other.uid() != access.uid() && names(other).contains(&name));
            if let Some(claim) = self.api("BucketClaim").get_opt(&name).await?.filter(|_| is_last) {
                let unmark = json!({"metadata": {"annotations": {HAS_ACCESSES: null}}});
                self.patch("BucketClaim", &claim, None, unmark).await?;
            }
        }
        self.unprotect("BucketAccess", access).await
    }

    async fn protect(&self, kind: &str, object: &DynamicObject) -> anyhow::Result<()> {
        if object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            Ok(())
        } else {
            self.patch(kind, object, None, json!({"metadata": {"finalizers": [FINALIZER]}})).await?;
            // Its version has changed, and the next round lists it again.
            anyhow::bail!("protected")
        }
    }

    async fn unprotect(&self, kind: &str, object: &DynamicObject) -> anyhow::Result<()> {
        self.patch(kind, object, None, json!({"metadata": {"finalizers": []}})).await
    }

    async fn patch(
        &self,
        kind: &str,
        object: &DynamicObject,
        subresource: Option<&str>,
        mut patch: Value,
    ) -> anyhow::Result<()> {
        patch["metadata"]["resourceVersion"] = json!(object.resource_version());
        let (api, name, patch) = (self.api(kind), object.name_any(), Patch::Merge(patch));
        match subresource {
            Some(_) => api.patch_status(&name, &PatchParams::default(), &patch).await?,
            None => api.patch(&name, &PatchParams::default(), &patch).await?,
        };
        Ok(())
    }
}

fn plural(kind: &str) -> &'static str {
    match kind {
        "Bucket" => "buckets",
        "BucketClaim" => "bucketclaims",
        "BucketClass" => "bucketclasses",
        "BucketAccess" => "bucketaccesses",
        _ => "bucketaccessclasses",
    }
}
