//! What `--help` and `rbac` say is a promise: a change of it is a change of this file's snapshots.

use std::process::Command;

fn said(arguments: &[&str]) -> (bool, String) {
    said_with(arguments, &[])
}

fn said_with(arguments: &[&str], environment: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gcs-provisioner"));
    let output = command.args(arguments).env_clear().envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn help_says_every_option_with_its_default_and_unit() {
    insta::assert_snapshot!(said(&["--help"]).1);
}

#[test]
fn rbac_grants_no_more_than_is_needed() {
    let name = ["--provisioner-name", "gcs.example.com/bucket", "--namespace", "gcs"];
    insta::assert_snapshot!(said(&[&["rbac"], &name[..]].concat()).1);
}

#[test]
fn credentials_are_of_one_kind() {
    let both = ["--provisioner-name", "gcs.example.com/bucket", "--workload-identity", "--credentials-file", "x"];
    let (success, text) = said(&both);
    assert!(!success && text.contains("cannot be used with"), "{text}");
}

#[test]
fn a_proxy_that_cannot_be_used_ends_the_program() {
    for variable in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY"] {
        let environment = [(variable, "socks5://user:secret@proxy.example.com")];
        let (success, text) = said_with(&["--provisioner-name", "gcs.example.com/bucket"], &environment);
        let says = format!("{} is no address of a proxy", variable.to_uppercase());
        assert!(!success && text.contains(&says) && !text.contains("secret"), "{text}");
    }
}
