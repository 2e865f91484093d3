//! State shared by all parts of one run: the cluster, the judge, the backend, and the boundary between storm and calm.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use kube_sim::{Cluster, Request};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::backend::{Asset, AssetStage};
use crate::judge::{Invariant, Judge, Kind, index};
use crate::plan::{Backend, Nature, Plan};
use crate::process::{Process, ProcessEnvironment};

pub(crate) struct Stage {
    pub(crate) plan: Arc<Plan>,
    start: Instant,
    calm: AtomicBool,
    /// True if the trace is recorded.
    traced: bool,
    cluster: Mutex<Option<Cluster>>,
    judge: OnceLock<Mutex<Judge>>,
    random: Mutex<fastrand::Rng>,
    /// Notified after each step of the backend and each change of the store.
    pub(crate) moved: Notify,
    /// The stage of the other cluster on the same backend.
    neighbour: OnceLock<Weak<Stage>>,
    /// True if journals were restored, which name former holders.
    old_journals: AtomicBool,
}

impl Stage {
    pub(crate) fn new(plan: Arc<Plan>, traced: bool) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            calm: AtomicBool::new(false),
            traced,
            cluster: Mutex::default(),
            judge: OnceLock::new(),
            random: Mutex::new(fastrand::Rng::with_seed(plan.seed)),
            moved: Notify::new(),
            neighbour: OnceLock::new(),
            old_journals: AtomicBool::new(false),
            plan,
        })
    }

    /// Records that journals are restored.
    pub(crate) fn restore_journals(&self) {
        self.old_journals.store(true, Ordering::Relaxed);
    }

    /// Returns true if a process may find its journal held by another one.
    pub(crate) fn has_old_journals(&self) -> bool {
        self.old_journals.load(Ordering::Relaxed)
    }

    /// Connects the stage to another cluster that uses the same backend.
    pub(crate) fn connect(&self, neighbour: &Arc<Self>) {
        // It is set once per run.
        let _ = self.neighbour.set(Arc::downgrade(neighbour));
    }

    /// Adds the cluster and its judge.
    pub(crate) fn attach_cluster(&self, cluster: &Cluster, judge: Judge) {
        *lock(&self.cluster) = Some(cluster.clone());
        // It is set once per run.
        let _ = self.judge.set(Mutex::new(judge));
    }

    /// Breaks a reference cycle: the cluster holds the edges of its processes, which hold the stage.
    pub(crate) fn clear(&self) {
        *lock(&self.cluster) = None;
    }

    /// Ends the faults.
    pub(crate) fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
        self.note(|| "the storm is over".to_owned());
        self.moved.notify_waiters();
    }

    /// Waits until the faults have ended.
    pub(crate) async fn until_calm(&self) {
        loop {
            let moved = self.moved.notified();
            if self.is_calm() {
                return;
            }
            moved.await;
        }
    }

    /// The judge, with all observations so far.
    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        let judge = self.judge.get().expect("furnished before anything begins");
        lock(judge)
    }

    /// Records that a request was handled.
    pub(crate) fn answered(&self, process: &Process, request: &Request, code: u16) {
        self.judge().answered(self.now(), process, request, code);
        self.moved.notify_waiters();
    }

    /// Draws the random choices for one call of the author's code.
    pub(crate) fn script(&self) -> (fastrand::Rng, Backend, bool) {
        (lock(&self.random).fork(), self.plan.backend.clone(), self.is_calm())
    }

    /// Returns true if calls about this class hang.
    pub(crate) fn hangs(&self, class: &str) -> bool {
        let class = class.strip_prefix("class-").and_then(|index| index.parse::<usize>().ok());
        class.and_then(|index| self.plan.classes.get(index)).is_some_and(|class| class.hangs) && !self.is_calm()
    }

    pub(crate) fn nature(&self, claim: &str) -> Nature {
        // The other cluster may have had more claims.
        let planned = index(claim).and_then(|index| self.plan.claims.get(index));
        planned.map_or(Nature::Good, |claim| claim.nature)
    }

    /// Begins a call of the author's code. If the call is dropped before its end, it was cut off.
    pub(crate) fn begin(self: &Arc<Self>, process: &Arc<Process>, kind: Kind, name: &str) -> Call {
        if let Some(neighbour) = self.neighbour.get().and_then(Weak::upgrade) {
            neighbour.judge().check_foreign_call(neighbour.now(), &process.name, kind, name);
            neighbour.moved.notify_waiters();
        }
        let number = self.judge().begin(self.now(), process, kind, name);
        self.note(|| format!("{}: {} {name} is called", process.name, kind.name()));
        self.moved.notify_waiters();
        let call = CallName { process: process.name.clone(), kind, name: name.to_owned() };
        Call { stage: self.clone(), number, call, ended: false }
    }

    pub(crate) fn asset(&self, name: &str) -> Option<Asset> {
        self.judge().assets.get(name).cloned()
    }

    /// The asset with this number, and its name.
    pub(crate) fn asset_by_number(&self, number: &str) -> Option<(String, Asset)> {
        let judge = self.judge();
        let found = judge.assets.iter().find(|(_, asset)| asset.number.to_string() == number);
        found.map(|(name, asset)| (name.clone(), asset.clone()))
    }

    pub(crate) fn allocate(&self, process: &Process, name: &str, claim: &str, stage: AssetStage) {
        self.judge().allocate(self.now(), name, claim, stage);
        self.stepped(&process.name, name, format_args!("{stage:?}"));
    }

    pub(crate) fn advance(&self, process: &Process, name: &str, stage: AssetStage) {
        self.judge().advance(self.now(), name, stage);
        self.stepped(&process.name, name, format_args!("{stage:?}"));
    }

    pub(crate) fn grow(&self, process: &Process, name: &str, bytes: u64) {
        self.judge().grow(self.now(), name, bytes);
        self.stepped(&process.name, name, format_args!("at least {bytes} bytes large"));
    }

    /// Removes the asset, as `delete` does.
    pub(crate) fn remove(&self, process: &Process, name: &str) {
        self.judge().remove(self.now(), name, true);
        self.stepped(&process.name, name, format_args!("removed"));
    }

    /// Performs the first half of `clean_up`.
    pub(crate) fn undo(&self, process: &Process, name: &str) {
        self.judge().undo(self.now(), name);
        self.stepped(&process.name, name, format_args!("half cleaned up"));
    }

    /// Removes all leftovers, as `clean_up` does, or a `provision` that reports that nothing is left.
    pub(crate) fn clean_up(&self, process: &Process, name: &str) {
        self.judge().remove(self.now(), name, false);
        self.stepped(&process.name, name, format_args!("cleaned up"));
    }

    /// Completes an asset in the background, unless it is removed before.
    pub(crate) fn complete_in_background(self: &Arc<Self>, name: &str, after: Duration) {
        let Some(number) = self.asset(name).map(|asset| asset.number) else { return };
        let (stage, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            sleep(after).await;
            let same = |asset: &Asset| asset.number == number && asset.stage < AssetStage::Exported;
            if stage.asset(&name).as_ref().is_some_and(same) {
                stage.judge().advance(stage.now(), &name, AssetStage::Exported);
                stage.stepped("backend", &name, format_args!("Exported"));
            }
        });
    }

    fn stepped(&self, who: &str, name: &str, what: fmt::Arguments<'_>) {
        self.note(|| format!("{who}: the asset of {name} is {what}"));
        self.moved.notify_waiters();
    }
}

impl ProcessEnvironment for Stage {
    fn note(&self, text: impl FnOnce() -> String) {
        if self.traced
            && let Some(cluster) = &*lock(&self.cluster)
        {
            cluster.note(text());
        }
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn report_violation(&self, invariant: Invariant, seen: String) {
        self.judge().report_violation(self.now(), invariant, seen);
        self.moved.notify_waiters();
    }
}

/// A call of the author's code.
pub(crate) struct Call {
    stage: Arc<Stage>,
    number: u64,
    call: CallName,
    ended: bool,
}

struct CallName {
    process: String,
    kind: Kind,
    name: String,
}

impl Call {
    pub(crate) fn end(mut self, how: fmt::Arguments<'_>) {
        self.ended = true;
        self.note_outcome(how);
    }

    fn note_outcome(&self, what: fmt::Arguments<'_>) {
        let CallName { process, kind, name } = &self.call;
        self.stage.note(|| format!("{process}: {} {name} {what}", kind.name()));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.note_outcome(format_args!("is cut off"));
        }
        self.stage.judge().end(self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
