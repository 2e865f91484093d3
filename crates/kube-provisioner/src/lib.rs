//! A library for building out-of-tree dynamic provisioners for Kubernetes.
//!
//! A PersistentVolumeClaim names a StorageClass, the class names a provisioner, and the provisioner creates the
//! storage. You implement [`Provisioner`] with [`provision`](Provisioner::provision) and
//! [`delete`](Provisioner::delete). The library does the rest: it watches claims, makes one call at a time per volume,
//! saves and deletes PersistentVolumes, retries with back-off, emits events, and refuses requests for capabilities that
//! you do not declare. A journal records every attempt, so that a crash does not leak storage.
//!
//! # A provisioner
//!
//! ```no_run
//! use std::{io::ErrorKind, path::Path, process::ExitCode};
//! use kube_provisioner::{
//!     DeleteError, Hooks, Options, Program, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Volume,
//! };
//!
//! struct Directories;
//!
//! impl Provisioner for Directories {
//!     type Parameters = (); // the StorageClass's parameters: any type that implements Deserialize
//!
//!     async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
//!         let path = Path::new("/volumes").join(&request.name); // the same name in every attempt
//!         tokio::fs::create_dir_all(&path).await?; // on any error: retried with back-off
//!         Ok(Volume::host_path(path.to_string_lossy()))
//!     }
//!
//!     async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
//!         match tokio::fs::remove_dir_all(Path::new("/volumes").join(&volume.name)).await {
//!             Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
//!             _ => Ok(()), // succeed if it does not exist
//!         }
//!     }
//! }
//!
//! impl Hooks for Directories {}
//!
//! #[derive(clap::Parser)]
//! struct Args {
//!     #[command(flatten)]
//!     options: Options,
//! }
//!
//! fn main() -> ExitCode {
//!     Program::new(async |args: Args| Ok((Directories, args.options))).run()
//! }
//! ```
//!
//! Requests, volumes and buckets have public fields for facts, and methods for values derived from them. The controller
//! creates them; in tests, use `new`.
//!
//! # Next steps
//!
//! | you want to | see |
//! |---|---|
//! | know what a call may assume and must guarantee | the contract of [`Provisioner`] |
//! | choose the reaction to a failure | [`ProvisionError`], [`DeleteError`], [`ExpandError`], and their verdicts |
//! | read the parameters of a class | [`parameters`] |
//! | support block volumes, topology, Secrets, expansion | [`Capabilities`] |
//! | describe the volume: its source, annotations, nodes | [`Volume`], [`topology`] |
//! | add flags and commands | [`Options`], [`Program`] |
//! | create buckets | [`bucket`] |
//! | check that no crash leaks storage | the module `conformance`, with the feature of that name |
//! | provision COSI buckets, with or without the sidecar | `CosiDriver`, `CosiController`, with the feature `cosi` |
//! | run the controller inside another program | [`Controller`], [`BucketController`] |
//!
//! The folder `examples/directories` contains a complete provisioner with flags and tests. The guide in `docs/book`
//! explains each step.
//!
//! # The Kubernetes version
//!
//! The API types belong to one Kubernetes version, and also work with clusters of other versions. The default feature
//! `v1_33` selects 1.33. For another version, set `default-features = false` and enable its feature in `k8s-openapi`. A
//! library between this crate and the program sets only `default-features = false`. All crates in a program must use
//! the same version.
//!
//! # Features
//!
//! * `v1_33` (default): selects Kubernetes 1.33.
//! * `conformance`: adds the module `conformance`, for tests.
//! * `cosi`: supports the Container Object Storage Interface, see [`BucketOptions`].
//! * `unstable-explain`: exposes the controllers' decisions to programs that explain them. This API is not stable.
//!
//! # Terms
//!
//! * **claim**: a PersistentVolumeClaim, created by a user.
//! * **class**: a StorageClass, created by an administrator; its parameters become [`Provisioner::Parameters`].
//! * **volume**: a PersistentVolume, the object that represents the storage.
//! * **asset**: the storage itself, in the **backend** that the author's code uses.
//! * **verdict**: the meaning of an error for the claim, see [`ProvisionVerdict`].

#![deny(missing_docs)]

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod address;
pub mod bucket;
mod capabilities;
mod cli;
#[cfg(feature = "conformance")]
pub mod conformance;
mod controller;
#[cfg(feature = "cosi")]
mod cosi;
mod duration;
mod error;
#[cfg(feature = "unstable-explain")]
pub mod explain;
pub mod gid;
mod hooks;
mod object_watch;
mod options;
pub mod parameters;
mod prepared;
pub mod protocol;
mod provisioner;
pub mod quantity;
pub mod rbac;
mod request;
mod secrets;
mod start;
pub mod topology;
mod volume;

pub use self::address::parse_address;
pub use self::capabilities::{AccessMode, Capabilities};
#[cfg(feature = "conformance")]
pub use self::cli::CommandLine;
pub use self::cli::{NodeJournals, Program, client, console, recorded_volumes, without_empty_variables};
#[cfg(feature = "planted-faults")]
pub use self::controller::volume::Safeguard;
pub use self::controller::{BucketController, Controller, RunError, cluster_id};
#[cfg(feature = "cosi")]
pub use self::cosi::{CosiController, CosiDriver};
pub use self::duration::parse_duration;
pub use self::error::{
    DeleteError, DeleteVerdict, ExpandError, ExpandVerdict, ProvisionError, ProvisionVerdict, StartError,
};
pub use self::hooks::Hooks;
pub use self::object_watch::{ObjectWatch, Trigger};
pub use self::options::{BidDelays, BucketOptions, Coordination, LogStyle, Options, parse_time_limit};
pub use self::prepared::Prepared;
pub use self::provisioner::Provisioner;
pub use self::request::{ProvisionRequest, ProvisionedVolume};
pub use self::secrets::Secrets;
pub use self::start::StartContext;
pub use self::volume::{Volume, VolumeSource};
/// The Kubernetes API's types, in the version that this crate uses.
pub use k8s_openapi;
/// The client, in the version that this crate uses.
pub use kube;
/// The metrics of [`Hooks::register_metrics`], in the version that this crate uses.
pub use prometheus_client;
/// The error of [`client`] and of the controller's start when the API server cannot be used.
pub use provisioner_runtime::client::ConnectError;
/// Reports whether a call of the author's code may still act.
pub use provisioner_runtime::controller::FencingToken;
/// The argument of [`Controller::environment`].
pub use provisioner_runtime::environment::Environment;
/// Formats an error and its causes as one line, for events and logs.
pub use provisioner_runtime::error_chain;
/// A change that an [`ObjectWatch`] delivers.
pub use provisioner_runtime::watch::Change;
/// Stops [`Controller::run_with`].
pub use tokio_util::sync::CancellationToken;
