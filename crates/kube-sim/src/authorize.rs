//! Authorization. Without an [`Authorizer`], every request is allowed.

mod rbac;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use rbac::{POLICY_RESOURCES, Rbac, first_policy};

use crate::request::{Request, Subresource, Verb};
use crate::resource::{Special, qualified};
use crate::selector::FieldSelector;
use crate::status::{Details, Status};

/// Decides whether requests are allowed, and answers access reviews.
pub trait Authorizer: Send + Sync {
    /// Returns whether a request is allowed.
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;

    /// Returns the `status` of a SelfSubjectRulesReview.
    fn rules(&self, user: &str, groups: &[String], namespace: &str) -> Value;
}

/// The decision of an [`Authorizer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// True if the request is allowed.
    pub allowed: bool,
    /// Human-readable reason; often empty. The message of a refusal ends with it.
    pub reason: String,
}

/// `authorizer.Attributes`: the request to decide on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// The user.
    pub user: &'a str,
    /// The groups the user is in.
    pub groups: &'a [String],
    /// The verb, e.g. `list`.
    pub verb: &'a str,
    /// API group; empty for core.
    pub group: &'a str,
    /// Plural name; empty for paths that lead to no resource.
    pub resource: &'a str,
    /// `status` and the like, or empty.
    pub subresource: &'a str,
    /// Namespace, empty for all or none.
    pub namespace: &'a str,
    /// Name, empty for all.
    pub name: &'a str,
    /// A path that leads to no resource, e.g. `/healthz`; empty for resources.
    pub path: &'a str,
}

impl<'a> Attributes<'a> {
    /// Derives the attributes of a request as apiserver's `endpoints/request/requestinfo.go` does. `selector` is the
    /// parsed field selector.
    pub(crate) fn of(request: &'a Request, selector: Option<&'a FieldSelector>) -> Self {
        let spans =
            matches!(request.verb, Verb::List | Verb::Watch | Verb::DeleteCollection) && request.name.is_empty();
        let name = match selector.and_then(FieldSelector::name) {
            Some(name) if spans => name,
            _ => &request.name,
        };
        // The namespace of a namespace is itself.
        let namespace = if request.resource.special == Special::Namespace { &request.name } else { &request.namespace };
        Self {
            user: &request.user,
            groups: &request.groups,
            verb: request.verb.as_str(),
            group: &request.resource.group,
            resource: &request.resource.plural,
            subresource: request.subresource.map_or("", Subresource::as_str),
            namespace,
            name,
            path: "",
        }
    }

    /// Returns a refusal unless the authorizer allows the request.
    pub(crate) fn check(&self, authorizer: &dyn Authorizer) -> Result<(), Status> {
        let decision = authorizer.authorize(self);
        if decision.allowed { Ok(()) } else { Err(self.forbidden(&decision.reason)) }
    }

    /// 403, with the text of apiserver's `responsewriters/errors.go`.
    fn forbidden(&self, reason: &str) -> Status {
        let Self { user, verb, group, resource, subresource, namespace, name, path, .. } = self;
        let subject = match (*resource, *name) {
            ("", _) => "forbidden".to_owned(),
            (_, "") => format!("{} is forbidden", qualified(resource, group)),
            (_, name) => format!("{} {name:?} is forbidden", qualified(resource, group)),
        };
        let what = match *subresource {
            "" => (*resource).to_owned(),
            part => format!("{resource}/{part}"),
        };
        let scope = match *namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let mut message = match *path {
            "" => format!("{subject}: User {user:?} cannot {verb} resource {what:?} in API group {group:?} {scope}"),
            path => format!("{subject}: User {user:?} cannot {verb} path {path:?}"),
        };
        if !reason.is_empty() {
            message.push_str(": ");
            message.push_str(reason);
        }
        let details = Details {
            name: (*name).to_owned(),
            group: (*group).to_owned(),
            kind: (*resource).to_owned(),
            ..Details::default()
        };
        Status { details: Some(Box::new(details)), ..Status::new(403, "Forbidden", message) }
    }
}

/// Returns the groups that the server derives from a user's name.
pub(crate) fn groups_of(user: &str) -> Arc<[String]> {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, _)) => Arc::new([
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ]),
        None if user == "system:anonymous" => Arc::new(["system:unauthenticated".to_owned()]),
        None => Arc::new(["system:authenticated".to_owned()]),
    }
}
