//! A provisioner with its own class, on a separate store.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use s3_client::{Client, Credentials};
use serde_json::json;
use testbed::bucket_cases::{BucketFixture, leaves_nothing_behind_when_killed_at_random};
use testbed::bucket_rights::Administered;
use testbed::cluster::{BucketSpace, Program};
use testbed::control_plane::State;
use testbed::guard::Guard;
use testbed::s3::Account;
use testbed::s3::proxy::{self, Faults};

/// The region of every class.
pub(crate) const REGION: &str = "eu-central-1";

/// A running store, which is stopped when this value is dropped.
pub(crate) trait Store: Sized {
    async fn start(guard: &Guard) -> anyhow::Result<Self>;

    fn account(&self) -> &Account;
}

pub(crate) struct Fixture<S> {
    buckets: BucketSpace,
    store: S,
    /// The address of the proxy in front of IAM, if there is one.
    iam_endpoint: Option<String>,
}

impl<S: Store> Fixture<S> {
    /// Makes some of the provisioner's requests to IAM fail.
    pub(crate) async fn disturb(&mut self, faults: Faults) -> anyhow::Result<()> {
        self.iam_endpoint = Some(proxy::start(self.account(), faults).await?);
        Ok(())
    }

    pub(crate) fn account(&self) -> &Account {
        self.store.account()
    }

    /// Starts the provisioner with this key.
    pub(crate) fn spawn_with(&self, key: &Credentials) -> anyhow::Result<Program> {
        let Account { endpoint, iam_endpoint, .. } = self.account();
        let iam_endpoint = self.iam_endpoint.as_ref().unwrap_or(iam_endpoint);
        let id = format!("AWS_ACCESS_KEY_ID={}", key.access_key_id);
        let secret = format!("AWS_SECRET_ACCESS_KEY={}", key.secret_access_key);
        let arguments = [["--endpoint", endpoint], ["--iam-endpoint", iam_endpoint], ["--region", REGION]];
        // Log everything, to check that the log contains no secrets.
        self.buckets.spawn("aws-s3-provisioner", &[&id, &secret, "RUST_LOG=trace"], &arguments.concat())
    }

    /// Kills the provisioner at random moments.
    pub(crate) async fn survives_kills(self) -> anyhow::Result<()> {
        let is_settled = async || is_settled(self.account()).await;
        let claims = (|kill| json!({"bucketName": format!("named-{kill}")}), json!({}));
        leaves_nothing_behind_when_killed_at_random(&self, &[], claims, is_settled).await?;
        self.done().await
    }

