//! Regions, partitions, and the bucket ARNs in them.

use std::str::FromStr;

/// An AWS region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region(String);

impl Region {
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Returns the `LocationConstraint` of a new bucket; `us-east-1` requires none.
    pub(crate) fn location_constraint(&self) -> Option<&str> {
        (self.0 != "us-east-1").then_some(self.0.as_str())
    }

    /// Returns the bucket's ARN, which identifies it in policies.
    pub(crate) fn bucket_arn(&self, bucket: &str) -> String {
        format!("arn:{}:s3:::{bucket}", self.partition())
    }

    /// Returns the region for which IAM requests are signed if the endpoint is not Amazon's default. IAM runs in one
    /// region of each partition.
    pub(crate) fn iam_region(&self) -> &'static str {
        match self.partition() {
            "aws-cn" => "cn-north-1",
            "aws-us-gov" => "us-gov-west-1",
            _ => "us-east-1",
        }
    }

    /// Returns the partition, which is a group of regions that share accounts.
    /// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html>
    fn partition(&self) -> &'static str {
        const PARTITIONS: [(&str, &str); 7] = [
            ("cn-", "aws-cn"),
            ("us-gov-", "aws-us-gov"),
            ("us-iso-", "aws-iso"),
            ("us-isob-", "aws-iso-b"),
            ("eu-isoe-", "aws-iso-e"),
            ("us-isof-", "aws-iso-f"),
            ("eusc-", "aws-eusc"),
        ];
        PARTITIONS.iter().find(|(start, _)| self.0.starts_with(start)).map_or("aws", |(_, partition)| partition)
    }
}

impl FromStr for Region {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let letters = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if letters && text.contains('-') {
            Ok(Self(text.to_owned()))
        } else {
            Err("expected a region, such as eu-central-1")
        }
    }
}

kube_provisioner::deserialize_from_str!(Region);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_regions_and_derives_partitions() {
        let region = |name: &str| name.parse::<Region>().unwrap();
        assert_eq!(region("us-east-1").location_constraint(), None);
        assert_eq!(region("eu-central-1").location_constraint(), Some("eu-central-1"));
        assert_eq!(region("eu-central-1").bucket_arn("b"), "arn:aws:s3:::b");
        assert_eq!(
            [region("eu-central-1"), region("cn-northwest-1")].map(|region| region.iam_region()),
            ["us-east-1", "cn-north-1"]
        );
        assert_eq!(region("us-isob-east-1").bucket_arn("b"), "arn:aws-iso-b:s3:::b");
        assert_eq!(region("us-gov-east-1").bucket_arn("b"), "arn:aws-us-gov:s3:::b");
        assert_eq!(region("cn-north-1").bucket_arn("b"), "arn:aws-cn:s3:::b");
        for text in ["", "europe", "eu_central_1", "eu-central-1/", "EU-CENTRAL-1"] {
            assert!(text.parse::<Region>().is_err(), "{text}");
        }
    }
}
