//! Who may do what. Without an [`Authorizer`] everybody may do everything.

use serde_json::Value;

use crate::request::{Request, Subresource};
use crate::resource::qualified;
use crate::status::{Details, Status};

/// Decides what callers may do; also asked by access reviews.
pub trait Authorizer: Send + Sync {
    /// Whether it is allowed.
    fn allows(&self, attributes: &Attributes<'_>) -> bool;

    /// The `status` of a SelfSubjectRulesReview.
    fn rules(&self, user: &str, namespace: &str) -> Value;
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Who.
    pub user: &'a str,
    /// The verb, e.g. `list`.
    pub verb: &'a str,
    /// API group; empty for core.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// `status` and the like, or empty.
    pub subresource: &'a str,
    /// Namespace, empty for all or none.
    pub namespace: &'a str,
    /// Name, empty for all.
    pub name: &'a str,
}

impl<'a> Attributes<'a> {
    pub(crate) fn of(request: &'a Request) -> Self {
        Self {
            user: &request.user,
            verb: request.verb.as_str(),
            group: &request.resource.group,
            resource: &request.resource.plural,
            subresource: request.subresource.map_or("", Subresource::as_str),
            namespace: &request.namespace,
            name: &request.name,
        }
    }

    /// 403, in the words of apiserver's `responsewriters/errors.go`.
    pub(crate) fn forbidden(&self) -> Status {
        let Self { user, verb, group, resource, subresource, namespace, name } = self;
        let what = match *subresource {
            "" => (*resource).to_owned(),
            part => format!("{resource}/{part}"),
        };
        let place = match *namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let subject = match *name {
            "" => qualified(resource, group),
            name => format!("{} {name:?}", qualified(resource, group)),
        };
        let message = format!(
            "{subject} is forbidden: User {user:?} cannot {verb} resource {what:?} in API group {group:?} {place}"
        );
        let details = Details {
            name: (*name).to_owned(),
            group: (*group).to_owned(),
            kind: (*resource).to_owned(),
            ..Details::default()
        };
        Status { details: Some(Box::new(details)), ..Status::new(403, "Forbidden", message) }
    }
}
