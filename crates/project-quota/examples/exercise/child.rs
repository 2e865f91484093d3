//! Runs this binary again with fewer privileges.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child as Process, ChildStdout, Command, Stdio};
use std::time::Duration;

use project_quota::{ProjectId, ProjectQuota, QuotaError};

/// The identity of a child process: a prefix of the command line.
pub(crate) struct Child(Vec<&'static str>);

impl Child {
    /// Root with all capabilities, like this process.
    pub(crate) fn root() -> Self {
        Self(vec![])
    }

    /// A user in a pod, without capabilities.
    pub(crate) fn user() -> Self {
        Self(vec!["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--no-new-privs"])
    }

    /// Root with these capabilities, in the syntax of `setpriv --bounding-set`.
    pub(crate) fn root_with(bounding: &'static str) -> Self {
        Self(vec!["setpriv", bounding, "--inh-caps=-all"])
    }

    /// Root with all capabilities in its own user namespace.
    pub(crate) fn namespaced_root() -> Self {
        Self(vec!["unshare", "--user", "--map-root-user"])
    }

    /// Runs the binary and returns its output.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let mut program = self.start(arguments);
        let mut output = String::new();
        program.output.read_to_string(&mut output).unwrap();
        program.end();
        output
    }

    /// Starts the binary.
    pub(crate) fn start(&self, arguments: &[&str]) -> Started {
        let program = std::env::current_exe().unwrap();
        let mut line = self.0.iter().copied().chain([program.to_str().unwrap()]).chain(arguments.iter().copied());
        let mut command = Command::new(line.next().unwrap());
        let mut process = command.args(line).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Started { process, output }
    }

    /// Returns true if another command succeeds.
    pub(crate) fn succeeds(&self, command: &[&str]) -> bool {
        let line: Vec<&str> = self.0.iter().chain(command).copied().collect();
        Command::new(line[0]).args(&line[1..]).stderr(Stdio::null()).status().unwrap().success()
    }
}

/// A running child process.
pub(crate) struct Started {
    process: Process,
    output: BufReader<ChildStdout>,
}

impl Started {
    /// Returns the next line of output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Waits until the process has exited, and checks that it succeeded.
    pub(crate) fn end(mut self) {
        assert!(self.process.wait().unwrap().success());
    }
}

/// Runs the child process.
pub(crate) fn main(arguments: &[&str]) {
    match *arguments {
        [command @ ("write" | "write-patiently"), path, bytes] => {
            let (written, result) = write(path, bytes.parse().unwrap(), command == "write-patiently");
            println!("{written} {result}");
        }
        ["manage", path, id] => println!("{}", manage(path, id.parse().unwrap())),
        _ => panic!("usage: exercise all xfs|ext4 MOUNT_POINT DEVICE"),
    }
}

/// Appends in small pieces. A patient writer prints "full" once, and retries until there is room.
fn write(path: &str, bytes: u64, patient: bool) -> (u64, String) {
    // XFS refuses to create the file when the limit is reached.
    let mut file = match File::options().append(true).create(true).open(path) {
        Ok(file) => file,
        Err(error) => return (0, name_of(&error)),
    };
    let mut written = 0;
    let mut told = false;
    while written < bytes {
        match file.write(&[7; 4096]) {
            Ok(count) => written += count as u64,
            Err(_) if patient => {
                if !told {
                    println!("full");
                }
                told = true;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return (written, name_of(&error)),
        }
    }
    match file.sync_all() {
        Ok(()) => (written, "ok".to_owned()),
        Err(error) => (written, format!("{} when synced", name_of(&error))),
    }
}

/// Performs all operations of a provisioner; returns the step that was refused.
fn manage(path: &str, id: u32) -> String {
    let directory = File::open(path).unwrap();
    let id = ProjectId::new(id).unwrap();
    let managed = || -> Result<bool, QuotaError> {
        let Some(quota) = ProjectQuota::of(&directory)? else { return Ok(false) };
        quota.set_limit(id, 1 << 20)?;
        quota.assign(&directory, id)?;
        assert_eq!(quota.project_of(&directory)?, Some(id));
        quota.usage(id)?;
        quota.remove_limit(id)?;
        Ok(true)
    };
    match managed() {
        Ok(true) => "managed".to_owned(),
        Ok(false) => "no quotas".to_owned(),
        Err(QuotaError::NotAllowed { doing }) => format!("not allowed: {doing}"),
        Err(error) => error.to_string(),
    }
}

fn name_of(error: &std::io::Error) -> String {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => "ENOSPC".to_owned(),
        Some(Errno::DQUOT) => "EDQUOT".to_owned(),
        _ => error.to_string(),
    }
}
