//! The whole controller, run against [`Api`].

use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::api::{Api, CLAIMS, CLASSES, VOLUMES};
use super::*;
use crate::protocol::FINALIZER;
use crate::{Controller, Coordination, Options};

/// A controller that runs with default options until it is dropped.
pub(super) struct Running {
    pub(super) api: Api,
    pub(super) started: Instant,
    calls: Arc<Calls>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), crate::RunError>>,
}

/// The claims and volumes that the author's code was called for.
#[derive(Default)]
struct Calls {
    provisions: Mutex<Vec<String>>,
    nodes: Mutex<Vec<Option<String>>>,
    deletes: Mutex<Vec<String>>,
}

/// Does all that it is asked; for a claim whose name begins with `no-room` it wants another node, and `invalid` it refuses.
struct Counting(Arc<Calls>);

impl Provisioner for Counting {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        let claim = request.claim.metadata.name.clone().unwrap_or_default();
        self.0.provisions.lock().unwrap().push(claim.clone());
        self.0.nodes.lock().unwrap().push(request.selected_node.clone());
        if claim.starts_with("no-room") {
            return Err(ProvisionError::reschedule("no room on this node"));
        }
        if claim.starts_with("invalid") {
            return Err(ProvisionError::invalid("no such thing"));
        }
        Ok(Volume::nfs("server", format!("/{}", request.name)))
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.0.deletes.lock().unwrap().push(volume.name.clone());
        Ok(())
    }
}

impl Running {
    /// This server knows no Leases, so there is one process at a time.
    pub(super) fn start(api: &Api) -> Self {
        Self::start_with(api, Coordination::None)
    }

    pub(super) fn start_with(api: &Api, coordination: Coordination) -> Self {
        let calls = Arc::<Calls>::default();
        let options = Options { coordination, cluster_id: Some("this".to_owned()), ..Options::new(OURS) };
        let controller = Controller::new(Counting(calls.clone()), options);
        let stop = CancellationToken::new();
        let task = tokio::spawn(controller.run_with(api.client(), stop.clone()));
        Self { api: api.clone(), started: Instant::now(), calls, stop, task }
    }

    /// Asks it to stop and waits until it has.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.task).await.unwrap().unwrap();
    }

    /// Waits until it ends by itself.
    pub(super) async fn ended(mut self) -> Result<(), crate::RunError> {
        (&mut self.task).await.unwrap()
    }

    /// Waits until this holds; returns how long after the start that was.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        while !holds(self) {
            assert!(self.started.elapsed() < Duration::from_secs(2 * 3600), "never: {what}");
            sleep(Duration::from_millis(50)).await;
        }
        self.started.elapsed()
    }

    pub(super) async fn until_bound(&self, claim: &str) -> Duration {
        self.until(claim, |running| running.api.is_bound(claim)).await
    }

    pub(super) async fn until_gone(&self, volume: &str) -> Duration {
        self.until(volume, |running| running.api.get(VOLUMES, volume).is_none()).await
    }

    pub(super) fn provisions(&self, claim: &str) -> usize {
        self.calls.provisions.lock().unwrap().iter().filter(|name| *name == claim).count()
    }

    /// The selected nodes that `provision` was called with.
    pub(super) fn nodes(&self) -> Vec<Option<String>> {
        self.calls.nodes.lock().unwrap().clone()
    }

    pub(super) fn deletes(&self, volume: &str) -> usize {
        self.calls.deletes.lock().unwrap().iter().filter(|name| *name == volume).count()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server with the class.
pub(super) fn with_class() -> Api {
    let api = Api::default();
    api.put(CLASSES, class(json!({})));
    api
}

pub(super) fn put_claim(api: &Api, name: &str, change: Value) {
    let named = claim(json!({"metadata": {"name": name, "uid": format!("uid-{name}")}}));
    api.put(CLAIMS, with(named, change));
}

/// A released volume of ours, to be deleted.
pub(super) fn put_released(api: &Api, name: &str) {
    put_volume(api, name, "Released", json!({}));
}

/// A volume of ours with our finalizer.
pub(super) fn put_volume(api: &Api, name: &str, phase: &str, change: Value) {
    let meta = json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "finalizers": [FINALIZER]}});
    api.put(VOLUMES, with(volume(phase, "Delete", meta), change));
}

/// The volume of a claim of [`put_claim`].
pub(super) fn volume_of(claim: &str) -> String {
    format!("pvc-uid-{claim}")
}
