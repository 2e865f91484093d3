//! Authentication by bearer token, and impersonation.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderMap};

use super::App;
use crate::authorize::{Attributes, groups_of};
use crate::status::Status;

/// An authenticated user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) name: String,
    pub(super) groups: Arc<[String]>,
}

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";

impl App {
    /// Returns the user of a request. Refuses invalid tokens, but not missing ones.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Status> {
        let caller = match headers.get(AUTHORIZATION) {
            None => Caller { name: ANONYMOUS.to_owned(), groups: groups_of(ANONYMOUS) },
            Some(value) => {
                let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
                token.and_then(|token| self.holder(token.trim())).ok_or_else(Status::unauthorized)?
            }
        };
        self.impersonated(caller, headers)
    }

    /// `endpoints/filters/impersonation` of apiserver, in the mode with the verb `impersonate`.
    fn impersonated(&self, caller: Caller, headers: &HeaderMap) -> Result<Caller, Status> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let name = text("impersonate-user");
        let groups = headers.get_all("impersonate-group").iter().filter_map(|value| value.to_str().ok());
        let mut groups: Vec<String> = groups.map(str::to_owned).collect();
        let other = |name: &str| name == "impersonate-uid" || name.starts_with("impersonate-extra-");
        if headers.keys().any(|name| other(name.as_str())) {
            return Err(Status::not_implemented("impersonation by uid or with extra fields"));
        }
        if name.is_empty() {
            return if groups.is_empty() {
                Ok(caller)
            } else {
                Err(Status::bad_request(format!(
                    "requested impersonation of groups {groups:?} without impersonating a user name"
                )))
            };
        }
        let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        match account {
            Some((namespace, name)) => self.may_impersonate(&caller, "serviceaccounts", namespace, name)?,
            None => self.may_impersonate(&caller, "users", "", name)?,
        }
        for group in &groups {
            self.may_impersonate(&caller, "groups", "", group)?;
        }
        // A service account without explicit groups is in its default groups. All users except the anonymous one are
        // authenticated.
        if account.is_some() && groups.is_empty() {
            groups = groups_of(name).to_vec();
        }
        if name != ANONYMOUS && !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Ok(Caller { name: name.to_owned(), groups: groups.into() })
    }

    fn may_impersonate(&self, caller: &Caller, resource: &str, namespace: &str, name: &str) -> Result<(), Status> {
        self.check(&Attributes {
            user: &caller.name,
            groups: &caller.groups,
            verb: "impersonate",
            resource,
            namespace,
            name,
            ..Attributes::default()
        })
    }

    /// Refuses a request that the authorizer does not allow.
    pub(super) fn check(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match &self.cluster.0.authorizer {
            Some(authorizer) => attributes.check(&**authorizer),
            None => Ok(()),
        }
    }
}
