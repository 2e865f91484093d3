//! The optional methods of a provisioner.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use prometheus_client::registry::Registry;
use provisioner_runtime::access::AccessRule;

use crate::error::{DeleteError, ProvisionError};
use crate::object_watch::ObjectWatch;
use crate::prepared::Prepared;
use crate::provisioner::Provisioner;
use crate::request::{ProvisionRequest, ProvisionedVolume};

/// Methods that only some provisioners need in addition to [`Provisioner`]: state of attempts, background work, a
/// deletion guard, watches of other objects, metrics, and permissions. Every method has a default, so most provisioners
/// write `impl Hooks for Exports {}`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which optional methods it has",
    note = "add `impl kube_provisioner::Hooks for {Self} {{}}`; each method has a default"
)]
pub trait Hooks: Provisioner {
    /// Chooses the values that must be the same in all calls of an attempt, such as the zone or the source of a copy.
    /// It must not create anything.
    ///
    /// The controller calls it once before an attempt, records the result with the attempt, and passes it to all calls,
    /// including later calls by another process. After an error, no attempt begins; the controller calls again with
    /// back-off.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # struct Disks;
    /// # impl Disks { async fn emptiest_pool(&self) -> Result<String, std::io::Error> { Ok("a".into()) } }
    /// # impl Provisioner for Disks {
    /// #     type Parameters = ();
    ///
    /// async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
    ///     // The pool that the first call chose, even if it is full now.
    ///     let pool: String = request.prepared.read()?;
    ///     Ok(Volume::host_path(format!("/pools/{pool}/{}", request.name)))
    /// }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// # }
    /// # impl Hooks for Disks {
    /// async fn prepare(&self, _request: ProvisionRequest<()>) -> Result<Prepared, ProvisionError> {
    ///     Ok(Prepared::new(&self.emptiest_pool().await?)?)
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as for [`provision`](Provisioner::provision). The controller assumes that the backend contains nothing
    /// for the attempt, regardless of the error.
    fn prepare(
        &self,
        request: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<Prepared, ProvisionError>> + Send {
        drop(request);
        async { Ok(Prepared::default()) }
    }

    /// Returns whether this node has room for a volume, as far as the backend knows. The controller calls it before the
    /// node takes a claim that does not wait for a pod, see [`Options::bid_delays`](crate::Options::bid_delays):
    /// `false` leaves the claim to other nodes for now. Return `true` if in doubt, so that an event from
    /// [`provision`](Provisioner::provision) shows the problem. The request contains no Secrets.
    fn has_room(&self, request: ProvisionRequest<Self::Parameters>) -> impl Future<Output = bool> + Send {
        drop(request);
        async { true }
    }

    /// Releases resources held for an attempt, such as the clone source. The controller calls it when the attempt ends:
    /// the volume is saved, or the backend contains nothing for the attempt. Provisioners declare that they need it
    /// with [`Capabilities::attempt_end`](crate::Capabilities::attempt_end).
    ///
    /// The controller retries until it succeeds, possibly in another process, so it may be called more than once. The
    /// request contains no Secrets and no node labels.
    ///
    /// # Errors
    /// The same as for [`delete`](Provisioner::delete).
    fn end_attempt(
        &self,
        attempt: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(attempt);
        async { Err(DeleteError::unsupported()) }
    }

    /// Restores the in-memory state of an unfinished attempt that this process takes over, such as the sources in use.
    /// The controller calls it for each such attempt after [`start`](Provisioner::start), and before any other call for
    /// the attempts that it takes over together. `name` and `prepared` have the same values as in the attempt's
    /// requests. Must not block.
    fn take_over(&self, name: &str, prepared: &Prepared) {
        let _ = (name, prepared);
    }

    /// Forgets the in-memory state of an attempt that an administrator has dropped from the journal.
    /// [`end_attempt`](Self::end_attempt) is not called for it. If its claim still exists, another attempt with this
    /// name follows. Must not block.
    fn dropped(&self, name: &str) {
        let _ = name;
    }

    /// Runs concurrently with the other calls while this process works on a shard: it begins after
    /// [`take_over`](Self::take_over), and is dropped at an `.await` when the process releases the shard. Use it for
    /// background work that is not tied to a claim, such as periodic garbage collection. If it returns or panics, it
    /// does not run again before the next term.
    fn while_leading(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Guards the deletion of a released volume, like the Go library's `DeletionGuard`. The controller calls it before
    /// it deletes the asset and the PersistentVolume. On an error it keeps both and calls again.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # struct Disks;
    /// # impl Disks { async fn snapshots(&self, _: &str) -> Result<u32, std::io::Error> { Ok(0) } }
    /// # impl Provisioner for Disks {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// # }
    /// # impl Hooks for Disks {
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
    /// If the volume must not be deleted now; see [`DeleteError`].
    fn should_delete(&self, volume: ProvisionedVolume) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(volume);
        async { Err(DeleteError::unsupported()) }
    }

    /// Returns watches of other objects that the results depend on. When such an object changes, the controller retries
    /// the work that waits for it immediately instead of after its back-off:
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # use kube_provisioner::kube::{Api, Client, ResourceExt, api::{ApiResource, GroupVersionKind}};
    /// # struct Exports;
    /// # impl Provisioner for Exports {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// # }
    /// # impl Hooks for Exports {
    /// fn watches(&self, client: &Client) -> Vec<ObjectWatch> {
    ///     let backups = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Backup"));
    ///     vec![ObjectWatch::new("backups", Api::all_with(client.clone(), &backups), |change| match change {
    ///         Change::Applied(backup) => vec![Trigger::DataSource {
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

    /// Warns about a valid StorageClass that may behave unexpectedly, such as a default that differs from another
    /// provisioner of this class. The command `check-class` prints it. `own_name` is the provisioner's first name, if
    /// known.
    fn class_warning(class: &StorageClass, own_name: Option<&str>) -> Option<String>
    where
        Self: Sized,
    {
        let _ = (class, own_name);
        None
    }

    /// Lists the problems of a class whose parameters can be read, such as settings that the provisioner ignores. The
    /// command `check-class` reports them.
    fn class_problems(class: &StorageClass) -> Vec<String>
    where
        Self: Sized,
    {
        let _ = class;
        Vec::new()
    }

    /// Returns whether the provisioner accepts a claim. The controller ignores other claims, without an event, until
    /// they change or until the next resync. Must not block.
    fn accepts(&self, claim: &PersistentVolumeClaim) -> bool {
        let _ = claim;
        true
    }

    /// Registers metrics in addition to the controller's, once per process. Use the types from
    /// [`prometheus_client`](crate::prometheus_client). Encoding them at a scrape must not block.
    ///
    /// ```
    /// # use kube_provisioner::*;
    /// # use kube_provisioner::prometheus_client::{metrics::gauge::Gauge, registry::Registry};
    /// # struct Exports { used: Gauge }
    /// # impl Provisioner for Exports {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::host_path(r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// # }
    /// # impl Hooks for Exports {
    /// fn register_metrics(&self, registry: &mut Registry) {
    ///     registry.register("exports_used", "Exports that have a volume", self.used.clone());
    /// }
    /// # }
    /// ```
    fn register_metrics(&self, registry: &mut Registry) {
        let _ = registry;
    }

    /// Returns the permissions that the author's own calls to the API server need, for the generated manifests and for
    /// the check at startup.
    fn access_rules() -> Vec<AccessRule>
    where
        Self: Sized,
    {
        Vec::new()
    }
}
