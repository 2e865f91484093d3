//! Loopback ports that nobody listens on now. Another program may take one before ours does, which its start then shows.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, bail};

/// A port that is free now.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(free_ports(1)?[0])
}

/// So many different ones.
pub(crate) fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    // All are held until the last one is known, or the kernel could give the same one twice.
    let held: Result<Vec<_>, _> = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let held = held.context("no free port")?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Fails if somebody listens on a port that was asked for.
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
    fn a_taken_port_is_one_clear_line() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = check_port(Some(port), "radosgw").unwrap_err().to_string();
        assert!(error.starts_with(&format!("port {port} cannot be used for radosgw: ")), "{error}");
    }
}
