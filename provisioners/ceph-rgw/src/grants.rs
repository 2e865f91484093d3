//! Statements in bucket policies that grant access to other claims' users.

use kube_provisioner::bucket::Access;
use s3_client::policy::{Policy, allow};
use s3_client::{Client, Credentials, Error};

use crate::admin::Failure;
use crate::store::Store;
use crate::users::arn;

/// The reason why a policy was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantError {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error("the policy of the bucket {bucket} cannot be read ({reason}): fix it or delete it")]
    Unreadable { bucket: String, reason: String },
    #[error("the policy of the bucket {0} is being changed concurrently; trying again")]
    Contended(String),
}

impl GrantError {
    /// Returns true if the bucket's owner, or an administrator who suspended the owner, prevents the change.
    pub(crate) fn is_caused_by_owner(&self) -> bool {
        match self {
            Self::Failed(failure) => failure.is_denied(),
            Self::Unreadable { .. } => true,
            Self::Contended(_) => false,
        }
    }
}

/// The prefix of the statement ID of the owner's own statement.
const OWNER: &str = "obc-owner-";

/// The retry limit when another process changes the policy concurrently.
const ROUNDS: usize = 4;

/// Changes the policy of a bucket with its owner's key, unless it is already as wanted. The caller holds the bucket's
/// lock. S3 has no conditional write for policies, so the policy is read again to detect a concurrent write by another
/// process.
pub(crate) async fn change_policy(
    store: &Store,
    owner: Credentials,
    bucket: &str,
    change: impl Fn(&Policy) -> Policy,
) -> Result<(), GrantError> {
    let s3 = store.s3(owner);
    // Each round verifies the previous round's write.
    for _ in 0..ROUNDS {
        let live = read_policy(&s3, bucket).await?;
        let wanted = change(&live);
        if wanted.is_equivalent_to(&live) || (wanted.is_empty() && live.is_empty()) {
            return Ok(());
        }
        let put = s3.put_bucket_policy(bucket, &wanted).await;
        put.map_err(|error| Failure::of_user(&format!("set the policy of the bucket {bucket}"), error))?;
    }
    Err(GrantError::Contended(bucket.to_owned()))
}

async fn read_policy(s3: &Client, bucket: &str) -> Result<Policy, GrantError> {
    s3.bucket_policy(bucket).await.map_err(|error| match error {
        Error::Policy(reason) => GrantError::Unreadable { bucket: bucket.to_owned(), reason: reason.to_string() },
        error => Failure::of_user(&format!("read the policy of the bucket {bucket}"), error).into(),
    })
}

/// Returns the policy with a statement that grants access to this user.
pub(crate) fn with_grant(policy: &Policy, user: &str, bucket: &str, access: Access) -> Policy {
    with_statement(policy, (user, user), bucket, access)
}

/// Returns the policy with a statement that grants the bucket's owner access to other users' objects: on the gateway,
/// an object belongs to the user who wrote it. The objects remain when that user is deleted, and so does the statement.
pub(crate) fn with_owner_grant(policy: &Policy, owner: &str, bucket: &str) -> Policy {
    with_statement(policy, (&format!("{OWNER}{owner}"), owner), bucket, Access::ReadWrite)
}

fn with_statement(policy: &Policy, (sid, user): (&str, &str), bucket: &str, access: Access) -> Policy {
    let resources = resources(bucket);
    let actions: Vec<String> = actions(access).map(|action| format!("s3:{action}")).collect();
    let actions: Vec<&str> = actions.iter().map(String::as_str).collect();
    let mut policy = policy.clone();
    policy.upsert(allow(sid, &arn(user), &actions, &resources.each_ref().map(String::as_str)));
    policy
}

fn resources(bucket: &str) -> [String; 2] {
    [format!("arn:aws:s3:::{bucket}"), format!("arn:aws:s3:::{bucket}/*")]
}

/// Returns the policy without this user's statement.
pub(crate) fn without_grant(policy: &Policy, user: &str) -> Policy {
    let mut policy = policy.clone();
    policy.remove(user);
    policy
}

/// Returns this policy with the grants from the live policy.
pub(crate) fn with_grants_of(policy: &Policy, live: &Policy) -> Policy {
    let mut policy = policy.clone();
    for statement in live.statements() {
        let sid = statement.get("Sid").and_then(|sid| sid.as_str()).unwrap_or_default();
        let principal = statement.pointer("/Principal/AWS/0").and_then(|principal| principal.as_str());
        let user = sid.strip_prefix(OWNER).unwrap_or(sid);
        if sid.starts_with("obc-") && principal == Some(arn(user).as_str()) {
            policy.upsert(statement.clone());
        }
    }
    policy
}

/// Returns the actions that an access allows: Rook's actions and the abort of uploads, or a subset of them for
/// restricted access.
fn actions(access: Access) -> impl Iterator<Item = &'static str> {
    let (reads, writes) = (access.can_read(), access.can_write());
    let part = move |wanted: bool, actions: &'static [&'static str]| actions.iter().copied().filter(move |_| wanted);
    part(reads, READ)
        .chain(part(writes, WRITE))
        .chain(part(reads && writes, MANAGE))
        .chain(UPLOAD_OF[usize::from(writes)].iter().copied())
}

const READ: &[&str] = &[
    "GetBucketAcl",
    "GetBucketCORS",
    "GetBucketLocation",
    "GetBucketLogging",
    "GetBucketNotification",
    "GetBucketTagging",
    "GetBucketVersioning",
    "GetBucketWebsite",
    "GetObject",
    "GetObjectAcl",
    "GetObjectTorrent",
    "GetObjectVersion",
    "GetObjectVersionAcl",
    "GetObjectVersionTorrent",
    "ListAllMyBuckets",
    "ListBucket",
    "ListBucketVersions",
];

const WRITE: &[&str] = &["PutObject", "PutObjectAcl", "PutObjectVersionAcl"];

/// The actions for multipart uploads, without and with write access.
const UPLOAD_OF: [&[&str]; 2] =
    [&[], &["AbortMultipartUpload", "ListBucketMultipartUploads", "ListMultipartUploadParts"]];

const MANAGE: &[&str] = &[
    "DeleteObject",
    "DeleteObjectVersion",
    "PutBucketTagging",
    "PutBucketVersioning",
    "PutBucketWebsite",
    "PutLifecycleConfiguration",
    "PutReplicationConfiguration",
    "RestoreObject",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_match_the_access_mode() {
        let count = |access| actions(access).count();
        // Rook's 30 actions and AbortMultipartUpload.
        assert_eq!(count(Access::ReadWrite), 31);
        assert!(actions(Access::ReadOnly).all(|action| action.starts_with("Get") || action.starts_with("List")));
        assert!(actions(Access::WriteOnly).all(|action| !action.starts_with("Get") && action != "ListBucket"));
        assert!(actions(Access::WriteOnly).any(|action| action == "PutObject"));
    }

    #[test]
    fn new_policy_keeps_the_grants_of_other_claims() {
        let granted = with_grant(&Policy::default(), "obc-a-b-c", "photos", Access::ReadOnly);
        let theirs = allow("by hand", "arn:aws:iam:::user/x", &["s3:*"], &["*"]);
        let granted = with_owner_grant(&granted, "alice", "photos");
        let mut live = granted.clone();
        live.upsert(theirs);
        assert!(with_grants_of(&Policy::default(), &live).is_equivalent_to(&granted));
        assert_eq!(without_grant(&granted, "obc-a-b-c").statements().count(), 1);
    }
}
