//! What is checked, and the calls that a controller would make.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube_sim::Cluster;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::STORMS;
use super::assets::Assets;
use super::rules::Broken;
use super::tempo::Tempo;
use crate::capabilities::AccessMode;
use crate::controller::{Backend, Order, UntypedRequest, build};
use crate::error::{DeleteError, ProvisionError, Verdict};
use crate::mandate::Mandate;
use crate::protocol;
use crate::provisioner::Provisioner;
use crate::request::ProvisionedVolume;
use crate::secrets::Secrets;
use crate::volume::Volume;

/// The name that classes have for the provisioner.
pub(super) const PROVISIONER: &str = "conformance.example.com/provisioner";
/// The class of all claims.
pub(super) const CLASS: &str = "checked";
/// What a claim asks for unless size matters.
pub(super) const USUAL: u64 = 1 << 20;

/// How often a call is made before its failure counts, and how often assets are looked at.
const ATTEMPTS: usize = 60;

pub(super) struct Subject {
    pub(super) name: &'static str,
    start: Box<dyn Fn() -> Arc<dyn Backend>>,
    pub(super) assets: Box<dyn Fn() -> LocalBoxFuture<'static, BTreeSet<String>>>,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) refused: Vec<BTreeMap<String, String>>,
    pub(super) node: Option<String>,
    pub(super) seeds: Vec<u64>,
    pub(super) tempo: Tempo,
    /// How many names were given.
    names: Cell<u64>,
}

/// A volume as it comes from the author and as the API server keeps it.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) volume: Volume,
    pub(super) object: PersistentVolume,
}

impl Subject {
    pub(super) fn new<P, A>(start: impl Fn() -> P + 'static, assets: impl AsyncFn() -> A + 'static) -> Self
    where
        P: Provisioner,
        A: IntoIterator<Item: ToString>,
    {
        let assets = Rc::new(assets);
        Self {
            name: std::any::type_name::<P>(),
            start: Box::new(move || Arc::new(start())),
            assets: Box::new(move || {
                let assets = Rc::clone(&assets);
                async move { assets().await.into_iter().map(|asset| asset.to_string()).collect() }.boxed_local()
            }),
            parameters: BTreeMap::new(),
            refused: Vec::new(),
            node: None,
            seeds: (0..STORMS).collect(),
            tempo: Tempo::Virtual,
            names: Cell::new(0),
        }
    }

    /// The provisioner of a new process.
    pub(super) fn start(&self) -> Arc<dyn Backend> {
        (self.start)()
    }

    /// A name that no volume had, as long as real ones and in the same form.
    pub(super) fn new_name(&self) -> String {
        self.names.set(self.names.get() + 1);
        format!("pvc-c0f00000-0000-4000-8000-{:012}", self.names.get())
    }

    /// Waits until the backend holds so many assets more than before.
    pub(super) async fn expect(&self, before: &Assets, added: usize, when: &str) -> Result<Assets, Broken> {
        for _ in 1..ATTEMPTS {
            let now = Assets::now(self).await;
            if now.expect(before, added, when).is_ok() {
                return Ok(now);
            }
            sleep(self.tempo.step()).await;
        }
        let now = Assets::now(self).await;
        now.expect(before, added, when).map(|()| now)
    }

    /// Calls `provision` until there is a final answer, and makes of it what the API server would keep.
    pub(super) async fn provision(&self, backend: &Arc<dyn Backend>, name: &str) -> Result<Made, Broken> {
        let request = Request::new(self, backend, name, USUAL);
        let volume = self.ask(backend, &request).await?.map_err(|error| {
            Broken(format!("`provision` says of a good request that it can never be served: {error:?}"))
        })?;
        request.save(volume)
    }

