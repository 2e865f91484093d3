//! Sources that volumes are copied from: snapshots and other claims.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use driver_rpc::csi::VolumeContentSource;
use driver_rpc::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, TypedObjectReference};
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_provisioner::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube_provisioner::kube::{Client, ResourceExt};
use kube_provisioner::quantity::parse_bytes;
use kube_provisioner::{Change, ObjectWatch, ProvisionRequest, Trigger, error_chain};
use provisioner_runtime::CallError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::grants;
use crate::request::Settings;
use crate::requests::limited;
use crate::source_holds::is_held;
use crate::watched_objects::{ChangedObjects, WatchedObjects, hash};

/// The kinds of sources, in the notation of claims.
pub(crate) const KINDS: [&str; 2] = ["PersistentVolumeClaim", "VolumeSnapshot.snapshot.storage.k8s.io"];

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
/// Permits volumes whose mode differs from the snapshot's.
const ALLOW_MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/// external-provisioner's message, followed by the remedy.
const CROSS_NAMESPACE_DISABLED: &str = "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled; start csi-provisioner with --feature-gates=CrossNamespaceVolumeDataSource=true";

/// The texts that Go parses as true.
const GO_TRUE_VALUES: [&str; 6] = ["1", "t", "T", "true", "TRUE", "True"];

/// The source of an attempt.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Source {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The uid of the object, which may be replaced by another object with the same name.
    pub(crate) uid: String,
    /// The driver's id of the snapshot or the volume.
    id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) enum Kind {
    Snapshot,
    Claim,
}

impl Kind {
    pub(crate) fn of(reference: &TypedObjectReference) -> Self {
        if reference.kind == "VolumeSnapshot" { Self::Snapshot } else { Self::Claim }
    }

    /// Returns external-provisioner's finalizer for sources of this kind.
    pub(crate) fn finalizer(self) -> &'static str {
        match self {
            Self::Snapshot => "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection",
            Self::Claim => "provisioner.storage.kubernetes.io/cloning-protection",
        }
    }

    /// Updates write back all fields of an object. A typed representation could lose some of them.
    pub(crate) fn resource(self) -> ApiResource {
        ApiResource::from_gvk(&match self {
            Self::Snapshot => GroupVersionKind::gvk(SNAPSHOTS, "v1", "VolumeSnapshot"),
            Self::Claim => GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim"),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "VolumeSnapshot",
            Self::Claim => "source claim",
        })
    }
}

impl Source {
    /// Returns the source for an object in a list. It lacks the driver's id, so it cannot be copied.
    pub(crate) fn listed(kind: Kind, metadata: &ObjectMeta) -> Option<Self> {
        let ObjectMeta { namespace, name, uid, .. } = metadata.clone();
        Some(Self { kind, namespace: namespace?, name: name?, uid: uid?, id: String::new() })
    }

    /// Returns a reference to the source, as a claim in its namespace contains it.
    pub(crate) fn reference(&self) -> TypedObjectReference {
        let (api_group, kind) = match self.kind {
            Kind::Snapshot => (Some(SNAPSHOTS.to_owned()), "VolumeSnapshot"),
            Kind::Claim => (None, "PersistentVolumeClaim"),
        };
        let (name, namespace) = (self.name.clone(), Some(self.namespace.clone()));
        TypedObjectReference { api_group, kind: kind.to_owned(), name, namespace }
    }

    pub(crate) fn content(&self) -> VolumeContentSource {
        let id = self.id.clone();
        VolumeContentSource {
            r#type: Some(match self.kind {
                Kind::Snapshot => Type::Snapshot(SnapshotSource { snapshot_id: id }),
                Kind::Claim => Type::Volume(VolumeSource { volume_id: id }),
            }),
        }
    }
}

/// Reasons why a claim cannot be filled from its source now.
#[derive(Debug, Error)]
pub(crate) enum SourceError {
    #[error("the {0} cannot be read: {1}")]
    Unreadable(String, String),
    #[error("{0}")]
    Unsuitable(String),
}

fn unsuitable<T>(text: String) -> Result<T, SourceError> {
    Err(SourceError::Unsuitable(text))
}

/// Looks up the sources of claims, and checks that they can be copied.
pub(crate) struct Sources<'a> {
    pub(crate) client: Client,
    pub(crate) driver: &'a str,
    pub(crate) settings: &'a Settings,
}

/// The name of a source. It is displayed with its namespace if this is not the claim's.
struct SourceName<'a> {
    namespace: &'a str,
    name: &'a str,
    is_own: bool,
}

