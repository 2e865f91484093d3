//! A real Kubernetes control plane for tests, and other fixtures.
//!
//! [`control_plane`] finds or builds etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and runs them on
//! loopback ports. `cargo xtask test` and `cargo xtask control-plane up` use it.
//!
//! [`cluster`] is the fixture of a test: a client, a namespace and a provisioner name, waits whose failures show the
//! last state that was seen, and programs that never outlive the test.
//!
//! [`control_plane::Simulated`] runs kube-sim on a port, for tests that need no real control plane.
//!
//! [`ceph`] runs a Ceph cluster with an S3 object store, if its packages are installed.
//!
//! [`csi_driver`] contains CSI drivers, one of them on a node, where pods use its volumes. [`csi_sanity`] is upstream's
//! test suite for drivers.
//!
//! [`dependency`] lists and installs the requirements of tests that a machine may lack.
//!
//! [`external_provisioner`] is the sidecar that provisions for CSI drivers.
//!
//! [`go_module`] downloads Go modules.
//!
//! [`nfs`] contains the requirements of NFS tests. [`nfs_subdir`] is another NFS provisioner, for comparison.
//!
//! [`manifests`] generates `deploy/`; [`helm`] and [`prometheus`] check it.
//!
//! [`oci`] writes container images without a container engine.
//!
//! [`s3`] emulates S3 and IAM of AWS.
//!
//! [`scenario`] runs the files in `scenarios/`, which contain requests and the recorded responses of the real servers,
//! and those in `csi-scenarios/`, with the recorded calls of external-provisioner to a driver.
//!
//! [`storage_suite`] contains the programs of Kubernetes' own storage tests.
//!
//! [`uml`] runs programs under a separate kernel, for file systems and quotas that this machine's kernel lacks.
//!
//! [`versity`] and [`seaweedfs`] are further stores with S3 and IAM, which check all permissions. [`garage`] is an S3
//! store with its own API for keys.
//!
//! Tests are never skipped. A test that lacks a requirement fails with one line that explains how to install it.

#![warn(missing_docs)]

use std::str::FromStr;

use anyhow::Context;

#[cfg(feature = "s3")]
pub mod bucket_attempts;
#[cfg(feature = "s3")]
pub mod bucket_cases;
#[cfg(feature = "s3")]
pub mod bucket_rights;
mod cached_program;
pub mod cargo;
pub mod ceph;
pub mod cluster;
pub mod control_plane;
pub mod csi_driver;
pub mod csi_sanity;
pub mod dependency;
pub mod external_provisioner;
pub mod faults;
pub mod figures;
pub mod garage;
pub mod go_module;
pub mod go_provisioner;
pub mod guard;
pub mod helm;
pub mod http;
pub mod manifests;
pub mod nfs;
pub mod nfs_subdir;
pub mod oci;
pub mod packages;
pub mod ports;
pub mod process;
pub mod progress;
pub mod prometheus;
pub mod rights;
pub mod s3;
#[cfg(feature = "scenarios")]
pub mod scenario;
pub mod seaweedfs;
mod shared;
pub mod storage_suite;
mod supervisor;
pub mod toy;
pub mod uml;
pub mod versity;

/// A count that a variable changes for longer runs.
pub fn count<T: FromStr>(variable: &str, usual: T) -> anyhow::Result<T> {
    let Ok(text) = std::env::var(variable) else { return Ok(usual) };
    text.parse::<T>().ok().with_context(|| format!("{variable} is not a number: {text}"))
}
