//! Configures, starts and supervises NFS-Ganesha as a child process with a separate bus.

mod config;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::{RwLock, RwLockReadGuard, watch};
use tokio::time::{Instant, sleep, timeout};

use super::dbus::{Bus, BusError};
use super::disk::{self, DiskLock};
use super::export::{Export, ExportOptions, is_plain};
use super::export_table::ExportTable;

/// Maximum time for the server's start, which takes seconds if there are many exports.
const START: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
/// Delay before a restart of the server. It doubles until the server has run for some time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
const STABLE: Duration = Duration::from_secs(60);

/// The settings of the server.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) program: PathBuf,
    pub(crate) runtime: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) port: u16,
    pub(crate) address: IpAddr,
    pub(crate) grace_period: u16,
    pub(crate) export_options: ExportOptions,
}

/// An NFS server that serves the exports.
pub(crate) trait Exporter: Send + Sync + 'static {
    /// Starts to serve the exports in the table. Later calls have no effect.
    fn start(self: &Arc<Self>, table: &ExportTable);

    /// Prevents a restart of the server while the guard is held, so that the export table and the server change
    /// together.
    fn block_restart(&self) -> impl Future<Output = RwLockReadGuard<'_, ()>> + Send;

    /// Serves an export in the table. Succeeds if the server already serves it.
    fn add(&self, export: &Export) -> impl Future<Output = Result<(), ExportError>> + Send;

    /// Stops serving an export. Succeeds if the server does not serve it.
    fn remove(&self, export: &Export) -> impl Future<Output = Result<(), ExportError>> + Send;

    /// Waits until the server runs.
    fn ready(&self) -> impl Future<Output = Result<(), ExportError>> + Send;
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("the NFS server is not running: {0}; it restarts automatically, see its log")]
    Down(String),
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("cannot write the configuration of the NFS server: {0}")]
    Configuration(io::Error),
    #[error(
        "the NFS server refused the export; its log has the reason, and if that is `Operation not permitted` when it \
         opens a handle, the container's seccomp profile forbids name_to_handle_at (deploy/nfs/README.md): {0}"
    )]
    Refused(String),
    #[error(
        "the NFS server does not serve {0}, although it accepted the export: it needs the capability DAC_READ_SEARCH, and a file \
         system that can be exported (not overlayfs)"
    )]
    Absent(String),
}

#[derive(Clone, Debug)]
enum State {
    New,
    Starting,
    Up,
    Down(String),
}

/// NFS-Ganesha and its bus.
#[derive(Debug)]
pub(crate) struct Ganesha {
    settings: Settings,
    _disk: DiskLock,
    bus: Bus,
    state: watch::Sender<State>,
    /// Locked for writing while the server starts and reads the export table.
    gate: RwLock<()>,
}

impl Ganesha {
    pub(crate) fn new(settings: Settings, disk: DiskLock) -> Result<Self, String> {
        for path in [&settings.root, &settings.runtime] {
            if !is_plain(path) {
                return Err(format!(
                    "{} cannot be in the configuration of the NFS server: choose a path of letters, digits, `.`, `_`, `-`",
                    path.display()
                ));
            }
        }
        let bus = Bus::new(&settings.runtime);
        Ok(Self { settings, _disk: disk, bus, state: watch::Sender::new(State::New), gate: RwLock::new(()) })
    }

