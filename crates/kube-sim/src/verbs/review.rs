//! Access reviews, which are answered but not stored.

use serde_json::{Value, json};

use super::Answer;
use crate::authorize::{Attributes, Authorizer};
use crate::object::{at, text_at};
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
        // The server does not name the kind here.
        return Err(Status::invalid_kind(&request.resource.group, "", "", causes));
    }
    let (user, groups) = (&*request.user, &*request.groups);
    let status = match request.resource.plural.as_str() {
        "selfsubjectaccessreviews" => access(authorizer, user, groups, &review),
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            let groups: Vec<String> = items_at(&review, &["spec", "groups"]);
            access(authorizer, text_at(&review, &["spec", "user"]), &groups, &review)
        }
        "selfsubjectrulesreviews" => rules(authorizer, user, groups, text_at(&review, &["spec", "namespace"])),
        "selfsubjectreviews" => json!({"userInfo": {"username": user, "groups": groups}}),
        other => return Err(Status::not_implemented(other)),
    };
    review["kind"] = request.resource.kind.as_str().into();
    review["apiVersion"] = request.resource.api_version().into();
    review["status"] = status;
    Ok(Answer::value(201, &review))
}

fn access(authorizer: Option<&dyn Authorizer>, user: &str, groups: &[String], review: &Value) -> Value {
    let Some(authorizer) = authorizer else { return json!({"allowed": true}) };
    let spec = &review["spec"];
    let resource = |field| text_at(spec, &["resourceAttributes", field]);
    let other = |field| text_at(spec, &["nonResourceAttributes", field]);
    let attributes = if spec["resourceAttributes"].is_object() {
        Attributes {
            user,
            groups,
            verb: resource("verb"),
            group: resource("group"),
            resource: resource("resource"),
            subresource: resource("subresource"),
            namespace: resource("namespace"),
            name: resource("name"),
            path: "",
        }
    } else {
        Attributes { user, groups, verb: other("verb"), path: other("path"), ..Attributes::default() }
    };
    let decision = authorizer.authorize(&attributes);
    match decision.reason.as_str() {
        "" => json!({"allowed": decision.allowed}),
        reason => json!({"allowed": decision.allowed, "reason": reason}),
    }
}

fn rules(authorizer: Option<&dyn Authorizer>, user: &str, groups: &[String], namespace: &str) -> Value {
    match authorizer {
        Some(authorizer) => authorizer.rules(user, groups, namespace),
        None => json!({
            "incomplete": false,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }),
    }
}

fn items_at(object: &Value, path: &[&str]) -> Vec<String> {
    let items = at(object, path).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
