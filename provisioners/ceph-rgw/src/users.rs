//! Names and marks of the gateway users that are created for claims.

use kube_provisioner::bucket::{Account, ClaimName};

/// Returns whether a user was created for an account. Such a user has the account's name. A user that an ObjectBucket
/// records can also have a name in the format of any version of Rook: `obc-<namespace>-<name>`, optionally followed by
/// a uid, or `ceph-user-` followed by eight letters and digits.
pub(crate) fn is_generated(user: &str, account: &Account, bucket_owner: Option<&str>) -> bool {
    if bucket_owner == Some(user) {
        return false;
    }
    if user == account.name {
        return true;
    }
    let claim = &account.claim;
    let ours = format!("obc-{}-{}", claim.namespace, claim.name);
    let rest = user.strip_prefix(&ours);
    let oldest = || {
        let random = user.strip_prefix("ceph-user-");
        random.is_some_and(|random| random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    // The uid belongs to the claim or to the Ceph cluster. Any other suffix is a part of another claim's name.
    let of_claim =
        |rest: &str| rest.is_empty() || rest.strip_prefix('-').is_some_and(|id| id == claim.uid || is_uuid(id));
    rest.is_some_and(of_claim) || oldest()
}

/// Returns the claim, or the COSI account, whose own user has this ID. The ID does not show where the claim's namespace
/// ends, so this function splits at the first hyphen.
pub(crate) fn claim_of(user: &str) -> Option<ClaimName> {
    let rest = user.strip_prefix("obc-")?;
    // A namespace cannot contain a dot.
    if let Some(name) = rest.strip_prefix("access.") {
        return Some(ClaimName { namespace: String::new(), name: name.to_owned(), uid: format!("a.{name}") });
    }
    let (names, uid) = rest.split_at_checked(rest.len().checked_sub(36)?)?;
    let (namespace, name) = names.strip_suffix('-')?.split_once('-')?;
    // The owner of a COSI bucket is `obc-bucket.<name>`.
    let is_named = !namespace.is_empty() && !namespace.contains('.') && !name.is_empty() && is_uuid(uid);
    is_named.then(|| ClaimName { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() })
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Returns the name of a user in policies.
pub(crate) fn arn(user: &str) -> String {
    // The user of a tenant is `tenant$user`.
    match user.split_once('$') {
        Some((tenant, user)) => format!("arn:aws:iam::{tenant}:user/{user}"),
        None => format!("arn:aws:iam:::user/{user}"),
    }
}

/// The mark in a user's display name, which only an administrator of the gateway can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The cluster of the claim.
    pub(crate) cluster: String,
    /// The claim's bucket, if another user owns it.
    pub(crate) transferred_bucket: Option<TransferredBucket>,
}

/// A bucket that the claim's own user created and that belongs to the owner whom the claim names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransferredBucket {
    /// The gateway's own ID of this bucket. Another bucket with the same name has another marker.
    pub(crate) marker: String,
    pub(crate) owner: String,
}

const CLUSTER: &str = "kube-provisioner cluster=";
const BUCKET: &str = " bucket=";
const OWNER: &str = " owner=";

impl Mark {
    /// Returns the mark of a user who owns the claim's bucket, or does not own a bucket.
    pub(crate) fn of(cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), transferred_bucket: None }
    }

    /// Reads the mark in a display name. Users from earlier versions and foreign users have none.
    pub(crate) fn parse(display_name: &str) -> Option<Self> {
        let rest = display_name.strip_prefix(CLUSTER)?;
        let Some((cluster, rest)) = rest.split_once(BUCKET) else { return Some(Self::of(rest)) };
        let (marker, owner) = rest.split_once(OWNER)?;
        let transferred_bucket = Some(TransferredBucket { marker: marker.to_owned(), owner: owner.to_owned() });
        Some(Self { cluster: cluster.to_owned(), transferred_bucket })
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{CLUSTER}{}", self.cluster)?;
        match &self.transferred_bucket {
            Some(TransferredBucket { marker, owner }) => write!(f, "{BUCKET}{marker}{OWNER}{owner}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::bucket;

    use super::*;

    #[test]
    fn recognizes_user_names_of_all_versions() {
        let account = Account::of(ClaimName { namespace: "shop".into(), name: "photos".into(), uid: "u-1".into() });
        for (user, owner, generated) in [
            ("obc-shop-photos-u-1", None, true),
            ("obc-shop-photos-u-1", Some("obc-shop-photos-u-1"), false),
            ("obc-shop-photos-u-1", Some("other"), true),
            ("obc-shop-photos", None, true),
            ("obc-shop-photos-9f0c2a9e-4d7e-11ee-be56-0242ac120002", None, true),
            // Users of the claim shop/photos-raw.
            ("obc-shop-photos-raw-9f0c2a9e-4d7e-11ee-be56-0242ac120002", None, false),
            ("obc-shop-photos-raw", None, false),
            ("ceph-user-Ab12Cd34", None, true),
            ("ceph-user-Ab12Cd34", Some("ceph-user-Ab12Cd34"), false),
            ("ceph-user-short", None, false),
            ("ceph-user-Ab12Cd345", None, false),
            ("obc-shop-photosets", None, false),
            ("obc-other-photos", None, false),
            ("alice", None, false),
            ("", None, false),
        ] {
            assert_eq!(is_generated(user, &account, owner), generated, "{user} {owner:?}");
        }
    }

    #[test]
    fn user_names_are_unique() {
        let uuid = |number: usize| format!("00000000-0000-4000-8000-{number:012}");
        let names = ["a", "a-b", "a-b-c", "b", "b-c", "c", &uuid(0), &format!("a-{}", uuid(0))];
        let pairs = names.iter().flat_map(|namespace| names.iter().map(move |name| (*namespace, *name)));
        let accounts: Vec<Account> = pairs
            .enumerate()
            .map(|(number, (namespace, name))| {
                Account::of(ClaimName { namespace: namespace.into(), name: name.into(), uid: uuid(number + 1) })
            })
            .collect();
        let users: std::collections::BTreeSet<&str> = accounts.iter().map(|account| account.name.as_str()).collect();
        assert_eq!(users.len(), accounts.len());
    }

    /// The library creates such accounts for COSI objects.
    #[test]
    fn users_of_claims_and_of_cosi_never_collide() {
        let cosi = |kind: &str| {
            let (namespace, uid) = (String::new(), format!("{}.photos", &kind[..1]));
            let mut account = Account::of(ClaimName { namespace, name: "photos".into(), uid });
            account.name = format!("obc-{kind}.photos");
            account
        };
        let claim = |namespace: &str, name: &str| {
            Account::of(ClaimName { namespace: namespace.into(), name: name.into(), uid: "u-1".into() })
        };
        let accounts = [cosi("bucket"), cosi("access"), claim("bucket", "photos"), claim("shop", "photos")];
        for (at, one) in accounts.iter().enumerate() {
            for (other_at, other) in accounts.iter().enumerate() {
                assert_eq!(is_generated(&one.name, other, None), at == other_at, "{} {}", one.name, other.name);
            }
        }
    }

    #[test]
    fn derives_the_claim_from_the_user_name() {
        let uid = "9f0c2a9e-4d7e-11ee-be56-0242ac120002";
        for user in
            [format!("obc-shop-photos-{uid}"), format!("obc-my-shop-my-photos-{uid}"), format!("obc-access.ba-{uid}")]
        {
            assert_eq!(bucket::Account::of(claim_of(&user).unwrap()).name, user);
        }
        let of_cosi = format!("obc-bucket.my-photos-{uid}");
        for other in ["alice", "obc-shop-photos", uid, &format!("obc-{uid}"), &format!("ba-{uid}"), &of_cosi] {
            assert_eq!(claim_of(other), None, "{other}");
        }
    }

    #[test]
    fn formats_user_arns() {
        assert_eq!(arn("alice"), "arn:aws:iam:::user/alice");
        assert_eq!(arn("shop$alice"), "arn:aws:iam::shop:user/alice");
    }

    #[test]
    fn marks_round_trip() {
        let own = Mark::of("0000-1");
        let transferred_bucket = TransferredBucket { marker: "zone.4110.1".into(), owner: "alice of shop".into() };
        let transferred = Mark { cluster: "my cluster".into(), transferred_bucket: Some(transferred_bucket) };
        for mark in [own, transferred] {
            assert_eq!(Mark::parse(&mark.to_string()), Some(mark));
        }
        for other in ["", "obc-shop-photos-u-1", "Alice", "kube-provisioner cluster=a bucket=b"] {
            assert_eq!(Mark::parse(other), None, "{other}");
        }
    }
}
