//! Write out-of-tree dynamic provisioners for Kubernetes.
//!
//! A PersistentVolumeClaim names a StorageClass, the class names a provisioner, the provisioner makes
//! the storage. An author implements [`Provisioner`]: [`provision`](Provisioner::provision) and
//! [`delete`](Provisioner::delete). The [`Controller`] does the rest: when to call them, saving and
//! deleting PersistentVolumes, retries with back-off, events, and what to refuse.
//!
//! # A whole provisioner
//!
//! ```no_run
#![doc = include_str!("../examples/directories/main.rs")]
//! ```
//!
//! # Its tests
//!
//! With `kube-sim`, and this crate's feature `conformance`, among the dev-dependencies:
//!
//! ```no_run
//! # struct Directories;
//! # fn main() {}
//! # mod tests {
#![doc = include_str!("../examples/directories/tests.rs")]
//! # }
//! ```
//!
//! # The Kubernetes version
//!
//! The API's types are those of Kubernetes 1.33 or of one version that the program chooses, which works with clusters of
//! others, too. Features of this crate choose it: `v1_33`, the default. For another one, say `default-features = false`
//! and enable it in `k8s-openapi`; a library between this crate and the program says only the former.
//! All crates in a program must agree.
//!
//! # The nouns
//!
//! * **claim**: a PersistentVolumeClaim, what a user asks for.
//! * **class**: a StorageClass, what an administrator offers; its parameters become
//!   [`Provisioner::Parameters`].
//! * **volume**: a PersistentVolume, the object that stands for the storage.
//! * **asset**: the storage itself, in the **backend** that the author's code talks to.
//! * **verdict**: what an error means for the claim, see [`Verdict`].

#![deny(missing_docs)]

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod bucket;
mod capabilities;
mod cli;
#[cfg(feature = "conformance")]
pub mod conformance;
mod controller;
mod error;
pub mod explain;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gid;
mod options;
pub mod parameters;
pub mod protocol;
mod provisioner;
pub mod quantity;
pub mod rbac;
mod request;
mod secrets;
mod start;
pub mod topology;
mod volume;

pub use self::capabilities::{AccessMode, Capabilities};
pub use self::cli::{client, recorded_volumes, run, run_as, run_buckets, run_with_commands};
#[cfg(feature = "planted-faults")]
pub use self::controller::volume::Safeguard;
pub use self::controller::{BucketController, Controller, RunError};
pub use self::error::{DeleteError, DeleteVerdict, ExpandError, ExpandVerdict, ProvisionError, StartError, Verdict};
pub use self::options::{BucketOptions, Coordination, LogStyle, Options};
pub use self::provisioner::Provisioner;
pub use self::request::{ProvisionRequest, ProvisionedVolume};
pub use self::secrets::Secrets;
pub use self::start::Start;
pub use self::volume::{Volume, VolumeSource};
/// The Kubernetes API's types, in the version that this crate uses.
pub use k8s_openapi;
/// The client, in the version that this crate uses.
pub use kube;
/// The error of [`client`] and of the controller's start when the API server cannot be used.
pub use provisioner_runtime::client::ConnectError;
/// Says whether a call of the author's code may still act.
pub use provisioner_runtime::controller::FencingToken;
/// What [`Controller::environment`] takes.
pub use provisioner_runtime::environment::Environment;
/// What stops [`Controller::run_with`].
pub use tokio_util::sync::CancellationToken;
