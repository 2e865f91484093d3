//! Buckets on SeaweedFS, made by `aws-s3-provisioner`. It keeps no tags of new users and new buckets, and checks every right.

mod cases;
mod contract;
mod fixture;
mod rights;
mod settings;
