//! Members in a bucket's IAM policy. Bindings of other users stay unchanged.

use kube_provisioner::bucket::Access;
use serde_json::{Value, json};

use crate::account::is_of_a_claim;
use crate::principal::is_title;

/// Returns the roles for this access. `legacyBucketReader` allows S3 clients to request the bucket itself.
pub(crate) fn roles(access: Access) -> &'static [&'static str] {
    match access {
        Access::ReadWrite => &["roles/storage.objectUser", "roles/storage.legacyBucketReader"],
        Access::ReadOnly => &["roles/storage.objectViewer", "roles/storage.legacyBucketReader"],
        Access::WriteOnly => &["roles/storage.objectCreator"],
    }
}

/// All roles that the provisioner grants.
const GRANTED_ROLES: [&str; 4] = [
    "roles/storage.objectUser",
    "roles/storage.objectViewer",
    "roles/storage.objectCreator",
    "roles/storage.legacyBucketReader",
];

/// Returns the policy with exactly this access for the service account: other roles in [`GRANTED_ROLES`] are revoked.
/// The provisioner never uses conditional bindings for service accounts, so such bindings are kept.
pub(crate) fn with_account(policy: &Value, email: &str, access: Access) -> Value {
    let (member, wanted) = (member(email), roles(access));
    let mut policy = without(policy, |binding, found| {
        let role = binding["role"].as_str().unwrap_or_default();
        let ours = !is_conditional(binding) && GRANTED_ROLES.contains(&role) && !wanted.contains(&role);
        // An entry for a deleted account with the same name has no effect.
        (ours && found == member) || is_deleted(found, email)
    });
    for role in wanted {
        let mut bindings = bindings_of(&mut policy).iter_mut();
        match bindings.find(|binding| binding["role"] == *role && !is_conditional(binding)) {
            Some(binding) => {
                let members = binding["members"].as_array_mut();
                if let Some(members) = members.filter(|members| !members.contains(&json!(member))) {
                    members.push(json!(member));
                }
            }
            None => bindings_of(&mut policy).push(json!({"role": role, "members": [member]})),
        }
    }
    policy
}

/// Returns the policy with a binding of this title that grants the access to a principal. It replaces earlier bindings
/// of the title. The condition only carries the title: it is always true in this bucket.
pub(crate) fn with_principal(policy: &Value, title: &str, bucket: &str, principal: &str, access: Access) -> Value {
    let mut policy = without_title(policy, title);
    // The S3 protocol, which requests the bucket itself, needs keys. Without keys, the first role suffices.
    let expression = format!("resource.name.startsWith(\"projects/_/buckets/{bucket}\")");
    let binding = json!({
        "role": roles(access)[0], "members": [principal], "condition": {"title": title, "expression": expression},
    });
    bindings_of(&mut policy).push(binding);
    policy
}

/// Returns the policy without the bindings of this title.
pub(crate) fn without_title(policy: &Value, title: &str) -> Value {
    let mut policy = policy.clone();
    bindings_of(&mut policy).retain(|binding| binding["condition"]["title"] != title);
    policy
}

/// Returns the policy without this service account and without all members that were added for claims.
pub(crate) fn without_claims(policy: &Value, email: &str) -> Value {
    let mut policy = without(&without_account(policy, email), |binding, found| {
        !is_conditional(binding) && found.strip_prefix("serviceAccount:").is_some_and(is_of_a_claim)
    });
    let is_titled = |binding: &Value| binding["condition"]["title"].as_str().is_some_and(is_title);
    bindings_of(&mut policy).retain(|binding| !is_titled(binding));
    policy
}

/// Returns the policy without the service account, including access that others granted.
pub(crate) fn without_account(policy: &Value, email: &str) -> Value {
    let member = member(email);
    without(policy, |_, found| found == member || is_deleted(found, email))
}

fn without(policy: &Value, is_removed: impl Fn(&Value, &str) -> bool) -> Value {
    let mut policy = policy.clone();
    bindings_of(&mut policy).retain_mut(|binding| {
        let before = binding.clone();
        let Some(members) = binding["members"].as_array_mut() else { return true };
        let count = members.len();
        members.retain(|member| !is_removed(&before, member.as_str().unwrap_or_default()));
        members.len() == count || !members.is_empty()
    });
    policy
}

fn bindings_of(policy: &mut Value) -> &mut Vec<Value> {
    if !policy["bindings"].is_array() {
        policy["bindings"] = json!([]);
    }
    policy["bindings"].as_array_mut().expect("the bindings are an array")
}

