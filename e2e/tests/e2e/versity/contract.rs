//! The contract of provisioners of buckets.

use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use aws_s3_provisioner::{Args, Aws, Config, Parameters};
use clap::Parser as _;
use futures::future::try_join_all;
use kube_provisioner::conformance::{BucketClaim, BucketConformance};
use kube_provisioner::{ProvisionError, Secrets};
use serde_json::json;
use testbed::control_plane::State;
use testbed::s3::proxy::{self, Fate, Faults};
use testbed::versity::{Server, Versity};

use super::fixture::REGION;

pub(crate) const FAULTS: Faults =
    Faults { unavailable: 7, too_many: 11, cut_before: 13, cut_after: 17, latency: Duration::from_millis(5) };

#[tokio::test]
async fn versity_the_contract_is_kept() -> anyhow::Result<()> {
    contract(None).await
}

#[tokio::test]
async fn versity_the_contract_is_kept_when_calls_fail() -> anyhow::Result<()> {
    contract(Some(FAULTS)).await
}

async fn contract(faults: Option<Faults>) -> anyhow::Result<()> {
    try_join_all(BucketConformance::rules().map(|rule| kept(rule, faults))).await.map(drop)
}

/// Checks one rule on a server of its own: most of the time is waited.
async fn kept(rule: &'static str, faults: Option<Faults>) -> anyhow::Result<()> {
    let versity = Versity::start(REGION, &State::for_tests()?.guard()).await?;
    let server = versity.server().clone();
    server.admin()?.create_bucket("existing", Some(REGION)).await?;
    let (endpoint, iam_endpoint) = match faults {
        Some(faults) => {
            let proxy = proxy::start(&server, faults).await?;
            (proxy.clone(), proxy)
        }
        None => (server.endpoint.clone(), server.iam_endpoint.clone()),
    };
    let defaults = args(&endpoint, &iam_endpoint).defaults;
    let admin = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
        "stringData": {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key},
    });
    let listed = server.clone();
    let kit = BucketConformance::new(
        move || Aws::new(defaults.clone()),
        move || {
            let server = listed.clone();
            async move { assets(&server).await.expect("the gateway answers") }
        },
    )
    .parameters([("adminSecretName", "admin"), ("adminSecretNamespace", "default")])
    .existing_bucket("existing")
    .keys_shown_once()
    .objects([admin])
    .seeds(0..1)
    .only(rule)
    .real_time();
    let report = by_hand(kit, &server).run().await;
    ensure!(report.is_kept(), "{report}");
    Ok(())
}

fn args(endpoint: &str, iam_endpoint: &str) -> Args {
    let given = ["aws-s3-provisioner", "--provisioner-name", "aws", "--region", REGION];
    Args::parse_from(given.into_iter().chain(["--endpoint", endpoint, "--iam-endpoint", iam_endpoint]))
}

/// How an administrator makes buckets, and removes them.
fn by_hand(kit: BucketConformance, server: &Server) -> BucketConformance {
    let [admin, admins] = [server.clone(), server.clone()];
    let make = move |name: String| {
        let admin = admin.admin().expect("the gateway's address is one");
        async move { admin.create_bucket(&name, Some(REGION)).await.is_ok() }
    };
    let remove = move |name: String| {
        let admin = admins.admin().expect("the gateway's address is one");
        async move {
            admin.empty_bucket(&name).await.expect("the gateway answers");
            admin.delete_bucket(&name).await.expect("the gateway answers");
        }
    };
    kit.by_hand(make, remove)
}

/// Buckets, users, and their keys and policies.
async fn assets(server: &Server) -> anyhow::Result<Vec<String>> {
    let iam = server.iam()?;
    let mut all: Vec<String> = server.admin()?.list_buckets().await?.into_iter().collect();
    for user in iam.users("/kube-provisioner/").await? {
        all.extend(iam.access_keys(&user).await?.into_iter().map(|key| format!("key {}", key.id)));
        all.extend(testbed::s3::policies(&iam, &user).await?);
        all.push(user);
    }
    Ok(all)
}

/// While a claim waits for a bucket that cannot be made, somebody makes an empty one of its name. Tags come with a new bucket, so
/// one without them is nobody's.
#[tokio::test]
async fn versity_a_bucket_that_is_made_by_hand_meanwhile_is_never_taken() -> anyhow::Result<()> {
    const CLAIM: &str = "00000000-0000-4000-8000-00000000000a";
    let versity = Versity::start(REGION, &State::for_tests()?.guard()).await?;
    let (server, admin) = (versity.server(), versity.server().admin()?);
    let key = [("AWS_ACCESS_KEY_ID", &server.access_key), ("AWS_SECRET_ACCESS_KEY", &server.secret_key)];
    let mut claim = BucketClaim::new("photos", Parameters::default(), Config::default());
    (claim.claim.uid, claim.cluster_id) = (CLAIM.to_owned(), "cluster-a".to_owned());
    claim.secrets = Secrets::new([("admin", key.map(|(name, text)| (name, text.clone())))]);
    let provision = async |endpoint: &str, iam_endpoint: &str| -> Result<(), ProvisionError> {
        claim.provision(&Aws::new(args(endpoint, iam_endpoint).defaults)).await.map(drop)
    };
    // After the last two the attempt is not over: its user still reserves the name.
    for fate in [Fate::Refused(503, "SlowDown"), Fate::Refused(500, "InternalError"), Fate::Lost] {
        let decide = move |asked: &proxy::Asked| match asked.makes_bucket("photos") {
            true => fate,
            false => Fate::Answered,
        };
        let broken = proxy::start_with(server, Duration::ZERO, decide).await?;
        provision(&broken, &broken).await.err().context("the bucket cannot be made")?;
        admin.create_bucket("photos", Some(REGION)).await?;
        let refused = provision(&server.endpoint, &server.iam_endpoint).await.err();
        let refused = refused.with_context(|| format!("{fate:?}: it has taken the administrator's bucket"))?;
        ensure!(refused.to_string().contains("was not made for this claim"), "{fate:?}: {refused}");
        let aws = Aws::new(args(&server.endpoint, &server.iam_endpoint).defaults);
        claim.delete(&aws).await.map_err(|error| anyhow!("{fate:?}: {error}"))?;
        assert_eq!(assets(server).await?, ["photos"], "{fate:?}");
        ensure!(admin.bucket_tagging("photos").await?.is_empty(), "{fate:?}: the administrator's bucket has tags");
        admin.delete_bucket("photos").await?;
    }
    Ok(())
}
