//! What a volume is copied from: a snapshot or another claim. While an attempt needs it, a finalizer protects it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use csi::messages::VolumeContentSource;
use csi::messages::volume_content_source::{SnapshotSource, Type, VolumeSource};
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, TypedObjectReference};
use kube_provisioner::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube_provisioner::kube::{Client, Error as KubeError, Resource, ResourceExt};
use kube_provisioner::quantity::parse_bytes;
use kube_provisioner::{Change, ObjectWatch, ProvisionRequest, Wake, error_chain};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// The kinds of sources, as claims name them.
pub(crate) const KINDS: [&str; 2] = ["PersistentVolumeClaim", "VolumeSnapshot.snapshot.storage.k8s.io"];

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
/// Without it a snapshot gives its data only to volumes of its own mode.
const ALLOW_MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/// What Go reads as true.
const YES: [&str; 6] = ["1", "t", "T", "true", "TRUE", "True"];

/// The source of an attempt.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Source {
    pub(crate) kind: Kind,
    namespace: String,
    name: String,
    /// That of the object, which may be replaced by another one of its name.
    uid: String,
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

    /// As external-provisioner protects its sources.
    fn finalizer(self) -> &'static str {
        match self {
            Self::Snapshot => "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection",
            Self::Claim => "provisioner.storage.kubernetes.io/cloning-protection",
        }
    }

    /// All fields of an object are written back, so no type of a certain version may be between.
    fn resource(self) -> ApiResource {
        ApiResource::from_gvk(&match self {
            Self::Snapshot => GroupVersionKind::gvk(SNAPSHOTS, "v1", "VolumeSnapshot"),
            Self::Claim => GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim"),
        })
    }
}

impl Source {
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

/// Why a claim cannot be filled from its source now.
#[derive(Debug, Error)]
pub(crate) enum SourceError {
    #[error("the {0} cannot be read: {1}")]
    Unread(String, String),
    #[error("{0}")]
    Unfit(String),
}

fn unfit<T>(text: String) -> Result<T, SourceError> {
    Err(SourceError::Unfit(text))
}

/// Which source a claim gets, and whether it can be copied.
pub(crate) struct Sources<'a> {
    pub(crate) client: Client,
    pub(crate) driver: &'a str,
    pub(crate) prevent_mode_conversion: bool,
}

