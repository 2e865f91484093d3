//! The provisioner under test, and the calls that a controller would make.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube_sim::Cluster;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::assets::Assets;
use super::objects::Objects;
use super::tempo::Tempo;
use super::verdict::Violation;
use crate::capabilities::AccessMode;
use crate::controller::shared::secret_names::TemplateNames;
use crate::controller::volume::{Backend, UntypedRequest, VolumeInputs, build};
use crate::error::{DeleteError, DeleteVerdict, ExpandError, ExpandVerdict, ProvisionError, ProvisionVerdict};
use crate::hooks::Hooks;
use crate::prepared::Prepared;
use crate::protocol;
use crate::request::ProvisionedVolume;
use crate::request::TEST_CLUSTER;
use crate::secrets::Secrets;
use crate::start::StartContext;
use crate::volume::Volume;
use provisioner_runtime::controller::FencingToken;

/// The provisioner's name in classes.
pub(super) const PROVISIONER: &str = "conformance.example.com/provisioner";
/// The class of all claims.
pub(super) const CLASS: &str = "checked";
/// The size of a claim, unless the rule is about sizes.
pub(super) const DEFAULT_BYTES: u64 = 1 << 20;

/// The number of storms unless [`Conformance::seeds`](super::Conformance::seeds) selects them.
const STORMS: u64 = 8;
/// The number of calls before a failure counts, and of checks of the assets.
const ATTEMPTS: usize = 60;

/// Called with the names of a volume and of its claim.
type ManualCreation = Box<dyn Fn(String, String) -> LocalBoxFuture<'static, Option<String>>>;

pub(super) struct Subject {
    pub(super) name: &'static str,
    start: Box<dyn Fn(Client) -> Arc<dyn Backend>>,
    assets: Box<dyn Fn() -> LocalBoxFuture<'static, BTreeSet<String>>>,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) refused: Vec<BTreeMap<String, String>>,
    /// The parameters of a class whose volumes are named after something that two claims can share.
    pub(super) shared_names: Option<BTreeMap<String, String>>,
    /// Creates an asset at the location of the asset for the volume and the claim of these names; returns it as it is
    /// listed.
    pub(super) manually_created: Option<ManualCreation>,
    pub(super) node: Option<String>,
    pub(super) seeds: Vec<u64>,
    pub(super) tempo: Tempo,
    pub(super) objects: Objects,
    /// A cluster without faults, for the provisioner's client if there is no other cluster.
    fault_free_cluster: OnceCell<Cluster>,
    /// The number of names used so far.
    names: Cell<u64>,
}

/// A volume as the provisioner returned it, and as the API server stores it.
#[derive(Clone, Debug)]
pub(super) struct CreatedVolume {
    pub(super) volume: Volume,
    pub(super) object: PersistentVolume,
}

/// An answer that no later call changes.
pub(super) enum Answer<T, E> {
    Done(T),
    /// The request is impossible.
    Rejected(E),
}

/// A call that has to be repeated.
struct Failed {
    pause: Option<Duration>,
    seen: String,
}

impl Subject {
    pub(super) fn new<P, A>(start: impl Fn(Client) -> P + 'static, assets: impl AsyncFn() -> A + 'static) -> Self
    where
        P: Hooks,
        A: IntoIterator<Item: ToString>,
    {
        let assets = Rc::new(assets);
        Self {
            name: std::any::type_name::<P>(),
            start: Box::new(move |client| Arc::new(start(client))),
            assets: Box::new(move || {
                let assets = Rc::clone(&assets);
                async move { assets().await.into_iter().map(|asset| asset.to_string()).collect() }.boxed_local()
            }),
            parameters: BTreeMap::new(),
            refused: Vec::new(),
            shared_names: None,
            manually_created: None,
            node: None,
            seeds: (0..STORMS).collect(),
            tempo: Tempo::Virtual,
            objects: Objects::default(),
            fault_free_cluster: OnceCell::new(),
            names: Cell::new(0),
        }
    }

