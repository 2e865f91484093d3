//! The contract of provisioners of buckets.

use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use aws_s3_provisioner::{Args, Aws, Config, Parameters};
use clap::Parser as _;
use futures::future::try_join_all;
use kube_provisioner::conformance::{BucketClaim, BucketConformance};
use kube_provisioner::{ProvisionError, Secrets};
use serde_json::json;
use testbed::bucket_attempts::an_attempt_that_ends_after_any_request_leaves_nothing;
use testbed::control_plane::State;
use testbed::s3::proxy::{self, Asked, Fate, Faults};
use testbed::seaweedfs::{SeaweedFs, Server};

use super::fixture::REGION;

const FAULTS: Faults =
    Faults { unavailable: 7, too_many: 11, cut_before: 13, cut_after: 17, latency: Duration::from_millis(5) };

#[tokio::test]
async fn seaweedfs_the_contract_is_kept() -> anyhow::Result<()> {
    contract(None).await
}

#[tokio::test]
async fn seaweedfs_the_contract_is_kept_when_calls_fail() -> anyhow::Result<()> {
    contract(Some(FAULTS)).await
}

async fn contract(faults: Option<Faults>) -> anyhow::Result<()> {
    try_join_all(BucketConformance::rules().map(|rule| kept(rule, faults))).await.map(drop)
}

