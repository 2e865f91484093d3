//! The files in `src/generated` are generated from the `.proto` files in `tests/spec`. With `UPDATE_MESSAGES=1`, the
//! test updates them.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use prost_build::{Config, Method, Module, Service, ServiceGenerator};
use protox::Compiler;
use protox::prost_reflect::prost_types::DescriptorProto;
use protox::prost_reflect::{DescriptorPool, FieldDescriptor, Kind};

/// The specifications, and the package of each.
pub(crate) const SPECIFICATIONS: [(&str, &str); 3] = [
    ("csi.proto", "csi.v1"),
    ("cosi-v1alpha1.proto", "cosi.v1alpha1"),
    ("cosi-v1alpha2.proto", "sigs.k8s.io.cosi.v1alpha2"),
];

/// Parts of CSI that provisioners do not need.
const LEFT_OUT: [&str; 6] =
    ["Health", "GroupSnapshot", "GroupController", "SnapshotMetadata", "GetMetadata", "StorageBackend"];

/// Messages that hide their content, although the specification marks none of their fields as secret.
const HIDDEN: [&str; 4] = [
    "sigs.k8s.io.cosi.v1alpha2.S3CredentialInfo",
    "sigs.k8s.io.cosi.v1alpha2.AzureCredentialInfo",
    "sigs.k8s.io.cosi.v1alpha2.GcsCredentialInfo",
    "sigs.k8s.io.cosi.v1alpha2.DriverGrantBucketAccessResponse.BucketInfo",
];

/// Serializes messages to JSON, with JSON names and without empty fields.
const SERDE: &str = r#"#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase", default))]"#;
const SERDE_ONEOF: &str =
    r#"#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]"#;
const SERDE_FLAT: &str = r#"#[cfg_attr(feature = "serde", serde(flatten))]"#;
const SERDE_FIELD: &str = r#"#[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::csi::is_empty"))]"#;
const SERDE_TIME: &str = r#"#[cfg_attr(feature = "serde", serde(with = "crate::csi::recording::time"))]"#;

#[test]
fn generated_files_are_up_to_date() {
    for (file, package) in SPECIFICATIONS {
        let path = Path::new("src/generated").join(format!("{package}.rs"));
        let code = generate(file, package);
        if std::env::var_os("UPDATE_MESSAGES").is_some() {
            fs::write(&path, &code).unwrap();
        }
        assert!(
            fs::read_to_string(&path).unwrap_or_default() == code,
            "{} is old; run the test with UPDATE_MESSAGES=1",
            path.display()
        );
    }
}

pub(crate) fn read(file: &str) -> DescriptorPool {
    let mut compiler = Compiler::new(["tests/spec"]).unwrap();
    compiler.include_imports(true).open_file(file).unwrap().descriptor_pool()
}

pub(crate) fn is_left_out(name: &str) -> bool {
    LEFT_OUT.iter().any(|part| name.contains(part)) || name.starts_with("BlockMetadata")
}

/// Returns true if the field is marked as secret, or if this crate treats it as secret.
pub(crate) fn is_secret(field: &FieldDescriptor) -> bool {
    let options = field.options();
    let is_marked =
        options.extensions().any(|(mark, value)| mark.name() == "csi_secret" && value.as_bool() == Some(true));
    is_marked || field.full_name() == "cosi.v1alpha1.CredentialDetails.secrets"
}

/// Returns true if the message's `Debug` hides this field.
pub(crate) fn is_hidden(field: &FieldDescriptor) -> bool {
    is_secret(field) || field.name() != "bucket_id" && HIDDEN.contains(&field.parent_message().full_name())
}

fn generate(file: &str, package: &str) -> String {
    let pool = read(file);
    let mut file = pool.get_file_by_name(file).unwrap().file_descriptor_proto().clone();
    // Remove comments, which are stored by the numbers of the messages in the file.
    file.source_code_info = None;
    file.message_type.retain(|message| !is_left_out(message.name()));
    file.enum_type.retain(|kind| !is_left_out(kind.name()));
    file.service.retain(|service| !is_left_out(service.name()));
    for service in &mut file.service {
        service.method.retain(|method| !is_left_out(method.name()));
    }

    let mut config = Config::new();
    config.btree_map(["."]).service_generator(Box::new(Services(pool.clone())));
    config.skip_debug(HIDDEN.map(|name| format!(".{name}")));
    for message in &mut file.message_type {
        let described = pool.get_message_by_name(&format!("{package}.{}", message.name())).unwrap();
        for secret in described.fields().filter(is_secret) {
            // prost's `Debug` of a map shows everything. On the wire, a map is a list of entries.
            let Kind::Message(entry) = secret.kind() else { panic!("{secret:?} is not a map") };
            config.extern_path(format!(".{}", entry.full_name()), "crate::secrets::Entry");
            message.nested_type.retain(|nested| nested.name() != entry.name());
        }
    }
    if package == "csi.v1" {
        config.message_attribute(".", SERDE);
        file.message_type.iter().for_each(|message| add_serde(&mut config, message, package));
    }
    let module = Module::from_protobuf_package_name(package);
    let imported = pool.file_descriptor_protos().filter(|other| other.package() != package).cloned();
    let files = imported.chain([file]).map(|file| (Module::from_protobuf_package_name(file.package()), file));
    let code = config.generate(files.collect()).unwrap().remove(&module).unwrap();
    code.replace("::prost::alloc::vec::Vec<crate::secrets::Entry>", "crate::Secrets")
}

/// Adds the serde attributes to the fields in this message and its nested messages.
fn add_serde(config: &mut Config, message: &DescriptorProto, parent: &str) {
    let path = format!("{parent}.{}", message.name());
    for field in message.field.iter().filter(|field| field.oneof_index.is_none()) {
        let path = format!(".{path}.{}", field.name());
        config.field_attribute(&path, SERDE_FIELD);
        if field.type_name() == ".google.protobuf.Timestamp" {
            config.field_attribute(&path, SERDE_TIME);
        }
    }
    for oneof in &message.oneof_decl {
        // With a leading dot, the path would also match the variants.
        let path = format!("{path}.{}", oneof.name());
        config
            .field_attribute(&path, SERDE_FIELD)
            .field_attribute(&path, SERDE_FLAT)
            .enum_attribute(&path, SERDE_ONEOF);
    }
    message.nested_type.iter().for_each(|nested| add_serde(config, nested, &path));
}

/// Writes the services for the macro `service!`. The messages are in the pool.
struct Services(DescriptorPool);

impl ServiceGenerator for Services {
    fn generate(&mut self, service: Service, code: &mut String) {
        let Service { name, package, methods, .. } = service;
        let serve = format!("serve_{}", name.to_lowercase());
        writeln!(code, "service! {{ {name}, {serve} in {package:?} {{").unwrap();
        for Method { proto_name, name, input_type, output_type, input_proto_type, .. } in methods {
            let request = self.0.get_message_by_name(input_proto_type.trim_start_matches('.')).unwrap();
            let secret = request.fields().find(is_secret);
            let secret = secret.map(|field| format!(" has {}", field.name())).unwrap_or_default();
            writeln!(code, "{proto_name} {name}({input_type}) -> {output_type}{secret};").unwrap();
        }
        code.push_str("} }\n");
    }
}
