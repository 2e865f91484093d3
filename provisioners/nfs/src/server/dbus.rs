//! The few messages to the server over D-Bus, by the program `dbus-send`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// The server answers within milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

/// The server's bus.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BusError {
    #[error("cannot run dbus-send: {0}; it is in Debian's package dbus-bin")]
    Program(std::io::Error),
    #[error("the NFS server did not answer within {} s", LIMIT.as_secs())]
    Silent,
    #[error("the NFS server refused: {0}")]
    Refused(String),
}

impl Bus {
    pub(crate) fn new(runtime: &Path) -> Self {
        Self { socket: runtime.join("bus") }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The variable by which programs find the bus.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        ("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", self.socket.display()))
    }

    /// Adds the export of this id from a file.
    pub(crate) async fn add(&self, id: u16, file: &Path) -> Result<(), BusError> {
        let (file, block) = (format!("string:{}", file.display()), format!("string:EXPORT(Export_Id={id})"));
        self.send("AddExport", &[&file, &block]).await.map(drop)
    }

    /// Removes an export.
    pub(crate) async fn remove(&self, id: u16) -> Result<(), BusError> {
        self.send("RemoveExport", &[&format!("uint16:{id}")]).await.map(drop)
    }

    /// The path of an export that is served; `None` if there is none of this id.
    pub(crate) async fn path_of(&self, id: u16) -> Result<Option<String>, BusError> {
        match self.send("DisplayExport", &[&format!("uint16:{id}")]).await {
            Ok(answer) => Ok(first_string(&answer)),
            Err(BusError::Refused(why)) if why.contains("InvalidArgs") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the server answers. The root of NFSv4 is always there.
    pub(crate) async fn is_answering(&self) -> bool {
        self.path_of(0).await.is_ok()
    }

    async fn send(&self, method: &str, arguments: &[&str]) -> Result<String, BusError> {
        let mut command = Command::new("dbus-send");
        let (variable, address) = self.variable();
        command.env(variable, address).args(["--system", "--print-reply", "--dest=org.ganesha.nfsd"]);
        command.arg(format!("--reply-timeout={}", LIMIT.as_millis()));
        command.arg("/org/ganesha/nfsd/ExportMgr").arg(format!("org.ganesha.nfsd.exportmgr.{method}")).args(arguments);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output =
            timeout(LIMIT, command.output()).await.map_err(|_| BusError::Silent)?.map_err(BusError::Program)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let text = String::from_utf8_lossy(&output.stderr);
                Err(BusError::Refused(
                    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(400).collect(),
                ))
            }
        }
    }
}

/// The first text of an answer as `dbus-send` prints it.
fn first_string(answer: &str) -> Option<String> {
    let line = answer.lines().find_map(|line| line.trim().strip_prefix("string \""))?;
    line.strip_suffix('"').map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_first_text() {
        let answer = "method return time=1.8 sender=:1.0 -> destination=:1.3 serial=7 reply_serial=2\n   uint16 2\n   \
                      string \"/export/b\"\n   string \"/pseudo\"\n   array [\n   ]\n";
        assert_eq!(first_string(answer).as_deref(), Some("/export/b"));
        assert_eq!(first_string("method return\n   uint16 2\n"), None);
    }
}