/// Checks one rule on a server of its own: most of the time is waited.
async fn kept(rule: &'static str, faults: Option<Faults>) -> anyhow::Result<()> {
    let seaweedfs = SeaweedFs::start(&State::for_tests()?.guard()).await?;
    let server = seaweedfs.server().clone();
    server.admin()?.create_bucket("existing", Some(REGION)).await?;
    let endpoint = match faults {
        Some(faults) => proxy::start(&server, faults).await?,
        None => server.endpoint.clone(),
    };
    let defaults = args(&endpoint).defaults;
    let admin = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
        "stringData": {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key},
    });
    let listed = server.clone();
    let kit = BucketConformance::new(
        move || Aws::new(defaults.clone()),
        move || {
            let server = listed.clone();
            async move { assets(&server).await.expect("SeaweedFS answers") }
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

fn args(endpoint: &str) -> Args {
    let given = ["aws-s3-provisioner", "--provisioner-name", "aws", "--region", REGION];
    Args::parse_from(given.into_iter().chain(["--endpoint", endpoint, "--iam-endpoint", endpoint]))
}

/// How an administrator makes buckets, and removes them.
fn by_hand(kit: BucketConformance, server: &Server) -> BucketConformance {
    let [admin, admins] = [server.clone(), server.clone()];
    let make = move |name: String| {
        let admin = admin.admin().expect("SeaweedFS's address is one");
        async move { admin.create_bucket(&name, Some(REGION)).await.is_ok() }
    };
    let remove = move |name: String| {
        let admin = admins.admin().expect("SeaweedFS's address is one");
        async move {
            admin.empty_bucket(&name).await.expect("SeaweedFS answers");
            admin.delete_bucket(&name).await.expect("SeaweedFS answers");
        }
    };
    kit.by_hand(make, remove)
}

/// Buckets, users, and their keys and policies.
async fn assets(server: &Server) -> anyhow::Result<Vec<String>> {
    let iam = server.iam()?;
    let mut all: Vec<String> = server.admin()?.list_buckets().await?.into_iter().collect();
    for user in server.users().await? {
        all.extend(iam.access_keys(&user).await?.into_iter().map(|key| format!("key {}", key.id)));
        all.extend(testbed::s3::policies(&iam, &user).await?);
        all.push(user);
    }
    Ok(all)
}

/// One claim's provisioner, on a cluster of its own.
struct One {
    seaweedfs: SeaweedFs,
    secrets: Secrets,
    cluster_id: &'static str,
}

const CLAIM: &str = "00000000-0000-4000-8000-00000000000a";

impl One {
    async fn new() -> anyhow::Result<Self> {
        let seaweedfs = SeaweedFs::start(&State::for_tests()?.guard()).await?;
        let server = seaweedfs.server();
        let key = [("AWS_ACCESS_KEY_ID", &server.access_key), ("AWS_SECRET_ACCESS_KEY", &server.secret_key)];
        let secrets = Secrets::new([("admin", key.map(|(name, text)| (name, text.clone())))]);
        Ok(Self { secrets, seaweedfs, cluster_id: "cluster-a" })
    }

    fn server(&self) -> &Server {
        self.seaweedfs.server()
    }

    fn claim(&self, class: Parameters) -> BucketClaim<Parameters, Config> {
        let mut claim = BucketClaim::new("photos", class, Config::default());
        (claim.claim.uid, claim.cluster_id) = (CLAIM.to_owned(), self.cluster_id.to_owned());
        claim.secrets = self.secrets.clone();
        claim
    }

    async fn provision(&self, endpoint: &str) -> Result<(), ProvisionError> {
        self.claim(Parameters::default()).provision(&Aws::new(args(endpoint).defaults)).await.map(drop)
    }

    /// Of a claim whose attempt has not come to its end.
    async fn delete(&self) -> anyhow::Result<()> {
        let aws = Aws::new(args(&self.server().endpoint).defaults);
        self.claim(Parameters::default()).delete(&aws).await.map_err(|error| anyhow!("{error}"))
    }

    /// An attempt in which this request has this fate.
    async fn broken(&self, decide: impl Fn(&Asked) -> Fate + Send + Sync + 'static) -> anyhow::Result<()> {
        let broken = proxy::start_with(self.server(), Duration::ZERO, decide).await?;
        self.provision(&broken).await.err().context("the attempt does not fail")?;
        Ok(())
    }
}

/// While a claim waits for a bucket that cannot be made, somebody makes an empty one of its name. A new bucket says who has made it.
#[tokio::test]
async fn seaweedfs_a_bucket_that_is_made_by_hand_meanwhile_is_never_taken() -> anyhow::Result<()> {
    let one = One::new().await?;
    let admin = one.server().admin()?;
    // After the last two the attempt is not over.
    for fate in [Fate::Refused(503, "SlowDown"), Fate::Refused(500, "InternalError"), Fate::Lost] {
        one.broken(move |asked| if asked.makes_bucket("photos") { fate } else { Fate::Answered }).await?;
        admin.create_bucket("photos", Some(REGION)).await?;
        let refused = one.provision(&one.server().endpoint).await.err();
        let refused = refused.with_context(|| format!("{fate:?}: it has taken the administrator's bucket"))?;
        ensure!(refused.to_string().contains("was not made for this claim"), "{fate:?}: {refused}");
        one.delete().await.with_context(|| format!("{fate:?}"))?;
        assert_eq!(assets(one.server()).await?, ["photos"], "{fate:?}");
        ensure!(admin.bucket_tagging("photos").await?.is_empty(), "{fate:?}: the administrator's bucket has tags");
        admin.delete_bucket("photos").await?;
    }
    Ok(())
}

/// The provisioner dies between the bucket and its tags.
#[tokio::test]
async fn seaweedfs_a_bucket_without_tags_is_of_the_claim_that_has_made_it() -> anyhow::Result<()> {
    let mut one = One::new().await?;
    let admin = one.server().admin()?;
    let no_tags = |asked: &Asked| {
        if asked.head.starts_with("PUT /photos") && asked.head.contains("tagging") {
            Fate::Refused(500, "InternalError")
        } else {
            Fate::Answered
        }
    };
    one.broken(no_tags).await?;
    ensure!(admin.bucket_tagging("photos").await?.is_empty(), "the bucket has tags");
    // The same claim in a cluster that was restored from a backup is another one.
    one.cluster_id = "cluster-b";
    let refused = one.provision(&one.server().endpoint).await.err().context("another cluster has taken the bucket")?;
    ensure!(refused.to_string().contains("was not made for this claim"), "{refused}");
    one.delete().await?;
    one.cluster_id = "cluster-a";
    one.provision(&one.server().endpoint).await.map_err(|error| anyhow!("{error}"))?;
    ensure!(!admin.bucket_tagging("photos").await?.is_empty(), "the bucket has no tags");
    one.delete().await?;
    assert_eq!(assets(one.server()).await?, [""; 0]);
    // And once more, if the claim goes without another attempt.
    one.broken(no_tags).await?;
    one.delete().await?;
    assert_eq!(assets(one.server()).await?, [""; 0]);
    Ok(())
}

/// Whichever request is the last one that arrives, the claim's deletion finds all that was made, and another attempt goes on from there.
#[tokio::test]
async fn seaweedfs_an_attempt_that_ends_after_any_request_leaves_nothing() -> anyhow::Result<()> {
    let one = One::new().await?;
    let last = an_attempt_that_ends_after_any_request_leaves_nothing(
        &one.server().endpoint,
        async |endpoint| one.provision(endpoint).await.map_err(|error| anyhow!("{error}")),
        async || one.delete().await,
        async || assets(one.server()).await,
    )
    .await?;
    // The user, the bucket, its tags, the policy and the key, and what is looked at before.
    ensure!(last > 8, "an attempt has only {last} requests");
    Ok(())
}

/// Behind something that hides which store it is, the provisioner refuses to begin.
#[tokio::test]
async fn seaweedfs_that_does_not_say_its_name_is_refused() -> anyhow::Result<()> {
    let one = One::new().await?;
    let hidden = Aws::new(args(&one.server().endpoint).defaults);
    let other: Parameters = serde_json::from_value(json!({"store": "other"}))?;
    let refused = one.claim(other).provision(&hidden).await.err().context("a user without tags was accepted")?;
    ensure!(refused.to_string().contains("store: seaweedfs"), "{refused}");
    assert_eq!(assets(one.server()).await?, [""; 0]);
    Ok(())
}
