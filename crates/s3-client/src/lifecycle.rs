//! Lifecycle of a bucket, in the JSON format of the AWS CLI.

use aws_sdk_s3::types::{
    AbortIncompleteMultipartUpload, BucketLifecycleConfiguration, ExpirationStatus, LifecycleExpiration, LifecycleRule,
    LifecycleRuleAndOperator, LifecycleRuleFilter, NoncurrentVersionExpiration, NoncurrentVersionTransition, Tag,
    Transition, TransitionStorageClass,
};
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

/// The rules of a bucket's lifecycle. It is deserialized from a string, like parameters.
///
/// ```
/// use s3_client::lifecycle::Lifecycle;
///
/// let text = r#"{"Rules":[{"ID":"old","Status":"Enabled","Filter":{"Prefix":""},"Expiration":{"Days":30}}]}"#;
/// assert!(!Lifecycle::parse(text)?.is_empty());
/// # Ok::<(), s3_client::lifecycle::LifecycleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Lifecycle {
    pub(crate) rules: Vec<LifecycleRule>,
}

/// The error for a text that is not a valid lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a lifecycle: {0}")]
pub struct LifecycleError(String);

impl TryFrom<String> for Lifecycle {
    type Error = LifecycleError;

    fn try_from(text: String) -> Result<Self, LifecycleError> {
        Self::parse(&text)
    }
}

impl Lifecycle {
    /// Parses the JSON format of the AWS CLI: `{"Rules":[...]}`.
    ///
    /// # Errors
    /// Fails if the text is not JSON, or contains names or values that are not part of a lifecycle.
    pub fn parse(text: &str) -> Result<Self, LifecycleError> {
        let wrong = |error: serde_json::Error| LifecycleError(error.to_string());
        let document: Value =
            serde_json::from_str(text).map_err(|error| LifecycleError(format!("it is not valid JSON: {error}")))?;
        let Document { rules } = serde_json::from_value(document).map_err(wrong)?;
        Ok(Self { rules: rules.into_iter().map(Rule::into_sdk).collect::<Result<_, _>>()? })
    }

    /// Returns true if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns true if both are equivalent: the order does not matter, and a rule without an ID matches any ID, because
    /// services generate one.
    pub fn is_equivalent_to(&self, stored: &Self) -> bool {
        let mut left: Vec<LifecycleRule> = stored.rules.iter().map(normal).collect();
        let found = |rule: &LifecycleRule| {
            let rule = normal(rule);
            let same = |stored: &LifecycleRule| {
                let mut stored = stored.clone();
                stored.id = stored.id.filter(|_| rule.id.is_some());
                rule == stored
            };
            left.iter().position(same).map(|place| left.remove(place)).is_some()
        };
        self.rules.len() == stored.rules.len() && self.rules.iter().all(found)
    }

