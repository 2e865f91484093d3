//! The version `v1alpha2`, as it was in March 2026.

use driver_rpc::private::{Body, Incoming, Request, Response};
use driver_rpc::{Client, service};

use self::messages::*;

pub mod messages;

service! {
    /// Who the driver is, and which protocols it supports.
    Identity, identity of Client in "sigs.k8s.io.cosi.v1alpha2" {
        DriverGetInfo driver_get_info(DriverGetInfoRequest) -> DriverGetInfoResponse;
    }
}

service! {
    /// Buckets, and access to them.
    Provisioner, provisioner of Client in "sigs.k8s.io.cosi.v1alpha2" {
        DriverCreateBucket driver_create_bucket(DriverCreateBucketRequest) -> DriverCreateBucketResponse;
        DriverGetExistingBucket driver_get_existing_bucket(DriverGetExistingBucketRequest) -> DriverGetExistingBucketResponse;
        DriverDeleteBucket driver_delete_bucket(DriverDeleteBucketRequest) -> DriverDeleteBucketResponse;
        DriverGrantBucketAccess driver_grant_bucket_access(DriverGrantBucketAccessRequest) -> DriverGrantBucketAccessResponse;
        DriverRevokeBucketAccess driver_revoke_bucket_access(DriverRevokeBucketAccessRequest) -> DriverRevokeBucketAccessResponse;
    }
}

pub(crate) async fn answer<D: Identity + Provisioner>(driver: &D, request: Request<Incoming>) -> Response<Body> {
    match request.uri().path().starts_with("/sigs.k8s.io.cosi.v1alpha2.Identity/") {
        true => identity(driver, request).await,
        // Calls of any other service are unimplemented there.
        false => provisioner(driver, request).await,
    }
}
