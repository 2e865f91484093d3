//! Claims that are created and deleted all the time, each with its own fate.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use fastrand::Rng;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams, Preconditions};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::ledger::{Stage, volume_of};
use super::view::View;
use super::{DELETE, RETAIN, Soak};

/// Longer than any fault.
const PATIENCE: Duration = Duration::from_secs(300);
const RETRY: Duration = Duration::from_millis(250);
const ATTEMPT: &str = "soak.example.com/attempt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimLifecycle {
    /// Deleted early, mostly before it is bound.
    Early,
    /// Bound, used and deleted.
    Ordinary,
    /// Its volume is deleted manually before it, while it is in use.
    VolumeFirst,
    /// Its volume is deleted manually just after it.
    VolumeAfter,
    /// Exists until the end of the run.
    Stays,
}

impl ClaimLifecycle {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u32(0..100) {
            0..35 => Self::Early,
            35..80 => Self::Ordinary,
            80..88 => Self::VolumeFirst,
            88..97 => Self::VolumeAfter,
            _ => Self::Stays,
        }
    }
}

/// Keeps this number of claims in progress until the calm.
pub(super) async fn run(soak: Arc<Soak>, at_a_time: usize) -> anyhow::Result<()> {
    let mut places = JoinSet::new();
    for place in 0..at_a_time {
        places.spawn(one_after_the_other(soak.clone(), place, at_a_time));
    }
    while let Some(place) = places.join_next().await {
        place??;
    }
    Ok(())
}

/// Creates claims all at once.
pub(super) async fn burst(soak: Arc<Soak>, number: usize, size: usize) -> anyhow::Result<()> {
    let one = |at: usize| {
        let soak = &soak;
        async move {
            let mut rng = soak.chance("burst", number * size + at);
            run_claim(soak, format!("burst-{number}-{at}"), &mut rng).await.map(drop)
        }
    };
    try_join_all((0..size).map(one)).await.map(drop)
}

async fn one_after_the_other(soak: Arc<Soak>, place: usize, places: usize) -> anyhow::Result<()> {
    let mut made = 0;
    while !*soak.calm.borrow() {
        let mut rng = soak.chance("claim", place + places * made);
        // Half of the names are reused immediately.
        let name = if place.is_multiple_of(2) { format!("again-{place}") } else { format!("once-{place}-{made}") };
        let fate = run_claim(&soak, name, &mut rng).await?;
        made += 1;
        if fate == ClaimLifecycle::Stays && place.is_multiple_of(2) {
            // Its name is taken permanently.
            break;
        }
    }
    Ok(())
}

async fn run_claim(soak: &Soak, name: String, rng: &mut Rng) -> anyhow::Result<ClaimLifecycle> {
    let (fate, retain) = (ClaimLifecycle::draw(rng), rng.u32(0..100) < 12);
    let uid = create(soak, &name, if retain { RETAIN } else { DELETE }, rng.u64(..)).await?;
    soak.ledger().add(&uid, &name, retain);
    soak.log.write_line(format_args!("claim {name} {uid}: made, {fate:?}{}", if retain { ", retained" } else { "" }));
    if fate == ClaimLifecycle::Early {
        sleep(Duration::from_millis(rng.u64(0..400))).await;
        delete_claim(soak, &uid).await?;
        return Ok(fate);
    }
    if !bound(soak, &uid).await? {
        return Ok(fate);
    }
    let use_for = Duration::from_millis(rng.u64(0..12_000));
    if fate == ClaimLifecycle::VolumeFirst {
        delete_volume(soak, &uid).await?;
    }
    if fate == ClaimLifecycle::Stays || calm_within(soak, use_for).await {
        // Claims in use when the calm begins continue to exist.
        return Ok(ClaimLifecycle::Stays);
    }
    delete_claim(soak, &uid).await?;
    if fate == ClaimLifecycle::VolumeAfter {
        sleep(Duration::from_millis(rng.u64(0..1000))).await;
        delete_volume(soak, &uid).await?;
    }
    Ok(fate)
}

/// Waits until the calm; `false` at the time limit.
async fn calm_within(soak: &Soak, limit: Duration) -> bool {
    let mut calm = soak.calm.clone();
    timeout(limit, calm.wait_for(|calm| *calm)).await.is_ok()
}

