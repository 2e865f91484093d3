//! The printer columns of a CustomResourceDefinition. Only paths such as `.status.phase` are supported: with another
//! JSONPath, cells are empty.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::since;
use crate::cluster::Cluster;
use crate::object::{at, text_at};
use crate::resource::Resource;

/// One of the `additionalPrinterColumns`.
pub(super) struct CustomColumn {
    pub(super) definition: Value,
    path: String,
}

/// Returns the columns of one version. The default is the age.
pub(super) fn columns(cluster: &Cluster, resource: &Resource) -> Vec<CustomColumn> {
    let name = resource.group_resource();
    let definition = cluster.get("apiextensions.k8s.io", "customresourcedefinitions", "", &name).unwrap_or_default();
    let versions = at(&definition, &["spec", "versions"]).and_then(Value::as_array).into_iter().flatten();
    let mut of_this = versions.filter(|version| version["name"] == resource.version.as_str());
    let columns = of_this.next().and_then(|version| at(version, &["additionalPrinterColumns"]));
    match columns.and_then(Value::as_array).filter(|columns| !columns.is_empty()) {
        Some(columns) => columns.iter().map(CustomColumn::new).collect(),
        None => {
            vec![CustomColumn::new(&json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}))]
        }
    }
}

impl CustomColumn {
    fn new(column: &Value) -> Self {
        let path = text_at(column, &["jsonPath"]);
        let description = match text_at(column, &["description"]) {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            description => description.to_owned(),
        };
        let definition = json!({
            "name": text_at(column, &["name"]), "type": text_at(column, &["type"]),
            "format": text_at(column, &["format"]), "description": description,
            "priority": at(column, &["priority"]).and_then(Value::as_i64).unwrap_or(0),
        });
        Self { definition, path: path.to_owned() }
    }

    /// `cellForJSONValue`
    pub(super) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let names = self.path.strip_prefix('.').map(|path| path.split('.'));
        let value = names.and_then(|mut names| names.try_fold(object, |value, name| value.get(name)));
        let Some(value) = value else { return Value::Null };
        match (text_at(&self.definition, &["type"]), value) {
            (_, Value::Null) => Value::Null,
            ("string", Value::String(text)) => text.as_str().into(),
            ("string", other) => other.to_string().into(),
            #[expect(clippy::cast_possible_truncation, reason = "the server cuts fractions off too")]
            ("integer", Value::Number(number)) => {
                number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).into()
            }
            ("number", Value::Number(number)) => number.as_f64().into(),
            ("boolean", Value::Bool(flag)) => (*flag).into(),
            ("date", Value::String(_)) => since(Some(value), now).into(),
            _ => Value::Null,
        }
    }
}