    /// Calls `provision` until there is a final answer: a volume, or why there will never be one.
    pub(super) async fn ask(
        &self,
        backend: &Arc<dyn Backend>,
        request: &Request,
    ) -> Result<Result<Volume, ProvisionError>, Broken> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let error = match request.call(backend).await {
                Ok(volume) => return Ok(Ok(volume)),
                Err(error) if !matches!(error.verdict(), Verdict::Retry | Verdict::InProgress) => {
                    return Ok(Err(error));
                }
                Err(error) => error,
            };
            sleep(self.tempo.retry(error.retry_after())).await;
            last = Some(error);
        }
        let last = last.map(|error| error.to_string()).unwrap_or_default();
        Err(Broken(format!("`provision` failed {ATTEMPTS} times in a row; the last time: {last}")))
    }

    /// Calls `delete` until it succeeds.
    pub(super) async fn delete(&self, backend: &Arc<dyn Backend>, object: &PersistentVolume) -> Result<(), Broken> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match self.delete_once(backend, object).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    sleep(self.tempo.retry(error.retry_after())).await;
                    last = format!("{error:?}");
                }
            }
        }
        Err(Broken(format!("`delete` failed {ATTEMPTS} times in a row; the last time: {last}")))
    }

    pub(super) async fn delete_once(
        &self,
        backend: &Arc<dyn Backend>,
        object: &PersistentVolume,
    ) -> Result<(), DeleteError> {
        let (mandate, _call) = Mandate::of_call(|| true);
        backend.delete(ProvisionedVolume::new(object.clone()).with(Secrets::default(), mandate)).await
    }

    /// The class with some parameters.
    pub(super) fn class(&self, parameters: &BTreeMap<String, String>) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
            "provisioner": PROVISIONER, "parameters": parameters, "reclaimPolicy": "Delete",
            "volumeBindingMode": if self.node.is_some() { "WaitForFirstConsumer" } else { "Immediate" },
        })
    }

    /// A claim that this provisioner can serve.
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

/// One request, which can be made again and again.
pub(super) struct Request {
    name: String,
    bytes: u64,
    parameters: BTreeMap<String, String>,
    claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
    node: Option<String>,
}

impl Request {
    pub(super) fn new(subject: &Subject, backend: &Arc<dyn Backend>, name: &str, bytes: u64) -> Self {
        let mut claim = subject.claim(backend, &format!("claim-of-{name}"), bytes);
        claim["metadata"]["uid"] = name.trim_start_matches("pvc-").into();
        claim["metadata"]["resourceVersion"] = "1".into();
        let (claim, class) = (decoded(claim), decoded(subject.class(&subject.parameters)));
        let parameters = subject.parameters.clone();
        Self { name: name.to_owned(), bytes, parameters, claim, class, node: subject.node.clone() }
    }

    pub(super) async fn call(&self, backend: &Arc<dyn Backend>) -> Result<Volume, ProvisionError> {
        if !backend.accepts(&self.claim) {
            return Err(ProvisionError::not_mine("`accepts` says no to a plain claim"));
        }
        let parameters = backend.parse(&self.parameters).map_err(ProvisionError::invalid)?;
        // It ends when the call is dropped, as under the controller.
        let (mandate, _call) = Mandate::of_call(|| true);
        let request = UntypedRequest {
            name: self.name.clone(),
            bytes: self.bytes,
            parameters,
            claim: Arc::clone(&self.claim),
            class: Arc::clone(&self.class),
            selected_node: self.node.clone(),
            node_labels: BTreeMap::new(),
            secrets: Secrets::default(),
            token: self.name.clone(),
            mandate,
        };
        backend.provision(request).await
    }

    /// What an API server makes of the volume, if it takes it.
    pub(super) fn save(&self, volume: Volume) -> Result<Made, Broken> {
        let (name, bytes, claim, class) = (self.name.as_str(), self.bytes, &*self.claim, &*self.class);
        let order = Order { name, bytes, claim, class, finalizer: true, identity: None };
        let object =
            build(&order, volume.clone()).map_err(|error| Broken(format!("no volume can be made of it: {error}")))?;
        // A server of its own, because nothing else may have the name there.
        let saved = Cluster::builder().hide_managed_fields().build().create(&object);
        let mut saved =
            saved.map_err(|refused| Broken(format!("the API server does not take the volume: {}", refused.message)))?;
        saved["status"] = json!({"phase": "Released"});
        let object = serde_json::from_value(saved)
            .map_err(|error| Broken(format!("the saved volume cannot be read again: {error}")))?;
        Ok(Made { volume, object })
    }
}

fn decoded<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).expect("a literal object with texts in it"))
}
