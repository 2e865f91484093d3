//! The writers of the reference to the claim, as recorded by the API server in `metadata.managedFields`.
//!
//! A restored volume looks like the lost one: all annotations are copied, its claim may no longer exist, and Kubernetes
//! releases it immediately. Only the server's own record identifies the creator of *this* object. See
//! <https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::protocol;

/// The maximum age difference, in seconds, of an object and its creator's entry. The server sets both times in one
/// request, but the clocks of two servers may differ. [Velero](https://velero.io) restores `managedFields`, with their
/// old times.
const SAME_MOMENT: i64 = 120;

/// The managers that wrote `spec.claimRef.uid`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writers(Vec<Writer>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Writer {
    manager: Manager,
    /// The time of the last write, in seconds.
    at: Option<i64>,
    /// True if it also wrote the name of the volume's provisioner, which means that it created the object.
    created: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    /// This library, when it creates a volume.
    Ours,
    /// A tool of administrators, which provisions nothing.
    Tool,
    Other,
}

impl Writers {
    /// Returns true if another writer created the object including the reference. It may then be a copy, and it is
    /// unknown whether its claim ever existed in this cluster. If the reference was written later, the volume was bound
    /// here.
    ///
    /// `stamped` means that the volume names its cluster: then only this library can have created the original.
    pub(crate) fn copied(&self, creation: Option<&str>, stamped: bool) -> bool {
        let creation = creation.and_then(seconds);
        let is_copier = |writer: &Writer| {
            let old = writer.at.zip(creation).is_some_and(|(at, creation)| at + SAME_MOMENT < creation);
            let foreign = match writer.manager {
                Manager::Ours => false,
                Manager::Tool => true,
                // The volumes of other provisioners and of earlier versions name no cluster.
                Manager::Other => stamped,
            };
            writer.created && (old || foreign)
        };
        !self.0.is_empty() && self.0.iter().all(is_copier)
    }
}

impl Manager {
    fn of(name: &str) -> Self {
        match name {
            protocol::CREATOR => Self::Ours,
            _ if ["kubectl", "velero"].iter().any(|tool| name.starts_with(tool)) => Self::Tool,
            _ => Self::Other,
        }
    }
}

fn seconds(time: &str) -> Option<i64> {
    Some(time.parse::<Timestamp>().ok()?.as_second())
}

impl<'de> Deserialize<'de> for Writers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Writers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("managedFields")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Writers, A::Error> {
                let mut writers = Vec::new();
                while let Some(entry) = entries.next_element::<Entry<'_>>()? {
                    writers.extend(entry.writer());
                }
                Ok(Writers(writers))
            }
        }
        deserializer.deserialize_seq(Entries)
    }
}

/// A partially read entry of `managedFields`. In `fieldsV1`, each field that the manager owns is a key.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry<'a> {
    #[serde(borrow)]
    manager: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(rename = "fieldsV1")]
    fields: Owned,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Owned {
    #[serde(rename = "f:metadata")]
    metadata: OwnedMetadata,
    #[serde(rename = "f:spec")]
    spec: OwnedSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnedMetadata {
    #[serde(rename = "f:annotations")]
    annotations: OwnedAnnotations,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnedAnnotations {
    #[serde(rename = "f:pv.kubernetes.io/provisioned-by")]
    provisioned_by: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnedSpec {
    #[serde(rename = "f:claimRef")]
    claim_ref: OwnedReference,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnedReference {
    #[serde(rename = "f:uid")]
    uid: Option<IgnoredAny>,
}

impl Entry<'_> {
    fn writer(&self) -> Option<Writer> {
        self.fields.spec.claim_ref.uid?;
        let created = self.fields.metadata.annotations.provisioned_by.is_some();
        Some(Writer { manager: Manager::of(&self.manager), at: seconds(&self.time), created })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CREATION: &str = "2026-01-02T00:00:00Z";

    fn entry(manager: &str, time: &str, created: bool) -> Value {
        let annotations = if created {
            json!({"f:pv.kubernetes.io/provisioned-by": {}, "f:kube-provisioner/cluster-id": {}})
        } else {
            json!({})
        };
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:annotations": annotations},
                "f:spec": {"f:capacity": {"f:storage": {}}, "f:claimRef": {".": {}, "f:uid": {}, "f:name": {}}},
            },
        })
    }

    fn copied(entries: Value, stamped: bool) -> bool {
        let writers: Writers = serde_json::from_str(&entries.to_string()).unwrap();
        writers.copied(Some(CREATION), stamped)
    }

    #[test]
    fn volumes_created_by_this_library_are_not_copies() {
        assert!(!copied(json!([entry(protocol::CREATOR, CREATION, true)]), true));
        let status =
            json!({"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}});
        assert!(!copied(json!([entry(protocol::CREATOR, "2026-01-01T23:59:59Z", true), status]), true));
        // Without a record, which proxies may remove, the object does not count as a copy.
        assert!(!copied(json!([]), true));
    }

    #[test]
    fn restored_volumes_are_copies() {
        assert!(copied(json!([entry("kubectl-create", CREATION, true)]), true));
        assert!(copied(json!([entry("some-backup", CREATION, true)]), true));
        // The record was restored too, and is older than the object.
        assert!(copied(json!([entry(protocol::CREATOR, "2026-01-01T00:00:00Z", true)]), true));
        assert!(copied(json!([entry("csi-provisioner", "2026-01-01T00:00:00Z", true)]), false));
    }

    #[test]
    fn a_restored_volume_bound_here_is_not_a_copy() {
        let restored = json!({
            "manager": "velero-server", "time": CREATION,
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:pv.kubernetes.io/provisioned-by": {}}}},
        });
        let bound = entry("kube-controller-manager", "2026-01-02T00:00:05Z", false);
        assert!(!copied(json!([restored, bound]), true));
        assert!(!copied(json!([restored, entry("k3s", "2026-01-02T00:00:05Z", false)]), true));
    }

    #[test]
    fn volumes_without_cluster_id_are_copies_if_tools_created_them() {
        assert!(!copied(json!([entry("csi-provisioner", CREATION, true)]), false));
        assert!(!copied(json!([entry("unknown", CREATION, true)]), false));
        assert!(copied(json!([entry("kubectl-client-side-apply", CREATION, true)]), false));
        assert!(copied(json!([entry("velero-server", CREATION, true)]), false));
    }
}
