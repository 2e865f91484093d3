//! What a test uses: a client of the control plane, and a [`TestSpace`] of its own.
//!
//! ```no_run
//! use testbed::cluster::TestSpace;
//!
//! # async fn test() -> anyhow::Result<()> {
//! let space = TestSpace::new("binds").await?;
//! let class = space.create_class(space.class("fast")).await?;
//! space.create_claim(space.claim("data", &class)).await?;
//! // … start a provisioner for `space.provisioner()` …
//! let (claim, volume) = space.wait_bound("data").await?;
//! space.done().await
//! # }
//! ```

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use kube::Client;

mod access;
mod audit;
#[cfg(feature = "s3")]
mod bucket_space;
mod buckets;
mod claims;
mod cleanup;
mod images;
mod installed;
mod kubectl;
mod nodes;
mod objects;
mod pods;
mod program;
mod space;
mod wait;

pub use crate::cargo::binary as provisioner_program;
pub use access::{Access, apply, existing, remove};
pub use audit::{AuditEntry, AuditLog};
#[cfg(feature = "s3")]
pub use bucket_space::{BucketSpace, BucketUser};
pub use buckets::{install_bucket_crds, is_bucket_bound};
pub use images::ImageOf;
pub use installed::{Installed, Variant};
pub use kubectl::Kubectl;
#[cfg(feature = "s3")]
pub(crate) use objects::named;
pub use objects::{claim, class, is_bound, random_suffix, rule};
pub use program::Program;
pub use space::TestSpace;
pub use wait::{DEFAULT_LIMIT, eventually, until};

use crate::control_plane::{self, NO_NODE, NODE, Node, Signal, State};

/// A connection to the control plane as administrator. While it lives, no other test restarts a component.
pub struct Cluster {
    client: Client,
    state: State,
    _turn: Turn,
}

impl Cluster {
    /// Connects to the control plane of `cargo xtask test`, or else of `cargo xtask control-plane up`. Waits while a
    /// test runs that wants to be alone.
    pub async fn connect() -> anyhow::Result<Self> {
        let state = State::for_tests()?;
        let turn = Turn::with_others(&state).await?;
        Self::with(state, turn).await
    }

    /// Connects to a control plane that a test has started for itself.
    pub async fn connect_to(state: State) -> anyhow::Result<Self> {
        let turn = Turn::with_others(&state).await?;
        Self::with(state, turn).await
    }

    /// Like [`Cluster::connect`], but waits until no other test is connected, and keeps others out. For tests that
    /// disturb the control plane.
    pub async fn connect_alone() -> anyhow::Result<Self> {
        let state = State::for_tests()?;
        let turn = Turn::alone(&state).await?;
        Self::with(state, turn).await
    }

    /// The administrator's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// What the control plane is made of, as of the connection or the last [`Cluster::restart`].
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The real node; the error says how to get one.
    pub fn node(&self) -> anyhow::Result<&Node> {
        NODE.check_use()?;
        self.state.node.as_ref().context(NO_NODE)
    }

    /// The requests of service accounts that the API server logged.
    pub fn audit_log(&self) -> anyhow::Result<AuditLog> {
        AuditLog::of(&self.state)
    }

    /// Ends a component with a signal and returns when it is ready again: [`Signal::TERM`] for a restart in good order,
    /// [`Signal::KILL`] for a crash. Only for a test that is connected alone.
    pub async fn restart(&mut self, component: &str, signal: Signal) -> anyhow::Result<()> {
        self.state = control_plane::restart(&self.state, component, signal).await?;
        Ok(())
    }

    async fn with(state: State, turn: Turn) -> anyhow::Result<Self> {
        let client = control_plane::client_from(&state.kubeconfig).await?;
        Ok(Self { client, state, _turn: turn })
    }
}

/// Locks on two files, released when dropped: one for being connected, one for the door to it. A test that wants to be
/// alone closes the door first, or it would wait until by chance nobody is connected.
struct Turn {
    _files: Vec<File>,
}

impl Turn {
    async fn with_others(state: &State) -> anyhow::Result<Self> {
        let _door = acquire(state.dir.join("door.lock"), File::try_lock_shared).await?;
        let room = acquire(state.dir.join("room.lock"), File::try_lock_shared).await?;
        Ok(Self { _files: vec![room] })
    }

    async fn alone(state: &State) -> anyhow::Result<Self> {
        let door = acquire(state.dir.join("door.lock"), File::try_lock).await?;
        let room = acquire(state.dir.join("room.lock"), File::try_lock).await?;
        Ok(Self { _files: vec![door, room] })
    }
}

/// Asks again and again: a blocking wait would stop the other tasks of a single-threaded test.
async fn acquire(path: PathBuf, try_lock: fn(&File) -> Result<(), TryLockError>) -> anyhow::Result<File> {
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    loop {
        match try_lock(&file) {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(TryLockError::Error(error)) => return Err(error).context(format!("cannot lock {}", path.display())),
        }
    }
}
