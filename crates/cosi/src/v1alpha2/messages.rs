//! The messages, named as in the specification, which also says what each field means. The parts of a message are in a module of its name.

// The meaning of a field is the specification's to say.
#![allow(missing_docs)]

use std::collections::BTreeMap;

mod info;

pub use self::info::*;

/// The request of `Identity.DriverGetInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGetInfoRequest {}

/// The answer of `Identity.DriverGetInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGetInfoResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub supported_protocols: Vec<ObjectProtocol>,
}

/// A protocol.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ObjectProtocol {
    #[prost(enumeration = "object_protocol::Type", tag = "1")]
    pub r#type: i32,
}

/// The parts of [`ObjectProtocol`].
pub mod object_protocol {
    /// The protocols.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
    #[repr(i32)]
    pub enum Type {
        Unknown = 0,
        S3 = 1,
        Azure = 2,
        Gcs = 3,
    }
}

/// How a client proves who it is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthenticationType {
    #[prost(enumeration = "authentication_type::Type", tag = "1")]
    pub r#type: i32,
}

/// The parts of [`AuthenticationType`].
pub mod authentication_type {
    /// The types of authentication.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
    #[repr(i32)]
    pub enum Type {
        Unknown = 0,
        Key = 1,
        ServiceAccount = 2,
    }
}

/// What a client may do with a bucket.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AccessMode {
    #[prost(enumeration = "access_mode::Mode", tag = "1")]
    pub mode: i32,
}

/// The parts of [`AccessMode`].
pub mod access_mode {
    /// The modes of access.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
    #[repr(i32)]
    pub enum Mode {
        Unknown = 0,
        ReadWrite = 1,
        ReadOnly = 2,
        WriteOnly = 3,
    }
}

/// The request of `Provisioner.DriverCreateBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverCreateBucketRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub protocols: Vec<ObjectProtocol>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub parameters: BTreeMap<String, String>,
}

/// The answer of `Provisioner.DriverCreateBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverCreateBucketResponse {
    #[prost(string, tag = "1")]
    pub bucket_id: String,
    #[prost(message, optional, tag = "2")]
    pub protocols: Option<ObjectProtocolAndBucketInfo>,
}

/// The request of `Provisioner.DriverGetExistingBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGetExistingBucketRequest {
    #[prost(string, tag = "1")]
    pub existing_bucket_id: String,
    #[prost(message, repeated, tag = "2")]
    pub protocols: Vec<ObjectProtocol>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub parameters: BTreeMap<String, String>,
}

/// The answer of `Provisioner.DriverGetExistingBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGetExistingBucketResponse {
    #[prost(string, tag = "1")]
    pub bucket_id: String,
    #[prost(message, optional, tag = "2")]
    pub protocols: Option<ObjectProtocolAndBucketInfo>,
}

/// The request of `Provisioner.DriverDeleteBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverDeleteBucketRequest {
    #[prost(string, tag = "1")]
    pub bucket_id: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub parameters: BTreeMap<String, String>,
}

/// The answer of `Provisioner.DriverDeleteBucket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverDeleteBucketResponse {}

/// The request of `Provisioner.DriverGrantBucketAccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGrantBucketAccessRequest {
    #[prost(string, tag = "1")]
    pub account_name: String,
    #[prost(message, optional, tag = "2")]
    pub protocol: Option<ObjectProtocol>,
    #[prost(message, optional, tag = "3")]
    pub authentication_type: Option<AuthenticationType>,
    #[prost(string, tag = "4")]
    pub service_account_name: String,
    #[prost(btree_map = "string, string", tag = "5")]
    pub parameters: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "6")]
    pub buckets: Vec<driver_grant_bucket_access_request::AccessedBucket>,
}

/// The parts of [`DriverGrantBucketAccessRequest`].
pub mod driver_grant_bucket_access_request {
    /// A bucket, and what the account may do with it.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct AccessedBucket {
        #[prost(string, tag = "1")]
        pub bucket_id: String,
        #[prost(message, optional, tag = "2")]
        pub access_mode: Option<super::AccessMode>,
    }
}

/// The answer of `Provisioner.DriverGrantBucketAccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverGrantBucketAccessResponse {
    #[prost(string, tag = "1")]
    pub account_id: String,
    #[prost(message, repeated, tag = "2")]
    pub buckets: Vec<driver_grant_bucket_access_response::BucketInfo>,
    #[prost(message, optional, tag = "3")]
    pub credentials: Option<CredentialInfo>,
}

/// The parts of [`DriverGrantBucketAccessResponse`].
pub mod driver_grant_bucket_access_response {
    use std::fmt::{self, Debug};

    /// A bucket as the account sees it. Its `Debug` shows the id alone.
    #[derive(Clone, PartialEq, prost::Message)]
    #[prost(skip_debug)]
    pub struct BucketInfo {
        #[prost(string, tag = "1")]
        pub bucket_id: String,
        #[prost(message, optional, tag = "2")]
        pub bucket_info: Option<super::ObjectProtocolAndBucketInfo>,
    }

    impl Debug for BucketInfo {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("BucketInfo").field("bucket_id", &self.bucket_id).finish_non_exhaustive()
        }
    }
}

/// The request of `Provisioner.DriverRevokeBucketAccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverRevokeBucketAccessRequest {
    #[prost(string, tag = "1")]
    pub account_id: String,
    #[prost(message, optional, tag = "2")]
    pub protocol: Option<ObjectProtocol>,
    #[prost(message, optional, tag = "3")]
    pub authentication_type: Option<AuthenticationType>,
    #[prost(string, tag = "4")]
    pub service_account_name: String,
    #[prost(btree_map = "string, string", tag = "5")]
    pub parameters: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "6")]
    pub buckets: Vec<driver_revoke_bucket_access_request::AccessedBucket>,
}

/// The parts of [`DriverRevokeBucketAccessRequest`].
pub mod driver_revoke_bucket_access_request {
    /// A bucket that the account had access to.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct AccessedBucket {
        #[prost(string, tag = "1")]
        pub bucket_id: String,
    }
}

/// The answer of `Provisioner.DriverRevokeBucketAccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DriverRevokeBucketAccessResponse {}
