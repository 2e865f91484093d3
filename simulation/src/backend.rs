//! The backend that all replicas share, and the author's code that calls it.
//!
//! The author's code fulfils the contract of [`kube_provisioner::Provisioner`]: calls are idempotent by the volume's
//! name, and a call that reports that nothing is left has removed everything. After any other failure, the next call
//! completes the asset, or `clean_up` or `delete` removes it.

mod author;
mod sidecar;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kube_provisioner::{DeleteError, ExpandError, ProvisionError, Volume};
use tokio::time::sleep;

pub(crate) use self::author::{Plain, Whole, on_stage};
pub(crate) use self::sidecar::{DRIVER, Sidecar};
use crate::plan::{Backend as Chances, Edge};
use crate::process::Process;
use crate::stage::Stage;

/// The asset that the backend holds for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asset {
    /// Distinguishes the asset from earlier ones with the same name.
    pub(crate) number: u64,
    /// The uid of the claim that the asset was created for; empty for an asset of another owner.
    pub(crate) claim: String,
    pub(crate) stage: AssetStage,
    /// In bytes.
    pub(crate) size: u64,
}

impl Asset {
    pub(crate) fn is_foreign(&self) -> bool {
        self.claim.is_empty()
    }
}

/// The progress of an asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AssetStage {
    /// The backend will create it in the background.
    Ordered,
    Allocated,
    Filled,
    /// Complete.
    Exported,
    /// Partly removed.
    Fading,
}

impl AssetStage {
    fn next(self) -> Self {
        match self {
            Self::Ordered => Self::Allocated,
            Self::Allocated => Self::Filled,
            _ => Self::Exported,
        }
    }
}

/// The author's code in one process.
pub(crate) struct Author {
    process: Arc<Process>,
    stage: Arc<Stage>,
    /// True once `start` has succeeded.
    started: AtomicBool,
}

/// The random choices for one call.
struct Script {
    random: fastrand::Rng,
    chances: Chances,
    calm: bool,
    /// True if calls for this class hang.
    hangs: bool,
    /// The step at which the call fails, and the way in which it fails.
    turn: Option<(u32, Turn)>,
    passed: u32,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Fail,
    Break,
    Reschedule,
    Leave,
    Background,
    Panic,
    Overrun,
}

impl Script {
    fn draw(stage: &Stage, class: &str) -> Self {
        let (mut random, chances, calm) = stage.script();
        let turns = [
            (chances.fails, Turn::Fail),
            (chances.breaks, Turn::Break),
            (chances.reschedules, Turn::Reschedule),
            (chances.leaves, Turn::Leave),
            (chances.background, Turn::Background),
            (chances.panics, Turn::Panic),
            (chances.overruns, Turn::Overrun),
        ];
        let mut left = random.f64();
        let turn = turns.into_iter().find(|(chance, _)| {
            left -= chance;
            left < 0.0
        });
        let turn = turn.filter(|_| !calm).map(|(_, turn)| (random.u32(0..4), turn));
        Self { random, chances, calm, hangs: stage.hangs(class), turn, passed: 0 }
    }

    fn delay(&mut self) -> Duration {
        let (usual, slow) = (self.chances.step.as_secs_f64(), self.random.f64() < self.chances.slow);
        let longest = if slow && !self.calm { usual * 10.0 + 1.0 } else { usual };
        // Half of all steps take no time at all.
        let time = longest * (self.random.f64() - 0.5).max(0.0) * 2.0;
        Duration::from_micros((time * 1e6) as u64)
    }
}

impl Author {
    pub(crate) fn new(process: Arc<Process>, stage: Arc<Stage>) -> Self {
        Self { process, stage, started: AtomicBool::new(false) }
    }

    /// Waits as long as a step takes. Faults of the process take effect during this wait.
    async fn wait(&self, script: &mut Script) -> Option<Turn> {
        if script.hangs {
            self.stage.until_calm().await;
        }
        let delay = script.delay();
        if !delay.is_zero() {
            sleep(delay).await;
        }
        self.process.pass(Edge::Step).await;
        let turn = script.turn.filter(|(step, _)| *step == script.passed).map(|(_, turn)| turn);
        script.passed += 1;
        match turn {
            Some(Turn::Panic) => panics(),
            Some(Turn::Overrun) => std::future::pending().await,
            other => other,
        }
    }

