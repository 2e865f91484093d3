//! A Kubernetes API server that lives in the process: a [`tower::Service`] a [`kube::Client`] takes, with everything in
//! memory, time from tokio's clock (paused or not) and randomness from one seed, so the same seed gives the same bytes.
#![deny(missing_docs)]

mod actors;
mod api_server;
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
pub use patch::PatchKind;
pub use request::{Content, DeleteOptions, Options, Preconditions, Request, Subresource, Target, Verb};
pub use resource::{Resource, StorageId};
pub use service::{ApiService, Body};
pub use status::{Cause, CauseReason, Details, Status};
pub use store::{ChangeKind, Stored};
pub use subscription::{Change, Subscription};
