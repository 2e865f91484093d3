//! Guarantees the output of `--help` and `rbac`: each change to it requires a change to the snapshots.

use kube_provisioner::CommandLine;

const PROGRAM: CommandLine = CommandLine::of(env!("CARGO_BIN_EXE_aws-s3-provisioner"));

#[test]
fn help_says_every_option_with_its_default_and_unit() {
    insta::assert_snapshot!(PROGRAM.run(&["--help"]).1);
}

#[test]
fn rbac_grants_no_more_than_is_needed() {
    let rbac = ["rbac", "--provisioner-name", "aws-s3.io/bucket", "--namespace", "s3"];
    insta::assert_snapshot!(PROGRAM.run(&rbac).1);
}

#[test]
fn wrong_arguments_are_one_clear_line_first() {
    PROGRAM.refuses_wrong_arguments();
}
