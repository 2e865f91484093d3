//! The driver of one sidecar: `csi_sim::Driver` on a socket, and a ledger of its calls.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use csi_sim::{Capability, Method, Pool, Settings, Step};
use driver_rpc::csi::controller_service_capability::rpc::Type as Rpc;
use driver_rpc::csi::plugin_capability::service::Type as Service;
use driver_rpc::csi::*;
use driver_rpc::{Error, Server};
use fastrand::Rng;
use tokio::task::JoinHandle;

use super::ledger::Ledger;
use super::peer::Peer;

/// The topology key.
pub(super) const ZONE: &str = "topology.bench.example.com/zone";

/// The duration of a driver call: a random time between the two limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) create: (Duration, Duration),
    pub(super) delete: (Duration, Duration),
}

impl Pace {
    pub(super) const AT_ONCE: Self =
        Self { create: (Duration::ZERO, Duration::ZERO), delete: (Duration::ZERO, Duration::ZERO) };
    pub(super) const SLOW: Self = Self {
        create: (Duration::from_millis(300), Duration::from_secs(2)),
        delete: (Duration::ZERO, Duration::from_millis(200)),
    };
}

/// The driver of one sidecar. Clones share their state.
#[derive(Clone)]
pub(super) struct Driver {
    inner: Arc<Inner>,
    caller: Peer,
}

struct Inner {
    sim: csi_sim::Driver,
    pace: Pace,
    rng: Mutex<Rng>,
    ledger: Mutex<Ledger>,
    folder: PathBuf,
    servers: Mutex<Vec<JoinHandle<()>>>,
}

impl Driver {
    /// Creates a typical block storage driver: it creates, deletes and attaches volumes, without snapshots and clones.
    /// With zones it has topology, and a pool in each zone.
    pub(super) fn new(name: &str, folder: &Path, pace: Pace, seed: u64, zones: &[&str]) -> Self {
        let capabilities = [
            Capability::Plugin(Service::ControllerService),
            Capability::Controller(Rpc::CreateDeleteVolume),
            Capability::Controller(Rpc::PublishUnpublishVolume),
        ];
        let mut settings = Settings { name: name.to_owned(), capabilities: capabilities.into(), ..Settings::default() };
        if !zones.is_empty() {
            settings.capabilities.insert(Capability::Plugin(Service::VolumeAccessibilityConstraints));
            settings.capabilities.insert(Capability::Controller(Rpc::GetCapacity));
            let pool = |zone: &&str| Pool {
                name: (*zone).to_owned(),
                segments: [(ZONE.to_owned(), (*zone).to_owned())].into(),
                size: 1 << 50,
            };
            settings.pools = zones.iter().map(pool).collect();
        }
        let inner = Inner {
            sim: csi_sim::Driver::new(settings),
            pace,
            rng: Mutex::new(Rng::with_seed(seed)),
            ledger: Mutex::default(),
            folder: folder.to_owned(),
            servers: Mutex::default(),
        };
        Self { inner: Arc::new(inner), caller: Peer::Ours }
    }

    /// The socket for one caller, so that the driver knows which one calls.
    pub(super) fn socket(&self, caller: Peer) -> PathBuf {
        self.inner.folder.join(format!("{}.sock", caller.slug()))
    }

    /// Starts listening on its sockets.
    pub(super) fn serve(&self) -> anyhow::Result<()> {
        self.inner.sim.start();
        for caller in Peer::BOTH {
            let server = Server::bind(&self.socket(caller))?;
            let driver = Self { inner: self.inner.clone(), caller };
            self.inner.servers.lock().unwrap().push(tokio::spawn(async move {
                let _ = server.csi(driver).serve().await;
            }));
        }
        Ok(())
    }

    /// Stops listening, as during a restart: calls in progress are lost, with their unfinished work. The volumes stay.
    pub(super) fn stop_listening(&self) {
        self.inner.sim.stop();
        self.inner.servers.lock().unwrap().drain(..).for_each(|server| server.abort());
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.inner.ledger.lock().unwrap()
    }

    /// The ids of its volumes.
    pub(super) fn volumes(&self) -> Vec<String> {
        self.inner.sim.volumes().into_iter().map(|volume| volume.volume_id).collect()
    }

    /// Delays the next call of this method as the pace requires.
    fn take_time(&self, method: Method, (least, most): (Duration, Duration)) {
        if !most.is_zero() {
            let range = least.as_millis() as u64..=most.as_millis() as u64;
            let delay = Duration::from_millis(self.inner.rng.lock().unwrap().u64(range));
            self.inner.sim.script(method, [Step::work().after(delay)]);
        }
    }
}

impl Identity for Driver {
    async fn get_plugin_info(&self, request: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Error> {
        self.inner.sim.get_plugin_info(request).await
    }

    async fn get_plugin_capabilities(
        &self,
        request: GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Error> {
        self.inner.sim.get_plugin_capabilities(request).await
    }

    async fn probe(&self, request: ProbeRequest) -> Result<ProbeResponse, Error> {
        self.inner.sim.probe(request).await
    }
}

// The calls run in separate tasks, so that the ledger records their end even if the caller is killed.
impl Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        request: ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Error> {
        self.inner.sim.controller_get_capabilities(request).await
    }

    async fn get_capacity(&self, request: GetCapacityRequest) -> Result<GetCapacityResponse, Error> {
        self.inner.sim.get_capacity(request).await
    }

    async fn create_volume(&self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Error> {
        {
            let mut ledger = self.ledger();
            ledger.create_begins(&request.name, self.caller, Instant::now());
            ledger.require(&request.name, request.accessibility_requirements.as_ref());
        }
        let driver = self.clone();
        let call = tokio::spawn(async move {
            let name = request.name.clone();
            driver.take_time(Method::CreateVolume, driver.inner.pace.create);
            let answer = driver.inner.sim.create_volume(request).await;
            let id = answer.as_ref().ok().and_then(|answer| answer.volume.as_ref()).map(|volume| &volume.volume_id);
            driver.ledger().create_ends(&name, id.map(String::as_str));
            answer
        });
        call.await.unwrap_or_else(|error| Err(Error::Interrupted(error.to_string())))
    }

    async fn delete_volume(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Error> {
        let life = self.ledger().delete_begins();
        let driver = self.clone();
        let call = tokio::spawn(async move {
            let id = request.volume_id.clone();
            driver.take_time(Method::DeleteVolume, driver.inner.pace.delete);
            let answer = driver.inner.sim.delete_volume(request).await;
            driver.ledger().delete_ends(&id, driver.caller, life, answer.is_ok());
            answer
        });
        call.await.unwrap_or_else(|error| Err(Error::Interrupted(error.to_string())))
    }
}

impl Node for Driver {}
