//! Tags of a bucket, as requested by a claim.

use std::collections::BTreeMap;

use serde::Deserialize;

/// S3 allows 50 tags per bucket, and a provisioner adds some of its own.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/CostAllocTagging.html>
const MOST: usize = 40;
const MAX_KEY: usize = 128;
const MAX_VALUE: usize = 256;

/// Prefixes of keys that are reserved for AWS and the provisioners.
const RESERVED: [&str; 2] = ["aws:", "kube-provisioner/"];

/// Tags of a bucket: `team=shop,cost-center=1`. They are deserialized from a string, like parameters.
///
/// ```
/// use s3_client::tags::Tags;
///
/// let tags = Tags::parse("team=shop, cost-center=1")?;
/// assert_eq!(tags.as_map()["cost-center"], "1");
/// # Ok::<(), s3_client::tags::TagsError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Tags(BTreeMap<String, String>);

/// The error for a text that does not contain valid tags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TagsError(String);

impl TryFrom<String> for Tags {
    type Error = TagsError;

    fn try_from(text: String) -> Result<Self, TagsError> {
        Self::parse(&text)
    }
}

impl Tags {
    /// Parses comma-separated pairs.
    ///
    /// # Errors
    /// Fails if S3 would refuse a tag, or if its key is reserved.
    pub fn parse(text: &str) -> Result<Self, TagsError> {
        let mut tags = BTreeMap::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| TagsError(format!("{pair:?} is not like key=value")))?;
            check(key, 1..=MAX_KEY, "key")?;
            check(value, 0..=MAX_VALUE, "value")?;
            if RESERVED.iter().any(|prefix| key.to_ascii_lowercase().starts_with(prefix)) {
                return Err(TagsError(format!("the tag {key:?} is reserved: choose another key")));
            }
            tags.insert(key.to_owned(), value.to_owned());
        }
        match tags.len() {
            0..=MOST => Ok(Self(tags)),
            count => Err(TagsError(format!("{count} tags are too many: at most {MOST}"))),
        }
    }

    /// Returns the tags by key.
    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

fn check(text: &str, lengths: std::ops::RangeInclusive<usize>, kind: &str) -> Result<(), TagsError> {
    let is_allowed = |letter: char| letter.is_alphanumeric() || " +-=._:/@".contains(letter);
    if lengths.contains(&text.chars().count()) && text.chars().all(is_allowed) {
        Ok(())
    } else {
        Err(TagsError(format!(
            "{text:?} is not a valid tag {kind}: use {} to {} letters, digits, spaces and + - = . _ : / @",
            lengths.start(),
            lengths.end()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_pairs() {
        let tags = Tags::parse("team=shop, cost-center=1,empty=,url=https://a/b=c,").unwrap();
        let pairs: Vec<_> = tags.as_map().iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(pairs, [("cost-center", "1"), ("empty", ""), ("team", "shop"), ("url", "https://a/b=c")]);
        assert_eq!(Tags::parse("").unwrap(), Tags::default());
    }

    #[test]
    fn rejects_invalid_and_reserved_tags() {
        let many: Vec<String> = (0..=MOST).map(|number| format!("k{number}=v")).collect();
        let (many, long) = (many.join(","), format!("{}=v", "k".repeat(MAX_KEY + 1)));
        for (text, part) in [
            ("team", "not like key=value"),
            ("=v", "1 to 128"),
            ("a=<b>", "not a valid tag value"),
            ("aws:x=1", "reserved"),
            ("AWS:x=1", "reserved"),
            ("kube-provisioner/claim-uid=1", "reserved"),
            (many.as_str(), "at most 40"),
            (long.as_str(), "1 to 128"),
        ] {
            let error = Tags::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
