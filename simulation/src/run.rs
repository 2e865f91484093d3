//! One run, from its plan to what was seen.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use kube_provisioner::bucket::BucketSafeguard;
use kube_provisioner::{CancellationToken, Controller, Coordination, Environment, Options, RunError, Safeguard};
use kube_sim::{Actor, Actors, Cluster, Fault, Faults, Running, SimClock};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep, timeout};

use crate::PROVISIONER;
use crate::backend::{Author, Plain, Whole, on_stage};
use crate::edges::Edges;
use crate::judge::{Invariant, Judge, Violation};
use crate::logs;
use crate::panics;
use crate::plan::{Fate, Life, Pace, Plan, Settings, Sharing};
use crate::process::Process;
use crate::stage::Stage;
use crate::users::{NAMESPACE, NODES, Users};

/// How long after the storm everything may take to come to its end.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How long it must stay so.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it takes until a process that has ended is started again.
const RESTART: Duration = Duration::from_secs(1);
/// How long a process may take to end when it is asked to.
const FAREWELL: Duration = Duration::from_secs(60);

/// How a run is to be run.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// What is traced.
    pub trace: Trace,
    /// What is not looked at.
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
    /// That of buckets.
    Buckets,
}

/// Runs one seed.
pub fn run_seed(seed: u64, manner: &Manner) -> Outcome {
    match manner.subject {
        Subject::Volumes => run(&Plan::draw(seed), manner),
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
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// How much time passed in the simulation.
    pub simulated: Duration,
    /// Who did what when, as far as it was to be traced.
    pub trace: String,
}

/// Runs a plan in a runtime of its own, under a clock that waits for nobody.
pub fn run(plan: &Plan, manner: &Manner) -> Outcome {
    let (outcome, panic) = panics::watched(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime without a driver needs nothing from the system").block_on(perform(plan, manner))
    });
    let mut outcome =
        outcome.unwrap_or_else(|| Outcome { violation: None, simulated: Duration::ZERO, trace: String::new() });
    // What panics is missed by what comes after it.
    if let Some(panic) = panic {
        let (invariant, at) = (Invariant::Alive, outcome.simulated);
        outcome.violation = Some(Violation { invariant, at, seen: format!("something panicked: {panic}") });
    }
    outcome
}

async fn perform(plan: &Plan, manner: &Manner) -> Outcome {
    let stage = Stage::new(Arc::new(plan.clone()), manner.trace == Trace::Full);
    on_stage(&stage);
    let _logs = (manner.trace == Trace::Full).then(|| {
        let stage = stage.clone();
        logs::into_trace(move |line| stage.note(|| line.clone()))
    });
    let faults = faults(plan);
    let edges = Arc::new(Edges::new(faults.clone(), &stage));
    let mut builder = Cluster::builder().seed(plan.seed).hide_managed_fields().interceptor(edges.clone());
    if manner.trace != Trace::Off {
        builder = builder.trace();
    }
    let cluster = builder.build();
    let watched = [("", "persistentvolumeclaims"), ("", "persistentvolumes"), ("", "configmaps")];
    stage.furnish(&cluster, Judge::new(cluster.subscribe(&watched), plan, manner.ignored.clone()));
    let actors = cluster.run(actors(plan));
    let users = Users::new(&cluster, &stage);
    let scene =
        Scene { stage: stage.clone(), cluster: cluster.clone(), edges, calm: Notify::new(), without: manner.without };
    let scene = Arc::new(scene);
    let replicas: Vec<JoinHandle<()>> =
        (0..plan.slots.len()).map(|slot| tokio::spawn(scene.clone().replica(slot))).collect();

    tokio::select! {
        biased;
        () = accused(&stage) => {}
        () = users.act() => {
            let hindered = stage.judge().hindered(stage.now(), &stage.plan);
            if let Some(seen) = hindered {
                stage.accuse(Invariant::Unhindered, seen);
            }
            faults.stop();
            stage.calm();
            scene.calm.notify_waiters();
            users.settle();
            tokio::select! {
                biased;
                () = accused(&stage) => {}
                () = come_to_an_end(&stage) => {}
                () = users.attend() => {}
            }
        }
    }
    let outcome = Outcome {
        violation: stage.judge().verdict.clone(),
        simulated: stage.now(),
        trace: if manner.trace == Trace::Off { String::new() } else { cluster.trace() },
    };
    replicas.iter().for_each(JoinHandle::abort);
    end(actors, &stage);
    outcome
}

fn end(actors: Running, stage: &Stage) {
    drop(actors);
    stage.clear();
}

/// Returns once something does not hold.
async fn accused(stage: &Stage) {
    loop {
        let moved = stage.moved.notified();
        if stage.judge().verdict.is_some() {
            return;
        }
        moved.await;
    }
}

/// Waits until everything is as it must be in the end, and stays so.
async fn come_to_an_end(stage: &Stage) {
    let mut settled = false;
    let mut pause = Duration::from_millis(500);
    let limit = stage.now() + PATIENCE;
    loop {
        let unmet = stage.judge().unmet(stage.now(), &stage.plan.claims);
        match unmet {
            None if settled => return,
            None => {
                settled = true;
                sleep(SILENCE).await;
                continue;
            }
            Some((invariant, seen)) if stage.now() > limit => {
                return stage.accuse(invariant, seen);
            }
            Some(_) => settled = false,
        }
        sleep(pause).await;
        pause = (pause * 5 / 4).min(Duration::from_secs(60));
    }
}

struct Scene {
    stage: Arc<Stage>,
    cluster: Cluster,
    edges: Arc<Edges>,
    calm: Notify,
    without: Option<Safeguard>,
}

