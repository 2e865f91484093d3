//! The driver on moto, which shows a key only once and checks all permissions.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use cosi_sanity::Version;
use driver_rpc::Code;
use testbed::cluster::Program;
use testbed::control_plane::State;
use testbed::s3::{S3, regions};

use super::fixture::Bed;

/// The number of kills of the driver.
const KILLS: u64 = 8;

const USUAL: &str = "RUST_LOG=info";
/// Log everything, to check that the log contains no secrets.
const ALL: &str = "RUST_LOG=trace";

struct Fixture {
    bed: Bed,
    aws: S3,
    /// The address of a proxy that keeps buckets in their region.
    endpoint: String,
}

impl Fixture {
    async fn new(test: &str) -> anyhow::Result<Self> {
        let aws = S3::start(&State::for_tests()?.guard()).await?;
        let endpoint = regions::start(aws.server()).await?;
        Ok(Self { bed: Bed::new(test).await?, aws, endpoint })
    }

    async fn start(&self, log: &str) -> anyhow::Result<Program> {
        let [id, secret] = self.aws.server().variables();
        let endpoint = self.endpoint.as_str();
        let arguments = [["--endpoint", endpoint], ["--iam-endpoint", endpoint], ["--region", "eu-west-1"]];
        self.bed.start("aws-s3-provisioner", &[&id, &secret, log], &arguments.concat()).await
    }

    async fn users(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.aws.server().iam()?.users("/kube-provisioner/").await?.into_iter().collect())
    }

    async fn done(self) -> anyhow::Result<()> {
        let (users, buckets) = (self.users().await?, self.aws.server().admin_in("eu-west-1")?.list_buckets().await?);
        ensure!(users.is_empty() && buckets.is_empty(), "leftovers: {users:?} {buckets:?}");
        self.bed.has_no_records().await?;
        self.bed.space.done().await
    }
}

#[tokio::test]
async fn aws_driver_passes_cosi_sanity_in_v1alpha1() -> anyhow::Result<()> {
    check_sanity("cosi-aws-1", Version::V1alpha1).await
}

#[tokio::test]
async fn aws_driver_passes_cosi_sanity_in_v1alpha2() -> anyhow::Result<()> {
    check_sanity("cosi-aws-2", Version::V1alpha2).await
}

async fn check_sanity(test: &str, version: Version) -> anyhow::Result<()> {
    let fixture = Fixture::new(test).await?;
    fixture.bed.check_sanity(version, async || fixture.start(USUAL).await, "region=us-east-1").await?;
    fixture.done().await
}

#[tokio::test]
async fn aws_killed_driver_returns_the_same_key_and_leaves_nothing() -> anyhow::Result<()> {
    let fixture = Fixture::new("cosi-kill").await?;
    let bed = &fixture.bed;
    let mut program = fixture.start(ALL).await?;
    bed.create_with("bc-photos", &[("bucketTags", "team=shop")]).await?;
    let tags = fixture.aws.server().admin_in("eu-west-1")?.bucket_tagging("bc-photos").await?;
    ensure!(tags.get("team").is_some_and(|team| team == "shop"), "{tags:?}");
    let key = bed.grant("ba-photos", "bc-photos", &[]).await?;
    key.client()?.put_object("bc-photos", "cat", "miaow").await?;
    for kill in 0..KILLS {
        // Grant access to another account while the driver is killed.
        let account = format!("ba-{kill}");
        let _ = bed.grant_once(&account, "bc-photos", Duration::from_millis(20 * kill)).await?;
        program.kill().await?;
        program = fixture.start(ALL).await?;
        let again = bed.grant("ba-photos", "bc-photos", &[]).await?;
        ensure!(again == key, "the key has changed");
        let other = bed.grant(&account, "bc-photos", &[]).await?;
        ensure!(bed.grant(&account, "bc-photos", &[]).await? == other, "the other key has changed");
        let expected = ["obc.bc-photos", "obc-access.ba-photos", &format!("obc-access.{account}")].map(str::to_owned);
        ensure!(fixture.users().await? == expected.into(), "{:?}", fixture.users().await?);
        let keys = fixture.aws.server().iam()?.access_keys(&format!("obc-access.{account}")).await?;
        ensure!(keys.len() == 1, "{} keys of {account}", keys.len());
        bed.revoke(&account, "bc-photos").await?;
    }
    ensure!(key.client()?.get_object("bc-photos", "cat").await?.is_some(), "the key no longer works");
    Bed::leaks_no_secrets(&program, &[&key.secret])?;
    bed.revoke("ba-photos", "bc-photos").await?;
    ensure!(key.client()?.get_object("bc-photos", "cat").await.is_err(), "the key still works");
    bed.delete("bc-photos").await?;
    fixture.done().await
}

#[tokio::test]
async fn aws_deletion_fails_while_the_bucket_lacks_its_tags() -> anyhow::Result<()> {
    let fixture = Fixture::new("cosi-tags").await?;
    let bed = &fixture.bed;
    let _program = fixture.start(USUAL).await?;
    bed.create("bc-photos").await?;
    let admin = fixture.aws.server().admin_in("eu-west-1")?;
    let tags = admin.bucket_tagging("bc-photos").await?;
    admin.put_object("bc-photos", "cat", "miaow").await?;
    admin.put_bucket_tagging("bc-photos", &[("team".to_owned(), "shop".to_owned())].into()).await?;
    let refused = bed.delete_once("bc-photos").await?;
    ensure!(refused == Some(Code::Unavailable), "{refused:?}");
    admin.put_bucket_tagging("bc-photos", &tags).await?;
    bed.delete("bc-photos").await?;
    fixture.done().await
}

#[tokio::test]
async fn aws_foreign_bucket_is_refused_and_kept() -> anyhow::Result<()> {
    let fixture = Fixture::new("cosi-foreign").await?;
    let bed = &fixture.bed;
    let _program = fixture.start(USUAL).await?;
    let admin = fixture.aws.server().admin_in("eu-west-1")?;
    admin.create_bucket("bc-foreign", Some("eu-west-1")).await?;
    admin.put_object("bc-foreign", "report", "figures").await?;
    ensure!(bed.create_once("bc-foreign").await? == Some(Code::AlreadyExists));
    bed.delete("bc-foreign").await?;
    let refused = bed.grant_once("ba-1", "bc-foreign", Duration::from_secs(20)).await?;
    ensure!(refused == Some(Code::InvalidArgument), "{refused:?}");
    ensure!(fixture.users().await?.is_empty());
    // A class allows the use of existing buckets.
    let reader = [("existingBuckets", "true"), ("accessMode", "read-only")];
    let key = bed.grant("ba-2", "bc-foreign", &reader).await?;
    ensure!(key.client()?.get_object("bc-foreign", "report").await?.is_some());
    ensure!(key.client()?.put_object("bc-foreign", "report", "others").await.is_err());
    bed.revoke("ba-2", "bc-foreign").await?;
    ensure!(admin.get_object("bc-foreign", "report").await?.is_some());
    admin.delete_object("bc-foreign", "report").await?;
    admin.delete_bucket("bc-foreign").await?;
    fixture.done().await
}
