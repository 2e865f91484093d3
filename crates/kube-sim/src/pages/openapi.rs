//! The parts of OpenAPI v3 that clients need: the patch types, and the schemas of objects. Fields of built-in types
//! have no descriptions.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap};
use serde_json::{Map, Value, json};

use super::Page;
use super::discovery::base_path;
use crate::defaults::schema::{Field, Kind, Reference, Struct, Topology, Type};
use crate::patch::OF_ALL_RESOURCES;
use crate::resource::Resource;
use crate::state::State;
use crate::status::Status;

/// `/openapi/v2`, without types. Clients of version 3 fall back to it for types that version 3 lacks.
pub(super) fn old(headers: &HeaderMap) -> Page {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    // Go accepts no `@` in the content type of an answer.
    const ANSWERED: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    /// `swagger: 2.0`, `info: {title: Kubernetes, version: 1.37}`, `paths: {}`.
    const NOTHING: &[u8] = b"\x0a\x032.0\x12\x12\x0a\x0aKubernetes\x12\x041.37\x42\x00";
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains(PROTOBUF) {
        Page { code: 200, content_type: ANSWERED, body: Bytes::from_static(NOTHING) }
    } else {
        Page::json(&json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "1.37"}, "paths": {}}))
    }
}

/// `/openapi/v3`
pub(super) fn index(state: &State) -> Page {
    let mut paths = Map::new();
    for resource in state.registry.all() {
        let path = base_path(&resource.group, &resource.version);
        let url = format!("/openapi/v3{path}");
        paths.insert(path[1..].to_owned(), json!({"serverRelativeURL": url}));
    }
    Page::json(&json!({"paths": paths}))
}

/// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`
pub(super) fn document(state: &State, group: &str, version: &str) -> Result<Page, Status> {
    let resources = state.registry.all();
    let mut document = Document::default();
    for resource in resources.iter().filter(|resource| resource.group == group && resource.version == version) {
        document.add(state, resource);
    }
    if document.paths.is_empty() {
        return Err(Status::no_such_path());
    }
    document.add_used_structs();
    Ok(Page::json(&json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.37"},
        "paths": document.paths,
        "components": {"schemas": document.schemas},
    })))
}

#[derive(Default)]
struct Document {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
    /// Ids of structs whose schema is still missing.
    wanted: BTreeSet<&'static str>,
}

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const OBJECT_META: &str = "meta/v1.ObjectMeta";

impl Document {
    fn add(&mut self, state: &State, resource: &Resource) {
        let name = schema_name(resource);
        let mut schema = match Struct::of(resource) {
            Some(structure) => self.structure(structure),
            None => custom(state, resource),
        };
        // Objects of custom resources also have metadata.
        if Struct::of(resource).is_none() {
            self.wanted.insert(OBJECT_META);
            let properties = crate::object::object_mut(&mut schema, "properties");
            properties.insert("metadata".to_owned(), reference(&struct_name(OBJECT_META)));
            for field in ["apiVersion", "kind"] {
                properties.insert(field.to_owned(), json!({"type": "string"}));
            }
        }
        schema["x-kubernetes-group-version-kind"] = json!([kind_of(resource)]);
        self.schemas.insert(name.clone(), schema);
        let base = base_path(&resource.group, &resource.version);
        let namespace_part = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{base}{namespace_part}/{}", resource.plural);
        self.paths.insert(collection.clone(), json!({"post": operation(resource, "post", &name)}));
        if !resource.ephemeral {
            let methods = ["get", "put", "patch", "delete"];
            let one: Map<String, Value> =
                methods.into_iter().map(|method| (method.to_owned(), operation(resource, method, &name))).collect();
            self.paths.insert(format!("{collection}/{{name}}"), one.into());
        }
    }

    /// Adds all schemas that are referred to, directly or indirectly.
    fn add_used_structs(&mut self) {
        while let Some(id) = self.wanted.pop_first() {
            let name = struct_name(id);
            if !self.schemas.contains_key(&name) {
                // A type may contain itself.
                self.schemas.insert(name.clone(), Value::Null);
                let schema = self.structure(Struct::named(id));
                self.schemas.insert(name, schema);
            }
        }
        self.schemas.insert(QUANTITY.to_owned(), json!({"oneOf": [{"type": "string"}, {"type": "number"}]}));
    }

