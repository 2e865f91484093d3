//! The trait that an author implements, and what its methods are given.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::de::DeserializeOwned;

use crate::error::{DeleteError, ProvisionError};
use crate::mandate::Mandate;
use crate::volume::Volume;

/// Makes and removes the storage behind PersistentVolumes.
///
/// # Contract
///
/// * **Idempotent by name.** A call may come again after a crash, a time-out or a failed save, with
///   the same [`name`](ProvisionRequest::name): it must find what the first call made and return the
///   same volume. Deleting what is already gone is success.
/// * **One call at a time per volume.** Calls for different volumes run at the same time.
/// * **Cancellable.** A call that takes longer than its time limit is dropped at an `.await`; the
///   controller then calls again until there is a final answer. Blocking work belongs into
///   `tokio::task::spawn_blocking`, and asks its [`Mandate`] before each step that makes or removes something.
/// * A panic costs the attempt and nothing else.
///
/// # Example
///
/// ```
/// use kube_provisioner::{DeleteError, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Volume};
///
/// struct Exports;
///
/// #[derive(serde::Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct Parameters {
///     /// The NFS server that pods mount from
///     server: String,
/// }
///
/// impl Provisioner for Exports {
///     type Parameters = Parameters;
///
///     async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
///         let path = format!("/exports/{}", request.name);
///         // ... make the directory, idempotent in its name ...
///         Ok(Volume::nfs(&request.parameters.server, path))
///     }
///
///     async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
///         let _path = format!("/exports/{}", volume.name());
///         // ... remove the directory; "already gone" is success ...
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a provisioner",
    note = "implement `kube_provisioner::Provisioner`: `type Parameters`, `provision` and `delete`"
)]
pub trait Provisioner: Send + Sync + 'static {
    /// The class's `parameters`, parsed before [`provision`](Self::provision) is called: a struct with
    /// named fields, `()` where none are allowed, or a `BTreeMap<String, String>` for anything.
    /// Unknown and malformed keys are told to the claim's user, see [`parameters`](crate::parameters).
    type Parameters: DeserializeOwned + Send + Sync + 'static;

    /// Makes the storage, or finds what an earlier call made, and describes it.
    ///
    /// # Errors
    /// [`ProvisionError`] says what the failure means: `?` is "try again later".
    fn provision(
        &self,
        request: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<Volume, ProvisionError>> + Send;

    /// Removes the storage. Already gone is success.
    ///
    /// What the volume object says may have been written by anybody who may create
    /// PersistentVolumes: check it before acting on it.
    ///
    /// # Errors
    /// [`DeleteError`] says what the failure means: `?` is "try again later".
    fn delete(&self, volume: ProvisionedVolume) -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// What claims may ask for. What is not supported is refused before `provision` is called.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// An early veto: claims that are not accepted are left alone, without an event. Must not block.
    fn accepts(&self, claim: &PersistentVolumeClaim) -> bool {
        let _ = claim;
        true
    }
}

/// What [`Provisioner::provision`] is asked for: immutable snapshots of claim and class.
#[derive(Debug)]
#[non_exhaustive]
pub struct ProvisionRequest<P> {
    /// The name of the PersistentVolume to be, unique in the cluster and the same in every attempt.
    pub name: String,
    /// The requested size in bytes, rounded up. 0 where the claim asks for nothing.
    pub bytes: u64,
    /// The class's parameters.
    pub parameters: Arc<P>,
    /// The claim, without `metadata.managedFields`.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The claim's class.
    pub class: Arc<StorageClass>,
    /// The node that the scheduler chose, for classes that wait for the first consumer.
    pub selected_node: Option<String>,
    /// Whether this call may still act, for threads that cannot be dropped.
    pub mandate: Mandate,
}

impl<P> ProvisionRequest<P> {
    /// Whether the claim asks for a raw block device.
    pub fn is_block(&self) -> bool {
        self.claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
    }

    /// The claim's access modes.
    pub fn access_modes(&self) -> &[String] {
        self.claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
    }

    /// The class's mount options; the controller copies them to the volume.
    pub fn mount_options(&self) -> &[String] {
        self.class.mount_options.as_deref().unwrap_or_default()
    }

    /// `Delete` or `Retain`: what becomes of the volume after its claim. `Delete` where the class says nothing.
    pub fn reclaim_policy(&self) -> &str {
        self.class.reclaim_policy.as_deref().unwrap_or("Delete")
    }

    /// The claim's namespace.
    pub fn namespace(&self) -> &str {
        self.claim.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// The volume that [`Provisioner::delete`] is to remove: a fresh snapshot of the PersistentVolume.
#[derive(Clone, Debug)]
pub struct ProvisionedVolume {
    object: Arc<PersistentVolume>,
    mandate: Mandate,
}

impl ProvisionedVolume {
    /// Wraps a PersistentVolume, for an author's own tests.
    pub fn new(object: impl Into<Arc<PersistentVolume>>) -> Self {
        Self { object: object.into(), mandate: Mandate::unlimited() }
    }

    pub(crate) fn with_mandate(self, mandate: Mandate) -> Self {
        Self { mandate, ..self }
    }

    /// Whether this call may still act, for threads that cannot be dropped.
    pub fn mandate(&self) -> &Mandate {
        &self.mandate
    }

    /// The name that [`ProvisionRequest::name`] had.
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// An annotation of the volume.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations()?.get(key).map(String::as_str)
    }

    /// The whole object.
    pub fn object(&self) -> &PersistentVolume {
        &self.object
    }

    fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.object.metadata.annotations.as_ref()
    }
}

/// What a provisioner can do beyond plain file systems.
///
/// ```
/// use kube_provisioner::{AccessMode, Capabilities};
///
/// let capabilities = Capabilities::default().block().access_modes([AccessMode::ReadWriteOnce]);
/// # let _ = capabilities;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Capabilities {
    pub(crate) block: bool,
    pub(crate) access_modes: Option<Vec<AccessMode>>,
    pub(crate) selectors: bool,
    pub(crate) data_sources: bool,
    pub(crate) volume_attributes_classes: bool,
}

impl Capabilities {
    /// Raw block devices (`volumeMode: Block`).
    pub fn block(mut self) -> Self {
        self.block = true;
        self
    }

    /// Only these access modes. Without this call all are accepted.
    pub fn access_modes(mut self, modes: impl IntoIterator<Item = AccessMode>) -> Self {
        self.access_modes = Some(modes.into_iter().collect());
        self
    }

    /// Claims with a label selector; the author gives the volume matching labels.
    pub fn selectors(mut self) -> Self {
        self.selectors = true;
        self
    }

    /// Claims with a data source; the author fills the volume from it.
    pub fn data_sources(mut self) -> Self {
        self.data_sources = true;
        self
    }

    /// Claims that name a VolumeAttributesClass; the author honours it.
    pub fn volume_attributes_classes(mut self) -> Self {
        self.volume_attributes_classes = true;
        self
    }
}

/// How pods may mount a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessMode {
    /// Read-only by many nodes.
    ReadOnlyMany,
    /// Read-write by many nodes.
    ReadWriteMany,
    /// Read-write by one node.
    ReadWriteOnce,
    /// Read-write by one pod.
    ReadWriteOncePod,
}

impl AccessMode {
    /// The name in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnlyMany => "ReadOnlyMany",
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
}
