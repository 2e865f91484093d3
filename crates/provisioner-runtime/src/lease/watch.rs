//! Observes changes with a watch, and with lists while the watch delivers nothing.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Request;
use tokio::time::{Instant, sleep, timeout};

use super::cache::version_of;
use super::fleet::Fleet;
use super::record::Lease;
use crate::backoff::Backoff;
use crate::call::CallError;
use crate::watch::{Reader, SETTLED, WatchError, watch_seconds};

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10));

const PART: &str = "watch of the Leases";
const LIST: &str = "list of the Leases";

/// Keeps the cache up to date. Runs until dropped.
pub(super) async fn follow(fleet: &Fleet) {
    let mut random = fleet.options.environment.random("lease watch");
    let (mut position, mut failures) = (None, 0);
    loop {
        let (begun, mut delivered) = (Instant::now(), false);
        let step = match &mut position {
            None => match list(fleet).await {
                Ok(version) => {
                    fleet.cache.delivered(&version);
                    position = Some(version);
                    continue;
                }
                Err(error) => Err(WatchError::Failed(error)),
            },
            Some(version) => watch_from(fleet, watch_seconds(&mut random), version, &mut delivered).await,
        };
        if delivered || step.is_ok() && begun.elapsed() >= SETTLED {
            failures = 0;
        }
        match step {
            Ok(()) if failures == 0 => continue,
            Ok(()) => {}
            Err(WatchError::Expired) => position = None,
            // After a broken connection the watch continues from its position.
            Err(WatchError::Failed(_)) if failures == 0 => {}
            Err(WatchError::Failed(error)) => {
                position = None;
                fleet.health.set_notice(PART, Some(format!("it fails, polling instead: {error}")));
            }
        }
        failures += 1;
        sleep(BACKOFF.delay(failures, random.next())).await;
    }
}

/// Lists the Leases every retry period while the watch delivers nothing. A live fleet always has changes, because its
/// members renew. A Lease written by client-go has no label, so the watch does not deliver it. Runs until dropped.
pub(super) async fn poll(fleet: &Fleet) {
    let mut random = fleet.options.environment.random("lease poll");
    let period = fleet.options.retry_period;
    let patience = 3 * period;
    loop {
        let pause = patience.saturating_sub(fleet.cache.silence()).max(period);
        sleep(pause.mul_f64(0.9 + 0.1 * random.next())).await;
        let content = fleet.options.shards == 1 && fleet.is_serving(0);
        if fleet.cache.silence() > patience && !content {
            // `follow` and the electors report failures.
            let listed = list(fleet).await;
            if listed.is_ok() && fleet.cache.has_undelivered(&fleet.store.fleet) {
                fleet.stale.notify_waiters();
            }
        }
    }
}

async fn list(fleet: &Fleet) -> Result<String, CallError> {
    let listed = fleet.store.list(&fleet.cache, fleet.options.call_limit()).await;
    match &listed {
        Ok(_) => fleet.health.clear_problem(LIST),
        Err(error) => fleet.health.set_problem(LIST, error.to_string()),
    }
    listed
}

/// Watches from `version`, which it keeps up to date, until the server closes the watch.
async fn watch_from(fleet: &Fleet, seconds: u32, version: &mut String, delivered: &mut bool) -> Result<(), WatchError> {
    let params = WatchParams::default().labels(&fleet.store.selector()).timeout(seconds);
    let (limit, api) = (fleet.options.call_limit(), &fleet.store.api);
    let client = api.clone().into_client();
    let request = Request::new(api.resource_url()).watch(&params, version);
    let begun = timeout(limit, Reader::<Lease>::open(&client, request)).await;
    let progressed = || {
        fleet.cache.progressed();
        // While the watch delivers changes, no list runs whose success would clear an earlier failure.
        fleet.health.clear_problem(LIST);
    };
    let mut events = begun.map_err(|_| WatchError::Failed(CallError::TimedOut(limit)))??;
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            // A list has returned changes that the watch did not deliver: reconnect instead of waiting for its end.
            () = fleet.stale.notified() => return Ok(()),
        };
        let Some(event) = event else { return Ok(()) };
        match event? {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                *version = lease.resource_version().unwrap_or_default();
                progressed();
                fleet.cache.observe(lease);
            }
            WatchEvent::Deleted(lease) => {
                *version = lease.resource_version().unwrap_or_default();
                progressed();
                fleet.cache.observe_deleted(&lease.name_any(), version_of(&lease));
            }
            WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
        }
        *delivered = true;
        fleet.cache.delivered(version);
        fleet.health.set_notice(PART, None);
    }
}
