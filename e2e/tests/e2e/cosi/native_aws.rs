//! The controller as a replacement of the sidecar, on moto, which shows a key only once and checks all permissions.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::cluster::{Program, eventually};
use testbed::control_plane::State;
use testbed::s3::S3;
use tokio::time::sleep;

use super::native::{ALL, Native, SOON};

const REGION: &str = "eu-west-1";
/// The number of kills of the controller.
const KILLS: u64 = 5;

struct Aws {
    native: Native,
    s3: S3,
}

impl Aws {
    async fn new(test: &str) -> anyhow::Result<Self> {
        Ok(Self { native: Native::new(test).await?, s3: S3::start(&State::for_tests()?.guard()).await? })
    }

    fn start(&self) -> anyhow::Result<Program> {
        let server = self.s3.server();
        let [id, secret] = server.variables();
        let endpoint = server.endpoint.as_str();
        let arguments = [["--endpoint", endpoint], ["--iam-endpoint", endpoint], ["--region", REGION]];
        self.native.start("aws-s3-provisioner", &[&id, &secret, ALL], &arguments.concat())
    }

    async fn users(&self) -> anyhow::Result<Vec<String>> {
        self.s3.server().iam()?.users("/kube-provisioner/").await.context("cannot list users")
    }

    async fn done(self, program: &Program, secrets: &[&str]) -> anyhow::Result<()> {
        let (users, buckets) = (self.users().await?, self.s3.server().admin_in(REGION)?.list_buckets().await?);
        ensure!(users.is_empty() && buckets.is_empty(), "leftovers: {users:?} {buckets:?}");
        self.native.done(program, secrets).await
    }
}

// Rules: J3, J6, J14, J16, J17.
#[tokio::test]
async fn aws_claims_and_accesses_are_created_restored_and_deleted() -> anyhow::Result<()> {
    let aws = Aws::new("cosi-n-life").await?;
    let (native, program) = (&aws.native, aws.start()?);
    native.claim("photos", "delete").await?;
    let claim = native.ready("BucketClaim", "photos").await?;
    native.access("web", &["photos"]).await?;
    native.ready("BucketAccess", "web").await?;
    let entries = native.entries("web-photos").await?;
    ensure!(claim["status"]["boundBucketName"] == entries.bucket(), "{claim}");
    ensure!(entries.works().await?, "the key does not work");

    // One Secret is lost, and one is edited.
    let secrets = native.space.api::<Secret>();
    secrets.delete("web-photos", &DeleteParams::default()).await?;
    let back = async || Ok((native.entries("web-photos").await.ok() == Some(entries.clone())).then_some(()));
    eventually(SOON, back).await?.context("a lost Secret is not restored")?;
    let edit = Patch::Merge(json!({"data": {"BUCKET_NAME": "eA=="}}));
    secrets.patch("web-photos", &PatchParams::default(), &edit).await?;
    eventually(SOON, back).await?.context("an edited Secret is not restored")?;

    native.cosi.delete("BucketAccess", "web").await?;
    native.gone("BucketAccess", "web").await?;
    ensure!(!entries.works().await?, "the key still works");
    ensure!(secrets.get_opt("web-photos").await?.is_none(), "its Secret still exists");
    let admin = aws.s3.server().admin_in(REGION)?;
    ensure!(admin.get_object(entries.bucket(), "cat").await?.is_some(), "the object no longer exists");
    native.cosi.delete("BucketClaim", "photos").await?;
    native.gone("BucketClaim", "photos").await?;
    let secret = entries.get("AWS_SECRET_ACCESS_KEY").to_owned();
    aws.done(&program, &[&secret]).await
}

// Rules: J7, J13.
#[tokio::test]
async fn aws_foreign_secrets_and_retained_buckets_are_kept() -> anyhow::Result<()> {
    let aws = Aws::new("cosi-n-keep").await?;
    let (native, program) = (&aws.native, aws.start()?);
    native.claim("films", "retain").await?;
    let bound = native.ready("BucketClaim", "films").await?["status"]["boundBucketName"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    // The name of the Secret is taken.
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web-films"}, "stringData": {"mine": "x"}});
    let secret: Secret = native.space.create(&serde_json::from_value(secret)?).await?;
    native.access("web", &["films"]).await?;
    native
        .space
        .wait_for_message("BucketAccess", "web", "Secret web-films exists and does not belong to this BucketAccess")
        .await?;
    let secrets = native.space.api::<Secret>();
    ensure!(secrets.get("web-films").await? == secret, "the Secret has changed");
    ensure!(aws.users().await? == [format!("obc.{bound}")], "{:?}", aws.users().await?);
    native.cosi.delete("BucketAccess", "web").await?;
    native.gone("BucketAccess", "web").await?;
    ensure!(secrets.get("web-films").await? == secret, "the Secret has changed");
    secrets.delete("web-films", &DeleteParams::default()).await?;

    native.cosi.delete("BucketClaim", "films").await?;
    native.gone("BucketClaim", "films").await?;
    let admin = aws.s3.server().admin_in(REGION)?;
    sleep(Duration::from_secs(2)).await;
    ensure!(admin.list_buckets().await?.len() == 1, "the bucket no longer exists");
    // An administrator decides to delete the bucket after all.
    let policy = Patch::Merge(json!({"spec": {"deletionPolicy": "Delete"}}));
    native.cosi.api("Bucket").patch(&bound, &PatchParams::default(), &policy).await?;
    native.cosi.delete("Bucket", &bound).await?;
    native.gone("Bucket", &bound).await?;
    aws.done(&program, &[]).await
}

// Rules: J15, J18.
#[tokio::test]
async fn aws_killed_controller_leaves_no_leftovers() -> anyhow::Result<()> {
    let aws = Aws::new("cosi-n-kill").await?;
    let native = &aws.native;
    let mut program = aws.start()?;
    native.claim("photos", "delete").await?;
    native.ready("BucketClaim", "photos").await?;
    native.access("web", &["photos"]).await?;
    native.ready("BucketAccess", "web").await?;
    let entries = native.entries("web-photos").await?;
    let secrets = native.space.api::<Secret>();
    let version = secrets.get("web-photos").await?.resource_version();
    for kill in 0..KILLS {
        let moment = Duration::from_millis(120 * kill);
        let (claim, access) = (format!("claim-{kill}"), format!("access-{kill}"));
        native.claim(&claim, "delete").await?;
        native.access(&access, &[&claim]).await?;
        sleep(moment).await;
        program.kill().await?;
        program = aws.start()?;
        native.ready("BucketAccess", &access).await?;
        ensure!(native.entries(&format!("{access}-{claim}")).await?.works().await?, "the key does not work");
        native.cosi.delete("BucketAccess", &access).await?;
        native.cosi.delete("BucketClaim", &claim).await?;
        sleep(moment).await;
        program.kill().await?;
        program = aws.start()?;
        native.gone("BucketAccess", &access).await?;
        native.gone("BucketClaim", &claim).await?;
    }
    ensure!(native.entries("web-photos").await? == entries, "the key has changed");
    ensure!(secrets.get("web-photos").await?.resource_version() == version, "the Secret was written again");
    ensure!(entries.works().await?, "the key no longer works");
    native.cosi.delete("BucketAccess", "web").await?;
    native.cosi.delete("BucketClaim", "photos").await?;
    native.gone("BucketClaim", "photos").await?;
    let secret = entries.get("AWS_SECRET_ACCESS_KEY").to_owned();
    aws.done(&program, &[&secret]).await
}
