//! Implements a provisioner with a CSI driver.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use driver_rpc::csi::{
    Controller, CreateVolumeRequest, DeleteVolumeRequest, GetCapacityRequest, Identity, Operations, ProbeRequest,
    Volume as CsiVolume,
};
use driver_rpc::{Code, Secrets, Status};
use kube_provisioner::k8s_openapi::ByteString;
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, Secret, SecretReference};
use kube_provisioner::k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment, VolumeAttachmentSpec};
use kube_provisioner::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube_provisioner::kube::{Client, ResourceExt};
use kube_provisioner::prometheus_client::registry::Registry;
use kube_provisioner::{
    Capabilities, DeleteError, DeleteVerdict, Hooks, ObjectWatch, Prepared, ProvisionError, ProvisionRequest,
    ProvisionVerdict, ProvisionedVolume, Provisioner, StartContext, StartError, Volume, error_chain,
};
use provisioner_runtime::CallError;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::time::timeout;

use crate::attachments::{Attachments, NotListed};
use crate::capacity::Capacity;
use crate::created_volume::{self, DELETION_SECRET};
use crate::driver::{DriverInfo, RequiredFeature, Rpc};
use crate::grants;
use crate::missing_objects::{self, MissingObjects};
use crate::nodes::{Nodes, refusal};
use crate::own_node::OwnNode;
use crate::parameters::{self, Texts};
use crate::request::{RequestError, RequestSettings, RequestedVolume, Settings};
use crate::requests::{existing, limited};
use crate::secret_refs::{Role, Tokens, secret_ref, templates};
use crate::source_holds::SourceHolds;
use crate::sources::{self, KINDS, Kind, Source, SourceError, Sources};
use crate::sweep::Sweep;
use crate::topology::{self, NoRequirement, Requirement, Segment};
use crate::verdict::{self, Leftover};

/// Time limit for publishing the capacity of a full node before its claim is rescheduled. A slow driver must not keep
/// the claim on that node.
const PUBLISHING: Duration = Duration::from_secs(10);

/// Provisions volumes with a CSI driver.
pub struct CsiProvisioner<D> {
    driver: D,
    info: DriverInfo,
    settings: Settings,
    /// Differs between processes, like external-provisioner's identity.
    identity: String,
    client: OnceLock<Client>,
    holds: SourceHolds,
    missing: MissingObjects,
    attachments: Attachments,
    nodes: Nodes,
    capacity: Option<Arc<Capacity>>,
    operations: Option<Operations>,
}

/// The inputs of a claim's first CreateVolume call. Every later call repeats them.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct FirstCallInputs {
    /// `None` in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shape: Option<RequestSettings>,
    /// The parameters of the claim's VolumeAttributesClass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    mutable_parameters: Texts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    /// Index of the volume's first place in the list of places, which is the record's shared text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_place: Option<usize>,
}

impl FirstCallInputs {
    fn of(prepared: &Prepared) -> serde_json::Result<Self> {
        Ok(prepared.read::<Option<Self>>()?.unwrap_or_default())
    }

    /// Returns the topology requirement of the volume.
    fn requirement(&self, prepared: &Prepared) -> serde_json::Result<Option<Requirement>> {
        let read = |first| Requirement::read(prepared.shared().unwrap_or_default(), first);
        self.first_place.map(read).transpose()
    }
}

/// The inputs of an attempt's calls.
struct Attempt<'a> {
    request: &'a ProvisionRequest<Texts>,
    /// Includes the parameters of the VolumeAttributesClass and the source.
    wanted: RequestedVolume,
    source: Option<Source>,
}

impl Attempt<'_> {
    /// Adds the source and the preferred topology to a refusal: the driver may be unable to copy from one to the other.
    fn with_places(&self, error: driver_rpc::Error) -> driver_rpc::Error {
        let requirement = self.wanted.create.accessibility_requirements.as_ref();
        let place = requirement.and_then(|requirement| requirement.preferred.first());
        match (error, &self.source, place) {
            (driver_rpc::Error::Status(status), Some(Source { kind, namespace, name, .. }), Some(place)) => {
                let place = topology::described(&place.segments.clone().into_iter().collect());
                let message = status.message();
                let text = format!("{message} (for a copy of the {kind} {namespace}/{name} in the topology {place})");
                Status::new(status.code(), text).into()
            }
            (error, ..) => error,
        }
    }
}

