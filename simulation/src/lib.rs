//! Tests by simulation that the controllers survive crashes.
//!
//! One seed is one run: several replicas of [`kube_provisioner::Controller`] work on a simulated cluster and share a
//! backend, while requests fail, processes die, pause and restart, the backend fails halfway, and users change objects.
//! [`Plan::draw`] decides what will happen, [`run`] executes it, and every [`Invariant`] is checked during the run and
//! at the end.

mod backend;
mod buckets;
mod campaign;
mod garble;
mod judge;
mod logs;
mod panics;
mod plan;
mod process;
mod refusals;
mod run;
mod stage;
mod users;
mod volume_interceptor;
mod worlds;

pub use campaign::{Campaign, CampaignEvent, Failure, Progress, Tally};
pub use judge::{Invariant, Violation};
pub use kube_provisioner::Safeguard;
pub use kube_provisioner::bucket::BucketSafeguard;
pub use plan::Plan;
pub use run::{Outcome, RunOptions, Subject, Trace, run, run_seed};

/// The name of the provisioner in all runs.
pub(crate) const PROVISIONER: &str = "example.com/simulated";
