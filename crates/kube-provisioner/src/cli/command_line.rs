//! Runs a provisioner's program as a user does, for tests.

use std::process::Command;

/// A compiled provisioner, for tests of its command line. It runs with an empty environment.
///
/// ```no_run
/// # macro_rules! binary { () => { "" } }
/// use kube_provisioner::CommandLine;
///
/// // env!("CARGO_BIN_EXE_my-provisioner") in an integration test.
/// const PROGRAM: CommandLine = CommandLine::of(binary!());
///
/// let (success, help) = PROGRAM.run(&["--help"]);
/// assert!(success && help.contains("--provisioner-name"));
/// PROGRAM.refuses(&[(&["--provisioner-name", "Upper/case"], "lower case")]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CommandLine(&'static str);

impl CommandLine {
    /// Creates a handle for the program at this path.
    pub const fn of(program: &'static str) -> Self {
        Self(program)
    }

    /// Runs the program. Returns true if it succeeded, and its output on stdout followed by stderr.
    ///
    /// # Panics
    /// If the program cannot be started, or does not print UTF-8.
    pub fn run(&self, arguments: &[&str]) -> (bool, String) {
        self.run_with(arguments, &[])
    }

    /// Runs the program with these environment variables, like [`run`](Self::run).
    ///
    /// # Panics
    /// If the program cannot be started, or does not print UTF-8.
    pub fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> (bool, String) {
        let mut command = Command::new(self.0);
        let output = command.args(arguments).env_clear().envs(environment.iter().copied()).output();
        let output = output.expect("the program starts");
        let text = String::from_utf8(output.stdout).expect("UTF-8") + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    /// Checks that the program fails with each of these arguments, and prints the corresponding text.
    ///
    /// # Panics
    /// If it does not.
    pub fn refuses(&self, cases: &[(&[&str], &str)]) {
        for (arguments, says) in cases {
            let (success, text) = self.run(arguments);
            assert!(!success && text.contains(says), "{says}: {text}");
        }
    }

    /// Checks that the program rejects arguments that no provisioner accepts.
    ///
    /// # Panics
    /// If it does not.
    pub fn refuses_wrong_arguments(&self) {
        self.refuses(&[
            (&[], "--provisioner-name"),
            (&["--provisioner-name", "Upper/case"], "lower case"),
            (&["check-class", "/no/such/file"], "cannot read"),
        ]);
    }
}