/// Waits until the claim is bound and writes its data; `false` if the claim was deleted.
async fn bound(soak: &Soak, uid: &str) -> anyhow::Result<bool> {
    let mut views = soak.view.clone();
    let volume = loop {
        let bound = |view: &Arc<View>| view.claims.get(uid).and_then(|claim| claim.volume.clone());
        if let Some(volume) = bound(&views.borrow_and_update()) {
            break volume;
        }
        if soak.ledger().is_deleting(uid) {
            return Ok(false);
        }
        if timeout(PATIENCE, views.changed()).await.is_err() {
            bail!("the API server is gone for {} s", PATIENCE.as_secs());
        }
        if *soak.calm.borrow() {
            // The final check covers it.
            return Ok(false);
        }
    };
    let mut ledger = soak.ledger();
    let problem = match soak.disk.mark(&volume, uid) {
        _ if ledger.is_deleting(uid) => return Ok(false),
        Ok(()) => None,
        Err(error) => Some(format!("claim {uid} is bound to {volume}, whose directory takes no data: {error}")),
    };
    if let Some(text) = problem {
        soak.log.write_line(format_args!("BROKEN: {text}"));
        ledger.lost.push(text);
        return Ok(true);
    }
    if let Some(claim) = ledger.claims.get_mut(uid) {
        (claim.stage, claim.marked) = (Stage::Bound, true);
    }
    drop(ledger);
    soak.log.write_line(format_args!("claim {uid}: bound to {volume}"));
    Ok(true)
}

/// Creates a claim, or finds the claim that an earlier attempt without an answer created.
async fn create(soak: &Soak, name: &str, class: &str, attempt: u64) -> anyhow::Result<String> {
    let api = soak.cluster.claims();
    let mut claim = testbed::cluster::claim(name, class);
    claim.annotations_mut().insert(ATTEMPT.to_owned(), attempt.to_string());
    let is_ours = |claim: &PersistentVolumeClaim| claim.annotations().get(ATTEMPT) == Some(&attempt.to_string());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let created = match api.create(&PostParams::default(), &claim).await {
            Ok(claim) => Some(claim),
            // Alternatively, a claim with the same name is being deleted.
            Err(_) => api.get_opt(name).await.ok().flatten().filter(is_ours),
        };
        if let Some(uid) = created.as_ref().and_then(ResourceExt::uid) {
            return Ok(uid);
        }
        if Instant::now() > deadline {
            bail!("claim {name} cannot be made within {} s", PATIENCE.as_secs());
        }
        sleep(RETRY).await;
    }
}

/// Deletes a claim and waits until it no longer exists.
pub(super) async fn delete_claim(soak: &Soak, uid: &str) -> anyhow::Result<()> {
    let Some(name) = soak.ledger().record_deletion(uid) else { return Ok(()) };
    soak.log.write_line(format_args!("claim {name} {uid}: is deleted"));
    let api = soak.cluster.claims();
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let this_one = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let deadline = Instant::now() + PATIENCE;
    loop {
        // The answer does not matter: the deletion is repeated until the claim no longer exists.
        let _ = api.delete(&name, &this_one).await;
        match api.get_opt(&name).await {
            Ok(claim) if claim.as_ref().and_then(ResourceExt::uid).as_deref() != Some(uid) => return Ok(()),
            _ if Instant::now() > deadline => bail!("claim {name} is not deleted"),
            _ => sleep(RETRY).await,
        }
    }
}

/// Deletes a claim's volume manually. It stays as long as a finalizer holds it.
async fn delete_volume(soak: &Soak, uid: &str) -> anyhow::Result<()> {
    let volume = volume_of(uid);
    if let Some(claim) = soak.ledger().claims.get_mut(uid) {
        claim.volume_deleted = true;
    }
    soak.log.write_line(format_args!("volume {volume}: is deleted manually"));
    let deadline = Instant::now() + PATIENCE;
    loop {
        match soak.cluster.volumes().delete(&volume, &DeleteParams::default()).await {
            Err(kube::Error::Api(error)) if error.code == 404 => return Ok(()),
            Ok(_) => return Ok(()),
            Err(_) if Instant::now() > deadline => bail!("volume {volume} cannot be deleted"),
            Err(_) => sleep(RETRY).await,
        }
    }
}
