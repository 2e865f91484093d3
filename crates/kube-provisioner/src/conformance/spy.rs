//! A wrapper around the author's provisioner that traces, delays and counts its calls.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use kube_sim::Cluster;
use prometheus_client::registry::Registry;
use provisioner_runtime::access::AccessRule;
use tokio::sync::watch;
use tokio::time::sleep;

use super::tempo::Tempo;
use crate::capabilities::Capabilities;
use crate::controller::shared::class_parameters::Parsed;
use crate::controller::volume::{Backend, UntypedRequest};
use crate::error::{DeleteError, ExpandError, ProvisionError, StartError};
use crate::object_watch::ObjectWatch;
use crate::parameters::ParameterError;
use crate::prepared::Prepared;
use crate::request::ProvisionedVolume;
use crate::start::StartContext;
use crate::volume::Volume;

pub(super) struct Spy {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) calls: Arc<Calls>,
    pub(super) cluster: Cluster,
    /// The process that calls.
    pub(super) process: String,
}

/// The calls of one run.
pub(super) struct Calls {
    provisions: AtomicUsize,
    /// The number of times that calls had to wait.
    waits: watch::Sender<u64>,
    delays: Option<(Tempo, Mutex<fastrand::Rng>)>,
}

impl Calls {
    /// Calls without added delays.
    pub(super) fn plain() -> Self {
        Self { provisions: AtomicUsize::new(0), waits: watch::Sender::new(0), delays: None }
    }

    /// Delayed calls with delayed answers. Some exceed every limit.
    pub(super) fn delayed(tempo: Tempo, seed: u64) -> Self {
        Self { delays: Some((tempo, Mutex::new(fastrand::Rng::with_seed(seed)))), ..Self::plain() }
    }

    pub(super) fn provisions(&self) -> usize {
        self.provisions.load(Ordering::Relaxed)
    }

    /// Waits until calls had to wait `times` more times.
    pub(super) async fn wait(&self, times: u64) {
        let mut waits = self.waits.subscribe();
        let end = *waits.borrow() + times;
        // An error would mean that the sender is dropped, but `self` owns it.
        let _ = waits.wait_for(|waits| *waits >= end).await;
    }

    async fn delay(&self) {
        let Some((tempo, random)) = &self.delays else { return };
        let delay = draw(*tempo, &mut random.lock().unwrap_or_else(PoisonError::into_inner));
        if !delay.is_zero() {
            self.waits.send_modify(|waits| *waits += 1);
            sleep(delay).await;
        }
    }
}

fn draw(tempo: Tempo, random: &mut fastrand::Rng) -> Duration {
    let most = match (tempo, random.u8(..64)) {
        (_, 0..40) => 0,
        (Tempo::Real, _) => 20,
        (Tempo::Virtual, 40..56) => 200,
        (Tempo::Virtual, 56..63) => 5_000,
        // Longer than any limit.
        (Tempo::Virtual, _) => 400_000,
    };
    Duration::from_millis(random.u64(0..=most))
}

impl Spy {
    async fn observed<T, E: fmt::Debug>(
        &self,
        what: &str,
        name: String,
        mut call: BoxFuture<'_, Result<T, E>>,
    ) -> Result<T, E> {
        let mut line = Line { spy: self, what: format!("{what} {name}"), ended: false };
        line.write("is called");
        self.calls.delay().await;
        let answer = poll_fn(|context| {
            let poll = call.poll_unpin(context);
            if poll.is_pending() {
                self.calls.waits.send_modify(|waits| *waits += 1);
            }
            poll
        })
        .await;
        match &answer {
            Ok(_) => line.write("is done"),
            Err(error) => line.write(&format!("says {error:?}")),
        }
        self.calls.delay().await;
        line.ended = true;
        answer
    }
}

/// The trace of one call.
struct Line<'a> {
    spy: &'a Spy,
    what: String,
    ended: bool,
}

impl Line<'_> {
    fn write(&self, text: &str) {
        self.spy.cluster.note(format!("{}: {} {text}", self.spy.process, self.what));
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.write("is dropped");
        }
    }
}

/// Implements methods by calling the author's provisioner.
macro_rules! forward {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {$(
        fn $name(&self $(, $argument: $type)*) $(-> $answer)? {
            self.backend.$name($($argument),*)
        }
    )*};
}

impl Backend for Spy {
    forward! {
        fn parse(&self, parameters: &BTreeMap<String, String>) -> Result<Parsed, ParameterError>;
        fn prepare(&self, request: UntypedRequest) -> BoxFuture<'_, Result<Prepared, ProvisionError>>;
        fn has_room(&self, request: UntypedRequest) -> BoxFuture<'_, bool>;
        fn take_over(&self, name: &str, prepared: &Prepared);
        fn dropped(&self, name: &str);
        fn while_leading(&self) -> BoxFuture<'_, ()>;
        fn should_delete(&self, volume: ProvisionedVolume) -> BoxFuture<'_, Result<(), DeleteError>>;
        fn probe(&self) -> BoxFuture<'_, Result<(), StartError>>;
        fn start(&self, start: StartContext) -> BoxFuture<'_, Result<(), StartError>>;
        fn access_rules(&self) -> Vec<AccessRule>;
        fn capabilities(&self) -> Capabilities;
        fn accepts(&self, claim: &PersistentVolumeClaim) -> bool;
        fn watches(&self, client: &Client) -> Vec<ObjectWatch>;
        fn register_metrics(&self, registry: &mut Registry);
    }

    fn end_attempt(&self, attempt: UntypedRequest) -> BoxFuture<'_, Result<(), DeleteError>> {
        let name = attempt.name.clone();
        self.observed("end_attempt", name, self.backend.end_attempt(attempt)).boxed()
    }

    fn provision(&self, request: UntypedRequest) -> BoxFuture<'_, Result<Volume, ProvisionError>> {
        self.calls.provisions.fetch_add(1, Ordering::Relaxed);
        let name = request.name.clone();
        self.observed("provision", name, self.backend.provision(request)).boxed()
    }

    fn clean_up(&self, attempt: UntypedRequest) -> BoxFuture<'_, Result<(), DeleteError>> {
        let name = attempt.name.clone();
        self.observed("clean_up", name, self.backend.clean_up(attempt)).boxed()
    }

    fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> BoxFuture<'_, Result<(), ExpandError>> {
        let name = volume.name.clone();
        self.observed("expand", name, self.backend.expand(volume, bytes)).boxed()
    }

    fn delete(&self, volume: ProvisionedVolume) -> BoxFuture<'_, Result<(), DeleteError>> {
        let name = volume.name.clone();
        self.observed("delete", name, self.backend.delete(volume)).boxed()
    }
}