    /// Runs the server forever.
    async fn supervise(&self, table: &ExportTable) {
        let mut pause = FIRST_PAUSE;
        loop {
            let since = Instant::now();
            let why = match self.start_children(table).await {
                Ok(children) => {
                    self.state.send_replace(State::Up);
                    tracing::info!("the NFS server is ready");
                    children.wait_and_kill().await
                }
                Err(why) => why,
            };
            if since.elapsed() > STABLE {
                pause = FIRST_PAUSE;
            }
            tracing::warn!("the NFS server is not running: {why}; it restarts in {} s", pause.as_secs());
            self.state.send_replace(State::Down(why));
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Starts the bus and the server, and waits until the server answers.
    async fn start_children(&self, table: &ExportTable) -> Result<Children, String> {
        let _gate = self.gate.write().await;
        let Settings { runtime, program, .. } = &self.settings;
        let written = config::write(&self.settings, &self.bus, table).map_err(|error| error.to_string())?;
        written.left_out.iter().for_each(|left_out| tracing::error!("not exported: {left_out}"));
        for name in [config::GANESHA_PID, config::BUS_PID] {
            end_leftover(&runtime.join(name), runtime).await;
        }
        let lock =
            disk::try_lock(&config::recovery(&self.settings)).map_err(|error| format!("cannot lock: {error}"))?;
        let lock = lock.ok_or("a server that another replica has left behind still uses the disk")?;
        let _ = fs::remove_file(self.bus.socket());
        let mut bus = Command::new("dbus-daemon");
        bus.arg(format!("--config-file={}", runtime.join(config::BUS_CONFIG).display()));
        bus.args(["--nofork", "--nopidfile", "--nosyslog"]);
        let bus = spawn_child(&mut bus, Stdio::null()).map_err(|error| format!("cannot run dbus-daemon: {error}"))?;
        let pid = bus.id().map(|id| id.to_string()).unwrap_or_default();
        fs::write(runtime.join(config::BUS_PID), pid).map_err(|error| error.to_string())?;
        wait_until(|| self.bus.socket().exists()).await.ok_or("dbus-daemon does not answer")?;
        let mut server = Command::new(program);
        let (variable, address) = self.bus.variable();
        server.env(variable, address).args(["-F", "-L", "STDERR", "-N", "NIV_EVENT"]);
        server.arg("-f").arg(runtime.join(config::CONFIG)).arg("-p").arg(runtime.join(config::GANESHA_PID));
        let server = spawn_child(&mut server, lock.into())
            .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        let mut children = Children { bus, server };
        let answers = async {
            while !self.bus.is_answering().await {
                sleep(POLL).await;
            }
        };
        tokio::select! {
            biased;
            why = children.wait() => Err(why),
            answered = timeout(START, answers) => match answered {
                Ok(()) => {
                    self.catch_up(table, &written.exports).await;
                    Ok(children)
                }
                Err(_) => Err(format!("it did not answer within {} s", START.as_secs())),
            },
        }
    }

    /// Applies the changes that commands have made to the table since the configuration was written. They do not reach
    /// a server that is starting.
    async fn catch_up(&self, table: &ExportTable, written: &[Export]) {
        let Settings { runtime, root, export_options, .. } = &self.settings;
        let exports = match table.entries() {
            Ok(entries) => entries.exports,
            Err(error) => return tracing::error!("recent changes of exports are not served: {error}"),
        };
        for export in missing(&exports, written) {
            if let Err(error) = self.bus.remove(export.id).await {
                tracing::error!("still exported: {}: {error}", export.path);
            }
        }
        for export in missing(written, &exports).into_iter().filter(|export| config::has_directory(root, export)) {
            if let Err(error) = add_export(runtime, root, export_options, &self.bus, export).await {
                tracing::error!("not exported: {}: {error}", export.path);
            }
        }
    }

    fn check_up(&self) -> Result<(), ExportError> {
        match &*self.state.borrow() {
            State::Up => Ok(()),
            State::Down(why) => Err(ExportError::Down(why.clone())),
            State::New | State::Starting => Err(ExportError::Down("it starts".to_owned())),
        }
    }
}

impl Exporter for Ganesha {
    fn start(self: &Arc<Self>, table: &ExportTable) {
        let is_first = self.state.send_if_modified(|state| {
            let is_new = matches!(state, State::New);
            *state = if is_new { State::Starting } else { state.clone() };
            is_new
        });
        if is_first {
            let (server, table) = (self.clone(), table.clone());
            tokio::spawn(async move { server.supervise(&table).await });
        }
    }

    async fn block_restart(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().await
    }

    async fn add(&self, export: &Export) -> Result<(), ExportError> {
        self.check_up()?;
        let Settings { runtime, root, export_options, .. } = &self.settings;
        add_export(runtime, root, export_options, &self.bus, export).await
    }

    async fn remove(&self, export: &Export) -> Result<(), ExportError> {
        // A server that is not running serves no exports, and it reads the export table when it starts.
        if self.check_up().is_err() {
            return Ok(());
        }
        Ok(self.bus.remove(export.id).await?)
    }

    async fn ready(&self) -> Result<(), ExportError> {
        let mut state = self.state.subscribe();
        let _ = timeout(START, state.wait_for(|state| matches!(state, State::Up | State::Down(_)))).await;
        self.check_up()
    }
}

/// Returns the exports that `all` does not contain.
fn missing<'a>(all: &[Export], exports: &'a [Export]) -> Vec<&'a Export> {
    let all: BTreeSet<&Export> = all.iter().collect();
    exports.iter().filter(|export| !all.contains(export)).collect()
}

