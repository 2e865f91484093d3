//! A Ceph cluster on loopback ports: a monitor, a manager, an OSD that keeps its objects in memory, and radosgw with S3
//! and the admin operations API.
//!
//! [`Ceph`] ends with its owner, however the owner ends. Its [`dependency::Server`] runs until it is stopped. Several
//! clusters can run at a time: each has its own ports and directory, and its configuration refers only to that
//! directory.

use std::fs;

use anyhow::Context;

mod config;
mod start;
mod state;
mod supervisor;

pub use state::State;

use crate::control_plane::{Instance, cache_dir, create_private_dir, wait_for_lock};
use crate::dependency::{self, Dependency, is_named};
use crate::guard::Guard;
use crate::packages::package;
use crate::process::ProcessId;
use crate::progress::{self, SharedProgress};
use crate::shared::{Shared, shared};
use crate::supervisor::Supervisor;

/// The user of the admin operations API, with the name and permissions that Rook assigns.
pub const ADMIN: &str = "rgw-admin-ops-user";

/// The user's permissions. Ceph 16 does not know Rook's `accounts=*`.
const ADMIN_CAPS: &str = "buckets=*;users=*;usage=read;metadata=read;zone=read";

/// The packages of a cluster.
pub static CEPH: Dependency = Dependency {
    name: "a Ceph cluster",
    packages: &[
        package("ceph-mon", "/usr/bin/ceph-mon", &["ceph-mon.service", "ceph-mon.target"]),
        package("ceph-mgr", "/usr/bin/ceph-mgr", &["ceph-mgr.target"]),
        // The package depends on ceph-base, which installs a service that collects crashes.
        package("ceph-osd", "/usr/bin/ceph-osd", &["ceph-osd.target", "ceph-crash.service"]),
        package("radosgw", "/usr/bin/radosgw", &["ceph-radosgw.target"]),
        package("ceph-common", "/usr/bin/ceph", &["ceph.target", "rbdmap.service"]),
    ],
    needed_by: |path| is_named(path, "ceph_"),
    server: Some(dependency::Server {
        up: |port, guard, progress| Box::pin(up(port, guard, progress)),
        down: |progress| Box::pin(down(progress)),
    }),
    ..Dependency::NOTHING
};

/// A running cluster that ends with this value, or with this process if that ends first. A radosgw that ends earlier is
/// restarted, unless [`State::stop_rgw`] stopped it.
pub struct Ceph {
    supervisor: Supervisor<State>,
    instance: Instance,
}

impl Ceph {
    /// Starts a cluster, and waits until radosgw answers and the admin user exists.
    pub async fn start(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Self> {
        CEPH.check(dependency::INSTALL)?;
        let instance = Instance::create()?;
        let owner = ProcessId::of(std::process::id())?;
        let (state, children) = start::start(&instance.dir, Some(owner), None, guard, progress).await?;
        Ok(Self { supervisor: supervisor::supervise(state, children, progress.clone()), instance })
    }

    /// The current addresses, keys and processes of the cluster, and operations on it.
    pub fn state(&self) -> State {
        self.supervisor.state()
    }

    /// Kills the cluster, which keeps no data, and removes its directory.
    pub fn stop(self) -> anyhow::Result<()> {
        let dir = self.instance.dir.clone();
        self.stop_keeping_logs();
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }

    /// Kills the cluster. The directory with its logs stays until the next start.
    pub fn stop_keeping_logs(mut self) {
        drop(self.supervisor.end());
    }
}

/// The cluster of this process.
fn shared_by_tests() -> anyhow::Result<&'static Ceph> {
    static SHARED: Shared<Ceph> = Shared::new();

    shared(&SHARED, async |guard| Ceph::start(guard, &progress::terminal()).await)
}

/// Starts an unsupervised cluster that outlives this process, until [`down`]. Stops the remains of a previous,
/// incomplete cluster first.
async fn up(port: Option<u16>, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<dependency::Up> {
    CEPH.check(dependency::INSTALL)?;
    let _lock = lock_standing(progress).await?;
    if let Some(state) = State::standing()? {
        if state.is_healthy().await {
            return Ok(dependency::Up { is_new: false, usage: usage(&state) });
        }
        progress.line("stopping what is left of an earlier cluster");
        state.kill().await?;
    }
    let dir = state::standing_dir()?;
    let _ = fs::remove_dir_all(&dir);
    create_private_dir(&dir)?;
    let started = start::start(&dir, None, port, guard, progress).await;
    let (state, children) = match started {
        Ok(started) => started,
        Err(error) => {
            // Keep the logs, but not a state file that claims a running cluster.
            let _ = fs::remove_file(dir.join("state.json"));
            return Err(error);
        }
    };
    children.release();
    Ok(dependency::Up { is_new: true, usage: usage(&state) })
}

/// Stops the cluster that [`up`] started, and removes its directory; returns `false` if there was none.
async fn down(progress: &SharedProgress) -> anyhow::Result<bool> {
    let _lock = lock_standing(progress).await?;
    let state = State::standing()?;
    if let Some(state) = &state {
        state.kill().await?;
    }
    let dir = state::standing_dir()?;
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(state.is_some())
}

fn usage(state: &State) -> Vec<String> {
    vec![
        format!("endpoint:   {}", state.endpoint),
        format!("with TLS:   {} (authority: {})", state.https_endpoint, state.dir.join("ca.crt").display()),
        format!("admin user: {ADMIN}; its keys are in the state file"),
        format!("state file: {}", state.path().display()),
        format!("radosgw-admin and ceph: export CEPH_CONF={}", state.dir.join("ceph.conf").display()),
        "to stop it: cargo xtask ceph down".to_owned(),
    ]
}

async fn lock_standing(progress: &SharedProgress) -> anyhow::Result<fs::File> {
    let path = cache_dir()?.join("ceph-up.lock");
    wait_for_lock(&path, "waiting for another command that starts or stops the Ceph cluster", progress).await
}