impl Scene {
    /// Lives the lives of one place, one after the other. The last one lasts.
    async fn replica(self: Arc<Self>, slot: usize) {
        let lives = self.stage.plan.slots[slot].clone();
        for (index, life) in lives.iter().enumerate() {
            let calm = self.calm.notified();
            if !self.stage.is_calm() {
                tokio::select! {
                    biased;
                    () = calm => {}
                    () = sleep(life.after) => {}
                }
            }
            self.live(slot, index, life).await;
        }
        // The last one was replaced, and is started again as often as that happens.
        let Some(last) = lives.last() else { return };
        let life = Life { fates: Vec::new(), ..last.clone() };
        for index in lives.len().. {
            sleep(RESTART).await;
            self.live(slot, index, &life).await;
        }
    }

    async fn live(&self, slot: usize, index: usize, life: &Life) {
        let name = &format!("replica-{slot}-{index}");
        let number = (index * self.stage.plan.slots.len() + slot) as u64;
        let process = Process::new(name.to_owned(), self.stage.clone(), life);
        self.edges.admit(&process);
        self.stage.note(|| format!("{name} starts"));
        let plan = &self.stage.plan;
        let epoch = SimClock::EPOCH
            .checked_add(SignedDuration::try_from(self.stage.now()).unwrap_or_default())
            .and_then(|now| now.checked_add(SignedDuration::from_secs(life.skew)))
            .unwrap_or(SimClock::EPOCH);
        let environment = Environment::simulated(plan.seed.wrapping_mul(1 << 16).wrapping_add(number), epoch);
        let author = Author::new(process.clone(), self.stage.clone());
        let options = options(&plan.settings, life.sharing, slot);
        let controller = match plan.whole_author {
            true => Controller::new(Whole(author), options),
            false => Controller::new(Plain(author), options),
        };
        let controller = controller.environment(environment);
        let controller = match self.without {
            Some(safeguard) => controller.without(safeguard),
            None => controller,
        };
        let stop = CancellationToken::new();
        let mut task = tokio::spawn(controller.run_with(self.cluster.client(name), stop.clone()));
        let fate = tokio::select! {
            biased;
            fate = process.end() => fate,
            ended = &mut task => {
                self.ended(name, life.sharing, &ended);
                return self.edges.dismiss(name);
            }
        };
        let ended = match fate {
            Fate::Stop => {
                stop.cancel();
                self.farewell(&process, life.sharing, &mut task).await
            }
            Fate::Crash | Fate::Freeze(_) => false,
        };
        if !ended {
            task.abort();
            // It was aborted.
            let _ = task.await;
        }
        self.edges.dismiss(name);
        self.stage.note(|| format!("{name} is no more"));
    }

    /// Waits until the process has ended as it was asked to, or has died on the way. Whether it has ended.
    async fn farewell(&self, process: &Process, sharing: Sharing, task: &mut JoinHandle<Result<(), RunError>>) -> bool {
        tokio::select! {
            biased;
            () = process.crash() => false,
            ended = timeout(FAREWELL, &mut *task) => match ended {
                Ok(ended) => {
                    if !matches!(ended, Ok(Ok(()))) {
                        self.ended(&process.name, sharing, &ended);
                    }
                    true
                }
                // It cannot end while it stands still.
                Err(_) if process.excused_since(0) => false,
                Err(_) => {
                    let seen = format!("{} has not ended {} s after it was asked to", process.name, FAREWELL.as_secs());
                    self.stage.accuse(Invariant::Alive, seen);
                    false
                }
            },
        }
    }

    fn ended(&self, name: &str, sharing: Sharing, how: &Result<Result<(), RunError>, JoinError>) {
        // Others may take it for dead.
        if sharing == Sharing::Claims && matches!(how, Ok(Err(RunError::Replaced { .. }))) {
            return self.stage.note(|| format!("{name} is replaced"));
        }
        self.stage.accuse(Invariant::Alive, format!("{name} ended by itself: {how:?}"));
    }
}

fn options(settings: &Settings, sharing: Sharing, slot: usize) -> Options {
    let mut options = Options::new(PROVISIONER);
    options.namespace = Some(NAMESPACE.to_owned());
    options.workers = settings.workers;
    options.backend_concurrency = settings.concurrency;
    options.class_concurrency = settings.class_concurrency;
    options.provision_timeout = settings.call_limit;
    options.delete_timeout = settings.call_limit;
    (options.retry_interval_start, options.retry_interval_max) = settings.retry;
    options.resync_period = settings.resync;
    options.volume_finalizer = settings.finalizer;
    (options.lease_duration, options.lease_renew_deadline, options.lease_retry_period) = settings.lease;
    options.grace_period = settings.grace;
    match sharing {
        Sharing::Leases(shards) => options.shards = shards,
        Sharing::Claims => options.coordination = Coordination::PerClaim,
        Sharing::Nodes => {
            options.coordination = Coordination::PerNode;
            options.node_name = Some(NODES[slot].to_owned());
        }
        Sharing::Alone => options.coordination = Coordination::None,
    }
    options
}

fn faults(plan: &Plan) -> Faults {
    let api = &plan.api;
    let faults = match api.storm {
        true => Faults::storm(plan.seed),
        false => Faults::none(plan.seed).latency(Duration::ZERO..=api.latency),
    };
    match api.hangs > 0.0 {
        true => faults.with(Fault::Hang, api.hangs).with(Fault::HangAfter, api.hangs),
        false => faults,
    }
}

fn actors(plan: &Plan) -> Actors {
    match plan.pace {
        Pace::Prompt => Actors::all(),
        Pace::Usual => Actors::all().at(&kube_sim::Pace::USUAL),
        Pace::Drawn => Actors::drawn(plan.seed),
        Pace::Late => Actors::all().with(Actor::Binder, kube_sim::Pace::SLOW),
    }
}
