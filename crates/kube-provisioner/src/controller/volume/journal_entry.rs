//! An attempt's entry in the journal: enough to finish the attempt after claim and class were deleted.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;
use provisioner_runtime::{Entry, fingerprint, stable_hash};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::author_view::{self, Parts};
use super::backend::Backend;
use super::facts::{ClaimFacts, OurClass, Pending, WaitingClaim};
use super::key::Key;
use super::partial;
use crate::capabilities::Capabilities;
use crate::prepared::Prepared;

#[derive(Deserialize, Serialize)]
struct EntryText<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    token: &'a str,
    #[serde(default, skip_serializing_if = "Prepared::is_empty")]
    prepared: Prepared,
}

/// Returns the entry of an attempt, or `None` if the whole claim is not known. Many claims share the same class, spec
/// and annotations.
pub(crate) fn write(pending: &Pending, key: &Key) -> Option<Entry> {
    let Parts { metadata, annotations, spec } = author_view::split(pending.claim.object.as_deref()?).ok()??;
    let metadata: &RawValue = serde_json::from_str(&metadata).ok()?;
    let text =
        serde_json::to_string(&EntryText { metadata, token: &pending.token, prepared: pending.prepared.clone() })
            .ok()?;
    let share = |kind: &str, text: &str| (format!("{kind}-{:016x}", stable_hash(text)), text.into());
    let mut shared = vec![pending.class.snapshot.clone(), share("spec", spec.get()), share("ann", &annotations)];
    shared.extend(pending.prepared.shared().map(|text| share("prep", text)));
    Some(Entry { key: key.to_string(), text, shared })
}

/// Returns a class, as provisioners receive it, in the form that entries share: a name without spaces, and its text.
pub(crate) fn snapshot(class: &StorageClass, fingerprint: u64) -> (String, Arc<str>) {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    // A value that was read as JSON can be written as JSON.
    let text = serde_json::to_string(class).unwrap_or_default();
    (format!("{name}-{:08x}", fingerprint as u32), text.into())
}

/// Returns the attempt of an entry, or the problem with it. Calls the provisioner's code, so no lock may be held.
pub(crate) fn read(entry: &Entry, backend: (&dyn Backend, &Capabilities)) -> Result<Pending, String> {
    let say = |error: serde_json::Error| error.to_string();
    let ((name, text), spec, annotations, of_author) = match &entry.shared[..] {
        [class, (_, spec), (_, annotations), (_, text)] => (class, spec, Some(&**annotations), Some(text)),
        [class, (_, spec), (_, annotations)] => (class, spec, Some(&**annotations), None),
        // The format of earlier versions.
        [class, (_, spec)] => (class, spec, None, None),
        _ => return Err("it names no class and no spec".to_owned()),
    };
    let object: StorageClass = serde_json::from_str(text).map_err(say)?;
    let EntryText { metadata, token, mut prepared } = serde_json::from_str(&entry.text).map_err(say)?;
    prepared.shared = of_author.cloned();
    let claim = WaitingClaim::of_author_view(author_view::join(metadata, annotations, spec).map_err(say)?)?;
    let class = OurClass::read(object, fingerprint(name), backend, (name.clone(), text.clone()));
    let (claim, class) = (Arc::new(claim), Arc::new(class));
    Ok(Pending { claim, class, token: token.into(), prepared, begun: Instant::now(), taken_over: true })
}

impl WaitingClaim {
    /// Reads a claim from the part that the provisioner receives.
    fn of_author_view(text: String) -> Result<Self, String> {
        let claim: partial::ClaimFields = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let facts = ClaimFacts::read(&claim).ok_or("its claim lacks name, namespace or uid")?;
        Ok(Self {
            fingerprint: fingerprint(&facts),
            facts,
            resource_version: claim.metadata.resource_version.unwrap_or_default().into(),
            since: Instant::now(),
            seen: Instant::now(),
            object: Some(text.into()),
        })
    }
}

/// Returns the namespace of the attempt's claim; empty if the entry is damaged.
pub(crate) fn namespace(entry: &Entry) -> String {
    #[derive(Deserialize)]
    struct Text {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        namespace: String,
    }
    serde_json::from_str::<Text>(&entry.text).map(|text| text.metadata.namespace).unwrap_or_default()
}

