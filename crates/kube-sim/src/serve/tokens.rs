//! Bearer tokens of the administrator and of service accounts.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::App;
use super::caller::Caller;
use crate::authorize::groups_of;
use crate::clock::seconds;
use crate::object::{at, text_at};
use crate::resource::Resource;
use crate::status::{Cause, Status};

/// The administrator's user name.
pub(super) const ADMIN: &str = "kubernetes-admin";
const AUDIENCE: &str = "https://kubernetes.default.svc";
/// The minimum and the default lifetime of a token, in seconds.
const SHORTEST: i64 = 600;
const USUAL: i64 = 3600;

/// All issued tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    admin: String,
    issued: Mutex<BTreeMap<String, Issued>>,
}

/// A service account's token.
#[derive(Clone, Debug)]
struct Issued {
    namespace: String,
    name: String,
    uid: String,
    expires: Timestamp,
}

impl Tokens {
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        Ok(Self { admin: random()?, issued: Mutex::default() })
    }

    pub(super) fn admin(&self) -> &str {
        &self.admin
    }

    fn issued(&self) -> MutexGuard<'_, BTreeMap<String, Issued>> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// Returns the user of a token. `None` if it is unknown or expired, or if its service account no longer exists.
    pub(super) fn holder(&self, token: &str) -> Option<Caller> {
        if token == self.tokens.admin {
            let groups = ["system:masters".to_owned(), "system:authenticated".to_owned()];
            return Some(Caller { name: ADMIN.to_owned(), groups: groups.into() });
        }
        let issued = self.tokens.issued().get(token).cloned()?;
        let account = self.cluster.get_stored("", "serviceaccounts", &issued.namespace, &issued.name)?;
        let is_good = account.uid() == issued.uid && self.cluster.clock().now() < issued.expires;
        let name = format!("system:serviceaccount:{}:{}", issued.namespace, issued.name);
        is_good.then(|| Caller { groups: groups_of(&name), name })
    }

    /// Answers a TokenRequest for a service account.
    pub(super) fn issue(&self, namespace: &str, name: &str, mut request: Value) -> Result<Value, Status> {
        let accounts = Resource::builtin("", "serviceaccounts");
        let account = self.cluster.get_stored("", "serviceaccounts", namespace, name);
        let account = account.ok_or_else(|| Status::not_found(&accounts, name))?;
        let asked = at(&request, &["spec", "expirationSeconds"]).and_then(Value::as_i64);
        let lifetime = asked.unwrap_or(USUAL);
        if lifetime < SHORTEST {
            let detail = "may not specify a duration less than 10 minutes";
            let cause = Cause::invalid("spec.expirationSeconds", &lifetime.into(), detail);
            return Err(Status::invalid_kind("authentication.k8s.io", "TokenRequest", "", vec![cause]));
        }
        let now = self.cluster.clock().now();
        let expires = now.as_second().saturating_add(lifetime);
        let expires = Timestamp::from_second(expires).unwrap_or(Timestamp::MAX);
        let issued =
            Issued { namespace: namespace.to_owned(), name: name.to_owned(), uid: account.uid().to_owned(), expires };
        let token = issued.token(now).map_err(|error| Status::internal(error.to_string()))?;
        self.tokens.issued().insert(token.clone(), issued);
        if at(&request, &["spec", "audiences"]).and_then(Value::as_array).is_none_or(Vec::is_empty) {
            request["spec"]["audiences"] = json!([AUDIENCE]);
        }
        request["spec"]["expirationSeconds"] = lifetime.into();
        request["kind"] = "TokenRequest".into();
        request["apiVersion"] = "authentication.k8s.io/v1".into();
        request["metadata"] = json!({"name": name, "namespace": namespace, "creationTimestamp": seconds(now)});
        request["status"] = json!({"token": token, "expirationTimestamp": seconds(expires)});
        Ok(request)
    }

    /// Answers a TokenReview.
    pub(super) fn review(&self, mut review: Value) -> Value {
        review["status"] = match self.holder(text_at(&review, &["spec", "token"])) {
            Some(Caller { name, groups }) => json!({
                "authenticated": true,
                "user": {"username": name, "groups": &*groups},
                "audiences": at(&review, &["spec", "audiences"]).cloned().unwrap_or_else(|| json!([AUDIENCE])),
            }),
            None => json!({"user": {}, "error": "invalid bearer token"}),
        };
        review["kind"] = "TokenReview".into();
        review["apiVersion"] = "authentication.k8s.io/v1".into();
        review
    }
}

impl Issued {
    /// Creates a JWT, because clients read the expiry from it. Its last part is random instead of a signature: the
    /// server stores its tokens.
    fn token(&self, now: Timestamp) -> Result<String, getrandom::Error> {
        let claims = json!({
            "aud": [AUDIENCE],
            "exp": self.expires.as_second(),
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "iss": AUDIENCE,
            "kubernetes.io": {
                "namespace": self.namespace, "serviceaccount": {"name": self.name, "uid": self.uid},
            },
            "sub": format!("system:serviceaccount:{}:{}", self.namespace, self.name),
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        Ok(format!("{}.{}.{}", part(&json!({"alg": "none", "typ": "JWT"})), part(&claims), random()?))
    }
}

/// Returns an unguessable text.
fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