impl fmt::Display for SourceName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_own { f.write_str(self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

impl Sources<'_> {
    /// Returns the namespace of a claim's source if the claim may use sources in it.
    pub(crate) async fn namespace<P>(
        &self,
        reference: &TypedObjectReference,
        request: &ProvisionRequest<P>,
    ) -> Result<String, SourceError> {
        let own = request.namespace();
        let Some(namespace) = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty()) else {
            return Ok(own.to_owned());
        };
        if !self.settings.cross_namespace_data_sources {
            return unsuitable(CROSS_NAMESPACE_DISABLED.to_owned());
        }
        if namespace != own {
            grants::check(&self.client, reference, namespace, own).await?;
        }
        Ok(namespace.to_owned())
    }

    /// Returns the source in its [namespace](Self::namespace).
    pub(crate) async fn find<P>(
        &self,
        reference: &TypedObjectReference,
        namespace: String,
        request: &ProvisionRequest<P>,
    ) -> Result<Source, SourceError> {
        let (kind, name) = (Kind::of(reference), reference.name.clone());
        let place = SourceName { namespace: &namespace, name: &name, is_own: namespace == request.namespace() };
        let (uid, id) = match kind {
            Kind::Snapshot => self.snapshot(&place, request).await?,
            Kind::Claim => self.claim(&place, request).await?,
        };
        Ok(Source { kind, namespace, name, uid, id })
    }

    async fn snapshot<P>(
        &self,
        name: &SourceName<'_>,
        request: &ProvisionRequest<P>,
    ) -> Result<(String, String), SourceError> {
        let resource = Kind::Snapshot.resource();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), name.namespace, &resource);
        let snapshot = read(&api, name.name, format!("VolumeSnapshot {name}")).await?;
        if snapshot.metadata.deletion_timestamp.is_some() && !is_held(&snapshot, Kind::Snapshot) {
            return unsuitable(format!("the VolumeSnapshot {name} is being deleted"));
        }
        let status = |pointer: &str| snapshot.data.pointer(pointer);
        let Some(content_name) = status("/status/boundVolumeSnapshotContentName").and_then(Value::as_str) else {
            return unsuitable(format!("the VolumeSnapshot {name} has no VolumeSnapshotContent yet"));
        };
        let contents = snapshot_contents(&self.client);
        let content = read(&contents, content_name, format!("VolumeSnapshotContent {content_name}")).await?;
        let of_content = |pointer: &str| content.data.pointer(pointer).and_then(Value::as_str);
        let owner = ["uid", "namespace", "name"].map(|key| of_content(&format!("/spec/volumeSnapshotRef/{key}")));
        if owner != [snapshot.metadata.uid.as_deref(), Some(name.namespace), Some(name.name)] {
            return unsuitable(format!(
                "the VolumeSnapshotContent {content_name} belongs to another VolumeSnapshot than {name}"
            ));
        }
        let driver = of_content("/spec/driver").unwrap_or_default();
        if driver != self.driver {
            return unsuitable(format!(
                "the VolumeSnapshot {name} is of the driver {driver}, and the claim's class is of {}",
                self.driver
            ));
        }
        if status("/status/readyToUse").and_then(Value::as_bool) != Some(true) {
            return unsuitable(format!("the VolumeSnapshot {name} is not ready yet"));
        }
        let Some(handle) = of_content("/status/snapshotHandle") else {
            return unsuitable(format!("the VolumeSnapshotContent {content_name} has no snapshot handle yet"));
        };
        // The API server also accepts a number.
        let text = |size: &Value| size.as_str().map_or_else(|| size.to_string(), str::to_owned);
        let size = status("/status/restoreSize").and_then(|size| parse_bytes(&text(size)).ok());
        if let Some(size) = size.filter(|size| *size > request.bytes) {
            let asked = request.bytes;
            return unsuitable(format!(
                "the VolumeSnapshot {name} has {size} bytes, and the claim asks for {asked}; ask for more"
            ));
        }
        let (mode, own) = (of_content("/spec/sourceVolumeMode"), mode(request));
        let may_change =
            content.annotations().get(ALLOW_MODE_CHANGE).is_some_and(|value| GO_TRUE_VALUES.contains(&&**value));
        if let Some(mode) =
            mode.filter(|mode| *mode != own && self.settings.prevent_volume_mode_conversion && !may_change)
        {
            return unsuitable(format!(
                "the VolumeSnapshot {name} is of a volume of mode {mode}, and the claim asks for {own}; an administrator can allow that by the annotation {ALLOW_MODE_CHANGE} of the VolumeSnapshotContent {content_name}"
            ));
        }
        Ok((snapshot.metadata.uid.clone().unwrap_or_default(), handle.to_owned()))
    }

    async fn claim<P>(
        &self,
        name: &SourceName<'_>,
        request: &ProvisionRequest<P>,
    ) -> Result<(String, String), SourceError> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), name.namespace);
        let source = read(&api, name.name, format!("source claim {name}")).await?;
        let phase = source.status.as_ref().and_then(|status| status.phase.as_deref());
        let spec = source.spec.clone().unwrap_or_default();
        let volume_name = match spec.volume_name.filter(|_| phase == Some("Bound")) {
            Some(volume) if !volume.is_empty() => volume,
            _ => return unsuitable(format!("the source claim {name} is not bound yet")),
        };
        // external-provisioner may have begun to copy a protected claim.
        if source.metadata.deletion_timestamp.is_some() && !is_held(&source, Kind::Claim) {
            return unsuitable(format!("the source claim {name} is being deleted"));
        }
        let asked = spec.resources.and_then(|resources| resources.requests?.get("storage").cloned());
        let size = asked.and_then(|size| parse_bytes(&size.0).ok()).unwrap_or_default();
        if size > request.bytes {
            let asked = request.bytes;
            return unsuitable(format!(
                "the source claim {name} has {size} bytes, and the claim asks for {asked}; ask for more"
            ));
        }
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let volume = read(&volumes, &volume_name, format!("PersistentVolume {volume_name}")).await?;
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let spec = volume.spec.clone().unwrap_or_default();
        let owner = spec.claim_ref.map(|owner| [owner.uid, owner.namespace, owner.name]);
        let [of_namespace, of_name] = [name.namespace, name.name].map(|text| Some(text.to_owned()));
        if phase != Some("Bound") || owner != Some([source.metadata.uid.clone(), of_namespace, of_name]) {
            return unsuitable(format!("the PersistentVolume {volume_name} is not bound to the source claim {name}"));
        }
        let Some(csi) = spec.csi.filter(|csi| csi.driver == self.driver) else {
            return unsuitable(format!(
                "the volume of the source claim {name} does not belong to the driver {}",
                self.driver
            ));
        };
        let (mode, own) = (spec.volume_mode.as_deref().unwrap_or("Filesystem"), mode(request));
        if mode != own {
            return unsuitable(format!(
                "the source claim {name} has the volume mode {mode}, and the claim asks for {own}"
            ));
        }
        Ok((source.metadata.uid.clone().unwrap_or_default(), csi.volume_handle))
    }
}

