//! Role-based access control by the roles and bindings in the cluster: `plugin/pkg/auth/authorizer/rbac`.
//!
//! Privilege escalation (`escalate`, `bind`) is not checked: a user who can write roles and bindings can write any. The
//! `aggregationRule` of a cluster role is ignored.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Attributes, Authorizer, Decision};
use crate::store::Stored;
use crate::subscription::{Change, Subscription};

const GROUP: &str = "rbac.authorization.k8s.io";
/// Group and plural name of the resources that make up the policy.
pub(crate) const POLICY_RESOURCES: [(&str, &str); 4] =
    [(GROUP, "clusterroles"), (GROUP, "roles"), (GROUP, "clusterrolebindings"), (GROUP, "rolebindings")];

/// Decides by the roles and bindings of a cluster.
#[derive(Default)]
pub(crate) struct Rbac(Mutex<Policy>);

#[derive(Default)]
struct Policy {
    /// Changes since the last decision.
    changes: Option<Subscription>,
    /// By namespace and name. The namespace of a cluster role is empty.
    roles: BTreeMap<(String, String), Role>,
    /// By namespace and name. The namespace of a cluster role binding is empty.
    bindings: BTreeMap<(String, String), Binding>,
}

#[derive(Deserialize)]
struct Role {
    #[serde(default)]
    rules: Option<Vec<Rule>>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    non_resource_urls: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
    role_ref: RoleRef,
}

#[derive(Deserialize)]
struct Subject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

impl Rbac {
    /// Follows changes of [`POLICY_RESOURCES`].
    pub(crate) fn follow(&self, changes: Subscription) {
        self.policy().changes = Some(changes);
    }

    fn policy(&self) -> MutexGuard<'_, Policy> {
        let mut policy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(change) = policy.changes.as_mut().and_then(Subscription::try_next) {
            policy.take(&change);
        }
        policy
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if is_master(attributes.groups) {
            return Decision { allowed: true, reason: String::new() };
        }
        let policy = self.policy();
        let mut errors: Vec<String> = Vec::new();
        for grant in policy.grants(attributes.user, attributes.groups, attributes.namespace) {
            match grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Decision { allowed: true, reason: format!("RBAC: allowed by {grant}") };
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        errors.dedup();
        let reason = match errors.as_slice() {
            [] => String::new(),
            [error] => format!("RBAC: {error}"),
            errors => format!("RBAC: [{}]", errors.join(", ")),
        };
        Decision { allowed: false, reason }
    }

    fn rules(&self, user: &str, groups: &[String], namespace: &str) -> Value {
        let everything = [
            Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
        ];
        let policy = self.policy();
        let mut rules: Vec<&Rule> = if is_master(groups) { everything.iter().collect() } else { Vec::new() };
        for grant in policy.grants(user, groups, namespace) {
            rules.extend(grant.rules.into_iter().flatten());
        }
        let (resources, others): (Vec<&Rule>, Vec<&Rule>) =
            rules.into_iter().partition(|rule| rule.non_resource_urls.is_empty());
        json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": false})
    }
}

/// Members of `system:masters` need no role.
fn is_master(groups: &[String]) -> bool {
    groups.iter().any(|group| group == "system:masters")
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

/// The rules that one binding grants. Its `Display` output is the server's text.
struct Grant<'a> {
    namespace: &'a str,
    name: &'a str,
    binding: &'a Binding,
    subject: &'a Subject,
    rules: Result<&'a [Rule], String>,
}

impl Policy {
    fn take(&mut self, change: &Change) {
        let object = change.object();
        let key = (object.namespace().to_owned(), object.name().to_owned());
        match change.resource.plural.as_str() {
            "clusterroles" | "roles" => keep(&mut self.roles, key, change.after.as_deref()),
            _ => keep(&mut self.bindings, key, change.after.as_deref()),
        }
    }

    /// Cluster role bindings first, then the role bindings of the namespace.
    fn grants<'a>(
        &'a self,
        user: &'a str,
        groups: &'a [String],
        namespace: &'a str,
    ) -> impl Iterator<Item = Grant<'a>> {
        let scopes = [Some(""), Some(namespace).filter(|namespace| !namespace.is_empty())];
        scopes.into_iter().flatten().flat_map(move |scope| {
            let bindings = self.bindings.range((scope.to_owned(), String::new())..);
            let bindings = bindings.take_while(move |((namespace, _), _)| namespace == scope);
            bindings.filter_map(move |((namespace, name), binding)| {
                let subject = binding.subjects.iter().flatten().find(|subject| subject.is(user, groups, namespace))?;
                Some(Grant { namespace, name, binding, subject, rules: self.rules_of(&binding.role_ref, namespace) })
            })
        })
    }

    fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], String> {
        let (scope, word) = match role.kind.as_str() {
            "ClusterRole" => ("", "clusterrole"),
            "Role" => (namespace, "role"),
            kind => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        let found = self.roles.get(&(scope.to_owned(), role.name.clone()));
        let found = found.ok_or_else(|| format!("{word}.{GROUP} {:?} not found", role.name))?;
        Ok(found.rules.as_deref().unwrap_or_default())
    }
}

