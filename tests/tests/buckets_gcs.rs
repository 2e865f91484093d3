//! Buckets on the real API server and a fake of Google's services, made by `gcs-provisioner`.

#[allow(dead_code, reason = "the provisioner's own tests use the rest")]
#[path = "../../provisioners/gcs/src/tests/fake/mod.rs"]
mod fake;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e::cluster::{Access, Program, TestSpace, eventually, install_bucket_crds, provisioner_program};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube_provisioner::BucketOptions;
use kube_provisioner::bucket::BucketCapabilities;
use kube_provisioner::rbac::{Account, bucket_rules, manifests};
use objectbucket_api::{ClaimPhase, ObjectBucket, ObjectBucketClaim};
use s3_client::{Client, Credentials, Settings};
use serde_json::{Value, json};
use tempfile::TempDir;

use fake::{Fake, Faults};

const SOON: Duration = Duration::from_secs(60);

/// One provisioner with its own class and its own Google.
struct Scene {
    space: TestSpace,
    google: Fake,
    access: Access,
    files: TempDir,
}

impl Scene {
    async fn new(test: &str) -> anyhow::Result<Self> {
        let space = TestSpace::new(test).await?;
        install_bucket_crds(&space.client()).await?;
        let options = BucketOptions::new(space.provisioner()).options;
        let rules = bucket_rules(&options, &BucketCapabilities::default(), &[]);
        space.apply(&manifests(&Account { name: "provisioner", namespace: space.namespace() }, &rules)).await?;
        let access = space.access_of("provisioner").await?;
        let (google, files) = (Fake::start().await, tempfile::tempdir()?);
        std::fs::write(files.path().join("key.json"), google.admin_key())?;
        let scene = Self { space, google, access, files };
        scene.class("class", &[("credentialsOverlap", "3s")]).await?;
        Ok(scene)
    }

    async fn start(&self) -> anyhow::Result<Program> {
        let program = self.spawn()?;
        program.wait_for_output("connected", SOON).await?;
        Ok(program)
    }

    fn spawn(&self) -> anyhow::Result<Program> {
        let key = self.files.path().join("key.json").display().to_string();
        let kubeconfig = self.access.kubeconfig.display().to_string();
        let arguments = [
            ["--provisioner-name", self.space.provisioner()],
            ["--kubeconfig", &kubeconfig],
            ["--namespace", self.space.namespace()],
            ["--endpoint", &self.google.endpoint],
            ["--iam-endpoint", &self.google.endpoint],
            ["--credentials-file", &key],
            ["--call-timeout", "5"],
            ["--retry-interval-start", "300ms"],
            ["--retry-interval-max", "3s"],
            // Who was killed is not waited for as long as usual.
            ["--lease-duration", "3s"],
            ["--lease-renew-deadline", "2s"],
            ["--lease-retry-period", "500ms"],
        ];
        let program = provisioner_program("gcs-provisioner")?.display().to_string();
        // Whatever is logged must hold no secrets.
        let command = ["RUST_LOG=trace", &program].into_iter().chain(arguments.concat());
        self.space.spawn("gcs", "env", command)
    }

