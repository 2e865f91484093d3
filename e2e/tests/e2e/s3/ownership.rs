//! The ownership of buckets: claims that request one name at once, administrators who create buckets manually, other
//! clusters, and processes that end during an attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow, ensure};
use futures::future::try_join_all;
use kube_provisioner::ProvisionVerdict;
use s3_client::Credentials;
use testbed::s3::proxy::{self, ProxyAction};
use testbed::s3::regions;

use super::fixture::{Claim, Fixture, NO_LATENCY, PHOTOS, REGIONS, RIVAL, RecordedState};

/// Two processes: of two clusters, or of one cluster whose Lease has just changed its holder.
#[tokio::test]
async fn aws_only_one_of_two_claims_receives_the_bucket() -> anyhow::Result<()> {
    for region in REGIONS {
        let fixture = Fixture::new(region).await?;
        let rivals = [RIVAL, Claim { cluster: PHOTOS.cluster, ..RIVAL }];
        let mut both = 0;
        for round in 0..12 {
            let (one, other, rival) = (fixture.process(), fixture.process(), rivals[round % 2]);
            let (first, second) = tokio::join!(one.settle(PHOTOS), other.settle(rival));
            both += usize::from(first.is_ok() && second.is_ok());
            ensure!(first.is_ok() || second.is_ok(), "{region}: neither received it: {first:?}, {second:?}");
            let [(winner, state), (loser, refusal)] = match (first, second) {
                (Ok(state), refusal) => [(PHOTOS, state), (rival, refusal.unwrap_or_default())],
                (Err(_), state) => [(rival, state.unwrap_or_default()), (PHOTOS, RecordedState::new())],
            };
            fixture.admin()?.put_object("photos", "cat", "miaow").await?;
            other.delete(loser, refusal).await?;
            let kept = fixture.admin()?.get_object("photos", "cat").await;
            ensure!(matches!(kept, Ok(Some(_))), "{region}: deleting the loser removed the winner's data: {kept:?}");
            one.delete(winner, state).await?;
            let left = fixture.assets().await?;
            ensure!(left.is_empty(), "{region}: {left:?} remain");
        }
        ensure!(both == 0, "{region}: {both} of 12 pairs both received the bucket");
    }
    Ok(())
}

/// AWS reserves some prefixes and suffixes of names.
#[tokio::test]
async fn aws_name_refused_by_the_store_makes_the_claim_invalid() -> anyhow::Result<()> {
    let fixture = Fixture::new(REGIONS[1]).await?;
    let decide = |asked: &proxy::ProxiedRequest| {
        if asked.makes_bucket("photos") {
            ProxyAction::Refused(400, "InvalidBucketName")
        } else {
            ProxyAction::Answered
        }
    };
    let process = fixture.process_at(&proxy::start_with(fixture.server(), NO_LATENCY, decide).await?);
    let refused = process.provision(PHOTOS).await.err().context("the name is accepted")?;
    assert_eq!(refused.verdict(), ProvisionVerdict::Invalid, "{refused}");
    ensure!(refused.to_string().contains("choose another bucketName"), "{refused}");
    ensure!(fixture.assets().await?.is_empty(), "assets remain");
    Ok(())
}

/// While a claim waits for its bucket, which cannot be created, a user creates a bucket of that name manually.
#[tokio::test]
async fn aws_bucket_created_manually_during_an_attempt_is_never_adopted() -> anyhow::Result<()> {
    for region in REGIONS {
        let fixture = Fixture::new(region).await?;
        for fate in
            [ProxyAction::Refused(403, "AccessDenied"), ProxyAction::Refused(503, "SlowDown"), ProxyAction::Lost]
        {
            let broken = Arc::new(AtomicBool::new(true));
            let breaks = broken.clone();
            let decide = move |asked: &proxy::ProxiedRequest| {
                if breaks.load(Ordering::Relaxed) && asked.makes_bucket("photos") {
                    fate
                } else {
                    ProxyAction::Answered
                }
            };
            let process = fixture.process_at(&proxy::start_with(fixture.server(), NO_LATENCY, decide).await?);
            process.provision(PHOTOS).await.err().context("the bucket was created")?;
            broken.store(false, Ordering::Relaxed);
            fixture.create_manually("photos").await?;
            let refused = process.settle(PHOTOS).await.err().context("the claim adopted the administrator's bucket")?;
            ensure!(refused.to_string().contains("was not created for this claim"), "{region}: {refused}");
            process.delete(PHOTOS, RecordedState::new()).await?;
            fixture.is_untouched("photos").await?;
            assert_eq!(fixture.assets().await?, ["photos"], "{region}");
            fixture.admin()?.empty_bucket("photos").await?;
            fixture.admin()?.delete_bucket("photos").await?;
        }
    }
    Ok(())
}

