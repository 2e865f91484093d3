//! Buckets of `ceph-rgw-provisioner` on the real API server and a real radosgw.

mod claims;
mod faults;
pub(crate) mod fixture;
mod grants;
mod many;
mod rook;
mod settings;

mod ceph_cases {
    crate::store_cases::store_cases!(super::fixture::Fixture, "bucket");
}
