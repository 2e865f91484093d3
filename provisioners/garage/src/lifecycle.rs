//! The lifecycle rules of a bucket, in the JSON format of AWS's tools. Garage's admin API supports a part of the rules
//! and silently ignores the others, so they are rejected here.

use serde::{Deserialize, Serialize};

/// `{"Rules":[...]}`, deserialized from a text like parameters.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Lifecycle {
    pub(crate) rules: Vec<Rule>,
}

/// A rule, in the format of both AWS's tools and Garage's admin API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub(crate) struct Rule {
    #[serde(rename = "ID", default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<Filter>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expiration: Option<Expiration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    abort_incomplete_multipart_upload: Option<Abort>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Filter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    and: Option<Box<Filter>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object_size_greater_than: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object_size_less_than: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Expiration {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    days: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    date: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Abort {
    days_after_initiation: i64,
}

impl TryFrom<String> for Lifecycle {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "PascalCase")]
        struct Document {
            rules: Vec<Rule>,
        }
        let document: Document =
            serde_json::from_str(&text).map_err(|error| format!("not a lifecycle that Garage supports: {error}"))?;
        Ok(Self { rules: document.rules })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_rules_that_garage_supports() {
        let read = |text: &str| Lifecycle::try_from(text.to_owned());
        let rule = r#"{"ID":"old","Status":"Enabled","Filter":{"Prefix":"tmp/"},"Expiration":{"Days":30}}"#;
        let lifecycle = read(&format!(r#"{{"Rules":[{rule}]}}"#)).unwrap();
        assert_eq!(serde_json::to_string(&lifecycle.rules).unwrap(), format!("[{rule}]"));
        assert_eq!(read(r#"{"Rules":[]}"#), Ok(Lifecycle::default()));
        for lacking in [
            r#"{"Rules":[{"Status":"Enabled","Transitions":[{"Days":3,"StorageClass":"COLD"}]}]}"#,
            r#"{"Rules":[{"Status":"Enabled","NoncurrentVersionExpiration":{"NoncurrentDays":3}}]}"#,
            r#"{"Rules":[{"Status":"Enabled","Filter":{"Tag":{"Key":"a","Value":"b"}}}]}"#,
            "{}",
            "rules",
        ] {
            assert!(read(lacking).unwrap_err().contains("not a lifecycle that Garage supports"), "{lacking}");
        }
    }
}
