//! The contract of bucket provisioners.

use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use aws_s3_provisioner::{Args, Aws, Config, Parameters};
use clap::Parser as _;
use futures::future::try_join_all;
use kube_provisioner::conformance::{BucketClaim, BucketConformance};
use kube_provisioner::{ProvisionError, Secrets};
use s3_client::Client;
use serde_json::json;
use testbed::control_plane::State;
use testbed::s3::Account;
use testbed::s3::proxy::{self, Faults, ProxiedRequest, ProxyAction};

use super::fixture::{REGION, Store};

pub(crate) async fn contract<S: Store>(faults: Option<Faults>) -> anyhow::Result<()> {
    try_join_all(BucketConformance::rules().map(|rule| kept::<S>(rule, faults))).await.map(drop)
}

/// Checks one rule on a separate server, because most of a rule's time is spent waiting.
async fn kept<S: Store>(rule: &'static str, faults: Option<Faults>) -> anyhow::Result<()> {
    let store = S::start(&State::for_tests()?.guard()).await?;
    store.account().admin()?.create_bucket("existing", Some(REGION)).await?;
    let make = |admin: Client, name: String| async move { admin.create_bucket(&name, Some(REGION)).await.is_ok() };
    keeps(store.account(), REGION, [rule], faults, make).await
}

/// Checks these rules on a store with the bucket `existing`. `make` creates a bucket manually, and returns false if its
/// name is taken.
pub(crate) async fn keeps<M: Future<Output = bool> + Send + 'static>(
    account: &Account,
    region: &str,
    rules: impl IntoIterator<Item = &'static str>,
    faults: Option<Faults>,
    make: impl Fn(Client, String) -> M + 'static,
) -> anyhow::Result<()> {
    let proxy = match faults {
        Some(faults) => Some(proxy::start(account, faults).await?),
        None => None,
    };
    let defaults = args(account, region, proxy.as_deref()).defaults;
    let admin = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
        "stringData": {"AWS_ACCESS_KEY_ID": account.access_key, "AWS_SECRET_ACCESS_KEY": account.secret_key},
    });
    let [listed, makes, removes] = [account.clone(), account.clone(), account.clone()];
    let kit = BucketConformance::new(
        move || Aws::new(defaults.clone()),
        move || {
            let account = listed.clone();
            async move { account.assets().await.expect("the store answers") }
        },
    )
    .manually_created(
        move |name| make(makes.admin().expect("the store's address is valid"), name),
        move |name: String| {
            let admin = removes.admin().expect("the store's address is valid");
            async move {
                admin.empty_bucket(&name).await.expect("the store answers");
                admin.delete_bucket(&name).await.expect("the store answers");
            }
        },
    )
    .parameters([("adminSecretName", "admin"), ("adminSecretNamespace", "default")])
    .existing_bucket("existing")
    .keys_shown_once()
    .objects([admin])
    .seeds(0..1)
    .real_time();
    let report = rules.into_iter().fold(kit, |kit, rule| kit.only(rule)).run().await;
    ensure!(report.is_kept(), "{report}");
    Ok(())
}

/// The options that name the store, or the proxy in front of it.
fn args(account: &Account, region: &str, proxy: Option<&str>) -> Args {
    let (endpoint, iam_endpoint) = (proxy.unwrap_or(&account.endpoint), proxy.unwrap_or(&account.iam_endpoint));
    let given = ["aws-s3-provisioner", "--provisioner-name", "aws", "--region", region];
    Args::parse_from(given.into_iter().chain(["--endpoint", endpoint, "--iam-endpoint", iam_endpoint]))
}

/// The provisioner of one claim, on a separate store.
pub(crate) struct One<S> {
    store: S,
    secrets: Secrets,
    pub(crate) cluster_id: &'static str,
}

const CLAIM: &str = "00000000-0000-4000-8000-00000000000a";

impl<S: Store> One<S> {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let store = S::start(&State::for_tests()?.guard()).await?;
        let account = store.account();
        let key = [("AWS_ACCESS_KEY_ID", &account.access_key), ("AWS_SECRET_ACCESS_KEY", &account.secret_key)];
        let secrets = Secrets::new([("admin", key.map(|(name, text)| (name, text.clone())))]);
        Ok(Self { secrets, store, cluster_id: "cluster-a" })
    }

    pub(crate) fn account(&self) -> &Account {
        self.store.account()
    }

    fn claim(&self, class: Parameters) -> BucketClaim<Parameters, Config> {
        let mut claim = BucketClaim::new("photos", class, Config::default());
        (claim.claim.uid, claim.cluster_id) = (CLAIM.to_owned(), self.cluster_id.to_owned());
        claim.secrets = self.secrets.clone();
        claim
    }

    pub(crate) async fn provision(&self) -> Result<(), ProvisionError> {
        self.provision_of(Parameters::default(), None).await
    }

    /// Provisions with a class, through a proxy.
    pub(crate) async fn provision_of(&self, class: Parameters, proxy: Option<&str>) -> Result<(), ProvisionError> {
        self.claim(class).provision(&Aws::new(args(self.account(), REGION, proxy).defaults)).await.map(drop)
    }

    /// Deletes the assets of a claim whose attempt has not finished.
    pub(crate) async fn delete(&self) -> anyhow::Result<()> {
        let aws = Aws::new(args(self.account(), REGION, None).defaults);
        self.claim(Parameters::default()).delete(&aws).await.map_err(|error| anyhow!("{error}"))
    }

    /// Runs an attempt in which `decide` chooses the fate of requests.
    pub(crate) async fn broken(
        &self,
        decide: impl Fn(&ProxiedRequest) -> ProxyAction + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        let broken = proxy::start_with(self.account(), Duration::ZERO, decide).await?;
        self.provision_of(Parameters::default(), Some(&broken)).await.err().context("the attempt succeeds")?;
        Ok(())
    }

    /// While a claim waits for a bucket that cannot be created, a user creates an empty bucket of its name, which has
    /// no owner mark. The provisioner must not take it.
    pub(crate) async fn never_adopts_buckets_created_during_an_attempt(&self) -> anyhow::Result<()> {
        let admin = self.account().admin()?;
        // After the last two faults, the outcome of the request is unknown.
        for fate in
            [ProxyAction::Refused(503, "SlowDown"), ProxyAction::Refused(500, "InternalError"), ProxyAction::Lost]
        {
            self.broken(move |asked| if asked.makes_bucket("photos") { fate } else { ProxyAction::Answered }).await?;
            admin.create_bucket("photos", Some(REGION)).await?;
            let refused = self.provision().await.err();
            let refused = refused.with_context(|| format!("{fate:?}: the claim adopted the administrator's bucket"))?;
            ensure!(refused.to_string().contains("was not created for this claim"), "{fate:?}: {refused}");
            self.delete().await.with_context(|| format!("{fate:?}"))?;
            assert_eq!(self.account().assets().await?, ["photos"], "{fate:?}");
            ensure!(admin.bucket_tagging("photos").await?.is_empty(), "{fate:?}: the administrator's bucket has tags");
            admin.delete_bucket("photos").await?;
        }
        Ok(())
    }
}
