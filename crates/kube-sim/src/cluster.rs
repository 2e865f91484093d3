//! The simulated cluster, and its API without HTTP.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::time::error::Elapsed;

use crate::api_server::ApiServer;
use crate::authorize::{self, Authorizer, Rbac, groups_of};
use crate::clock::SimClock;
use crate::faults::Faults;
use crate::intercept::Interceptor;
use crate::patch::PatchKind;
use crate::request::{Content, DeleteOptions, Request, Subresource, Target, Verb};
use crate::resource::Resource;
use crate::service::ApiService;
use crate::state::State;
use crate::status::Status;
use crate::store::Stored;
use crate::subscription::{ChangeQueue, Subscription};
use crate::trace::Trace;
use crate::verbs::Answer;

/// A simulated cluster. Clones share one cluster.
#[derive(Clone)]
pub struct Cluster(pub(crate) Arc<ApiServer>);

/// The settings of a new cluster. Created by [`Cluster::builder`].
#[derive(Clone)]
pub struct Builder {
    seed: u64,
    epoch: Timestamp,
    history: usize,
    trace: bool,
    interceptor: Option<Arc<dyn Interceptor>>,
    authorizer: Option<Arc<dyn Authorizer>>,
    rbac: Option<Arc<Rbac>>,
    managed_fields: bool,
    cross_namespace_data_sources: bool,
}

impl Cluster {
    /// Creates a cluster with the defaults of [`Cluster::builder`].
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts with the defaults: seed 0, the clock at [`SimClock::EPOCH`], a history of 1000 changes per resource, no
    /// faults.
    pub fn builder() -> Builder {
        Builder {
            seed: 0,
            epoch: SimClock::EPOCH,
            history: 1000,
            trace: false,
            interceptor: None,
            authorizer: None,
            rbac: None,
            managed_fields: true,
            cross_namespace_data_sources: false,
        }
    }

    /// Returns a client of this cluster for the user `name`.
    ///
    /// # Panics
    /// Outside of a tokio runtime: a [`kube::Client`] starts a task.
    pub fn client(&self, name: &str) -> kube::Client {
        kube::Client::new(self.service(name), "default")
    }

    /// This cluster's API over HTTP for one user, who is in the groups that the server derives from the name.
    pub fn service(&self, name: &str) -> ApiService {
        ApiService::new(Arc::clone(&self.0), Arc::from(name), groups_of(name))
    }

    /// Like [`Cluster::service`], for a user in exactly these groups.
    pub fn service_in_groups(&self, name: &str, groups: &[String]) -> ApiService {
        ApiService::new(Arc::clone(&self.0), Arc::from(name), Arc::from(groups))
    }

    /// Returns the cluster's clock.
    pub fn clock(&self) -> SimClock {
        self.0.clock
    }

