//! Hears of changes: by a watch, and by looking where the watch says nothing.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::{Instant, sleep, timeout};

use super::Fleet;
use super::cache::version_of;
use super::record::Lease;
use crate::watch::{Reader, SETTLED, WATCH_SECONDS};
use crate::{Backoff, CallError};

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10));

const PART: &str = "watch of the Leases";

/// Keeps the cache up to date. Runs until dropped.
pub(super) async fn follow(fleet: &Fleet) {
    let mut random = fleet.options.environment.random("lease watch");
    let (mut position, mut failures) = (None, 0);
    loop {
        let (begun, mut heard) = (Instant::now(), false);
        let step = match &mut position {
            None => match look(fleet).await {
                Ok(version) => {
                    fleet.cache.delivered(&version);
                    position = Some(version);
                    continue;
                }
                Err(error) => Err(Trouble::Failed(error)),
            },
            Some(version) => hear(fleet, version, &mut heard).await,
        };
        if heard || step.is_ok() && begun.elapsed() >= SETTLED {
            failures = 0;
        }
        match step {
            Ok(()) if failures == 0 => continue,
            Ok(()) => {}
            Err(Trouble::Expired) => position = None,
            // A connection that broke is taken up where it was.
            Err(Trouble::Failed(_)) if failures == 0 => {}
            Err(Trouble::Failed(error)) => {
                position = None;
                fleet.health.waits(PART, Some(format!("it does not work, looking now and then instead: {error}")));
            }
        }
        failures += 1;
        sleep(BACKOFF.delay(failures, random.next())).await;
    }
}

/// Looks at the Leases every retry period while the watch tells of none. In a fleet that lives there is always something
/// to tell: somebody renews, if not at the first attempt. The Go library's Lease has no label, so the watch does not tell
/// of it. Runs until dropped.
pub(super) async fn poll(fleet: &Fleet) {
    let mut random = fleet.options.environment.random("lease poll");
    let period = fleet.options.retry_period;
    let patience = 3 * period;
    loop {
        let pause = patience.saturating_sub(fleet.cache.silence()).max(period);
        sleep(pause.mul_f64(0.9 + 0.1 * random.next())).await;
        let content = fleet.options.shards == 1 && fleet.is_serving(0);
        if fleet.cache.silence() > patience && !content {
            // Failures are told by `follow` and by those who want something of a Lease.
            let looked = look(fleet).await;
            if looked.is_ok() && fleet.cache.has_undelivered(&fleet.store.fleet) {
                fleet.stale.notify_waiters();
            }
        }
    }
}

async fn look(fleet: &Fleet) -> Result<String, CallError> {
    const PART: &str = "list of the Leases";
    let listed = fleet.store.look_at_all(&fleet.cache, fleet.options.call_limit()).await;
    match &listed {
        Ok(_) => fleet.health.works(PART),
        Err(error) => fleet.health.fails(PART, error.to_string()),
    }
    listed
}

/// Watches from `version`, which it keeps up to date, until the server ends the watch.
async fn hear(fleet: &Fleet, version: &mut String, heard: &mut bool) -> Result<(), Trouble> {
    let params = WatchParams::default().labels(&fleet.store.selector()).timeout(WATCH_SECONDS);
    let (limit, api) = (fleet.options.call_limit(), &fleet.store.api);
    let client = api.clone().into_client();
    let begun = timeout(limit, Reader::<Lease>::open(&client, api.resource_url(), &params, version)).await;
    let mut events = begun.map_err(|_| Trouble::Failed(CallError::TimedOut(limit)))??;
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            // What looking brought to light it should have told: begin anew rather than look until it is given up.
            () = fleet.stale.notified() => return Ok(()),
        };
        let Some(event) = event else { return Ok(()) };
        match event? {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                *version = lease.resource_version().unwrap_or_default();
                fleet.cache.progressed();
                fleet.cache.see(lease);
            }
            WatchEvent::Deleted(lease) => {
                *version = lease.resource_version().unwrap_or_default();
                fleet.cache.progressed();
                fleet.cache.gone(&lease.name_any(), version_of(&lease));
            }
            WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
        }
        *heard = true;
        fleet.cache.delivered(version);
        fleet.health.waits(PART, None);
    }
}

/// Why a watch came to an end.
enum Trouble {
    /// The server knows nothing of our position.
    Expired,
    Failed(CallError),
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 410 => Self::Expired,
            error => Self::Failed(error.into()),
        }
    }
}
