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

/// What few provisioners need beyond [`Provisioner`]: state and background work of attempts, a guard for deletions, watches of other
/// objects, metrics, and rights. Every method has a default, so most provisioners write `impl Hooks for Exports {}`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which optional methods it has",
    note = "add `impl kube_provisioner::Hooks for {Self} {{}}`; each method has a default"
)]
pub trait Hooks: Provisioner {
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
    ///
    /// async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
    ///     // The pool of the first call, however full it is by now.
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
    /// As for [`provision`](Provisioner::provision). Nothing is left behind, whatever the error says.
    fn prepare(
        &self,
        request: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<Prepared, ProvisionError>> + Send {
        drop(request);
        async { Ok(Prepared::default()) }
    }

    /// Returns whether this node has room for a volume, as far as the backend knows. The controller asks it before the node takes a claim
    /// that waits for no pod, see [`Options::bid_delays`](crate::Options::bid_delays): `false` leaves the claim to other nodes for now. Return
    /// `true` if in doubt, so that an event of [`provision`](Provisioner::provision) shows the problem. The request has no Secrets.
    fn has_room(&self, request: ProvisionRequest<Self::Parameters>) -> impl Future<Output = bool> + Send {
        drop(request);
        async { true }
    }

    /// Called at the end of each attempt, for authors who [declare it](crate::Capabilities::attempt_end): the volume is saved, or
    /// nothing is left. Releases what the attempt has held, such as the source of a copy.
    ///
    /// It is called again until it succeeds, by another process if need be, so it may be called more than once. The request
    /// has no Secrets and no labels of the node.
    ///
    /// # Errors
    /// As for [`delete`](Provisioner::delete).
    fn end_attempt(
        &self,
        attempt: ProvisionRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(attempt);
        async { Err(DeleteError::unsupported()) }
    }

    /// Called for each unfinished attempt that this process takes over: after [`start`](Provisioner::start), and before any other call
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
    /// Why it is not to be deleted now; see [`DeleteError`].
    fn should_delete(&self, volume: ProvisionedVolume) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(volume);
        async { Err(DeleteError::unsupported()) }
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
    /// # }
    /// # impl Hooks for Exports {
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

    /// Rights that the author's own calls to the API server need, for the generated manifests and the check at the start.
    fn access_rules() -> Vec<AccessRule>
    where
        Self: Sized,
    {
        Vec::new()
    }
}
