//! A snapshot of `--help`, which users rely on.

use kube_provisioner::CommandLine;

const PROGRAM: CommandLine = CommandLine::of(env!("CARGO_BIN_EXE_garage-provisioner"));

#[test]
fn help_says_every_option_with_its_default_and_unit() {
    insta::assert_snapshot!(PROGRAM.run(&["--help"]).1);
}

#[test]
fn wrong_arguments_are_one_clear_line_first() {
    PROGRAM.refuses_wrong_arguments();
}
