//! One shard: waits for its Lease, acquires it, renews it, releases it.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

use super::balance::Action;
use super::fleet::Fleet;
use super::health::HeldShard;
use super::options::JITTER;
use super::record::{Spec, next_transition};
use super::store::Draft;
use super::term::Term;
use crate::backoff::Random;
use crate::call::CallError;
use crate::throttle::MAX_PAUSE;

pub(super) struct Elector<'a, W> {
    fleet: &'a Fleet,
    shard: u32,
    name: String,
    /// The Lease's name in messages.
    part: String,
    stop: &'a CancellationToken,
    work: &'a W,
    random: Random,
    /// True if the request that failed last would fail again, although requests of other replicas succeed.
    is_refused: bool,
    /// The time when the last write that acquired or renewed the Lease was sent.
    sent: Option<Instant>,
    /// Later renewals whose responses were lost: the time in each, and when it was sent.
    unanswered: Vec<(String, Instant)>,
}

/// The circumstances in which this replica acquired the Lease.
struct Acquisition {
    transitions: u32,
    acquired: Option<String>,
}

/// The reason why this replica no longer holds the Lease.
enum Loss {
    /// It could not be renewed in time.
    Expired,
    /// Another identity holds it.
    Taken,
}

impl<'a, W, F> Elector<'a, W>
where
    W: Fn(Term) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    pub(super) fn new(fleet: &'a Fleet, shard: u32, stop: &'a CancellationToken, work: &'a W) -> Self {
        let name = fleet.options.shard_name(shard);
        let random = fleet.options.environment.random(&format!("lease {shard}"));
        let part = format!("Lease {name}");
        let (is_refused, sent, unanswered) = (false, None, Vec::new());
        Self { fleet, shard, name, part, stop, work, random, is_refused, sent, unanswered }
    }

    /// Runs until the replica stops and the Lease is released.
    pub(super) async fn run(mut self) {
        while self.wait_until_ready().await {
            let mut asked = None;
            match self.acquire().await {
                Ok(Some(acquisition)) => {
                    self.fleet.health.clear_problem(&self.part);
                    self.hold(acquisition).await;
                }
                // A change of another replica's Lease triggers the next attempt.
                Ok(None) if !self.is_ready(Instant::now()) => continue,
                Ok(None) => {}
                Err(error) => {
                    asked = error.retry_after().map(|pause| pause.min(MAX_PAUSE));
                    self.fail(&error);
                    // The write may have succeeded despite the error.
                    let _ = self.refresh().await;
                }
            }
            let pause = self.fleet.options.retry_period.mul_f64(1.0 + JITTER * self.random.next());
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = sleep(pause.max(asked.unwrap_or(Duration::ZERO))) => {}
            }
        }
        // The Lease may be ours through a write whose response was lost.
        if self.is_ours() {
            self.release(None).await;
        }
        self.fleet.health.set_notice(&self.part, None);
    }

    /// Waits until the Lease may be taken; returns `false` when the replica stops.
    async fn wait_until_ready(&self) -> bool {
        let mut changes = self.fleet.cache.follow();
        let mut known = None;
        while !self.stop.is_cancelled() {
            let now = Instant::now();
            if self.is_ready(now) {
                return true;
            }
            let holder = self.fleet.cache.holder_identity(&self.name).filter(|holder| !holder.is_empty());
            if let Some(holder) = holder.as_ref().filter(|_| holder != known) {
                tracing::info!(lease = self.name, holder, "standing by: another replica does the work");
            }
            known = holder;
            // While standing by, this replica sends no request whose success would clear an earlier failure.
            let other = self.fleet.cache.holder(&self.name, now);
            if !self.is_refused && other.is_some_and(|other| other != self.fleet.options.identity) {
                self.fleet.health.clear_problem(&self.part);
            }
            let expiry = self.fleet.cache.next_expiry(now);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = changes.changed() => {}
                () = sleep_until(expiry.unwrap_or(now)), if expiry.is_some() => {}
            }
        }
        false
    }

    fn fail(&mut self, error: &CallError) {
        self.is_refused = matches!(error, CallError::Forbidden(_) | CallError::Invalid(_));
        self.fleet.health.set_problem(&self.part, error.to_string());
    }

    fn is_ready(&self, now: Instant) -> bool {
        let Fleet { cache, options, health, .. } = self.fleet;
        if !cache.is_listed() {
            return false;
        }
        let rival = cache.rival(&options.identity, options.shards, now);
        let notice = rival.as_ref().map(|rival| {
            let super::cache::Rival { name, holder, shards, .. } = rival;
            format!("waiting for {holder}, which holds {name} as one of {shards} instead of {}", options.shards)
        });
        health.set_notice(&self.part, notice);
        rival.is_none() && (self.is_ours() || self.fleet.plan(now).contains(&Action::Acquire(self.shard)))
    }

    fn is_ours(&self) -> bool {
        self.fleet.cache.holder_identity(&self.name).as_ref() == Some(&self.fleet.options.identity)
    }

    /// Attempts to acquire the Lease once; returns `None` if another replica was faster.
    async fn acquire(&mut self) -> Result<Option<Acquisition>, CallError> {
        let Fleet { cache, options, .. } = self.fleet;
        // Change exactly the version on which the decision is based.
        let (known, now) = (cache.known(&self.name), Instant::now());
        let ours = known.as_ref().is_some_and(|known| known.spec.holder() == options.identity);
        if !ours && known.as_ref().is_some_and(|known| known.is_held(now)) {
            return Ok(None);
        }
        // No other replica can have found the Lease expired or missing.
        let unbroken = self.is_ours() && self.sent.is_some_and(|sent| now < sent + options.duration);
        let (lease, spec, max_transitions) =
            known.map_or((None, None, None), |known| (known.lease, Some(known.spec), Some(known.max_transitions)));
        let acquisition = match spec {
            Some(spec) if unbroken => Acquisition { transitions: spec.transitions(), acquired: spec.acquire_time },
            _ => Acquisition { transitions: max_transitions.map_or(0, next_transition), acquired: None },
        };
        // The unanswered renewals belong to an earlier acquisition.
        self.unanswered.clear();
        match self.write(lease.as_ref(), &acquisition, options.call_limit()).await {
            Ok(acquired) => Ok(Some(Acquisition { acquired, ..acquisition })),
            Err(CallError::Conflict | CallError::AlreadyExists | CallError::NotFound) => {
                self.refresh().await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Holds the Lease for at most one term.
    async fn hold(&mut self, acquisition: Acquisition) {
        if self.is_alone().await && self.serve(&acquisition).await.is_err() {
            return;
        }
        self.release(Some(&acquisition)).await;
    }

    /// Returns true if no fleet with another number of shards is alive.
    ///
    /// This replica has already written its Lease, and now lists the others. If they do the same, at least one side
    /// sees the other. When both have only just begun, the side with more shards steps back.
    async fn is_alone(&mut self) -> bool {
        let Fleet { cache, options, store, health, .. } = self.fleet;
        // This leaves time for one attempt to renew.
        let time = options.renew_deadline - options.call_limit();
        let Some(deadline) = self.sent.map(|sent| sent + time) else { return false };
        let mut changes = cache.follow();
        while !self.stop.is_cancelled() && Instant::now() < deadline {
            let limit = options.call_limit().min(deadline - Instant::now());
            let refreshed = store.list(cache, limit).await;
            changes.catch_up();
            let now = Instant::now();
            match refreshed {
                Ok(_) if !self.is_ours() => return false,
                Ok(_) => {
                    health.clear_problem(&self.part);
                    match cache.rival(&options.identity, options.shards, now) {
                        None => return now < deadline,
                        Some(rival) if rival.shards < options.shards => return false,
                        Some(_) => {}
                    }
                }
                Err(error) => {
                    self.fail(&error);
                    sleep(options.short_pause()).await;
                    continue;
                }
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = changes.changed() => {}
                () = sleep_until(deadline) => {}
            }
        }
        false
    }

    /// Runs the work, and renews the Lease until the work returns.
    async fn serve(&mut self, acquisition: &Acquisition) -> Result<(), Loss> {
        let Fleet { options, health, serving, .. } = self.fleet;
        let valid_until = self.sent.map_or_else(Instant::now, |sent| sent + options.renew_deadline);
        let term = Term::new(self.shard, acquisition.transitions, self.stop.child_token(), valid_until);
        let _end = term.lost.clone().drop_guard();
        crate::sync::lock(serving).insert(self.shard, false);
        health.record_begin(HeldShard {
            shard: self.shard,
            since: Instant::now(),
            transitions: acquisition.transitions,
        });

        let mut task = AbortOnDropHandle::new(tokio::spawn((self.work)(term.clone())));
        let result = self.renew_until_end(acquisition, &term, &mut task).await;
        // Cancel before the Lease is released, and before any wait.
        term.lost.cancel();
        if let Err(loss) = &result {
            let why = match loss {
                Loss::Expired => format!("it could not be renewed for {:?}", options.renew_deadline),
                Loss::Taken => "another process holds it".to_owned(),
            };
            health.record_loss(self.shard, &why);
            if timeout(options.abort_grace(), &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
        }
        crate::sync::lock(serving).remove(&self.shard);
        health.record_end(self.shard);
        result
    }

    /// Renews the Lease until the work returns or the Lease is lost.
    async fn renew_until_end(
        &mut self,
        acquisition: &Acquisition,
        term: &Term,
        task: &mut AbortOnDropHandle<()>,
    ) -> Result<(), Loss> {
        let Fleet { cache, options, health, .. } = self.fleet;
        let mut changes = cache.follow();
        let mut next = self.due();
        loop {
            tokio::select! {
                biased;
                ended = &mut *task => {
                    if let Err(panic) = ended {
                        error!(shard = self.shard, "the work under the Lease crashed: {panic}");
                    }
                    return Ok(());
                }
                () = sleep_until(term.valid_until()) => return Err(Loss::Expired),
                () = sleep_until(next) => {
                    let begun = Instant::now();
                    match self.renew(acquisition, term).await {
                        Ok(()) => {
                            health.clear_problem(&self.part);
                            next = self.due();
                        }
                        Err(Ok(loss)) => return Err(loss),
                        Err(Err(error)) => {
                            self.fail(&error);
                            let (now, short) = (Instant::now(), options.short_pause());
                            // The time of a long attempt counts towards the pause.
                            let pause = short.max((2 * short).saturating_sub(now - begun));
                            // Honour the server's Retry-After, but make a last attempt before the term ends.
                            let left = term.valid_until().saturating_duration_since(now) / 2;
                            next = now + error.retry_after().unwrap_or(pause).min(left).max(pause);
                        }
                    }
                }
                () = changes.changed() => {
                    if self.confirm_write().is_some() {
                        self.extend(term)?;
                        health.clear_problem(&self.part);
                        next = self.due();
                    }
                    match cache.holder_identity(&self.name) {
                        Some(name) if name != options.identity => return Err(Loss::Taken),
                        Some(_) => {}
                        // The Lease was deleted: write it again soon.
                        None => next = next.min(Instant::now() + options.short_pause()),
                    }
                    self.consider_leaving(term);
                }
            }
        }
    }

    /// Asks the work to finish when another replica has too few shards.
    fn consider_leaving(&self, term: &Term) {
        if !term.leave.is_cancelled() && self.fleet.plan(Instant::now()).contains(&Action::Leave(self.shard)) {
            crate::sync::lock(&self.fleet.serving).insert(self.shard, true);
            term.leave.cancel();
        }
    }

    /// Renews the Lease while this replica holds it, whatever its current version.
    async fn renew(&mut self, acquisition: &Acquisition, term: &Term) -> Result<(), Result<Loss, CallError>> {
        let Fleet { cache, options, .. } = self.fleet;
        let mut result = Err(CallError::Conflict);
        for _ in 0..3 {
            let known = cache.known(&self.name);
            let lease = known.filter(|known| known.lease.is_some());
            if lease.as_ref().is_some_and(|known| known.spec.holder() != options.identity) {
                return Err(Ok(Loss::Taken));
            }
            let limit = self.limit(term);
            match self.write(lease.and_then(|known| known.lease).as_ref(), acquisition, limit).await {
                Ok(_) => return self.extend(term).map_err(Ok),
                Err(error @ (CallError::Conflict | CallError::AlreadyExists | CallError::NotFound)) => {
                    result = Err(error);
                    let refreshed = self.fleet.store.get(cache, &self.name, self.limit(term)).await;
                    refreshed.map_err(Err)?;
                    if self.confirm_write().is_some() {
                        return self.extend(term).map_err(Ok);
                    }
                }
                Err(error) => return Err(Err(error)),
            }
        }
        result.map_err(Err)
    }

    /// Returns when the next renewal is to be sent.
    fn due(&self) -> Instant {
        self.sent.map_or_else(Instant::now, |sent| sent + self.fleet.options.retry_period)
    }

    /// Extends the term according to the last renewal.
    fn extend(&self, term: &Term) -> Result<(), Loss> {
        let until = self.sent.map(|sent| sent + self.fleet.options.renew_deadline);
        if until.is_some_and(|until| term.extend(until)) { Ok(()) } else { Err(Loss::Expired) }
    }

    fn limit(&self, term: &Term) -> Duration {
        self.fleet.options.call_limit().min(term.valid_until().saturating_duration_since(Instant::now()))
    }

    /// Releases the Lease, so that others can acquire it at once.
    async fn release(&mut self, acquisition: Option<&Acquisition>) {
        let Fleet { cache, options, store, health, .. } = self.fleet;
        let start = Instant::now();
        while self.is_ours() && start.elapsed() < options.renew_deadline {
            let Some(known) = cache.known(&self.name) else { return };
            let draft = Draft {
                holder: "",
                duration: Duration::from_secs(1),
                now: store.now(),
                acquired: None,
                transitions: acquisition.map_or(known.spec.transitions(), |acquisition| acquisition.transitions),
                member: false,
            };
            match store.write(cache, &self.name, known.lease.as_ref(), draft, options.call_limit()).await {
                Ok(_) => {
                    health.clear_problem(&self.part);
                    return;
                }
                Err(CallError::Conflict | CallError::NotFound) => {}
                Err(error) => {
                    self.fail(&error);
                    sleep(options.short_pause()).await;
                }
            }
            let _ = self.refresh().await;
        }
    }

    async fn refresh(&self) -> Result<(), CallError> {
        self.fleet.store.get(&self.fleet.cache, &self.name, self.fleet.options.call_limit()).await
    }

    /// Writes this replica into the Lease as its holder; returns its `acquireTime`.
    async fn write(
        &mut self,
        base: Option<&super::record::Lease>,
        acquisition: &Acquisition,
        limit: Duration,
    ) -> Result<Option<String>, CallError> {
        let Fleet { cache, options, store, .. } = self.fleet;
        let (sent, now) = (Instant::now(), store.now());
        self.unanswered.push((now.clone(), sent));
        let draft = Draft {
            holder: &options.identity,
            duration: options.duration,
            now,
            acquired: acquisition.acquired.clone(),
            transitions: acquisition.transitions,
            member: false,
        };
        match store.write(cache, &self.name, base, draft, limit).await {
            Ok(acquired) => {
                self.sent = Some(sent);
                self.unanswered.clear();
                Ok(acquired)
            }
            Err(error) => Ok(self.confirm_write().ok_or(error)?.acquire_time),
        }
    }

    /// Returns the Lease's record if its last write is an unanswered write of this replica. The renewal counts from the
    /// time when that write was sent, however it was observed.
    fn confirm_write(&mut self) -> Option<Spec> {
        if self.unanswered.is_empty() {
            return None;
        }
        let Fleet { cache, options, .. } = self.fleet;
        let spec = cache.known(&self.name)?.spec;
        let is_this = |(now, _): &(String, Instant)| spec.renew_time.as_ref() == Some(now);
        let at = self.unanswered.iter().position(is_this).filter(|_| spec.holder() == options.identity)?;
        self.sent = self.unanswered.drain(..=at).next_back().map(|(_, sent)| sent);
        Some(spec)
    }
}
