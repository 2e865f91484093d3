//! The calls, in terms that are common to both versions.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use driver_rpc::cosi::Protocol;
use driver_rpc::{Client, Error};

use crate::Parameters;

mod v1alpha1;
mod v1alpha2;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// The version of release 0.2.2.
    V1alpha1,
    /// The version of March 2026.
    V1alpha2,
}

/// Key-based authentication, in both versions.
pub(crate) const KEY: i32 = 1;
/// Read and write access.
pub(crate) const READ_WRITE: i32 = 1;

/// The driver's name and the numbers of its protocols.
pub(crate) struct Info {
    pub(crate) name: String,
    pub(crate) protocols: Vec<i32>,
}

#[derive(Clone, Default)]
pub(crate) struct CreateRequest {
    pub(crate) name: String,
    pub(crate) protocols: Vec<i32>,
    pub(crate) parameters: Parameters,
}

#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) id: String,
    /// The protocols that the bucket has info for.
    pub(crate) protocols: Vec<Protocol>,
}

#[derive(Clone, Default)]
pub(crate) struct GrantRequest {
    pub(crate) account: String,
    pub(crate) protocol: i32,
    pub(crate) authentication: i32,
    pub(crate) buckets: Vec<String>,
    pub(crate) mode: i32,
    pub(crate) parameters: Parameters,
}

pub(crate) struct Access {
    pub(crate) account_id: String,
    pub(crate) buckets: Vec<AccessedBucket>,
    pub(crate) credentials: Vec<Fields>,
}

pub(crate) struct AccessedBucket {
    pub(crate) id: String,
    pub(crate) info: Vec<Fields>,
}

/// The fields for one protocol.
pub(crate) struct Fields {
    pub(crate) protocol: String,
    /// The required fields that are empty.
    pub(crate) missing: Vec<&'static str>,
}

impl Fields {
    fn new(protocol: impl Display, fields: &[(&'static str, bool)]) -> Self {
        let missing = fields.iter().filter(|(_, is_empty)| *is_empty).map(|(name, _)| *name).collect();
        Self { protocol: protocol.to_string(), missing }
    }
}

/// A driver, in one version.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) version: Version,
}

/// Calls the function in the module of the version.
macro_rules! call {
    ($api:ident.$method:ident($($argument:expr),*)) => {
        match $api.version {
            Version::V1alpha1 => v1alpha1::$method(&$api.client, $($argument),*).await,
            Version::V1alpha2 => v1alpha2::$method(&$api.client, $($argument),*).await,
        }
    };
}

impl Api {
    pub(crate) fn with_timeout(&self, timeout: Duration) -> Self {
        Self { client: self.client.clone().with_timeout(timeout), version: self.version }
    }

    pub(crate) async fn info(&self) -> Result<Info, Error> {
        call!(self.info())
    }

    pub(crate) async fn create(&self, request: &CreateRequest) -> Result<Bucket, Error> {
        call!(self.create(request))
    }

    /// Calls `DriverGetExistingBucket`, which only `v1alpha2` has.
    pub(crate) async fn existing(&self, id: &str, protocols: &[i32], parameters: &Parameters) -> Result<Bucket, Error> {
        v1alpha2::existing(&self.client, id, protocols, parameters).await
    }

    pub(crate) async fn delete(&self, id: &str, parameters: &Parameters) -> Result<(), Error> {
        call!(self.delete(id, parameters))
    }

    pub(crate) async fn grant(&self, request: &GrantRequest) -> Result<Access, Error> {
        call!(self.grant(request))
    }

    pub(crate) async fn revoke(&self, account_id: &str, granted: &GrantRequest) -> Result<(), Error> {
        call!(self.revoke(account_id, granted))
    }
}

impl Version {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::V1alpha1, Self::V1alpha2];
}

impl Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1alpha1 => "v1alpha1",
            Self::V1alpha2 => "v1alpha2",
        })
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|version| version.to_string() == text);
        known.ok_or_else(|| format!("unknown version {text:?}; use v1alpha1 or v1alpha2"))
    }
}
