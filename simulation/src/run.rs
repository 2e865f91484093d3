//! One run, from its plan to its outcome.

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
use crate::process::ProcessEnvironment;
use crate::worlds::{self, World, until_violation};

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The amount of tracing.
    pub trace: Trace,
    /// The invariants that are not checked.
    pub ignored: BTreeSet<Invariant>,
    /// The disabled safeguard of the volume controller, to prove that it is needed.
    pub without: Option<Safeguard>,
    /// The disabled safeguard of the bucket controller.
    pub without_bucket: Option<BucketSafeguard>,
    /// The simulated controller.
    pub subject: Subject,
}

/// The simulated controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// The volume controller.
    #[default]
    Volumes,
    /// The volume controller, with a CSI driver whose volumes are accessible only from some nodes.
    Topology,
    /// The bucket controller.
    Buckets,
}

/// Runs one seed.
pub fn run_seed(seed: u64, run_options: &RunOptions) -> Outcome {
    match run_options.subject {
        Subject::Volumes => run(&Plan::draw(seed), run_options),
        Subject::Topology => run(&Plan::draw_with_topology(seed), run_options),
        Subject::Buckets => crate::buckets::run(seed, run_options),
    }
}

/// The amount of tracing. Tracing costs time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// No trace.
    #[default]
    Off,
    /// The requests to the API server, with their results.
    Requests,
    /// Also the controllers' logs, and the events of their processes.
    Full,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first violation.
    pub violation: Option<Violation>,
    /// The simulated time.
    pub simulated: Duration,
    /// The trace, as far as it was requested.
    pub trace: String,
}

/// Runs a plan.
pub fn run(plan: &Plan, run_options: &RunOptions) -> Outcome {
    in_runtime(perform(plan, run_options))
}

/// Runs a future in a runtime of its own, with a simulated clock.
pub(crate) fn in_runtime(performance: impl Future<Output = Outcome>) -> Outcome {
    let (outcome, panic) = panics::catch_panics(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime without a driver needs nothing from the system").block_on(performance)
    });
    let mut outcome = outcome.unwrap_or_default();
    // A panic in a task stalls others, so the panic takes precedence over later violations.
    if let Some(panic) = panic {
        let (invariant, at) = (Invariant::Alive, outcome.simulated);
        outcome.violation = Some(Violation { invariant, at, seen: format!("something panicked: {panic}") });
    }
    outcome
}

async fn perform(plan: &Plan, run_options: &RunOptions) -> Outcome {
    let worlds = worlds::of(plan, run_options);
    on_stage(&worlds[0].stage);
    let _logs = (run_options.trace == Trace::Full).then(|| {
        let stage = worlds[0].stage.clone();
        logs::into_trace(move |line| stage.note(|| line.clone()))
    });
    tokio::select! {
        biased;
        _ = select_all(worlds.iter().map(|world| until_violation(&world.stage).boxed_local())) => {}
        _ = join_all(worlds.iter().map(World::pass)) => {}
    }
    let violation = worlds.iter().find_map(World::verdict);
    let trace = match run_options.trace {
        Trace::Off => String::new(),
        _ => worlds.iter().map(|world| world.cluster.trace()).collect::<Vec<_>>().join("\n"),
    };
    let outcome = Outcome { violation, simulated: worlds[0].stage.now(), trace };
    worlds.into_iter().for_each(World::end);
    outcome
}
