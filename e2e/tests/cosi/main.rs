//! Our bucket provisioners as drivers of COSI, on real stores, with their records on the real API server.

mod aws;
mod ceph;
mod fixture;
mod gcs;
