//! Buckets on the real API server and a real radosgw, made by `ceph-rgw-provisioner`.

mod cases;
mod claims;
mod faults;
mod fixture;
mod grants;
mod many;
mod rook;
mod settings;
