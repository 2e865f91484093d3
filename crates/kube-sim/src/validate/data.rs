//! ConfigMaps and Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::metadata::{self, CheckedFields, invalid};
use super::{IMMUTABLE, names, text};
use crate::object;
use crate::resource::Resource;
use crate::status::Cause;

/// Total size of the values.
const MAX_SIZE: usize = 1 << 20;
const IMMUTABLE_SET: &str = "field is immutable when `immutable` is set";

/// A ConfigMap on create.
pub(super) fn config_map(
    resource: &Resource,
    config_map: &Value,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    metadata::check_core(resource, config_map, touched, causes);
    let (data, binary) = (entries(config_map, "data"), entries(config_map, "binaryData"));
    let mut size = 0;
    for (key, value) in data.into_iter().flatten() {
        let path = || format!("data[{key}]");
        check_key(path, key, causes);
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            causes.push(Cause::invalid(path(), &json!(key), "duplicate of key present in binaryData"));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in binary.into_iter().flatten() {
        check_key(|| format!("binaryData[{key}]"), key, causes);
        size += decoded_len(value);
    }
    if size > MAX_SIZE {
        // The server's path has one element without a name.
        causes.push(Cause::too_long("[]", MAX_SIZE));
    }
}

/// A ConfigMap on update.
pub(super) fn config_map_update(
    resource: &Resource,
    new: &Value,
    old: &Value,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    metadata::check_core_update(new, old, touched, causes);
    keeps_immutable(new, old, &["data", "binaryData"], causes);
    config_map(resource, new, touched, causes);
}

/// A Secret on create.
pub(super) fn secret(resource: &Resource, secret: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    metadata::check_core(resource, secret, touched, causes);
    let data = entries(secret, "data");
    let mut size = 0;
    for (key, value) in data.into_iter().flatten() {
        check_key(|| format!("data[{key}]"), key, causes);
        size += decoded_len(value);
    }
    if size > MAX_SIZE {
        causes.push(Cause::too_long("data", MAX_SIZE));
    }
    let has = |key: &str| data.is_some_and(|data| data.contains_key(key));
    let mut require = |key: &str| causes.push(Cause::required(format!("data[{key}]"), ""));
    match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            if object::annotation(secret, ACCOUNT).is_none_or(str::is_empty) {
                causes.push(Cause::required(format!("metadata.annotations[{ACCOUNT}]"), ""));
            }
        }
        "kubernetes.io/dockercfg" => docker_config(data, ".dockercfg", causes),
        "kubernetes.io/dockerconfigjson" => docker_config(data, ".dockerconfigjson", causes),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" => {
            let key = data.and_then(|data| data.get("ssh-privatekey")).and_then(Value::as_str);
            if key.is_none_or(str::is_empty) {
                require("ssh-privatekey");
            }
        }
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)).for_each(require),
        _ => {}
    }
}

/// A Secret on update.
pub(super) fn secret_update(
    resource: &Resource,
    new: &Value,
    old: &Value,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    metadata::check_core_update(new, old, touched, causes);
    if text(new, "type") != text(old, "type") {
        causes.push(Cause::invalid("type", &json!(text(new, "type")), IMMUTABLE));
    }
    keeps_immutable(new, old, &["data"], causes);
    secret(resource, new, touched, causes);
}

fn keeps_immutable(new: &Value, old: &Value, fields: &[&str], causes: &mut Vec<Cause>) {
    let is_set = |object: &Value| object.get("immutable") == Some(&Value::Bool(true));
    if !is_set(old) {
        return;
    }
    if !is_set(new) {
        causes.push(Cause::forbidden("immutable", IMMUTABLE_SET));
    }
    for field in fields.iter().filter(|field| new.get(**field) != old.get(**field)) {
        causes.push(Cause::forbidden(*field, IMMUTABLE_SET));
    }
}

fn docker_config(data: Option<&Map<String, Value>>, key: &str, causes: &mut Vec<Cause>) {
    let Some(text) = data.and_then(|data| data.get(key)).and_then(Value::as_str) else {
        causes.push(Cause::required(format!("data[{key}]"), ""));
        return;
    };
    let json = STANDARD.decode(text).unwrap_or_default();
    if serde_json::from_slice::<Map<String, Value>>(&json).is_err() {
        // Go's parser names the first invalid byte.
        let complaint = match json.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => format!("invalid character {:?} looking for beginning of value", char::from(*byte)),
        };
        causes.push(Cause::invalid(format!("data[{key}]"), &json!("<secret contents redacted>"), &complaint));
    }
}

fn check_key(path: impl Fn() -> String, key: &str, causes: &mut Vec<Cause>) {
    let complaints = names::config_key(key);
    if !complaints.is_empty() {
        invalid(&path(), key, complaints, causes);
    }
}

fn entries<'a>(object: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    object.get(field).and_then(Value::as_object)
}

/// Returns the decoded length of a base64 text.
fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count()
}