/// A VolumeAttributesClass. Its version v1 is newer than the types of `k8s_openapi`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttributesClass {
    driver_name: String,
    #[serde(default)]
    parameters: Texts,
}

impl<D: Identity + Controller + 'static> CsiProvisioner<D> {
    /// Creates a provisioner for a driver whose [`DriverInfo::query`] succeeded. Events show the driver's errors, which
    /// must not contain the secrets of a request: [`driver_rpc::Client`] removes them.
    pub fn new(driver: D, info: DriverInfo, settings: Settings, identity: impl Into<String>) -> Self {
        let nodes = Nodes::of_driver(info.name());
        let own_node = settings.own_node.clone();
        let capacity = settings.capacity.clone().filter(|_| info.can_get_capacity());
        Self {
            driver,
            capacity: capacity.map(|settings| Arc::new(Capacity::new(info.name(), settings, nodes.clone(), own_node))),
            nodes,
            info,
            settings,
            identity: identity.into(),
            client: OnceLock::new(),
            holds: SourceHolds::default(),
            missing: MissingObjects::default(),
            attachments: Attachments::default(),
            operations: None,
        }
    }

    /// Adds the metric of the driver calls to the controller's metrics.
    #[must_use]
    pub fn with_metrics(self, operations: Operations) -> Self {
        Self { operations: Some(operations), ..self }
    }

    fn client(&self) -> Client {
        self.client.get().expect("the controller calls `start` first").clone()
    }

    fn request_settings(&self) -> RequestSettings {
        RequestSettings::new(&self.info, &self.settings)
    }

    /// Reads the class's parameters and the inputs of the first call.
    fn attempt<'a>(&self, request: &'a ProvisionRequest<Texts>) -> Result<Attempt<'a>, CreateError> {
        let inputs = FirstCallInputs::of(&request.prepared).map_err(CreateError::not_called)?;
        let shape = inputs.shape.clone().unwrap_or_else(|| self.request_settings());
        let mut wanted = RequestedVolume::read(request, &shape).map_err(CreateError::not_called)?;
        let requirement = inputs.requirement(&request.prepared).map_err(CreateError::not_called)?;
        wanted.create.accessibility_requirements = requirement.map(Requirement::into_request);
        let FirstCallInputs { mutable_parameters, source, .. } = inputs;
        wanted.create.mutable_parameters = mutable_parameters;
        wanted.create.volume_content_source = source.as_ref().map(Source::content);
        Ok(Attempt { request, wanted, source })
    }

    /// Calls CreateVolume. A repeated call returns the volume of the first one.
    async fn create(&self, attempt: &Attempt<'_>) -> Result<CsiVolume, CreateError> {
        let Some(source) = &attempt.source else {
            return self.call_create_volume(self.create_request(attempt).await?).await;
        };
        let own = attempt.request.namespace();
        if source.namespace != own {
            match grants::check(&self.client(), &source.reference(), &source.namespace, own).await {
                Ok(()) => {}
                Err(SourceError::Unsuitable(problem)) => return Err(CreateError::NotGranted(problem)),
                Err(error) => return Err(CreateError::not_called(error)),
            }
        }
        let held = self.holds.protect(&self.client(), source, &attempt.request.name).await;
        let is_protected = held.map_err(|error| {
            CreateError::NotCalled(format!("the source cannot be protected: {}", error_chain(&error)))
        })?;
        match self.call_create_volume(self.create_request(attempt).await?).await {
            Err(CreateError::Driver(error)) if error.code() == Code::NotFound && !is_protected => {
                Err(CreateError::SourceGone(error))
            }
            answer => answer,
        }
    }

    async fn create_request(&self, attempt: &Attempt<'_>) -> Result<CreateVolumeRequest, CreateError> {
        let secrets = self.secrets_for(&attempt.wanted).await?;
        Ok(CreateVolumeRequest { secrets, ..attempt.wanted.create.clone() })
    }

    async fn call_create_volume(&self, create: CreateVolumeRequest) -> Result<CsiVolume, CreateError> {
        let answer = self.driver.create_volume(create).await.map_err(CreateError::Driver)?;
        answer.volume.ok_or_else(|| CreateError::Driver(driver_rpc::Error::Interrupted("it has no volume".to_owned())))
    }

    /// Removes the possible volume of an attempt that lost permission for its source, without copying data.
    /// CreateVolume without the source creates an empty volume of that name, or fails because the volume of that name
    /// has other contents. Only in the second case does a call with the source return the existing volume.
    async fn withdraw(&self, attempt: &Attempt<'_>) -> Result<(), DeleteError> {
        let name = &attempt.request.name;
        self.release(attempt.source.as_ref(), name).await?;
        // The controller's watch may lag behind the attempt's success.
        if existing(Api::<PersistentVolume>::all(self.client()).get_metadata(name)).await?.is_some() {
            return Err(DeleteError::in_progress(format!("there is a PersistentVolume {name}")));
        }
        let create = self.create_request(attempt).await.map_err(CreateError::into_delete_error)?;
        let empty = CreateVolumeRequest { volume_content_source: None, ..create.clone() };
        let made = match self.call_create_volume(empty).await {
            Err(CreateError::Driver(error)) if error.code() == Code::AlreadyExists => {
                self.call_create_volume(create).await
            }
            answer => answer,
        };
        self.discard_answer(made, attempt).await
    }

    /// Releases the source of a copy.
    async fn release(&self, source: Option<&Source>, volume: &str) -> Result<(), DeleteError> {
        match source {
            Some(source) => self.holds.release(&self.client(), source, volume).await.map_err(|error| {
                let Source { kind, namespace, name, .. } = source;
                let cause = error_chain(&error);
                DeleteError::retry(format!("cannot remove the finalizer of the {kind} {namespace}/{name}: {cause}"))
            }),
            None => Ok(()),
        }
    }

    /// Deletes the volume that CreateVolume returned for an attempt that is to end.
    async fn discard_answer(
        &self,
        made: Result<CsiVolume, CreateError>,
        attempt: &Attempt<'_>,
    ) -> Result<(), DeleteError> {
        match made {
            Ok(made) => self.discard(made, attempt).await.map_err(DeleteError::retry),
            Err(CreateError::Driver(error)) => match verdict::leftover(&error) {
                Leftover::Nothing => Ok(()),
                _ => Err(verdict::of_delete(error)),
            },
            Err(error) => Err(error.into_delete_error()),
        }
    }

    /// Reads the Secrets for CreateVolume.
    async fn secrets_for(&self, wanted: &RequestedVolume) -> Result<Secrets, CreateError> {
        let Some(reference) = wanted.secrets.get(&Role::Provisioner) else { return Ok(Secrets::default()) };
        let object = described(reference);
        let found = self.missing.read(&object, self.secrets(reference)).await.map_err(CreateError::NotCalled)?;
        found.ok_or_else(|| CreateError::Missing(format!("{object} does not exist; create it")))
    }

    /// Reads a Secret. Returns `None` if it does not exist.
    async fn secrets(&self, reference: &SecretReference) -> Result<Option<Secrets>, String> {
        let (name, namespace) = names(reference);
        let read = existing(Api::<Secret>::namespaced(self.client(), namespace).get(name)).await;
        let unread =
            |error: CallError| format!("the Secret {namespace}/{name} cannot be read: {}", error_chain(&error));
        let Some(secret) = read.map_err(unread)? else { return Ok(None) };
        let text = |(key, value): (String, ByteString)| match String::from_utf8(value.0) {
            Ok(text) => Ok((key, text)),
            // gRPC strings must be UTF-8.
            Err(_) => Err(format!("the value of {key} in the Secret {namespace}/{name} is not valid UTF-8")),
        };
        let secrets = secret.data.unwrap_or_default().into_iter().map(text);
        secrets.collect::<Result<Secrets, _>>().map(Some)
    }

    /// Returns the Secret for DeleteVolume, which the volume's annotations name, or the class if the volume is older.
    async fn deletion_secret(&self, volume: &ProvisionedVolume) -> Result<Option<SecretReference>, DeleteError> {
        if let [Some(name), Some(namespace)] = DELETION_SECRET.map(|key| volume.annotation(key)) {
            let is_named = !name.is_empty() && !namespace.is_empty();
            let named = || SecretReference { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()) };
            return Ok(is_named.then(named));
        }
        let claim = volume.object.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let (Some(class), Some(claim)) = (volume.class_name(), claim) else { return Ok(None) };
        let class = existing(Api::<StorageClass>::all(self.client()).get(class)).await?;
        let Some(parameters) = class.and_then(|class| class.parameters) else { return Ok(None) };
        let tokens = Tokens {
            volume: &volume.name,
            claim: claim.name.as_deref().unwrap_or_default(),
            namespace: claim.namespace.as_deref().unwrap_or_default(),
            annotations: None,
        };
        Ok(secret_ref(Role::Provisioner, &parameters, &tokens)?)
    }

    async fn mutable_parameters(&self, name: &str) -> Result<Texts, ProvisionError> {
        let unread = |problem: String| {
            ProvisionError::no_change(format!("the VolumeAttributesClass {name} cannot be read: {problem}"))
        };
        let read = async {
            // Kubernetes 1.33 does not have v1.
            for version in ["v1", "v1beta1"] {
                let kind = GroupVersionKind::gvk("storage.k8s.io", version, "VolumeAttributesClass");
                let api: Api<DynamicObject> = Api::all_with(self.client(), &ApiResource::from_gvk(&kind));
                if let Some(class) = limited(api.get_opt(name)).await? {
                    return Ok::<_, CallError>(Some(class));
                }
            }
            Ok(None)
        };
        let described = format!("the VolumeAttributesClass {name}");
        let found = self.missing.read(&described, read).await;
        let found = found.map_err(|error| unread(error_chain(&error)))?;
        let Some(object) = found else {
            return Err(ProvisionError::no_change(format!("{described} does not exist; create it"))
                .after(missing_objects::PAUSE));
        };
        let class: AttributesClass = serde_json::from_value(object.data).map_err(|error| unread(error.to_string()))?;
        if class.driver_name != self.info.name() {
            let (other, own) = (class.driver_name, self.info.name());
            let text =
                format!("the VolumeAttributesClass {name} is for the driver {other}, and the claim's class for {own}");
            return Err(ProvisionError::nothing_left(text));
        }
        Ok(class.parameters)
    }

    /// Returns the verdict about a failed CreateVolume.
    fn verdict(&self, error: driver_rpc::Error, request: &ProvisionRequest<Texts>) -> ProvisionError {
        let node = request.selected_node.as_deref().filter(|_| self.info.can_restrict_topology(&self.settings));
        let left = verdict::leftover(&error);
        if node.is_some() && left == Leftover::Nothing && error.code() == Code::ResourceExhausted {
            return ProvisionError::reschedule(error);
        }
        // The driver may have begun to create a volume that only this attempt can find, so the attempt continues.
        let may_be_left = matches!(left, Leftover::InProgress | Leftover::Unknown | Leftover::NothingNew);
        let gone = node.filter(|node| request.resumed && may_be_left && self.nodes.is_deleted(node));
        let hint = gone.map(|node| {
            format!(
                "begun for the node {node}, which no longer exists; if the driver does not finish, remove what it has \
                 created, and then the record with the command `journal drop {}`",
                request.name
            )
        });
        verdict::of_create(error, hint, request.resumed, self.settings.retry_interval_max)
    }

    /// Publishes the class's capacity, which may have changed. If the node has no room, the scheduler must learn of it
    /// before it selects a node again.
    async fn publish_capacity_after(&self, error: &ProvisionError, request: &ProvisionRequest<Texts>) {
        let Some(capacity) = &self.capacity else { return };
        let class = request.class.name_any();
        match (error.verdict(), &request.selected_node) {
            (ProvisionVerdict::NoChange, _) => {}
            (ProvisionVerdict::Reschedule, Some(node)) => {
                let client = self.client();
                let _ = timeout(PUBLISHING, capacity.publish_for(&class, node, &client, &self.driver)).await;
                capacity.refresh(&class, &[]);
            }
            _ => capacity.refresh(&class, &[]),
        }
    }

    /// Refreshes the capacity after a volume of this class was created or deleted in these segments.
    fn refresh_capacity(&self, class: &str, segments: &[Segment]) {
        if let Some(capacity) = &self.capacity {
            capacity.refresh(class, segments);
        }
    }

    /// Deletes an unusable volume. If this fails, a later attempt finds the volume by its name.
    async fn discard(&self, made: CsiVolume, attempt: &Attempt<'_>) -> Result<(), String> {
        let secrets = self.secrets_for(&attempt.wanted).await.map_err(|error| error.to_string())?;
        let delete = DeleteVolumeRequest { volume_id: made.volume_id, secrets };
        self.driver.delete_volume(delete).await.map(drop).map_err(|error| error.to_string())
    }
}

