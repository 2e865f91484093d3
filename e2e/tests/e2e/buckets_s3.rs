//! Buckets of `aws-s3-provisioner` on the real API server and on moto, which checks all signatures and permissions.

mod credentials;
mod keyless;
mod orphans;
mod settings;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Secret;
use s3_client::{Client, Credentials};
use serde_json::json;
use testbed::bucket_cases::{BucketFixture, leaves_nothing_behind_when_killed_at_random};
use testbed::bucket_rights::{self as rights, Administered};
use testbed::cluster::{BucketSpace, Program};
use testbed::control_plane;
use testbed::s3::{S3, Server};

use crate::aws_compatible::is_settled;

const SOON: Duration = Duration::from_secs(60);
/// In this region, creating a bucket that one already owns succeeds.
const EAST: &str = "us-east-1";

/// A provisioner with its own class and a separate account.
pub(crate) struct Fixture {
    buckets: BucketSpace,
    aws: Arc<S3>,
}

impl Fixture {
    /// A fixture that shares its account with another fixture.
    async fn with(test: &str, aws: Arc<S3>) -> anyhow::Result<Self> {
        let fixture = Self { buckets: BucketSpace::new(test).await?, aws };
        fixture.class_with("class", &[]).await?;
        Ok(fixture)
    }

    fn server(&self) -> &Server {
        self.aws.server()
    }

    /// Starts the provisioner with these variables, which contain the administrator's credentials.
    fn spawn_with(&self, variables: &[&str], more: &[&str]) -> anyhow::Result<Program> {
        let endpoint = &self.server().endpoint;
        let arguments = [["--endpoint", endpoint], ["--iam-endpoint", endpoint], ["--region", "eu-west-1"]];
        // Log everything, to check that the log contains no secrets.
        let variables = [variables, &["RUST_LOG=trace"]].concat();
        self.buckets.spawn("aws-s3-provisioner", &variables, &[&arguments.concat(), more].concat())
    }
}

impl BucketFixture for Fixture {
    const PARAMETERS: &[(&str, &str)] = &[("credentialsOverlap", "3s"), ("region", "eu-central-1")];

    async fn new(test: &str) -> anyhow::Result<Self> {
        let aws = S3::start(&control_plane::State::for_tests()?.guard()).await?;
        Self::with(test, Arc::new(aws)).await
    }

    fn into_space(self) -> BucketSpace {
        self.buckets
    }

    fn spawn(&self) -> anyhow::Result<Program> {
        let key = self.server().variables();
        self.spawn_with(&[&key[0], &key[1]], &[])
    }

    async fn assets(&self) -> anyhow::Result<BTreeSet<String>> {
        let buckets = self.server().admin()?.list_buckets().await?.into_iter();
        let iam = self.server().iam()?;
        let users = iam.users("/kube-provisioner/").await?;
        let roles = iam.sdk().list_roles().path_prefix("/kube-provisioner/").send().await?.roles;
        let roles = roles.into_iter().map(|role| format!("role {}", role.role_name));
        Ok(buckets.chain(users).chain(roles).collect())
    }
}

impl Administered for Fixture {
    const REGION: &str = "eu-central-1";
    const KEYS_SHOWN_ONCE: bool = true;

    async fn make_bucket(&self, name: &str) -> anyhow::Result<Client> {
        let admin = self.server().admin()?;
        admin.create_bucket(name, Some(Self::REGION)).await?;
        Ok(admin)
    }

    async fn remove_bucket(&self, name: &str) -> anyhow::Result<()> {
        self.server().admin()?.delete_bucket(name).await?;
        Ok(())
    }

    fn administrators_secret(&self) -> &str {
        &self.server().secret_key
    }
}

impl std::ops::Deref for Fixture {
    type Target = BucketSpace;

    fn deref(&self) -> &BucketSpace {
        &self.buckets
    }
}

mod aws_cases {
    crate::store_cases::store_cases!(super::Fixture, "s3", &[("versioning", "true")]);
}

// Rules: W1, W2, Z8, Z9, Z16.
#[tokio::test]
async fn aws_pod_uses_only_its_own_bucket_and_keys_rotate() -> anyhow::Result<()> {
    Fixture::case("s3-use", rights::a_pod_uses_only_its_own_bucket_and_keys_rotate).await
}

// Rules: Y4.
#[tokio::test]
async fn aws_claims_get_access_to_an_existing_bucket() -> anyhow::Result<()> {
    Fixture::case("s3-grant", rights::claims_get_access_to_an_existing_bucket).await
}

// Rules: Z14.
#[tokio::test]
async fn aws_class_settings_are_applied_and_versions_deleted_with_the_bucket() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("s3-settings").await?;
    let rule = r#"{"Rules":[{"ID":"old","Status":"Enabled","Filter":{"Prefix":""},"Expiration":{"Days":30}}]}"#;
    fixture.class("settings", &[("region", "us-east-1"), ("versioning", "true"), ("lifecycle", rule)]).await?;
    fixture.bind("photos", "settings", json!({"bucketName": "my-photos"})).await?;
    let admin = fixture.server().admin()?;
    ensure!(!admin.bucket_lifecycle("my-photos").await?.is_empty(), "there is no lifecycle");
    assert_eq!(
        admin.bucket_tagging("my-photos").await?["kube-provisioner/claim"],
        format!("{}/photos", fixture.space.namespace())
    );
    let user = fixture.user("photos").await?;
    for text in ["one", "two", "three"] {
        user.put("cat", text).await?;
    }
    user.client.delete_object("my-photos", "cat").await?;
    // Three versions and a delete marker.
    assert_eq!(admin.list_object_versions("my-photos").await?.len(), 4);
    fixture.delete("photos").await?;
    fixture.nothing_left().await?;

    // Unsupported settings are reported, and change nothing.
    fixture.class("admin-keys", &[("createBucketUser", "no")]).await?;
    fixture.claim("nobody", "admin-keys", json!({})).await?;
    fixture.wait_for_ready_message("nobody", "every claim has its own user").await?;
    fixture.done_without(&["nobody"]).await
}

