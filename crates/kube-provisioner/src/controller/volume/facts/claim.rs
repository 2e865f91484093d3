//! The facts about one claim.

use std::sync::Arc;

use tokio::time::Instant;

use super::class::class_name;
use crate::controller::volume::partial;
use crate::quantity;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DataSource {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The namespace, if the data source names one.
    pub(crate) namespace: Option<String>,
}

impl DataSource {
    /// Returns kind and group, in the form that provisioners declare.
    pub(crate) fn type_name(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Returns true if a volume populator fills the volume by means of another claim: the source is neither a clone nor
    /// a snapshot. <https://kubernetes.io/docs/concepts/storage/volume-populators/>
    pub(crate) fn needs_populator(&self) -> bool {
        self.label() == "other"
    }

    pub(super) fn label(&self) -> &'static str {
        match (self.kind.as_str(), self.group.as_str()) {
            ("PersistentVolumeClaim", "") => "PersistentVolumeClaim",
            ("VolumeSnapshot", "snapshot.storage.k8s.io") => "VolumeSnapshot",
            _ => "other",
        }
    }
}

/// A claim that requests a volume from us: the fields that rules read, and the whole object for the provisioner.
#[derive(Debug)]
pub(crate) struct WaitingClaim {
    pub(crate) facts: ClaimFacts,
    /// The fingerprint of `facts`, which unrelated updates do not change.
    pub(crate) fingerprint: u64,
    pub(crate) resource_version: Box<str>,
    /// The time at which the claim was first observed waiting.
    pub(crate) since: Instant,
    /// The time at which this version of the claim was observed.
    pub(crate) seen: Instant,
    /// The claim as the provisioner receives it, as JSON: a third of the size of the decoded object. `None` once the
    /// volume is saved. The claim is read again in the rare case that it needs another volume.
    pub(crate) object: Option<Box<str>>,
}

impl WaitingClaim {
    /// Returns the claim with another text for the provisioner.
    pub(crate) fn with_object(&self, object: Option<Box<str>>) -> Self {
        let Self { facts, fingerprint, resource_version, since, seen, .. } = self;
        let (facts, resource_version) = (facts.clone(), resource_version.clone());
        Self { facts, fingerprint: *fingerprint, resource_version, since: *since, seen: *seen, object }
    }
}

/// A claim that cannot be read: only its name, its uid and whether it is being deleted are known.
#[derive(Debug)]
pub(crate) struct UnreadableClaim {
    pub(crate) facts: ClaimFacts,
    pub(crate) problem: String,
    pub(crate) resource_version: Box<str>,
}

impl UnreadableClaim {
    /// Returns `None` if the object lacks fields that every stored object has.
    pub(crate) fn read(meta: &partial::Meta, problem: &str) -> Option<Self> {
        let facts = ClaimFacts {
            uid: meta.uid.as_deref()?.into(),
            namespace: meta.namespace.as_deref()?.into(),
            name: meta.name.as_deref()?.into(),
            deleting: meta.deletion_timestamp.is_some(),
            class: None,
            block: false,
            access_modes: Vec::new(),
            selector: false,
            data_source: None,
            attributes_class: None,
            selected_node: None,
            bind_completed: false,
            request: Err(problem.to_owned()),
        };
        let resource_version = meta.resource_version.as_deref().unwrap_or_default().into();
        Some(Self { facts, problem: problem.to_owned(), resource_version })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimFacts {
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) deleting: bool,
    pub(crate) class: Option<Box<str>>,
    pub(crate) block: bool,
    pub(crate) access_modes: Vec<String>,
    pub(crate) selector: bool,
    pub(crate) data_source: Option<DataSource>,
    pub(crate) attributes_class: Option<Box<str>>,
    pub(crate) selected_node: Option<Box<str>>,
    /// True if the claim has the annotation of a completed binding.
    pub(crate) bind_completed: bool,
    /// The requested bytes, or the problem with the request.
    pub(crate) request: Result<u64, String>,
}

impl ClaimFacts {
    /// Reads a claim. Returns `None` if the object lacks fields that every stored object has.
    pub(crate) fn read(claim: &partial::ClaimFields) -> Option<Self> {
        let (meta, spec) = (&claim.metadata, claim.spec.clone().unwrap_or_default());
        Some(Self {
            uid: meta.uid.as_deref()?.into(),
            namespace: meta.namespace.as_deref()?.into(),
            name: meta.name.as_deref()?.into(),
            deleting: meta.deletion_timestamp.is_some(),
            class: class_name(meta.annotations.beta_storage_class.as_deref(), spec.storage_class_name.as_deref()),
            block: spec.volume_mode.as_deref() == Some("Block"),
            access_modes: spec.access_modes,
            selector: spec.selector.is_some(),
            data_source: spec.data_source_ref.or(spec.data_source).map(|source| DataSource {
                group: source.api_group.unwrap_or_default(),
                kind: source.kind,
                name: source.name,
                namespace: source.namespace.filter(|namespace| !namespace.is_empty()),
            }),
            attributes_class: spec.volume_attributes_class_name.filter(|name| !name.is_empty()).map(Into::into),
            selected_node: meta.annotations.selected_node.as_deref().filter(|node| !node.is_empty()).map(Into::into),
            bind_completed: meta.annotations.bind_completed.is_some(),
            request: requested_bytes(spec.resources.requests.get("storage")),
        })
    }

    /// Returns the namespace and the name of its data source.
    pub(crate) fn source(&self) -> Option<(&str, &str)> {
        let source = self.data_source.as_ref()?;
        Some((source.namespace.as_deref().unwrap_or(&self.namespace), &source.name))
    }
}

fn requested_bytes(storage: Option<&serde_json::Value>) -> Result<u64, String> {
    match storage.and_then(partial::amount_text) {
        None => Ok(0),
        Some(text) => quantity::parse_bytes(&text).map_err(|error| error.to_string()),
    }
}