impl<D: Identity + Controller + 'static> Provisioner for CsiProvisioner<D> {
    type Parameters = Texts;

    async fn provision(&self, request: ProvisionRequest<Texts>) -> Result<Volume, ProvisionError> {
        let attempt = self.attempt(&request).map_err(CreateError::into_provision_error)?;
        let made = match self.create(&attempt).await {
            Ok(made) => made,
            // The copy may exist, and cannot be created again.
            Err(error @ CreateError::SourceGone(_)) if request.resumed => return Err(ProvisionError::retry(error)),
            Err(CreateError::Driver(error) | CreateError::SourceGone(error)) => {
                let error = self.verdict(attempt.with_places(error), &request);
                self.publish_capacity_after(&error, &request).await;
                return Err(error);
            }
            Err(CreateError::NotGranted(problem)) if !request.resumed => {
                return Err(ProvisionError::no_change(problem));
            }
            Err(CreateError::NotGranted(problem)) => {
                return Err(match self.withdraw(&attempt).await {
                    Ok(()) => ProvisionError::nothing_left(problem),
                    Err(error) if error.verdict() == DeleteVerdict::InProgress => {
                        ProvisionError::in_progress(format!("{problem}; {error}"))
                    }
                    Err(error) => {
                        let pause = error.retry_after().unwrap_or_default();
                        ProvisionError::retry(format!("{problem}; {error}")).after(pause)
                    }
                });
            }
            Err(error) => return Err(error.into_provision_error()),
        };
        if let Some(fault) = created_volume::unusable_reason(&made, &request) {
            // The next call may return a usable volume.
            return Err(ProvisionError::retry(match self.discard(made, &attempt).await {
                Ok(()) => fault,
                Err(problem) => format!("{fault}; and it cannot be deleted yet: {problem}"),
            }));
        }
        let places = made.accessible_topology.iter().filter(|_| self.info.can_restrict_topology(&self.settings));
        let segments = places
            .filter(|place| !place.segments.is_empty())
            .map(|place| place.segments.iter().map(|(key, value)| (key.clone(), value.clone())).collect());
        self.refresh_capacity(&request.class.name_any(), &segments.collect::<Vec<Segment>>());
        Ok(created_volume::volume(made, &attempt.wanted, &request, &self.info, &self.settings, &self.identity))
    }

    /// Calls CreateVolume again, as the specification recommends: only its answer shows whether a volume exists.
    async fn clean_up(&self, request: ProvisionRequest<Texts>) -> Result<(), DeleteError> {
        let attempt = self.attempt(&request).map_err(CreateError::into_delete_error)?;
        let ended = match self.create(&attempt).await {
            Err(CreateError::NotGranted(_) | CreateError::SourceGone(_)) => self.withdraw(&attempt).await,
            answer => self.discard_answer(answer, &attempt).await,
        };
        if ended.is_ok() {
            self.refresh_capacity(&request.class.name_any(), &[]);
        }
        ended
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        if let Some(missing_capability) = self.info.missing_capability([]) {
            return Err(DeleteError::retry(missing_capability));
        }
        let source = volume.object.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        let Some(source) = source else {
            return Err(DeleteError::retry(format!(
                "the volume is of an in-tree plugin that was migrated to the CSI driver {}, and csi-provisioner does not translate such volumes; \
                 let external-provisioner delete it, or delete its storage and then remove the finalizers of the PersistentVolume",
                self.info.name()
            )));
        };
        if source.driver != self.info.name() {
            let (other, own) = (&source.driver, self.info.name());
            return Err(DeleteError::retry(format!("the volume belongs to the CSI driver {other}, not to {own}")));
        }
        let reference = self.deletion_secret(&volume).await?;
        let (secrets, missing) = match &reference {
            None => (Secrets::default(), None),
            Some(reference) => match self.secrets(reference).await.map_err(DeleteError::retry)? {
                Some(secrets) => (secrets, None),
                // Many drivers delete volumes without the Secret, which may have been deleted with its namespace.
                None => (Secrets::default(), Some(reference)),
            },
        };
        let delete = DeleteVolumeRequest { volume_id: source.volume_handle.clone(), secrets };
        match (self.driver.delete_volume(delete).await, missing) {
            (Ok(_), missing) => {
                if let Some(secret) = missing {
                    let (name, namespace) = names(secret);
                    tracing::warn!(
                        pv = volume.name,
                        "the volume was deleted without the Secret {namespace}/{name}, which does not exist"
                    );
                }
                let affinity =
                    volume.object.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
                let segments = affinity.map(topology::segments).unwrap_or_default();
                self.refresh_capacity(volume.class_name().unwrap_or_default(), &segments);
                Ok(())
            }
            (Err(error), None) => Err(verdict::of_delete(error)),
            (Err(error), Some(secret)) => {
                let (name, namespace) = names(secret);
                Err(DeleteError::retry(format!(
                    "{error}; the Secret {namespace}/{name}, which the volume or its class names, does not exist"
                )))
            }
        }
    }

    async fn start(&self, start: StartContext) -> Result<(), StartError> {
        self.holds.clear();
        if let Some(capacity) = &self.capacity {
            capacity.start(&start.client).await?;
        }
        // Every term sets the same client.
        let _ = self.client.set(start.client);
        Ok(())
    }

    async fn probe(&self) -> Result<(), StartError> {
        match self.driver.probe(ProbeRequest {}).await {
            Ok(answer) if answer.ready == Some(false) => Err(StartError::new("the CSI driver is not ready")),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn capabilities() -> Capabilities {
        Capabilities::default()
            .block()
            .mount_options()
            .allowed_topologies()
            .volume_attributes_classes()
            .data_sources(KINDS)
            .sources_of_other_namespaces()
            // External-resizer expands volumes.
            .expanded_elsewhere()
            .attempt_end()
            .class_templates()
    }
}

impl<D: Identity + Controller + 'static> Hooks for CsiProvisioner<D> {
    fn class_problems(class: &StorageClass) -> Vec<String> {
        let given = class.parameters.clone().unwrap_or_default();
        let of_driver = parameters::of_driver(&given).err().map(|error| error.to_string());
        let file_system = parameters::file_system(&given).err().map(|error| error.to_string());
        let secrets = Role::ALL.into_iter().filter_map(|role| templates(role, &given).err());
        of_driver.into_iter().chain(file_system).chain(secrets.map(|error| error.to_string())).collect()
    }

    async fn prepare(&self, request: ProvisionRequest<Texts>) -> Result<Prepared, ProvisionError> {
        let shape = self.request_settings();
        let wanted = RequestedVolume::read(&request, &shape);
        // Attempts are not recorded while their Secret is missing.
        if let Ok(wanted) = &wanted
            && wanted.secrets.get(&Role::Provisioner).is_some_and(|secret| self.missing.was_missing(&described(secret)))
        {
            self.secrets_for(wanted).await.map_err(CreateError::into_provision_error)?;
        }
        let sources = Sources { client: self.client(), driver: self.info.name(), settings: &self.settings };
        let source = match request.data_source() {
            Some(reference) => {
                let namespace = sources.namespace(reference, &request).await.map_err(ProvisionError::no_change)?;
                Some((reference, namespace))
            }
            None => None,
        };
        let attributes_class =
            request.claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
        let attributes_class = attributes_class.filter(|name| !name.is_empty());
        let need_of_source = source.as_ref().map(|(reference, _)| match Kind::of(reference) {
            Kind::Snapshot => RequiredFeature::Snapshots,
            Kind::Claim => RequiredFeature::Clones,
        });
        let needs = attributes_class.map(|_| RequiredFeature::Attributes).into_iter().chain(need_of_source);
        if let Some(missing_capability) = self.info.missing_capability(needs) {
            return Err(ProvisionError::nothing_left(missing_capability));
        }
        wanted.map_err(|error| match error {
            RequestError::Secret(_) => ProvisionError::no_change(error),
            RequestError::Parameter(_) | RequestError::AccessMode(_) => ProvisionError::invalid(error),
        })?;
        let mut inputs = FirstCallInputs { shape: Some(shape), ..FirstCallInputs::default() };
        if let Some(name) = attributes_class {
            inputs.mutable_parameters = self.mutable_parameters(name).await?;
        }
        if let Some((reference, namespace)) = source {
            let found = sources.find(reference, namespace, &request).await;
            inputs.source = Some(found.map_err(ProvisionError::no_change)?);
        }
        let requirement = match &self.settings.own_node {
            Some(node) => node.requirement(&self.settings, &request).map_err(refusal)?,
            None if self.info.can_restrict_topology(&self.settings) => {
                self.nodes.requirement(self.client(), &self.settings, &request).await?
            }
            None => None,
        };
        inputs.first_place = requirement.as_ref().map(|requirement| requirement.first);
        let prepared = Prepared::new(&inputs)?;
        Ok(match requirement {
            Some(requirement) => prepared.with_shared(requirement.places()?),
            None => prepared,
        })
    }

    /// Compares the request with the free capacity in the places that the driver would receive, like
    /// external-provisioner.
    async fn has_room(&self, request: ProvisionRequest<Texts>) -> bool {
        let Some(node) = &self.settings.own_node else { return true };
        let requirement = match node.requirement(&self.settings, &request) {
            Ok(requirement) => requirement,
            Err(unmet) => return !matches!(unmet, NoRequirement::NotAllowed(_)),
        };
        let bytes = i64::try_from(request.bytes).unwrap_or(i64::MAX);
        let wanted = RequestedVolume::read(&request, &self.request_settings());
        let (Some(requirement), Ok(RequestedVolume { create, .. })) = (requirement, wanted) else { return true };
        if bytes == 0 || !self.info.has_rpc(Rpc::GetCapacity) {
            return true;
        }
        for place in requirement.into_request().requisite {
            let asked = GetCapacityRequest {
                volume_capabilities: create.volume_capabilities.clone(),
                parameters: create.parameters.clone(),
                accessible_topology: Some(place),
            };
            match self.driver.get_capacity(asked).await {
                Ok(answer) if answer.available_capacity < bytes => {}
                // CreateVolume reports the problem.
                _ => return true,
            }
        }
        false
    }

    async fn end_attempt(&self, attempt: ProvisionRequest<Texts>) -> Result<(), DeleteError> {
        self.release(FirstCallInputs::of(&attempt.prepared)?.source.as_ref(), &attempt.name).await
    }

    /// Keeps the source protected until this attempt has ended, even if another attempt with the same source ends
    /// first.
    fn take_over(&self, name: &str, prepared: &Prepared) {
        if let Ok(FirstCallInputs { source: Some(source), .. }) = FirstCallInputs::of(prepared) {
            self.holds.add_attempt(&source, name);
        }
    }

    fn dropped(&self, name: &str) {
        self.holds.forget(name);
    }

    async fn while_leading(&self) {
        let kinds = [(Rpc::CloneVolume, Kind::Claim), (Rpc::CreateDeleteSnapshot, Kind::Snapshot)];
        let node = self.settings.own_node.as_ref().map(OwnNode::name);
        // Attempts on any node may need a snapshot, but a replica knows only the attempts on its own node.
        let is_swept = |rpc: Rpc, kind: Kind| self.info.has_rpc(rpc) && (node.is_none() || kind == Kind::Claim);
        let kinds = kinds.into_iter().filter(|(rpc, kind)| is_swept(*rpc, *kind)).map(|(_, kind)| kind).collect();
        let client = self.client();
        let sweep = Sweep { client: client.clone(), driver: self.info.name(), node, holds: &self.holds, kinds };
        match &self.capacity {
            Some(capacity) => {
                tokio::join!(sweep.run(), capacity.run(&client, &self.driver));
            }
            None => sweep.run().await,
        }
    }

    /// Refuses to delete a volume while it is attached to a node.
    async fn should_delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        if !self.info.has_rpc(Rpc::PublishUnpublishVolume) {
            return Ok(());
        }
        let node = match self.attachments.node_of(&volume.name) {
            Ok(node) => node,
            Err(NotListed) => {
                let parameters = ListParams::default().match_any();
                let attachments = limited(Api::<VolumeAttachment>::all(self.client()).list(&parameters)).await?;
                let is_its =
                    |spec: &VolumeAttachmentSpec| spec.source.persistent_volume_name.as_ref() == Some(&volume.name);
                attachments.items.into_iter().map(|one| one.spec).find(is_its).map(|spec| spec.node_name)
            }
        };
        match node {
            Some(node) => Err(DeleteError::in_use(format!(
                "the volume is still attached to node {node}, waiting for its detachment"
            ))),
            None => Ok(()),
        }
    }

    fn watches(&self, client: &Client) -> Vec<ObjectWatch> {
        let attachments = self.info.has_rpc(Rpc::PublishUnpublishVolume).then(|| self.attachments.watch(client));
        let snapshots = self.info.has_rpc(Rpc::CreateDeleteSnapshot).then(|| sources::watch_snapshots(client));
        let grants = self.settings.cross_namespace_data_sources.then(|| grants::watch(client));
        let needs_nodes = self.settings.own_node.is_none()
            && (self.info.can_restrict_topology(&self.settings) || self.capacity.is_some());
        let nodes = needs_nodes.then(|| self.nodes.watches(client)).into_iter().flatten();
        let capacity = self.capacity.iter().flat_map(|capacity| capacity.watches(client));
        attachments.into_iter().chain(snapshots).chain(grants).chain(nodes).chain(capacity).collect()
    }

    fn register_metrics(&self, registry: &mut Registry) {
        if let Some(operations) = &self.operations {
            operations.register(registry);
        }
        if let Some(capacity) = &self.capacity {
            capacity.register(registry);
        }
    }
}

