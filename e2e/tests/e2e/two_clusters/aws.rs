//! S3 and IAM of one account, in a region where an owner can create a bucket twice, and in one where this fails.

use serde_json::json;
use testbed::cluster::{BucketSpace, Program};
use testbed::control_plane::State;
use testbed::s3::S3;

use super::buckets::{Pair, Store, count_objects};
use super::inventory::Inventory;

const EAST: &str = "us-east-1";
const CENTRAL: &str = "eu-central-1";
/// The IAM path of the claims' users.
const USERS: &str = "/kube-provisioner/";

pub(crate) async fn pair() -> anyhow::Result<Pair<S3>> {
    let aws = S3::start(&State::for_tests()?.guard()).await?;
    Pair::new("two-s3", aws, &[(EAST, &[("region", EAST)]), (CENTRAL, &[("region", CENTRAL)])]).await
}

impl Store for S3 {
    const NAME: &str = "moto";
    const USER: &str = "UserName";

    fn spawn(&self, buckets: &BucketSpace) -> anyhow::Result<Program> {
        let server = self.server();
        let endpoint = &server.endpoint;
        let variables = server.variables();
        let arguments = [["--endpoint", endpoint], ["--iam-endpoint", endpoint], ["--region", EAST]];
        buckets.spawn("aws-s3-provisioner", &variables.each_ref().map(String::as_str), &arguments.concat())
    }

    fn class(&self, number: usize) -> &'static str {
        // Both regions also contain claims that request names.
        [EAST, CENTRAL][(number + number / 10) % 2]
    }

    async fn inventory(&self, _: &str) -> anyhow::Result<Inventory> {
        let mut inventory = Inventory::default();
        let (admin, iam) = (self.server().admin()?, self.server().iam()?);
        for bucket in admin.list_buckets().await? {
            let tags = admin.bucket_tagging(&bucket).await?;
            inventory.0.insert(format!("bucket/{bucket}"), json!({"tags": tags}).to_string());
            count_objects(&admin, &bucket, &mut inventory).await?;
        }
        for user in iam.users(USERS).await? {
            let tags = iam.user(&user).await?.unwrap_or_default().tags;
            let keys: Vec<_> = iam.access_keys(&user).await?.into_iter().map(|key| (key.id, key.active)).collect();
            let says = json!({"tags": tags, "keys": keys, "policies": iam.user_policies(&user).await?});
            inventory.0.insert(format!("user/{user}"), says.to_string());
        }
        Ok(inventory)
    }
}
