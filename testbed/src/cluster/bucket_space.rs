//! A bucket provisioner in its own namespace, with its classes and claims, and their buckets as pods see them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube_provisioner::BucketOptions;
use kube_provisioner::bucket::BucketCapabilities;
use kube_provisioner::protocol::ROTATE_CREDENTIALS;
use kube_provisioner::rbac::bucket_rules;
use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use s3_client::{Client, Credentials};
use serde_json::{Value, json};

use super::{
    Access, Cluster, Program, TestSpace, eventually, install_bucket_crds, is_bucket_bound, provisioner_program,
};
use crate::ports::free_port;
use crate::s3::clients::Pod;
use crate::{http, s3};

const HTTP_ENDPOINT: &str = "--http-endpoint";
/// The limit for every wait.
const SOON: Duration = Duration::from_secs(60);

/// The provisioner's account, its classes and claims.
pub struct BucketSpace {
    /// The namespace of the account and the claims.
    pub space: TestSpace,
    access: Access,
}

impl BucketSpace {
    /// Creates an account with the permissions of bucket provisioners.
    pub async fn new(test: &str) -> anyhow::Result<Self> {
        Self::on(TestSpace::new(test).await?).await
    }

    /// Creates a space with the same names in another cluster.
    pub async fn counterpart_in(&self, cluster: Cluster) -> anyhow::Result<Self> {
        Self::on(self.space.counterpart_in(cluster).await?).await
    }

    async fn on(space: TestSpace) -> anyhow::Result<Self> {
        install_bucket_crds(&space.client()).await?;
        let options = BucketOptions::new(space.provisioner()).options;
        let rules = bucket_rules(&options, &BucketCapabilities::default(), &[]);
        let access = space.account("provisioner", &rules).await?;
        Ok(Self { space, access })
    }

    /// Starts a package's program with additional options. `variables` have the form `NAME=value`.
    pub fn spawn(&self, package: &str, variables: &[&str], more: &[&str]) -> anyhow::Result<Program> {
        let kubeconfig = self.access.kubeconfig.display().to_string();
        let arguments = [
            ["--provisioner-name", self.space.provisioner()],
            ["--kubeconfig", &kubeconfig],
            ["--namespace", self.space.namespace()],
            ["--call-timeout", "5s"],
            ["--retry-interval-start", "300ms"],
            ["--retry-interval-max", "3s"],
            // With a short lease, another process soon takes over from a killed one.
            ["--lease-duration", "3s"],
            ["--lease-renew-deadline", "2s"],
            ["--lease-retry-period", "500ms"],
        ];
        // Tests also check its metrics.
        let admin = format!("127.0.0.1:{}", free_port()?);
        let program = provisioner_program(package)?.display().to_string();
        let command = variables
            .iter()
            .copied()
            .chain([program.as_str()])
            .chain(arguments.concat())
            .chain([HTTP_ENDPOINT, &admin]);
        self.space.spawn(package, "env", command.chain(more.iter().copied()))
    }

    /// Runs a command of a package's program to completion, with the provisioner's account. Returns true if it
    /// succeeded, and its output.
    pub async fn command(
        &self,
        package: &str,
        variables: &[(&str, &str)],
        arguments: &[&str],
    ) -> anyhow::Result<(bool, String)> {
        let mut command = tokio::process::Command::new(provisioner_program(package)?);
        command.args(arguments).args(["--provisioner-name", self.space.provisioner()]);
        command.arg("--kubeconfig").arg(&self.access.kubeconfig).envs(variables.iter().copied());
        let output = command.output().await?;
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((output.status.success(), text.concat()))
    }