    /// Returns the provisioner of a new process.
    pub(super) async fn start(&self) -> Result<Arc<dyn Backend>, Violation> {
        let (backend, client) = (self.new_process(), self.fault_free_cluster().client("provisioner"));
        match backend.start(StartContext::new(client, Vec::new())).await {
            Ok(()) => Ok(backend),
            Err(error) => Err(Violation(format!("`start` failed: {error}"))),
        }
    }

    /// Returns a provisioner whose `start` has not been called.
    pub(super) fn new_process(&self) -> Arc<dyn Backend> {
        self.start_in(self.fault_free_cluster(), "provisioner")
    }

    fn fault_free_cluster(&self) -> &Cluster {
        self.fault_free_cluster.get_or_init(|| {
            let cluster = Cluster::builder().hide_managed_fields().build();
            // The first rule that runs a controller reports objects that cannot be created.
            let _ = self.objects.create_in(&cluster);
            cluster
        })
    }

    /// Returns the provisioner of a new process, whose client experiences the faults of this cluster.
    pub(super) fn start_in(&self, cluster: &Cluster, process: &str) -> Arc<dyn Backend> {
        (self.start)(cluster.client(process))
    }

    /// Returns an unused volume name, of the same length and form as real ones.
    pub(super) fn new_name(&self) -> String {
        self.names.set(self.names.get() + 1);
        format!("pvc-c0f00000-0000-4000-8000-{:012}", self.names.get())
    }

    /// Returns the content of the backend once all dropped work has ended.
    pub(super) async fn assets_now(&self) -> Assets {
        self.tempo.settle().await;
        Assets((self.assets)().await)
    }

    /// Waits until the backend contains `added` more assets than before.
    pub(super) async fn expect(&self, before: &Assets, added: usize, when: &str) -> Result<Assets, Violation> {
        for _ in 1..ATTEMPTS {
            let now = self.assets_now().await;
            if now.expect(before, added, when).is_ok() {
                return Ok(now);
            }
            sleep(self.tempo.step()).await;
        }
        let now = self.assets_now().await;
        now.expect(before, added, when).map(|()| now)
    }

    /// Calls `provision` until there is a final answer, and builds the volume as the API server would store it.
    pub(super) async fn provision(&self, backend: &Arc<dyn Backend>, name: &str) -> Result<CreatedVolume, Violation> {
        self.provision_request(backend, &Request::new(self, backend, name, DEFAULT_BYTES)).await
    }

    /// Returns the volume of a valid request.
    pub(super) async fn provision_request(
        &self,
        backend: &Arc<dyn Backend>,
        request: &Request,
    ) -> Result<CreatedVolume, Violation> {
        match self.call_provision(backend, request).await? {
            Answer::Done(volume) => request.save(volume),
            Answer::Rejected(error) => {
                Err(Violation(format!("`provision` reports for a valid request that it can never succeed: {error:?}")))
            }
        }
    }

    /// Calls `provision` until there is a final answer: a volume, or the error that is final.
    pub(super) async fn call_provision(
        &self,
        backend: &Arc<dyn Backend>,
        request: &Request,
    ) -> Result<Answer<Volume, ProvisionError>, Violation> {
        self.until_final("provision", async || match request.call(backend).await {
            Ok(volume) => Ok(Answer::Done(volume)),
            Err(error) if is_final(&error) => Ok(Answer::Rejected(error)),
            Err(error) => Err(Failed { pause: error.retry_after(), seen: error.to_string() }),
        })
        .await
    }

