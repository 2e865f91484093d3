//! `aws-s3-provisioner` on stores whose S3 and IAM check all permissions: shared parts of `seaweedfs` and `versity`.

pub(crate) mod contract;
mod fixture;

pub(crate) use self::fixture::{Fixture, REGION, Store, documented_policy, is_settled};

pub(crate) const LIFECYCLE: &str =
    r#"{"Rules":[{"ID":"old","Status":"Enabled","Filter":{"Prefix":""},"Expiration":{"Days":30}}]}"#;
pub(crate) const BOUNDARY: &str = "arn:aws:iam::000000000000:policy/kube-provisioner-boundary";