/// Adds an export to the running server, and verifies that the server serves it.
async fn add_export(
    runtime: &Path,
    root: &Path,
    export_options: &ExportOptions,
    bus: &Bus,
    export: &Export,
) -> Result<(), ExportError> {
    let file = config::write_export(runtime, root, export_options, export).map_err(ExportError::Configuration)?;
    let answer = bus.add(export.id, &file).await;
    // Remove the file, which occupies a page of memory in the runtime directory. Its id is not reused soon.
    let _ = fs::remove_file(&file);
    let refused = match answer {
        // The server has already read the export at its start.
        Err(BusError::Refused(why)) if why.contains("already active") => None,
        Err(BusError::Refused(why)) => Some(why),
        added => {
            added?;
            None
        }
    };
    let path = root.join(export.path.as_str()).to_string_lossy().into_owned();
    match (bus.path_of(export.id).await?, refused) {
        (Some(served), _) if served == path => Ok(()),
        (_, Some(why)) => Err(ExportError::Refused(why)),
        _ => Err(ExportError::Absent(path)),
    }
}

/// Adds an export from a command while the provisioner runs. If it does not run, its next start adds the export.
pub(crate) async fn add_while_running(
    runtime: &Path,
    root: &Path,
    export_options: &ExportOptions,
    export: &Export,
) -> Result<(), ExportError> {
    let bus = Bus::new(runtime);
    if bus.is_answering().await { add_export(runtime, root, export_options, &bus, export).await } else { Ok(()) }
}

/// Removes an export from a command while the provisioner runs.
pub(crate) async fn remove_while_running(runtime: &Path, export: &Export) -> Result<(), ExportError> {
    let bus = Bus::new(runtime);
    if bus.is_answering().await { Ok(bus.remove(export.id).await?) } else { Ok(()) }
}

/// The child processes. They are killed when this value is dropped.
struct Children {
    bus: Child,
    server: Child,
}

impl Children {
    /// Waits until one of the processes ends, and returns the reason.
    async fn wait(&mut self) -> String {
        let text = |what: &str, status: io::Result<std::process::ExitStatus>| match status {
            Ok(status) => format!("{what} ended: {status}"),
            Err(error) => format!("{what} is lost: {error}"),
        };
        tokio::select! {
            biased;
            status = self.server.wait() => text("ganesha.nfsd", status),
            status = self.bus.wait() => text("dbus-daemon", status),
        }
    }

    /// Waits until one of the processes ends, kills the other, and returns the reason.
    async fn wait_and_kill(mut self) -> String {
        let why = self.wait().await;
        for child in [&mut self.server, &mut self.bus] {
            let _ = child.kill().await;
        }
        why
    }
}

fn spawn_child(command: &mut Command, input: Stdio) -> io::Result<Child> {
    // The children write to the provisioner's log.
    command.stdin(input).stdout(Stdio::inherit()).stderr(Stdio::inherit()).kill_on_drop(true).spawn()
}

async fn wait_until(condition: impl Fn() -> bool) -> Option<()> {
    let waits = async {
        while !condition() {
            sleep(POLL / 4).await;
        }
    };
    timeout(Duration::from_secs(10), waits).await.ok()
}

/// Kills the server of an earlier provisioner that was killed. Another process may have received its id, so its
/// arguments must contain this provisioner's directory.
async fn end_leftover(pid_file: &Path, runtime: &Path) {
    let Some(id) = fs::read_to_string(pid_file).ok().and_then(|text| text.trim().parse::<i32>().ok()) else { return };
    let arguments = PathBuf::from(format!("/proc/{id}/cmdline"));
    let name = runtime.to_string_lossy().into_owned();
    let is_ours = || fs::read(&arguments).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&name));
    if let Some(process) = Pid::from_raw(id).filter(|_| is_ours()) {
        let _ = kill_process(process, Signal::KILL);
        let _ = wait_until(|| !is_ours()).await;
    }
    let _ = fs::remove_file(pid_file);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::export::Access;

    #[test]
    fn finds_exports_that_changed_while_the_server_was_starting() {
        let export =
            |id, path: &str| Export { id, path: path.to_owned().try_into().unwrap(), access: Access::default() };
        let written = [export(1, "kept"), export(2, "removed"), export(3, "moved")];
        let table = [export(1, "kept"), export(4, "moved"), export(5, "added")];
        let paths = |exports: Vec<&Export>| exports.iter().map(|export| (export.id, export.path.to_string())).collect();
        let expected = |exports: [(u16, &str); 2]| exports.map(|(id, path)| (id, path.to_owned()));
        let (added, removed): (Vec<_>, Vec<_>) = (paths(missing(&written, &table)), paths(missing(&table, &written)));
        assert_eq!(added, expected([(4, "moved"), (5, "added")]));
        assert_eq!(removed, expected([(2, "removed"), (3, "moved")]));
    }
}
