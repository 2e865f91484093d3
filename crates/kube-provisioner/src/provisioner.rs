//! The trait that an author implements.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use prometheus_client::registry::Registry;
use provisioner_runtime::access::AccessRule;
use serde::de::DeserializeOwned;

use crate::capabilities::Capabilities;
use crate::error::{DeleteError, ExpandError, ProvisionError, StartError};
use crate::object_watch::ObjectWatch;
use crate::prepared::Prepared;
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
///         let _path = format!("/exports/{}", volume.name);
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
    /// The class's `parameters`, parsed before [`provision`](Self::provision) is called: a struct with named fields,
    /// `()` where none are allowed, or a `BTreeMap<String, String>` for anything. An event of the claim names unknown
    /// and malformed keys, see [`parameters`](crate::parameters).
    type Parameters: DeserializeOwned + Send + Sync + 'static;

    /// Collects what the calls of an attempt need and what must be the same in each of them, such as the zone or the source of a
    /// copy. It reads and creates nothing.
    ///
    /// The controller calls it once before an attempt, records the result with the attempt, and passes it to all calls, also to those
    /// that another process makes later. After an error it calls again with back-off, and no attempt begins.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # struct Disks;
    /// # impl Disks { async fn emptiest_pool(&self) -> Result<String, std::io::Error> { Ok("a".into()) } }
    /// # impl Provisioner for Disks {
    /// #     type Parameters = ();
    /// async fn prepare(&self, _request: ProvisionRequest<()>) -> Result<Prepared, ProvisionError> {
    ///     Ok(Prepared::new(&self.emptiest_pool().await?)?)
    /// }
    ///
    /// async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
    ///     // The pool of the first call, however full it is by now.
    ///     let pool: String = request.prepared.read()?;
    ///     Ok(Volume::host_path(format!("/pools/{pool}/{}", request.name)))
    /// }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`provision`](Self::provision). Nothing is left behind, whatever the error says.
    fn prepare(
        &self,
        request: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<Prepared, ProvisionError>> + Send {
        drop(request);
        async { Ok(Prepared::default()) }
    }

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

    /// Called at the end of each attempt, for authors who [declare it](crate::Capabilities::attempt_end): the volume is saved, or
    /// nothing is left. Releases what the attempt has held, such as the source of a copy.
    ///
    /// It is called again until it succeeds, by another process if need be, so it may be called more than once. The request
    /// has no Secrets and no labels of the node.
    ///
    /// # Errors
    /// As for [`delete`](Self::delete).
    fn end_attempt(
        &self,
        attempt: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(attempt);
        async { Err(DeleteError::unsupported()) }
    }

    /// Called for each unfinished attempt that this process takes over: after [`start`](Self::start), and before any other call
    /// about the attempts that are taken over together. Restores what an author keeps in memory of attempts, such as the
    /// sources in use. `name` and `prepared` are those of the attempt's requests. Must not block.
    fn take_over(&self, name: &str, prepared: &Prepared) {
        let _ = (name, prepared);
    }

    /// Runs beside the other calls while this process works on a shard: it begins after [`take_over`](Self::take_over), and is
    /// dropped at an `.await` when the process gives the shard up. For what no claim asks for, such as a sweep from time to time.
    fn while_leading(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Called before a released volume and its object are deleted: the counterpart of the Go library's `DeletionGuard`.
    /// An error keeps object and asset, and the controller asks again.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # struct Disks;
    /// # impl Disks { async fn snapshots(&self, _: &str) -> Result<u32, std::io::Error> { Ok(0) } }
    /// # impl Provisioner for Disks {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// async fn should_delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
    ///     match self.snapshots(&volume.name).await? {
    ///         0 => Ok(()),
    ///         count => Err(DeleteError::in_use(format!("{count} snapshots need this volume; delete them first"))),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why it is not to be deleted now; see [`DeleteError`].
    fn should_delete(&self, volume: ProvisionedVolume) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(volume);
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
    /// ```
    ///
    /// # Errors
    /// Any: nothing is begun before it succeeds. It is called again, and readiness and events say why.
    fn start(&self, start: Start) -> impl Future<Output = Result<(), StartError>> + Send {
        drop(start);
        async { Ok(()) }
    }

    /// Objects of other kinds that the answers depend on. When one of them changes, what waits for it is tried again at once
    /// instead of after its back-off:
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # use kube_provisioner::kube::{Api, Client, ResourceExt, api::{ApiResource, GroupVersionKind}};
    /// # struct Exports;
    /// # impl Provisioner for Exports {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// fn watches(&self, client: &Client) -> Vec<ObjectWatch> {
    ///     let backups = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Backup"));
    ///     vec![ObjectWatch::new("backups", Api::all_with(client.clone(), &backups), |change| match change {
    ///         Change::Applied(backup) => vec![Wake::DataSource {
    ///             namespace: backup.namespace().unwrap_or_default(),
    ///             name: backup.name_any(),
    ///         }],
    ///         _ => Vec::new(),
    ///     })]
    /// }
    /// # }
    /// ```
    fn watches(&self, client: &Client) -> Vec<ObjectWatch> {
        let _ = client;
        Vec::new()
    }

    /// What claims and classes may ask for. The controller refuses everything else before it calls `provision`, and so
    /// does the command `check-class`.
    fn capabilities() -> Capabilities
    where
        Self: Sized,
    {
        Capabilities::default()
    }

    /// What the author of a class should know although it is served, such as a default that another provisioner of this class
    /// had otherwise. The command `check-class` says it. `own_name` is the provisioner's first name, where it is known.
    fn advice(class: &StorageClass, own_name: Option<&str>) -> Option<String>
    where
        Self: Sized,
    {
        let _ = (class, own_name);
        None
    }

    /// Lists the settings of a class that the provisioner does not honour although the controller serves the class, such as annotations
    /// for another provisioner. The command `check-class` reports them as problems.
    fn ignored_settings(class: &StorageClass) -> Vec<String>
    where
        Self: Sized,
    {
        let _ = class;
        Vec::new()
    }

    /// An early veto. The controller leaves claims that are not accepted alone, without an event, until they change or
    /// the next resync. Must not block.
    fn accepts(&self, claim: &PersistentVolumeClaim) -> bool {
        let _ = claim;
        true
    }

    /// Adds metrics to those of the controller, once for each process. [`prometheus_client`](crate::prometheus_client) has what
    /// they are made of. What is encoded at each scrape must not block.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # use kube_provisioner::prometheus_client::{metrics::gauge::Gauge, registry::Registry};
    /// # struct Exports { used: Gauge }
    /// # impl Provisioner for Exports {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// fn register_metrics(&self, registry: &mut Registry) {
    ///     registry.register("exports_used", "Exports that have a volume", self.used.clone());
    /// }
    /// # }
    /// ```
    fn register_metrics(&self, registry: &mut Registry) {
        let _ = registry;
    }

    /// Rights that the author's own calls to the API server need, for the generated manifests and the check at the start.
    fn access_rules() -> Vec<AccessRule>
    where
        Self: Sized,
    {
        Vec::new()
    }
}
