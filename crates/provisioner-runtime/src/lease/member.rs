//! Membership: with several shards, each replica keeps a Lease whose only purpose is to show that it is alive.

use std::time::Duration;

use futures::future::FutureExt as _;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::fleet::Fleet;
use super::store::Draft;
use crate::call::CallError;
use crate::name::{short_hash, with_suffix};

const PART: &str = "Lease of this replica";

/// Number of durations after its expiry at which the Lease of a crashed replica is removed.
const EXPIRED_DURATIONS: u32 = 4;

/// Announces this replica to the others. Makes one attempt; [`stay_announced`] retries later.
pub(super) async fn announce(fleet: &Fleet) {
    if fleet.options.shards > 1 {
        report(fleet, renew(fleet).await);
    }
}

/// Renews this replica's Lease until `stop`, and then deletes it. Removes the Leases of crashed replicas.
pub(super) async fn stay_announced(fleet: &Fleet, stop: &CancellationToken) {
    if fleet.options.shards == 1 {
        return;
    }
    let period = fleet.options.duration / 3;
    let mut random = fleet.options.environment.random("lease member");
    let mut pause = period;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = sleep(pause) => {}
        }
        let result = renew(fleet).await;
        // Jitter, so that replicas do not renew at the same time.
        pause = match &result {
            Ok(()) => period.mul_f64(1.0 - 0.1 * random.next()),
            Err(error) => fleet.options.retry_period.max(error.retry_after().unwrap_or(Duration::ZERO).min(period)),
        };
        report(fleet, result);
        remove_expired(fleet).await;
    }
    withdraw(fleet).await;
}

/// Deletes this replica's Lease. If that fails, the Lease expires.
async fn withdraw(fleet: &Fleet) {
    let (name, limit) = (name(fleet), fleet.options.call_limit());
    for _ in 0..2 {
        let Some(lease) = fleet.cache.known(&name).and_then(|known| known.lease) else { return };
        match fleet.store.delete(&lease, limit).await {
            Err(CallError::Conflict) if fleet.store.get(&fleet.cache, &name, limit).await.is_ok() => {}
            _ => return,
        }
    }
}

async fn renew(fleet: &Fleet) -> Result<(), CallError> {
    let (options, name) = (&fleet.options, name(fleet));
    let write = || async {
        let known = fleet.cache.known(&name).and_then(|known| known.lease);
        let draft = Draft {
            holder: &options.identity,
            duration: options.duration,
            now: fleet.store.now(),
            acquired: known.as_ref().and_then(|lease| lease.spec.as_ref()?.acquire_time.clone()),
            transitions: 0,
            member: true,
        };
        fleet.store.write(&fleet.cache, &name, known.as_ref(), draft, options.call_limit()).await.map(|_| ())
    };
    match write().await {
        Err(CallError::Conflict | CallError::NotFound | CallError::AlreadyExists) => {
            fleet.store.get(&fleet.cache, &name, options.call_limit()).await?;
            write().boxed().await
        }
        result => result,
    }
}

/// Removes the Leases of replicas that crashed long ago.
async fn remove_expired(fleet: &Fleet) {
    for lease in fleet.cache.expired_members(Instant::now(), EXPIRED_DURATIONS * fleet.options.duration) {
        // Ignore errors: another replica may be faster, and this runs again later.
        let _ = fleet.store.delete(&lease, fleet.options.call_limit()).await;
    }
}

fn report(fleet: &Fleet, result: Result<(), CallError>) {
    match result {
        Ok(()) => fleet.health.clear_problem(PART),
        Err(error) => fleet.health.set_problem(PART, error.to_string()),
    }
}

fn name(fleet: &Fleet) -> String {
    with_suffix(&fleet.options.name, &format!("-member-{}", short_hash(&fleet.options.identity)))
}
