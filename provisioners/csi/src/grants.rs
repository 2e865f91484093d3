//! Sources in other namespaces. A ReferenceGrant in the source's namespace states which claims may use it.
//!
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#cross-namespace-data-sources>

use kube_provisioner::k8s_openapi::api::core::v1::TypedObjectReference;
use kube_provisioner::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube_provisioner::kube::{Client, ResourceExt};
use kube_provisioner::{Change, ObjectWatch, Trigger, error_chain};
use provisioner_runtime::CallError;
use serde::Deserialize;
use serde_json::Value;

use crate::requests::limited;
use crate::sources::SourceError;

const GROUP: &str = "gateway.networking.k8s.io";
const CLAIM: &str = "PersistentVolumeClaim";

/// The relevant fields of a ReferenceGrant's specification.
#[derive(Deserialize)]
struct Grant {
    #[serde(default)]
    from: Vec<ReferenceGrantFrom>,
    #[serde(default)]
    to: Vec<ReferenceGrantTo>,
}

#[derive(Deserialize)]
struct ReferenceGrantFrom {
    #[serde(default)]
    group: String,
    kind: String,
    namespace: String,
}

#[derive(Deserialize)]
struct ReferenceGrantTo {
    #[serde(default)]
    group: String,
    kind: String,
    /// `None` permits every object of the kind.
    #[serde(default)]
    name: Option<String>,
}

/// Asks the API server if claims in the namespace `from` may use a source in `namespace`.
pub(crate) async fn check(
    client: &Client,
    reference: &TypedObjectReference,
    namespace: &str,
    from: &str,
) -> Result<(), SourceError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource());
    let grants = limited(api.list(&ListParams::default())).await.map_err(|error| unread(&error, namespace))?;
    if grants.items.iter().any(|grant| allows(&grant.data["spec"], reference, from)) {
        return Ok(());
    }
    let TypedObjectReference { api_group, kind, name, .. } = reference;
    let group = api_group.as_deref().unwrap_or_default();
    Err(SourceError::Unsuitable(format!(
        "no ReferenceGrant in the namespace {namespace} allows claims in the namespace {from} to use the {kind} \
         {name}; create one there, of {GROUP}/v1beta1, from {{group: \"\", kind: {CLAIM}, namespace: {from}}} to \
         {{group: \"{group}\", kind: {kind}, name: {name}}}"
    )))
}

/// Wakes claims that wait for a grant, and attempts that lost theirs, so that they do not wait for their back-off. A
/// list also wakes them, because it may contain grants that were created while the watch was interrupted.
pub(crate) fn watch(client: &Client) -> ObjectWatch {
    let api = Api::all_with(client.clone(), &resource());
    ObjectWatch::new("referencegrants", api, |change| match change {
        Change::Listed(grant) | Change::Applied(grant) | Change::Deleted(grant) => {
            vec![Trigger::SourceNamespace(grant.namespace().unwrap_or_default())]
        }
        Change::Begin | Change::Ready => Vec::new(),
    })
}

fn resource() -> ApiResource {
    // external-provisioner reads the same version.
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1beta1", "ReferenceGrant"))
}

/// Returns true if a grant lets claims in this namespace use the referenced object. A grant that cannot be parsed
/// permits nothing.
fn allows(grant: &Value, reference: &TypedObjectReference, namespace: &str) -> bool {
    let Ok(Grant { from, to }) = Grant::deserialize(grant) else { return false };
    let group = reference.api_group.as_deref().unwrap_or_default();
    let is_claims =
        |from: &ReferenceGrantFrom| from.group.is_empty() && from.kind == CLAIM && from.namespace == namespace;
    let is_source = |to: &ReferenceGrantTo| {
        let name = to.name.as_deref().filter(|name| !name.is_empty());
        to.group == group && to.kind == reference.kind && name.is_none_or(|name| name == reference.name)
    };
    from.iter().any(is_claims) && to.iter().any(is_source)
}

