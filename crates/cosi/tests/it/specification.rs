//! The messages, enums and services are those of the `.proto` files in `tests/spec`: names, numbers, types, labels and oneofs.

#[path = "../../../driver-rpc/tests/spec/mod.rs"]
mod spec;

use self::spec::{Types, differences, ours, proto};

#[test]
fn v1alpha1_is_that_of_the_specification() {
    let mut theirs = proto::read(include_str!("../spec/v1alpha1.proto"));
    // The specification marks nothing as secret.
    mark(&mut theirs.types, "credentialdetails", "secrets = 1 map");
    let ours = ours::types(&[include_str!("../../src/v1alpha1/messages.rs")]);
    let wrong = differences(&theirs.types, &ours);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(ours::methods(include_str!("../../src/v1alpha1.rs")), theirs.methods);
    assert_eq!((ours.len(), theirs.methods.len()), (18, 5));
}

#[test]
fn v1alpha2_is_that_of_the_specification() {
    let theirs = proto::read(include_str!("../spec/v1alpha2.proto"));
    let messages =
        [include_str!("../../src/v1alpha2/messages.rs"), include_str!("../../src/v1alpha2/messages/info.rs")];
    let mut ours = ours::types(&messages);
    let wrong = differences(&theirs.types, &ours);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(ours::methods(include_str!("../../src/v1alpha2.rs")), theirs.methods);
    assert_eq!((ours.len(), theirs.methods.len()), (31, 6));

    // The comparison can fail: a wrong number is two lines, a message of one field that is not there is two.
    for line in ours.get_mut("drivercreatebucketrequest").unwrap() {
        *line = line.replace("parameters = 4 ", "parameters = 3 ");
    }
    ours.remove("azurebucketinfo");
    assert_eq!(differences(&theirs.types, &ours).len(), 4);
}

fn mark(types: &mut Types, name: &str, field: &str) {
    let fields = types.get_mut(name).unwrap();
    let line = fields.iter_mut().find(|line| *line == field).unwrap();
    line.push_str(" secret");
}
