//! The trait that an author implements.

use serde::de::DeserializeOwned;

use crate::capabilities::Capabilities;
use crate::error::{DeleteError, ExpandError, ProvisionError, StartError};
use crate::request::{ProvisionRequest, ProvisionedVolume};
use crate::start::Start;
use crate::volume::Volume;

/// Makes and removes the storage behind PersistentVolumes.
///
/// # Contract
///
/// * **Idempotent by name.** A call may come again after a crash, a time-out or a failed save, with
///   the same [`name`](ProvisionRequest::name): it must find what the first call made and return the
///   same volume. Deleting what is already gone is success.
/// * **One call at a time per volume.** Calls for different volumes run at the same time.
/// * **Something may be left.** A failed `provision` is taken to have left something behind, unless the error says
///   otherwise: `?` and [`ProvisionError::retry`] mean "something may be there", and the attempt is remembered until it
///   has ended. [`ProvisionError::nothing_left`], `invalid`, `ignored` and `reschedule` say that nothing is there.
/// * **Cancellable.** A call that takes longer than its time limit is dropped at an `.await`; the
///   controller then calls again until there is a final answer. Blocking work belongs into
///   `tokio::task::spawn_blocking`, and asks its [`FencingToken`](crate::FencingToken) before each step that makes or removes something.
/// * A panic costs the attempt and nothing else, in every method.
///
/// The methods that few provisioners need are in [`Hooks`](crate::Hooks).
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
///         // ... make the directory, idempotent in its name ...
///         Ok(Volume::nfs(&request.parameters.server, path))
///     }
///
///     async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
///         let _path = format!("/exports/{}", volume.name);
///         // ... remove the directory; "already gone" is success ...
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
    /// `()` where none are allowed, or a `BTreeMap<String, String>` for anything. An event of the claim names unknown
    /// and malformed keys, see [`parameters`](crate::parameters).
    type Parameters: DeserializeOwned + Send + Sync + 'static;

    /// Creates the storage, or finds what an earlier call created, and describes it.
    ///
    /// # Errors
    /// [`ProvisionError`] says what the failure means: `?` is "try again later, something may be left".
    fn provision(
        &self,
        request: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<Volume, ProvisionError>> + Send;

    /// Deletes the storage. Storage that is already gone is success.
    ///
    /// Every user with permission to create PersistentVolumes can have written the volume object: check it before acting on it.
    ///
    /// # Errors
    /// [`DeleteError`] says what the failure means: `?` is "try again later".
    fn delete(&self, volume: ProvisionedVolume) -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// Removes whatever an unfinished attempt of this name may have left. The argument has the claim and the class as
    /// they were when the attempt began. Nothing there is success. For backends that find their assets by name.
    ///
    /// The controller calls it when the claim of an unfinished attempt is deleted, and when its class was deleted and created
    /// again; the claim then continues with the new class. Without this method the controller calls `provision` until it
    /// succeeds or fails for good, and then deletes what it created.
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
    ///     match std::fs::remove_dir_all(self.0.join(&attempt.name)) {
    ///         Err(error) if error.kind() != NotFound => Err(error.into()),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// # }
    /// # impl Hooks for Directories {}
    /// ```
    ///
    /// # Errors
    /// As for [`delete`](Self::delete): the controller calls it again.
    fn clean_up(
        &self,
        attempt: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(attempt);
        async { Err(DeleteError::unsupported()) }
    }

    /// Makes the storage at least this many bytes large. Large enough already is success. For authors who
    /// [declare it](crate::Capabilities::expansion).
    ///
    /// It is called when the claim of a bound volume asks for more than the volume has, and again with the same or
    /// another size until one call succeeds. Only afterwards do volume and claim say the new size. As for
    /// [`delete`](Self::delete), check the volume object before acting on it. Nothing ever shrinks: a size below that of
    /// the asset is success. Kubernetes does not grow a file system on a device that is no CSI driver's: that belongs to
    /// this call, or to nobody.
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
    /// [`ExpandError`] says what the failure means: `?` is "try again later".
    fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> impl Future<Output = Result<(), ExpandError>> + Send {
        drop((volume, bytes));
        async { Err(ExpandError::unsupported()) }
    }

    /// Whether the backend can work now, for the readiness probe: the counterpart of the CSI Identity service's `Probe`.
    /// Asked only when somebody asks `/readyz`, with a time limit and not more often than every few seconds.
    ///
    /// It may be asked before [`start`](Self::start), also in a replica that waits for its turn.
    /// A process that is not ready continues to work: a probe informs people and tools, it does not stop calls.
    ///
    /// # Errors
    /// Any: `/readyz` answers 503 and shows its text.
    fn probe(&self) -> impl Future<Output = Result<(), StartError>> + Send {
        async { Ok(()) }
    }

    /// Called before the first other call whenever this process gets work that another one may have done until then:
    /// at the start and with every term of leadership. Restores what an author keeps in memory, such as the group ids in use.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # use kube_provisioner::gid::{GID_ANNOTATION, GidAllocator};
    /// # struct Exports { gids: GidAllocator }
    /// # impl Provisioner for Exports {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// async fn start(&self, start: Start) -> Result<(), StartError> {
    ///     for volume in start.volumes().await? {
    ///         let gid = volume.annotation(GID_ANNOTATION).and_then(|gid| gid.parse().ok());
    ///         if let (Some(class), Some(gid)) = (volume.class_name(), gid) {
    ///             self.gids.restore(class, &volume.name, gid)?;
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// # }
    /// # impl Hooks for Exports {}
    /// ```
    ///
    /// # Errors
    /// Any: nothing is begun before it succeeds. It is called again, and readiness and events say why.
    fn start(&self, start: Start) -> impl Future<Output = Result<(), StartError>> + Send {
        drop(start);
        async { Ok(()) }
    }

    /// What claims and classes may ask for. The controller refuses everything else before it calls `provision`, and so
    /// does the command `check-class`.
    fn capabilities() -> Capabilities
    where
        Self: Sized,
    {
        Capabilities::default()
    }
}
