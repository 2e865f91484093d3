//! A provisioner with its own class, on a separate cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use s3_client::Client;
use testbed::bucket_cases::BucketFixture;
use testbed::bucket_rights::Administered;
use testbed::cluster::{BucketSpace, Program};
use testbed::control_plane::State;
use testbed::garage::{Garage, Server};
use testbed::s3::proxy::{self, Faults};

pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Fixture {
    buckets: BucketSpace,
    garage: Garage,
    files: tempfile::TempDir,
    /// The address of the proxy in front of the admin API, if there is one.
    admin_endpoint: Option<String>,
}

impl Fixture {
    pub(crate) fn server(&self) -> &Server {
        self.garage.server()
    }

    /// Makes some of the provisioner's requests to the admin API fail.
    pub(crate) async fn disturb(&mut self, faults: Faults) -> anyhow::Result<()> {
        self.admin_endpoint = Some(proxy::start(self.server().admin_endpoint.as_str(), faults).await?);
        Ok(())
    }

    /// Starts the provisioner with this token and additional options.
    pub(crate) fn spawn_with(&self, token: &str, more: &[&str]) -> anyhow::Result<Program> {
        let arguments = self.arguments(token)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // Log everything, to check that the log contains no secrets.
        self.buckets.spawn("garage-provisioner", &["RUST_LOG=trace"], &[&arguments, more].concat())
    }

    /// Runs the command with additional options.
    pub(crate) async fn orphans(&self, more: &[&str]) -> anyhow::Result<(bool, String)> {
        let arguments = self.arguments(&self.server().token)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.buckets.command("garage-provisioner", &[], &[&["orphans"], &*arguments, more].concat()).await
    }

    /// The options that name the cluster, with this token.
    fn arguments(&self, token: &str) -> anyhow::Result<[String; 6]> {
        let Server { endpoint, admin_endpoint, .. } = self.server();
        let admin_endpoint = self.admin_endpoint.as_ref().unwrap_or(admin_endpoint);
        let file = self.files.path().join("token");
        std::fs::write(&file, token)?;
        let file = file.display().to_string();
        let arguments = ["--endpoint", endpoint, "--admin-endpoint", admin_endpoint, "--admin-token-file", &file];
        Ok(arguments.map(str::to_owned))
    }
}

impl BucketFixture for Fixture {
    const PARAMETERS: &[(&str, &str)] = &[("credentialsOverlap", "3s")];

    async fn new(test: &str) -> anyhow::Result<Self> {
        let garage = Garage::start(&State::for_tests()?.guard()).await?;
        let files = tempfile::tempdir()?;
        let fixture = Self { buckets: BucketSpace::new(test).await?, garage, files, admin_endpoint: None };
        fixture.class_with("class", &[]).await?;
        Ok(fixture)
    }

    fn into_space(self) -> BucketSpace {
        self.buckets
    }

    fn spawn(&self) -> anyhow::Result<Program> {
        self.spawn_with(&self.server().token, &[])
    }

    async fn assets(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.server().assets().await?.into_iter().collect())
    }
}

impl Administered for Fixture {
    const REGION: &str = "garage";
    const KEYS_SHOWN_ONCE: bool = false;

    async fn make_bucket(&self, name: &str) -> anyhow::Result<Client> {
        anyhow::ensure!(self.server().make_bucket(name).await?, "{name} is taken");
        self.server().owner_of(name).await
    }

    async fn remove_bucket(&self, name: &str) -> anyhow::Result<()> {
        self.server().remove_bucket(name).await
    }

    fn administrators_secret(&self) -> &str {
        &self.server().token
    }
}

impl std::ops::Deref for Fixture {
    type Target = BucketSpace;

    fn deref(&self) -> &BucketSpace {
        &self.buckets
    }
}