fn keep<T: DeserializeOwned>(map: &mut BTreeMap<(String, String), T>, key: (String, String), after: Option<&Stored>) {
    match after.and_then(|object| serde_json::from_slice(object.bytes()).ok()) {
        Some(object) => drop(map.insert(key, object)),
        None => drop(map.remove(&key)),
    }
}

impl Subject {
    /// Returns whether the subject matches a user. A service account without a namespace is in the binding's namespace.
    fn is(&self, user: &str, groups: &[String], binding_namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == user,
            "Group" => groups.contains(&self.name),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { binding_namespace } else { &self.namespace };
                let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                !namespace.is_empty() && account == Some((namespace, &self.name))
            }
            _ => false,
        }
    }
}

impl Rule {
    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        let has = |list: &[String], value: &str| list.iter().any(|one| one == "*" || one == value);
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        if !attributes.path.is_empty() {
            return self.non_resource_urls.iter().any(|url| match url.strip_suffix('*') {
                Some(prefix) => attributes.path.starts_with(prefix),
                None => url == attributes.path,
            });
        }
        has(&self.api_groups, attributes.group)
            && self.resources.iter().any(|resource| is_resource(resource, attributes))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == attributes.name))
    }
}

/// `*`, `pods`, `pods/log` or `*/log`.
fn is_resource(rule: &str, attributes: &Attributes<'_>) -> bool {
    if rule == "*" {
        return true;
    }
    match rule.split_once('/') {
        None => rule == attributes.resource && attributes.subresource.is_empty(),
        Some((resource, part)) => {
            !part.is_empty() && part == attributes.subresource && (resource == "*" || resource == attributes.resource)
        }
    }
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RoleRef { kind, name: role } = &self.binding.role_ref;
        let (namespace, name) = (self.namespace, self.name);
        match namespace {
            "" => write!(formatter, "ClusterRoleBinding {name:?} of {kind} {role:?} to ")?,
            _ => write!(formatter, "RoleBinding \"{name}/{namespace}\" of {kind} {role:?} to ")?,
        }
        let subject = self.subject;
        let of = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
        match subject.kind.as_str() {
            "ServiceAccount" => write!(formatter, "ServiceAccount \"{}/{of}\"", subject.name),
            kind => write!(formatter, "{kind} {:?}", subject.name),
        }
    }
}

/// Returns the roles of `plugin/pkg/auth/authorizer/rbac/bootstrappolicy` that concern every user.
pub(crate) fn first_policy() -> Vec<Value> {
    let masters: &[&str] = &["system:masters"];
    let authenticated: &[&str] = &["system:authenticated"];
    let anybody: &[&str] = &["system:authenticated", "system:unauthenticated"];
    let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"];
    let discovery: Vec<&str> = discovery.into_iter().chain(["/version", "/version/"]).collect();
    let policy = [
        (
            "cluster-admin",
            masters,
            json!([
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]),
        ),
        ("system:discovery", authenticated, json!([{"verbs": ["get"], "nonResourceURLs": discovery}])),
        (
            "system:basic-user",
            authenticated,
            json!([
                {
                    "verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
                    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                },
                {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
            ]),
        ),
        ("system:public-info-viewer", anybody, json!([{"verbs": ["get"], "nonResourceURLs": health}])),
        (
            "system:persistent-volume-provisioner",
            &[],
            json!([
                {
                    "verbs": ["create", "delete", "get", "list", "watch"], "apiGroups": [""],
                    "resources": ["persistentvolumes"],
                },
                {
                    "verbs": ["get", "list", "update", "watch"], "apiGroups": [""],
                    "resources": ["persistentvolumeclaims"],
                },
                {"verbs": ["get", "list", "watch"], "apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"]},
                {"verbs": ["watch"], "apiGroups": [""], "resources": ["events"]},
                {
                    "verbs": ["create", "patch", "update"], "apiGroups": ["", "events.k8s.io"],
                    "resources": ["events"],
                },
            ]),
        ),
    ];
    let mut objects = Vec::new();
    for (name, groups, rules) in policy {
        let api_version = format!("{GROUP}/v1");
        let metadata = json!({
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        });
        objects.push(json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}));
        if groups.is_empty() {
            continue;
        }
        let subject = |name: &&str| json!({"kind": "Group", "apiGroup": GROUP, "name": name});
        objects.push(json!({
            "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": metadata,
            "subjects": groups.iter().map(subject).collect::<Vec<Value>>(),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        }));
    }
    objects
}