impl Sources<'_> {
    pub(crate) async fn find<P>(
        &self,
        reference: &TypedObjectReference,
        request: &ProvisionRequest<P>,
    ) -> Result<Source, SourceError> {
        let kind = Kind::of(reference);
        let (name, namespace) = (reference.name.clone(), request.namespace().to_owned());
        let (uid, id) = match kind {
            Kind::Snapshot => self.snapshot(&namespace, &name, request).await?,
            Kind::Claim => self.claim(&namespace, &name, request).await?,
        };
        Ok(Source { kind, namespace, name, uid, id })
    }

    async fn snapshot<P>(
        &self,
        namespace: &str,
        name: &str,
        request: &ProvisionRequest<P>,
    ) -> Result<(String, String), SourceError> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &Kind::Snapshot.resource());
        let snapshot = read(&api, "VolumeSnapshot", name).await?;
        if snapshot.metadata.deletion_timestamp.is_some() && !is_held(&snapshot, Kind::Snapshot) {
            return unfit(format!("the VolumeSnapshot {name} is being deleted"));
        }
        let status = |pointer: &str| snapshot.data.pointer(pointer);
        let Some(content_name) = status("/status/boundVolumeSnapshotContentName").and_then(Value::as_str) else {
            return unfit(format!("the VolumeSnapshot {name} has no VolumeSnapshotContent yet"));
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(SNAPSHOTS, "v1", "VolumeSnapshotContent"));
        let contents: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let content = read(&contents, "VolumeSnapshotContent", content_name).await?;
        let of_content = |pointer: &str| content.data.pointer(pointer).and_then(Value::as_str);
        let owner = ["uid", "namespace", "name"].map(|key| of_content(&format!("/spec/volumeSnapshotRef/{key}")));
        if owner != [snapshot.metadata.uid.as_deref(), Some(namespace), Some(name)] {
            return unfit(format!(
                "the VolumeSnapshotContent {content_name} belongs to another VolumeSnapshot than {name}"
            ));
        }
        let driver = of_content("/spec/driver").unwrap_or_default();
        if driver != self.driver {
            return unfit(format!(
                "the VolumeSnapshot {name} is of the driver {driver}, and the claim's class is of {}",
                self.driver
            ));
        }
        if status("/status/readyToUse").and_then(Value::as_bool) != Some(true) {
            return unfit(format!("the VolumeSnapshot {name} is not ready yet"));
        }
        let Some(handle) = of_content("/status/snapshotHandle") else {
            return unfit(format!("the VolumeSnapshotContent {content_name} has no snapshot handle yet"));
        };
        let size = status("/status/restoreSize").and_then(Value::as_str).and_then(|size| parse_bytes(size).ok());
        if let Some(size) = size.filter(|size| *size > request.bytes) {
            let asked = request.bytes;
            return unfit(format!(
                "the VolumeSnapshot {name} has {size} bytes, and the claim asks for {asked}; ask for more"
            ));
        }
        let (mode, own) = (of_content("/spec/sourceVolumeMode"), mode(request));
        let may_change = content.annotations().get(ALLOW_MODE_CHANGE).is_some_and(|value| YES.contains(&&**value));
        if let Some(mode) = mode.filter(|mode| *mode != own && self.prevent_mode_conversion && !may_change) {
            return unfit(format!(
                "the VolumeSnapshot {name} is of a volume of mode {mode}, and the claim asks for {own}; an administrator can allow that by the annotation {ALLOW_MODE_CHANGE} of the VolumeSnapshotContent {content_name}"
            ));
        }
        Ok((snapshot.metadata.uid.clone().unwrap_or_default(), handle.to_owned()))
    }

    async fn claim<P>(
        &self,
        namespace: &str,
        name: &str,
        request: &ProvisionRequest<P>,
    ) -> Result<(String, String), SourceError> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let source = read(&api, "source claim", name).await?;
        let phase = source.status.as_ref().and_then(|status| status.phase.as_deref());
        let spec = source.spec.clone().unwrap_or_default();
        let volume_name = match spec.volume_name.filter(|_| phase == Some("Bound")) {
            Some(volume) if !volume.is_empty() => volume,
            _ => return unfit(format!("the source claim {name} is not bound yet")),
        };
        if source.metadata.deletion_timestamp.is_some() {
            return unfit(format!("the source claim {name} is being deleted"));
        }
        let asked = spec.resources.and_then(|resources| resources.requests?.get("storage").cloned());
        let size = asked.and_then(|size| parse_bytes(&size.0).ok()).unwrap_or_default();
        if size > request.bytes {
            let asked = request.bytes;
            return unfit(format!(
                "the source claim {name} has {size} bytes, and the claim asks for {asked}; ask for more"
            ));
        }
        let volume = read(&Api::<PersistentVolume>::all(self.client.clone()), "PersistentVolume", &volume_name).await?;
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let spec = volume.spec.clone().unwrap_or_default();
        let owner = spec.claim_ref.map(|owner| [owner.uid, owner.namespace, owner.name]);
        if phase != Some("Bound")
            || owner != Some([source.metadata.uid.clone(), Some(namespace.to_owned()), Some(name.to_owned())])
        {
            return unfit(format!("the PersistentVolume {volume_name} is not bound to the source claim {name}"));
        }
        let Some(csi) = spec.csi.filter(|csi| csi.driver == self.driver) else {
            return unfit(format!("the volume of the source claim {name} is none of the driver {}", self.driver));
        };
        let (mode, own) = (spec.volume_mode.as_deref().unwrap_or("Filesystem"), mode(request));
        if mode != own {
            return unfit(format!("the source claim {name} has the volume mode {mode}, and the claim asks for {own}"));
        }
        Ok((source.metadata.uid.clone().unwrap_or_default(), csi.volume_handle))
    }
}

