//! A provisioner with assets in memory, whose answers a test controls, and which records its calls.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube_provisioner::{
    CancellationToken, Capabilities, Controller, Coordination, DeleteError, ExpandError, Hooks, Options,
    ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, RunError, Volume,
};
use serde::Deserialize;
use tokio::task::JoinHandle;

use crate::cluster::TestSpace;

/// A call of the provisioner's methods. The calls are recorded in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `provision` of the volume with this name, for the claim with that name.
    Provision {
        /// The volume's name.
        volume: String,
        /// The claim's name.
        claim: String,
        /// The selected node.
        node: Option<String>,
        /// The zones of the class's allowed topologies.
        zones: Vec<String>,
    },
    /// `delete` of the volume with this name.
    Delete {
        /// The volume's name.
        volume: String,
    },
    /// `expand` of the volume with this name.
    Expand {
        /// The volume's name.
        volume: String,
        /// The new size.
        bytes: u64,
    },
}

type OnProvision = dyn Fn(&str, usize) -> Answer<ProvisionError> + Send + Sync;
type OnExpand = dyn Fn(u64, usize) -> Result<(), ExpandError> + Send + Sync;
type OnDelete = dyn Fn(&str, usize) -> Answer<DeleteError> + Send + Sync;

/// The outcome of a call.
pub enum Answer<E> {
    /// The call succeeds.
    Done,
    /// The call succeeds with a volume that the test provides.
    Made(Box<Volume>),
    /// The call fails.
    Failed(E),
    /// The call succeeds after this time.
    After(Duration),
    /// The call succeeds when the flag is set.
    Once(Arc<AtomicBool>),
    /// The call panics.
    Panics,
}

/// The provisioner. Clones share their state.
#[derive(Clone)]
pub struct Toy {
    shared: Arc<Shared>,
    on_provision: Arc<OnProvision>,
    on_delete: Arc<OnDelete>,
    on_expand: Arc<OnExpand>,
}

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<Call>>,
    assets: Mutex<BTreeSet<String>>,
}

impl Toy {
    /// A provisioner whose calls all succeed.
    pub fn new() -> Self {
        Self {
            shared: Arc::default(),
            on_provision: Arc::new(|_, _| Answer::Done),
            on_delete: Arc::new(|_, _| Answer::Done),
            on_expand: Arc::new(|_, _| Ok(())),
        }
    }

    /// Creates a namespace and runs a [`Toy`] in it.
    pub async fn serving(test: &str) -> anyhow::Result<(TestSpace, Self, RunningController)> {
        let (space, toy) = (TestSpace::new(test).await?, Self::new());
        let controller = toy.run(&space);
        Ok((space, toy, controller))
    }

    /// Decides each `provision` by the claim's name and the number of the call for it, from 1.
    #[must_use]
    pub fn on_provision(
        mut self,
        answer: impl Fn(&str, usize) -> Answer<ProvisionError> + Send + Sync + 'static,
    ) -> Self {
        self.on_provision = Arc::new(answer);
        self
    }

    /// Decides each `delete` by the volume's name and the number of the call for it, from 1.
    #[must_use]
    pub fn on_delete(mut self, answer: impl Fn(&str, usize) -> Answer<DeleteError> + Send + Sync + 'static) -> Self {
        self.on_delete = Arc::new(answer);
        self
    }

