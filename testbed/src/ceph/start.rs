//! The start of a cluster, up to a radosgw that answers.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::config::{self, Ports};
use super::state::{RADOSGW, State};
use super::{ADMIN, ADMIN_CAPS};
use crate::control_plane::{Children, Process, last_lines};
use crate::guard::{Guard, Lifetime};
use crate::packages;
use crate::process::ProcessId;
use crate::progress::{self, SharedProgress};

/// Starts all daemons in `dir` and waits until radosgw answers, with HTTP at `port` if one is given. Without an
/// `owner`, they outlive this process.
pub(super) async fn start(
    dir: &Path,
    owner: Option<ProcessId>,
    port: Option<u16>,
    guard: &Guard,
    progress: &SharedProgress,
) -> anyhow::Result<(State, Children)> {
    let mut attempt = 1;
    loop {
        let mut state = prepare(dir, owner, port, guard)?;
        let mut children = Children::default();
        let started = start_daemons(&mut state, &mut children);
        match progress::during(progress, "starting Ceph", started).await {
            Ok(()) => {
                state.write()?;
                return Ok((state, children));
            }
            Err(_) if attempt < ATTEMPTS && a_port_was_taken(&state) => {
                progress.line("a port of Ceph was taken in the meantime; trying others");
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

const ATTEMPTS: u32 = 3;
/// A start takes four seconds, and several times as long on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

/// Creates all files that must exist before the first daemon starts.
fn prepare(dir: &Path, owner: Option<ProcessId>, port: Option<u16>, guard: &Guard) -> anyhow::Result<State> {
    let ports = Ports::choose(port)?;
    for (program, _) in DAEMONS {
        let _ = fs::remove_file(dir.join(program).with_extension("log"));
    }
    for data in ["mon", "mgr", "osd", "rgw"] {
        let data = dir.join(data);
        let _ = fs::remove_dir_all(&data);
        fs::create_dir(&data).with_context(|| format!("cannot create {}", data.display()))?;
    }
    let fsid = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let fsid = fsid.trim();
    fs::write(dir.join("ceph.conf"), config::config(dir, fsid, ports))?;
    let mut components = Vec::new();
    for (program, name) in DAEMONS {
        let conf = format!("--conf={}", dir.join("ceph.conf").display());
        let arguments = [&conf, "--foreground", "--name", name].map(str::to_owned).to_vec();
        components.push(Process::new(dir, program, &packages::program(program)?, arguments));
    }
    Ok(State {
        dir: dir.to_owned(),
        owner,
        guard: guard.exe().to_owned(),
        endpoint: format!("http://127.0.0.1:{}", ports.http),
        https_endpoint: format!("https://127.0.0.1:{}", ports.https),
        ca_pem: config::write_certificate(dir)?,
        monitor: ports.monitor_address(),
        fsid: fsid.to_owned(),
        access_key: String::new(),
        secret_key: String::new(),
        components,
    })
}

/// The programs in the order of their start, and their names in the cluster.
const DAEMONS: [(&str, &str); 4] =
    [("ceph-mon", "mon.a"), ("ceph-mgr", "mgr.a"), ("ceph-osd", "osd.0"), (RADOSGW, "client.rgw")];

async fn start_daemons(state: &mut State, children: &mut Children) -> anyhow::Result<()> {
    let deadline = Instant::now() + LIMIT;
    let map = state.dir.join("monmap").display().to_string();
    let (fsid, monitor) = (state.fsid.clone(), state.monitor.clone());
    run(state, "monmaptool", &["--create", "--fsid", &fsid, "--clobber", "--addv", "a", &format!("[{monitor}]"), &map])
        .await?;
    run(state, "ceph-mon", &["--mkfs", "--name", "mon.a", "--monmap", &map]).await?;
    daemon(state, "ceph-mon", children)?;
    daemon(state, "ceph-mgr", children)?;
    // Any UUID works if it is the same for both calls.
    let osd = &fsid;
    while_running(state, children, ask_monitor(state, &["osd", "new", osd], deadline)).await?;
    run(state, "ceph-osd", &["--mkfs", "--name", "osd.0", "--osd-uuid", osd]).await?;
    let place = ["osd", "crush", "add", "0", "1", "root=default", "host=localhost"];
    while_running(state, children, ask_monitor(state, &place, deadline)).await?;
    daemon(state, "ceph-osd", children)?;
    daemon(state, RADOSGW, children)?;
    while_running(state, children, wait_answers(state, deadline)).await?;
    let caps = format!("--caps={ADMIN_CAPS}");
    let create = ["user", "create", "--uid", ADMIN, "--display-name", ADMIN, &caps];
    let user = while_running(state, children, state.radosgw_admin(&create)).await?;
    let key = |name: &str| -> anyhow::Result<String> {
        let key = user.pointer(&format!("/keys/0/{name}")).and_then(Value::as_str);
        Ok(key.with_context(|| format!("the new user has no {name}"))?.to_owned())
    };
    (state.access_key, state.secret_key) = (key("access_key")?, key("secret_key")?);
    Ok(())
}

fn daemon(state: &mut State, name: &str, children: &mut Children) -> anyhow::Result<()> {
    let lifetime = if state.owner.is_some() { Lifetime::WithOwner } else { Lifetime::Detached };
    let guard = state.guard();
    let component = state.components.iter_mut().find(|component| component.name == name);
    let component = component.with_context(|| format!("no daemon {name}"))?;
    children.0.push(component.start(lifetime, &guard)?.0);
    // If this start is killed, the next one uses this file to stop the daemons.
    state.write()
}

/// Runs one of Ceph's programs until it ends.
async fn run(state: &State, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = state.output(program, arguments).await?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(output.status.success(), "{program} {} failed: {said}", arguments.join(" "));
    Ok(())
}

/// Sends an idempotent command to the monitor, and retries because a monitor that has just started may refuse it.
async fn ask_monitor(state: &State, arguments: &[&str], deadline: Instant) -> anyhow::Result<()> {
    loop {
        match run(state, "ceph", arguments).await {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(POLL).await,
            result => return result,
        }
    }
}

/// Waits until radosgw answers.
pub(super) async fn wait_answers(state: &State, deadline: Instant) -> anyhow::Result<()> {
    while state.get(&state.endpoint, "/").await.is_err() {
        if Instant::now() > deadline {
            let end = last_lines(&state.dir.join(RADOSGW).with_extension("log"), 10);
            bail!("radosgw did not answer in time; its log ends:\n{end}");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Waits for `work`, and fails early if a daemon ends: without its monitor, a program would hang for minutes.
async fn while_running<T>(
    state: &State,
    children: &mut Children,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let ended = async {
        loop {
            for (child, component) in children.0.iter_mut().zip(&state.components) {
                if let Some(status) = child.try_wait()? {
                    let end = last_lines(&component.log, 10);
                    bail!("{} ended while starting ({status}); its log ends:\n{end}", component.name);
                }
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::select! {
        biased;
        result = work => result,
        result = ended => result,
    }
}

fn a_port_was_taken(state: &State) -> bool {
    let said = |component: &Process| last_lines(&component.log, 20).to_lowercase().contains("address already in use");
    state.components.iter().any(said)
}
