//! The IAM policies that grant a claim's user access to buckets.

use kube_provisioner::bucket::Access;
use serde_json::{Value, json};

use crate::account::sha256_hex;
use crate::region::Region;

/// The name of a role's policy, and of a user's policy for its own bucket.
pub(crate) const NAME: &str = "bucket";
/// IAM's limit for all inline policies of a user together, in characters without whitespace.
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html>
pub(crate) const MAX_POLICIES_SIZE: usize = 2048;
/// IAM's limit for a policy's name.
const MAX_NAME_LENGTH: usize = 128;

const SEES: [&str; 3] = ["s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketVersions"];
const READS: [&str; 4] = ["s3:GetObject", "s3:GetObjectAttributes", "s3:GetObjectTagging", "s3:GetObjectVersion"];
const WRITES: [&str; 8] = [
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:DeleteObjectTagging",
    "s3:DeleteObjectVersion",
    "s3:ListBucketMultipartUploads",
    "s3:ListMultipartUploadParts",
    "s3:PutObject",
    "s3:PutObjectTagging",
];
const KMS_READS: &str = "kms:Decrypt";
const KMS_WRITES: &str = "kms:GenerateDataKey";

/// Returns the name of the policy for this bucket, for a user that can also have access to other buckets.
pub(crate) fn name(bucket: &str) -> String {
    let name = format!("{NAME}.{bucket}");
    // Names of buckets created before 2018 can be too long.
    if name.len() <= MAX_NAME_LENGTH { name } else { format!("{NAME}.{}", sha256_hex(bucket.as_bytes())) }
}

/// Returns the policy as JSON. It grants no permissions on the bucket's policies, ACLs or settings.
pub(crate) fn document(region: &Region, bucket: &str, access: Access, kms_key: Option<&str>) -> String {
    let arn = region.bucket_arn(bucket);
    let mut actions = vec!["s3:GetBucketLocation"];
    let mut of_key = Vec::new();
    if access.can_read() {
        actions = [&SEES[..], &READS].concat();
        of_key.push(KMS_READS);
    }
    if access.can_write() {
        actions.extend(WRITES);
        // S3 decrypts the parts of a multipart upload to combine them.
        of_key.extend(if access.can_read() { vec![KMS_WRITES] } else { vec![KMS_READS, KMS_WRITES] });
    }
    // Each action applies either to buckets or to objects.
    let mut statements = vec![allow(&actions, json!([arn, format!("{arn}/*")]))];
    // A policy can identify a key only by its ARN.
    statements.extend(kms_key.filter(|key| key.starts_with("arn:")).map(|key| allow(&of_key, json!(key))));
    json!({"Version": "2012-10-17", "Statement": statements}).to_string()
}

fn allow(actions: &[&str], resource: Value) -> Value {
    json!({"Effect": "Allow", "Action": actions, "Resource": resource})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_access_mode_grants_only_its_permissions() {
        let region: Region = "eu-central-1".parse().unwrap();
        let text = |access| document(&region, "photos", access, Some("arn:aws:kms:eu-central-1:1:key/k"));
        let (all, read, write) = (text(Access::ReadWrite), text(Access::ReadOnly), text(Access::WriteOnly));
        for (policy, has, lacks) in [
            (&all, vec!["s3:GetObject\"", "s3:PutObject\"", "s3:DeleteObjectVersion"], vec![]),
            (&read, vec!["s3:GetObject\"", "s3:ListBucket\"", "kms:Decrypt"], vec!["s3:Put", "s3:Delete", "kms:Gen"]),
            (&write, vec!["s3:PutObject\"", "kms:GenerateDataKey"], vec!["s3:GetObject", "s3:ListBucket\""]),
        ] {
            assert!(has.iter().all(|right| policy.contains(right)), "{policy}");
            assert!(!lacks.iter().any(|right| policy.contains(right)), "{policy}");
            assert!(!["Policy\"", "Acl", "\"*\"", "s3:*"].iter().any(|right| policy.contains(right)), "{policy}");
            assert!(policy.contains("arn:aws:s3:::photos/*"));
        }
    }

    #[test]
    fn policies_of_at_least_two_buckets_fit_the_limit() {
        let region: Region = "eu-central-1".parse().unwrap();
        let room = |bucket: &str, key| MAX_POLICIES_SIZE / document(&region, bucket, Access::ReadWrite, key).len();
        let key = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-4000-8000-000000000001";
        assert_eq!([room("photos", None), room("photos", Some(key))], [4, 3]);
        assert_eq!([room(&"b".repeat(63), None), room(&"b".repeat(63), Some(key))], [3, 2]);
    }

    #[test]
    fn policy_names_are_short_and_unique() {
        let names = ["photos", "photos.v2", &"b".repeat(255), &format!("{}c", "b".repeat(254))].map(name);
        assert!(names.iter().all(|name| name.len() <= MAX_NAME_LENGTH && name != NAME), "{names:?}");
        assert_eq!(std::collections::BTreeSet::from(names).len(), 4);
    }

    #[test]
    fn omits_kms_keys_that_are_not_arns() {
        let region: Region = "eu-central-1".parse().unwrap();
        assert!(!document(&region, "photos", Access::ReadWrite, Some("alias/k")).contains("kms"));
    }
}
