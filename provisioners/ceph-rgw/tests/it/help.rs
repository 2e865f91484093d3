//! What `--help` and `rbac` say is a promise: a change of it is a change of this file's snapshots.

use std::process::Command;

fn said(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ceph-rgw-provisioner")).args(arguments).env_clear().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn help_says_every_option_with_its_default_and_unit() {
    insta::assert_snapshot!(said(&["--help"]).1);
}

#[test]
fn rbac_grants_no_more_than_is_needed() {
    let name = ["--provisioner-name", "rook-ceph.ceph.rook.io/bucket", "--namespace", "rook-ceph"];
    insta::assert_snapshot!(said(&[&["rbac"], &name[..]].concat()).1);
}

#[test]
fn wrong_arguments_are_one_clear_line_first() {
    for (arguments, says) in [
        (&[][..], "--provisioner-name"),
        (&["--provisioner-name", "Upper/case"], "lower case"),
        (&["check-class", "/no/such/file"], "cannot read"),
    ] {
        let (success, text) = said(arguments);
        assert!(!success && text.contains(says), "{says}: {text}");
    }
}
