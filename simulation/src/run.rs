//! One run, from its plan to what was seen.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{join_all, select_all};
use kube_provisioner::Safeguard;
use kube_provisioner::bucket::BucketSafeguard;

use crate::backend::on_stage;
use crate::judge::{Invariant, Violation};
use crate::logs;
use crate::panics;
use crate::plan::Plan;
use crate::process::Surroundings;
use crate::worlds::{self, World, accused};

/// How a run is to be run.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// What is traced.
    pub trace: Trace,
    /// What is not checked.
    pub ignored: BTreeSet<Invariant>,
    /// What is left out of the controller, to see that it is missed.
    pub without: Option<Safeguard>,
    /// The same for the controller of buckets.
    pub without_bucket: Option<BucketSafeguard>,
    /// Which controller is simulated.
    pub subject: Subject,
}

/// Which controller is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// That of volumes.
    #[default]
    Volumes,
    /// That of volumes, with a CSI driver whose volumes only some nodes can use.
    Topology,
    /// That of buckets.
    Buckets,
}

/// Runs one seed.
pub fn run_seed(seed: u64, manner: &Manner) -> Outcome {
    match manner.subject {
        Subject::Volumes => run(&Plan::draw(seed), manner),
        Subject::Topology => run(&Plan::draw_with_topology(seed), manner),
        Subject::Buckets => crate::buckets::run(seed, manner),
    }
}

/// What is traced of a run. It costs time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// Nothing.
    #[default]
    Off,
    /// The requests to the API server, and what came of each.
    Requests,
    /// Also what the controllers log, and what happens to their processes.
    Full,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// How much time passed in the simulation.
    pub simulated: Duration,
    /// Who did what when, as far as it was to be traced.
    pub trace: String,
}

/// Runs a plan.
pub fn run(plan: &Plan, manner: &Manner) -> Outcome {
    in_runtime(perform(plan, manner))
}

/// Performs something in a runtime of its own, under a clock that waits for nobody.
pub(crate) fn in_runtime(performance: impl Future<Output = Outcome>) -> Outcome {
    let (outcome, panic) = panics::watched(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime without a driver needs nothing from the system").block_on(performance)
    });
    let mut outcome = outcome.unwrap_or_default();
    // What panics is missed by what comes after it.
    if let Some(panic) = panic {
        let (invariant, at) = (Invariant::Alive, outcome.simulated);
        outcome.violation = Some(Violation { invariant, at, seen: format!("something panicked: {panic}") });
    }
    outcome
}

async fn perform(plan: &Plan, manner: &Manner) -> Outcome {
    let worlds = worlds::of(plan, manner);
    on_stage(&worlds[0].stage);
    let _logs = (manner.trace == Trace::Full).then(|| {
        let stage = worlds[0].stage.clone();
        logs::into_trace(move |line| stage.note(|| line.clone()))
    });
    tokio::select! {
        biased;
        _ = select_all(worlds.iter().map(|world| accused(&world.stage).boxed_local())) => {}
        _ = join_all(worlds.iter().map(World::pass)) => {}
    }
    let violation = worlds.iter().find_map(World::verdict);
    let trace = match manner.trace {
        Trace::Off => String::new(),
        _ => worlds.iter().map(|world| world.cluster.trace()).collect::<Vec<_>>().join("\n"),
    };
    let outcome = Outcome { violation, simulated: worlds[0].stage.now(), trace };
    worlds.into_iter().for_each(World::end);
    outcome
}
