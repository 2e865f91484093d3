//! Which users of the gateway are made for claims.

use kube_provisioner::bucket::ClaimName;

/// Whether a user that an ObjectBucket records was made for its claim, by the names of all of Rook's generations:
/// `obc-<namespace>-<name>`, with or without more behind it, and `ceph-user-` with eight letters and digits.
pub(crate) fn is_generated(user: &str, claim: &ClaimName, bucket_owner: Option<&str>) -> bool {
    if bucket_owner == Some(user) {
        return false;
    }
    let ours = format!("obc-{}-{}", claim.namespace, claim.name);
    let rest = user.strip_prefix(&ours);
    let oldest = || {
        let random = user.strip_prefix("ceph-user-");
        random.is_some_and(|random| random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) || oldest()
}

/// How policies name a user.
pub(crate) fn arn(user: &str) -> String {
    // The user of a tenant is `tenant$user`.
    match user.split_once('$') {
        Some((tenant, user)) => format!("arn:aws:iam::{tenant}:user/{user}"),
        None => format!("arn:aws:iam:::user/{user}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_all_generations() {
        let claim = ClaimName { namespace: "shop".into(), name: "photos".into(), uid: "u-1".into() };
        for (user, owner, generated) in [
            ("obc-shop-photos-u-1", None, true),
            ("obc-shop-photos-u-1", Some("obc-shop-photos-u-1"), false),
            ("obc-shop-photos-u-1", Some("other"), true),
            ("obc-shop-photos", None, true),
            ("obc-shop-photos-9f0c2a9e-4d7e-11ee-be56-0242ac120002", None, true),
            ("ceph-user-Ab12Cd34", None, true),
            ("ceph-user-Ab12Cd34", Some("ceph-user-Ab12Cd34"), false),
            ("ceph-user-short", None, false),
            ("ceph-user-Ab12Cd345", None, false),
            ("obc-shop-photosets", None, false),
            ("obc-other-photos", None, false),
            ("alice", None, false),
            ("", None, false),
        ] {
            assert_eq!(is_generated(user, &claim, owner), generated, "{user} {owner:?}");
        }
    }

    #[test]
    fn names_in_policies() {
        assert_eq!(arn("alice"), "arn:aws:iam:::user/alice");
        assert_eq!(arn("shop$alice"), "arn:aws:iam::shop:user/alice");
    }
}
