//! A simulated cluster with the provisioner in any number of processes.

use std::sync::Arc;
use std::time::Duration;

use kube_sim::{Actors, Cluster, DeleteOptions, Faults, Running, SimClock, Target, object};
use provisioner_runtime::environment::Environment;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::assets::Assets;
use super::spy::{Calls, Spy};
use super::subject::{DEFAULT_BYTES, PROVISIONER, Subject};
use super::verdict::Violation;
use crate::controller::Controller;
use crate::options::{Coordination, Options};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const NAMESPACE: &str = "default";
/// The number of trace lines in a failure.
const LINES: usize = 30;

pub(super) struct Fixture<'a> {
    pub(super) subject: &'a Subject,
    pub(super) cluster: Cluster,
    pub(super) calls: Arc<Calls>,
    /// The earlier content of the backend.
    before: Assets,
    sharing: Sharing,
    processes: Vec<Process>,
    started: u64,
    seed: u64,
    _actors: Running,
}

struct Process {
    name: String,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The way in which the processes share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The process that started last works. It finishes the attempts of the previous one.
    Successors,
    /// The holder of the Lease works.
    Lease,
    /// The processes have no coordination. A killed process may still run a call when the next process makes it.
    Strangers,
}

pub(super) struct Plan<'a> {
    pub(super) seed: u64,
    pub(super) sharing: Sharing,
    pub(super) actors: Actors,
    pub(super) faults: &'a Faults,
    pub(super) calls: Calls,
}

impl<'a> Fixture<'a> {
    /// Creates a cluster with the class.
    pub(super) async fn new(subject: &'a Subject, class: &Value, plan: Plan<'_>) -> Result<Self, Violation> {
        let Plan { seed, sharing, actors, faults, calls } = plan;
        let cluster = Cluster::builder().seed(seed).trace().hide_managed_fields().faults(faults).build();
        cluster.create(class).map_err(|refused| {
            Violation(format!("the API server rejects a class with these parameters: {}", refused.message))
        })?;
        subject.objects.create_in(&cluster)?;
        Ok(Self {
            subject,
            calls: Arc::new(calls),
            before: subject.assets_now().await,
            sharing,
            processes: Vec::new(),
            started: 0,
            seed,
            _actors: cluster.run(actors),
            cluster,
        })
    }

    pub(super) fn start(&mut self) {
        self.started += 1;
        let process = format!("process-{}", self.started);
        self.cluster.note(format!("{process} starts"));
        let spy = Spy {
            backend: self.subject.start_in(&self.cluster, &process),
            calls: Arc::clone(&self.calls),
            cluster: self.cluster.clone(),
            process: process.clone(),
        };
        let stop = CancellationToken::new();
        let environment = Environment::simulated(self.seed.wrapping_add(self.started), SimClock::EPOCH);
        let controller = Controller::with_backend(Arc::new(spy), self.options(&process));
        let running = controller.environment(environment).run_with(self.cluster.client(&process), stop.clone());
        let task = tokio::spawn(async move {
            // Only a listen address could cause an error, and none is set.
            let _ = running.await;
        });
        self.processes.push(Process { name: process, stop, task });
    }

    fn options(&self, process: &str) -> Options {
        let mut options = self.subject.tempo.options(PROVISIONER);
        options.identity = Some("conformance".to_owned());
        if self.sharing != Sharing::Lease {
            options.coordination = Coordination::None;
        }
        if self.sharing == Sharing::Strangers {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": process}});
            // No other code creates namespaces.
            let created = self.cluster.create(&namespace);
            assert!(created.is_ok(), "{created:?}");
            options.namespace = Some(process.to_owned());
        }
        options
    }

    /// Kills the oldest process at any point of its work.
    pub(super) async fn kill(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let process = self.processes.remove(0);
        self.cluster.note(format!("{} is killed", process.name));
        process.task.abort();
        // The threads of a process die with it, so their work must have ended before the next process starts.
        self.subject.tempo.settle().await;
    }

    /// Stops the oldest process, and waits until it has ended.
    pub(super) async fn stop(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let process = self.processes.remove(0);
        self.cluster.note(format!("{} gets SIGTERM", process.name));
        process.stop.cancel();
        // The task can neither fail nor be cancelled: no other code has its handle.
        let _ = process.task.await;
    }

    pub(super) fn create_claim(&self, name: &str) {
        let claim = self.subject.claim(&self.subject.new_process(), name, DEFAULT_BYTES);
        // The first rule has already rejected an invalid claim.
        let created = self.cluster.create(&claim);
        assert!(created.is_ok(), "{created:?}");
    }

