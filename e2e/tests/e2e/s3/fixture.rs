//! A provisioner without a cluster, called like the controller calls it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use aws_s3_provisioner::{Args, Aws, Config, Parameters};
use clap::Parser as _;
use kube_provisioner::bucket::Granted;
use kube_provisioner::conformance::BucketClaim;
use kube_provisioner::{ProvisionError, ProvisionVerdict, Secrets, parameters};
use s3_client::{Client, Credentials};
use testbed::control_plane::State;
use testbed::s3::{S3, Server};

pub(crate) const REGIONS: [&str; 2] = ["us-east-1", "eu-central-1"];
pub(crate) const NO_LATENCY: Duration = Duration::ZERO;

/// The state that an ObjectBucket records.
pub(crate) type RecordedState = BTreeMap<String, String>;

/// A region of an account.
pub(crate) struct Fixture {
    s3: S3,
    pub(crate) region: &'static str,
}

/// A claim for a bucket with this name.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) bucket: &'static str,
    pub(crate) uid: &'static str,
    pub(crate) cluster: &'static str,
}

pub(crate) const PHOTOS: Claim =
    Claim { bucket: "photos", uid: "00000000-0000-4000-8000-00000000000a", cluster: "cluster-a" };
pub(crate) const RIVAL: Claim =
    Claim { bucket: "photos", uid: "00000000-0000-4000-8000-00000000000b", cluster: "cluster-b" };

impl Fixture {
    pub(crate) async fn new(region: &'static str) -> anyhow::Result<Self> {
        Ok(Self { s3: S3::start(&State::for_tests()?.guard()).await?, region })
    }

    pub(crate) fn server(&self) -> &Server {
        self.s3.server()
    }

    /// An S3 client of the account's administrator, in the region.
    pub(crate) fn admin(&self) -> anyhow::Result<Client> {
        self.server().admin_in(self.region)
    }

    /// Creates a bucket as the administrator, with an object in it.
    pub(crate) async fn create_manually(&self, bucket: &str) -> anyhow::Result<()> {
        let location = (self.region != "us-east-1").then_some(self.region);
        self.admin()?.create_bucket(bucket, location).await?;
        Ok(self.admin()?.put_object(bucket, "report", "figures").await?)
    }

    /// Fails unless the administrator's bucket is unchanged.
    pub(crate) async fn is_untouched(&self, bucket: &str) -> anyhow::Result<()> {
        ensure!(self.admin()?.get_object(bucket, "report").await?.is_some(), "{bucket} has lost its object");
        ensure!(self.admin()?.bucket_tagging(bucket).await?.is_empty(), "{bucket} has tags");
        Ok(())
    }

    /// The buckets, and the users that provisioners created.
    pub(crate) async fn assets(&self) -> anyhow::Result<Vec<String>> {
        let buckets = self.admin()?.list_buckets().await?.into_iter();
        Ok(buckets.chain(self.server().iam()?.users("/kube-provisioner/").await?).collect())
    }

    /// A newly started provisioner process.
    pub(crate) fn process(&self) -> Process {
        self.process_at(&self.server().endpoint)
    }

    pub(crate) fn process_at(&self, endpoint: &str) -> Process {
        let Server { access_key, secret_key, .. } = self.server();
        self.process_of(&Credentials::new(access_key, secret_key), endpoint, BTreeMap::new())
    }

    /// A process with another administrator's key, and a class with these parameters.
    pub(crate) fn process_of(&self, key: &Credentials, endpoint: &str, class: BTreeMap<String, String>) -> Process {
        let given = ["aws-s3-provisioner", "--provisioner-name", "aws", "--region", self.region];
        let given = given.into_iter().chain(["--endpoint", endpoint, "--iam-endpoint", endpoint]);
        let Credentials { access_key_id, secret_access_key, .. } = key;
        let key = [("AWS_ACCESS_KEY_ID", access_key_id.clone()), ("AWS_SECRET_ACCESS_KEY", secret_access_key.clone())];
        let (aws, secrets) = (Aws::new(Args::parse_from(given).defaults), Secrets::new([("admin", key)]));
        Process { aws, secrets, class }
    }
}

pub(crate) struct Process {
    aws: Aws,
    secrets: Secrets,
    /// The class's parameters.
    pub(crate) class: BTreeMap<String, String>,
}

impl Process {
    /// Provisions once, and returns the state that the ObjectBucket records.
    pub(crate) async fn provision(&self, claim: Claim) -> Result<RecordedState, ProvisionError> {
        Ok(self.provision_with(claim, |_| {}).await?.state.clone())
    }

    pub(crate) async fn provision_with(
        &self,
        claim: Claim,
        change: impl FnOnce(&mut BucketClaim<Parameters, Config>),
    ) -> Result<Granted, ProvisionError> {
        let mut claim = self.claim(claim);
        change(&mut claim);
        claim.provision(&self.aws).await
    }

    fn claim(&self, Claim { bucket, uid, cluster }: Claim) -> BucketClaim<Parameters, Config> {
        let mut claim = BucketClaim::new(bucket, self.class(), Config::default());
        (claim.claim.uid, claim.cluster_id) = (uid.to_owned(), cluster.to_owned());
        claim.secrets = self.secrets.clone();
        claim
    }

    /// Deletes the assets of a claim whose ObjectBucket records this state. Retries failures like the controller.
    pub(crate) async fn delete(&self, claim: Claim, state: RecordedState) -> anyhow::Result<()> {
        let mut tries = 0;
        loop {
            let mut claim = self.claim(claim);
            claim.state.clone_from(&state);
            match claim.delete(&self.aws).await {
                Err(_) if tries < 20 => tries += 1,
                deleted => return deleted.map_err(|error| anyhow!("the deletion fails: {error}")),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn class(&self) -> Parameters {
        parameters::from_map(&self.class).expect("a good class")
    }

    /// Provisions and retries like the controller, until there is a bucket or the claim is refused.
    pub(crate) async fn settle(&self, claim: Claim) -> Result<RecordedState, ProvisionError> {
        let mut tries = 0;
        loop {
            match self.provision(claim).await {
                Err(error) if error.verdict() == ProvisionVerdict::Retry && tries < 20 => tries += 1,
                settled => return settled,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
