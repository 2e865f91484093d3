//! The provisioner, its classes and claims, and the gateway as a pod with the claim's Secret sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use e2e::ceph::State;
use e2e::cluster::{Access, Program, TestSpace, eventually, install_bucket_crds, provisioner_program};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube_provisioner::BucketOptions;
use kube_provisioner::bucket::BucketCapabilities;
use kube_provisioner::rbac::{Account, bucket_rules, manifests};
use objectbucket_api::{ClaimPhase, ObjectBucket, ObjectBucketClaim};
use s3_client::{Client, Credentials, Settings};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const SOON: Duration = Duration::from_secs(60);

/// One provisioner with its own class, on the gateway that all tests share or on one of its own.
pub(crate) struct Scene {
    pub(crate) space: TestSpace,
    pub(crate) ceph: State,
    access: Access,
    files: TempDir,
}

impl Scene {
    pub(crate) async fn new(test: &str) -> anyhow::Result<Self> {
        Self::on(State::for_tests()?, test).await
    }

    pub(crate) async fn on(ceph: State, test: &str) -> anyhow::Result<Self> {
        let space = TestSpace::new(test).await?;
        install_bucket_crds(&space.client()).await?;
        let options = BucketOptions::new(space.provisioner()).options;
        let rules = bucket_rules(&options, &BucketCapabilities::default(), &[]);
        space.apply(&manifests(&Account { name: "provisioner", namespace: space.namespace() }, &rules)).await?;
        let access = space.access_of("provisioner").await?;
        let files = tempfile::tempdir()?;
        std::fs::write(files.path().join("access"), &ceph.access_key)?;
        std::fs::write(files.path().join("secret"), &ceph.secret_key)?;
        let scene = Self { space, ceph, access, files };
        scene.class("class", &[]).await?;
        Ok(scene)
    }

    /// Starts the provisioner with these options more.
    pub(crate) async fn start(&self, more: &[&str]) -> anyhow::Result<Program> {
        let program = self.spawn(more)?;
        program.wait_for_output("connected", SOON).await?;
        Ok(program)
    }

    pub(crate) fn spawn(&self, more: &[&str]) -> anyhow::Result<Program> {
        let file = |name: &str| self.files.path().join(name).display().to_string();
        let (access, secret, kubeconfig) =
            (file("access"), file("secret"), self.access.kubeconfig.display().to_string());
        let arguments = [
            ["--provisioner-name", self.space.provisioner()],
            ["--kubeconfig", &kubeconfig],
            ["--namespace", self.space.namespace()],
            ["--endpoint", &self.ceph.endpoint],
            ["--admin-access-key-file", &access],
            ["--admin-secret-key-file", &secret],
            ["--call-timeout", "5"],
            ["--retry-interval-start", "300ms"],
            // Who was killed is not waited for as long as usual.
            ["--lease-duration", "3s"],
            ["--lease-renew-deadline", "2s"],
            ["--lease-retry-period", "500ms"],
            ["--allowed-additional-config", ALL_CONFIG],
        ];
        let arguments = arguments.concat().into_iter().chain(more.iter().copied());
        self.space.spawn("ceph-rgw", provisioner_program("ceph-rgw-provisioner")?, arguments)
    }

    /// Gives the provisioner other admin keys.
    pub(crate) fn set_admin(&self, access_key: &str, secret_key: &str) -> anyhow::Result<()> {
        std::fs::write(self.files.path().join("access"), access_key)?;
        Ok(std::fs::write(self.files.path().join("secret"), secret_key)?)
    }

