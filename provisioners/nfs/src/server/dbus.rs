//! The D-Bus messages to the server.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;
use zbus::connection::Builder;
use zbus::wire::DynamicType;
use zbus::{Error, Message, fdo};

const SERVER: &str = "org.ganesha.nfsd";
const EXPORTS: &str = "/org/ganesha/nfsd/ExportMgr";
const EXPORT_MANAGER: &str = "org.ganesha.nfsd.exportmgr";
/// Timeout of a call. The server usually answers within milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

/// The server's bus.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BusError {
    #[error("cannot reach the NFS server over D-Bus: {0}")]
    Unreachable(Error),
    #[error("the NFS server did not answer within {} s", LIMIT.as_secs())]
    Timeout,
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

    /// Returns the environment variable from which the server reads the address of the bus.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        ("DBUS_SYSTEM_BUS_ADDRESS", self.address())
    }

    /// Adds the export with this id from a file.
    pub(crate) async fn add(&self, id: u16, file: &Path) -> Result<(), BusError> {
        let (file, block) = (file.to_string_lossy(), format!("EXPORT(Export_Id={id})"));
        self.call("AddExport", &(&*file, &*block)).await?;
        Ok(())
    }

    /// Removes an export. Succeeds if the server does not serve it.
    pub(crate) async fn remove(&self, id: u16) -> Result<(), BusError> {
        match self.call("RemoveExport", &id).await {
            Err(error) if is_unknown(&error) => Ok(()),
            removed => Ok(removed.map(drop)?),
        }
    }

    /// Returns the path of an export, or `None` if the server does not serve this id.
    pub(crate) async fn path_of(&self, id: u16) -> Result<Option<String>, BusError> {
        match self.call("DisplayExport", &id).await {
            Err(error) if is_unknown(&error) => Ok(None),
            answer => {
                let body = answer?.body();
                // The clients and other fields follow.
                let (_, path): (u16, String) = body.deserialize_ignore_signature()?;
                Ok(Some(path))
            }
        }
    }

    /// Returns true if the server answers. The check requests the root of NFSv4, which always exists.
    pub(crate) async fn is_answering(&self) -> bool {
        self.path_of(0).await.is_ok()
    }

    async fn call<B: Serialize + DynamicType>(&self, method: &str, arguments: &B) -> Result<Message, Error> {
        let answer = async {
            let bus = Builder::address(&*self.address()).build().await?;
            bus.call_method(Some(SERVER), EXPORTS, Some(EXPORT_MANAGER), method, arguments).await
        };
        timeout(LIMIT, answer).await.map_err(io::Error::from)?
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.socket.display())
    }
}

impl From<Error> for BusError {
    fn from(error: Error) -> Self {
        match &error {
            Error::InputOutput(problem) if problem.kind() == ErrorKind::TimedOut => Self::Timeout,
            Error::FDO(refusal) if is_server_missing(refusal) => Self::Unreachable(error),
            Error::FDO(_) | Error::MethodError(..) => Self::Refused(one_line(&error.to_string())),
            _ => Self::Unreachable(error),
        }
    }
}

/// Returns true if the error means that the server has no export with the id.
fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::FDO(refusal) if matches!(**refusal, fdo::Error::InvalidArgs(_)))
}

/// Returns true if the daemon answered because the server is not running.
fn is_server_missing(refusal: &fdo::Error) -> bool {
    use fdo::Error::{Disconnected, NameHasNoOwner, NoReply, ServiceUnknown};
    matches!(refusal, ServiceUnknown(_) | NameHasNoOwner(_) | NoReply(_) | Disconnected(_))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reports_an_unreachable_bus() {
        let bus = Bus::new(Path::new("/nowhere"));
        assert!(!bus.is_answering().await);
        let error = bus.remove(1).await.unwrap_err();
        assert!(matches!(error, BusError::Unreachable(Error::Connection(..))), "{error}");
    }

    #[test]
    fn distinguishes_refusals_of_the_server_from_bus_errors() {
        let error = |error: fdo::Error| BusError::from(Error::from(error));
        let refused = error(fdo::Error::InvalidFileContent("Selected entries\n  already active".to_owned()));
        assert!(
            matches!(&refused, BusError::Refused(why) if why.ends_with("Selected entries already active")),
            "{refused}"
        );
        let absent = error(fdo::Error::ServiceUnknown("no such name".to_owned()));
        assert!(matches!(absent, BusError::Unreachable(_)), "{absent}");
    }
}
