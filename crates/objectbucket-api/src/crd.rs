//! The CustomResourceDefinitions: the schemas of the types, adapted to what existing writers send.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::{ObjectBucket, ObjectBucketClaim};

/// The strictness of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// Accepts everything that existing provisioners write: `null` for every optional field, and any phase.
    Standard,
    /// Same as `Standard`, but the fields by which a claim was provisioned cannot change. The charts install it.
    ///
    /// * A claim must name a class, and S3 must accept its prefix.
    /// * The class cannot change. Neither can `bucketName` and `generateBucketName`, once they are set. The newest CRD
    ///   of Go's lib-bucket-provisioner has similar rules:
    ///   <https://github.com/kube-object-storage/lib-bucket-provisioner/pull/234>.
    /// * `objectBucketName` can change: if the name is taken when the ObjectBucket is created, the provisioner chooses
    ///   another one.
    ///
    /// Claims may have both a name and a prefix, or neither: provisioners write the name next to the prefix, and a
    /// class can name an existing bucket, with any name that a store accepts.
    Strict,
}

/// Returns the CustomResourceDefinitions of ObjectBucketClaims and ObjectBuckets, in this order.
pub fn crds(validation: Validation) -> [CustomResourceDefinition; 2] {
    let [mut claims, mut buckets] = [ObjectBucketClaim::crd(), ObjectBucket::crd()];
    widen(schema_of(&mut claims));
    widen(schema_of(&mut buckets));
    if validation == Validation::Strict {
        restrict(field(schema_of(&mut claims), "spec"));
    }
    [claims, buckets]
}

/// Returns the schema of `metav1.Condition`s according to the API conventions.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"type": "integer", "format": "int64"},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
            },
        },
    })
}

fn widen(root: &mut JSONSchemaProps) {
    root.title = None;
    for part in ["spec", "status"] {
        nullable(field(root, part));
    }
    root.required = Some(vec!["spec".to_owned()]);
    let spec = field(root, "spec");
    spec.nullable = None;
    spec.required = Some(vec!["storageClassName".to_owned()]);
    field(spec, "storageClassName").nullable = None;
    // Other controllers keep their own fields there.
    field(root, "status").x_kubernetes_preserve_unknown_fields = Some(true);
}

/// Makes a schema nullable without defaults: a missing field already means the default, and the server must not add
/// fields that no client wrote.
fn nullable(schema: &mut JSONSchemaProps) {
    schema.default = None;
    schema.nullable = Some(true);
    if schema.x_kubernetes_list_type.is_none() {
        schema.properties.iter_mut().flatten().for_each(|(_, property)| nullable(property));
    }
}

fn restrict(spec: &mut JSONSchemaProps) {
    let class = field(spec, "storageClassName");
    class.min_length = Some(1);
    class.max_length = Some(253);
    class.x_kubernetes_validations = Some(vec![rule("self == oldSelf", "the class of a claim cannot change")]);

    field(spec, "bucketName").max_length = Some(253);
    let prefix = field(spec, "generateBucketName");
    prefix.max_length = Some(63);
    prefix.pattern = Some("^([a-z0-9][a-z0-9.-]*)?$".to_owned());
    field(spec, "objectBucketName").max_length = Some(253);
    spec.x_kubernetes_validations = Some(vec![
        keeps("bucketName", "the name of a claim's bucket cannot change"),
        keeps("generateBucketName", "the prefix of a claim's bucket cannot change"),
    ]);
}

/// Returns a rule that prevents changes to a field once it is set. "" counts as missing.
fn keeps(field: &str, message: &str) -> ValidationRule {
    let (old, new) = (format!("oldSelf.{field}"), format!("self.{field}"));
    rule(&format!("!has({old}) || {old} == '' || (has({new}) && {new} == {old})"), message)
}

fn rule(rule: &str, message: &str) -> ValidationRule {
    ValidationRule { rule: rule.to_owned(), message: Some(message.to_owned()), ..ValidationRule::default() }
}

fn schema_of(crd: &mut CustomResourceDefinition) -> &mut JSONSchemaProps {
    let version = crd.spec.versions.first_mut().expect("the derive makes one version");
    let schema = version.schema.as_mut().expect("the derive makes a schema");
    schema.open_api_v3_schema.as_mut().expect("the derive makes a schema")
}

fn field<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> &'a mut JSONSchemaProps {
    schema.properties.as_mut().and_then(|fields| fields.get_mut(name)).expect("the type has the field")
}
