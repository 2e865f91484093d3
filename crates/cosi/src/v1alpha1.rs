//! The version `v1alpha1`, as release 0.2.2 has it.

use driver_rpc::private::{Body, Incoming, Request, Response};
use driver_rpc::{Client, service};

use self::messages::*;

pub mod messages;

service! {
    /// Who the driver is.
    Identity, identity of Client in "cosi.v1alpha1" {
        DriverGetInfo driver_get_info(DriverGetInfoRequest) -> DriverGetInfoResponse;
    }
}

service! {
    /// Buckets, and access to them.
    Provisioner, provisioner of Client in "cosi.v1alpha1" {
        DriverCreateBucket driver_create_bucket(DriverCreateBucketRequest) -> DriverCreateBucketResponse;
        DriverDeleteBucket driver_delete_bucket(DriverDeleteBucketRequest) -> DriverDeleteBucketResponse;
        DriverGrantBucketAccess driver_grant_bucket_access(DriverGrantBucketAccessRequest) -> DriverGrantBucketAccessResponse;
        DriverRevokeBucketAccess driver_revoke_bucket_access(DriverRevokeBucketAccessRequest) -> DriverRevokeBucketAccessResponse;
    }
}

pub(crate) async fn answer<D: Identity + Provisioner>(driver: &D, request: Request<Incoming>) -> Response<Body> {
    match request.uri().path().starts_with("/cosi.v1alpha1.Identity/") {
        true => identity(driver, request).await,
        // Calls of any other service are unimplemented there.
        false => provisioner(driver, request).await,
    }
}