    /// Checks that the claim's message names the wrong parameter, and that the claim receives no key and leaves no
    /// assets: its bucket would lack a setting of the class.
    pub(crate) async fn refuses_by_name(&self, parameters: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut wrong = Vec::new();
        for (name, value) in parameters {
            let class = name.to_lowercase();
            self.class_with(&class, &[(name, value)]).await?;
            self.claim(&class, &class, json!({})).await?;
            if let Err(error) = self.wait_for_ready_message(&class, name).await {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
            ensure!(self.user(&class).await.is_err(), "{name}: the claim has a key");
            self.delete(&class).await?;
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }

    /// Checks that versions and locks are kept until the bucket is deleted. `check` examines the full bucket.
    pub(crate) async fn keeps_versions_and_locks(
        &self,
        versions: &[(&str, &str)],
        check: impl AsyncFn(&Client) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let _program = self.start().await?;
        self.class_with("versions", versions).await?;
        self.bind("photos", "versions", json!({"bucketName": "my-photos"})).await?;
        let admin = self.account().admin()?;
        let tags = admin.bucket_tagging("my-photos").await?;
        assert_eq!(tags["kube-provisioner/claim"], format!("{}/photos", self.space.namespace()));
        let user = self.user("photos").await?;
        for text in ["one", "two", "three"] {
            user.put("cat", text).await?;
        }
        // Names with a special meaning in URLs, in XML and for file systems.
        for (name, text) in [("a b+c%41&<ü>", "x"), ("dir/", ""), ("dir/cat", "x"), ("dir/sub/cat", "x")] {
            user.put(name, text).await?;
        }
        user.client.delete_object("my-photos", "cat").await?;
        // Three versions and a delete marker.
        let versions = admin.list_object_versions("my-photos").await?;
        assert_eq!(versions.iter().filter(|version| version.key == "cat").count(), 4);
        check(&admin).await?;
        self.delete("photos").await?;
        self.nothing_left().await?;

        self.class_with("locks", &[("objectLock", "governance:1d")]).await?;
        self.bind("locked", "locks", json!({})).await?;
        self.delete("locked").await
    }

    /// Checks that buckets without owner tags are refused and left unchanged, with and without objects.
    pub(crate) async fn never_adopts_manually_created_buckets(&self) -> anyhow::Result<()> {
        let _program = self.start().await?;
        let admin = self.account().admin()?;
        for name in ["empty-bucket", "full-bucket"] {
            admin.create_bucket(name, Some(REGION)).await?;
        }
        admin.put_object("full-bucket", "x", "hello").await?;
        for name in ["empty-bucket", "full-bucket"] {
            self.claim(name, "class", json!({"bucketName": name})).await?;
            self.wait_for_ready_message(name, "was not created for this claim").await?;
            self.delete(name).await?;
            ensure!(admin.bucket_tagging(name).await?.is_empty(), "{name} has tags");
            admin.empty_bucket(name).await?;
            admin.delete_bucket(name).await?;
        }
        Ok(())
    }

    /// Checks that this key has enough permissions for all parameters of a class.
    pub(crate) async fn serves_all_classes(&self, key: &Credentials, versions: &[(&str, &str)]) -> anyhow::Result<()> {
        let _program = self.spawn_with(key)?;
        self.class_with("versions", versions).await?;
        self.class_with("locks", &[("objectLock", "governance:1d")]).await?;
        for class in ["class", "versions", "locks"] {
            let user = self.new_user(class, class, json!({})).await?;
            if class != "locks" {
                user.put("cat", "miaow").await?;
            }
            self.delete(class).await?;
        }
        Ok(())
    }
}

impl<S: Store> BucketFixture for Fixture<S> {
    const PARAMETERS: &[(&str, &str)] = &[("credentialsOverlap", "3s")];

    async fn new(test: &str) -> anyhow::Result<Self> {
        let store = S::start(&State::for_tests()?.guard()).await?;
        let fixture = Self { buckets: BucketSpace::new(test).await?, store, iam_endpoint: None };
        fixture.class_with("class", &[]).await?;
        Ok(fixture)
    }

    fn into_space(self) -> BucketSpace {
        self.buckets
    }

    fn spawn(&self) -> anyhow::Result<Program> {
        self.spawn_with(&self.account().key())
    }

    async fn assets(&self) -> anyhow::Result<BTreeSet<String>> {
        let buckets = self.account().admin()?.list_buckets().await?.into_iter();
        let users = self.account().users().await?;
        Ok(buckets.chain(users).collect())
    }
}

impl<S: Store> Administered for Fixture<S> {
    const REGION: &str = REGION;
    const KEYS_SHOWN_ONCE: bool = true;

    async fn make_bucket(&self, name: &str) -> anyhow::Result<Client> {
        let admin = self.account().admin()?;
        admin.create_bucket(name, Some(REGION)).await?;
        Ok(admin)
    }

    async fn remove_bucket(&self, name: &str) -> anyhow::Result<()> {
        self.account().admin()?.delete_bucket(name).await?;
        Ok(())
    }

    fn administrators_secret(&self) -> &str {
        &self.account().secret_key
    }
}

impl<S> std::ops::Deref for Fixture<S> {
    type Target = BucketSpace;

    fn deref(&self) -> &BucketSpace {
        &self.buckets
    }
}

/// True if the store has what remains after the kills: five users, each with one key after the overlap, and three
/// buckets.
pub(crate) async fn is_settled(account: &Account) -> anyhow::Result<bool> {
    let (users, iam) = (account.users().await?, account.iam()?);
    let mut keys = 0;
    for user in &users {
        keys += iam.access_keys(user).await?.len();
    }
    let buckets = account.admin()?.list_buckets().await?.len();
    Ok((users.len(), keys, buckets) == (5, 5, 3))
}

/// The policy for the provisioner's key, verbatim from a page of the guide's folder `use`.
pub(crate) fn documented_policy(page: &str) -> anyhow::Result<String> {
    let page = std::fs::read_to_string(format!("{}/../docs/book/pages/use/{page}", env!("CARGO_MANIFEST_DIR")))?;
    let policy = page.split("```json").nth(1).and_then(|text| text.split("```").next());
    Ok(policy.context("the page has no policy")?.to_owned())
}
