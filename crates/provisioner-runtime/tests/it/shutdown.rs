//! Signals affect a whole process, so the test sends them to a child process.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn the_first_signal_cancels_and_the_second_ends_the_process() {
    // Cargo builds the examples with the tests, in a folder next to the folder of the test binaries.
    let programs = std::env::current_exe().unwrap();
    let program = programs.parent().unwrap().parent().unwrap().join("examples/wait_for_signal");
    assert!(program.exists(), "run `cargo test` without `--test`, so that it builds the examples");
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let mut child = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let kill = || Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        wait_for(&mut lines, "ready");
        assert!(kill().success());
        wait_for(&mut lines, "cancelled");
        assert!(kill().success());
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}

fn wait_for(lines: &mut impl Iterator<Item = io::Result<String>>, text: &str) {
    assert!(lines.any(|line| line.unwrap().contains(text)), "{text}");
}