    /// Repeats a call until its answer is final.
    async fn until_final<T>(&self, method: &str, call: impl AsyncFn() -> Result<T, Failed>) -> Result<T, Violation> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(Failed { seen, pause }) => {
                    sleep(self.tempo.retry(pause)).await;
                    last = seen;
                }
            }
        }
        Err(Violation(format!("`{method}` failed {ATTEMPTS} times in a row; the last time: {last}")))
    }

    /// Ends an attempt whose claim has been deleted, as the controller does: by `clean_up`, or by completing it and
    /// deleting what it created.
    pub(super) async fn end(&self, backend: &Arc<dyn Backend>, request: &Request) -> Result<(), Violation> {
        if self.clean_up(backend, request).await? {
            return Ok(());
        }
        match self.call_provision(backend, request).await? {
            Answer::Done(volume) => self.delete(backend, &request.save(volume)?.object).await,
            Answer::Rejected(_) => Ok(()),
        }
    }

    /// Calls `clean_up` until it succeeds. Returns false if the provisioner does not implement it.
    pub(super) async fn clean_up(&self, backend: &Arc<dyn Backend>, request: &Request) -> Result<bool, Violation> {
        self.until_final("clean_up", async || match request.clean_up(backend).await {
            Ok(()) => Ok(true),
            Err(error) if error.verdict() == DeleteVerdict::Unsupported => Ok(false),
            Err(error) => Err(Failed { pause: error.retry_after(), seen: format!("{error:?}") }),
        })
        .await
    }

    /// Calls `delete` until it succeeds.
    pub(super) async fn delete(&self, backend: &Arc<dyn Backend>, object: &PersistentVolume) -> Result<(), Violation> {
        self.until_final("delete", async || {
            let deleted = self.delete_once(backend, object).await;
            deleted.map_err(|error| Failed { pause: error.retry_after(), seen: format!("{error:?}") })
        })
        .await
    }

    pub(super) async fn delete_once(
        &self,
        backend: &Arc<dyn Backend>,
        object: &PersistentVolume,
    ) -> Result<(), DeleteError> {
        self.delete_while(backend, object, || true).await
    }

    /// Calls `delete` once; the call may act as long as `valid` returns true.
    pub(super) async fn delete_while(
        &self,
        backend: &Arc<dyn Backend>,
        object: &PersistentVolume,
        valid: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<(), DeleteError> {
        let (fencing_token, _call) = FencingToken::of_call(valid);
        let volume = self.argument(backend, object, fencing_token).map_err(DeleteError::retry)?;
        backend.delete(volume).await
    }

    /// Calls `expand` until there is a final answer: success, or the error that is final.
    pub(super) async fn expand(
        &self,
        backend: &Arc<dyn Backend>,
        object: &PersistentVolume,
        bytes: u64,
    ) -> Result<Answer<(), ExpandError>, Violation> {
        self.until_final("expand", async || {
            let (fencing_token, _call) = FencingToken::of_call(|| true);
            let expanded = match self.argument(backend, object, fencing_token) {
                Ok(volume) => backend.expand(volume, bytes).await,
                Err(error) => Err(ExpandError::retry(error)),
            };
            match expanded {
                Ok(()) => Ok(Answer::Done(())),
                Err(error) if matches!(error.verdict(), ExpandVerdict::Infeasible | ExpandVerdict::Unsupported) => {
                    Ok(Answer::Rejected(error))
                }
                Err(error) => Err(Failed { pause: error.retry_after(), seen: format!("{error:?}") }),
            }
        })
        .await
    }

    /// Returns the volume as a controller passes it.
    fn argument(
        &self,
        backend: &Arc<dyn Backend>,
        object: &PersistentVolume,
        fencing_token: FencingToken,
    ) -> Result<ProvisionedVolume, String> {
        let claim = object.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let names = TemplateNames {
            claim: claim.and_then(|claim| claim.name.as_deref()).unwrap_or_default(),
            namespace: claim.and_then(|claim| claim.namespace.as_deref()).unwrap_or_default(),
            volume: object.metadata.name.as_deref().unwrap_or_default(),
        };
        let roles = backend.capabilities().secrets;
        let secrets = self.objects.take_secrets(&mut self.parameters.clone(), &roles, names);
        Ok(ProvisionedVolume::new(object.clone()).with(secrets?, fencing_token))
    }

    pub(super) fn class(&self, parameters: &BTreeMap<String, String>) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
            "provisioner": PROVISIONER, "parameters": parameters, "reclaimPolicy": "Delete",
            "volumeBindingMode": if self.node.is_some() { "WaitForFirstConsumer" } else { "Immediate" },
        })
    }

    /// Returns a claim that this provisioner can serve.
    pub(super) fn claim(&self, backend: &Arc<dyn Backend>, name: &str, bytes: u64) -> Value {
        let modes = backend.capabilities().access_modes;
        let mode = modes.and_then(|modes| modes.first().copied()).unwrap_or(AccessMode::ReadWriteOnce);
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": [mode.as_str()], "storageClassName": CLASS, "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": bytes.to_string()}},
            },
        });
        if let Some(node) = &self.node {
            claim["metadata"]["annotations"] = json!({protocol::SELECTED_NODE: node});
        }
        claim
    }
}