    async fn class(&self, suffix: &str, parameters: &[(&str, &str)]) -> anyhow::Result<()> {
        let parameters: BTreeMap<&str, &str> = parameters.iter().copied().collect();
        let class: StorageClass = serde_json::from_value(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": self.space.cluster_wide_name(suffix)},
            "provisioner": self.space.provisioner(), "parameters": parameters,
        }))?;
        self.space.create_cluster_wide(&class).await.map(drop)
    }

    async fn claim(&self, name: &str, class: &str, spec: Value) -> anyhow::Result<ObjectBucketClaim> {
        let mut claim = json!({
            "apiVersion": objectbucket_api::API_VERSION, "kind": "ObjectBucketClaim", "metadata": {"name": name},
            "spec": {"storageClassName": self.space.cluster_wide_name(class), "generateBucketName": "e2e"},
        });
        claim["spec"].as_object_mut().context("a map")?.extend(spec.as_object().context("a map")?.clone());
        self.space.create(&serde_json::from_value(claim)?).await
    }

    async fn patch(&self, claim: &str, patch: Value) -> anyhow::Result<()> {
        let claims = self.space.api::<ObjectBucketClaim>();
        claims.patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn bound(&self, claim: &str) -> anyhow::Result<()> {
        let claims = self.space.api::<ObjectBucketClaim>();
        self.space.wait_for_within(SOON, &claims, claim, "bound", is_bound).await.map(drop)
    }

    /// Waits until the claim's condition `Ready` says this.
    async fn told(&self, claim: &str, part: &str) -> anyhow::Result<()> {
        let claims = self.space.api::<ObjectBucketClaim>();
        let says = |claim: &ObjectBucketClaim| {
            let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
            conditions.any(|condition| condition.type_ == "Ready" && condition.message.contains(part))
        };
        self.space.wait_for_within(SOON, &claims, claim, part, says).await.map(drop)
    }

    /// Deletes a claim and waits until it and its ObjectBucket are gone.
    async fn delete(&self, claim: &str) -> anyhow::Result<()> {
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
    async fn user(&self, claim: &str) -> anyhow::Result<User> {
        let secret = self.space.api::<Secret>().get(claim).await?.data.unwrap_or_default();
        let map = self.space.api::<ConfigMap>().get(claim).await?.data.unwrap_or_default();
        let text = |key: &str| Ok::<_, anyhow::Error>(String::from_utf8(secret.get(key).context("no key")?.0.clone())?);
        let (id, secret) = (text("AWS_ACCESS_KEY_ID")?, text("AWS_SECRET_ACCESS_KEY")?);
        let mut settings = Settings::new(map.get("AWS_ENDPOINT_URL").context("no address")?);
        settings.region = map.get("BUCKET_REGION").context("no region")?.clone();
        let client = Client::new(settings, Credentials::new(&id, &secret))?;
        Ok(User { client, bucket: map.get("BUCKET_NAME").context("no bucket")?.clone(), id, secret })
    }

    async fn nothing_left(&self) -> anyhow::Result<()> {
        let gone = eventually(SOON, async || Ok(self.google.assets().is_empty().then_some(()))).await?;
        gone.with_context(|| format!("this is left: {:?}", self.google.assets()))
    }
}

/// What a pod has.
struct User {
    client: Client,
    bucket: String,
    id: String,
    secret: String,
}

impl User {
    async fn put(&self, key: &str, text: &'static str) -> Result<(), s3_client::Error> {
        self.client.put_object(&self.bucket, key, text).await
    }

    async fn works(&self) -> bool {
        self.client.get_object(&self.bucket, "nothing").await.is_ok()
    }
}

fn is_bound(claim: &ObjectBucketClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(&ClaimPhase::Bound)
}

#[tokio::test]
async fn gcs_a_pod_uses_its_bucket_and_nobody_elses_and_keys_rotate() -> anyhow::Result<()> {
    let scene = Scene::new("gcs-use").await?;
    let program = scene.start().await?;
    scene.claim("photos", "class", json!({})).await?;
    scene.claim("videos", "class", json!({})).await?;
    scene.bound("photos").await?;
    scene.bound("videos").await?;
    let (photos, videos) = (scene.user("photos").await?, scene.user("videos").await?);
    photos.put("cat", "miaow").await?;
    let error = videos.client.get_object(&photos.bucket, "cat").await.unwrap_err();
    assert_eq!(error.code(), "AccessDenied");
    assert!(photos.client.create_bucket("another-one", None).await.is_err());

    let rotation = json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "now"}}});
    scene.patch("photos", rotation).await?;
    let rotated = eventually(SOON, async || {
        let user = scene.user("photos").await?;
        Ok((user.id != photos.id).then_some(user))
    });
    let after = rotated.await?.context("there is no new key")?;
    ensure!(after.works().await && photos.works().await, "both keys work for some time");
    let retired = eventually(SOON, async || Ok((!photos.works().await).then_some(()))).await?;
    ensure!(retired.is_some() && after.works().await, "the old key works for ever");
    // A lost Secret comes back with a key that works.
    scene.space.api::<Secret>().delete("photos", &DeleteParams::default()).await?;
    scene.space.wait_for_within(SOON, &scene.space.api::<Secret>(), "photos", "back", |_| true).await?;
    let back = scene.user("photos").await?;
    ensure!(back.works().await, "the new Secret's key does not work");
    assert_eq!(scene.google.model().keys.len(), 2);

    scene.delete("photos").await?;
    scene.delete("videos").await?;
    scene.nothing_left().await?;
    let log = program.output();
    let events = scene.space.api::<Event>().list(&ListParams::default()).await?;
    let said = log + &serde_json::to_string(&events.items)?;
    for secret in ["ya29.", "PRIVATE KEY", &photos.secret, &videos.secret, &after.secret, &back.secret] {
        ensure!(!said.contains(secret), "a secret is in the log or in an event");
    }
    scene.space.done().await
}