    /// Returns all resources, sorted by group, version and plural name.
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.0.lock().registry.all().to_vec()
    }

    /// Returns the resource with this group and plural name, in its first version.
    pub fn resource(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.0.lock().registry.named(group, plural).cloned()
    }

    /// Returns the resourceVersion of the last change.
    pub fn resource_version(&self) -> u64 {
        self.0.lock().version()
    }

    /// Subscribes to future changes of these resources (group and plural name; none for all), delivered in order.
    pub fn subscribe(&self, resources: &[(&str, &str)]) -> Subscription {
        self.open_subscription(resources, false)
    }

    /// Like [`Cluster::subscribe`], but existing objects are delivered first, as created, in the order of their last
    /// change.
    pub fn subscribe_with_existing(&self, resources: &[(&str, &str)]) -> Subscription {
        self.open_subscription(resources, true)
    }

    /// Waits until a condition holds. It is checked after each change.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let cluster = kube_sim::Cluster::new();
    /// # cluster.create(&serde_json::json!({
    /// #     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": "default"},
    /// # })).unwrap();
    /// let exists = |cluster: &kube_sim::Cluster| cluster.get("", "configmaps", "default", "config").is_ok();
    /// cluster.wait(Duration::from_secs(60), exists).await.expect("a ConfigMap");
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the condition does not hold in time.
    pub async fn wait(&self, limit: Duration, mut holds: impl FnMut(&Self) -> bool) -> Result<(), Elapsed> {
        let mut changes = self.subscribe(&[]);
        tokio::time::timeout(limit, async {
            while !holds(self) {
                changes.next().await;
            }
        })
        .await
    }

    /// Forgets the history, as etcd's compaction does: requests for watches and pages that need it fail with 410.
    pub fn forget_history(&self) {
        let mut state = self.0.lock();
        state.forget_history();
    }

    /// Creates an object. Its JSON must contain `apiVersion` and `kind`, as the types of `k8s-openapi` do.
    pub fn create<T: Serialize + ?Sized>(&self, object: &T) -> Result<Value, Status> {
        let object = serde_json::to_value(object).map_err(|error| Status::bad_request(error.to_string()))?;
        let resource = self.resource_of(&object)?;
        self.write(Verb::Create, &resource, None, object)
    }

    /// Creates the objects of a YAML manifest in order, and stops at the first that is refused.
    pub fn create_yaml(&self, manifest: &str) -> Result<Vec<Value>, Status> {
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(manifest).map_err(|error| Status::bad_request(error.to_string()))?;
        objects.iter().map(|object| self.create(object)).collect()
    }

    /// Replaces an object.
    pub fn update<T: Serialize + ?Sized>(&self, object: &T) -> Result<Value, Status> {
        let object = serde_json::to_value(object).map_err(|error| Status::bad_request(error.to_string()))?;
        let resource = self.resource_of(&object)?;
        self.write(Verb::Update, &resource, None, object)
    }

    /// Replaces an object's status.
    pub fn update_status<T: Serialize + ?Sized>(&self, object: &T) -> Result<Value, Status> {
        let object = serde_json::to_value(object).map_err(|error| Status::bad_request(error.to_string()))?;
        let resource = self.resource_of(&object)?;
        self.write(Verb::Update, &resource, Some(Subresource::Status), object)
    }

    /// Gets an object.
    pub fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let state = self.0.lock();
        let resource = named(&state, group, plural)?;
        let found = state.find(&resource, namespace, name);
        found.map(|object| object.value()).ok_or_else(|| Status::not_found(&resource, name))
    }

    /// Gets an object in its stored form, without parsing it.
    pub fn get_stored(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        let state = self.0.lock();
        let resource = named(&state, group, plural).ok()?;
        state.find(&resource, namespace, name).cloned()
    }

    /// Lists all objects, or the objects in one namespace, in the order of their keys.
    pub fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Result<Vec<Value>, Status> {
        Ok(self.list_stored(group, plural, namespace)?.iter().map(|object| object.value()).collect())
    }

    /// Like [`Cluster::list`], in the stored form.
    pub fn list_stored(&self, group: &str, plural: &str, namespace: Option<&str>) -> Result<Vec<Arc<Stored>>, Status> {
        let state = self.0.lock();
        let resource = named(&state, group, plural)?;
        let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        Ok(state.storage(resource.storage).range(&prefix, "").cloned().collect())
    }

    /// Patches an object, or its status.
    pub fn patch(
        &self,
        target: &Target<'_>,
        subresource: Option<Subresource>,
        kind: PatchKind,
        patch: &Value,
    ) -> Result<Value, Status> {
        let mut request = self.request(Verb::Patch, target)?;
        request.subresource = subresource;
        request.content = Content::Patch(kind, patch.to_string().into());
        self.value_of(request)
    }

    /// Deletes an object. Returns the server's answer: the object while a finalizer or a grace period delays its
    /// deletion, otherwise usually a `Status`.
    pub fn delete(&self, target: &Target<'_>, options: DeleteOptions) -> Result<Value, Status> {
        let mut request = self.request(Verb::Delete, target)?;
        request.options.delete = options;
        self.value_of(request)
    }

    /// Handles any request except a watch, without faults.
    pub fn call(&self, mut request: Request) -> Result<Value, Status> {
        let patch = if let Content::Patch(kind, _) = request.content { Some(kind) } else { None };
        request.options.complete(request.verb, patch)?;
        self.value_of(request)
    }

    /// Returns the trace: a line for each request, with the time since the cluster was built, the user, the request and
    /// its result. Empty unless the cluster was built with [`Builder::trace`].
    pub fn trace(&self) -> String {
        self.0.trace.as_ref().map(Trace::render).unwrap_or_default()
    }

    /// Adds a line to the trace, such as "replica 2 crashes".
    pub fn note(&self, text: impl Into<String>) {
        if let Some(trace) = &self.0.trace {
            trace.note(self.0.clock.elapsed(), text.into());
        }
    }

    /// Returns all objects, a line each, in the order of resources and keys. Equal dumps mean equal clusters.
    pub fn dump(&self) -> String {
        let state = self.0.lock();
        let storages = state.storages().iter().flat_map(|storage| storage.range("", ""));
        let mut dump = String::new();
        for object in storages {
            dump.push_str(&String::from_utf8_lossy(object.bytes()));
            dump.push('\n');
        }
        dump
    }

    /// Creates a request of the cluster's own user, for [`Cluster::call`].
    pub fn request(&self, verb: Verb, target: &Target<'_>) -> Result<Request, Status> {
        let resource = named(&self.0.lock(), target.group, target.plural)?;
        Ok(Request::new(self_name(), verb, resource, target.namespace, target.name))
    }

    /// Returns a random generator for one part of the cluster, seeded by the cluster's seed and the part's name.
    pub(crate) fn random_for(&self, part: &str) -> fastrand::Rng {
        // FNV-1a: the same everywhere, unlike the standard library's hash.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        fastrand::Rng::with_seed(part.bytes().fold(0xcbf2_9ce4_8422_2325 ^ self.0.seed, mix))
    }

    fn open_subscription(&self, resources: &[(&str, &str)], existing: bool) -> Subscription {
        let queue = Arc::new(ChangeQueue::new(resources));
        self.0.lock().subscribe(&queue, existing);
        Subscription::new(queue)
    }

    fn resource_of(&self, object: &Value) -> Result<Arc<Resource>, Status> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let found = self.0.lock().registry.of_kind(api_version, kind).cloned();
        found.ok_or_else(|| Status::bad_request(format!("no matches for kind {kind:?} in version {api_version:?}")))
    }

    fn write(
        &self,
        verb: Verb,
        resource: &Arc<Resource>,
        subresource: Option<Subresource>,
        object: Value,
    ) -> Result<Value, Status> {
        let namespace = if resource.namespaced { crate::object::namespace(&object) } else { "" };
        let namespace = if resource.namespaced && namespace.is_empty() { "default" } else { namespace };
        let name = if verb == Verb::Create { "" } else { crate::object::name(&object) };
        let mut request = Request::new(self_name(), verb, Arc::clone(resource), namespace, name);
        request.subresource = subresource;
        request.content = Content::Value(object);
        self.value_of(request)
    }

    fn value_of(&self, mut request: Request) -> Result<Value, Status> {
        match self.0.handle(&mut request)? {
            Answer::Object { view, object, .. } => Ok(view.shown(&object)),
            Answer::Document { json, .. } => {
                serde_json::from_slice(&json).map_err(|error| Status::internal(error.to_string()))
            }
            Answer::Watch(_) => Err(Status::bad_request("a watch has no single answer: subscribe, or use a client")),
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("resource_version", &self.resource_version()).finish_non_exhaustive()
    }
}