    pub(crate) fn configuration(&self) -> Result<BucketLifecycleConfiguration, Error> {
        let configuration = BucketLifecycleConfiguration::builder().set_rules(Some(self.rules.clone())).build();
        configuration.map_err(|error| Error::Request(error.to_string()))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Document {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Rule {
    #[serde(rename = "ID")]
    id: Option<String>,
    status: String,
    prefix: Option<String>,
    filter: Option<Filter>,
    expiration: Option<Expiration>,
    #[serde(default)]
    transitions: Vec<TransitionRule>,
    #[serde(default)]
    noncurrent_version_transitions: Vec<NoncurrentTransitionRule>,
    noncurrent_version_expiration: Option<NoncurrentExpiration>,
    abort_incomplete_multipart_upload: Option<Abort>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Filter {
    prefix: Option<String>,
    tag: Option<KeyValue>,
    object_size_greater_than: Option<i64>,
    object_size_less_than: Option<i64>,
    and: Option<And>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct And {
    prefix: Option<String>,
    #[serde(default)]
    tags: Vec<KeyValue>,
    object_size_greater_than: Option<i64>,
    object_size_less_than: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct KeyValue {
    key: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Expiration {
    days: Option<i32>,
    date: Option<String>,
    expired_object_delete_marker: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct TransitionRule {
    days: Option<i32>,
    date: Option<String>,
    storage_class: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct NoncurrentTransitionRule {
    noncurrent_days: Option<i32>,
    newer_noncurrent_versions: Option<i32>,
    storage_class: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct NoncurrentExpiration {
    noncurrent_days: Option<i32>,
    newer_noncurrent_versions: Option<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Abort {
    days_after_initiation: Option<i32>,
}

impl Rule {
    fn into_sdk(self) -> Result<LifecycleRule, LifecycleError> {
        let expiration = self.expiration.map(Expiration::into_sdk).transpose()?;
        let transitions = self.transitions.into_iter().map(TransitionRule::into_sdk).collect::<Result<Vec<_>, _>>()?;
        let noncurrent = self.noncurrent_version_transitions.into_iter().map(NoncurrentTransitionRule::into_sdk);
        let noncurrent: Vec<_> = noncurrent.collect();
        #[expect(deprecated, reason = "rules from before filters still use this field")]
        let rule = LifecycleRule::builder()
            .set_id(self.id)
            .status(ExpirationStatus::from(self.status.as_str()))
            .set_prefix(self.prefix)
            .set_filter(self.filter.map(Filter::into_sdk).transpose()?)
            .set_expiration(expiration)
            .set_transitions((!transitions.is_empty()).then_some(transitions))
            .set_noncurrent_version_transitions((!noncurrent.is_empty()).then_some(noncurrent))
            .set_noncurrent_version_expiration(self.noncurrent_version_expiration.map(NoncurrentExpiration::into_sdk))
            .set_abort_incomplete_multipart_upload(self.abort_incomplete_multipart_upload.map(Abort::into_sdk))
            .build();
        rule.map_err(|error| LifecycleError(error.to_string()))
    }
}

impl Filter {
    fn into_sdk(self) -> Result<LifecycleRuleFilter, LifecycleError> {
        Ok(LifecycleRuleFilter::builder()
            .set_prefix(self.prefix)
            .set_tag(self.tag.map(KeyValue::into_sdk).transpose()?)
            .set_object_size_greater_than(self.object_size_greater_than)
            .set_object_size_less_than(self.object_size_less_than)
            .set_and(self.and.map(And::into_sdk).transpose()?)
            .build())
    }
}

impl And {
    fn into_sdk(self) -> Result<LifecycleRuleAndOperator, LifecycleError> {
        let tags = self.tags.into_iter().map(KeyValue::into_sdk).collect::<Result<Vec<_>, _>>()?;
        Ok(LifecycleRuleAndOperator::builder()
            .set_prefix(self.prefix)
            .set_tags((!tags.is_empty()).then_some(tags))
            .set_object_size_greater_than(self.object_size_greater_than)
            .set_object_size_less_than(self.object_size_less_than)
            .build())
    }
}

impl KeyValue {
    fn into_sdk(self) -> Result<Tag, LifecycleError> {
        let tag = Tag::builder().key(self.key).value(self.value).build();
        tag.map_err(|error| LifecycleError(error.to_string()))
    }
}

impl Expiration {
    fn into_sdk(self) -> Result<LifecycleExpiration, LifecycleError> {
        Ok(LifecycleExpiration::builder()
            .set_days(self.days)
            .set_date(self.date.map(date).transpose()?)
            .set_expired_object_delete_marker(self.expired_object_delete_marker)
            .build())
    }
}

impl TransitionRule {
    fn into_sdk(self) -> Result<Transition, LifecycleError> {
        Ok(Transition::builder()
            .set_days(self.days)
            .set_date(self.date.map(date).transpose()?)
            .set_storage_class(self.storage_class.as_deref().map(TransitionStorageClass::from))
            .build())
    }
}

impl NoncurrentTransitionRule {
    fn into_sdk(self) -> NoncurrentVersionTransition {
        NoncurrentVersionTransition::builder()
            .set_noncurrent_days(self.noncurrent_days)
            .set_newer_noncurrent_versions(self.newer_noncurrent_versions)
            .set_storage_class(self.storage_class.as_deref().map(TransitionStorageClass::from))
            .build()
    }
}

impl NoncurrentExpiration {
    fn into_sdk(self) -> NoncurrentVersionExpiration {
        NoncurrentVersionExpiration::builder()
            .set_noncurrent_days(self.noncurrent_days)
            .set_newer_noncurrent_versions(self.newer_noncurrent_versions)
            .build()
    }
}

impl Abort {
    fn into_sdk(self) -> AbortIncompleteMultipartUpload {
        AbortIncompleteMultipartUpload::builder().set_days_after_initiation(self.days_after_initiation).build()
    }
}

fn date(text: String) -> Result<DateTime, LifecycleError> {
    // `2030-01-01` means midnight, as in the AWS CLI.
    let full = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text };
    let date = DateTime::from_str(&full, Format::DateTimeWithOffset);
    date.map_err(|_| LifecycleError(format!("{full:?} is not a date such as 2030-01-01")))
}

/// Normalizes a rule by sorting its lists and flattening its filter. The prefix may be next to the filter, in the
/// filter or in its `And`, and services move it. An empty prefix has no effect.
fn normal(rule: &LifecycleRule) -> LifecycleRule {
    let mut rule = rule.clone();
    let filter = rule.filter.take();
    let (and, filter) = (filter.as_ref().and_then(|filter| filter.and.clone()), filter);
    let of_filter = |read: fn(&LifecycleRuleFilter) -> Option<i64>| filter.as_ref().and_then(read);
    let of_and = |read: fn(&LifecycleRuleAndOperator) -> Option<i64>| and.as_ref().and_then(read);
    #[expect(deprecated, reason = "rules from before filters still use this field")]
    let own_prefix = rule.prefix.take();
    let prefix = own_prefix.or_else(|| filter.as_ref()?.prefix.clone()).or_else(|| and.as_ref()?.prefix.clone());
    let mut tags = and.as_ref().and_then(|and| and.tags.clone()).unwrap_or_default();
    tags.extend(filter.as_ref().and_then(|filter| filter.tag.clone()));
    tags.sort_by(|left, right| (&left.key, &left.value).cmp(&(&right.key, &right.value)));
    let flat = LifecycleRuleAndOperator::builder()
        .set_prefix(prefix.filter(|prefix| !prefix.is_empty()))
        .set_tags(Some(tags))
        .set_object_size_greater_than(
            of_filter(|filter| filter.object_size_greater_than).or(of_and(|and| and.object_size_greater_than)),
        )
        .set_object_size_less_than(
            of_filter(|filter| filter.object_size_less_than).or(of_and(|and| and.object_size_less_than)),
        )
        .build();
    rule.filter = Some(LifecycleRuleFilter::builder().and(flat).build());
    if let Some(transitions) = &mut rule.transitions {
        transitions.sort_by_key(|transition| format!("{transition:?}"));
    }
    if let Some(transitions) = &mut rule.noncurrent_version_transitions {
        transitions.sort_by_key(|transition| format!("{transition:?}"));
    }
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_equivalent_lifecycles() {
        let one = |rules: &str| Lifecycle::parse(&format!("{{\"Rules\":{rules}}}")).unwrap();
        let wanted =
            one(r#"[{"Status":"Enabled","Prefix":"","Expiration":{"Days":1}},{"ID":"b","Status":"Disabled"}]"#);
        let stored = one(r#"[{"ID":"b","Status":"Disabled","Filter":{"Prefix":""}},
            {"ID":"x","Status":"Enabled","Filter":{"Prefix":""},"Expiration":{"Days":1}}]"#);
        assert!(wanted.is_equivalent_to(&stored));
        assert!(!stored.is_equivalent_to(&wanted));
        // The Ceph gateway's response for a rule with `And`.
        let with = |filter: &str| one(&format!(r#"[{{"ID":"a","Status":"Enabled","Filter":{filter}}}]"#));
        let tagged = with(r#"{"And":{"Prefix":"c/","Tags":[{"Key":"k","Value":"v"}]}}"#);
        assert!(tagged.is_equivalent_to(&with(r#"{"Prefix":"c/","Tag":{"Key":"k","Value":"v"}}"#)));
        assert!(!tagged.is_equivalent_to(&with(r#"{"Prefix":"d/","Tag":{"Key":"k","Value":"v"}}"#)));
        assert!(!wanted.is_equivalent_to(&one(r#"[{"ID":"b","Status":"Disabled"}]"#)));
    }

    #[test]
    fn rejects_invalid_lifecycles() {
        for (text, part) in [
            ("{", "it is not valid JSON"),
            ("{}", "missing field `Rules`"),
            (r#"{"Rules":[1]}"#, "expected struct Rule"),
            (r#"{"Rules":[{"Statsu":"Enabled"}]}"#, "unknown field `Statsu`, expected one of `ID`, `Status`"),
            (r#"{"Rules":[{"Status":"Enabled","Expiration":{"Days":"7"}}]}"#, "expected i32"),
            (r#"{"Rules":[{"Status":"Enabled","Expiration":{"Date":"soon"}}]}"#, "\"soon\" is not a date"),
        ] {
            let error = Lifecycle::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
