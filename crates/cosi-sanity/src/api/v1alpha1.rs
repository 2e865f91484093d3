//! The calls of `v1alpha1`.

use driver_rpc::cosi::v1alpha1::*;
use driver_rpc::{Client, Error};

use super::{Access, Bucket, CreateRequest, Fields, GrantRequest, Info};
use crate::Parameters;

pub(super) async fn info(client: &Client) -> Result<Info, Error> {
    let answer = client.driver_get_info(DriverGetInfoRequest {}).await?;
    Ok(Info { name: answer.name, protocols: Vec::new() })
}

pub(super) async fn create(client: &Client, request: &CreateRequest) -> Result<Bucket, Error> {
    let request = DriverCreateBucketRequest { name: request.name.clone(), parameters: request.parameters.clone() };
    let answer = client.driver_create_bucket(request).await?;
    Ok(Bucket { id: answer.bucket_id, protocols: Vec::new() })
}

pub(super) async fn delete(client: &Client, id: &str, parameters: &Parameters) -> Result<(), Error> {
    let request = DriverDeleteBucketRequest { bucket_id: id.to_owned(), delete_context: parameters.clone() };
    client.driver_delete_bucket(request).await.map(drop)
}

pub(super) async fn grant(client: &Client, request: &GrantRequest) -> Result<Access, Error> {
    let request = DriverGrantBucketAccessRequest {
        bucket_id: request.buckets.first().cloned().unwrap_or_default(),
        name: request.account.clone(),
        authentication_type: request.authentication,
        parameters: request.parameters.clone(),
    };
    let answer = client.driver_grant_bucket_access(request).await?;
    let credentials = answer.credentials.iter().map(|(protocol, details)| fields(protocol, details)).collect();
    Ok(Access { account_id: answer.account_id, buckets: Vec::new(), credentials })
}

pub(super) async fn revoke(client: &Client, account_id: &str, granted: &GrantRequest) -> Result<(), Error> {
    let request = DriverRevokeBucketAccessRequest {
        bucket_id: granted.buckets.first().cloned().unwrap_or_default(),
        account_id: account_id.to_owned(),
        ..Default::default()
    };
    client.driver_revoke_bucket_access(request).await.map(drop)
}

/// Returns the fields that the sidecar writes to the Secret.
fn fields(protocol: &str, details: &CredentialDetails) -> Fields {
    let required: &[&'static str] = match protocol {
        "s3" => &["endpoint", "accessKeyID", "accessSecretKey"],
        "azure" => &["accessToken"],
        _ => &[],
    };
    let is_empty = |field: &&'static str| (*field, details.secrets.get(field).is_none_or(str::is_empty));
    Fields::new(protocol, &required.iter().map(is_empty).collect::<Vec<_>>())
}