/// Returns the node that the attempt was for.
pub(crate) fn node(entry: &Entry) -> Option<String> {
    let annotations: partial::Annotations = match &entry.shared[..] {
        [_, _, (_, annotations), ..] => serde_json::from_str(annotations).ok()?,
        _ => serde_json::from_str::<partial::ClaimFields>(&entry.text).ok()?.metadata.annotations,
    };
    annotations.selected_node
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::volume::tests::{Plain, pending};

    const UID: &str = "0a1b2c3d-0000-4fff-8001-00000000000a";

    fn capabilities() -> Capabilities {
        Capabilities::default()
    }

    #[test]
    fn an_entry_contains_all_that_provisioners_receive() {
        let entry = write(&pending(), &Key::of_claim(UID)).unwrap();
        assert_eq!((&*entry.key, &*namespace(&entry)), (&*format!("pvc-{UID}"), "shop"));
        let text: Value = serde_json::from_str(&entry.text).unwrap();
        assert_eq!(text["token"], "0123456789abcdef");
        let metadata = json!({
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "db"}, "name": "data", "namespace": "shop",
            "ownerReferences": [{"kind": "StatefulSet", "name": "db"}], "resourceVersion": "17", "uid": UID,
        });
        assert_eq!(text["metadata"], metadata);
        let [(name, class), (spec_name, spec), (_, annotations)] = &entry.shared[..] else { panic!("{entry:?}") };
        assert_eq!(**annotations, *r#"{"path":"/exports/db","volume.kubernetes.io/selected-node":"node-1"}"#);
        assert_eq!(name, "gold-00000007");
        assert!(class.contains("\"server\":\"a\""), "{class}");
        assert!(spec_name.starts_with("spec-"), "{spec_name}");
        assert_eq!(**spec, *r#"{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}"#);
        assert_eq!(node(&entry).as_deref(), Some("node-1"));
    }

    #[test]
    fn reading_an_entry_restores_the_attempt() {
        let key = Key::of_claim(UID);
        let entry = write(&pending(), &key).unwrap();
        let again = read(&entry, (&Plain, &capabilities())).unwrap();
        assert_eq!(again.claim.facts, pending().claim.facts);
        assert_eq!(again.token, pending().token);
        assert_eq!(again.class.object, pending().class.object);
        let claim =
            |pending: &Pending| serde_json::from_str::<Value>(pending.claim.object.as_deref().unwrap()).unwrap();
        assert_eq!(claim(&again), claim(&pending()));
        assert_eq!(write(&again, &key), Some(entry));
    }

    #[test]
    fn stores_the_shared_string_separately() {
        let prepared = Prepared::new(&7).unwrap().with_shared("[\"zone-a\"]");
        let (key, begun) = (Key::of_claim(UID), Pending { prepared, ..pending() });
        let entry = write(&begun, &key).unwrap();
        assert_eq!((entry.shared.len(), &*entry.shared[3].1), (4, "[\"zone-a\"]"));
        assert!(!entry.text.contains("zone-a") && node(&entry).is_some(), "{}", entry.text);
        let again = read(&entry, (&Plain, &capabilities())).unwrap();
        assert_eq!((again.prepared.read::<u32>().unwrap(), again.prepared.shared()), (7, Some("[\"zone-a\"]")));
        assert_eq!(write(&again, &key), Some(entry));
    }

    #[test]
    fn reads_entries_of_earlier_versions() {
        let pending = pending();
        let text = pending.claim.object.as_deref().unwrap();
        let whole: Value = serde_json::from_str(text).unwrap();
        let text = json!({"metadata": whole["metadata"]}).to_string();
        let spec = whole["spec"].to_string();
        let shared = vec![pending.class.snapshot.clone(), ("spec-1".to_owned(), spec.into())];
        let entry = Entry { key: format!("pvc-{UID}"), text, shared };
        assert_eq!(node(&entry).as_deref(), Some("node-1"));
        let again = read(&entry, (&Plain, &capabilities())).unwrap();
        assert_eq!((again.claim.facts.clone(), &*again.token), (pending.claim.facts.clone(), ""));
    }

    #[test]
    fn reports_the_problem_of_a_damaged_entry() {
        let good = write(&pending(), &Key::of_claim("u")).unwrap();
        let bad = |entry: Entry| read(&entry, (&Plain, &capabilities())).err();
        let nameless = bad(Entry { shared: Vec::new(), ..good.clone() });
        assert_eq!(nameless.as_deref(), Some("it names no class and no spec"));
        let damaged = Entry { text: "{".to_owned(), ..good.clone() };
        assert_eq!(namespace(&damaged), "");
        assert!(bad(damaged).is_some());
        assert!(bad(Entry { text: "{\"metadata\":{}}".to_owned(), ..good }).is_some());
    }
}
