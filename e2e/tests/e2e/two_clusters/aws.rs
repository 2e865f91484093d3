//! S3 and IAM of one account, in a region where an owner can create a bucket twice, and in one where this fails.

use std::collections::BTreeSet;

use kube::core::ApiResource;
use serde_json::{Value, json};
use testbed::cluster::{Program, TestSpace};
use testbed::control_plane::State;
use testbed::s3::S3;

use super::backend::Backend;
use super::buckets::{self, Pair};
use super::inventory::Inventory;
use super::persons;

const REGIONS: [&str; 2] = ["us-east-1", "eu-central-1"];
/// The IAM path of the claims' users.
const USERS: &str = "/kube-provisioner/";

pub(crate) struct Aws {
    pair: Pair,
    aws: S3,
}

impl Aws {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let (pair, aws) = (Pair::new("two-s3").await?, S3::start(&State::for_tests()?.guard()).await?);
        for region in REGIONS {
            pair.class(region, &[("region", region)]).await?;
        }
        Ok(Self { pair, aws })
    }
}

impl Backend for Aws {
    fn name(&self) -> &'static str {
        "moto"
    }

    fn claims() -> ApiResource {
        buckets::claims()
    }

    fn records() -> ApiResource {
        buckets::records()
    }

    fn space(&self, side: usize) -> &TestSpace {
        &self.pair.sides[side].space
    }

    fn spawn(&self, side: usize) -> anyhow::Result<Program> {
        let server = self.aws.server();
        let endpoint = &server.endpoint;
        let variables = [
            format!("AWS_ACCESS_KEY_ID={}", server.access_key),
            format!("AWS_SECRET_ACCESS_KEY={}", server.secret_key),
        ];
        let arguments = [["--endpoint", endpoint], ["--iam-endpoint", endpoint], ["--region", REGIONS[0]]];
        self.pair.sides[side].spawn(
            "aws-s3-provisioner",
            &variables.each_ref().map(String::as_str),
            &arguments.concat(),
        )
    }

    fn claim(&self, name: &str, number: usize, wanted: bool) -> Value {
        // Claims that request names are in both regions, too.
        let region = REGIONS[(number + number / 10) % 2];
        self.pair.claim(name, region, wanted)
    }

    fn is_bound(claim: &Value) -> bool {
        buckets::is_bound(claim)
    }

    fn assets(&self, record: &Value) -> BTreeSet<String> {
        buckets::assets(record, "UserName")
    }

    async fn inventory(&self) -> anyhow::Result<Inventory> {
        let mut inventory = Inventory::default();
        let (admin, iam) = (self.aws.server().admin()?, self.aws.server().iam()?);
        for bucket in admin.list_buckets().await? {
            let tags = admin.bucket_tagging(&bucket).await?;
            inventory.0.insert(format!("bucket/{bucket}"), json!({"tags": tags}).to_string());
            buckets::count_objects(&admin, &bucket, &mut inventory).await?;
        }
        for user in iam.users(USERS).await? {
            let tags = iam.user(&user).await?.unwrap_or_default().tags;
            let keys: Vec<_> = iam.access_keys(&user).await?.into_iter().map(|key| (key.id, key.active)).collect();
            let says = json!({"tags": tags, "keys": keys, "policies": iam.user_policies(&user).await?});
            inventory.0.insert(format!("user/{user}"), says.to_string());
        }
        Ok(inventory)
    }

    async fn write(&self, side: usize, claim: &str, file: &str, text: String) -> anyhow::Result<()> {
        self.pair.write(side, claim, file, text).await
    }

    async fn clean(&self, _side: usize) -> anyhow::Result<()> {
        Ok(())
    }

    async fn take_over(&self, side: usize) -> anyhow::Result<String> {
        persons::give_back(&self.pair.sides[side].space).await
    }

    async fn mistake(&self, side: usize) -> anyhow::Result<()> {
        persons::take_what_is_anothers(&self.pair.sides[side].space).await
    }

    async fn done(self) -> anyhow::Result<()> {
        self.pair.done().await
    }
}
