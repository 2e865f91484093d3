//! The clusters of one run, each with its users, its replicas and its judge: one, or two on the same backend.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use kube_provisioner::{CancellationToken, Controller, Coordination, Environment, Options, RunError, Safeguard};
use kube_sim::{Actor, Actors, Cluster, Fault, Faults, Running, SimClock};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep, timeout};

use crate::PROVISIONER;
use crate::backend::{Author, Plain, Sidecar, Whole};
use crate::garble::garble;
use crate::judge::{Invariant, Judge, Violation};
use crate::plan::{Life, Pace, Plan, ProcessFault, Settings, Sharing};
use crate::process::{Process, ProcessEnvironment};
use crate::run::{RunOptions, Trace};
use crate::stage::Stage;
use crate::users::{NAMESPACE, NODES, Users};
use crate::volume_interceptor::VolumeInterceptor;

/// The time limit after the storm for everything to settle.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The time for which the final state must last.
const SILENCE: Duration = Duration::from_secs(5);
/// Time between the end of a process and its restart.
const RESTART: Duration = Duration::from_secs(1);
/// Time limit for a process to end when it is asked to.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(60);

/// One cluster.
pub(crate) struct World {
    /// Its name in violations, if there is more than one cluster.
    name: &'static str,
    pub(crate) stage: Arc<Stage>,
    pub(crate) cluster: Cluster,
    users: Arc<Users>,
    faults: Faults,
    scene: Arc<Scene>,
    replicas: Vec<JoinHandle<()>>,
    actors: Running,
}

/// Creates the clusters of a plan.
pub(crate) fn of(plan: &Plan, run_options: &RunOptions) -> Vec<World> {
    let mut worlds = vec![World::new("", plan, plan.restores(), run_options)];
    if let Some(other) = &plan.other {
        worlds.push(World::new("in the other cluster: ", other, true, run_options));
        let [one, two] = &worlds[..] else { unreachable!("two were made") };
        one.stage.connect(&two.stage);
        two.stage.connect(&one.stage);
        one.users.connect(&two.users);
    }
    worlds
}

impl World {
    /// `restores` is true if a backup is restored, so that the API server must return field managers.
    fn new(name: &'static str, plan: &Plan, restores: bool, run_options: &RunOptions) -> Self {
        let stage = Stage::new(Arc::new(plan.clone()), run_options.trace == Trace::Full);
        let faults = faults(plan);
        let interceptor = Arc::new(VolumeInterceptor::new(faults.clone(), &stage));
        let mut builder = Cluster::builder().seed(plan.seed).interceptor(interceptor.clone());
        if !restores {
            builder = builder.hide_managed_fields();
        }
        if run_options.trace != Trace::Off {
            builder = builder.trace();
        }
        let cluster = builder.build();
        let journals = if plan.has_sidecar_rbac() { ("coordination.k8s.io", "leases") } else { ("", "configmaps") };
        let mut watched = vec![("", "persistentvolumeclaims"), ("", "persistentvolumes"), journals];
        watched.extend(plan.topology.as_ref().map(|_| ("", "nodes")));
        let namespace = cluster.get("", "namespaces", "", "kube-system").unwrap_or_default();
        let cluster_id = namespace["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        stage.attach_cluster(
            &cluster,
            Judge::new(cluster.subscribe(&watched), cluster_id, plan, run_options.ignored.clone()),
        );
        let actors = cluster.run(actors(plan));
        let users = Arc::new(Users::new(&cluster, &stage));
        let without = run_options.without;
        let (calm, garbles) = (Notify::new(), plan.garbles());
        let scene = Scene { stage: stage.clone(), cluster: cluster.clone(), interceptor, calm, without, garbles };
        let scene = Arc::new(scene);
        let replicas = (0..plan.slots.len()).map(|slot| tokio::spawn(scene.clone().replica(slot))).collect();
        Self { name, stage, cluster, users, faults, scene, replicas, actors }
    }

