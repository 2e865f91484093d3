//! A driver with only the permissions that COSI drivers need, and calls as a sidecar sends them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use cosi_sanity::{Options, Outcome, Version};
use driver_rpc::cosi::v1alpha2::Provisioner as _;
use driver_rpc::cosi::v1alpha2::{
    AccessMode, AuthenticationType, DriverCreateBucketRequest, DriverDeleteBucketRequest,
    DriverGrantBucketAccessRequest, DriverRevokeBucketAccessRequest, ObjectProtocol,
    driver_grant_bucket_access_request as grant, driver_revoke_bucket_access_request as revoke,
};
use driver_rpc::{Client, Code, Error};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube_provisioner::BucketOptions;
use kube_provisioner::bucket::BucketCapabilities;
use kube_provisioner::rbac::cosi_rules;
use s3_client::Credentials;
use tempfile::TempDir;
use testbed::cluster::{Access, Program, TestSpace, eventually, provisioner_program};

const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Bed {
    pub(crate) space: TestSpace,
    access: Access,
    folder: TempDir,
}

/// The result of a grant: the endpoint, the region, and a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) endpoint: String,
    pub(crate) region: String,
    pub(crate) id: String,
    pub(crate) secret: String,
}

impl Key {
    pub(crate) fn client(&self) -> anyhow::Result<s3_client::Client> {
        testbed::s3::client(&self.endpoint, Some(&self.region), Credentials::new(&self.id, &self.secret))
    }
}

impl Bed {
    pub(crate) async fn new(test: &str) -> anyhow::Result<Self> {
        let space = TestSpace::new(test).await?;
        let options = BucketOptions::new(space.provisioner()).options;
        let rules = cosi_rules(&options, &BucketCapabilities::default().optional_secret("admin"));
        let access = space.account("driver", &rules).await?;
        Ok(Self { space, access, folder: tempfile::tempdir()? })
    }

