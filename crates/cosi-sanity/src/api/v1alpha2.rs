//! The calls of `v1alpha2`.

use driver_rpc::cosi::Protocol;
use driver_rpc::cosi::v1alpha2::*;
use driver_rpc::{Client, Error};

use super::{Access, AccessedBucket, Bucket, CreateRequest, Fields, GrantRequest, Info};
use crate::Parameters;

pub(super) async fn info(client: &Client) -> Result<Info, Error> {
    let answer = client.driver_get_info(DriverGetInfoRequest {}).await?;
    let protocols = answer.supported_protocols.iter().map(|protocol| protocol.r#type).collect();
    Ok(Info { name: answer.name, protocols })
}

pub(super) async fn create(client: &Client, request: &CreateRequest) -> Result<Bucket, Error> {
    let request = DriverCreateBucketRequest {
        name: request.name.clone(),
        protocols: objects(&request.protocols),
        parameters: request.parameters.clone(),
    };
    let answer = client.driver_create_bucket(request).await?;
    Ok(bucket(answer.bucket_id, answer.protocols))
}

pub(super) async fn existing(
    client: &Client,
    id: &str,
    protocols: &[i32],
    parameters: &Parameters,
) -> Result<Bucket, Error> {
    let request = DriverGetExistingBucketRequest {
        existing_bucket_id: id.to_owned(),
        protocols: objects(protocols),
        parameters: parameters.clone(),
    };
    let answer = client.driver_get_existing_bucket(request).await?;
    Ok(bucket(answer.bucket_id, answer.protocols))
}

pub(super) async fn delete(client: &Client, id: &str, parameters: &Parameters) -> Result<(), Error> {
    let request = DriverDeleteBucketRequest { bucket_id: id.to_owned(), parameters: parameters.clone() };
    client.driver_delete_bucket(request).await.map(drop)
}

pub(super) async fn grant(client: &Client, request: &GrantRequest) -> Result<Access, Error> {
    let bucket = |id: &String| driver_grant_bucket_access_request::AccessedBucket {
        bucket_id: id.clone(),
        access_mode: (request.mode != 0).then_some(AccessMode { mode: request.mode }),
    };
    let request = DriverGrantBucketAccessRequest {
        account_name: request.account.clone(),
        protocol: object(request.protocol),
        authentication_type: authentication(request.authentication),
        service_account_name: String::new(),
        parameters: request.parameters.clone(),
        buckets: request.buckets.iter().map(bucket).collect(),
    };
    let answer = client.driver_grant_bucket_access(request).await?;
    let buckets = answer.buckets.into_iter().map(|bucket| AccessedBucket {
        id: bucket.bucket_id,
        info: bucket.bucket_info.as_ref().map(infos).unwrap_or_default(),
    });
    Ok(Access {
        account_id: answer.account_id,
        buckets: buckets.collect(),
        credentials: answer.credentials.as_ref().map(credentials).unwrap_or_default(),
    })
}

pub(super) async fn revoke(client: &Client, account_id: &str, granted: &GrantRequest) -> Result<(), Error> {
    let bucket = |id: &String| driver_revoke_bucket_access_request::AccessedBucket { bucket_id: id.clone() };
    let request = DriverRevokeBucketAccessRequest {
        account_id: account_id.to_owned(),
        protocol: object(granted.protocol),
        authentication_type: authentication(granted.authentication),
        service_account_name: String::new(),
        parameters: granted.parameters.clone(),
        buckets: granted.buckets.iter().map(bucket).collect(),
    };
    client.driver_revoke_bucket_access(request).await.map(drop)
}

fn objects(numbers: &[i32]) -> Vec<ObjectProtocol> {
    numbers.iter().map(|number| ObjectProtocol { r#type: *number }).collect()
}

fn object(number: i32) -> Option<ObjectProtocol> {
    (number != 0).then_some(ObjectProtocol { r#type: number })
}

fn authentication(number: i32) -> Option<AuthenticationType> {
    (number != 0).then_some(AuthenticationType { r#type: number })
}

fn bucket(id: String, info: Option<ObjectProtocolAndBucketInfo>) -> Bucket {
    let info = info.unwrap_or_default();
    let has = [info.s3.is_some(), info.azure.is_some(), info.gcs.is_some()];
    let protocols = Protocol::ALL.into_iter().zip(has).filter(|(_, has)| *has).map(|(protocol, _)| protocol);
    Bucket { id, protocols: protocols.collect() }
}

fn infos(info: &ObjectProtocolAndBucketInfo) -> Vec<Fields> {
    let s3 = info.s3.as_ref().map(|s3| {
        let style = s3.addressing_style.as_ref().map_or(0, |style| style.style);
        let fields = [
            ("bucket_id", s3.bucket_id.is_empty()),
            ("endpoint", s3.endpoint.is_empty()),
            ("region", s3.region.is_empty()),
            ("addressing_style", style == 0),
        ];
        Fields::new(Protocol::S3, &fields)
    });
    let azure = info
        .azure
        .as_ref()
        .map(|azure| Fields::new(Protocol::Azure, &[("storage_account", azure.storage_account.is_empty())]));
    let gcs = info.gcs.as_ref().map(|gcs| {
        let fields = [("project_id", gcs.project_id.is_empty()), ("bucket_name", gcs.bucket_name.is_empty())];
        Fields::new(Protocol::Gcs, &fields)
    });
    [s3, azure, gcs].into_iter().flatten().collect()
}

fn credentials(credentials: &CredentialInfo) -> Vec<Fields> {
    let s3 = credentials.s3.as_ref().map(|s3| {
        let fields =
            [("access_key_id", s3.access_key_id.is_empty()), ("access_secret_key", s3.access_secret_key.is_empty())];
        Fields::new(Protocol::S3, &fields)
    });
    let azure = credentials
        .azure
        .as_ref()
        .map(|azure| Fields::new(Protocol::Azure, &[("access_token", azure.access_token.is_empty())]));
    let gcs = credentials.gcs.as_ref().map(|gcs| {
        let fields = [("access_id", gcs.access_id.is_empty()), ("access_secret", gcs.access_secret.is_empty())];
        Fields::new(Protocol::Gcs, &fields)
    });
    [s3, azure, gcs].into_iter().flatten().collect()
}
