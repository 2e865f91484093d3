//! The [`BucketController`], which runs a bucket provisioner.

use std::fmt;
use std::sync::Arc;

use kube::Client;
use provisioner_runtime::environment::Environment;
use tokio_util::sync::CancellationToken;

use super::RunError;
#[cfg(feature = "planted-faults")]
use super::bucket::BucketSafeguard;
use super::bucket::backend::BucketBackend;
use super::bucket::{Safeguards, control_loop};
use super::shared::calls;
use super::shared::process::Process;
use super::shared::program;
use crate::bucket::BucketHooks;
use crate::options::{BucketOptions, Coordination};
use crate::{protocol, rbac};

/// Runs a [`BucketProvisioner`](crate::bucket::BucketProvisioner): calls it when a claim requests a bucket and when a
/// claim is deleted.
///
/// ```no_run
/// # use kube_provisioner::bucket::*;
/// # use kube_provisioner::*;
/// # async fn main_(store: impl BucketHooks) -> Result<(), RunError> {
/// BucketController::new(store, BucketOptions::new("example.com/bucket")).run().await
/// # }
/// ```
///
/// A process can also run a [`Controller`](crate::Controller) at the same time, under another provisioner name.
pub struct BucketController {
    options: BucketOptions,
    backend: Arc<dyn BucketBackend>,
    environment: Environment,
    safeguards: Safeguards,
}

impl BucketController {
    /// Creates a controller for this provisioner. It does nothing before it runs.
    pub fn new(provisioner: impl BucketHooks, options: BucketOptions) -> Self {
        Self::with_backend(Arc::new(provisioner), options)
    }

    pub(crate) fn with_backend(backend: Arc<dyn BucketBackend>, options: BucketOptions) -> Self {
        Self { options, backend, environment: Environment::default(), safeguards: Safeguards::default() }
    }

    /// Sets the clock and the source of randomness, for simulations that are reproducible by their seed.
    #[must_use]
    pub fn environment(self, environment: Environment) -> Self {
        Self { environment, ..self }
    }

    /// Disables one safeguard, for tests of the simulation.
    #[cfg(feature = "planted-faults")]
    #[must_use]
    pub fn without(self, safeguard: BucketSafeguard) -> Self {
        Self { safeguards: Safeguards::without(safeguard), ..self }
    }

    /// Runs as a program: sets up logs, connects, checks its permissions and works until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// If the API server cannot be used. Later interruptions are retried.
    pub async fn run(mut self) -> Result<(), RunError> {
        let ask = || (self.backend.capabilities(), self.backend.access_rules());
        let (capabilities, own) = calls::capabilities(ask)?;
        let options = &mut self.options.options;
        let mut rules = rbac::bucket_rules(options, &capabilities, &[]);
        rules.extend(own);
        let Some((client, shutdown)) = program::start(options, &rules).await? else { return Ok(()) };
        self.run_with(client, shutdown).await
    }

    /// Runs with a given client until `shutdown` is cancelled. Does not affect the process, so it suits tests and
    /// embedding.
    ///
    /// # Errors
    /// If the address for probes and metrics is not available, if the options are invalid, or if another process
    /// replaces this one. All other errors are retried.
    pub async fn run_with(self, client: Client, shutdown: CancellationToken) -> Result<(), RunError> {
        let Self { options, backend, environment, safeguards } = self;
        let common = &options.options;
        if common.coordination == Coordination::PerNode {
            return Err(RunError::Options("bucket provisioners support only --coordination lease and none".to_owned()));
        }
        let Some(process) = Process::identify(common, protocol::SERVES_BUCKETS, client, environment, &shutdown).await?
        else {
            return Ok(());
        };
        Ok(control_loop(&options, backend, process, safeguards)?.run(shutdown).await?)
    }
}

impl fmt::Debug for BucketController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketController").field("options", &self.options).finish_non_exhaustive()
    }
}
