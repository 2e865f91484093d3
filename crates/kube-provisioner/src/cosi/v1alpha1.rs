//! Version `v1alpha1`, as called by release 0.2.2 of the sidecar.

use std::collections::BTreeMap;
use std::sync::Arc;

use driver_rpc::cosi::Protocol as Kind;
use driver_rpc::cosi::v1alpha1::*;
use driver_rpc::{Code, Error, Secrets, Status};
use provisioner_runtime::FencingToken;

use super::driver::{Driver, IssuedAccess, RequestedGrant};
use super::errors::{invalid, precondition};
use super::v1alpha2::region;
use crate::bucket::Access;

pub(super) struct V1alpha1(pub(super) Arc<Driver>);

impl Identity for V1alpha1 {
    async fn driver_get_info(&self, _: DriverGetInfoRequest) -> Result<DriverGetInfoResponse, Error> {
        Ok(DriverGetInfoResponse { name: self.0.name().to_owned() })
    }
}

impl Provisioner for V1alpha1 {
    async fn driver_create_bucket(
        &self,
        request: DriverCreateBucketRequest,
    ) -> Result<DriverCreateBucketResponse, Error> {
        let (token, _guard) = FencingToken::of_call(|| true);
        let endpoint = self.0.create(&request.name, request.parameters, &token).await?;
        let s3 = S3 { region: region(&endpoint), signature_version: S3SignatureVersion::S3v4.into() };
        let info = Protocol { r#type: Some(protocol::Type::S3(s3)) };
        Ok(DriverCreateBucketResponse { bucket_id: request.name, bucket_info: Some(info) })
    }

    async fn driver_delete_bucket(
        &self,
        request: DriverDeleteBucketRequest,
    ) -> Result<DriverDeleteBucketResponse, Error> {
        let (token, _guard) = FencingToken::of_call(|| true);
        self.0.delete(&request.bucket_id, request.delete_context, &token).await?;
        Ok(DriverDeleteBucketResponse {})
    }

    async fn driver_grant_bucket_access(
        &self,
        request: DriverGrantBucketAccessRequest,
    ) -> Result<DriverGrantBucketAccessResponse, Error> {
        let DriverGrantBucketAccessRequest { bucket_id, name, authentication_type, parameters } = request;
        match AuthenticationType::try_from(authentication_type) {
            Ok(AuthenticationType::Key) => {}
            Ok(AuthenticationType::Iam) => {
                let text = "authenticationType IAM needs the namespace of the service account, which COSI does not provide: use Key";
                return Err(invalid(text).into());
            }
            _ => return Err(invalid("authentication_type is required").into()),
        }
        if bucket_id.is_empty() {
            return Err(invalid("bucket_id is required").into());
        }
        let buckets = BTreeMap::from([(bucket_id, Access::default())]);
        let wanted = RequestedGrant { account: name.clone(), buckets, parameters };
        let (token, _guard) = FencingToken::of_call(|| true);
        let IssuedAccess { endpoint, key } = self.0.grant(wanted, &token).await.map_err(without_already_exists)?;
        let secrets = Secrets::from_iter([
            ("endpoint", endpoint.url()),
            ("region", region(&endpoint)),
            ("accessKeyID", key.access_key_id),
            ("accessSecretKey", key.secret_access_key),
        ]);
        let credentials = BTreeMap::from([(Kind::S3.to_string(), CredentialDetails { secrets })]);
        Ok(DriverGrantBucketAccessResponse { account_id: name, credentials })
    }

    async fn driver_revoke_bucket_access(
        &self,
        request: DriverRevokeBucketAccessRequest,
    ) -> Result<DriverRevokeBucketAccessResponse, Error> {
        let DriverRevokeBucketAccessRequest { bucket_id, account_id, revoke_access_context } = request;
        let buckets: Vec<_> = Some(bucket_id).into_iter().filter(|bucket| !bucket.is_empty()).collect();
        // The sidecar sends no parameters.
        let parameters = Some(revoke_access_context).filter(|context| !context.is_empty());
        let (token, _guard) = FencingToken::of_call(|| true);
        self.0.revoke(&account_id, &buckets, parameters, &token).await?;
        Ok(DriverRevokeBucketAccessResponse {})
    }
}

/// Replaces the code `AlreadyExists`: the sidecar treats it as success, and crashes because the response is missing.
fn without_already_exists(status: Status) -> Status {
    if status.code() == Code::AlreadyExists { precondition(status.message()) } else { status }
}
