//! Version `v1alpha2`.

use std::collections::BTreeMap;
use std::sync::Arc;

use driver_rpc::cosi::Protocol;
use driver_rpc::cosi::v1alpha2::*;
use driver_rpc::{Error, Status};
use provisioner_runtime::FencingToken;

use super::driver::{Driver, IssuedAccess, RequestedGrant};
use super::errors::invalid;
use crate::bucket::{Access, Endpoint};

/// The region that S3 clients assume for a backend without regions.
const NO_REGION: &str = "us-east-1";

pub(super) struct V1alpha2(pub(super) Arc<Driver>);

impl Identity for V1alpha2 {
    async fn driver_get_info(&self, _: DriverGetInfoRequest) -> Result<DriverGetInfoResponse, Error> {
        let s3 = ObjectProtocol { r#type: Protocol::S3 as i32 };
        Ok(DriverGetInfoResponse { name: self.0.name().to_owned(), supported_protocols: vec![s3] })
    }
}

impl Provisioner for V1alpha2 {
    async fn driver_create_bucket(
        &self,
        request: DriverCreateBucketRequest,
    ) -> Result<DriverCreateBucketResponse, Error> {
        request.protocols.iter().try_for_each(check_s3)?;
        let (token, _guard) = FencingToken::of_call(|| true);
        let endpoint = self.0.create(&request.name, request.parameters, &token).await?;
        let protocols = Some(info(&request.name, &endpoint));
        Ok(DriverCreateBucketResponse { bucket_id: request.name, protocols })
    }

    async fn driver_get_existing_bucket(
        &self,
        request: DriverGetExistingBucketRequest,
    ) -> Result<DriverGetExistingBucketResponse, Error> {
        request.protocols.iter().try_for_each(check_s3)?;
        let id = request.existing_bucket_id;
        let endpoint = self.0.find(&id, request.parameters).await?;
        let protocols = Some(info(&id, &endpoint));
        Ok(DriverGetExistingBucketResponse { bucket_id: id, protocols })
    }

    async fn driver_delete_bucket(
        &self,
        request: DriverDeleteBucketRequest,
    ) -> Result<DriverDeleteBucketResponse, Error> {
        let (token, _guard) = FencingToken::of_call(|| true);
        self.0.delete(&request.bucket_id, request.parameters, &token).await?;
        Ok(DriverDeleteBucketResponse {})
    }

    async fn driver_grant_bucket_access(
        &self,
        request: DriverGrantBucketAccessRequest,
    ) -> Result<DriverGrantBucketAccessResponse, Error> {
        check_s3(&request.protocol.unwrap_or_default())?;
        check_key_authentication(request.authentication_type)?;
        let mut buckets = BTreeMap::new();
        for bucket in request.buckets {
            let access = access(bucket.access_mode)?;
            if buckets.insert(bucket.bucket_id, access).is_some() {
                return Err(invalid("a bucket is named twice").into());
            }
        }
        let names: Vec<_> = buckets.keys().cloned().collect();
        let wanted = RequestedGrant { account: request.account_name.clone(), buckets, parameters: request.parameters };
        let (token, _guard) = FencingToken::of_call(|| true);
        let IssuedAccess { endpoint, key } = self.0.grant(wanted, &token).await?;
        let bucket = |id: String| driver_grant_bucket_access_response::BucketInfo {
            bucket_info: Some(info(&id, &endpoint)),
            bucket_id: id,
        };
        let s3 = S3CredentialInfo { access_key_id: key.access_key_id, access_secret_key: key.secret_access_key };
        Ok(DriverGrantBucketAccessResponse {
            account_id: request.account_name,
            buckets: names.into_iter().map(bucket).collect(),
            credentials: Some(CredentialInfo { s3: Some(s3), azure: None, gcs: None }),
        })
    }

    async fn driver_revoke_bucket_access(
        &self,
        request: DriverRevokeBucketAccessRequest,
    ) -> Result<DriverRevokeBucketAccessResponse, Error> {
        let buckets: Vec<_> = request.buckets.into_iter().map(|bucket| bucket.bucket_id).collect();
        let (token, _guard) = FencingToken::of_call(|| true);
        self.0.revoke(&request.account_id, &buckets, Some(request.parameters), &token).await?;
        Ok(DriverRevokeBucketAccessResponse {})
    }
}

fn check_s3(protocol: &ObjectProtocol) -> Result<(), Status> {
    match Protocol::of(protocol.r#type) {
        Some(Protocol::S3) => Ok(()),
        Some(other) => Err(invalid(format!("the protocol {other} is not supported: use S3"))),
        None => Err(invalid("a protocol is required: use S3")),
    }
}

fn check_key_authentication(authentication: Option<AuthenticationType>) -> Result<(), Status> {
    use authentication_type::Type;
    match authentication.and_then(|authentication| Type::try_from(authentication.r#type).ok()) {
        Some(Type::Key) => Ok(()),
        Some(Type::ServiceAccount) => Err(invalid(
            "authenticationType ServiceAccount needs the namespace of the service account, which COSI does not provide: use Key",
        )),
        Some(Type::Unknown) | None => Err(invalid("authentication_type is required")),
    }
}

fn access(mode: Option<AccessMode>) -> Result<Access, Status> {
    use access_mode::Mode;
    match mode.and_then(|mode| Mode::try_from(mode.mode).ok()) {
        Some(Mode::ReadWrite) => Ok(Access::ReadWrite),
        Some(Mode::ReadOnly) => Ok(Access::ReadOnly),
        Some(Mode::WriteOnly) => Ok(Access::WriteOnly),
        Some(Mode::Unknown) | None => Err(invalid("access_mode is required")),
    }
}

/// Returns what clients need to know about a bucket. Every backend accepts its name in the path.
fn info(bucket: &str, endpoint: &Endpoint) -> ObjectProtocolAndBucketInfo {
    let s3 = S3BucketInfo {
        bucket_id: bucket.to_owned(),
        endpoint: endpoint.url(),
        region: region(endpoint),
        addressing_style: Some(S3AddressingStyle { style: s3_addressing_style::Style::Path.into() }),
    };
    ObjectProtocolAndBucketInfo { s3: Some(s3), azure: None, gcs: None }
}

pub(super) fn region(endpoint: &Endpoint) -> String {
    if endpoint.region.is_empty() { NO_REGION.to_owned() } else { endpoint.region.clone() }
}