/// Returns true if no later call can succeed.
fn is_final(error: &ProvisionError) -> bool {
    matches!(error.verdict(), ProvisionVerdict::Invalid | ProvisionVerdict::Ignored | ProvisionVerdict::Reschedule)
}

/// A request that can be repeated.
pub(super) struct Request {
    name: String,
    bytes: u64,
    parameters: BTreeMap<String, String>,
    secrets: Result<Secrets, String>,
    claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
    node: Option<String>,
    node_labels: BTreeMap<String, String>,
    /// Prepared only once, as by the controller.
    prepared: tokio::sync::OnceCell<Prepared>,
}

impl Request {
    pub(super) fn new(subject: &Subject, backend: &Arc<dyn Backend>, name: &str, bytes: u64) -> Self {
        Self::with_parameters(subject, backend, name, bytes, &subject.parameters)
    }

    /// Creates a request for a claim of this name, with the class parameters that let claims share the names of their
    /// volumes.
    pub(super) fn of_shared_name(subject: &Subject, backend: &Arc<dyn Backend>, name: &str, claim: &str) -> Self {
        let parameters = subject.shared_names.as_ref().unwrap_or(&subject.parameters);
        Self::of_claim(subject, backend, name, claim, DEFAULT_BYTES, parameters)
    }

    pub(super) fn with_parameters(
        subject: &Subject,
        backend: &Arc<dyn Backend>,
        name: &str,
        bytes: u64,
        parameters: &BTreeMap<String, String>,
    ) -> Self {
        Self::of_claim(subject, backend, name, &format!("claim-of-{name}"), bytes, parameters)
    }

    fn of_claim(
        subject: &Subject,
        backend: &Arc<dyn Backend>,
        name: &str,
        claim_name: &str,
        bytes: u64,
        parameters: &BTreeMap<String, String>,
    ) -> Self {
        let mut claim = subject.claim(backend, claim_name, bytes);
        claim["metadata"]["uid"] = name.trim_start_matches("pvc-").into();
        claim["metadata"]["resourceVersion"] = "1".into();
        let class = decoded(subject.class(parameters));
        let capabilities = backend.capabilities();
        let mut parameters = parameters.clone();
        let names = TemplateNames { claim: claim_name, namespace: "default", volume: name };
        let secrets = subject.objects.take_secrets(&mut parameters, &capabilities.secrets, names);
        let node = subject.node.clone();
        let labels = node.as_deref().filter(|_| capabilities.node_labels);
        Self {
            name: name.to_owned(),
            bytes,
            parameters,
            secrets,
            claim: decoded(claim),
            class,
            node_labels: labels.map(|node| subject.objects.node_labels(node)).unwrap_or_default(),
            node,
            prepared: Default::default(),
        }
    }

    pub(super) async fn call(&self, backend: &Arc<dyn Backend>) -> Result<Volume, ProvisionError> {
        self.call_while(backend, || true).await
    }

