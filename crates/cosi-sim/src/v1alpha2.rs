//! The services of `v1alpha2`.

use std::collections::BTreeSet;

use driver_rpc::cosi::v1alpha2::*;
use driver_rpc::{Error, Status};

use crate::driver::{Driver, Method};
use crate::model::{Account, Bucket, Grant, Model};
use crate::{Fault, Protocol};

use self::authentication_type::Type as Authentication;
use self::driver_grant_bucket_access_response::BucketInfo;

impl Identity for Driver {
    async fn driver_get_info(&self, _: DriverGetInfoRequest) -> Result<DriverGetInfoResponse, Error> {
        let info = |model: &mut Model| {
            let none = model.has(Fault::NoProtocols);
            let protocols = model.settings.protocols.iter().filter(|_| !none).map(|protocol| object(*protocol));
            Ok(DriverGetInfoResponse { name: model.name(), supported_protocols: protocols.collect() })
        };
        self.call(Method::GetInfo, "", info).await
    }
}

impl Provisioner for Driver {
    async fn driver_create_bucket(
        &self,
        request: DriverCreateBucketRequest,
    ) -> Result<DriverCreateBucketResponse, Error> {
        let protocols = self.query(|model| {
            model.require(!request.name.is_empty(), "name")?;
            wanted(model, &request.protocols)
        })?;
        let bucket = Bucket { name: request.name, protocols, parameters: request.parameters };
        let bucket_id = self.create(bucket).await?;
        let protocols = self.query(|model| Ok(infos(model, &bucket_id)))?;
        Ok(DriverCreateBucketResponse { bucket_id, protocols: Some(protocols) })
    }