impl Builder {
    /// Sets the seed of UIDs, generated names and watch timeouts.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the initial time of the clock.
    #[must_use]
    pub fn epoch(self, epoch: Timestamp) -> Self {
        Self { epoch, ..self }
    }

    /// Sets the length of the history, in changes per resource.
    #[must_use]
    pub fn history(self, history: usize) -> Self {
        Self { history, ..self }
    }

    /// Records all requests for [`Cluster::trace`].
    #[must_use]
    pub fn trace(self) -> Self {
        Self { trace: true, ..self }
    }

    /// Sets the faults between clients and the server.
    #[must_use]
    pub fn faults(self, faults: &Faults) -> Self {
        self.interceptor(Arc::new(faults.clone()))
    }

    /// Sets an interceptor of requests and answers.
    #[must_use]
    pub fn interceptor(self, interceptor: Arc<dyn Interceptor>) -> Self {
        Self { interceptor: Some(interceptor), ..self }
    }

    /// Sets the authorizer. Without one, every request is allowed.
    #[must_use]
    pub fn authorizer(self, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer: Some(authorizer), rbac: None, ..self }
    }

    /// Authorizes by the roles and bindings in the cluster. It starts with a few roles of the real server:
    /// `cluster-admin` for the group `system:masters`, and the roles that every user has. Privilege escalation is not
    /// checked, and aggregated cluster roles are not filled.
    #[must_use]
    pub fn rbac(self) -> Self {
        let rbac = Arc::new(Rbac::default());
        Self { authorizer: Some(rbac.clone()), rbac: Some(rbac), ..self }
    }

    /// Omits `metadata.managedFields` from all answers, which makes them smaller and faster. Server-side apply still
    /// tracks the owners.
    #[must_use]
    pub fn hide_managed_fields(self) -> Self {
        Self { managed_fields: false, ..self }
    }

    /// Turns on the server's feature gate `CrossNamespaceVolumeDataSource`: claims keep a `dataSourceRef` with a
    /// namespace.
    #[must_use]
    pub fn cross_namespace_data_sources(self) -> Self {
        Self { cross_namespace_data_sources: true, ..self }
    }

    /// Builds the cluster with its first namespaces. The clock starts now.
    pub fn build(self) -> Cluster {
        let clock = SimClock::new(self.epoch);
        let mut state = State::new(clock, self.seed, self.history);
        state.cross_namespace_data_sources = self.cross_namespace_data_sources;
        let cluster = Cluster(Arc::new(ApiServer {
            state: Mutex::new(state),
            clock,
            seed: self.seed,
            trace: self.trace.then(Trace::default),
            interceptor: self.interceptor,
            authorizer: self.authorizer,
            managed_fields: self.managed_fields,
        }));
        if let Some(rbac) = self.rbac {
            for object in authorize::first_policy() {
                // This cannot fail: the objects are new and valid.
                drop(cluster.create(&object));
            }
            rbac.follow(cluster.subscribe_with_existing(&authorize::POLICY_RESOURCES));
        }
        cluster
    }
}

fn named(state: &State, group: &str, plural: &str) -> Result<Arc<Resource>, Status> {
    let found = state.registry.named(group, plural).cloned();
    found.ok_or_else(|| Status::bad_request(format!("no resource {plural:?} in group {group:?}")))
}

/// Returns the user of direct calls.
fn self_name() -> Arc<str> {
    static NAME: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| Arc::from("system:kube-sim"));
    Arc::clone(&NAME)
}