    /// Calls `provision`; the call may act as long as `valid` returns true.
    pub(super) async fn call_while(
        &self,
        backend: &Arc<dyn Backend>,
        valid: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Volume, ProvisionError> {
        if !backend.accepts(&self.claim) {
            return Err(ProvisionError::ignored("`accepts` refuses a plain claim"));
        }
        // The token ends when the call is dropped, as under the controller.
        let (fencing_token, _call) = FencingToken::of_call(valid);
        let mut request = self.untyped(backend, fencing_token).map_err(ProvisionError::invalid)?;
        request.prepared = self.prepared.get_or_try_init(|| backend.prepare(request.clone())).await?.clone();
        backend.provision(request).await
    }

    pub(super) async fn clean_up(&self, backend: &Arc<dyn Backend>) -> Result<(), DeleteError> {
        let (fencing_token, _call) = FencingToken::of_call(|| true);
        let request = self.untyped(backend, fencing_token).map_err(DeleteError::retry)?;
        backend.clean_up(request).await
    }

    /// Calls `end_attempt` and returns true if the provisioner does not implement it.
    pub(super) async fn has_no_end(&self, backend: &Arc<dyn Backend>) -> Result<bool, Violation> {
        let (fencing_token, _call) = FencingToken::of_call(|| true);
        let mut request = self.untyped(backend, fencing_token).map_err(Violation)?;
        request.prepared = self.prepared.get().cloned().unwrap_or_default();
        let ended = backend.end_attempt(request).await;
        Ok(ended.is_err_and(|error| error.verdict() == DeleteVerdict::Unsupported))
    }

    /// Requests this access mode, instead of the first one that the provisioner supports.
    pub(super) fn with_mode(mut self, mode: AccessMode) -> Self {
        if let Some(spec) = &mut Arc::make_mut(&mut self.claim).spec {
            spec.access_modes = Some(vec![mode.as_str().to_owned()]);
        }
        self
    }

    /// Removes the labels of the node, as when the node no longer exists. Such an attempt is ended, but not begun.
    pub(super) fn lose_node(&mut self) {
        if self.prepared.get().is_some() {
            self.node_labels.clear();
        }
    }

    /// Returns true if the controller would make the request: it rejects unreadable parameters before that.
    pub(super) fn is_accepted(&self, backend: &Arc<dyn Backend>) -> bool {
        self.untyped(backend, FencingToken::unlimited()).is_ok()
    }

    fn untyped(&self, backend: &Arc<dyn Backend>, fencing_token: FencingToken) -> Result<UntypedRequest, String> {
        Ok(UntypedRequest {
            name: self.name.clone(),
            bytes: self.bytes,
            parameters: Arc::new(backend.parse(&self.parameters).map_err(|error| error.to_string())?),
            claim: Arc::clone(&self.claim),
            claim_seen: tokio::time::Instant::now(),
            class: Arc::clone(&self.class),
            selected_node: self.node.clone(),
            node_labels: self.node_labels.clone(),
            secrets: self.secrets.clone()?,
            cluster_id: TEST_CLUSTER.to_owned(),
            idempotency_token: self.name.clone(),
            prepared: self.prepared.get().cloned().unwrap_or_default(),
            resumed: true,
            fencing_token,
        })
    }

    /// Returns the volume as an API server stores it, if it accepts the volume.
    pub(super) fn save(&self, volume: Volume) -> Result<CreatedVolume, Violation> {
        let (name, bytes, claim, class) = (self.name.as_str(), self.bytes, &*self.claim, &*self.class);
        let cluster_id = TEST_CLUSTER;
        let inputs = VolumeInputs { name, bytes, claim, class, finalizer: true, identity: None, cluster_id };
        let object = build(&inputs, volume.clone())
            .map_err(|error| Violation(format!("it does not result in a volume: {error}")))?;
        // A separate server, so that no other object can have the name.
        let saved = Cluster::builder().hide_managed_fields().build().create(&object);
        let mut saved =
            saved.map_err(|refused| Violation(format!("the API server rejects the volume: {}", refused.message)))?;
        saved["status"] = json!({"phase": "Released"});
        let object = serde_json::from_value(saved)
            .map_err(|error| Violation(format!("the saved volume cannot be read again: {error}")))?;
        Ok(CreatedVolume { volume, object })
    }
}

fn decoded<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).expect("a literal object with texts in it"))
}