    /// Starts a package's program, and waits until it accepts calls. `variables` have the form `NAME=value`.
    pub(crate) async fn start(&self, package: &str, variables: &[&str], more: &[&str]) -> anyhow::Result<Program> {
        let program = provisioner_program(package)?.display().to_string();
        let (kubeconfig, endpoint) = (self.access.kubeconfig.display().to_string(), self.endpoint());
        let arguments = [
            ["--provisioner-name", self.space.provisioner()],
            ["--kubeconfig", &kubeconfig],
            ["--namespace", self.space.namespace()],
            ["--cosi-endpoint", &endpoint],
            ["--call-timeout", "5s"],
        ];
        let command = variables.iter().copied().chain([program.as_str()]);
        // Remove the socket of a driver that was killed.
        let _ = std::fs::remove_file(self.folder.path().join("cosi.sock"));
        let program =
            self.space.spawn(package, "env", command.chain(arguments.concat()).chain(more.iter().copied()))?;
        let serves = eventually(SOON, async || {
            ensure!(program.is_running(), "the driver has ended");
            Ok(self.folder.path().join("cosi.sock").exists().then_some(()))
        });
        serves.await?.context("the driver does not accept calls")?;
        Ok(program)
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}/cosi.sock", self.folder.path().display())
    }

    fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(self.endpoint().parse()?).with_timeout(Duration::from_secs(20)))
    }

    /// Fails unless the driver that `start` starts passes cosi-sanity for a version. `other_bucket` contains parameters
    /// that contradict the usual ones.
    pub(crate) async fn check_sanity(
        &self,
        version: Version,
        start: impl AsyncFn() -> anyhow::Result<Program>,
        other_bucket: &str,
    ) -> anyhow::Result<()> {
        let asked = self.folder.path().join("restart");
        let restart = format!("touch {0}; while [ -e {0} ]; do sleep 0.1; done", asked.display());
        let (endpoint, version) = (self.endpoint(), version.to_string());
        let arguments = [
            ["--endpoint", &endpoint],
            ["--versions", &version],
            ["--concurrency", "2"],
            ["--other-bucket-parameters", other_bucket],
            ["--other-access-parameters", "accessMode=read-only"],
            ["--restart-command", &restart],
        ];
        let options = Options::try_parse_from(["cosi-sanity"].into_iter().chain(arguments.concat()))?;
        let mut program = start().await?;
        let restarting = async {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                if asked.exists() {
                    program.kill().await?;
                    program = start().await?;
                    std::fs::remove_file(&asked)?;
                }
            }
        };
        let report = tokio::select! {
            report = cosi_sanity::run(&options, drop, std::future::pending()) => report?,
            ended = restarting => return ended,
        };
        ensure!(report.is_success(), "{report}");
        let skipped = report.checks.iter().filter(|ran| matches!(ran.outcome, Outcome::Skipped(_))).map(|ran| ran.name);
        let skipped: Vec<_> = skipped.collect();
        ensure!(skipped.is_empty(), "skipped: {skipped:?}");
        self.has_no_records().await
    }

    pub(crate) async fn create(&self, name: &str) -> anyhow::Result<()> {
        self.create_with(name, &[]).await
    }

    /// Creates a bucket with the parameters of a BucketClass.
    pub(crate) async fn create_with(&self, name: &str, parameters: &[(&str, &str)]) -> anyhow::Result<()> {
        let request =
            || DriverCreateBucketRequest { name: name.to_owned(), parameters: texts(parameters), ..Default::default() };
        self.repeat(async |client| client.driver_create_bucket(request()).await).await.map(drop)
    }

    /// Creates a bucket with one call, and returns the code if the call is refused.
    pub(crate) async fn create_once(&self, name: &str) -> anyhow::Result<Option<Code>> {
        let request = DriverCreateBucketRequest { name: name.to_owned(), ..Default::default() };
        Ok(self.client()?.driver_create_bucket(request).await.err().map(|error| error.code()))
    }

    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        let request = || DriverDeleteBucketRequest { bucket_id: name.to_owned(), ..Default::default() };
        self.repeat(async |client| client.driver_delete_bucket(request()).await).await.map(drop)
    }

    /// Deletes a bucket with one call, and returns the code if the call is refused.
    pub(crate) async fn delete_once(&self, name: &str) -> anyhow::Result<Option<Code>> {
        let request = DriverDeleteBucketRequest { bucket_id: name.to_owned(), ..Default::default() };
        Ok(self.client()?.driver_delete_bucket(request).await.err().map(|error| error.code()))
    }

    pub(crate) async fn grant(&self, account: &str, bucket: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Key> {
        let request = || grant_request(account, bucket, parameters);
        let answer = self.repeat(async |client| client.driver_grant_bucket_access(request()).await).await?;
        let key = answer.credentials.and_then(|credentials| credentials.s3).context("no key")?;
        let info = answer.buckets.into_iter().find_map(|bucket| bucket.bucket_info?.s3).context("no info")?;
        Ok(Key { endpoint: info.endpoint, region: info.region, id: key.access_key_id, secret: key.access_secret_key })
    }

    /// Grants access with one call, and returns the code if the call is refused or times out.
    pub(crate) async fn grant_once(
        &self,
        account: &str,
        bucket: &str,
        limit: Duration,
    ) -> anyhow::Result<Option<Code>> {
        let client = self.client()?.with_timeout(limit);
        Ok(client.driver_grant_bucket_access(grant_request(account, bucket, &[])).await.err().map(|error| error.code()))
    }

    pub(crate) async fn revoke(&self, account: &str, bucket: &str) -> anyhow::Result<()> {
        let request = || DriverRevokeBucketAccessRequest {
            account_id: account.to_owned(),
            buckets: vec![revoke::AccessedBucket { bucket_id: bucket.to_owned() }],
            ..Default::default()
        };
        self.repeat(async |client| client.driver_revoke_bucket_access(request()).await).await.map(drop)
    }

    /// Repeats a call like a sidecar.
    async fn repeat<T>(&self, call: impl AsyncFn(Client) -> Result<T, Error>) -> anyhow::Result<T> {
        let mut last = None;
        let answer = eventually(SOON, async || {
            match call(self.client()?).await {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) => last = Some(error),
            }
            Ok(None)
        });
        answer.await?.with_context(|| format!("{last:?}"))
    }

    pub(crate) async fn records(&self) -> anyhow::Result<Vec<Secret>> {
        let label = "app.kubernetes.io/component=cosi-access";
        Ok(self.space.api::<Secret>().list(&ListParams::default().labels(label)).await?.items)
    }

    pub(crate) async fn has_no_records(&self) -> anyhow::Result<()> {
        let records = self.records().await?.into_iter().map(|secret| secret.metadata.name);
        let names: Vec<_> = records.collect();
        ensure!(names.is_empty(), "records still exist: {names:?}");
        Ok(())
    }

    /// Fails if the log or the arguments contain one of these secrets.
    pub(crate) fn leaks_no_secrets(program: &Program, secrets: &[&str]) -> anyhow::Result<()> {
        let told = [program.output(), program.arguments()?.join(" ")].concat();
        let found = secrets.iter().find(|secret| told.contains(**secret));
        ensure!(found.is_none(), "a secret is in the log or in the arguments");
        Ok(())
    }
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn grant_request(account: &str, bucket: &str, parameters: &[(&str, &str)]) -> DriverGrantBucketAccessRequest {
    let access_mode = Some(AccessMode { mode: 1 });
    DriverGrantBucketAccessRequest {
        account_name: account.to_owned(),
        protocol: Some(ObjectProtocol { r#type: 1 }),
        authentication_type: Some(AuthenticationType { r#type: 1 }),
        service_account_name: String::new(),
        parameters: texts(parameters),
        buckets: vec![grant::AccessedBucket { bucket_id: bucket.to_owned(), access_mode }],
    }
}
