//! The RBAC rules that the programs print.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::process::output;

/// The file with the permissions for each way to share the work. The chart replaces the names for `example.com/name`
/// with its own.
pub(super) fn rights(program: &Path, mode: &[&str], variants: &[(&str, &[&str])]) -> anyhow::Result<String> {
    let mut rights = Map::new();
    for (variant, options) in variants {
        let [cluster, namespace] = rules(program, mode, "example.com/name", options)?;
        rights.insert((*variant).to_owned(), json!({"cluster": cluster, "namespace": namespace}));
    }
    let text = serde_saphyr::to_string(&Value::Object(rights))?;
    Ok(format!(
        "# The minimal permissions, as the provisioner's command `rbac` prints them. Written by `cargo xtask manifests`.\n{text}"
    ))
}

/// The rules of the ClusterRole and the Role that `rbac` prints.
pub fn rules(program: &Path, mode: &[&str], name: &str, options: &[&str]) -> anyhow::Result<[Value; 2]> {
    let account = ["--namespace", "provisioner", "--service-account", "provisioner", "--provisioner-name", name];
    let arguments = [mode, &["rbac"], &account[..], options].concat();
    let printed = String::from_utf8(output(Command::new(program).args(arguments).env_clear())?)?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&printed)?;
    let rules = |kind: &str| {
        let role = objects.iter().find(|object| object["kind"] == kind);
        role.map(|role| role["rules"].clone()).with_context(|| format!("{} prints no {kind}", program.display()))
    };
    Ok([rules("ClusterRole")?, rules("Role")?])
}
