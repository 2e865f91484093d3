//! The messages, named as in the specification, which also says what each field means. The parts of a message are in a module of its name.

// The meaning of a field is the specification's to say.
#![allow(missing_docs)]

use std::collections::BTreeMap;

use driver_rpc::Secrets;

/// How requests to S3 are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum S3SignatureVersion {
    UnknownSignature = 0,
    S3V2 = 1,
    S3V4 = 2,
}

/// What anybody may do without credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum AnonymousBucketAccessMode {
    UnknownBucketAccessMode = 0,
    Private = 1,
    ReadOnly = 2,
    WriteOnly = 3,
    ReadWrite = 4,
}

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum AuthenticationType {
    UnknownAuthenticationType = 0,
    Key = 1,
    Iam = 2,
}

/// A bucket of S3.
#[derive(Clone, PartialEq, prost::Message)]
pub struct S3 {
    #[prost(string, tag = "1")]
    pub region: String,
    #[prost(enumeration = "S3SignatureVersion", tag = "2")]
    pub signature_version: i32,
}

/// A container of Azure Blob.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AzureBlob {
    #[prost(string, tag = "1")]
    pub storage_account: String,
}

/// A bucket of Google Cloud Storage.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Gcs {
    #[prost(string, tag = "1")]
    pub private_key_name: String,
    #[prost(string, tag = "2")]
    pub project_id: String,
    #[prost(string, tag = "3")]
    pub service_account: String,
}

/// What a client needs to know of a bucket.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Protocol {
    #[prost(oneof = "protocol::Type", tags = "1, 2, 3")]
    pub r#type: Option<protocol::Type>,
}

/// The parts of [`Protocol`].
pub mod protocol {
    /// One of the protocols.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Type {
        #[prost(message, tag = "1")]
        S3(super::S3),
        #[prost(message, tag = "2")]
        AzureBlob(super::AzureBlob),
        #[prost(message, tag = "3")]
        Gcs(super::Gcs),
    }
}

/// Credentials for one protocol.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CredentialDetails {
    #[prost(message, repeated, tag = "1")]
    pub secrets: Secrets,
}

/// The request of `Identity.DriverGetInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGetInfoRequest {}

/// The answer of `Identity.DriverGetInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGetInfoResponse {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The request of `Provisioner.DriverCreateBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverCreateBucketRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub parameters: BTreeMap<String, String>,
}

/// The answer of `Provisioner.DriverCreateBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverCreateBucketResponse {
    #[prost(string, tag = "1")]
    pub bucket_id: String,
    #[prost(message, optional, tag = "2")]
    pub bucket_info: Option<Protocol>,
}

/// The request of `Provisioner.DriverDeleteBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverDeleteBucketRequest {
    #[prost(string, tag = "1")]
    pub bucket_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub delete_context: BTreeMap<String, String>,
}

/// The answer of `Provisioner.DriverDeleteBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverDeleteBucketResponse {}

/// The request of `Provisioner.DriverGrantBucketAccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGrantBucketAccessRequest {
    #[prost(string, tag = "1")]
    pub bucket_id: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(enumeration = "AuthenticationType", tag = "3")]
    pub authentication_type: i32,
    #[prost(btree_map = "string, string", tag = "4")]
    pub parameters: BTreeMap<String, String>,
}

/// The answer of `Provisioner.DriverGrantBucketAccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGrantBucketAccessResponse {
    #[prost(string, tag = "1")]
    pub account_id: String,
    #[prost(btree_map = "string, message", tag = "2")]
    pub credentials: BTreeMap<String, CredentialDetails>,
}

/// The request of `Provisioner.DriverRevokeBucketAccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverRevokeBucketAccessRequest {
    #[prost(string, tag = "1")]
    pub bucket_id: String,
    #[prost(string, tag = "2")]
    pub account_id: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub revoke_access_context: BTreeMap<String, String>,
}

/// The answer of `Provisioner.DriverRevokeBucketAccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverRevokeBucketAccessResponse {}
