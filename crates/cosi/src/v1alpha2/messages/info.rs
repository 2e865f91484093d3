//! What clients need to know of a bucket, and their credentials, for each protocol.

use std::fmt::{self, Debug};

/// What a client needs to know of a bucket, for each protocol that it supports.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ObjectProtocolAndBucketInfo {
    #[prost(message, optional, tag = "1")]
    pub s3: Option<S3BucketInfo>,
    #[prost(message, optional, tag = "2")]
    pub azure: Option<AzureBucketInfo>,
    #[prost(message, optional, tag = "3")]
    pub gcs: Option<GcsBucketInfo>,
}

/// Credentials, for each protocol that they are for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CredentialInfo {
    #[prost(message, optional, tag = "1")]
    pub s3: Option<S3CredentialInfo>,
    #[prost(message, optional, tag = "2")]
    pub azure: Option<AzureCredentialInfo>,
    #[prost(message, optional, tag = "3")]
    pub gcs: Option<GcsCredentialInfo>,
}

/// A bucket of S3.
#[derive(Clone, PartialEq, prost::Message)]
pub struct S3BucketInfo {
    #[prost(string, tag = "1")]
    pub bucket_id: String,
    #[prost(string, tag = "2")]
    pub endpoint: String,
    #[prost(string, tag = "3")]
    pub region: String,
    #[prost(message, optional, tag = "4")]
    pub addressing_style: Option<S3AddressingStyle>,
}

/// Where requests have the name of the bucket.
#[derive(Clone, PartialEq, prost::Message)]
pub struct S3AddressingStyle {
    #[prost(enumeration = "s3_addressing_style::Style", tag = "1")]
    pub style: i32,
}

/// The parts of [`S3AddressingStyle`].
pub mod s3_addressing_style {
    /// The styles.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
    #[repr(i32)]
    pub enum Style {
        Unknown = 0,
        Path = 1,
        Virtual = 2,
    }
}

/// A container of Azure Blob.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AzureBucketInfo {
    #[prost(string, tag = "1")]
    pub storage_account: String,
}

/// A bucket of Google Cloud Storage.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GcsBucketInfo {
    #[prost(string, tag = "1")]
    pub project_id: String,
    #[prost(string, tag = "2")]
    pub bucket_name: String,
}

/// A key of S3.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct S3CredentialInfo {
    #[prost(string, tag = "1")]
    pub access_key_id: String,
    #[prost(string, tag = "2")]
    pub access_secret_key: String,
}

/// A shared access signature of Azure.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct AzureCredentialInfo {
    #[prost(string, tag = "1")]
    pub access_token: String,
    #[prost(string, tag = "2")]
    pub expiry_timestamp: String,
}

/// A key of Google Cloud Storage.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct GcsCredentialInfo {
    #[prost(string, tag = "1")]
    pub access_id: String,
    #[prost(string, tag = "2")]
    pub access_secret: String,
    #[prost(string, tag = "3")]
    pub private_key_name: String,
    #[prost(string, tag = "4")]
    pub service_account: String,
}

/// A `Debug` that shows nothing.
macro_rules! hidden {
    ($($name:ident)*) => {
        $(
            impl Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("***stripped***")
                }
            }
        )*
    };
}

hidden! { S3CredentialInfo AzureCredentialInfo GcsCredentialInfo }