    pub(super) fn delete_claim(&self, name: &str) {
        let target = Target { group: "", plural: CLAIMS, namespace: NAMESPACE, name };
        // The claim may already be deleted.
        let _ = self.cluster.delete(&target, DeleteOptions::default());
    }

    /// Returns the names of the claims that are bound and not being deleted.
    pub(super) fn bound(&self) -> Vec<String> {
        let claims = self.list("", CLAIMS);
        let bound = claims.iter().filter(|claim| {
            claim["status"]["phase"] == "Bound" && claim["metadata"]["deletionTimestamp"] == Value::Null
        });
        bound.map(|claim| object::name(claim).to_owned()).collect()
    }

    /// Waits until every claim is bound to its own volume and asset, and remains bound.
    pub(super) async fn wait_until_all_bound(&self) -> Result<(), Violation> {
        self.wait_until_stable("not every claim has one volume and one asset", async || {
            let (claims, bound) = (self.list("", CLAIMS).len(), self.bound().len());
            let volumes = self.list("", VOLUMES).len();
            if (claims, volumes) != (bound, bound) {
                return Err(format!("{claims} claims, of which bound {bound}; {volumes} volumes"));
            }
            self.assets(bound).await
        })
        .await
    }

    /// Deletes all claims and waits until nothing remains of them, permanently.
    pub(super) async fn wait_until_all_deleted(&self) -> Result<(), Violation> {
        for claim in self.list("", CLAIMS) {
            self.delete_claim(object::name(&claim));
        }
        self.wait_until_stable("not everything is removed although all claims are deleted", async || {
            let (claims, volumes) = (self.list("", CLAIMS).len(), self.list("", VOLUMES).len());
            if claims + volumes > 0 {
                return Err(format!("{claims} claims and {volumes} volumes are left"));
            }
            self.assets(0).await
        })
        .await
    }

    /// Checks that the backend contains the earlier assets and `added` more.
    pub(super) async fn assets(&self, added: usize) -> Result<(), String> {
        let when = format!("with {added} volumes");
        self.subject.assets_now().await.expect(&self.before, added, &when).map_err(|Violation(seen)| seen)
    }

    pub(super) fn warnings(&self, claim: &str) -> Vec<String> {
        let about = |event: &&Value| event["involvedObject"]["name"] == claim && event["type"] == "Warning";
        let events = self.list("", "events");
        let notes = events.iter().filter(about).filter_map(|event| event["message"].as_str());
        notes.map(str::to_owned).collect()
    }

    /// Waits until `count` writes have happened, or until `limit`.
    pub(super) async fn writes(&self, count: u64, limit: Duration) {
        let mut changes = self.cluster.subscribe(&[("", CLAIMS), ("", VOLUMES)]);
        let counted = async {
            for _ in 0..count {
                changes.next().await;
            }
        };
        // Whichever comes first.
        let _ = tokio::time::timeout(limit, counted).await;
    }

    /// Waits until a condition holds. The error explains why it does not.
    pub(super) async fn wait_until(
        &self,
        otherwise: &str,
        holds: impl AsyncFn() -> Result<(), String>,
    ) -> Result<(), Violation> {
        let (end, mut pause) = (Instant::now() + self.subject.tempo.limit(), self.subject.tempo.step());
        while let Err(why) = holds().await {
            if Instant::now() > end {
                return Err(Violation(format!("{otherwise}: {why}\n{}", self.trace())));
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.subject.tempo.limit() / 100);
        }
        Ok(())
    }

    async fn wait_until_stable(
        &self,
        otherwise: &str,
        holds: impl AsyncFn() -> Result<(), String>,
    ) -> Result<(), Violation> {
        self.wait_until(otherwise, &holds).await?;
        sleep(self.subject.tempo.stable_period()).await;
        self.wait_until(otherwise, &holds).await
    }

    /// Returns the end of the trace, without reads.
    fn trace(&self) -> String {
        let trace = self.cluster.trace();
        let reads = [" get ", " list ", " watch "];
        let lines: Vec<&str> = trace.lines().filter(|line| !reads.iter().any(|read| line.contains(read))).collect();
        format!("the last that happened:\n{}", lines[lines.len().saturating_sub(LINES)..].join("\n"))
    }

    fn list(&self, group: &str, plural: &str) -> Vec<Value> {
        self.cluster.list(group, plural, None).unwrap_or_default()
    }
}

impl Drop for Fixture<'_> {
    fn drop(&mut self) {
        self.processes.iter().for_each(|process| process.task.abort());
    }
}
