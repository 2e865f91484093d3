//! The messages, enums and services are those of `tests/spec/csi.proto`: names, numbers, types, labels, oneofs and marks of secrets.

#[path = "../../../driver-rpc/tests/spec/mod.rs"]
mod spec;

use self::spec::{Types, differences, ours, proto};

const MESSAGES: [&str; 6] = [
    include_str!("../../src/messages/controller.rs"),
    include_str!("../../src/messages/identity.rs"),
    include_str!("../../src/messages/node.rs"),
    include_str!("../../src/messages/publish.rs"),
    include_str!("../../src/messages/snapshot.rs"),
    include_str!("../../src/messages/volume.rs"),
];

/// What a provisioner does not need. Anything else in the specification must be here.
const LEFT_OUT: [&str; 6] = ["health", "metadata", "groupsnapshot", "groupcontroller", "getmetadata", "storagebackend"];

#[test]
fn messages_and_enums_are_those_of_the_specification() {
    let theirs = proto::read(include_str!("../spec/csi.proto"));
    let mut ours = ours::types(&MESSAGES);
    let mut wrong = differences(&needed(theirs.types), &ours);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // The comparison can fail: a wrong number and an unmarked secret are two lines each, a message of five fields that is not there is six.
    let theirs = needed(proto::read(include_str!("../spec/csi.proto")).types);
    let request = ours.get_mut("createvolumerequest").unwrap();
    for line in request.iter_mut() {
        *line = line.replace("name = 1 ", "name = 9 ").replace(" secret", "");
    }
    ours.remove("volume");
    wrong = differences(&theirs, &ours);
    assert_eq!(wrong.len(), 10, "{}", wrong.join("\n"));
}

#[test]
fn services_are_those_of_the_specification() {
    let theirs = proto::read(include_str!("../spec/csi.proto")).methods;
    let theirs: Vec<String> = theirs.into_iter().filter(|method| !left_out(method)).collect();
    assert_eq!(ours::methods(include_str!("../../src/services.rs")), theirs);
}

fn needed(types: Types) -> Types {
    types.into_iter().filter(|(name, _)| !left_out(name)).collect()
}

fn left_out(name: &str) -> bool {
    let name = name.to_lowercase();
    LEFT_OUT.iter().any(|part| name.contains(part)) || name.starts_with("blockmetadata")
}
