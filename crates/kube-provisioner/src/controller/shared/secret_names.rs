//! The Secrets named in a class's parameters: the pairs of parameters, and their templates.

use std::collections::BTreeMap;

use crate::capabilities::SecretRole;
use crate::protocol;

/// The templates of the namespace and name of a role's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretName {
    pub(crate) role: String,
    name: String,
    namespace: String,
}

/// The values that replace template variables.
#[derive(Clone, Copy)]
pub(crate) struct TemplateNames<'a> {
    pub(crate) claim: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) volume: &'a str,
}

impl TemplateNames<'_> {
    /// Placeholder values to validate a template.
    const ANY: TemplateNames<'static> = TemplateNames { claim: "claim", namespace: "namespace", volume: "volume" };
}

impl SecretName {
    /// Returns namespace and name of the Secret for one claim.
    pub(crate) fn resolve(&self, names: TemplateNames<'_>) -> Result<(String, String), String> {
        let [name, namespace] = keys(&self.role);
        Ok((fill(&namespace, &self.namespace, names)?, fill(&name, &self.name, names)?))
    }

    /// Returns the first template, for callers without a claim.
    pub(crate) fn template(&self) -> Option<&str> {
        [&self.namespace, &self.name].into_iter().map(String::as_str).find(|text| text.contains('$'))
    }
}

/// Removes the parameters that name Secrets from a class's parameters.
pub(crate) fn take(parameters: &mut BTreeMap<String, String>, roles: &[SecretRole]) -> Result<Vec<SecretName>, String> {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for SecretRole { role, required } in roles {
        let [name, namespace] = keys(role);
        match (parameters.remove(&name), parameters.remove(&namespace)) {
            (Some(name), Some(namespace)) => {
                let secret = SecretName { role: role.clone(), name, namespace };
                problems.extend(secret.resolve(TemplateNames::ANY).err());
                found.push(secret);
            }
            (None, None) if !required => {}
            (None, _) => problems.push(format!("parameter \"{name}\" is required")),
            (_, None) => problems.push(format!("parameter \"{namespace}\" is required")),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems.join("; ")) }
}

/// Returns the annotation of a volume that names the Secret for its deletion, with its value.
pub(crate) fn annotation(role: &str, (namespace, name): &(String, String)) -> (String, String) {
    (annotation_key(role), format!("{namespace}/{name}"))
}

/// Returns the Secret that a volume's annotations name for a role.
pub(crate) fn of_volume(annotations: Option<&BTreeMap<String, String>>, role: &str) -> Option<(String, String)> {
    let (namespace, name) = annotations?.get(&annotation_key(role))?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

fn annotation_key(role: &str) -> String {
    let dot = if role.is_empty() { "" } else { "." };
    format!("{}{dot}{role}", protocol::SECRET_PREFIX)
}

/// Returns `adminSecretName` and `adminSecretNamespace`, or `secretName` and `secretNamespace` if the role has no name.
fn keys(role: &str) -> [String; 2] {
    let prefix = if role.is_empty() { "secret".to_owned() } else { format!("{role}Secret") };
    [format!("{prefix}Name"), format!("{prefix}Namespace")]
}

/// Replaces the variables in a template. Unknown variables are kept.
pub(crate) fn substitute(template: &str, names: TemplateNames<'_>) -> String {
    template
        .replace("${pvc.name}", names.claim)
        .replace("${pvc.namespace}", names.namespace)
        .replace("${pv.name}", names.volume)
}

/// Replaces the variables in a template; `key` is the parameter that contains it.
fn fill(key: &str, template: &str, names: TemplateNames<'_>) -> Result<String, String> {
    let filled = substitute(template, names);
    let known = "${pvc.name}, ${pvc.namespace} and ${pv.name}";
    if filled.contains('$') {
        return Err(format!("parameter \"{key}\": {template:?} names a Secret by an unknown template; use {known}"));
    }
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    if filled.is_empty() || filled.len() > 253 || !filled.bytes().all(allowed) {
        return Err(format!(
            "parameter \"{key}\": {template:?} does not name a Secret: a name has lower case letters, digits, `-` and `.`"
        ));
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles() -> Vec<SecretRole> {
        vec![
            SecretRole { role: "admin".to_owned(), required: true },
            SecretRole { role: String::new(), required: false },
        ]
    }

    fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn resolves_secret_names_from_templates() {
        let mut all = parameters(&[
            ("adminSecretName", "${pvc.name}-${pv.name}"),
            ("adminSecretNamespace", "${pvc.namespace}"),
            ("server", "s"),
        ]);
        let found = take(&mut all, &roles()).unwrap();
        assert_eq!(all, parameters(&[("server", "s")]));
        let names = TemplateNames { claim: "data", namespace: "shop", volume: "pvc-1" };
        assert_eq!(found[0].resolve(names), Ok(("shop".to_owned(), "data-pvc-1".to_owned())));
        let volume = BTreeMap::from([annotation("admin", &("shop".to_owned(), "data".to_owned()))]);
        assert_eq!(of_volume(Some(&volume), "admin"), Some(("shop".to_owned(), "data".to_owned())));
        assert_eq!(of_volume(Some(&volume), ""), None);
    }

    #[test]
    fn rejects_invalid_secret_names() {
        let problem = |pairs: &[(&str, &str)]| take(&mut parameters(pairs), &roles()).unwrap_err();
        assert_eq!(problem(&[]), "parameter \"adminSecretName\" is required");
        assert_eq!(problem(&[("adminSecretName", "a")]), "parameter \"adminSecretNamespace\" is required");
        for name in ["${pvc.labels}", "A", "", "a/b", "../x", "my secret"] {
            let text = problem(&[("adminSecretName", name), ("adminSecretNamespace", "n")]);
            assert!(text.starts_with("parameter \"adminSecretName\": ") && text.contains("Secret"), "{text}");
        }
    }
}
