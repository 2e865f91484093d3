//! The account's permissions, checked once at the start.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::call::{CallError, call};

/// Number of concurrent access reviews.
const CONCURRENCY: usize = 8;

/// Time limit of one access review.
const LIMIT: Duration = Duration::from_secs(10);

/// Verbs that the account needs on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural of the resource, followed by a slash and a subresource if any.
    pub resource: &'static str,
    /// The verbs in lower case.
    pub verbs: &'static [&'static str],
    /// The names of the objects; empty for all names. The API server cannot restrict `create` by name.
    pub names: Vec<String>,
    /// True if needed only in the account's own namespace, false for all namespaces.
    pub namespaced: bool,
}

/// Asks the API server whether the account has all permissions in `rules`; `namespace` is the namespace of namespaced
/// rules.
///
/// # Errors
///
/// [`AccessError::Missing`] lists all missing permissions; [`AccessError::Unknown`] explains why the server did not
/// answer.
pub async fn check_access(client: &Client, namespace: &str, rules: &[AccessRule]) -> Result<(), AccessError> {
    let queries: Vec<AccessQuery<'_>> = rules.iter().flat_map(|rule| AccessQuery::of(rule, namespace)).collect();
    let answers: Vec<_> = queries.into_iter().map(|query| query.missing(client)).collect();
    let answers: Vec<Option<String>> =
        stream::iter(answers).buffered(CONCURRENCY).try_collect().await.map_err(AccessError::Unknown)?;
    let missing: Vec<String> = answers.into_iter().flatten().collect();
    if missing.is_empty() { Ok(()) } else { Err(AccessError::Missing(missing)) }
}

/// The reason why the check failed. The messages are complete sentences.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// Missing permissions: each entry is `verb resource.group`, with name and namespace if the rule has them.
    #[error(
        "The account lacks permissions: {}.",
        .0.join(", ")
    )]
    Missing(Vec<String>),

    /// The access review failed.
    #[error("The account's permissions could not be checked. {0}")]
    Unknown(#[source] CallError),
}

struct AccessQuery<'a> {
    verb: &'static str,
    name: Option<&'a str>,
    rule: &'a AccessRule,
    namespace: &'a str,
}

impl<'a> AccessQuery<'a> {
    fn of(rule: &'a AccessRule, namespace: &'a str) -> Vec<Self> {
        let named: Vec<Option<&str>> = match &*rule.names {
            [] => vec![None],
            names => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        let ask = |verb| named.iter().map(move |name| AccessQuery { verb, name: *name, rule, namespace });
        rule.verbs.iter().copied().flat_map(ask).collect()
    }

    /// Describes the permission if it is missing.
    async fn missing(self, client: &Client) -> Result<Option<String>, CallError> {
        Ok((!self.review(client).await?).then(|| self.description()))
    }

    async fn review(&self, client: &Client) -> Result<bool, CallError> {
        let (resource, subresource) = match self.rule.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.rule.resource, None),
        };
        let attributes = ResourceAttributes {
            group: Some(self.rule.group.to_owned()),
            name: self.name.map(str::to_owned),
            namespace: self.rule.namespaced.then(|| self.namespace.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            verb: Some(self.verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
        let review = call(LIMIT, reviews.create(&PostParams::default(), &review)).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }

    fn description(&self) -> String {
        let AccessRule { group, resource, namespaced, .. } = self.rule;
        let dot = if group.is_empty() { "" } else { "." };
        let scope = if *namespaced { format!(" in namespace {}", self.namespace) } else { String::new() };
        let name = self.name.map(|name| format!(" named {name}")).unwrap_or_default();
        format!("{} {resource}{dot}{group}{name}{scope}", self.verb)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{client, object, refusal};

    const RULES: &[AccessRule] = &[
        AccessRule { group: "", resource: "pods", verbs: &["get", "list"], names: Vec::new(), namespaced: false },
        AccessRule { group: "", resource: "pods/status", verbs: &["update"], names: Vec::new(), namespaced: false },
        AccessRule {
            group: "coordination.k8s.io",
            resource: "leases",
            verbs: &["create"],
            names: Vec::new(),
            namespaced: true,
        },
    ];

    #[tokio::test]
    async fn error_lists_all_missing_permissions_in_one_line() {
        let client = server(|attributes| attributes["verb"] == "get");
        let error = check_access(&client, "home", RULES).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "The account lacks permissions: list pods, update pods/status, \
             create leases.coordination.k8s.io in namespace home."
        );
    }

    #[tokio::test]
    async fn reviews_include_group_subresource_and_namespace() {
        let client = server(|attributes| {
            let expected = match attributes["resource"].as_str() {
                Some("leases") => {
                    json!({
                        "group": "coordination.k8s.io",
                        "namespace": "home",
                        "resource": "leases",
                        "verb": "create",
                    })
                }
                _ if attributes["verb"] == "update" => json!({
                    "group": "",
                    "resource": "pods",
                    "subresource": "status",
                    "verb": "update",
                }),
                _ => json!({ "group": "", "resource": "pods", "verb": attributes["verb"] }),
            };
            assert_eq!(*attributes, expected);
            true
        });
        check_access(&client, "home", RULES).await.unwrap();
    }

    #[tokio::test]
    async fn reviews_each_object_name() {
        let client = server(|attributes| attributes["name"] == "mine");
        let names = vec!["mine".to_owned(), "other".to_owned()];
        let rule = AccessRule { group: "", resource: "configmaps", verbs: &["get", "update"], names, namespaced: true };
        let AccessError::Missing(missing) = check_access(&client, "home", &[rule]).await.unwrap_err() else {
            panic!("the server responds, so the error lists missing permissions");
        };
        let expected =
            ["get configmaps named other in namespace home", "update configmaps named other in namespace home"];
        assert_eq!(missing, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn sends_at_most_eight_reviews_concurrently() {
        const MANY: &[AccessRule] =
            &[AccessRule { group: "", resource: "pods", verbs: &["get"; 100], names: Vec::new(), namespaced: false }];
        let (asked, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let client = client(move |_| {
            most.fetch_max(asked.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let asked = Arc::clone(&asked);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                asked.fetch_sub(1, Ordering::Relaxed);
                object(&json!({ "spec": {}, "status": { "allowed": true } }))
            }
        });
        check_access(&client, "home", MANY).await.unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 8);
    }

    #[tokio::test]
    async fn fails_when_the_server_is_unavailable() {
        let client = client(|_| async { refusal(503, "ServiceUnavailable", "starting") });
        let error = check_access(&client, "home", RULES).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "The account's permissions could not be checked. The API server is not available: starting"
        );
    }

    fn server(allows: fn(&Value) -> bool) -> Client {
        client(move |request| async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            let allowed = allows(&review["spec"]["resourceAttributes"]);
            review["status"] = json!({ "allowed": allowed });
            object(&review)
        })
    }
}