    fn structure(&mut self, structure: &'static Struct) -> Value {
        let mut properties = Map::new();
        for field in structure.fields_in_order() {
            let schema = self.field(field);
            properties.insert(field.name.to_owned(), schema);
        }
        let mut schema = json!({"type": "object", "properties": properties});
        if structure.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        schema
    }

    fn field(&mut self, field: &'static Field) -> Value {
        let mut schema = self.value(&field.ty);
        let is_list = matches!(field.ty.kind, Kind::List(_));
        match &field.topology {
            Topology::Granular | Topology::AlwaysGranular => {}
            Topology::Atomic if is_list => schema["x-kubernetes-list-type"] = "atomic".into(),
            Topology::Atomic => schema["x-kubernetes-map-type"] = "atomic".into(),
            Topology::Set => schema["x-kubernetes-list-type"] = "set".into(),
            Topology::Keyed(keys) => {
                schema["x-kubernetes-list-type"] = "map".into();
                schema["x-kubernetes-list-map-keys"] = keys.as_slice().into();
            }
        }
        if field.patch.merge {
            schema["x-kubernetes-patch-strategy"] = "merge".into();
            if !field.patch.key.is_empty() {
                schema["x-kubernetes-patch-merge-key"] = field.patch.key.into();
            }
        }
        schema
    }

    fn value(&mut self, ty: &'static Type) -> Value {
        match &ty.kind {
            Kind::Text | Kind::Duration => json!({"type": "string"}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Int32 => json!({"type": "integer", "format": "int32"}),
            Kind::Int64 => json!({"type": "integer", "format": "int64"}),
            Kind::Quantity => reference(QUANTITY),
            Kind::Time | Kind::MicroTime => json!({"type": "string", "format": "date-time"}),
            Kind::IntOrString => json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            Kind::Bytes => json!({"type": "string", "format": "byte"}),
            Kind::Any => json!({"type": "object"}),
            Kind::List(element) => json!({"type": "array", "items": self.value(element)}),
            Kind::Map(element) => json!({"type": "object", "additionalProperties": self.value(element)}),
            Kind::Struct(Reference { id, .. }) => {
                self.wanted.insert(id);
                reference(&struct_name(id))
            }
        }
    }
}

/// Returns the schema of a custom resource in this version. The schema of CustomResourceDefinitions themselves allows
/// any field.
fn custom(state: &State, resource: &Resource) -> Value {
    let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    state.definition(resource).map_or_else(open, |definition| definition.schema.clone())
}

/// Returns a reference in `allOf`, because a `$ref` allows no other members next to it.
fn reference(name: &str) -> Value {
    json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]})
}

/// `core/v1.Pod` is `io.k8s.api.core.v1.Pod`.
fn struct_name(id: &str) -> String {
    let path = id.replace('/', ".");
    if id.starts_with("meta/") { format!("io.k8s.apimachinery.pkg.apis.{path}") } else { format!("io.k8s.api.{path}") }
}

/// Returns the schema's name. The name of a custom resource's schema has the parts of the group in reverse order.
fn schema_name(resource: &Resource) -> String {
    if let Some(id) = Struct::id_of(resource) {
        return struct_name(id);
    }
    let group: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{}", group.join("."), resource.version, resource.kind)
}

fn kind_of(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

fn operation(resource: &Resource, method: &str, schema: &str) -> Value {
    let texts: &[&str] = match method {
        "get" => &[],
        "delete" => &["dryRun", "propagationPolicy"],
        _ => &["dryRun", "fieldManager", "fieldValidation"],
    };
    let query =
        |name: &str, ty: &str| json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}});
    let mut parameters: Vec<Value> = texts.iter().map(|name| query(name, "string")).collect();
    if method == "patch" {
        parameters.push(query("force", "boolean"));
    }
    let answer = json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}});
    let mut operation = json!({
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": answer}},
        "x-kubernetes-action": method,
        "x-kubernetes-group-version-kind": kind_of(resource),
    });
    let body = match method {
        "patch" => patches(resource),
        "post" | "put" => answer,
        _ => return operation,
    };
    operation["requestBody"] = json!({"content": body, "required": true});
    operation
}

/// Returns the patch types of a resource. Strategic merge needs the merge keys, which only some schemas have.
fn patches(resource: &Resource) -> Value {
    let mut kinds = OF_ALL_RESOURCES.to_vec();
    if Struct::of(resource).is_some() {
        kinds.push("application/strategic-merge-patch+json");
    }
    kinds.into_iter().map(|kind| (kind.to_owned(), json!({"schema": {"type": "object"}}))).collect::<Map<_, _>>().into()
}
