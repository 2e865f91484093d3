//! What the user of a claim may do: its policy.

use kube_provisioner::bucket::Access;
use serde_json::{Value, json};

use crate::region::Region;

/// The name of the one policy that a user has.
pub(crate) const NAME: &str = "bucket";

const SEES: [&str; 3] = ["s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketVersions"];
const READS: [&str; 4] = ["s3:GetObject", "s3:GetObjectAttributes", "s3:GetObjectTagging", "s3:GetObjectVersion"];
const WRITES: [&str; 7] = [
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:DeleteObjectTagging",
    "s3:DeleteObjectVersion",
    "s3:ListMultipartUploadParts",
    "s3:PutObject",
    "s3:PutObjectTagging",
];
const KMS_READS: &str = "kms:Decrypt";
const KMS_WRITES: &str = "kms:GenerateDataKey";

/// The policy as JSON. It has no rights on policies, ACLs or settings of the bucket.
pub(crate) fn document(region: &Region, bucket: &str, access: Access, kms_key: Option<&str>) -> String {
    let arn = region.bucket_arn(bucket);
    let mut of_bucket = vec!["s3:GetBucketLocation"];
    let mut of_objects = Vec::new();
    let mut of_key = Vec::new();
    if access.reads() {
        of_bucket = SEES.to_vec();
        of_objects.extend(READS);
        of_key.push(KMS_READS);
    }
    if access.writes() {
        of_bucket.push("s3:ListBucketMultipartUploads");
        of_objects.extend(WRITES);
        // The parts of an upload are read to be put together.
        of_key.extend(if access.reads() { vec![KMS_WRITES] } else { vec![KMS_READS, KMS_WRITES] });
    }
    let mut statements = vec![allow("Bucket", &of_bucket, &arn), allow("Objects", &of_objects, &format!("{arn}/*"))];
    // Only its ARN names a key in a policy.
    statements.extend(kms_key.filter(|key| key.starts_with("arn:")).map(|key| allow("Key", &of_key, key)));
    json!({"Version": "2012-10-17", "Statement": statements}).to_string()
}

fn allow(sid: &str, actions: &[&str], resource: &str) -> Value {
    json!({"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_access_has_its_rights_and_no_others() {
        let region = Region::new("eu-central-1").unwrap();
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
            // AWS counts no blanks.
            assert!(policy.len() < 2048, "{}", policy.len());
        }
    }

    #[test]
    fn a_key_of_kms_without_its_arn_is_nothing_a_policy_can_name() {
        let region = Region::new("eu-central-1").unwrap();
        assert!(!document(&region, "photos", Access::ReadWrite, Some("alias/k")).contains("kms"));
    }
}
