//! Access reviews: `pkg/apis/authorization/validation`.

use serde_json::{Value, json};

use super::go::GoValue;
use super::{invalid_as_shown, items};
use crate::object::text_at;
use crate::resource::Resource;
use crate::status::Cause;

/// Validates a review.
pub(crate) fn review(resource: &Resource, review: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !resource.plural.ends_with("accessreviews") {
        return causes;
    }
    let spec = &review["spec"];
    let (of_resource, of_path) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    if of_resource.is_some() == of_path.is_some() {
        let shown = of_path.map_or(GoValue::Plain(Value::Null), |attributes| {
            let field = |name: &str, key: &str| (name.to_owned(), GoValue::Plain(text_at(attributes, &[key]).into()));
            GoValue::Object(vec![field("Path", "path"), field("Verb", "verb")])
        });
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        causes.push(invalid_as_shown("spec", &shown.to_string(), detail));
    }
    let is_of_others = resource.plural != "selfsubjectaccessreviews";
    if is_of_others && text_at(spec, &["user"]).is_empty() && items(spec, "groups").next().is_none() {
        causes.push(Cause::invalid("spec.user", &json!(""), "at least one of user or group must be specified"));
    }
    if resource.namespaced {
        let asked = text_at(spec, &["resourceAttributes", "namespace"]);
        if of_resource.is_some() && asked != text_at(review, &["metadata", "namespace"]) {
            let field = "spec.resourceAttributes.namespace";
            causes.push(Cause::invalid(field, &json!(asked), "must match metadata.namespace"));
        }
    }
    causes
}
