//! Reads from the cluster. Objects that cannot be read are recorded, with the consequence for the answer, and are not
//! fatal.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use http::header::ACCEPT;
use kube::Client;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use provisioner_runtime::call::{CallError, call, invalid_request};
use serde_json::{Value, json};

/// Time limit of one request.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of objects in one response.
const PAGE: usize = 500;

/// Characters that are escaped in paths and queries. Some texts come from annotations, which any user may write.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// A kind of object.
pub(crate) struct Kind {
    /// The path of its API version.
    version: &'static str,
    plural: &'static str,
    /// The information that is missing if it cannot be read.
    content: &'static str,
}

const CORE: &str = "/api/v1";
const STORAGE: &str = "/apis/storage.k8s.io/v1";
const BUCKETS: &str = "/apis/objectbucket.io/v1alpha1";

const fn kind(version: &'static str, plural: &'static str, content: &'static str) -> Kind {
    Kind { version, plural, content }
}

pub(crate) const CLAIM: Kind = kind(CORE, "persistentvolumeclaims", "the requests of the claims");
pub(crate) const VOLUME: Kind = kind(CORE, "persistentvolumes", "whether the volume exists, and its state");
pub(crate) const CLASS: Kind = kind(STORAGE, "storageclasses", "which provisioner is assigned, and its parameters");
pub(crate) const POD: Kind = kind(CORE, "pods", "which pods use the claim");
pub(crate) const REPLICA: Kind = kind(CORE, "pods", "whether the provisioner's pod is ready");
pub(crate) const NODE: Kind = kind(CORE, "nodes", "whether the node exists");
pub(crate) const NAMESPACE: Kind = kind(CORE, "namespaces", "the identity of this cluster");
pub(crate) const EVENT: Kind = kind(CORE, "events", "the controllers' events");
pub(crate) const LEASE: Kind = kind("/apis/coordination.k8s.io/v1", "leases", "whether a provisioner runs");
pub(crate) const CONFIG_MAP: Kind = kind(CORE, "configmaps", "the journals, and the ConfigMaps of buckets");
pub(crate) const QUOTA: Kind = kind(CORE, "resourcequotas", "whether a quota is used up");
pub(crate) const ATTACHMENT: Kind = kind(STORAGE, "volumeattachments", "whether a node still has the volume attached");
pub(crate) const SECRET: Kind = kind(CORE, "secrets", "whether the claim's Secret exists and belongs to it");
pub(crate) const BUCKET_CLAIM: Kind = kind(BUCKETS, "objectbucketclaims", "the requests of the bucket claims");
pub(crate) const BUCKET: Kind = kind(BUCKETS, "objectbuckets", "the bucket of the claim");

/// The result of a request.
pub(crate) enum Lookup {
    Present(Value),
    /// The object does not exist.
    Absent,
    /// The object could not be read. The reader has recorded this.
    Unknown,
}

impl Lookup {
    pub(crate) fn object(&self) -> Option<&Value> {
        if let Self::Present(object) = self { Some(object) } else { None }
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// Reads objects with the permissions of the user.
pub(crate) struct Reader {
    client: Client,
    unknown: Mutex<Vec<String>>,
}

impl Reader {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, unknown: Mutex::default() }
    }

    /// Reads one object. Pass an empty namespace for cluster-scoped kinds.
    pub(crate) async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Lookup {
        self.get_as(kind, namespace, name, "application/json").await
    }

    /// Reads the metadata of one object. Requests nothing else, and drops all other fields of the response.
    pub(crate) async fn get_metadata(&self, kind: &Kind, namespace: &str, name: &str) -> Lookup {
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        match self.get_as(kind, namespace, name, accept).await {
            Lookup::Present(mut object) => Lookup::Present(json!({"metadata": object["metadata"].take()})),
            other => other,
        }
    }

    async fn get_as(&self, kind: &Kind, namespace: &str, name: &str, accept: &str) -> Lookup {
        if ["", ".", ".."].contains(&name) {
            return Lookup::Absent;
        }
        let path = format!("{}/{}", collection(kind, namespace), utf8_percent_encode(name, ESCAPED));
        match self.request(&path, accept).await {
            Ok(object) => Lookup::Present(object),
            Err(CallError::NotFound) => Lookup::Absent,
            Err(error) => {
                self.note(kind, "get", namespace, &error);
                Lookup::Unknown
            }
        }
    }

    /// Lists all objects of a kind; pass an empty namespace for all namespaces. Returns `None` and records the problem
    /// if they cannot be read.
    pub(crate) async fn list(
        &self,
        kind: &Kind,
        namespace: &str,
        (selector, text): (&str, &str),
    ) -> Option<Vec<Value>> {
        let mut objects = Vec::new();
        let mut next = String::new();
        loop {
            let encoded = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
            let path = collection(kind, namespace);
            let mut query = format!("{path}?limit={PAGE}");
            for (key, value) in [(selector, text), ("continue", &next)] {
                if !value.is_empty() {
                    query.push_str(&format!("&{key}={}", encoded(value)));
                }
            }
            match self.request(&query, "application/json").await {
                Ok(mut page) => {
                    next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
                    if let Value::Array(items) = page["items"].take() {
                        objects.extend(items);
                    }
                }
                // The kind itself does not exist.
                Err(CallError::NotServed(_)) => return Some(objects),
                Err(error) => {
                    self.note(kind, "list", namespace, &error);
                    return None;
                }
            }
            if next.is_empty() {
                return Some(objects);
            }
        }
    }

    /// Returns what could not be read, and the information missing as a result.
    pub(crate) fn unknown(&self) -> Vec<String> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn request(&self, path: &str, accept: &str) -> Result<Value, CallError> {
        let request = Request::get(path).header(ACCEPT, accept).body(Vec::new()).map_err(invalid_request)?;
        call(LIMIT, self.client.request(request)).await
    }

    fn note(&self, Kind { plural, content, .. }: &Kind, verb: &str, namespace: &str, error: &CallError) {
        let place = match namespace {
            "" => String::new(),
            namespace => format!(" in namespace {namespace}"),
        };
        let note = match error {
            CallError::Forbidden(_) => format!("{content}: you may not {verb} {plural}{place}"),
            error => format!("{content}: {plural}{place} cannot be read. {error}"),
        };
        self.record(note);
    }

    /// Records that information is missing.
    pub(crate) fn record(&self, note: String) {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if !unknown.contains(&note) {
            unknown.push(note);
        }
    }
}

fn collection(Kind { version, plural, .. }: &Kind, namespace: &str) -> String {
    match namespace {
        "" => format!("{version}/{plural}"),
        namespace => format!("{version}/namespaces/{}/{plural}", utf8_percent_encode(namespace, ESCAPED)),
    }
}
