//! Buckets of `gcs-provisioner` on the real API server and a fake of Google's services.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use gcs_sim::{Faults, Server};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::json;
use tempfile::TempDir;
use testbed::bucket_cases::{BucketFixture, leaves_nothing_behind_when_killed_at_random};
use testbed::cluster::{BucketSpace, Program, eventually};

const SOON: Duration = Duration::from_secs(60);

/// A provisioner with its own class and a separate fake of Google's services.
pub(crate) struct Fixture {
    buckets: BucketSpace,
    google: Server,
    files: TempDir,
}

impl BucketFixture for Fixture {
    const PARAMETERS: &[(&str, &str)] = &[("credentialsOverlap", "3s")];

    async fn new(test: &str) -> anyhow::Result<Self> {
        let buckets = BucketSpace::new(test).await?;
        let (google, files) = (Server::start().await?, tempfile::tempdir()?);
        std::fs::write(files.path().join("key.json"), google.admin_key())?;
        let fixture = Self { buckets, google, files };
        fixture.class_with("class", &[]).await?;
        Ok(fixture)
    }

    fn into_space(self) -> BucketSpace {
        self.buckets
    }

    fn spawn(&self) -> anyhow::Result<Program> {
        let key = self.files.path().join("key.json").display().to_string();
        let google = &self.google.endpoint;
        let arguments = ["--endpoint", google, "--iam-endpoint", google, "--credentials-file", &key];
        // Log everything, to check that the log contains no secrets.
        self.buckets.spawn("gcs-provisioner", &["RUST_LOG=trace"], &arguments)
    }

    async fn assets(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.google.assets().into_iter().collect())
    }
}

impl std::ops::Deref for Fixture {
    type Target = BucketSpace;

    fn deref(&self) -> &BucketSpace {
        &self.buckets
    }
}

mod gcs_cases {
    crate::store_cases::store_cases!(super::Fixture, "gcs", &[("versioning", "true")]);
}

// Rules: W1, W2, Z8, Z9, Z16.
#[tokio::test]
async fn gcs_pod_uses_only_its_own_bucket_and_keys_rotate() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::started("gcs-use").await?;
    fixture.claim("photos", "class", json!({})).await?;
    fixture.claim("videos", "class", json!({})).await?;
    fixture.bound("photos").await?;
    fixture.bound("videos").await?;
    let (photos, videos) = (fixture.user("photos").await?, fixture.user("videos").await?);
    photos.put("cat", "miaow").await?;
    let error = videos.client.get_object(&photos.bucket, "cat").await.unwrap_err();
    assert_eq!(error.code(), "AccessDenied");
    assert!(photos.client.create_bucket("another-one", None).await.is_err());

    fixture.request_key_rotation("photos", "now").await?;
    let after = fixture.next_user("photos", &photos).await?;
    ensure!(after.works().await && photos.works().await, "both keys must work during the overlap");
    let retired = eventually(SOON, async || Ok((!photos.works().await).then_some(()))).await?;
    ensure!(retired.is_some() && after.works().await, "the old key keeps working");
    // A lost Secret is recreated with a key that works.
    fixture.space.api::<Secret>().delete("photos", &DeleteParams::default()).await?;
    fixture.space.wait_for_within(SOON, &fixture.space.api::<Secret>(), "photos", "back", |_| true).await?;
    let back = fixture.user("photos").await?;
    ensure!(back.works().await, "the new Secret's key does not work");
    // The lost key stays valid during the overlap, for running pods.
    let retired = eventually(SOON, async || Ok((fixture.google.model().keys.len() == 2).then_some(()))).await?;
    ensure!(retired.is_some() && back.works().await, "the lost key keeps working");

    fixture.delete("photos").await?;
    fixture.delete("videos").await?;
    fixture.nothing_left().await?;
    let secrets = [&photos.secret, &videos.secret, &after.secret, &back.secret].map(String::as_str);
    fixture.leaks_no_secrets(&program, &[&secrets[..], &["ya29.", "PRIVATE KEY"]].concat()).await?;
    fixture.done().await
}

// Rules: Y4.
#[tokio::test]
async fn gcs_claims_get_access_to_an_existing_bucket() -> anyhow::Result<()> {
    let (fixture, program) = Fixture::started("gcs-grant").await?;
    fixture.bind("owner", "class", json!({"bucketName": "shared-bucket"})).await?;
    fixture.user("owner").await?.put("x", "hello").await?;
    fixture.class_with("granted", &[("bucketName", "shared-bucket"), ("accessMode", "read-only")]).await?;
    let before = fixture.google.assets();
    let reader = fixture.new_user("reader", "granted", json!({})).await?;
    ensure!(reader.works().await, "the reader cannot read");
    assert_eq!(reader.put("y", "no").await.unwrap_err().code(), "AccessDenied");
    fixture.delete("reader").await?;
    assert_eq!(fixture.google.assets(), before);
    // A claim for a foreign bucket is refused, and the bucket stays.
    fixture.claim("thief", "class", json!({"bucketName": "shared-bucket"})).await?;
    fixture.wait_for_ready_message("thief", "shared-bucket").await?;
    fixture.delete("thief").await?;
    assert_eq!(fixture.google.assets(), before);
    fixture.delete("owner").await?;
    fixture.leaks_no_secrets(&program, &[&reader.secret, "ya29.", "PRIVATE KEY"]).await?;
    fixture.done().await
}

// Rules: Z13.
#[tokio::test]
async fn gcs_missing_permissions_and_outages_are_reported_and_retried() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("gcs-faults").await?;
    fixture.google.model().denied.insert("storage.hmacKeys.create".to_owned());
    fixture.claim("photos", "class", json!({})).await?;
    fixture.wait_for_ready_message("photos", "needs the permission storage.hmacKeys.create").await?;
    fixture.google.model().denied.clear();
    fixture.bound("photos").await?;
    fixture.google.model().faults = Faults { unavailable: 1, ..Faults::default() };
    fixture.claim("videos", "class", json!({})).await?;
    fixture.wait_for_ready_message("videos", "503 backendError").await?;
    fixture.google.model().faults = Faults::default();
    fixture.bound("videos").await?;
    fixture.done_without(&["photos", "videos"]).await
}

// Rules: Z1, Z2.
#[tokio::test]
async fn gcs_kills_leave_no_leftovers_and_no_duplicates() -> anyhow::Result<()> {
    let fixture = Fixture::new("gcs-kill").await?;
    fixture.google.model().faults = Faults { latency: Duration::from_millis(8), ..Faults::default() };
    // Five accounts, each with one key after the overlap.
    let is_settled = async || {
        let model = fixture.google.model();
        Ok((model.accounts.len(), model.keys.len(), model.buckets.len()) == (5, 5, 3))
    };
    leaves_nothing_behind_when_killed_at_random(&fixture, &[], (|_| json!({}), json!({})), is_settled).await?;
    fixture.done().await
}