    /// Creates a class of the provisioner; the name is the test's own.
    pub(crate) async fn class(&self, suffix: &str, parameters: &[(&str, &str)]) -> anyhow::Result<()> {
        let parameters: BTreeMap<&str, &str> = parameters.iter().copied().collect();
        let class: StorageClass = serde_json::from_value(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": self.space.cluster_wide_name(suffix)},
            "provisioner": self.space.provisioner(), "parameters": parameters,
        }))?;
        self.space.create_cluster_wide(&class).await.map(drop)
    }

    /// Creates a claim of the class with this suffix.
    pub(crate) async fn claim(&self, name: &str, class: &str, spec: Value) -> anyhow::Result<ObjectBucketClaim> {
        let mut claim = json!({
            "apiVersion": objectbucket_api::API_VERSION, "kind": "ObjectBucketClaim", "metadata": {"name": name},
            "spec": {"storageClassName": self.space.cluster_wide_name(class), "generateBucketName": "e2e"},
        });
        claim["spec"].as_object_mut().context("a map")?.extend(spec.as_object().context("a map")?.clone());
        self.space.create(&serde_json::from_value(claim)?).await
    }

    pub(crate) async fn patch(&self, claim: &str, patch: Value) -> anyhow::Result<()> {
        let claims = self.space.api::<ObjectBucketClaim>();
        claims.patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Waits until the claim is bound; returns it.
    pub(crate) async fn bound(&self, claim: &str) -> anyhow::Result<ObjectBucketClaim> {
        let claims = self.space.api::<ObjectBucketClaim>();
        self.space.wait_for_within(SOON, &claims, claim, "bound", is_bound).await
    }

    /// Waits until the claim's condition `Ready` has this reason; returns its message.
    pub(crate) async fn told(&self, claim: &str, reason: &str) -> anyhow::Result<String> {
        let claims = self.space.api::<ObjectBucketClaim>();
        let ready = |claim: &ObjectBucketClaim| {
            let conditions = claim.status.iter().flat_map(|status| &status.conditions);
            conditions
                .filter(|condition| condition.type_ == "Ready")
                .map(|ready| (ready.reason.clone(), ready.message.clone()))
                .next()
        };
        let has = |claim: &ObjectBucketClaim| ready(claim).is_some_and(|(found, _)| found == reason);
        let claim = self.space.wait_for_within(SOON, &claims, claim, reason, has).await?;
        Ok(ready(&claim).unwrap_or_default().1)
    }

    /// Deletes a claim and waits until it and its ObjectBucket are gone.
    pub(crate) async fn delete(&self, claim: &str) -> anyhow::Result<()> {
        let claims = self.space.api::<ObjectBucketClaim>();
        let object = claims.get(claim).await?.spec.object_bucket_name;
        claims.delete(claim, &DeleteParams::default()).await?;
        self.space.wait_gone(&claims, claim).await?;
        match object {
            Some(object) => self.space.wait_gone(&self.space.cluster_api::<ObjectBucket>(), &object).await,
            None => Ok(()),
        }
    }

    /// The claim's bucket with the keys of its Secret.
    pub(crate) async fn user(&self, claim: &str) -> anyhow::Result<User> {
        let secret = self.space.api::<Secret>().get(claim).await?.data.unwrap_or_default();
        let map = self.space.api::<ConfigMap>().get(claim).await?.data.unwrap_or_default();
        let text = |key: &str| Ok::<_, anyhow::Error>(String::from_utf8(secret.get(key).context("no key")?.0.clone())?);
        let endpoint = map.get("AWS_ENDPOINT_URL").context("no address")?;
        let credentials = Credentials::new(text("AWS_ACCESS_KEY_ID")?, text("AWS_SECRET_ACCESS_KEY")?);
        let access_key_id = text("AWS_ACCESS_KEY_ID")?;
        let client = Client::new(Settings::new(endpoint), credentials)?;
        Ok(User { client, bucket: map.get("BUCKET_NAME").context("no bucket")?.clone(), access_key_id })
    }

    /// The ids of the gateway's users whose claims are in this test's namespace.
    pub(crate) async fn users(&self) -> anyhow::Result<Vec<String>> {
        let all: Vec<String> = serde_json::from_value(self.ceph.radosgw_admin(&["user", "list"]).await?)?;
        let mine = format!("obc-{}-", self.space.namespace());
        Ok(all.into_iter().filter(|user| user.starts_with(&mine)).collect())
    }

    /// The gateway's buckets that belong to these users or have this test's prefix.
    pub(crate) async fn buckets(&self) -> anyhow::Result<Vec<(String, String)>> {
        let all = self.ceph.radosgw_admin(&["bucket", "stats"]).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = all.as_array().cloned().unwrap_or_default();
        let all = all.iter().map(|bucket| (text(&bucket["bucket"]), text(&bucket["owner"])));
        let mine = format!("obc-{}-", self.space.namespace());
        let named = self.space.namespace();
        Ok(all.filter(|(name, owner)| owner.starts_with(&mine) || name.contains(named)).collect())
    }

    /// Waits until the gateway has nothing of this test.
    pub(crate) async fn nothing_left(&self) -> anyhow::Result<()> {
        let mut left = String::new();
        let gone = eventually(SOON, async || {
            let (users, buckets) = (self.users().await?, self.buckets().await?);
            left = format!("{users:?} {buckets:?}");
            Ok((users.is_empty() && buckets.is_empty()).then_some(()))
        });
        gone.await?.with_context(|| format!("this is left: {left}"))
    }
}

/// What a pod has.
pub(crate) struct User {
    pub(crate) client: Client,
    pub(crate) bucket: String,
    pub(crate) access_key_id: String,
}

impl User {
    pub(crate) async fn put(&self, key: &str, text: &'static str) -> Result<(), s3_client::Error> {
        self.client.put_object(&self.bucket, key, text).await
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<String>, s3_client::Error> {
        let bytes = self.client.get_object(&self.bucket, key).await?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

const ALL_CONFIG: &str =
    "maxObjects,maxSize,bucketMaxObjects,bucketMaxSize,bucketPolicy,bucketLifecycle,bucketOwner,accessMode";

pub(crate) fn is_bound(claim: &ObjectBucketClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(&ClaimPhase::Bound)
}
