//! What the journal keeps of an attempt: enough to finish it when claim and class are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;
use provisioner_runtime::journal::Entry;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::erased::Backend;
use super::facts::{ClaimFacts, OurClass, Pending, WaitingClaim, fingerprint};
use super::key::Key;
use super::watched;
use crate::protocol;

/// Annotations that say nothing to an author; the rest may be what an asset is made of.
const LEFT_OUT: [&str; 3] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    protocol::STORAGE_PROVISIONER,
    protocol::BETA_STORAGE_PROVISIONER,
];

/// What an entry is made of; all else is passed over unread.
#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow)]
    metadata: Kept<'a>,
    spec: &'a RawValue,
}

/// What an entry keeps of a claim's metadata.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept<'a> {
    #[serde(default, deserialize_with = "watched::null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    labels: Option<&'a RawValue>,
    name: &'a RawValue,
    namespace: &'a RawValue,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a RawValue>,
    uid: &'a RawValue,
}

/// The entry of an attempt. `None` when its claim is not known whole. Class and spec are what many claims have in common.
pub(crate) fn write(pending: &Pending, key: &Key) -> Option<Entry> {
    let Whole { mut metadata, spec } = serde_json::from_str(pending.claim.object.as_deref()?).ok()?;
    metadata.annotations.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
    let text = format!(r#"{{"metadata":{}}}"#, serde_json::to_string(&metadata).ok()?);
    let spec = (format!("spec-{:016x}", fingerprint(&spec.get())), spec.get().into());
    Some(Entry { key: key.to_string(), text, shared: vec![pending.class.snapshot.clone(), spec] })
}

/// The class as entries share it: a name without spaces, and its text.
pub(crate) fn snapshot(class: &StorageClass, fingerprint: u64) -> (String, Arc<str>) {
    let mut kept = class.clone();
    if let Some(annotations) = &mut kept.metadata.annotations {
        annotations.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
    }
    let name = kept.metadata.name.as_deref().unwrap_or_default();
    // What was read as JSON can be written as JSON.
    let text = serde_json::to_string(&kept).unwrap_or_default();
    (format!("{name}-{:08x}", fingerprint as u32), text.into())
}

/// The attempt of an entry, or what is wrong with it.
pub(crate) fn read(entry: &Entry, backend: &dyn Backend) -> Result<Pending, String> {
    let say = |error: serde_json::Error| error.to_string();
    let [(name, text), (_, spec)] = &entry.shared[..] else {
        return Err("it names no class and no spec".to_owned());
    };
    let object: StorageClass = serde_json::from_str(text).map_err(say)?;
    let mut whole: Map<String, Value> = serde_json::from_str(&entry.text).map_err(say)?;
    whole.insert("spec".to_owned(), serde_json::from_str(spec).map_err(say)?);
    let whole = Value::from(whole).to_string();
    let claim: watched::Claim = serde_json::from_str(&whole).map_err(say)?;
    let facts = ClaimFacts::read(&claim, false).ok_or("its claim lacks name, namespace or uid")?;
    let class = OurClass::read(object, fingerprint(name), backend, (name.clone(), text.clone()));
    let claim = WaitingClaim {
        fingerprint: fingerprint(&facts),
        facts,
        resource_version: claim.metadata.resource_version.unwrap_or_default().into(),
        lock: None,
        since: Instant::now(),
        object: Some(whole.into()),
    };
    Ok(Pending { claim: Arc::new(claim), class: Arc::new(class) })
}

/// The node that the attempt was for.
pub(crate) fn node(entry: &Entry) -> Option<String> {
    let claim: watched::Claim = serde_json::from_str(&entry.text).ok()?;
    claim.metadata.annotations.selected_node
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::tests::Plain;

    fn pending() -> Pending {
        let class = json!({
            "metadata": {
                "name": "gold", "uid": "class-uid", "resourceVersion": "3",
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{...}"},
            },
            "provisioner": "example.com/disks", "parameters": {"server": "a"}, "reclaimPolicy": "Delete",
        });
        let class: StorageClass = serde_json::from_value(class).unwrap();
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data", "namespace": "shop", "uid": "0a1b2c3d-0000-4fff-8001-00000000000a",
                "resourceVersion": "17", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "db"},
                "annotations": {
                    "volume.kubernetes.io/storage-provisioner": "example.com/disks", "path": "/exports/db",
                    "volume.kubernetes.io/selected-node": "node-1",
                },
                "finalizers": ["kubernetes.io/pvc-protection"],
            },
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Pending"},
        });
        let read: watched::Claim = serde_json::from_value(claim.clone()).unwrap();
        let facts = ClaimFacts::read(&read, false).unwrap();
        let snapshot = snapshot(&class, 7);
        Pending {
            claim: Arc::new(WaitingClaim {
                fingerprint: 0,
                facts,
                resource_version: "17".into(),
                lock: None,
                since: Instant::now(),
                object: Some(claim.to_string().into()),
            }),
            class: Arc::new(OurClass::read(class, 7, &Plain, snapshot)),
        }
    }

    #[test]
    fn an_entry_says_all_that_an_author_needs_and_little_else() {
        let entry = write(&pending(), &Key::of_claim("0a1b2c3d-0000-4fff-8001-00000000000a")).unwrap();
        assert_eq!(entry.key, "pvc-0a1b2c3d-0000-4fff-8001-00000000000a");
        assert_eq!(
            serde_json::from_str::<Value>(&entry.text).unwrap(),
            json!({
                "metadata": {
                    "annotations": {"path": "/exports/db", "volume.kubernetes.io/selected-node": "node-1"},
                    "labels": {"app": "db"}, "name": "data", "namespace": "shop", "resourceVersion": "17",
                    "uid": "0a1b2c3d-0000-4fff-8001-00000000000a",
                },
            })
        );
        let [(name, class), (spec_name, spec)] = &entry.shared[..] else { panic!("{entry:?}") };
        assert_eq!(name, "gold-00000007");
        assert!(!class.contains("last-applied") && class.contains("\"server\":\"a\""), "{class}");
        assert!(spec_name.starts_with("spec-"), "{spec_name}");
        assert_eq!(**spec, *r#"{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}"#);
        assert_eq!(node(&entry).as_deref(), Some("node-1"));
    }

    #[test]
    fn what_is_read_from_an_entry_makes_the_same_entry() {
        let key = Key::of_claim("0a1b2c3d-0000-4fff-8001-00000000000a");
        let entry = write(&pending(), &key).unwrap();
        let again = read(&entry, &Plain).unwrap();
        assert_eq!(again.claim.facts, pending().claim.facts);
        assert!(again.class.parameters.is_ok());
        assert_eq!(write(&again, &key), Some(entry));
    }

    #[test]
    fn a_damaged_entry_says_what_is_wrong() {
        let good = write(&pending(), &Key::of_claim("u")).unwrap();
        let bad = |entry: Entry| read(&entry, &Plain).err();
        let nameless = bad(Entry { shared: Vec::new(), ..good.clone() });
        assert_eq!(nameless.as_deref(), Some("it names no class and no spec"));
        assert!(bad(Entry { text: "{".to_owned(), ..good.clone() }).is_some());
        assert!(bad(Entry { text: "{\"metadata\":{}}".to_owned(), ..good }).is_some());
    }
}