    /// Creates a class of the provisioner, with a name that is unique to the test.
    pub async fn class(&self, suffix: &str, parameters: &[(&str, &str)]) -> anyhow::Result<()> {
        let parameters: BTreeMap<&str, &str> = parameters.iter().copied().collect();
        let class: StorageClass = serde_json::from_value(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": self.space.cluster_wide_name(suffix)},
            "provisioner": self.space.provisioner(), "parameters": parameters,
        }))?;
        self.space.create_cluster_wide(&class).await.map(drop)
    }

    /// Creates a claim of the class with this suffix.
    pub async fn claim(&self, name: &str, class: &str, spec: Value) -> anyhow::Result<ObjectBucketClaim> {
        let mut claim = json!({
            "apiVersion": objectbucket_api::API_VERSION, "kind": "ObjectBucketClaim", "metadata": {"name": name},
            "spec": {"storageClassName": self.space.cluster_wide_name(class), "generateBucketName": "e2e"},
        });
        claim["spec"].as_object_mut().context("a map")?.extend(spec.as_object().context("a map")?.clone());
        self.space.create(&serde_json::from_value(claim)?).await
    }

    /// Patches a claim.
    pub async fn patch(&self, claim: &str, patch: Value) -> anyhow::Result<()> {
        let claims = self.space.api::<ObjectBucketClaim>();
        claims.patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Requests new keys. Each `request` must be a different text.
    pub async fn request_key_rotation(&self, claim: &str, request: &str) -> anyhow::Result<()> {
        self.patch(claim, json!({"metadata": {"annotations": {(ROTATE_CREDENTIALS): request}}})).await
    }

    /// Waits until the claim is bound, and returns it.
    pub async fn bound(&self, claim: &str) -> anyhow::Result<ObjectBucketClaim> {
        let claims = self.space.api::<ObjectBucketClaim>();
        self.space.wait_for_within(SOON, &claims, claim, "bound", is_bucket_bound).await
    }

    /// Creates a claim, and waits until it is bound.
    pub async fn bind(&self, name: &str, class: &str, spec: Value) -> anyhow::Result<ObjectBucketClaim> {
        self.claim(name, class, spec).await?;
        self.bound(name).await
    }

    /// Creates a claim, and returns its bucket and keys once it is bound.
    pub async fn new_user(&self, name: &str, class: &str, spec: Value) -> anyhow::Result<BucketUser> {
        self.bind(name, class, spec).await?;
        self.user(name).await
    }

    /// Waits until the message of the claim's condition `Ready` contains this text.
    pub async fn wait_for_ready_message(&self, claim: &str, part: &str) -> anyhow::Result<()> {
        let claims = self.space.api::<ObjectBucketClaim>();
        let says = |claim: &ObjectBucketClaim| {
            let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
            conditions.any(|condition| condition.type_ == "Ready" && condition.message.contains(part))
        };
        self.space.wait_for_within(SOON, &claims, claim, part, says).await.map(drop)
    }

    /// Waits until the claim's condition `Ready` has this reason, and returns its message.
    pub async fn message(&self, claim: &str, reason: &str) -> anyhow::Result<String> {
        let claims = self.space.api::<ObjectBucketClaim>();
        let ready = |claim: &ObjectBucketClaim| {
            let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
            conditions.find(|ready| ready.type_ == "Ready").filter(|ready| ready.reason == reason).cloned()
        };
        let is_so = |claim: &ObjectBucketClaim| ready(claim).is_some();
        let claim = self.space.wait_for_within(SOON, &claims, claim, reason, is_so).await?;
        Ok(ready(&claim).context("it was there")?.message)
    }

    /// Deletes a claim, and waits until it and its ObjectBucket no longer exist.
    pub async fn delete(&self, claim: &str) -> anyhow::Result<()> {
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
    pub async fn user(&self, claim: &str) -> anyhow::Result<BucketUser> {
        BucketUser::of(&self.space.client(), self.space.namespace(), claim).await
    }

    /// A pod that uses the claim's Secret and ConfigMap with `envFrom`, and `more` variables of its own.
    pub async fn pod(&self, claim: &str, more: &[(&str, &str)]) -> anyhow::Result<Pod> {
        let secret = self.space.api::<Secret>().get(claim).await?.data.unwrap_or_default();
        let map = self.space.api::<ConfigMap>().get(claim).await?.data.unwrap_or_default();
        let secret = secret.into_iter().map(|(name, value)| Ok((name, String::from_utf8(value.0)?)));
        let mut entries = secret.collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        entries.extend(map);
        entries.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Pod::new(entries)
    }

    /// Waits until the claim's Secret contains a key other than `before`.
    pub async fn next_user(&self, claim: &str, before: &BucketUser) -> anyhow::Result<BucketUser> {
        let rotated = eventually(SOON, async || {
            let user = self.user(claim).await?;
            Ok((user.id != before.id).then_some(user))
        });
        rotated.await?.context("there is no new key")
    }

    /// Fails if one of these secrets appears outside of Secrets: in the program's logs, arguments or metrics, or in
    /// another object.
    pub async fn leaks_no_secrets(&self, program: &Program, secrets: &[&str]) -> anyhow::Result<()> {
        let arguments = program.arguments()?;
        let address = arguments.iter().skip_while(|argument| *argument != HTTP_ENDPOINT).nth(1);
        let port: u16 = address.and_then(|address| address.rsplit_once(':')?.1.parse().ok()).context("no address")?;
        let metrics = http::ask(port, "GET /metrics", "").await?;
        ensure!(metrics.contains("provisioner_"), "there are no metrics: {metrics}");
        let list = ListParams::default();
        let objects = [
            ("events", json!(self.space.api::<Event>().list(&list).await?.items)),
            ("claims", json!(self.space.api::<ObjectBucketClaim>().list(&list).await?.items)),
            ("ConfigMaps", json!(self.space.api::<ConfigMap>().list(&list).await?.items)),
            ("ObjectBuckets", json!(self.space.cluster_api::<ObjectBucket>().list(&list).await?.items)),
        ];
        let told = [("the log", program.output()), ("argv", arguments.join(" ")), ("metrics", metrics)];
        let told = told.into_iter().chain(objects.map(|(place, objects)| (place, objects.to_string())));
        for (place, text) in told {
            let found = secrets.iter().position(|secret| text.contains(secret));
            ensure!(found.is_none(), "{place} shows the secret number {found:?}");
        }
        Ok(())
    }
}

/// The bucket and keys that a pod receives.
pub struct BucketUser {
    /// An S3 client with the claim's key.
    pub client: Client,
    /// The bucket's name.
    pub bucket: String,
    /// The key's id.
    pub id: String,
    /// The key's secret.
    pub secret: String,
}

impl BucketUser {
    /// The bucket and the keys in a claim's ConfigMap and Secret.
    pub async fn of(client: &kube::Client, namespace: &str, claim: &str) -> anyhow::Result<Self> {
        let secret = Api::<Secret>::namespaced(client.clone(), namespace).get(claim).await?.data.unwrap_or_default();
        let map = Api::<ConfigMap>::namespaced(client.clone(), namespace).get(claim).await?.data.unwrap_or_default();
        let text = |key: &str| Ok::<_, anyhow::Error>(String::from_utf8(secret.get(key).context("no key")?.0.clone())?);
        let (id, secret) = (text("AWS_ACCESS_KEY_ID")?, text("AWS_SECRET_ACCESS_KEY")?);
        let endpoint = map.get("AWS_ENDPOINT_URL_S3").context("no address")?;
        let region = map.get("BUCKET_REGION").map(String::as_str).filter(|region| !region.is_empty());
        let client = s3::client(endpoint, region, Credentials::new(&id, &secret))?;
        Ok(Self { client, bucket: map.get("BUCKET_NAME").context("no bucket")?.clone(), id, secret })
    }

    /// Writes an object.
    pub async fn put(&self, key: &str, text: &'static str) -> Result<(), s3_client::Error> {
        self.client.put_object(&self.bucket, key, text).await
    }

    /// Reads an object.
    pub async fn get(&self, key: &str) -> Result<Option<String>, s3_client::Error> {
        let bytes = self.client.get_object(&self.bucket, key).await?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// True if the key can read from the bucket.
    pub async fn works(&self) -> bool {
        self.client.get_object(&self.bucket, "nothing").await.is_ok()
    }
}