fn unread(error: &CallError, namespace: &str) -> SourceError {
    let advice = match error {
        CallError::NotServed(_) => {
            return SourceError::Unsuitable(format!(
                "the cluster does not have the ReferenceGrant API {GROUP}/v1beta1, which sources in other namespaces require; \
                 install its CustomResourceDefinition"
            ));
        }
        CallError::Forbidden(_) => {
            format!(
                "; grant csi-provisioner the permissions list and watch for referencegrants in the API group {GROUP}"
            )
        }
        _ => String::new(),
    };
    let what = format!("ReferenceGrants of the namespace {namespace}");
    SourceError::Unreadable(what, format!("{}{advice}", error_chain(error)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

    fn reference(group: Option<&str>, kind: &str) -> TypedObjectReference {
        TypedObjectReference {
            api_group: group.map(str::to_owned),
            kind: kind.to_owned(),
            name: "source".to_owned(),
            namespace: Some("theirs".to_owned()),
        }
    }

    #[test]
    fn grant_must_match_the_claims_namespace_and_the_source() {
        let from = json!({"group": "", "kind": CLAIM, "namespace": "ours"});
        let to = json!({"group": SNAPSHOTS, "kind": "VolumeSnapshot"});
        let allows_from =
            |from| allows(&json!({"from": [from], "to": [to]}), &reference(Some(SNAPSHOTS), "VolumeSnapshot"), "ours");
        assert!(allows_from(from.clone()));
        for (field, value) in [
            ("group", "apps"),
            ("group", "core"),
            ("kind", "Pod"),
            ("kind", ""),
            ("namespace", "others"),
            ("namespace", ""),
        ] {
            let mut other = from.clone();
            other[field] = value.into();
            assert!(!allows_from(other), "{field} {value:?}");
        }
        let allows_to =
            |to| allows(&json!({"from": [from], "to": [to]}), &reference(Some(SNAPSHOTS), "VolumeSnapshot"), "ours");
        for (field, value, allowed) in [
            ("name", json!("source"), true),
            ("name", json!(""), true),
            ("name", json!(null), true),
            ("name", json!("other"), false),
            ("name", json!("source2"), false),
            ("group", json!(""), false),
            ("group", json!(null), false),
            ("kind", json!(CLAIM), false),
            ("kind", json!("volumesnapshot"), false),
        ] {
            let mut other = to.clone();
            other[field] = value.clone();
            assert_eq!(allows_to(other), allowed, "{field} {value}");
        }
    }

    #[test]
    fn missing_and_empty_group_mean_the_core_group() {
        let grant = json!({
            "from": [{"group": "", "kind": CLAIM, "namespace": "ours"}],
            "to": [{"group": "", "kind": CLAIM, "name": "source"}],
        });
        for group in [None, Some("")] {
            assert!(allows(&grant, &reference(group, CLAIM), "ours"), "{group:?}");
        }
        assert!(!allows(&grant, &reference(Some("example.com"), CLAIM), "ours"));
        assert!(!allows(&grant, &reference(None, CLAIM), "theirs"));
    }

    #[test]
    fn one_matching_from_and_to_in_a_grant_suffice() {
        let [ours, others] = ["ours", "others"].map(|name| json!({"group": "", "kind": CLAIM, "namespace": name}));
        let [source, other] = ["source", "other"].map(|name| json!({"group": "", "kind": CLAIM, "name": name}));
        let allows = |grant: Value| allows(&grant, &reference(None, CLAIM), "ours");
        assert!(allows(json!({"from": [others, ours], "to": [other, source]})));
        assert!(!allows(json!({"from": [ours], "to": [other]})));
        assert!(!allows(json!({"from": [others], "to": [source]})));
        for bad in [
            json!({"from": [ours]}),
            json!({"to": [source]}),
            json!({}),
            json!(null),
            json!({"from": 1, "to": [source]}),
        ] {
            assert!(!allows(bad.clone()), "{bad}");
        }
    }
}
