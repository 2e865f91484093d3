//! Child processes that end with their owner, however the owner ends.
//!
//! A program is started as `<guard> guard --parent <pid> -- <program> <arguments>`. The guard asks the kernel for a
//! kill signal when its parent ends, and then becomes the program. Therefore no child outlives a run that was
//! interrupted, crashed or killed. The guard is the `xtask` binary because a library would need unsafe code for this.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal, setsid};

/// The lifetime of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The program is killed as soon as the process that started it ends.
    WithOwner,
    /// The program runs in a separate session until it is stopped.
    Detached,
}

/// The program that starts others under a [`Lifetime`].
#[derive(Clone, Debug)]
pub struct Guard {
    exe: PathBuf,
}

impl Guard {
    /// `exe` must call [`become_program`] for `guard --parent <pid> [--detach] -- <program> <arguments>`.
    pub fn new(exe: impl Into<PathBuf>) -> Self {
        Self { exe: exe.into() }
    }

    /// The guard's binary.
    pub fn exe(&self) -> &Path {
        &self.exe
    }

    /// A command that runs `program`; add its arguments, environment and output, then [`spawn`] it.
    ///
    /// Its standard input is empty, and it has a separate process group, so that Ctrl-C in the terminal reaches only
    /// its owner.
    pub fn command(&self, lifetime: Lifetime, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.exe);
        command.arg("guard");
        command.arg("--parent").arg(std::process::id().to_string());
        match lifetime {
            Lifetime::WithOwner => command.process_group(0),
            // The guard starts a session, which the leader of a process group cannot do.
            Lifetime::Detached => command.arg("--detach"),
        };
        command.arg("--").arg(program).stdin(Stdio::null());
        command
    }
}

/// Starts a command from a thread that lives as long as this process.
///
/// The kernel sends the death signal when the *thread* that started the child ends, and the thread of a test or of a
/// runtime can end long before the process.
pub fn spawn(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::SyncSender<io::Result<Child>>);
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();

    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in jobs {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (answer, child) = mpsc::sync_channel(1);
    let gone = || io::Error::other("the thread that starts programs has ended");
    spawner.lock().map_err(|_| gone())?.send((command, answer)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// A child that is killed on drop, together with the processes in its process group.
pub struct Running(Child);

impl Running {
    /// [`spawn`]s the command.
    pub fn start(command: Command) -> io::Result<Self> {
        spawn(command).map(Self)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The output, if the command requested a pipe and the output has not been taken yet.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// The exit status, if the child has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Waits for the child's end.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Kill the group before reaping its leader: afterwards its number may be reused.
        if let (Ok(None), Some(pid)) = (self.0.try_wait(), i32::try_from(self.0.id()).ok().and_then(Pid::from_raw)) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Becomes `program`, on behalf of the guard. Returns only on failure.
pub fn become_program(parent: u32, lifetime: Lifetime, program: &OsStr, arguments: &[OsString]) -> io::Error {
    if let Err(error) = prepare(parent, lifetime) {
        return error;
    }
    Command::new(program).args(arguments).exec()
}

fn prepare(parent: u32, lifetime: Lifetime) -> io::Result<()> {
    if lifetime == Lifetime::Detached {
        setsid()?;
        return Ok(());
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The owner may have ended before the signal was requested.
    let actual = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    if actual != parent {
        return Err(io::Error::other("the process that started this one has ended"));
    }
    Ok(())
}