#[tokio::test]
async fn gcs_claims_are_let_into_a_bucket_that_exists() -> anyhow::Result<()> {
    let scene = Scene::new("gcs-grant").await?;
    let _program = scene.start().await?;
    scene.claim("owner", "class", json!({"bucketName": "shared-bucket"})).await?;
    scene.bound("owner").await?;
    scene.user("owner").await?.put("x", "hello").await?;
    scene.class("granted", &[("bucketName", "shared-bucket"), ("accessMode", "read-only")]).await?;
    let before = scene.google.assets();
    scene.claim("reader", "granted", json!({})).await?;
    scene.bound("reader").await?;
    let reader = scene.user("reader").await?;
    ensure!(reader.works().await, "the reader cannot read");
    assert_eq!(reader.put("y", "no").await.unwrap_err().code(), "AccessDenied");
    scene.delete("reader").await?;
    assert_eq!(scene.google.assets(), before);
    // A bucket of somebody else is refused and stays.
    scene.claim("thief", "class", json!({"bucketName": "shared-bucket"})).await?;
    scene.told("thief", "shared-bucket").await?;
    scene.delete("thief").await?;
    assert_eq!(scene.google.assets(), before);
    scene.delete("owner").await?;
    scene.nothing_left().await?;
    scene.space.done().await
}

#[tokio::test]
async fn gcs_what_is_missing_is_told_and_waited_for() -> anyhow::Result<()> {
    let scene = Scene::new("gcs-faults").await?;
    let _program = scene.start().await?;
    scene.google.model().denied.insert("storage.hmacKeys.create".to_owned());
    scene.claim("photos", "class", json!({})).await?;
    scene.told("photos", "needs the permission storage.hmacKeys.create").await?;
    scene.google.model().denied.clear();
    scene.bound("photos").await?;
    scene.google.model().faults = Faults { unavailable: 1, ..Faults::default() };
    scene.claim("videos", "class", json!({})).await?;
    scene.told("videos", "503 backendError").await?;
    scene.google.model().faults = Faults::default();
    scene.bound("videos").await?;
    scene.delete("photos").await?;
    scene.delete("videos").await?;
    scene.nothing_left().await?;
    scene.space.done().await
}

/// Claims come, rotate and go while the provisioner is killed at any moment.
#[tokio::test]
async fn gcs_killed_at_any_moment_nothing_is_left_or_made_twice() -> anyhow::Result<()> {
    let kills: u64 = std::env::var("E2E_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12);
    let scene = Scene::new("gcs-kill").await?;
    scene.google.model().faults = Faults { latency: Duration::from_millis(8), ..Faults::default() };
    let mut program = scene.start().await?;
    scene.claim("owner", "class", json!({"bucketName": "shared-bucket"})).await?;
    scene.bound("owner").await?;
    scene.class("granted", &[("bucketName", "shared-bucket")]).await?;
    let claims = scene.space.api::<ObjectBucketClaim>();
    let mut moments = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..kills {
        scene.claim(&format!("made-{kill}"), "class", json!({})).await?;
        scene.claim(&format!("granted-{kill}"), "granted", json!({})).await?;
        if kill > 0 {
            let rotation =
                json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": format!("{kill}")}}});
            scene.patch(&format!("made-{}", kill - 1), rotation).await?;
        }
        if kill > 1 {
            for gone in [format!("made-{}", kill - 2), format!("granted-{}", kill - 2)] {
                claims.delete(&gone, &DeleteParams::default()).await?;
            }
        }
        moments = moments.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        tokio::time::sleep(Duration::from_millis(moments >> 54)).await;
        program.kill().await?;
        program = scene.spawn()?;
    }
    let last = kills - 1;
    for claim in [format!("made-{last}"), format!("made-{}", last - 1), format!("granted-{last}")] {
        scene.bound(&claim).await?;
        let works = eventually(SOON, async || Ok(scene.user(&claim).await?.works().await.then_some(())));
        ensure!(works.await?.is_some(), "the keys of {claim} do not work");
    }
    // Four claims are left, and the owner's: as many accounts, and after the overlap one key each.
    let settled = eventually(SOON, async || {
        let model = scene.google.model();
        let counts = (model.accounts.len(), model.keys.len(), model.buckets.len());
        Ok((counts == (5, 5, 3)).then_some(()))
    });
    ensure!(settled.await?.is_some(), "{:?}", scene.google.assets());
    let all = claims.list(&ListParams::default()).await?;
    ensure!(all.iter().all(is_bound), "some claims are not bound");
    let names = all.iter().filter_map(|claim| claim.metadata.name.clone());
    for claim in names.filter(|name| name != "owner") {
        scene.delete(&claim).await?;
    }
    scene.delete("owner").await?;
    scene.nothing_left().await?;
    scene.space.done().await
}