    /// Runs the storm, and the calm until everything has settled.
    pub(crate) async fn pass(&self) {
        let stage = &self.stage;
        self.users.act().await;
        let hindered = stage.judge().blocked_claim(stage.now(), &stage.plan);
        if let Some(seen) = hindered {
            stage.report_violation(Invariant::Unhindered, seen);
        }
        self.faults.stop();
        stage.calm();
        self.scene.calm.notify_waiters();
        self.users.settle();
        tokio::select! {
            biased;
            () = until_settled(stage) => {}
            () = self.users.respond_to_events() => {}
        }
    }

    pub(crate) fn verdict(&self) -> Option<Violation> {
        let mut verdict = self.stage.judge().verdict.clone()?;
        verdict.seen.insert_str(0, self.name);
        Some(verdict)
    }

    pub(crate) fn end(self) {
        self.replicas.iter().for_each(JoinHandle::abort);
        drop(self.actors);
        self.stage.clear();
    }
}

/// Returns at the first violation.
pub(crate) async fn until_violation(stage: &Stage) {
    loop {
        let moved = stage.moved.notified();
        if stage.judge().verdict.is_some() {
            return;
        }
        moved.await;
    }
}

/// Waits until the final state is reached and lasts.
async fn until_settled(stage: &Stage) {
    let mut settled = false;
    let mut pause = Duration::from_millis(500);
    let limit = stage.now() + PATIENCE;
    loop {
        let unmet = stage.judge().unmet(stage.now(), &stage.plan);
        match unmet {
            None if settled => return,
            None => {
                settled = true;
                sleep(SILENCE).await;
                continue;
            }
            Some((invariant, seen)) if stage.now() > limit => {
                return stage.report_violation(invariant, seen);
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
    interceptor: Arc<VolumeInterceptor>,
    calm: Notify,
    without: Option<Safeguard>,
    /// True if some objects are unreadable.
    garbles: bool,
}

impl Scene {
    /// Runs the processes of one slot one after another. The last one keeps running.
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
        // The last process is restarted whenever it is replaced.
        let Some(last) = lives.last() else { return };
        let life = Life { faults: Vec::new(), ..last.clone() };
        for index in lives.len().. {
            sleep(RESTART).await;
            self.live(slot, index, &life).await;
        }
    }

    async fn live(&self, slot: usize, index: usize, life: &Life) {
        let name = &format!("replica-{slot}-{index}");
        let number = (index * self.stage.plan.slots.len() + slot) as u64;
        let process = Process::new(name.to_owned(), self.stage.clone(), &life.faults, life.lag);
        self.interceptor.connect_process(&process);
        self.stage.note(|| format!("{name} starts"));
        let plan = &self.stage.plan;
        let epoch = SimClock::EPOCH
            .checked_add(SignedDuration::try_from(self.stage.now()).unwrap_or_default())
            .and_then(|now| now.checked_add(SignedDuration::from_secs(life.skew)))
            .unwrap_or(SimClock::EPOCH);
        let environment = Environment::simulated(plan.seed.wrapping_mul(1 << 16).wrapping_add(number), epoch);
        let author = Author::new(process.clone(), self.stage.clone());
        let mut options = options(&plan.settings, life.sharing, slot);
        options.sidecar_rbac = plan.has_sidecar_rbac();
        let controller = match (plan.whole_author, plan.has_sidecar_rbac()) {
            (true, _) => Controller::new(Whole(author), options),
            (false, false) => Controller::new(Plain(author), options),
            (false, true) => {
                let sidecar = Sidecar::new(process.clone(), self.stage.clone(), options.retry_interval_max).await;
                Controller::new(sidecar, options)
            }
        };
        let controller = controller.environment(environment);
        let controller = match self.without {
            Some(safeguard) => controller.without(safeguard),
            None => controller,
        };
        let stop = CancellationToken::new();
        let mut task = tokio::spawn(controller.run_with(self.client(name), stop.clone()));
        let fault = tokio::select! {
            biased;
            fault = process.end() => fault,
            ended = &mut task => {
                self.ended(name, &ended);
                return self.interceptor.disconnect_process(name);
            }
        };
        let ended = match fault {
            ProcessFault::Stop => {
                stop.cancel();
                self.wait_shutdown(&process, &mut task).await
            }
            ProcessFault::Crash | ProcessFault::Freeze(_) => false,
        };
        if !ended {
            task.abort();
            // Ignore the error, because the task was aborted.
            let _ = task.await;
        }
        self.interceptor.disconnect_process(name);
        self.stage.note(|| format!("{name} is no more"));
    }

    fn client(&self, name: &str) -> kube::Client {
        if self.garbles {
            kube::Client::new(self.cluster.service(name).edit(garble), "default")
        } else {
            self.cluster.client(name)
        }
    }

    /// Waits until the process has ended gracefully or crashed. Returns true if it has ended.
    async fn wait_shutdown(&self, process: &Process, task: &mut JoinHandle<Result<(), RunError>>) -> bool {
        tokio::select! {
            biased;
            () = process.crash() => false,
            ended = timeout(SHUTDOWN_LIMIT, &mut *task) => match ended {
                Ok(ended) => {
                    if !matches!(ended, Ok(Ok(()))) {
                        self.ended(&process.name, &ended);
                    }
                    true
                }
                // A paused process cannot end.
                Err(_) if process.is_dead_or_paused_since(0) => false,
                Err(_) => {
                    let seen = format!("{} has not ended {} s after it was asked to", process.name, SHUTDOWN_LIMIT.as_secs());
                    self.stage.report_violation(Invariant::Alive, seen);
                    false
                }
            },
        }
    }

    fn ended(&self, name: &str, how: &Result<Result<(), RunError>, JoinError>) {
        // Other processes may consider it dead.
        if self.stage.has_old_journals() && matches!(how, Ok(Err(RunError::Replaced { .. }))) {
            return self.stage.note(|| format!("{name} is replaced"));
        }
        self.stage.report_violation(Invariant::Alive, format!("{name} ended by itself: {how:?}"));
    }
}

fn options(settings: &Settings, sharing: Sharing, slot: usize) -> Options {
    let mut options = Options::new(PROVISIONER);
    options.namespace = Some(NAMESPACE.to_owned());
    options.api_concurrency = settings.workers;
    options.max_concurrent_calls = settings.concurrency;
    options.class_concurrency = settings.class_concurrency;
    options.provision_timeout = settings.call_limit;
    options.delete_timeout = settings.call_limit;
    (options.retry_interval_start, options.retry_interval_max) = settings.retry;
    options.resync_period = settings.resync;
    options.add_finalizer = settings.finalizer;
    (options.lease_duration, options.lease_renew_deadline, options.lease_retry_period) = settings.lease;
    options.shutdown_timeout = settings.grace;
    options.volume_name_uid_length = settings.uid_length;
    match sharing {
        Sharing::Leases(shards) => options.shards = shards,
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
    let faults = if api.storm {
        Faults::storm(plan.seed)
    } else {
        Faults::none(plan.seed).latency(Duration::ZERO..=api.latency)
    };
    let faults = faults.with(Fault::Late, api.late);
    if api.hangs > 0.0 { faults.with(Fault::Hang, api.hangs).with(Fault::HangAfter, api.hangs) } else { faults }
}

fn actors(plan: &Plan) -> Actors {
    match plan.pace {
        Pace::Prompt => Actors::all(),
        Pace::Usual => Actors::all().at(&kube_sim::Pace::USUAL),
        Pace::Drawn => Actors::random(plan.seed),
        Pace::Late => Actors::all().with(Actor::Binder, kube_sim::Pace::SLOW),
    }
}
