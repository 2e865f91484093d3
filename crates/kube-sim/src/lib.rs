//! An in-process Kubernetes API for tests: an in-memory API server, with the controllers that bind volumes, schedule
//! pods and collect garbage.
//!
//! ```
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
//! use kube::api::{Api, PostParams};
//! use kube_sim::{Actors, Cluster};
//! use serde_json::{from_value, json};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::new();
//! let _actors = cluster.run(Actors::all());
//! let client = cluster.client("test");
//!
//! let volume = json!({
//!     "metadata": {"name": "disk"},
//!     "spec": {
//!         "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
//!         "hostPath": {"path": "/srv/disk"},
//!     },
//! });
//! let claim = json!({
//!     "metadata": {"name": "data"},
//!     "spec": {
//!         "resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
//!     },
//! });
//! let volumes: Api<PersistentVolume> = Api::all(client.clone());
//! let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client);
//! volumes.create(&PostParams::default(), &from_value(volume)?).await?;
//! claims.create(&PostParams::default(), &from_value(claim)?).await?;
//!
//! // The binder binds the claim to the volume.
//! let bound = |cluster: &Cluster| {
//!     let claim = cluster.get("", "persistentvolumeclaims", "default", "data");
//!     claim.is_ok_and(|claim| claim["status"]["phase"] == "Bound")
//! };
//! cluster.wait(Duration::from_secs(60), bound).await?;
//! assert_eq!(claims.get("data").await?.spec.unwrap_or_default().volume_name.as_deref(), Some("disk"));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Cluster`] is a [`tower::Service`] for a [`kube::Client`] ([`Cluster::client`]). It can also be called directly,
//! without HTTP and without `await` ([`Cluster::create`], [`Cluster::get`], ...).
//!
//! Time is tokio's: under a paused clock, hours pass in milliseconds. All randomness comes from one seed
//! ([`Builder::seed`]). Runs with the same seed on a current-thread runtime are identical, byte by byte
//! ([`Cluster::trace`], [`Cluster::dump`]).
//!
//! [`Faults`] disturb requests, answers and watches, drawn from a seed. [`Actor`]s can be slow, late, or crash.
//!
//! Answers, defaults, validation and error messages match kube-apiserver 1.37. The crate's README lists what is not
//! simulated.
#![deny(missing_docs)]

/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

mod actors;
mod api_server;
mod authorize;
mod clock;
mod cluster;
mod crd;
pub mod defaults;
mod edit;
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
mod yaml;

pub use actors::{Actor, Actors, Pace, Running};
pub use authorize::{Attributes, Authorizer, Decision};
pub use clock::SimClock;
pub use cluster::{Builder, Cluster};
pub use faults::{Fault, Faults};
pub use intercept::{After, Before, Interceptor, WatchInterceptor, WatchStep};
pub use patch::{PatchKind, merge_patch};
pub use request::{Content, DeleteOptions, Options, Preconditions, Request, Subresource, Target, Verb};
pub use resource::{Resource, StorageId};
pub use service::{ApiService, Body};
pub use status::{Cause, CauseReason, Details, Status};
pub use store::{ChangeKind, Stored};
pub use subscription::{Change, Subscription};