    async fn make(&self, name: &str, claim: &str, class: &str) -> Result<Volume, ProvisionError> {
        let mut script = Script::draw(&self.stage, class);
        loop {
            if let Some(turn) = self.wait(&mut script).await {
                return Err(self.give_up(name, claim, turn, &mut script).await);
            }
            let asset = self.stage.asset(name);
            if asset.as_ref().is_some_and(Asset::is_foreign) {
                return Err(ProvisionError::invalid("it belongs to another owner"));
            }
            match asset.map(|asset| (asset.number, asset.stage)) {
                Some((number, AssetStage::Exported)) => return Ok(Volume::nfs("server", format!("/exports/{number}"))),
                Some((_, AssetStage::Ordered)) => return Err(in_progress("it is on its way")),
                Some((_, AssetStage::Fading)) => return Err(ProvisionError::retry("it is being removed")),
                Some((_, stage)) => self.stage.advance(&self.process, name, stage.next()),
                None => self.stage.allocate(&self.process, name, claim, AssetStage::Allocated),
            }
            self.process.pass(Edge::Step).await;
        }
    }

    async fn give_up(&self, name: &str, claim: &str, turn: Turn, script: &mut Script) -> ProvisionError {
        let asset = self.stage.asset(name);
        let whole = asset.as_ref().is_some_and(|asset| asset.stage == AssetStage::Exported);
        match turn {
            Turn::Background if !whole => {
                if asset.is_none() {
                    self.stage.allocate(&self.process, name, claim, AssetStage::Ordered);
                }
                let after = Duration::from_millis(script.random.u64(0..15_000));
                self.stage.complete_in_background(name, after);
                self.process.pass(Edge::Step).await;
                in_progress("the backend is at it")
            }
            Turn::Fail | Turn::Reschedule if !whole => {
                if asset.is_some() {
                    self.stage.clean_up(&self.process, name);
                    self.process.pass(Edge::Step).await;
                }
                match turn {
                    Turn::Reschedule => ProvisionError::reschedule("there is no room on this node"),
                    _ => ProvisionError::nothing_left("the backend has a bad day"),
                }
            }
            Turn::Break => ProvisionError::retry("the backend does not answer"),
            _ => in_progress("something is left behind"),
        }
    }

    async fn remove(&self, name: &str, class: &str) -> Result<(), DeleteError> {
        let mut script = Script::draw(&self.stage, class);
        loop {
            refused(self.wait(&mut script).await)?;
            match self.own_asset(name) {
                None => return Ok(()),
                Some(AssetStage::Fading) => self.stage.remove(&self.process, name),
                Some(_) => self.stage.advance(&self.process, name, AssetStage::Fading),
            }
            self.process.pass(Edge::Step).await;
        }
    }

    /// Same as [`Self::remove`], but a partly removed asset can be completed again.
    async fn undo(&self, name: &str, class: &str) -> Result<(), DeleteError> {
        let mut script = Script::draw(&self.stage, class);
        loop {
            refused(self.wait(&mut script).await)?;
            match self.own_asset(name) {
                None => return Ok(()),
                Some(AssetStage::Filled | AssetStage::Exported) => self.stage.undo(&self.process, name),
                Some(_) => self.stage.clean_up(&self.process, name),
            }
            self.process.pass(Edge::Step).await;
        }
    }

    async fn grow(&self, name: &str, class: &str, bytes: u64) -> Result<(), ExpandError> {
        let mut script = Script::draw(&self.stage, class);
        for step in 0..2 {
            match self.wait(&mut script).await {
                None => {}
                Some(Turn::Reschedule) if step == 0 => return Err(ExpandError::infeasible("the pool is too small")),
                Some(Turn::Leave | Turn::Background) => return Err(ExpandError::in_progress("the backend is at it")),
                Some(_) => return Err(ExpandError::retry("the backend has a bad day")),
            }
            match self.stage.asset(name) {
                Some(asset) if asset.stage == AssetStage::Exported && !asset.is_foreign() => {
                    self.stage.grow(&self.process, name, bytes);
                }
                asset => return Err(ExpandError::retry(format!("it is {:?}", asset.map(|asset| asset.stage)))),
            }
            self.process.pass(Edge::Step).await;
        }
        Ok(())
    }

    /// Returns the stage of an asset, unless it belongs to another owner.
    fn own_asset(&self, name: &str) -> Option<AssetStage> {
        self.stage.asset(name).filter(|asset| !asset.is_foreign()).map(|asset| asset.stage)
    }

    async fn allow(&self, class: &str) -> Result<(), DeleteError> {
        let mut script = Script::draw(&self.stage, class);
        refused(self.wait(&mut script).await)
    }
}

/// Returns the error of a call that fails to remove an asset.
fn refused(turn: Option<Turn>) -> Result<(), DeleteError> {
    match turn {
        None => Ok(()),
        Some(Turn::Leave) => Err(DeleteError::in_use("somebody uses it")),
        Some(Turn::Background) => Err(DeleteError::in_progress("the backend is at it")),
        Some(_) => Err(DeleteError::retry("the backend has a bad day")),
    }
}

/// Does not use `panic!`, so that the panic hook does not run.
fn panics() -> ! {
    std::panic::resume_unwind(Box::new("the author's code panics"))
}

fn in_progress(why: &str) -> ProvisionError {
    ProvisionError::in_progress(why.to_owned())
}
