//! The object that holds a journal: a ConfigMap, or a Lease.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicResourceScope;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::entries::Capacity;
use super::format::{ENTRIES, RESTORED, SHARED, VERSION_KEY};

/// The parts of the data. A Lease stores them as annotations, with [`PREFIX`] before their names.
const PARTS: [&str; 4] = [VERSION_KEY, ENTRIES, RESTORED, SHARED];
const PREFIX: &str = "kube-provisioner/journal-";

/// The kind of object that stores journals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalKind {
    /// In the data of ConfigMaps.
    #[default]
    ConfigMap,
    /// In annotations of Leases, which have less room: for an account without permissions on ConfigMaps.
    Lease,
    /// In memory only, for an account without permissions on either: when the process ends, the record of its attempts
    /// is lost.
    Memory,
}

impl JournalKind {
    pub(crate) const fn resource(self) -> JournalResource {
        match self {
            Self::ConfigMap => JournalResource::of::<ConfigMap>(),
            Self::Lease | Self::Memory => JournalResource::of::<Lease>(),
        }
    }

    pub(super) fn capacity(self) -> Capacity {
        match self {
            Self::ConfigMap | Self::Memory => Capacity { all: 450_000, with_newcomers: 900_000, object: 1_000_000 },
            // The annotations of an object may have 256 KiB in total.
            Self::Lease => Capacity { all: 150_000, with_newcomers: 225_000, object: 250_000 },
        }
    }
}

pub(crate) struct JournalResource {
    group: &'static str,
    version: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    plural: &'static str,
}

impl JournalResource {
    const fn of<K: k8s_openapi::Resource>() -> Self {
        let (group, version, api_version) = (K::GROUP, K::VERSION, K::API_VERSION);
        Self { group, version, api_version, kind: K::KIND, plural: K::URL_PATH_SEGMENT }
    }
}

/// A journal as stored by the API server.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalObject {
    // Items of a list lack both `apiVersion` and `kind`.
    #[serde(default)]
    api_version: Cow<'static, str>,
    #[serde(default)]
    kind: Cow<'static, str>,
    pub(super) metadata: ObjectMeta,
    /// `None` for a Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<BTreeMap<String, String>>,
}

impl JournalObject {
    pub(super) fn new(kind: JournalKind, metadata: ObjectMeta, data: &BTreeMap<String, String>) -> Self {
        let resource = kind.resource();
        let (api_version, name) = (resource.api_version.into(), resource.kind.into());
        let mut object = Self { api_version, kind: name, metadata, data: None };
        if kind == JournalKind::Lease {
            let annotations = object.metadata.annotations.get_or_insert_default();
            for part in PARTS {
                let name = format!("{PREFIX}{part}");
                match data.get(part) {
                    Some(text) => annotations.insert(name, text.clone()),
                    None => annotations.remove(&name),
                };
            }
        } else {
            object.data = Some(data.clone());
        }
        object
    }

    pub(super) fn data(&self) -> BTreeMap<String, String> {
        let of_lease =
            |part: &str| Some((part.to_owned(), self.annotations().get(&format!("{PREFIX}{part}"))?.clone()));
        self.data.clone().unwrap_or_else(|| PARTS.into_iter().filter_map(of_lease).collect())
    }
}

impl Resource for JournalObject {
    type DynamicType = JournalKind;
    type Scope = DynamicResourceScope;

    fn kind(kind: &JournalKind) -> Cow<'_, str> {
        kind.resource().kind.into()
    }

    fn group(kind: &JournalKind) -> Cow<'_, str> {
        kind.resource().group.into()
    }

    fn version(kind: &JournalKind) -> Cow<'_, str> {
        kind.resource().version.into()
    }

    fn plural(kind: &JournalKind) -> Cow<'_, str> {
        kind.resource().plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
