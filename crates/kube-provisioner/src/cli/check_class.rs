//! `check-class`: validates StorageClasses without a cluster.

use std::fmt::Write as _;
use std::io::Read as _;

use clap::{ArgMatches, Args, FromArgMatches};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Map, Value};

use super::served::Served;
use crate::options::{Coordination, provisioner_name};
use crate::parameters::{nearest, quoted, suggestion_text};
use crate::protocol::WAIT_FOR_FIRST_CONSUMER;

const API_VERSION: &str = "storage.k8s.io/v1";

/// The fields of a StorageClass.
const FIELDS: [&str; 10] = [
    "allowVolumeExpansion",
    "allowedTopologies",
    "apiVersion",
    "kind",
    "metadata",
    "mountOptions",
    "parameters",
    "provisioner",
    "reclaimPolicy",
    "volumeBindingMode",
];

/// Validate StorageClasses in files; needs no cluster
#[derive(Args, Clone, Debug)]
pub(super) struct CheckClass {
    /// Files with StorageClasses, in YAML or JSON; - means standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,

    /// The names of this provisioner, if they are known.
    #[arg(skip)]
    names: Vec<String>,

    #[arg(skip)]
    coordination: Coordination,
}

impl CheckClass {
    pub(super) const OPTIONS: [&'static str; 4] =
        ["provisioner_name", "additional_provisioner_names", "node_name", "coordination"];

    pub(super) fn of(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let mut given = |id| matches.try_remove_many::<String>(id).ok().flatten().into_iter().flatten();
        let names = given("provisioner_name").chain(given("additional_provisioner_names")).collect();
        let coordination = matches.try_remove_one::<Coordination>("coordination").ok().flatten().unwrap_or_default();
        Ok(Self { names, coordination, ..Self::from_arg_matches_mut(matches)? })
    }

    /// Returns the text to print and the exit code: 1 if a class is invalid, 2 if a file cannot be checked.
    pub(super) fn run<S: Served>(&self) -> (String, u8) {
        let (mut text, mut code) = (String::new(), 0);
        for file in &self.files {
            let classes = match classes(file) {
                Ok(classes) => classes,
                Err(problem) => {
                    line(&mut text, &problem);
                    code = 2;
                    continue;
                }
            };
            for class in classes {
                let name = class["metadata"]["name"].as_str().unwrap_or("(without a name)").to_owned();
                let advice = self.class_warning::<S>(&class);
                let problems = self.problems::<S>(class);
                if problems.is_empty() {
                    line(&mut text, &format!("storageclass/{name}: ok"));
                } else {
                    code = code.max(1);
                }
                problems.iter().for_each(|problem| line(&mut text, &format!("storageclass/{name}: {problem}")));
                advice.iter().for_each(|advice| line(&mut text, &format!("storageclass/{name}: note: {advice}")));
            }
        }
        (text, code)
    }

    /// Returns the provisioner's advice about a class that can be read.
    fn class_warning<S: Served>(&self, class: &Value) -> Option<String> {
        let class = serde_json::from_value(class.clone()).ok()?;
        S::class_warning(&class, self.names.first().map(String::as_str))
    }

    fn problems<S: Served>(&self, class: Value) -> Vec<String> {
        let mut problems = refused_by_the_server(&class);
        if !problems.is_empty() {
            return problems;
        }
        let class: StorageClass = match serde_json::from_value(class) {
            Ok(class) => class,
            Err(error) => return vec![error.to_string()],
        };
        if let Err(problem) = provisioner_name(&class.provisioner) {
            problems.push(format!("provisioner {}: {problem}", quoted(&class.provisioner)));
        } else if !self.names.is_empty() && !self.names.contains(&class.provisioner) {
            let names = self.names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
            problems.push(format!(
                "the class names provisioner {}, but this program serves {names}",
                quoted(&class.provisioner)
            ));
        }
        if self.coordination == Coordination::PerNode
            && class.volume_binding_mode.as_deref() != Some(WAIT_FOR_FIRST_CONSUMER)
        {
            problems.push(format!(
                "with --coordination per-node the scheduler must choose the node: set volumeBindingMode: {WAIT_FOR_FIRST_CONSUMER}"
            ));
        }
        problems.extend(S::refused(&class));
        problems.extend(S::class_problems(&class));
        problems
    }
}

/// Returns the StorageClasses in a file; at least one.
fn classes(file: &str) -> Result<Vec<Value>, String> {
    let (name, text) = match file {
        "-" => {
            let mut text = String::new();
            ("the standard input", std::io::stdin().read_to_string(&mut text).map(|_| text))
        }
        file => (file, std::fs::read_to_string(file)),
    };
    let text = text.map_err(|error| format!("cannot read {name}: {error}"))?;
    let objects = serde_saphyr::from_multiple(&text).map_err(|error| format!("{name} is not valid YAML: {error}"))?;
    let classes = classes_among(objects);
    if classes.is_empty() { Err(format!("{name} contains no StorageClass")) } else { Ok(classes) }
}

fn classes_among(objects: Vec<Value>) -> Vec<Value> {
    let of_object = |mut object: Value| match object["kind"].as_str() {
        Some("StorageClass") => vec![object],
        Some("List" | "StorageClassList") => match object["items"].take() {
            Value::Array(items) => classes_among(items),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    objects.into_iter().flat_map(of_object).collect()
}

/// Returns the problems for which the API server would reject the class.
fn refused_by_the_server(class: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    if class["apiVersion"] != API_VERSION {
        problems.push(format!("apiVersion must be {API_VERSION}"));
    }
    let given = class.as_object().into_iter().flat_map(Map::keys);
    for key in given.filter(|key| !FIELDS.contains(&key.as_str())) {
        let meant = suggestion_text(nearest(key, FIELDS.into_iter()));
        problems.push(format!("unknown field {}{meant}", quoted(key)));
    }
    for (key, value) in class["parameters"].as_object().into_iter().flatten().filter(|(_, value)| !value.is_string()) {
        let key = quoted(key);
        problems.push(match value {
            Value::Array(_) | Value::Object(_) => format!("parameter {key} is not a string"),
            value => format!("parameter {key} is {value}, not a string: put the value in quotes"),
        });
    }
    let one_of = |field: &str, allowed: &[&str]| match class[field].as_str() {
        Some(value) if !allowed.contains(&value) => {
            Some(format!("{field} {} is not one of {}", quoted(value), allowed.join(", ")))
        }
        _ => None,
    };
    problems.extend(one_of("reclaimPolicy", &["Delete", "Retain"]));
    problems.extend(one_of("volumeBindingMode", &["Immediate", WAIT_FOR_FIRST_CONSUMER]));
    problems
}

fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}
