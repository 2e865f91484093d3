//! A CSI driver on the same backend, and the CSI provisioner as the author's code.
//!
//! The driver conforms to the specification: calls are idempotent, and its codes have their specified meaning. Its
//! responses may be lost, it may reject calls before it has checked its volumes, and it may continue to work after it
//! has responded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use csi_provisioner::{CsiProvisioner, DriverInfo, Settings};
use driver_rpc::csi::controller_service_capability::{Rpc, Type, rpc};
use driver_rpc::csi::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerServiceCapability,
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse, GetPluginCapabilitiesRequest,
    GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse, PluginCapability, Topology,
    TopologyRequirement, Volume as CsiVolume, plugin_capability,
};
use driver_rpc::{Code, Error, Status};
use kube::Client;
use kube_provisioner::{
    Capabilities, DeleteError, Hooks, ObjectWatch, Prepared, ProvisionError, ProvisionRequest, ProvisionedVolume,
    Provisioner, StartContext, StartError, Volume,
};

use super::author::ended;
use super::{Asset, AssetStage, Author, Script, Turn};
use crate::judge::Kind;
use crate::plan::{Edge, Nature};
use crate::process::{Process, ProcessEnvironment};
use crate::stage::Stage;
use crate::users::ZONE;

/// The name in volumes, which has no slash.
pub(crate) const DRIVER: &str = "simulated.csi.example.com";
/// Codes after which it is unknown whether the volume exists.
const LOST: [Code; 5] = [Code::Unavailable, Code::Internal, Code::Unknown, Code::Cancelled, Code::DataLoss];
/// Codes of a driver that has not checked its volumes.
const REFUSED: [Code; 4] = [Code::InvalidArgument, Code::NotFound, Code::PermissionDenied, Code::Unauthenticated];
/// Codes of a driver that has no volume with this name.
const WITHOUT: [Code; 2] = [Code::ResourceExhausted, Code::OutOfRange];

/// A topology without labels.
const EVERYWHERE: Topology = Topology { segments: BTreeMap::new() };

type Texts = BTreeMap<String, String>;

/// The CSI provisioner, observed by the judge.
pub(crate) struct Sidecar {
    inner: CsiProvisioner<Driver>,
    process: Arc<Process>,
    stage: Arc<Stage>,
    calls: Calls,
}

/// The last calls about attempts, by volume name. The driver does not see them.
type Calls = Arc<Mutex<BTreeMap<String, Call>>>;

struct Call {
    /// The claim's uid.
    claim: String,
    /// True if the attempt has failed and its volume is being removed.
    cleans_up: bool,
}

struct Driver {
    author: Author,
    calls: Calls,
}

impl Sidecar {
    pub(crate) async fn new(process: Arc<Process>, stage: Arc<Stage>, pause: Duration) -> Self {
        let calls = Calls::default();
        let author = Author::new(process.clone(), stage.clone());
        let driver = Driver { author, calls: calls.clone() };
        let info = DriverInfo::query(&driver).await.expect("the driver answers such questions at once");
        let mut settings = Settings::default();
        settings.extra_create_metadata = true;
        settings.retry_interval_max = pause;
        if let Some(topology) = &stage.plan.topology {
            (settings.strict_topology, settings.immediate_topology) = (topology.strict, topology.immediate);
        }
        let inner = CsiProvisioner::new(driver, info, settings, process.name.clone());
        Self { inner, process, stage, calls }
    }

    /// Records the beginning of a call for an attempt.
    fn begin(&self, kind: Kind, attempt: &ProvisionRequest<Texts>) -> crate::stage::Call {
        let claim = attempt.claim.metadata.uid.clone().unwrap_or_default();
        self.stage.judge().record_claim(self.stage.now(), &self.process.name, &attempt.name, &claim);
        lock(&self.calls).insert(attempt.name.clone(), Call { claim, cleans_up: kind == Kind::CleanUp });
        self.stage.begin(&self.process, kind, &attempt.name)
    }
}

impl Provisioner for Sidecar {
    type Parameters = Texts;

