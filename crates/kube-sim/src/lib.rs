//! A Kubernetes API server that lives in the process: a [`tower::Service`] a [`kube::Client`] takes, with everything in
//! memory, time from tokio's clock (paused or not) and randomness from one seed, so the same seed gives the same bytes.
//!
//! ```
//! use std::time::Duration;
//!
//! use kube_sim::{Actors, Cluster};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::builder().seed(7).build();
//! // The controllers of a cluster, the binder of claims among them. They stop when this is dropped.
//! let _actors = cluster.run(Actors::all());
//! cluster.create_yaml(
//!     "
//! {apiVersion: v1, kind: PersistentVolume, metadata: {name: disk}, spec: {capacity: {storage: 1Gi},
//!  accessModes: [ReadWriteOnce], hostPath: {path: /disk}, storageClassName: slow}}
//! ---
//! {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: default}, spec: {storageClassName: slow,
//!  accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
//! )?;
//! // Hours pass at once under tokio's paused clock.
//! let is_bound = |cluster: &Cluster| {
//!     let claim = cluster.get("", "persistentvolumeclaims", "default", "data");
//!     claim.is_ok_and(|claim| claim["status"]["phase"] == json!("Bound"))
//! };
//! cluster.wait(Duration::from_secs(60), is_bound).await?;
//!
//! // Any client works: as the user `alice`, for instance.
//! let client = cluster.client("alice");
//! # let _ = client;
//! # Ok(())
//! # }
//! ```
//!
//! [`Faults`] draws what goes wrong from a seed: errors, lost answers, conflicts, watches that end or fall silent.
#![deny(missing_docs)]

mod actors;
mod authorize;
mod clock;
mod cluster;
mod crd;
pub mod defaults;
mod event;
mod faults;
mod go_json;
mod intercept;
pub mod object;
mod ownership;
mod pages;
pub mod patch;
mod random;
mod request;
pub mod resource;
mod selection;
pub mod selector;
#[cfg(feature = "serve")]
pub mod serve;
mod server;
mod service;
mod state;
pub mod status;
mod store;
mod subscription;
mod trace;
pub mod validate;
mod verbs;
mod view;
mod watch;

pub use actors::{Actor, Actors, Pace, Running};
pub use authorize::{Attributes, Authorizer, Decision};
pub use clock::SimClock;
pub use cluster::{Builder, Cluster, Target};
pub use faults::{Fault, Faults};
pub use intercept::{After, Before, Interceptor, WatchInterceptor, WatchStep};
pub use patch::PatchKind;
pub use request::{Content, DeleteOptions, Options, Preconditions, Request, Subresource, Verb};
pub use resource::{Resource, StorageId};
pub use service::{ApiService, Body};
pub use status::{Cause, CauseReason, Details, Status};
pub use store::{ChangeKind, Stored};
pub use subscription::{Change, Subscription};