/// Reasons why CreateVolume did not return a usable answer.
#[derive(Debug, Error)]
enum CreateError {
    /// The driver was not called.
    #[error("{0}")]
    NotCalled(String),
    /// The driver was not called because this object does not exist.
    #[error("{0}")]
    Missing(String),
    /// The driver was not called because the claim may no longer use its source.
    #[error("{0}")]
    NotGranted(String),
    /// The source was deleted although an attempt needed it.
    #[error("the source is deleted, so the claim can only be deleted as well: {0}")]
    SourceGone(driver_rpc::Error),
    #[error(transparent)]
    Driver(driver_rpc::Error),
}

impl CreateError {
    fn not_called(error: impl std::error::Error) -> Self {
        Self::NotCalled(error.to_string())
    }

    /// Returns the verdict about an attempt that did not call the driver.
    fn into_provision_error(self) -> ProvisionError {
        match self {
            Self::Missing(_) => ProvisionError::no_change(self).after(missing_objects::PAUSE),
            _ => ProvisionError::no_change(self),
        }
    }

    fn into_delete_error(self) -> DeleteError {
        DeleteError::retry(self)
    }
}

/// Describes a Secret in messages.
fn described(reference: &SecretReference) -> String {
    let (name, namespace) = names(reference);
    format!("the Secret {namespace}/{name}")
}

fn names(reference: &SecretReference) -> (&str, &str) {
    (reference.name.as_deref().unwrap_or_default(), reference.namespace.as_deref().unwrap_or_default())
}
