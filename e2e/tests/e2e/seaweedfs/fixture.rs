//! One provisioner with its own class, on a cluster of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use s3_client::{Client, Credentials};
use testbed::bucket_cases::BucketFixture;
use testbed::bucket_rights::Administered;
use testbed::cluster::{BucketSpace, Program};
use testbed::control_plane::State;
use testbed::seaweedfs::{SeaweedFs, Server};

pub(crate) const SOON: Duration = Duration::from_secs(60);
/// SeaweedFS takes any.
pub(crate) const REGION: &str = "eu-central-1";

pub(crate) struct Fixture {
    buckets: BucketSpace,
    seaweedfs: SeaweedFs,
}

impl Fixture {
    pub(crate) async fn new(test: &str) -> anyhow::Result<Self> {
        let seaweedfs = SeaweedFs::start(&State::for_tests()?.guard()).await?;
        let fixture = Self { buckets: BucketSpace::new(test).await?, seaweedfs };
        fixture.class_with("class", &[]).await?;
        Ok(fixture)
    }

    /// A case of every provisioner's.
    pub(crate) async fn case(test: &str, case: impl AsyncFn(&Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let fixture = Self::new(test).await?;
        case(&fixture).await?;
        fixture.done().await
    }

    pub(crate) fn server(&self) -> &Server {
        self.seaweedfs.server()
    }

    /// Starts the provisioner with this key.
    pub(crate) fn spawn_with(&self, key: &Credentials) -> anyhow::Result<Program> {
        let Server { endpoint, .. } = self.server();
        let id = format!("AWS_ACCESS_KEY_ID={}", key.access_key_id);
        let secret = format!("AWS_SECRET_ACCESS_KEY={}", key.secret_access_key);
        let arguments = [["--endpoint", endpoint], ["--iam-endpoint", endpoint], ["--region", REGION]];
        // Whatever is logged must hold no secrets.
        self.buckets.spawn("aws-s3-provisioner", &[&id, &secret, "RUST_LOG=trace"], &arguments.concat())
    }

    pub(crate) async fn done(self) -> anyhow::Result<()> {
        self.nothing_left().await?;
        self.buckets.space.done().await
    }
}

impl BucketFixture for Fixture {
    const PARAMETERS: &[(&str, &str)] = &[("credentialsOverlap", "3s")];

    fn spawn(&self) -> anyhow::Result<Program> {
        let Server { access_key, secret_key, .. } = self.server();
        self.spawn_with(&Credentials::new(access_key, secret_key))
    }

    async fn assets(&self) -> anyhow::Result<BTreeSet<String>> {
        let buckets = self.server().admin()?.list_buckets().await?.into_iter();
        let users = self.server().users().await?;
        Ok(buckets.chain(users).collect())
    }
}

impl Administered for Fixture {
    const REGION: &str = REGION;
    const KEYS_SHOWN_ONCE: bool = true;

    async fn make_bucket(&self, name: &str) -> anyhow::Result<Client> {
        let admin = self.server().admin()?;
        admin.create_bucket(name, Some(REGION)).await?;
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
