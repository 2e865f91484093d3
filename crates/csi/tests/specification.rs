//! The messages, enums and services are those of `tests/spec/csi.proto`: names, numbers, types, labels, oneofs and marks of secrets.

mod spec;

use std::collections::BTreeMap;

use self::spec::{ours, proto};

/// What a provisioner does not need. Anything else in the specification must be here.
const LEFT_OUT: [&str; 6] = ["health", "metadata", "groupsnapshot", "groupcontroller", "getmetadata", "storagebackend"];

#[test]
fn messages_and_enums_are_those_of_the_specification() {
    let theirs = proto::read(include_str!("spec/csi.proto"));
    let mut ours = ours::types();
    let mut wrong = differences(&needed(theirs.types), &ours);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // The comparison can fail: a wrong number and an unmarked secret are two lines each, a message of five fields that is not there is six.
    let theirs = needed(proto::read(include_str!("spec/csi.proto")).types);
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
    let theirs = proto::read(include_str!("spec/csi.proto")).methods;
    let theirs: Vec<String> = theirs.into_iter().filter(|method| !left_out(method)).collect();
    assert_eq!(ours::methods(), theirs);
}

type Types = BTreeMap<String, Vec<String>>;

fn needed(types: Types) -> Types {
    types.into_iter().filter(|(name, _)| !left_out(name)).collect()
}

fn left_out(name: &str) -> bool {
    let name = name.to_lowercase();
    LEFT_OUT.iter().any(|part| name.contains(part)) || name.starts_with("blockmetadata")
}

/// Each line that only one side has.
fn differences(theirs: &Types, ours: &Types) -> Vec<String> {
    let lines = |types: &Types| -> Vec<String> {
        types
            .iter()
            .flat_map(|(name, lines)| {
                [name.clone()].into_iter().chain(lines.iter().map(move |line| format!("{name}: {line}")))
            })
            .collect()
    };
    let (theirs, ours) = (lines(theirs), lines(ours));
    let only = |side: &str, these: &[String], others: &[String]| -> Vec<String> {
        these.iter().filter(|line| !others.contains(line)).map(|line| format!("only {side}: {line}")).collect()
    };
    [only("in the specification", &theirs, &ours), only("here", &ours, &theirs)].concat()
}
