//! A Ceph cluster on loopback ports: a monitor, a manager, an OSD that keeps its objects in memory, and radosgw, which
//! speaks S3 and the admin operations API.
//!
//! [`Ceph`] lives as long as its owner, whatever ends it. [`up`] starts one that stays until [`down`]. Several can run at
//! a time: each has ports and a directory of its own, and its configuration file names nothing outside of it.

use std::fs;

use anyhow::{Context, anyhow, bail};

mod config;
mod start;
mod state;
mod supervisor;

pub use state::{STATE_VARIABLE, State};

use crate::control_plane::{Instance, cache_dir, create_private_dir, wait_for_lock};
use crate::guard::Guard;
use crate::packages::{self, Package};
use crate::process::ProcessId;
use crate::progress::SharedProgress;
use supervisor::Supervisor;

/// The user that may use the admin operations API, with the name and the rights that Rook gives it.
pub const ADMIN: &str = "rgw-admin-ops-user";

/// Its rights. Rook's `accounts=*` is unknown to Ceph 16.
const ADMIN_CAPS: &str = "buckets=*;users=*;usage=read;metadata=read;zone=read";

/// Debian's packages.
const PACKAGES: [Package; 5] = [
    package("ceph-mon", "/usr/bin/ceph-mon", &["ceph-mon.service", "ceph-mon.target"]),
    package("ceph-mgr", "/usr/bin/ceph-mgr", &["ceph-mgr.target"]),
    // It brings ceph-base, and with that a service that collects crashes.
    package("ceph-osd", "/usr/bin/ceph-osd", &["ceph-osd.target", "ceph-crash.service"]),
    package("radosgw", "/usr/bin/radosgw", &["ceph-radosgw.target"]),
    package("ceph-common", "/usr/bin/ceph", &["ceph.target", "rbdmap.service"]),
];

const fn package(name: &'static str, file: &'static str, services: &'static [&'static str]) -> Package {
    Package { name, file, services }
}

/// What can be chosen about a cluster.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// radosgw's port for http; a free one if none is given.
    pub port: Option<u16>,
}

/// Why this machine can have no Ceph cluster now, and what to do about it.
pub fn obstacle() -> Option<anyhow::Error> {
    let missing = packages::missing(&PACKAGES).join(" ");
    (!missing.is_empty()).then(|| {
        anyhow!(
            "Ceph needs Debian's packages {missing}: add --install-ceph-packages, or run `apt-get install \
             --no-install-recommends {missing}`"
        )
    })
}

/// Installs the packages that are missing. Needs root.
pub fn install_packages(progress: &SharedProgress) -> anyhow::Result<()> {
    packages::install(&PACKAGES, progress)
}

/// A running cluster that ends with this value, or with this process if that comes first. A radosgw that ends before is
/// started again, unless [`State::stop_rgw`] ended it.
pub struct Ceph {
    supervisor: Supervisor,
    instance: Instance,
}

impl Ceph {
    /// Starts a cluster, and waits until radosgw answers and the admin user is there.
    pub async fn start(settings: &Settings, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Self> {
        check()?;
        let instance = Instance::create()?;
        let owner = ProcessId::of(std::process::id())?;
        let (state, children) = start::start(&instance.dir, Some(owner), settings, guard, progress).await?;
        Ok(Self { supervisor: Supervisor::new(state, children, progress.clone()), instance })
    }

    /// What it is made of now, and what can be done with it.
    pub fn state(&self) -> State {
        self.supervisor.state()
    }

    /// Ends it at once, for nothing of it is kept, and removes its directory.
    pub fn stop(self) -> anyhow::Result<()> {
        let dir = self.instance.dir.clone();
        self.stop_keeping_logs();
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }

    /// Ends it at once. The directory with its logs stays until the next start.
    pub fn stop_keeping_logs(mut self) {
        drop(self.supervisor.end());
    }
}

/// Starts a cluster that outlives this process, until [`down`]. What was left over from one that is no longer whole is
/// stopped before. Nobody supervises it.
pub async fn up(settings: &Settings, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Up> {
    check()?;
    let _lock = lock_standing(progress).await?;
    if let Some(state) = State::standing()? {
        if state.is_healthy().await {
            return Ok(Up::Already(state));
        }
        progress.line("stopping what is left of an earlier cluster");
        state.kill().await?;
    }
    let dir = state::standing_dir()?;
    let _ = fs::remove_dir_all(&dir);
    create_private_dir(&dir)?;
    let started = start::start(&dir, None, settings, guard, progress).await;
    let (state, children) = match started {
        Ok(started) => started,
        Err(error) => {
            // The logs stay; a state would claim that something runs.
            let _ = fs::remove_file(dir.join("state.json"));
            return Err(error);
        }
    };
    children.release();
    Ok(Up::Started(state))
}

/// What [`up`] found or did.
pub enum Up {
    /// It started this one.
    Started(State),
    /// This one was already up.
    Already(State),
}

/// Ends the cluster of [`up`] and removes its directory; `false` if there was none.
pub async fn down(progress: &SharedProgress) -> anyhow::Result<bool> {
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

fn check() -> anyhow::Result<()> {
    match obstacle() {
        Some(obstacle) => bail!(obstacle),
        None => Ok(()),
    }
}

async fn lock_standing(progress: &SharedProgress) -> anyhow::Result<fs::File> {
    let path = cache_dir()?.join("ceph-up.lock");
    wait_for_lock(&path, "waiting for another command that starts or stops the Ceph cluster", progress).await
}