    async fn driver_get_existing_bucket(
        &self,
        request: DriverGetExistingBucketRequest,
    ) -> Result<DriverGetExistingBucketResponse, Error> {
        let id = request.existing_bucket_id;
        self.query(|model| model.require(!id.is_empty(), "existing_bucket_id"))?;
        let get = move |model: &mut Model| {
            let wanted = wanted(model, &request.protocols)?;
            let bucket = model.get(&id);
            if model.has(Fault::LosesExisting) || (bucket.is_err() && !model.has(Fault::FindsMissing)) {
                return Err(Status::not_found(format!("there is no bucket {id}")));
            }
            if bucket.is_ok_and(|bucket| !bucket.protocols.is_superset(&wanted)) {
                return Err(Status::invalid_argument(format!("bucket {id} does not support the protocols")));
            }
            Ok(DriverGetExistingBucketResponse { protocols: Some(infos(model, &id)), bucket_id: id })
        };
        self.call(Method::GetExistingBucket, "", get).await
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
        let authentication = request.authentication_type.unwrap_or_default().r#type();
        let protocol = self.query(|model| {
            model.require(!request.account_name.is_empty(), "account_name")?;
            model.require(request.protocol.as_ref().is_some_and(|protocol| protocol.r#type != 0), "protocol")?;
            model.require(authentication != Authentication::Unknown, "authentication_type")?;
            let named = authentication != Authentication::ServiceAccount || !request.service_account_name.is_empty();
            model.require(named, "service_account_name")?;
            model.require(!request.buckets.is_empty(), "buckets")?;
            for bucket in &request.buckets {
                model.require(!bucket.bucket_id.is_empty(), "bucket_id")?;
                model.require(bucket.access_mode.as_ref().is_some_and(|mode| mode.mode != 0), "access_mode")?;
            }
            let protocol: Vec<_> = request.protocol.into_iter().collect();
            Ok(wanted(model, &protocol)?.into_iter().next().unwrap_or(model.settings.protocols[0]))
        })?;
        let mode = |mode: Option<AccessMode>| mode.unwrap_or_default().mode;
        let grant = Grant {
            name: request.account_name,
            protocol,
            service_account: request.service_account_name,
            parameters: request.parameters,
            buckets: request.buckets.into_iter().map(|bucket| (bucket.bucket_id, mode(bucket.access_mode))).collect(),
        };
        let asked: Vec<String> = grant.buckets.keys().cloned().collect();
        let (account_id, account) = self.grant(grant).await?;
        let buckets = self.query(|model| Ok(granted(model, asked, protocol)))?;
        Ok(DriverGrantBucketAccessResponse { account_id, buckets, credentials: Some(credentials(account)) })
    }

    async fn driver_revoke_bucket_access(
        &self,
        request: DriverRevokeBucketAccessRequest,
    ) -> Result<DriverRevokeBucketAccessResponse, Error> {
        let id = request.account_id;
        let authentication = request.authentication_type.unwrap_or_default().r#type();
        self.query(|model| {
            model.require(!id.is_empty(), "account_id")?;
            model.require(request.protocol.is_some_and(|protocol| protocol.r#type != 0), "protocol")?;
            model.require(authentication != Authentication::Unknown, "authentication_type")?;
            model.require(!request.buckets.is_empty(), "buckets")
        })?;
        let buckets = request.buckets;
        let about = id.clone();
        let revoke = move |model: &mut Model| model.revoke(&id, buckets.iter().map(|bucket| &bucket.bucket_id));
        self.call(Method::RevokeBucketAccess, &about, revoke).await?;
        Ok(DriverRevokeBucketAccessResponse {})
    }
}

/// Returns the protocols of a request. Fails if one is not supported.
fn wanted(model: &Model, protocols: &[ObjectProtocol]) -> Result<BTreeSet<Protocol>, Status> {
    let mut wanted = BTreeSet::new();
    for protocol in protocols {
        match Protocol::of(protocol.r#type).filter(|known| model.supports(*known)) {
            Some(known) => {
                wanted.insert(known);
            }
            None if model.has(Fault::AcceptsUnsupportedProtocols) && protocol.r#type != 0 => {}
            None if model.has(Fault::AcceptsMissingFields) && protocol.r#type == 0 => {}
            None => {
                return Err(Status::invalid_argument(format!("protocol {:?} is not supported", protocol.r#type())));
            }
        }
    }
    if wanted.is_empty() {
        wanted.insert(model.settings.protocols[0]);
    }
    Ok(wanted)
}

fn object(protocol: Protocol) -> ObjectProtocol {
    ObjectProtocol { r#type: protocol as i32 }
}

/// Returns the info of a bucket for all its protocols.
fn infos(model: &Model, id: &str) -> ObjectProtocolAndBucketInfo {
    let protocols = if model.has(Fault::OtherInfo) {
        Protocol::ALL.into_iter().filter(|other| !model.supports(*other)).collect()
    } else {
        model.get(id).map_or_else(|_| [model.settings.protocols[0]].into(), |bucket| bucket.protocols.clone())
    };
    info(model, id, &protocols)
}

fn info(model: &Model, id: &str, protocols: &BTreeSet<Protocol>) -> ObjectProtocolAndBucketInfo {
    let has = |protocol| protocols.contains(&protocol);
    let text = |text: &str| if model.has(Fault::EmptyInfo) { String::new() } else { text.to_owned() };
    ObjectProtocolAndBucketInfo {
        s3: has(Protocol::S3).then(|| S3BucketInfo {
            bucket_id: id.to_owned(),
            endpoint: text("https://s3.example.com"),
            region: "sim-1".to_owned(),
            addressing_style: Some(S3AddressingStyle { style: s3_addressing_style::Style::Path.into() }),
        }),
        azure: has(Protocol::Azure).then(|| AzureBucketInfo { storage_account: text("cosisim") }),
        gcs: has(Protocol::Gcs).then(|| GcsBucketInfo { project_id: "cosi-sim".to_owned(), bucket_name: text(id) }),
    }
}

fn granted(model: &Model, mut ids: Vec<String>, protocol: Protocol) -> Vec<BucketInfo> {
    if model.has(Fault::OmitsBucket) {
        ids.pop();
    }
    if model.has(Fault::ExtraBucket) {
        ids.push("another".to_owned());
    }
    let info = |id: String| BucketInfo { bucket_info: Some(info(model, &id, &[protocol].into())), bucket_id: id };
    ids.into_iter().map(info).collect()
}

fn credentials(Account { grant, key, secret }: Account) -> CredentialInfo {
    let mut info = CredentialInfo::default();
    match grant.protocol {
        Protocol::S3 => info.s3 = Some(S3CredentialInfo { access_key_id: key, access_secret_key: secret }),
        Protocol::Azure => info.azure = Some(AzureCredentialInfo { access_token: secret, ..Default::default() }),
        Protocol::Gcs => {
            info.gcs = Some(GcsCredentialInfo { access_id: key, access_secret: secret, ..Default::default() });
        }
    }
    info
}
