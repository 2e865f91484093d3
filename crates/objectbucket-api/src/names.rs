//! Names that claims, provisioners and pods agree on. They match Go's lib-bucket-provisioner, so that objects of both
//! can coexist.

use sha2::{Digest, Sha256};

/// The finalizer of claims and buckets; older provisioners also leave it on Secrets and ConfigMaps.
pub const FINALIZER: &str = "objectbucket.io/finalizer";

/// The label with the provisioner on claims, buckets, Secrets and ConfigMaps. Its value is [`provisioner_label`].
pub const PROVISIONER_LABEL: &str = "bucket-provisioner";

/// The StorageClass parameter that names an existing bucket, to which its claims receive access.
pub const CLASS_BUCKET_NAME: &str = "bucketName";

/// Key of the ConfigMap: the bucket's name in the store.
pub const BUCKET_NAME: &str = "BUCKET_NAME";
/// Key of the ConfigMap: the host that serves the bucket.
pub const BUCKET_HOST: &str = "BUCKET_HOST";
/// Key of the ConfigMap: the port that serves the bucket, a decimal number.
pub const BUCKET_PORT: &str = "BUCKET_PORT";
/// Key of the ConfigMap: the bucket's region, or "".
pub const BUCKET_REGION: &str = "BUCKET_REGION";
/// Key of the ConfigMap: the part of the region, or "".
pub const BUCKET_SUBREGION: &str = "BUCKET_SUBREGION";

/// Key of the Secret: the access key's id.
pub const AWS_ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
/// Key of the Secret: the secret access key.
pub const AWS_SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";

/// Returns the value of the label [`PROVISIONER_LABEL`].
///
/// It is the provisioner's name if that is a valid label value, otherwise its first 63 bytes with `/` replaced by `-`,
/// as in Go's lib-bucket-provisioner: `aws-s3.io/bucket` becomes `aws-s3.io-bucket`. If that is not a valid label value
/// either, it is a hash.
pub fn provisioner_label(provisioner: &str) -> String {
    if is_label_value(provisioner) {
        return provisioner.to_owned();
    }
    let end = provisioner.len().min(LABEL_MAX);
    let label = provisioner.get(..end).map(|cut| cut.replace('/', "-"));
    label.filter(|label| is_label_value(label)).unwrap_or_else(|| {
        let hash = Sha256::digest(provisioner.as_bytes());
        let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("provisioner-{hex}")
    })
}

/// Returns the name of a claim's ObjectBucket, `obc-<namespace>-<name>`.
///
/// Two claims can have the same name (`a-b/c` and `a/b-c`), so check the `claimRef` of a bucket found by it. The name
/// can exceed the API server's limit of 253 bytes.
pub fn object_bucket_name(namespace: &str, name: &str) -> String {
    format!("obc-{namespace}-{name}")
}

/// Returns the bucket name generated for a claim with `generateBucketName`: its prefix, `-`, and the claim's uid.
///
/// It has at most 63 bytes, so a prefix of 27 bytes or more is cut to 26. The same claim always receives the same name.
pub fn generated_bucket_name(prefix: &str, claim_uid: &str) -> String {
    let end = if prefix.len() > PREFIX_MAX { prefix.floor_char_boundary(PREFIX_MAX) } else { prefix.len() };
    format!("{}-{claim_uid}", &prefix[..end])
}

const LABEL_MAX: usize = 63;
/// A bucket's name has at most 63 bytes; a uid has 36, and a hyphen 1.
const PREFIX_MAX: usize = 26;

fn is_label_value(text: &str) -> bool {
    let ends = |end: Option<&u8>| end.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_MAX
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "5ac4d1f0-8f3e-4a55-b8a1-5e2c0f1d9b77";

    // Rules: Y2.
    #[test]
    fn labels_match_the_go_library() {
        assert_eq!(provisioner_label("ceph"), "ceph");
        assert_eq!(provisioner_label("aws-s3.io/bucket"), "aws-s3.io-bucket");
        assert_eq!(provisioner_label("rook-ceph.ceph.rook.io/bucket"), "rook-ceph.ceph.rook.io-bucket");
        let long = format!("{}/bucket", "a".repeat(62));
        assert_eq!(provisioner_label(&format!("a{long}")), "a".repeat(63));
    }

    #[test]
    fn hashes_names_whose_prefix_is_not_a_label() {
        // Go's lib-bucket-provisioner ends the label with a hyphen here, and the API server then refuses every write.
        let label = provisioner_label(&format!("{}/bucket", "a".repeat(62)));
        assert_eq!(label, "provisioner-a6dcaf3a6db30d6b11ddf94065568ac4");
        assert_ne!(provisioner_label(&format!("{}/other", "a".repeat(62))), label);
    }

    #[test]
    fn different_claims_can_share_an_object_bucket_name() {
        assert_eq!(object_bucket_name("gallery", "photos"), "obc-gallery-photos");
        assert_eq!(object_bucket_name("a-b", "c"), object_bucket_name("a", "b-c"));
    }

    // Rules: Y5.
    #[test]
    fn truncates_long_prefixes() {
        assert_eq!(generated_bucket_name("photos", UID), format!("photos-{UID}"));
        assert_eq!(generated_bucket_name(&"a".repeat(26), UID), format!("{}-{UID}", "a".repeat(26)));
        assert_eq!(generated_bucket_name(&"a".repeat(27), UID), format!("{}-{UID}", "a".repeat(26)));
        // The 26th byte is in the middle of a letter.
        assert_eq!(generated_bucket_name(&format!("{}éé", "a".repeat(25)), UID), format!("{}-{UID}", "a".repeat(25)));
    }

    proptest! {
        #[test]
        fn names_are_valid_for_any_input(text in ".{0,80}", slashes in "[a-z0-9./-]{0,80}") {
            for text in [text, slashes] {
                prop_assert!(is_label_value(&provisioner_label(&text)));
                prop_assert!(generated_bucket_name(&text, UID).len() <= 63);
            }
        }
    }
}
