//! Buckets on the real API server and a fake of Google's services, made by `gcs-provisioner`.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use e2e::bucket_cases::{self as cases, BucketScene};
use e2e::cluster::{BucketSpace, Program, eventually};
use gcs_sim::{Faults, Server};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::json;
use tempfile::TempDir;

const VERSIONS: &[(&str, &str)] = &[("versioning", "true")];
const SOON: Duration = Duration::from_secs(60);

/// One provisioner with its own class and its own Google.
struct Scene {
    buckets: BucketSpace,
    google: Server,
    files: TempDir,
}

impl Scene {
    async fn new(test: &str) -> anyhow::Result<Self> {
        let buckets = BucketSpace::new(test).await?;
        let (google, files) = (Server::start().await?, tempfile::tempdir()?);
        std::fs::write(files.path().join("key.json"), google.admin_key())?;
        let scene = Self { buckets, google, files };
        scene.class_with("class", &[]).await?;
        Ok(scene)
    }

    /// A case of every provisioner's.
    async fn case(test: &str, case: impl AsyncFn(&Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let scene = Self::new(test).await?;
        case(&scene).await?;
        scene.done().await
    }

    /// Nothing is left, and nothing was told of keys.
    async fn done(self) -> anyhow::Result<()> {
        self.nothing_left().await?;
        self.buckets.space.done().await
    }
}

impl BucketScene for Scene {
    const PARAMETERS: &[(&str, &str)] = &[("credentialsOverlap", "3s")];

    fn spawn(&self) -> anyhow::Result<Program> {
        let key = self.files.path().join("key.json").display().to_string();
        let google = &self.google.endpoint;
        let arguments = ["--endpoint", google, "--iam-endpoint", google, "--credentials-file", &key];
        // Whatever is logged must hold no secrets.
        self.buckets.spawn("gcs-provisioner", &["RUST_LOG=trace"], &arguments)
    }

    async fn assets(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.google.assets().into_iter().collect())
    }
}

impl std::ops::Deref for Scene {
    type Target = BucketSpace;

    fn deref(&self) -> &BucketSpace {
        &self.buckets
    }
}

#[tokio::test]
async fn gcs_w1_w2_z8_z9_z16_a_pod_uses_its_bucket_and_nobody_elses_and_keys_rotate() -> anyhow::Result<()> {
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

    scene.ask_for_keys("photos", "now").await?;
    let after = scene.next_user("photos", &photos).await?;
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
    let secrets = [&photos.secret, &videos.secret, &after.secret, &back.secret].map(String::as_str);
    scene.is_discreet(&program, &[&secrets[..], &["ya29.", "PRIVATE KEY"]].concat()).await?;
    scene.done().await
}

#[tokio::test]
async fn gcs_y4_claims_are_let_into_a_bucket_that_exists() -> anyhow::Result<()> {
    let scene = Scene::new("gcs-grant").await?;
    let program = scene.start().await?;
    scene.claim("owner", "class", json!({"bucketName": "shared-bucket"})).await?;
    scene.bound("owner").await?;
    scene.user("owner").await?.put("x", "hello").await?;
    scene.class_with("granted", &[("bucketName", "shared-bucket"), ("accessMode", "read-only")]).await?;
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
    scene.is_discreet(&program, &[&reader.secret, "ya29.", "PRIVATE KEY"]).await?;
    scene.done().await
}

#[tokio::test]
async fn gcs_z13_what_is_missing_is_told_and_waited_for() -> anyhow::Result<()> {
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
    scene.done().await
}

/// Claims come, rotate and go while the provisioner is killed at any moment.
#[tokio::test]
async fn gcs_z1_z2_killed_at_any_moment_nothing_is_left_or_made_twice() -> anyhow::Result<()> {
    let scene = Scene::new("gcs-kill").await?;
    scene.google.model().faults = Faults { latency: Duration::from_millis(8), ..Faults::default() };
    let mut program = scene.start().await?;
    scene.claim("owner", "class", json!({"bucketName": "shared-bucket"})).await?;
    scene.bound("owner").await?;
    scene.class_with("granted", &[("bucketName", "shared-bucket")]).await?;
    program.kill().await?;
    let _program = scene.survive_kills(("class", |_| json!({}), json!({})), || scene.spawn()).await?;
    // Four claims are left, and the owner's: as many accounts, and after the overlap one key each.
    let settled = eventually(SOON, async || {
        let model = scene.google.model();
        let counts = (model.accounts.len(), model.keys.len(), model.buckets.len());
        Ok((counts == (5, 5, 3)).then_some(()))
    });
    ensure!(settled.await?.is_some(), "{:?}", scene.google.assets());
    scene.end_all_but("owner").await?;
    scene.delete("owner").await?;
    scene.done().await
}

#[tokio::test]
async fn gcs_z14_a_full_bucket_goes_while_others_are_served() -> anyhow::Result<()> {
    let case = async |scene: &Scene| cases::a_full_bucket_goes_while_others_are_served(scene, VERSIONS).await;
    Scene::case("gcs-full", case).await
}

#[tokio::test]
async fn gcs_u1_u3_u7_u8_y1_y5_claims_of_a_late_class_are_served() -> anyhow::Result<()> {
    Scene::case("gcs-late", cases::claims_of_a_late_class_are_served).await
}

#[tokio::test]
async fn gcs_z3_z4_buckets_outlive_their_classes() -> anyhow::Result<()> {
    Scene::case("gcs-classes", cases::buckets_outlive_their_classes).await
}

#[tokio::test]
async fn gcs_z5_z6_z7_z8_what_is_of_others_stays() -> anyhow::Result<()> {
    Scene::case("gcs-others", cases::what_is_of_others_stays).await
}

#[tokio::test]
async fn gcs_z10_z11_claims_that_change_are_looked_at_at_once() -> anyhow::Result<()> {
    Scene::case("gcs-change", cases::claims_that_change_are_looked_at_at_once).await
}

#[tokio::test]
async fn gcs_z12_a_replica_takes_over() -> anyhow::Result<()> {
    Scene::case("gcs-two", cases::a_replica_takes_over).await
}

#[tokio::test]
async fn gcs_z17_a_bucket_with_objects_stays_if_its_class_says_so() -> anyhow::Result<()> {
    Scene::case("gcs-careful", cases::a_bucket_with_objects_stays_if_its_class_says_so).await
}
