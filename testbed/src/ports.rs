//! Loopback ports for the servers of the test bed.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};

/// Below the range that Linux uses for outgoing connections, which could take a port before its server starts.
const PORTS: Range<u16> = 20_000..32_000;

/// The last port that this process received. Each process begins at a different port.
static LAST: Mutex<Option<u16>> = Mutex::new(None);

/// A free port, which this process does not receive again soon: if two servers had the same port, the second would fail
/// to start, and the first would answer its requests.
pub fn free_port() -> anyhow::Result<u16> {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let count = PORTS.len();
    let begin = match *last {
        Some(port) => usize::from(port - PORTS.start) + 1,
        None => std::process::id() as usize * 97,
    };
    let mut ports = (begin..begin + count).filter_map(|at| PORTS.clone().nth(at % count));
    let port = ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).context("no free port")?;
    *last = Some(port);
    Ok(port)
}

/// Distinct free ports.
pub(crate) fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    (0..count).map(|_| free_port()).collect()
}

/// Fails if another program already listens on a requested port.
pub(crate) fn check_port(port: Option<u16>, user: &str) -> anyhow::Result<()> {
    let Some(port) = port else { return Ok(()) };
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(()),
        Err(error) => bail!("port {port} cannot be used for {user}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_port_never_repeats_a_port() {
        let given: Vec<_> = (0..100).map(|_| free_port().unwrap()).collect();
        let different: std::collections::BTreeSet<_> = given.iter().collect();
        assert_eq!(different.len(), given.len());
    }

    #[test]
    fn error_names_the_taken_port() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = check_port(Some(port), "radosgw").unwrap_err().to_string();
        assert!(error.starts_with(&format!("port {port} cannot be used for radosgw: ")), "{error}");
    }
}
