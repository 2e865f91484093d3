//! The configuration file, and the files that it refers to.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::control_plane::{authority, serving, write_secret};
use crate::ports::{check_port, free_ports};

/// The loopback ports for one attempt to start. The manager and the OSD choose their own ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) monitor: u16,
    pub(super) http: u16,
    pub(super) https: u16,
}

impl Ports {
    /// Chooses unused ports. Another program may take one before Ceph does; then the start fails.
    pub(super) fn choose(http: Option<u16>) -> anyhow::Result<Self> {
        check_port(http, "radosgw")?;
        let free = free_ports(3)?;
        Ok(Self { monitor: free[0], http: http.unwrap_or(free[1]), https: free[2] })
    }

    /// The monitor's address. It names protocol v1 because radosgw fails with v2 if cephx is disabled.
    pub(super) fn monitor_address(self) -> String {
        format!("v1:127.0.0.1:{}", self.monitor)
    }
}

/// Writes radosgw's certificate and key, and returns the certificate of their authority.
pub(super) fn write_certificate(dir: &Path) -> anyhow::Result<String> {
    let (ca, issuer) = authority()?;
    let (cert, key) = serving(&issuer, "radosgw", &["localhost"], &[Ipv4Addr::LOCALHOST])?;
    fs::write(dir.join("ca.crt"), &ca)?;
    fs::write(dir.join("rgw.crt"), cert)?;
    write_secret(&dir.join("rgw.key"), &key)?;
    Ok(ca)
}

/// The configuration of a cluster with this name, in `dir`. Only radosgw requires keys: all other daemons listen on
/// loopback, and the OSD keeps its data in memory.
pub(super) fn config(dir: &Path, fsid: &str, ports: Ports) -> String {
    let monitor = ports.monitor_address();
    let Ports { http, https, .. } = ports;
    let dir = dir.display();
    format!(
        "[global]
fsid = {fsid}
mon host = {monitor}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = {dir}
crash dir = {dir}
# Paths of sockets may have 107 characters, which a directory in somebody's home can exceed.
admin socket =
pid file =
log file =
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
# It has its place before it starts.
osd crush update on start = false
osd class update on start = false
osd objectstore = memstore
memstore device bytes = 4294967296
mon allow pool size one = true
# The monitor gathers changes for a second, and radosgw waits for each of its pools.
paxos propose interval = 0.05
paxos min wait = 0.01
# The monitor ends where the machine's disk is nearly full, and keeps next to nothing there.
mon data avail warn = 0
mon data avail crit = 0
mgr initial modules =

[mon.a]
mon data = {dir}/mon
mon cluster log file =
log file = {dir}/ceph-mon.log

[mgr.a]
mgr data = {dir}/mgr
log file = {dir}/ceph-mgr.log

[osd.0]
osd data = {dir}/osd
log file = {dir}/ceph-osd.log

[client.rgw]
rgw data = {dir}/rgw
log file = {dir}/radosgw.log
rgw frontends = beast endpoint=127.0.0.1:{http} ssl_endpoint=127.0.0.1:{https} ssl_certificate={dir}/rgw.crt ssl_private_key={dir}/rgw.key
"
    )
}