/// The account has a bucket of this name in another region.
#[tokio::test]
async fn aws_bucket_in_another_region_stays_and_does_not_block_deletion() -> anyhow::Result<()> {
    let fixture = Fixture::new("eu-central-1").await?;
    let endpoint = regions::start(fixture.server()).await?;
    let key = Credentials::new(&fixture.server().access_key, &fixture.server().secret_key);
    let admin = testbed::s3::client(&endpoint, Some("us-east-1"), key)?;
    admin.create_bucket("photos", None).await?;
    admin.put_object("photos", "report", "figures").await?;

    let process = fixture.process_at(&endpoint);
    let refused = process.provision(PHOTOS).await.err().context("the claim adopted the bucket")?;
    ensure!(refused.verdict() == ProvisionVerdict::AlreadyExists, "{refused:?}");
    ensure!(refused.to_string().contains("in another region: set region"), "{refused}");
    process.delete(PHOTOS, RecordedState::new()).await?;
    fixture.is_untouched("photos").await?;
    assert_eq!(fixture.assets().await?, ["photos"]);
    Ok(())
}

/// A process is killed at its first request, its second, and so on, before or after the request is executed.
#[tokio::test]
async fn aws_kill_at_any_request_leaves_no_leftovers() -> anyhow::Result<()> {
    let cases =
        REGIONS.into_iter().flat_map(|region| [ProxyAction::Lost, ProxyAction::Unanswered].map(|last| (region, last)));
    try_join_all(cases.map(|(region, last)| killed_at_each_request(region, last))).await.map(drop)
}

async fn killed_at_each_request(region: &'static str, last: ProxyAction) -> anyhow::Result<()> {
    let fixture = Fixture::new(region).await?;
    for kill in 1..=17 {
        // moto returns the tags of the previous bucket.
        for (deleted, claim) in [(false, PHOTOS), (true, RIVAL)] {
            let decide = move |asked: &proxy::ProxiedRequest| match asked.number {
                number if number < kill => ProxyAction::Answered,
                number if number == kill => last,
                _ => ProxyAction::Lost,
            };
            let killed = fixture.process_at(&proxy::start_with(fixture.server(), NO_LATENCY, decide).await?);
            let mut state = killed.provision(claim).await.unwrap_or_default();
            let next = fixture.process();
            if !deleted {
                let again = next.settle(claim).await;
                state = again.map_err(|error| anyhow!("{region}: killed at request {kill}, {last:?}: {error}"))?;
                let tags = fixture.admin()?.bucket_tagging("photos").await?;
                assert_eq!(tags["kube-provisioner/claim-uid"], claim.uid);
                assert_eq!(tags["kube-provisioner/cluster-id"], claim.cluster);
            }
            let gone = next.delete(claim, state).await;
            gone.with_context(|| format!("{region}: killed at request {kill}, {last:?}"))?;
            let left = fixture.assets().await?;
            ensure!(left.is_empty(), "{region}: killed at request {kill}, {last:?}: {left:?} remain");
        }
    }
    Ok(())
}

/// The same claim was restored from a backup in another cluster.
#[tokio::test]
async fn aws_bucket_of_another_cluster_is_not_touched() -> anyhow::Result<()> {
    for region in REGIONS {
        let (fixture, elsewhere) = (Fixture::new(region).await?, Claim { cluster: RIVAL.cluster, ..PHOTOS });
        let process = fixture.process();
        let state = process.provision(PHOTOS).await.map_err(|error| anyhow!("{error}"))?;
        fixture.admin()?.put_object("photos", "cat", "miaow").await?;
        let before = fixture.assets().await?;
        for kept in [RecordedState::new(), state.clone()] {
            let known = kept.clone();
            let refused = process.provision_with(elsewhere, |request| request.state = known).await;
            ensure!(refused.is_err(), "{region}: another cluster received the bucket");
            process.delete(elsewhere, kept).await?;
        }
        assert_eq!(fixture.assets().await?, before, "{region}");
        ensure!(fixture.admin()?.get_object("photos", "cat").await?.is_some(), "{region}: the object no longer exists");
        // Tags as written by versions in which clusters had no ids.
        let mut tags = fixture.admin()?.bucket_tagging("photos").await?;
        tags.remove("kube-provisioner/cluster-id").context("the bucket does not name its cluster")?;
        fixture.admin()?.put_bucket_tagging("photos", &tags).await?;
        process.delete(PHOTOS, state).await?;
        ensure!(fixture.assets().await?.is_empty(), "{region}: assets remain");
    }
    Ok(())
}

/// An administrator creates a bucket with a claim's generated name, and a tenant's claim requests that name.
#[tokio::test]
async fn aws_uid_in_a_bucket_name_does_not_prove_ownership() -> anyhow::Result<()> {
    for region in REGIONS {
        let fixture = Fixture::new(region).await?;
        let generated = Claim { bucket: "e2e-00000000-0000-4000-8000-00000000000a", ..PHOTOS };
        let (process, thief) = (fixture.process(), Claim { bucket: generated.bucket, ..RIVAL });
        fixture.create_manually(generated.bucket).await?;
        for claim in [generated, thief] {
            ensure!(process.provision(claim).await.is_err(), "{region}: the claim adopted the administrator's bucket");
            process.delete(claim, RecordedState::new()).await?;
            fixture.is_untouched(generated.bucket).await?;
        }
        assert_eq!(fixture.assets().await?, [generated.bucket], "{region}");
    }
    Ok(())
}
