//! Our bucket provisioners as COSI drivers, and as replacements of COSI's sidecar, on real stores and the real API
//! server.

mod aws;
mod central;
mod ceph;
mod fixture;
mod gcs;
pub(crate) mod native;
mod native_aws;
mod native_gcs;
