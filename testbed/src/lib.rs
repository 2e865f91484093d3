//! A real Kubernetes control plane for tests, and what tests need around it.
//!
//! [`control_plane`] finds or builds etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and runs them on
//! loopback ports. `cargo xtask test` and `cargo xtask control-plane up` are built on it.
//!
//! [`cluster`] is the fixture that a test uses: a client, a namespace and a provisioner name of its own, waiting with
//! failure messages that say what was seen last, and programs that never outlive the test.
//!
//! [`control_plane::Simulated`] is kube-sim on a port in its place, for what needs no real one.
//!
//! [`ceph`] is a Ceph cluster with an object store that speaks S3, where its packages are installed.
//!
//! [`csi_driver`] has drivers of CSI, one of them on a node, where pods use its volumes. [`csi_sanity`] is upstream's test of drivers.
//!
//! [`dependency`] lists what tests need that a machine may lack, and installs it.
//!
//! [`external_provisioner`] is the sidecar that provisions for drivers of CSI.
//!
//! [`go_module`] downloads modules of Go.
//!
//! [`nfs`] is what tests of NFS need of the machine.
//!
//! [`manifests`] is what `deploy/` is made of; [`helm`] and [`prometheus`] check it.
//!
//! [`oci`] writes container images without a container engine.
//!
//! [`s3`] is S3 and IAM as AWS has them.
//!
//! [`scenario`] runs the files under `scenarios/`: requests and what the real servers answered to them; and those under
//! `csi-scenarios/`: what external-provisioner asks of a driver.
//!
//! [`storage_suite`] has the programs of Kubernetes' own storage tests.
//!
//! [`uml`] runs a program under a kernel of its own, for file systems and quotas that this machine's kernel lacks.
//!
//! [`versity`] is a second store with the API of S3 and IAM, which checks every right, and [`seaweedfs`] a third one. [`garage`] is S3 with an
//! API of its own for keys.
//!
//! A test never skips. Where something is missing that it needs, it fails with one line that says how to install it.

#![warn(missing_docs)]

#[cfg(feature = "s3")]
pub mod bucket_attempts;
#[cfg(feature = "s3")]
pub mod bucket_cases;
#[cfg(feature = "s3")]
pub mod bucket_rights;
mod built;
pub mod cargo;
pub mod ceph;
pub mod cluster;
pub mod control_plane;
pub mod csi_driver;
pub mod csi_sanity;
pub mod dependency;
pub mod external_provisioner;
pub mod faults;
pub mod garage;
pub mod go_module;
pub mod go_provisioner;
pub mod guard;
pub mod helm;
pub mod http;
pub mod manifests;
pub mod nfs;
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