fn mode<P>(request: &ProvisionRequest<P>) -> &'static str {
    if request.is_block() { "Block" } else { "Filesystem" }
}

pub(crate) fn snapshot_contents(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(SNAPSHOTS, "v1", "VolumeSnapshotContent"));
    Api::all_with(client.clone(), &resource)
}

/// Reads an object. `what` describes it in messages.
async fn read<K>(api: &Api<K>, name: &str, what: String) -> Result<K, SourceError>
where
    K: Clone + fmt::Debug + serde::de::DeserializeOwned,
{
    limited(api.get(name)).await.map_err(|error| match error {
        CallError::NotFound => SourceError::Unsuitable(format!("the {what} does not exist")),
        error => SourceError::Unreadable(what, error_chain(&error)),
    })
}

/// Wakes claims whose snapshot has become ready, so that they do not wait for their back-off. The first list wakes
/// none: it contains all snapshots of the cluster. Unrelated changes, such as our finalizer, which each attempt adds
/// and removes, wake no claims either.
pub(crate) fn watch_snapshots(client: &Client) -> ObjectWatch {
    let api = Api::all_with(client.clone(), &Kind::Snapshot.resource());
    let snapshots = Mutex::new(WatchedObjects::default());
    ObjectWatch::new("volumesnapshots", api, move |change| {
        let mut snapshots = snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        changed(&mut snapshots, change).into_iter().filter_map(|name| of_snapshot(&name)).collect()
    })
}

/// Returns the snapshots with a new state, as `NAMESPACE/NAME`. A cluster may have many, so states are hashes.
fn changed(snapshots: &mut WatchedObjects<u64>, change: Change<DynamicObject>) -> Vec<String> {
    let was_listed = snapshots.all().is_some();
    let change = change.map(|snapshot| {
        let status = &snapshot.data["status"];
        let (content, ready) = (status["boundVolumeSnapshotContentName"].as_str(), status["readyToUse"].as_bool());
        let name = format!("{}/{}", snapshot.namespace().unwrap_or_default(), snapshot.name_any());
        (name, Some(hash((snapshot.uid(), content, ready))))
    });
    let changed = snapshots.apply(change);
    let exists = |name: &String| snapshots.all().is_some_and(|all| all.contains_key(name));
    match changed {
        ChangedObjects::One { name, .. } if was_listed && exists(&name) => vec![name],
        ChangedObjects::Many { before } if was_listed => {
            let all = snapshots.all().into_iter().flatten();
            all.filter(|(name, state)| before.get(*name) != Some(state)).map(|(name, _)| name.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn of_snapshot(name: &str) -> Option<Trigger> {
    let (namespace, name) = name.split_once('/')?;
    Some(Trigger::DataSource { namespace: namespace.to_owned(), name: name.to_owned() })
}
