//! Rules for names, keys and values, with their texts: `util/validation` and `api/validate/content` of apimachinery.
//! Each function returns the complaints about a text. A valid text has none, and causes no allocation.

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character";

/// Checks a name that must be a DNS label (RFC 1123): namespaces.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push("must be no more than 63 characters".to_owned());
    }
    if !is_label(text) {
        complaints.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '{LABEL_FORMAT}')"
            )
        });
    }
    complaints
}

/// Checks a name that must be a DNS subdomain (RFC 1123): most resources.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    subdomain(text, "characters")
}

/// Checks a qualified name, `name` or `prefix/name`: label and annotation keys, finalizers, provisioners.
pub fn qualified(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((prefix, name)) => (Some(prefix), name),
    };
    if name.contains('/') {
        let format = key_format();
        complaints.push(format!(
            "a valid label key {format} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ));
        return complaints;
    }
    match prefix {
        None => {}
        Some("") => complaints.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            complaints
                .extend(subdomain(prefix, "bytes").into_iter().map(|complaint| format!("prefix part {complaint}")));
        }
    }
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        complaints.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_key_name(name) {
        complaints.push(format!("name part {}", key_format()));
    }
    complaints
}

/// Checks a label's value.
pub fn label_value(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push("must be no more than 63 bytes".to_owned());
    }
    if !text.is_empty() && !is_key_name(text) {
        complaints.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '({KEY_FORMAT})?')"
        ));
    }
    complaints
}

/// Checks a key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 253 {
        complaints.push("must be no more than 253 characters".to_owned());
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || !text.bytes().all(good) {
        complaints.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match text {
        "." => complaints.push("must not be '.'".to_owned()),
        ".." => complaints.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => complaints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    complaints
}

/// Checks a name that must be a segment of a path: the rule for resources without a stricter one (RBAC).
pub fn path_segment(text: &str, prefix: bool) -> Vec<String> {
    let mut complaints = Vec::new();
    if !prefix && matches!(text, "." | "..") {
        complaints.push(format!("may not be '{text}'"));
        return complaints;
    }
    for illegal in ["/", "%"] {
        if text.contains(illegal) {
            complaints.push(format!("may not contain '{illegal}'"));
        }
    }
    complaints
}

/// Returns a `generateName` in the form that the rules for names check: a dash at its end is masked, because a suffix
/// follows.
pub fn with_open_end(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        // Like `maskTrailingDash`, this also drops the letter before the dash.
        Some(rest) if !rest.is_empty() => {
            let mut masked = rest.to_owned();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => prefix.to_owned(),
    }
}

fn subdomain(text: &str, unit: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 253 {
        complaints.push(format!("must be no more than 253 {unit}"));
    }
    if !is_subdomain(text) {
        complaints.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{SUBDOMAIN_FORMAT}')"
        ));
    }
    complaints
}

fn key_format() -> String {
    format!("{KEY_RULE} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY_FORMAT}')")
}

fn is_label(text: &str) -> bool {
    let good = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(good)
        && bytes.last().is_some_and(good)
        && bytes.iter().all(|byte| good(byte) || *byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_invalid_names_like_the_server() {
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(dns_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        for text in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "ä"] {
            assert_eq!(dns_subdomain(text).len(), 1, "{text}");
        }
        assert_eq!(qualified("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("a/")[0], "name part must be non-empty");
        assert_eq!(qualified(&format!("{}/a", "a".repeat(254))), ["prefix part must be no more than 253 bytes"]);
        assert_eq!(qualified(&"a".repeat(64)), ["name part must be no more than 63 bytes"]);
        assert!(qualified("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert_eq!(config_key("..x"), ["must not start with '..'"]);
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert_eq!(path_segment("a/b%", false), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(path_segment("..", false), ["may not be '..'"]);
    }

    #[test]
    fn masks_trailing_dash_of_prefix() {
        assert_eq!(with_open_end("pvc-"), "pva");
        assert_eq!(with_open_end("-"), "-");
        assert_eq!(with_open_end("x"), "x");
    }
}
