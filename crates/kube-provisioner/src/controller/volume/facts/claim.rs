//! What is known of one claim.

use std::sync::Arc;

use tokio::time::Instant;

use super::class::class_name;
use crate::controller::volume::partial;
use crate::quantity;

/// The data source of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DataSource {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Where it names one.
    pub(crate) namespace: Option<String>,
}

impl DataSource {
    /// Kind and group, as authors declare them.
    pub(crate) fn type_name(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Whether a volume populator fills the volume by way of another claim: neither a clone nor a snapshot.
    /// <https://kubernetes.io/docs/concepts/storage/volume-populators/>
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

/// A claim that asks us for a volume: what rules read, and the whole object for the author.
#[derive(Debug)]
pub(crate) struct WaitingClaim {
    pub(crate) facts: ClaimFacts,
    /// The fingerprint of `facts`: an unrelated update does not change it.
    pub(crate) fingerprint: u64,
    pub(crate) resource_version: Box<str>,
    /// When it was first seen to wait.
    pub(crate) since: Instant,
    /// The claim as the author gets it, as JSON: a third of the size of the decoded object. `None` once the volume is
    /// saved. The claim is read again in the rare case that it needs another volume.
    pub(crate) object: Option<Box<str>>,
}

/// A claim that cannot be read: of the facts only its name, its uid and whether it is being deleted are known.
#[derive(Debug)]
pub(crate) struct UnreadableClaim {
    pub(crate) facts: ClaimFacts,
    pub(crate) problem: String,
    pub(crate) resource_version: Box<str>,
}

impl UnreadableClaim {
    /// `None` for an object that lacks what every stored object has.
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
    /// Has the annotation of a claim whose binding is complete.
    pub(crate) bind_completed: bool,
    /// The requested bytes, or what is wrong with the request.
    pub(crate) request: Result<u64, String>,
}

impl ClaimFacts {
    /// Reads a claim. `None` for an object that lacks what every stored object has.
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

    /// The namespace and the name of its data source.
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