    async fn provision(&self, request: ProvisionRequest<Texts>) -> Result<Volume, ProvisionError> {
        let call = self.begin(Kind::Provision, &request);
        ended(call, self.inner.provision(request).await)
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Texts>) -> Result<(), DeleteError> {
        let call = self.begin(Kind::CleanUp, &attempt);
        ended(call, self.inner.clean_up(attempt).await)
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        lock(&self.calls).remove(&volume.name);
        let call = self.stage.begin(&self.process, Kind::Delete, &volume.name);
        ended(call, self.inner.delete(volume).await)
    }

    async fn start(&self, start: StartContext) -> Result<(), StartError> {
        self.inner.start(start).await
    }

    fn capabilities() -> Capabilities {
        CsiProvisioner::<Driver>::capabilities()
    }
}

impl Hooks for Sidecar {
    async fn prepare(&self, request: ProvisionRequest<Texts>) -> Result<Prepared, ProvisionError> {
        self.inner.prepare(request).await
    }

    async fn end_attempt(&self, attempt: ProvisionRequest<Texts>) -> Result<(), DeleteError> {
        self.stage.judge().requirement_ends(&attempt.name);
        self.inner.end_attempt(attempt).await
    }

    fn take_over(&self, name: &str, prepared: &Prepared) {
        self.inner.take_over(name, prepared);
    }

    fn dropped(&self, name: &str) {
        self.inner.dropped(name);
    }

    async fn should_delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.inner.should_delete(volume).await
    }

    fn watches(&self, client: &Client) -> Vec<ObjectWatch> {
        self.inner.watches(client)
    }
}

impl Driver {
    async fn create(&self, request: &CreateVolumeRequest, nature: Nature) -> Result<CsiVolume, Error> {
        let Author { process, stage, .. } = &self.author;
        let name = &*request.name;
        let mut script = Script::draw(stage, "");
        match nature {
            // After a code that reveals nothing about earlier calls, an attempt stays recorded until an administrator
            // drops it.
            Nature::Invalid | Nature::Ignored => return Err(status(Code::OutOfRange)),
            Nature::Fickle if !stage.is_calm() => return Err(status(Code::OutOfRange)),
            Nature::Good | Nature::Fickle => {}
        }
        loop {
            if let Some(turn) = self.author.wait(&mut script).await {
                return Err(self.turn(name, turn, &mut script).await);
            }
            let asset = stage.asset(name);
            if asset.as_ref().is_some_and(Asset::is_foreign) {
                return Err(status(Code::OutOfRange));
            }
            match asset.map(|asset| (asset.number, asset.stage)) {
                Some((number, AssetStage::Exported)) => {
                    let accessible_topology = match stage.plan.topology {
                        Some(_) => places(number, request.accessibility_requirements.as_ref()),
                        None => Vec::new(),
                    };
                    stage.judge().place(number, &accessible_topology);
                    return Ok(CsiVolume {
                        volume_id: number.to_string(),
                        accessible_topology,
                        ..CsiVolume::default()
                    });
                }
                Some((_, AssetStage::Ordered | AssetStage::Fading)) => return Err(status(Code::Aborted)),
                Some((_, stage)) => self.author.stage.advance(process, name, stage.next()),
                None => stage.allocate(process, name, &self.claim_of(name), AssetStage::Allocated),
            }
            process.pass(Edge::Step).await;
        }
    }

    async fn turn(&self, name: &str, turn: Turn, script: &mut Script) -> Error {
        let Author { process, stage, .. } = &self.author;
        let asset = stage.asset(name);
        let whole = asset.as_ref().is_some_and(|asset| asset.stage == AssetStage::Exported);
        match turn {
            Turn::Background if !whole => {
                if asset.is_none() {
                    stage.allocate(process, name, &self.claim_of(name), AssetStage::Ordered);
                }
                stage.complete_in_background(name, Duration::from_millis(script.random.u64(0..15_000)));
                process.pass(Edge::Step).await;
                Error::TimedOut(Duration::from_secs(10))
            }
            Turn::Fail | Turn::Reschedule if !whole => {
                if asset.is_some() {
                    stage.clean_up(process, name);
                    process.pass(Edge::Step).await;
                }
                status(WITHOUT[script.random.usize(0..WITHOUT.len())])
            }
            // The driver has not checked its volumes yet.
            Turn::Leave if script.passed == 1 => status(REFUSED[script.random.usize(0..REFUSED.len())]),
            Turn::Break if script.random.bool() => Error::Interrupted("the driver ends".to_owned()),
            _ => status(LOST[script.random.usize(0..LOST.len())]),
        }
    }