    /// Decides each `expand` by the new size and the number of the call for the volume, from 1.
    #[must_use]
    pub fn on_expand(mut self, answer: impl Fn(u64, usize) -> Result<(), ExpandError> + Send + Sync + 'static) -> Self {
        self.on_expand = Arc::new(answer);
        self
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.shared.calls).clone()
    }

    /// The number of `provision` calls for a claim.
    pub fn provisions(&self, of: &str) -> usize {
        let calls = lock(&self.shared.calls);
        calls.iter().filter(|call| matches!(call, Call::Provision { claim, .. } if claim == of)).count()
    }

    /// The number of `delete` calls for a volume.
    pub fn deletes(&self, of: &str) -> usize {
        let calls = lock(&self.shared.calls);
        calls.iter().filter(|call| matches!(call, Call::Delete { volume } if volume == of)).count()
    }

    /// The sizes that `expand` received for a volume.
    pub fn expansions(&self, of: &str) -> Vec<u64> {
        let calls = lock(&self.shared.calls);
        let size = |call: &Call| match call {
            Call::Expand { volume, bytes } if volume == of => Some(*bytes),
            _ => None,
        };
        calls.iter().filter_map(size).collect()
    }

    /// The names of the existing assets.
    pub fn assets(&self) -> BTreeSet<String> {
        lock(&self.shared.assets).clone()
    }

    /// Runs a controller in this process, with the options of [`options`].
    pub fn run(&self, space: &TestSpace) -> RunningController {
        self.run_with(options(space), space.client())
    }

    /// Runs a controller with these options and this client.
    pub fn run_with(&self, options: Options, client: kube::Client) -> RunningController {
        let stop = CancellationToken::new();
        let task = tokio::spawn(Controller::new(self.clone(), options).run_with(client, stop.clone()));
        RunningController { stop, task }
    }
}

impl Default for Toy {
    fn default() -> Self {
        Self::new()
    }
}

/// The parameters of the toy's classes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Parameters {
    /// The prefix of the volumes' paths.
    pub export: String,
}

impl Provisioner for Toy {
    type Parameters = Parameters;

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let claim = request.claim.metadata.name.clone().unwrap_or_default();
        let terms = request.class.allowed_topologies.iter().flatten();
        let expressions = terms.flat_map(|term| term.match_label_expressions.iter().flatten());
        let call = Call::Provision {
            volume: request.name.clone(),
            claim: claim.clone(),
            node: request.selected_node.clone(),
            zones: expressions.flat_map(|expression| expression.values.clone()).collect(),
        };
        lock(&self.shared.calls).push(call);
        let volume = Volume::nfs("nfs.example.com", format!("{}/{}", request.parameters.export, request.name));
        let made = match (self.on_provision)(&claim, self.provisions(&claim)) {
            Answer::Done => volume,
            Answer::Made(volume) => *volume,
            Answer::Failed(error) => return Err(error),
            Answer::After(time) => {
                tokio::time::sleep(time).await;
                volume
            }
            Answer::Once(flag) => {
                set(&flag).await;
                volume
            }
            Answer::Panics => panic!("the toy is broken"),
        };
        lock(&self.shared.assets).insert(request.name);
        Ok(made)
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        lock(&self.shared.calls).push(Call::Delete { volume: volume.name.clone() });
        match (self.on_delete)(&volume.name, self.deletes(&volume.name)) {
            Answer::Failed(error) => return Err(error),
            Answer::After(time) => tokio::time::sleep(time).await,
            Answer::Once(flag) => set(&flag).await,
            Answer::Panics => panic!("the toy is broken"),
            Answer::Done | Answer::Made(_) => {}
        }
        lock(&self.shared.assets).remove(&volume.name);
        Ok(())
    }

    async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
        lock(&self.shared.calls).push(Call::Expand { volume: volume.name.clone(), bytes });
        (self.on_expand)(bytes, self.expansions(&volume.name).len())
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().expansion().allowed_topologies().mount_options()
    }
}

impl Hooks for Toy {
    fn accepts(&self, claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim) -> bool {
        claim.metadata.name.as_deref() != Some("vetoed")
    }
}

/// The default options for a test's provisioner, with short delays.
pub fn options(space: &TestSpace) -> Options {
    let mut options = Options::new(space.provisioner());
    options.retry_interval_start = Duration::from_millis(100);
    options.retry_interval_max = Duration::from_secs(1);
    options.namespace = Some(space.namespace().to_owned());
    // Without a Lease, a controller takes over at once from one that was dropped.
    options.coordination = Coordination::None;
    options
}

/// A controller in this process, which is stopped on drop.
pub struct RunningController {
    stop: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

impl RunningController {
    /// Requests a stop and waits for it.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        (&mut self.task).await??;
        Ok(())
    }
}

impl Drop for RunningController {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn set(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
