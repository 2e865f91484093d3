//! The services of `v1alpha1`.

use std::collections::BTreeMap;

use driver_rpc::cosi::v1alpha1::*;
use driver_rpc::{Error, Secrets};

use crate::Protocol as Kind;
use crate::driver::{Driver, Method};
use crate::model::{Account, Bucket, Grant, Model};

impl Identity for Driver {
    async fn driver_get_info(&self, _: DriverGetInfoRequest) -> Result<DriverGetInfoResponse, Error> {
        let name = self.call(Method::GetInfo, "", |model| Ok(model.name())).await?;
        Ok(DriverGetInfoResponse { name })
    }
}

impl Provisioner for Driver {
    async fn driver_create_bucket(
        &self,
        request: DriverCreateBucketRequest,
    ) -> Result<DriverCreateBucketResponse, Error> {
        let kind = self.query(|model| {
            model.require(!request.name.is_empty(), "name")?;
            Ok(model.settings.protocols[0])
        })?;
        let bucket = Bucket { name: request.name, protocols: [kind].into(), parameters: request.parameters };
        let bucket_id = self.create(bucket).await?;
        Ok(DriverCreateBucketResponse { bucket_info: Some(info(kind)), bucket_id })
    }

    async fn driver_delete_bucket(
        &self,
        request: DriverDeleteBucketRequest,
    ) -> Result<DriverDeleteBucketResponse, Error> {
        let id = request.bucket_id;
        self.query(|model| model.require(!id.is_empty(), "bucket_id"))?;
        self.call(Method::DeleteBucket, &id.clone(), move |model| model.delete(&id)).await?;
        Ok(DriverDeleteBucketResponse {})
    }

    async fn driver_grant_bucket_access(
        &self,
        request: DriverGrantBucketAccessRequest,
    ) -> Result<DriverGrantBucketAccessResponse, Error> {
        let protocol = self.query(|model| {
            model.require(!request.bucket_id.is_empty(), "bucket_id")?;
            model.require(!request.name.is_empty(), "name")?;
            model.require(matches!(request.authentication_type, 1 | 2), "authentication_type")?;
            Ok(model.settings.protocols[0])
        })?;
        let grant = Grant {
            name: request.name,
            protocol,
            service_account: String::new(),
            parameters: request.parameters,
            buckets: [(request.bucket_id, 0)].into(),
        };
        let (account_id, account) = self.grant(grant).await?;
        Ok(DriverGrantBucketAccessResponse { account_id, credentials: credentials(account) })
    }

    async fn driver_revoke_bucket_access(
        &self,
        request: DriverRevokeBucketAccessRequest,
    ) -> Result<DriverRevokeBucketAccessResponse, Error> {
        let (id, bucket) = (request.account_id, request.bucket_id);
        self.query(|model| {
            model.require(!id.is_empty(), "account_id")?;
            model.require(!bucket.is_empty(), "bucket_id")
        })?;
        let about = id.clone();
        let revoke = move |model: &mut Model| model.revoke(&id, [&bucket].into_iter());
        self.call(Method::RevokeBucketAccess, &about, revoke).await?;
        Ok(DriverRevokeBucketAccessResponse {})
    }
}

fn credentials(Account { grant, key, secret }: Account) -> BTreeMap<String, CredentialDetails> {
    let secrets = match grant.protocol {
        Kind::S3 => Secrets::from_iter([
            ("endpoint", "https://s3.example.com".to_owned()),
            ("region", "sim-1".to_owned()),
            ("accessKeyID", key),
            ("accessSecretKey", secret),
        ]),
        Kind::Azure => Secrets::from_iter([("accessToken", secret)]),
        Kind::Gcs => Secrets::from_iter([("accessId", key), ("accessSecret", secret)]),
    };
    [(grant.protocol.to_string(), CredentialDetails { secrets })].into()
}

fn info(kind: Kind) -> Protocol {
    let info = match kind {
        Kind::S3 => {
            protocol::Type::S3(S3 { region: "sim-1".to_owned(), signature_version: S3SignatureVersion::S3v4.into() })
        }
        Kind::Azure => protocol::Type::AzureBlob(AzureBlob { storage_account: "cosisim".to_owned() }),
        Kind::Gcs => protocol::Type::Gcs(Gcs { project_id: "cosi-sim".to_owned(), ..Default::default() }),
    };
    Protocol { r#type: Some(info) }
}