    fn claim_of(&self, name: &str) -> String {
        lock(&self.calls).get(name).map(|call| call.claim.clone()).unwrap_or_default()
    }

    async fn delete(&self, id: &str) -> Result<(), Error> {
        let Author { process, stage, .. } = &self.author;
        let mut script = Script::draw(stage, "");
        loop {
            match self.author.wait(&mut script).await {
                None => {}
                Some(Turn::Background) => return Err(status(Code::Aborted)),
                Some(Turn::Leave) => return Err(status(Code::FailedPrecondition)),
                Some(_) => return Err(status(LOST[script.random.usize(0..LOST.len())])),
            }
            let found = stage.asset_by_number(id).filter(|(_, asset)| !asset.is_foreign());
            let Some((name, asset)) = found else { return Ok(()) };
            let cleaning = lock(&self.calls).get(&name).is_some_and(|call| call.cleans_up);
            match asset.stage {
                AssetStage::Exported | AssetStage::Filled if cleaning => stage.undo(process, &name),
                _ if cleaning => stage.clean_up(process, &name),
                AssetStage::Fading => stage.remove(process, &name),
                _ => stage.advance(process, &name, AssetStage::Fading),
            }
            process.pass(Edge::Step).await;
        }
    }
}

impl driver_rpc::csi::Identity for Driver {
    async fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Error> {
        Ok(GetPluginInfoResponse { name: DRIVER.to_owned(), ..GetPluginInfoResponse::default() })
    }

    async fn get_plugin_capabilities(
        &self,
        _: GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Error> {
        use plugin_capability::service::Type::{ControllerService, VolumeAccessibilityConstraints};
        let has_topology = self.author.stage.plan.topology.is_some();
        let kinds = [Some(ControllerService), has_topology.then_some(VolumeAccessibilityConstraints)];
        let capability = |kind: plugin_capability::service::Type| {
            let service = plugin_capability::Service { r#type: kind.into() };
            PluginCapability { r#type: Some(plugin_capability::Type::Service(service)) }
        };
        Ok(GetPluginCapabilitiesResponse { capabilities: kinds.into_iter().flatten().map(capability).collect() })
    }
}

impl driver_rpc::csi::Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        _: ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Error> {
        let rpc = Type::Rpc(Rpc { r#type: rpc::Type::CreateDeleteVolume.into() });
        Ok(ControllerGetCapabilitiesResponse { capabilities: vec![ControllerServiceCapability { r#type: Some(rpc) }] })
    }

    async fn create_volume(&self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Error> {
        let claim = request.parameters.get("csi.storage.k8s.io/pvc/name").map(String::as_str).unwrap_or_default();
        let Author { process, stage, .. } = &self.author;
        if let Some(topology) = &stage.plan.topology {
            let (name, required) = (&request.name, request.accessibility_requirements.as_ref());
            stage.judge().require(stage.now(), &process.name, name, &self.claim_of(name), required, topology);
        }
        let made = self.create(&request, stage.nature(claim)).await;
        if made.as_ref().is_err_and(|error| WITHOUT.contains(&error.code())) {
            stage.judge().requirement_ends(&request.name);
        }
        Ok(CreateVolumeResponse { volume: Some(made?) })
    }

    async fn delete_volume(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Error> {
        self.delete(&request.volume_id).await?;
        Ok(DeleteVolumeResponse {})
    }
}

/// The topology of the volume with this number: usually the preferred one. Some volumes are in another place, and some
/// are accessible from two places.
fn places(number: u64, required: Option<&TopologyRequirement>) -> Vec<Topology> {
    let Some(TopologyRequirement { requisite, preferred }) = required else {
        return vec![Topology { segments: BTreeMap::from([(ZONE.to_owned(), "zone-0".to_owned())]) }];
    };
    let other = requisite.iter().cycle().nth(number as usize % 7);
    let places = match number % 5 {
        0 => [other, None, None],
        1 => [preferred.first(), other, Some(&EVERYWHERE)],
        _ => [preferred.first(), None, None],
    };
    places.into_iter().flatten().cloned().collect()
}

fn status(code: Code) -> Error {
    Status::new(code, "the driver says so").into()
}

fn lock(calls: &Calls) -> MutexGuard<'_, BTreeMap<String, Call>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}
