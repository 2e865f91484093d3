//! Regions and partitions: where services are, and how resources are named there.

/// A region of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region(String);

/// The regions that share accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partition {
    Commercial,
    China,
    GovCloud,
}

impl Region {
    /// `None` for a text that is no region.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let letters = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        (letters && text.contains('-')).then(|| Self(text.to_owned()))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// What a new bucket names as its place: nothing in the first region.
    pub(crate) fn location_constraint(&self) -> Option<&str> {
        (self.0 != "us-east-1").then_some(self.0.as_str())
    }

    pub(crate) fn s3(&self) -> String {
        format!("https://s3.{}.{}", self.0, self.suffix())
    }

    pub(crate) fn sts(&self) -> String {
        format!("https://sts.{}.{}", self.0, self.suffix())
    }

    /// IAM's address, and the region that its requests are signed for: IAM is in one place of each partition.
    pub(crate) fn iam(&self) -> (&'static str, &'static str) {
        match self.partition() {
            Partition::Commercial => ("https://iam.amazonaws.com", "us-east-1"),
            Partition::China => ("https://iam.cn-north-1.amazonaws.com.cn", "cn-north-1"),
            Partition::GovCloud => ("https://iam.us-gov.amazonaws.com", "us-gov-west-1"),
        }
    }

    /// How policies name a bucket.
    pub(crate) fn bucket_arn(&self, bucket: &str) -> String {
        let partition = match self.partition() {
            Partition::Commercial => "aws",
            Partition::China => "aws-cn",
            Partition::GovCloud => "aws-us-gov",
        };
        format!("arn:{partition}:s3:::{bucket}")
    }

    fn suffix(&self) -> &'static str {
        match self.partition() {
            Partition::China => "amazonaws.com.cn",
            Partition::Commercial | Partition::GovCloud => "amazonaws.com",
        }
    }

    fn partition(&self) -> Partition {
        match &self.0 {
            name if name.starts_with("cn-") => Partition::China,
            name if name.starts_with("us-gov-") => Partition::GovCloud,
            _ => Partition::Commercial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_and_their_partitions() {
        let region = |name| Region::new(name).unwrap();
        assert_eq!(region("us-east-1").location_constraint(), None);
        assert_eq!(region("eu-central-1").location_constraint(), Some("eu-central-1"));
        assert_eq!(region("eu-central-1").s3(), "https://s3.eu-central-1.amazonaws.com");
        assert_eq!(region("cn-north-1").s3(), "https://s3.cn-north-1.amazonaws.com.cn");
        assert_eq!(region("cn-northwest-1").iam().1, "cn-north-1");
        assert_eq!(region("us-gov-east-1").bucket_arn("b"), "arn:aws-us-gov:s3:::b");
        assert_eq!(region("cn-north-1").bucket_arn("b"), "arn:aws-cn:s3:::b");
        for text in ["", "europe", "eu_central_1", "eu-central-1/", "EU-CENTRAL-1"] {
            assert_eq!(Region::new(text), None, "{text}");
        }
    }
}
