//! Resources that are asked, not kept: access reviews.

use serde_json::{Value, json};

use super::Answer;
use crate::authorize::{Attributes, Authorizer};
use crate::object::text_at;
use crate::request::{Request, Verb};
use crate::status::Status;
use crate::validate;

pub(super) fn create(authorizer: Option<&dyn Authorizer>, request: &mut Request) -> Result<Answer, Status> {
    if request.verb != Verb::Create || request.subresource.is_some() {
        return Err(Status::method_not_allowed());
    }
    let mut review = request.take_object()?;
    let causes = validate::review(&request.resource, &review);
    if !causes.is_empty() {
        // The server names no kind here.
        return Err(Status::invalid_kind(&request.resource.group, "", "", causes));
    }
    let user = match text_at(&review, &["spec", "user"]) {
        "" => request.user.to_string(),
        user => user.to_owned(),
    };
    let status = match request.resource.plural.as_str() {
        "selfsubjectaccessreviews" => access(authorizer, &request.user, &review)?,
        "subjectaccessreviews" | "localsubjectaccessreviews" => access(authorizer, &user, &review)?,
        "selfsubjectrulesreviews" => rules(authorizer, &request.user, text_at(&review, &["spec", "namespace"])),
        "selfsubjectreviews" => json!({"userInfo": {"username": &*request.user, "groups": ["system:authenticated"]}}),
        other => return Err(Status::not_implemented(other)),
    };
    review["kind"] = request.resource.kind.as_str().into();
    review["apiVersion"] = request.resource.api_version().into();
    review["status"] = status;
    Ok(Answer::value(201, &review))
}

fn access(authorizer: Option<&dyn Authorizer>, user: &str, review: &Value) -> Result<Value, Status> {
    let resource = &review["spec"]["resourceAttributes"];
    let Some(authorizer) = authorizer else { return Ok(json!({"allowed": true})) };
    if !resource.is_object() {
        return Err(Status::not_implemented("access reviews of non-resource paths"));
    }
    let text = |field: &str| resource.get(field).and_then(Value::as_str).unwrap_or_default();
    let attributes = Attributes {
        user,
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
    };
    Ok(json!({"allowed": authorizer.allows(&attributes)}))
}

fn rules(authorizer: Option<&dyn Authorizer>, user: &str, namespace: &str) -> Value {
    match authorizer {
        Some(authorizer) => authorizer.rules(user, namespace),
        None => json!({
            "incomplete": false,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }),
    }
}
