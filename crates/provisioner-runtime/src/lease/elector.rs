//! One shard: waits for it, holds it, lets go of it.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

use super::balance::Action;
use super::options::JITTER;
use super::record::{Spec, next_transition};
use super::store::Draft;
use super::term::Term;
use super::{Fleet, Held};
use crate::CallError;
use crate::backoff::Random;

pub(super) struct Elector<'a, D> {
    fleet: &'a Fleet,
    shard: u32,
    /// The name of the Lease.
    name: String,
    /// What the Lease is called in texts.
    part: String,
    stop: &'a CancellationToken,
    duty: &'a D,
    random: Random,
    /// When the last write was sent that made the Lease ours, or kept it so.
    sent: Option<Instant>,
    /// Writes after that of which nobody knows what came of them: the time in each, and when it was sent.
    tried: Vec<(String, Instant)>,
}

/// A Lease that is ours.
struct Tenure {
    transitions: u32,
    acquired: Option<String>,
}

/// Why a Lease is not ours any more.
enum Loss {
    /// Nobody answered in time.
    Expired,
    /// Somebody else's identity is in it.
    Taken,
}

impl<'a, D, F> Elector<'a, D>
where
    D: Fn(Term) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    pub(super) fn new(fleet: &'a Fleet, shard: u32, stop: &'a CancellationToken, duty: &'a D) -> Self {
        let name = fleet.options.shard_name(shard);
        let random = fleet.options.environment.random(&format!("lease {shard}"));
        let part = format!("Lease {name}");
        Self { fleet, shard, name, part, stop, duty, random, sent: None, tried: Vec::new() }
    }

    /// Until the replica stops and the Lease is released.
    pub(super) async fn run(mut self) {
        while self.turn().await {
            let mut asked = None;
            match self.acquire().await {
                Ok(Some(tenure)) => {
                    self.fleet.health.works(&self.part);
                    self.hold(tenure).await;
                }
                // The others' Leases tell when it is worthwhile again.
                Ok(None) if !self.is_ready(Instant::now()) => continue,
                Ok(None) => {}
                Err(error) => {
                    asked = error.retry_after();
                    self.fleet.health.fails(&self.part, error.to_string());
                    // It may have happened all the same.
                    let _ = self.look().await;
                }
            }
            let pause = self.fleet.options.retry_period.mul_f64(1.0 + JITTER * self.random.next());
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = sleep(pause.max(asked.unwrap_or(Duration::ZERO))) => {}
            }
        }
        // Won without our knowing?
        if self.is_ours() {
            self.release(None).await;
        }
        self.fleet.health.waits(&self.part, None);
    }

    /// Waits until the Lease may be taken; `false` when the replica stops.
    async fn turn(&self) -> bool {
        let mut changes = self.fleet.cache.follow();
        let mut known = None;
        while !self.stop.is_cancelled() {
            let now = Instant::now();
            if self.is_ready(now) {
                return true;
            }
            let holder = self.fleet.cache.name_in(&self.name).filter(|holder| !holder.is_empty());
            if let Some(holder) = holder.as_ref().filter(|_| holder != known) {
                tracing::info!(lease = self.name, holder, "standing by: another replica does the work");
            }
            known = holder;
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
        health.waits(&self.part, notice);
        rival.is_none() && (self.is_ours() || self.fleet.plan(now).contains(&Action::Acquire(self.shard)))
    }

    fn is_ours(&self) -> bool {
        self.fleet.cache.name_in(&self.name).as_ref() == Some(&self.fleet.options.identity)
    }

    /// One attempt; `None` when somebody was faster.
    async fn acquire(&mut self) -> Result<Option<Tenure>, CallError> {
        let Fleet { cache, options, .. } = self.fleet;
        // What is decided here, and what is changed then, is one and the same version.
        let (known, now) = (cache.known(&self.name), Instant::now());
        let ours = known.as_ref().is_some_and(|known| known.spec.holder() == options.identity);
        if !ours && known.as_ref().is_some_and(|known| known.is_held(now)) {
            return Ok(None);
        }
        // Nobody can have found that it had run out, or that it was not there.
        let unbroken = self.is_ours() && self.sent.is_some_and(|sent| now < sent + options.duration);
        let (lease, spec, most) =
            known.map_or((None, None, None), |known| (known.lease, Some(known.spec), Some(known.most)));
        let tenure = match spec {
            Some(spec) if unbroken => Tenure { transitions: spec.transitions(), acquired: spec.acquire_time },
            _ => Tenure { transitions: most.map_or(0, next_transition), acquired: None },
        };
        // What came of those was for another tenure.
        self.tried.clear();
        match self.write(lease.as_ref(), &tenure, options.call_limit()).await {
            Ok(acquired) => Ok(Some(Tenure { acquired, ..tenure })),
            Err(CallError::Conflict | CallError::AlreadyExists | CallError::NotFound) => {
                self.look().await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The Lease is ours, for one term at most.
    async fn hold(&mut self, tenure: Tenure) {
        if self.is_alone().await && self.serve(&tenure).await.is_err() {
            return;
        }
        self.release(Some(&tenure)).await;
    }

    /// Whether no fleet with another number of shards is alive.
    ///
    /// We have written ours, and look at theirs now; if they do the same, at least one of us sees the other. When both
    /// have only begun, the one with more shards steps back.
    async fn is_alone(&self) -> bool {
        let Fleet { cache, options, store, health, .. } = self.fleet;
        // With time enough for one attempt to renew.
        let time = options.renew_deadline - options.call_limit();
        let Some(deadline) = self.sent.map(|sent| sent + time) else { return false };
        let mut changes = cache.follow();
        while !self.stop.is_cancelled() && Instant::now() < deadline {
            let limit = options.call_limit().min(deadline - Instant::now());
            let looked = store.look_at_all(cache, limit).await;
            changes.catch_up();
            let now = Instant::now();
            match looked {
                Ok(_) if !self.is_ours() => return false,
                Ok(_) => {
                    health.works(&self.part);
                    match cache.rival(&options.identity, options.shards, now) {
                        None => return now < deadline,
                        Some(rival) if rival.shards < options.shards => return false,
                        Some(_) => {}
                    }
                }
                Err(error) => {
                    health.fails(&self.part, error.to_string());
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

    /// Runs the duty, and renews the Lease until it returns.
    async fn serve(&mut self, tenure: &Tenure) -> Result<(), Loss> {
        let Fleet { options, health, serving, .. } = self.fleet;
        let valid_until = self.sent.map_or_else(Instant::now, |sent| sent + options.renew_deadline);
        let term = Term::new(self.shard, tenure.transitions, self.stop.child_token(), valid_until);
        let _end = term.lost.clone().drop_guard();
        crate::lock(serving).insert(self.shard, false);
        health.begins(Held { shard: self.shard, since: Instant::now(), transitions: tenure.transitions });

        let mut task = AbortOnDropHandle::new(tokio::spawn((self.duty)(term.clone())));
        let result = self.attend(tenure, &term, &mut task).await;
        // Before the Lease is released, and before anything is waited for.
        term.lost.cancel();
        if let Err(loss) = &result {
            let why = match loss {
                Loss::Expired => format!("it could not be renewed for {:?}", options.renew_deadline),
                Loss::Taken => "somebody else is in it".to_owned(),
            };
            health.loses(self.shard, &why);
            if timeout(options.moment(), &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
        }
        crate::lock(serving).remove(&self.shard);
        health.ends(self.shard);
        result
    }

    /// Until the duty returns or the Lease is lost.
    async fn attend(&mut self, tenure: &Tenure, term: &Term, task: &mut AbortOnDropHandle<()>) -> Result<(), Loss> {
        let Fleet { cache, options, health, .. } = self.fleet;
        let mut changes = cache.follow();
        let mut next = self.due();
        loop {
            tokio::select! {
                biased;
                ended = &mut *task => {
                    if let Err(panic) = ended {
                        error!(shard = self.shard, "the work under the Lease broke off: {panic}");
                    }
                    return Ok(());
                }
                () = sleep_until(term.valid_until()) => return Err(Loss::Expired),
                () = sleep_until(next) => {
                    let begun = Instant::now();
                    match self.renew(tenure, term).await {
                        Ok(()) => {
                            health.works(&self.part);
                            next = self.due();
                        }
                        Err(Ok(loss)) => return Err(loss),
                        Err(Err(error)) => {
                            health.fails(&self.part, error.to_string());
                            let (now, short) = (Instant::now(), options.short_pause());
                            // An attempt that took long was a part of the pause.
                            let pause = short.max((2 * short).saturating_sub(now - begun));
                            // The server's wish counts, but the last attempt must be before the end.
                            let left = term.valid_until().saturating_duration_since(now) / 2;
                            next = now + error.retry_after().unwrap_or(pause).min(left).max(pause);
                        }
                    }
                }
                () = changes.changed() => {
                    if self.has_happened().is_some() {
                        self.extend(term)?;
                        health.works(&self.part);
                        next = self.due();
                    }
                    match cache.name_in(&self.name) {
                        Some(name) if name != options.identity => return Err(Loss::Taken),
                        Some(_) => {}
                        // Deleted: it is to be there again soon.
                        None => next = next.min(Instant::now() + options.short_pause()),
                    }
                    self.consider_leaving(term);
                }
            }
        }
    }

    /// Asks the duty to wind up when another replica has too few shards.
    fn consider_leaving(&self, term: &Term) {
        if !term.leave.is_cancelled() && self.fleet.plan(Instant::now()).contains(&Action::Leave(self.shard)) {
            crate::lock(&self.fleet.serving).insert(self.shard, true);
            term.leave.cancel();
        }
    }

    /// Renews the Lease, whatever the version it has now, as long as it is ours.
    async fn renew(&mut self, tenure: &Tenure, term: &Term) -> Result<(), Result<Loss, CallError>> {
        let Fleet { cache, options, .. } = self.fleet;
        let mut result = Err(CallError::Conflict);
        for _ in 0..3 {
            let known = cache.known(&self.name);
            let lease = known.filter(|known| known.lease.is_some());
            if lease.as_ref().is_some_and(|known| known.spec.holder() != options.identity) {
                return Err(Ok(Loss::Taken));
            }
            let limit = self.limit(term);
            match self.write(lease.and_then(|known| known.lease).as_ref(), tenure, limit).await {
                Ok(_) => return self.extend(term).map_err(Ok),
                Err(error @ (CallError::Conflict | CallError::AlreadyExists | CallError::NotFound)) => {
                    result = Err(error);
                    let looked = self.fleet.store.look(cache, &self.name, self.limit(term)).await;
                    looked.map_err(Err)?;
                    if self.has_happened().is_some() {
                        return self.extend(term).map_err(Ok);
                    }
                }
                Err(error) => return Err(Err(error)),
            }
        }
        result.map_err(Err)
    }

    /// When the next renewal is to be sent.
    fn due(&self) -> Instant {
        self.sent.map_or_else(Instant::now, |sent| sent + self.fleet.options.retry_period)
    }

    /// Makes the term as long as the last renewal allows.
    fn extend(&self, term: &Term) -> Result<(), Loss> {
        let until = self.sent.map(|sent| sent + self.fleet.options.renew_deadline);
        if until.is_some_and(|until| term.extend(until)) { Ok(()) } else { Err(Loss::Expired) }
    }

    fn limit(&self, term: &Term) -> Duration {
        self.fleet.options.call_limit().min(term.valid_until().saturating_duration_since(Instant::now()))
    }

    /// Lets go of the Lease, for others to take at once.
    async fn release(&mut self, tenure: Option<&Tenure>) {
        let Fleet { cache, options, store, health, .. } = self.fleet;
        let start = Instant::now();
        while self.is_ours() && start.elapsed() < options.renew_deadline {
            let Some(known) = cache.known(&self.name) else { return };
            let draft = Draft {
                holder: "",
                duration: Duration::from_secs(1),
                now: store.now(),
                acquired: None,
                transitions: tenure.map_or(known.spec.transitions(), |tenure| tenure.transitions),
                member: false,
            };
            match store.write(cache, &self.name, known.lease.as_ref(), draft, options.call_limit()).await {
                Ok(_) => {
                    health.works(&self.part);
                    return;
                }
                Err(CallError::Conflict | CallError::NotFound) => {}
                Err(error) => {
                    health.fails(&self.part, error.to_string());
                    sleep(options.short_pause()).await;
                }
            }
            let _ = self.look().await;
        }
    }

    async fn look(&self) -> Result<(), CallError> {
        self.fleet.store.look(&self.fleet.cache, &self.name, self.fleet.options.call_limit()).await
    }

    /// Writes that the Lease is ours; the time since when it is.
    async fn write(
        &mut self,
        base: Option<&super::record::Lease>,
        tenure: &Tenure,
        limit: Duration,
    ) -> Result<Option<String>, CallError> {
        let Fleet { cache, options, store, .. } = self.fleet;
        let (sent, now) = (Instant::now(), store.now());
        self.tried.push((now.clone(), sent));
        let draft = Draft {
            holder: &options.identity,
            duration: options.duration,
            now,
            acquired: tenure.acquired.clone(),
            transitions: tenure.transitions,
            member: false,
        };
        match store.write(cache, &self.name, base, draft, limit).await {
            Ok(acquired) => {
                self.sent = Some(sent);
                self.tried.clear();
                Ok(acquired)
            }
            Err(error) => Ok(self.has_happened().ok_or(error)?.acquire_time),
        }
    }

    /// What the Lease says if it was ourselves who wrote it last, by a write whose answer was lost or is late: that counts
    /// from when it was sent, whoever told of it.
    fn has_happened(&mut self) -> Option<Spec> {
        if self.tried.is_empty() {
            return None;
        }
        let Fleet { cache, options, .. } = self.fleet;
        let spec = cache.known(&self.name)?.spec;
        let is_this = |(now, _): &(String, Instant)| spec.renew_time.as_ref() == Some(now);
        let at = self.tried.iter().position(is_this).filter(|_| spec.holder() == options.identity)?;
        self.sent = self.tried.drain(..=at).next_back().map(|(_, sent)| sent);
        Some(spec)
    }
}
