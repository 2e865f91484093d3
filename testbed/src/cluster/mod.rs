//! The entry points of a test: a client of the control plane, and a [`TestSpace`] of its own.
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
pub use objects::{claim, class, is_bound, random_suffix};
pub use program::Program;
pub use space::TestSpace;
pub use wait::{DEFAULT_LIMIT, eventually, until};

use crate::control_plane::{self, ControlPlane, NO_NODE, NODE, Node, Settings, Signal, State};
use crate::guard::Guard;
use crate::progress;

/// A connection to a control plane as administrator.
pub struct Cluster {
    client: Client,
    state: State,
    own: Option<ControlPlane>,
}

impl Cluster {
    /// Connects to the control plane of `cargo xtask test` if there is one, or else of `cargo xtask control-plane up`.
    pub async fn connect() -> anyhow::Result<Self> {
        Self::connect_to(State::for_tests()?).await
    }

    /// Connects to a control plane that a test started for itself.
    pub async fn connect_to(state: State) -> anyhow::Result<Self> {
        let client = control_plane::client_from(&state.kubeconfig).await?;
        Ok(Self { client, state, own: None })
    }

    /// Starts a control plane that ends with this value, for a test that disturbs its cluster.
    pub async fn start(settings: &Settings) -> anyhow::Result<Self> {
        let guard = Guard::new(provisioner_program("xtask")?);
        let own = ControlPlane::start(settings, &guard, &progress::silent()).await?;
        let connected = Self::connect_to(own.state()).await?;
        Ok(Self { own: Some(own), ..connected })
    }

    /// The administrator's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The processes and files of the control plane at the time of the connection or the last [`Cluster::restart`].
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The real node. The error explains how to add one.
    pub fn node(&self) -> anyhow::Result<&Node> {
        NODE.check_use()?;
        self.state.node.as_ref().context(NO_NODE)
    }

    /// The requests of service accounts, from the API server's audit log.
    pub fn audit_log(&self) -> anyhow::Result<AuditLog> {
        AuditLog::of(&self.state)
    }

    /// Ends a component with a signal and waits until it is ready again: [`Signal::TERM`] for an orderly restart,
    /// [`Signal::KILL`] for a crash. Requires a control plane that the test owns.
    pub async fn restart(&mut self, component: &str, signal: Signal) -> anyhow::Result<()> {
        self.state = control_plane::restart(&self.state, component, signal).await?;
        Ok(())
    }

    /// Stops the control plane if it is the test's own.
    async fn end(&mut self) -> anyhow::Result<()> {
        match self.own.take() {
            Some(own) => own.stop().await,
            None => Ok(()),
        }
    }
}