fn mode<P>(request: &ProvisionRequest<P>) -> &'static str {
    if request.is_block() { "Block" } else { "Filesystem" }
}

async fn read<K>(api: &Api<K>, kind: &str, name: &str) -> Result<K, SourceError>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.get(name).await.map_err(|error| match error {
        KubeError::Api(status) if status.code == 404 => SourceError::Unfit(format!("the {kind} {name} does not exist")),
        error => SourceError::Unread(format!("{kind} {name}"), error_chain(&error)),
    })
}

fn is_held(object: &DynamicObject, kind: Kind) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == kind.finalizer())
}

/// The attempts of this process by the uid of their source. The last one takes the finalizer off.
#[derive(Default)]
pub(crate) struct Holds(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl Holds {
    /// Protects the source of an attempt. One that is gone or going cannot be protected any more: the driver decides.
    pub(crate) async fn hold(&self, client: &Client, source: &Source, volume: &str) -> Result<(), KubeError> {
        self.lock().entry(source.uid.clone()).or_default().insert(volume.to_owned());
        change(client, source, |object| {
            let is_new = !is_held(object, source.kind) && object.metadata.deletion_timestamp.is_none();
            is_new.then(|| object.finalizers_mut().push(source.kind.finalizer().to_owned()))
        })
        .await
    }

    /// An attempt has ended.
    pub(crate) async fn release(&self, client: &Client, source: &Source, volume: &str) -> Result<(), KubeError> {
        let others = |of: &BTreeSet<String>| of.iter().any(|holder| holder != volume);
        if self.lock().get(&source.uid).is_some_and(others) {
            self.forget(source, volume);
            return Ok(());
        }
        change(client, source, |object| {
            is_held(object, source.kind).then(|| object.finalizers_mut().retain(|one| one != source.kind.finalizer()))
        })
        .await?;
        self.forget(source, volume);
        Ok(())
    }

    fn forget(&self, source: &Source, volume: &str) {
        let mut holds = self.lock();
        if let Some(holders) = holds.get_mut(&source.uid) {
            holders.remove(volume);
            if holders.is_empty() {
                holds.remove(&source.uid);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A claim whose snapshot was not ready need not wait for its back-off.
pub(crate) fn watch_snapshots(client: &Client) -> ObjectWatch {
    let api = Api::all_with(client.clone(), &Kind::Snapshot.resource());
    ObjectWatch::new("volumesnapshots", api, |change| match change {
        Change::Applied(snapshot) => {
            let namespace = snapshot.namespace().unwrap_or_default();
            vec![Wake::DataSource { namespace, name: snapshot.name_any() }]
        }
        Change::Begin | Change::Listed(_) | Change::Ready | Change::Deleted(_) => Vec::new(),
    })
}

/// Writes the source back if `edit` changes it. The charts of drivers grant update, and not patch.
async fn change(
    client: &Client,
    source: &Source,
    edit: impl FnOnce(&mut DynamicObject) -> Option<()>,
) -> Result<(), KubeError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &source.namespace, &source.kind.resource());
    let Some(mut object) = api.get_opt(&source.name).await? else { return Ok(()) };
    if object.meta().uid.as_deref() != Some(&*source.uid) || edit(&mut object).is_none() {
        return Ok(());
    }
    match api.replace(&source.name, &PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        // Charts from before there was the finalizer do not grant it.
        Err(KubeError::Api(status)) if status.code == 403 && source.kind == Kind::Snapshot => {
            tracing::info!(name = source.name, "the VolumeSnapshot is not protected: {}", status.message);
            Ok(())
        }
        Err(KubeError::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
