//! The trait that volume provisioners implement.

use serde::de::DeserializeOwned;

use crate::capabilities::Capabilities;
use crate::error::{DeleteError, ExpandError, ProvisionError, StartError};
use crate::request::{ProvisionRequest, ProvisionedVolume};
use crate::start::StartContext;
use crate::volume::Volume;

/// Creates and deletes the storage behind PersistentVolumes.
///
/// # Contract
///
/// * **Idempotent by name.** A call may be repeated with the same [`name`](ProvisionRequest::name) after a crash, a
///   timeout or a failed save. It must find what the first call created and return the same volume. Deleting storage
///   that no longer exists must succeed.
/// * **One call at a time per volume.** Calls for different volumes run concurrently.
/// * **Failed attempts may leave storage behind.** The controller assumes that a failed `provision` left something in
///   the backend unless the error says otherwise: `?` and [`ProvisionError::retry`] mean "something may be left", and
///   the controller remembers the attempt until it has ended. [`ProvisionError::nothing_left`], `invalid`, `ignored`
///   and `reschedule` state that the backend contains nothing for this attempt.
/// * **Cancellable.** A call that exceeds its time limit is dropped at an `.await`; the controller then calls again
///   until it receives a final answer. A method that blocks its thread stops the whole [`Program`](crate::Program),
///   including its Leases and probes: run blocking work in `tokio::task::spawn_blocking`, and have it check its
///   [`FencingToken`](crate::FencingToken) before each step that creates or removes something.
/// * A panic in any method fails only the current attempt.
///
/// [`Hooks`](crate::Hooks) has the methods that few provisioners need.
///
/// # Example
///
/// ```
/// use kube_provisioner::{DeleteError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Volume};
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
///         // ... create the directory; succeed if it exists ...
///         Ok(Volume::nfs(&request.parameters.server, path))
///     }
///
///     async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
///         let _path = format!("/exports/{}", volume.name);
///         // ... remove the directory; succeed if it does not exist ...
///         Ok(())
///     }
/// }
///
/// impl Hooks for Exports {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a provisioner",
    note = "implement `kube_provisioner::Provisioner`: `type Parameters`, `provision` and `delete`"
)]
pub trait Provisioner: Send + Sync + 'static {
    /// The class's `parameters`, parsed before [`provision`](Self::provision) is called: a struct with named fields,
    /// `()` if no parameters are allowed, or a `BTreeMap<String, String>` for arbitrary ones. An event on the claim
    /// names unknown and malformed keys, see [`parameters`](crate::parameters).
    type Parameters: DeserializeOwned + Send + Sync + 'static;

    /// Creates the storage, or finds what an earlier call created, and describes it.
    ///
    /// # Errors
    /// The [`ProvisionError`] determines how the controller continues: `?` means "try again later, something may be
    /// left".
    fn provision(
        &self,
        request: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<Volume, ProvisionError>> + Send;

    /// Deletes the storage. Returns `Ok` if it no longer exists.
    ///
    /// Any user with permission to create PersistentVolumes may have written the volume object: check it before acting
    /// on it. If two calls of `provision` for one name returned different assets, the controller passes the one that
    /// was not saved: never delete another asset of that name instead.
    ///
    /// # Errors
    /// The [`DeleteError`] determines how the controller continues: `?` means "try again later".
    fn delete(&self, volume: ProvisionedVolume) -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// Removes whatever an unfinished attempt of this name may have left behind. The argument contains the claim and
    /// the class as they were when the attempt began. Return `Ok` if there is nothing to remove. Implement this if your
    /// backend can look up assets by name.
    ///
    /// The controller calls it when the claim of an unfinished attempt is deleted, and when its class was deleted and
    /// recreated; the claim then continues with the new class. With
    /// [`Capabilities::node_local`](crate::Capabilities::node_local), it also calls it when the claim has received a
    /// volume on another node. If this method is not implemented, the controller calls
    /// `provision` until it succeeds or fails permanently, and then deletes what it created.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # use std::io::ErrorKind::NotFound;
    /// # struct Directories(std::path::PathBuf);
    /// # impl Provisioner for Directories {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// async fn clean_up(&self, attempt: ProvisionRequest<()>) -> Result<(), DeleteError> {
    ///     match tokio::fs::remove_dir_all(self.0.join(&attempt.name)).await {
    ///         Err(error) if error.kind() != NotFound => Err(error.into()),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// # }
    /// # impl Hooks for Directories {}
    /// ```
    ///
    /// # Errors
    /// Same as [`delete`](Self::delete): the controller calls it again.
    fn clean_up(
        &self,
        attempt: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(attempt);
        async { Err(DeleteError::unsupported()) }
    }

    /// Expands the storage to at least `bytes`. Returns `Ok` if it is already that large, since volumes never shrink.
    /// Only called if the provisioner [declares it](crate::Capabilities::expansion).
    ///
    /// The controller calls it when the claim of a bound volume requests more than the volume's capacity, and again
    /// with the same or another size until one call succeeds. Only then do the volume and the claim show the new size.
    /// As for [`delete`](Self::delete), check the volume object before acting on it. Kubernetes does not grow a file
    /// system on a non-CSI block device, so this method must do it.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # struct Exports;
    /// # impl Exports { async fn set_quota(&self, _: &str, _: u64) -> Result<(), std::io::Error> { Ok(()) } }
    /// # impl Provisioner for Exports {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
    ///     if bytes > 1 << 40 {
    ///         return Err(ExpandError::infeasible("an export has at most 1Ti; ask for less"));
    ///     }
    ///     Ok(self.set_quota(&volume.name, bytes).await?)
    /// }
    ///
    /// fn capabilities() -> Capabilities {
    ///     Capabilities::default().expansion()
    /// }
    /// # }
    /// # impl Hooks for Exports {}
    /// ```
    ///
    /// # Errors
    /// The [`ExpandError`] determines how the controller continues: `?` means "try again later".
    fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> impl Future<Output = Result<(), ExpandError>> + Send {
        drop((volume, bytes));
        async { Err(ExpandError::unsupported()) }
    }

    /// Reports to the readiness probe that the backend can work now: the counterpart of `Probe` in the CSI Identity
    /// service. Called only when `/readyz` is requested, with a time limit and at most once every few seconds.
    ///
    /// It may be called before [`start`](Self::start), also in a replica that waits to become the leader.
    /// A process that is not ready continues to work: the probe informs users and tools, it does not stop calls.
    ///
    /// # Errors
    /// On any error, `/readyz` answers 500 and shows the error's message.
    fn probe(&self) -> impl Future<Output = Result<(), StartError>> + Send {
        async { Ok(()) }
    }

    /// Called before any other call whenever this process takes over work from another one: at startup and at the
    /// beginning of each term of leadership. Restores state that the provisioner keeps in memory, such as the group IDs
    /// in use.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # use kube_provisioner::gid::{GID_ANNOTATION, GidAllocator};
    /// # struct Exports { gids: GidAllocator }
    /// # impl Provisioner for Exports {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// async fn start(&self, start: StartContext) -> Result<(), StartError> {
    ///     for volume in start.volumes().await? {
    ///         let gid = volume.annotation(GID_ANNOTATION).and_then(|gid| gid.parse().ok());
    ///         if let (Some(class), Some(gid)) = (volume.class_name(), gid) {
    ///             // One volume with an unusual annotation must not stop the work on all others.
    ///             if let Err(problem) = self.gids.restore(class, &volume.name, gid) {
    ///                 tracing::warn!("{problem}");
    ///             }
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// # }
    /// # impl Hooks for Exports {}
    /// # let volume = |name: &str| -> kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume {
    /// #     let metadata = serde_json::json!({"name": name, "annotations": {GID_ANNOTATION: "2000"}});
    /// #     let spec = serde_json::json!({"storageClassName": "shared"});
    /// #     serde_json::from_value(serde_json::json!({"metadata": metadata, "spec": spec})).unwrap()
    /// # };
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # runtime.block_on(async {
    /// #     let client = kube_sim::Cluster::new().client("provisioner");
    /// #     let start = StartContext::new(client, vec![volume("a"), volume("b")]);
    /// #     Exports { gids: GidAllocator::new() }.start(start).await.unwrap();
    /// # });
    /// ```
    ///
    /// # Errors
    /// On any error, the controller calls it again and begins no work before it succeeds. Readiness and events give the
    /// reason. So do not return errors about single volumes, which users can edit.
    fn start(&self, start: StartContext) -> impl Future<Output = Result<(), StartError>> + Send {
        drop(start);
        async { Ok(()) }
    }

    /// Declares the features that claims and classes may use. The controller and the command `check-class` reject
    /// everything else; the controller does so before it calls `provision`.
    fn capabilities() -> Capabilities
    where
        Self: Sized,
    {
        Capabilities::default()
    }
}