// Rules: Z13.
#[tokio::test]
async fn aws_wrong_keys_and_a_hanging_server_are_reported_and_retried() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("s3-faults").await?;
    let admin = |key: &Credentials| -> anyhow::Result<Secret> {
        let data = json!({"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret_access_key});
        Ok(serde_json::from_value(json!({"metadata": {"name": "admin"}, "stringData": data}))?)
    };
    let Server { access_key, secret_key, .. } = fixture.server();
    fixture.space.create(&admin(&Credentials::new(access_key, "wrong"))?).await?;
    // The parameters have the names that the provisioner of 2019 used.
    let secret = [("secretName", "admin"), ("secretNamespace", fixture.space.namespace()), ("region", "eu-central-1")];
    fixture.class("secret", &secret).await?;
    fixture.claim("photos", "secret", json!({})).await?;
    fixture.wait_for_ready_message("photos", "the store does not accept the administrator's key").await?;

    // A user without permissions: the message names the missing one.
    let iam = fixture.server().iam()?;
    let tags = Default::default();
    iam.create_user(s3_client::iam::NewIdentity { name: "weak", path: "/", tags: &tags, permissions_boundary: None })
        .await?;
    let weak = iam.create_access_key("weak").await?;
    let secrets = fixture.space.api::<Secret>();
    let set = async |key: &Credentials| -> anyhow::Result<()> {
        let patch = kube::api::Patch::Merge(admin(key)?);
        secrets.patch("admin", &Default::default(), &patch).await?;
        Ok(())
    };
    set(&weak).await?;
    fixture.wait_for_ready_message("photos", "the administrator needs the permission iam:GetUser").await?;
    set(&Credentials::new(access_key, secret_key)).await?;
    fixture.bound("photos").await?;

    fixture.server().pause();
    fixture.claim("videos", "class", json!({})).await?;
    fixture.wait_for_ready_message("videos", "did not answer in time").await?;
    fixture.server().resume();
    fixture.bound("videos").await?;
    fixture.done_without(&["photos", "videos"]).await
}

/// A bucket that the administrator cannot read may belong to anyone, even in the same account.
#[tokio::test]
async fn aws_unreadable_bucket_is_never_adopted() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("s3-hidden").await?;
    let (admin, iam) = (fixture.server().admin()?, fixture.server().iam()?);
    admin.create_bucket("shared-bucket", None).await?;
    admin.put_object("shared-bucket", "x", "hello").await?;
    let tags = Default::default();
    iam.create_user(s3_client::iam::NewIdentity { name: "blind", path: "/", tags: &tags, permissions_boundary: None })
        .await?;
    let allow = |effect: &str, actions: &[&str]| json!({"Effect": effect, "Action": actions, "Resource": "*"});
    let policy =
        |statements: &[serde_json::Value]| json!({"Version": "2012-10-17", "Statement": statements}).to_string();
    let blind = [allow("Allow", &["s3:*", "iam:*"]), allow("Deny", &["s3:GetBucketTagging"])];
    iam.put_user_policy("blind", "policy", &policy(&blind)).await?;
    let key = iam.create_access_key("blind").await?;
    let data = json!({"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret_access_key});
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "blind"}, "stringData": data}))?;
    fixture.space.create(&secret).await?;
    // In this region, creating a bucket of one's own account again succeeds.
    let parameters =
        [("adminSecretName", "blind"), ("adminSecretNamespace", fixture.space.namespace()), ("region", "us-east-1")];
    fixture.class("blind", &parameters).await?;
    fixture.claim("thief", "blind", json!({"bucketName": "shared-bucket"})).await?;
    fixture.wait_for_ready_message("thief", "the administrator needs the permission s3:GetBucketTagging").await?;
    iam.put_user_policy("blind", "policy", &policy(&blind[..1])).await?;
    fixture.wait_for_ready_message("thief", "was not created for this claim").await?;
    fixture.delete("thief").await?;
    ensure!(admin.bucket_tagging("shared-bucket").await?.is_empty(), "the foreign bucket has tags");
    ensure!(admin.get_object("shared-bucket", "x").await?.is_some(), "the foreign object no longer exists");
    admin.empty_bucket("shared-bucket").await?;
    admin.delete_bucket("shared-bucket").await?;
    fixture.done().await
}

// Rules: Z1, Z2.
#[tokio::test]
async fn aws_kills_leave_no_leftovers_and_no_duplicates() -> anyhow::Result<()> {
    killed("s3-kill", "eu-central-1").await
}

// Rules: Z1, Z2.
#[tokio::test]
async fn aws_kills_in_us_east_1_leave_no_leftovers_and_no_duplicates() -> anyhow::Result<()> {
    killed("s3-kill-east", EAST).await
}

async fn killed(test: &str, region: &str) -> anyhow::Result<()> {
    let fixture = Fixture::new(test).await?;
    let account = fixture.server().account(region);
    let is_settled = async || is_settled(&account).await;
    let claims = (|kill| json!({"bucketName": format!("named-{kill}")}), json!({}));
    leaves_nothing_behind_when_killed_at_random(&fixture, &[("region", region)], claims, is_settled).await?;
    fixture.done().await
}