fn member(email: &str) -> String {
    format!("serviceAccount:{email}")
}

fn is_deleted(member: &str, email: &str) -> bool {
    member
        .strip_prefix("deleted:serviceAccount:")
        .and_then(|rest| rest.split_once('?'))
        .is_some_and(|(of, _)| of == email)
}

fn is_conditional(binding: &Value) -> bool {
    binding.get("condition").is_some_and(|condition| !condition.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{account_id, email};

    const A: &str = "obc-a@p.iam.gserviceaccount.com";
    const B: &str = "obc-b@p.iam.gserviceaccount.com";

    fn theirs() -> Value {
        json!({"kind": "storage#policy", "version": 3, "etag": "CAE=", "bindings": [
            {"role": "roles/storage.legacyBucketOwner", "members": ["projectOwner:p"]},
            {"role": "roles/storage.objectUser", "members": ["user:x@example.com"],
             "condition": {"title": "t", "expression": "true"}},
            {"role": "roles/storage.objectViewer", "members": ["allUsers"]},
            {"role": "roles/odd", "members": []},
        ]})
    }

    #[test]
    fn grants_and_revocations_keep_foreign_bindings() {
        let one = with_account(&theirs(), A, Access::ReadOnly);
        assert_eq!(
            one["bindings"][2]["members"],
            json!(["allUsers", "serviceAccount:obc-a@p.iam.gserviceaccount.com"])
        );
        assert_eq!(with_account(&one, A, Access::ReadOnly), one);
        let both = with_account(&one, B, Access::ReadWrite);
        assert_eq!(without_account(&without_account(&both, B), A), theirs());
        // The conditional binding is not the provisioner's, so the role has a separate binding without a condition.
        assert_eq!(both["bindings"][1], theirs()["bindings"][1]);
        assert!(
            both["bindings"]
                .as_array()
                .unwrap()
                .iter()
                .any(|binding| binding["role"] == roles(Access::ReadWrite)[0] && !is_conditional(binding))
        );
    }

    #[test]
    fn adds_and_removes_principals_by_title() {
        let (title, web) = ("objectbucketclaim-u", "principal://web");
        let one = with_principal(&theirs(), title, "photos", web, Access::ReadOnly);
        let binding = &one["bindings"][4];
        assert_eq!(
            (&binding["role"], &binding["members"]),
            (&json!("roles/storage.objectViewer"), &json!(["principal://web"]))
        );
        assert_eq!(with_principal(&one, title, "photos", web, Access::ReadOnly), one);
        let other = with_principal(&one, title, "photos", "principal://other", Access::ReadWrite);
        assert!(!other.to_string().contains("principal://web"), "{other}");
        let both = with_principal(&one, "objectbucketclaim-v", "photos", web, Access::WriteOnly);
        assert_eq!(without_title(&both, "objectbucketclaim-v"), one);
        assert_eq!(without_title(&one, title), theirs());
    }

    #[test]
    fn closing_removes_all_members_added_for_claims() {
        let [own, shared] = ["own", "shared"].map(|name| email(&account_id(name), "p"));
        let one = with_principal(&theirs(), "objectbucketclaim-u", "photos", "principal://web", Access::ReadOnly);
        let one = with_account(&one, &own, Access::ReadWrite);
        let one = with_account(&with_account(&one, &shared, Access::ReadWrite), A, Access::ReadOnly);
        assert_eq!(without_claims(&one, A), theirs());
        assert_eq!(without_claims(&theirs(), A), theirs());
    }

    #[test]
    fn reduced_access_revokes_excess_roles() {
        let one = with_account(&theirs(), A, Access::ReadWrite);
        let less = with_account(&one, A, Access::WriteOnly);
        assert_eq!(less, with_account(&theirs(), A, Access::WriteOnly));
        assert_eq!(without_account(&less, A), theirs());
    }

    #[test]
    fn removes_entries_of_deleted_accounts() {
        let mut policy = theirs();
        policy["bindings"][2]["members"]
            .as_array_mut()
            .unwrap()
            .push(json!(format!("deleted:serviceAccount:{A}?uid=1")));
        assert_eq!(without_account(&policy, A), theirs());
        assert_eq!(without_account(&policy, B), policy);
        assert_eq!(with_account(&policy, A, Access::ReadOnly), with_account(&theirs(), A, Access::ReadOnly));
        assert_eq!(without_account(&json!({"etag": "x"}), A)["bindings"], json!([]));
    }
}
