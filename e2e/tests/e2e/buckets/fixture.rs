//! A provisioner with its classes and claims, and access to the gateway as from a pod with the claim's Secret.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testbed::bucket_cases::BucketFixture;
use testbed::ceph::State;
use testbed::cluster::{BucketSpace, Program};

pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A provisioner with its own class, on the shared gateway or on a separate one.
pub(crate) struct Fixture {
    buckets: BucketSpace,
    pub(crate) ceph: State,
    files: TempDir,
}

impl Fixture {
    pub(crate) async fn on(ceph: State, test: &str) -> anyhow::Result<Self> {
        let (buckets, files) = (BucketSpace::new(test).await?, tempfile::tempdir()?);
        let fixture = Self { buckets, ceph, files };
        fixture.set_admin(&fixture.ceph.access_key, &fixture.ceph.secret_key)?;
        fixture.class("class", &[]).await?;
        Ok(fixture)
    }

    /// Gives the provisioner different admin keys.
    pub(crate) fn set_admin(&self, access_key: &str, secret_key: &str) -> anyhow::Result<()> {
        std::fs::write(self.files.path().join("access"), access_key)?;
        Ok(std::fs::write(self.files.path().join("secret"), secret_key)?)
    }

    /// Starts the provisioner with this address of the gateway and additional options.
    pub(crate) fn spawn_with(&self, endpoint: &str, more: &[&str]) -> anyhow::Result<Program> {
        let file = |name: &str| self.files.path().join(name).display().to_string();
        let (access, secret) = (file("access"), file("secret"));
        let arguments = [
            ["--endpoint", endpoint],
            ["--admin-access-key-file", &access],
            ["--admin-secret-key-file", &secret],
            ["--allowed-additional-config", ALL_CONFIG],
        ];
        self.buckets.spawn("ceph-rgw-provisioner", &[], &[&arguments.concat(), more].concat())
    }

    /// The ids of the gateway's users whose claims are in this test's namespace.
    pub(crate) async fn users(&self) -> anyhow::Result<Vec<String>> {
        let all: Vec<String> = serde_json::from_value(self.ceph.radosgw_admin(&["user", "list"]).await?)?;
        let mine = format!("obc-{}-", self.space.namespace());
        Ok(all.into_iter().filter(|user| user.starts_with(&mine)).collect())
    }

    /// The gateway's buckets that belong to these users or have this test's prefix.
    pub(crate) async fn buckets(&self) -> anyhow::Result<Vec<(String, String)>> {
        let all = self.ceph.radosgw_admin(&["bucket", "stats"]).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = all.as_array().cloned().unwrap_or_default();
        let all = all.iter().map(|bucket| (text(&bucket["bucket"]), text(&bucket["owner"])));
        let mine = format!("obc-{}-", self.space.namespace());
        let named = self.space.namespace();
        Ok(all.filter(|(name, owner)| owner.starts_with(&mine) || name.contains(named)).collect())
    }
}

impl BucketFixture for Fixture {
    const PARAMETERS: &[(&str, &str)] = &[];

    async fn new(test: &str) -> anyhow::Result<Self> {
        Self::on(State::for_tests()?, test).await
    }

    fn into_space(self) -> BucketSpace {
        self.buckets
    }

    fn spawn(&self) -> anyhow::Result<Program> {
        self.spawn_with(&self.ceph.endpoint, &[])
    }

    async fn assets(&self) -> anyhow::Result<BTreeSet<String>> {
        let (users, buckets) = (self.users().await?, self.buckets().await?);
        Ok(users.into_iter().chain(buckets.into_iter().map(|(name, owner)| format!("{name} of {owner}"))).collect())
    }
}

impl std::ops::Deref for Fixture {
    type Target = BucketSpace;

    fn deref(&self) -> &BucketSpace {
        &self.buckets
    }
}

const ALL_CONFIG: &str = "maxObjects,maxSize,bucketMaxObjects,bucketMaxSize,bucketPolicy,bucketLifecycle,bucketOwner,bucketPlacement,bucketStorageClass,bucketTags,bucketVersioning,accessMode,bucketClaimName";
