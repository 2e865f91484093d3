#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod client;
mod clients;
mod encode;
mod error;
mod operations;
mod xml;

pub mod iam;
pub mod lifecycle;
pub mod policy;
pub mod sign;

pub use self::client::{Client, PAUSES, Request, Response, Settings, SettingsError};
pub use self::clients::Clients;
pub use self::error::{Answer, Error};
pub use self::operations::{BucketInfo, NewBucket, Object, ObjectVersion, Page, Upload};
pub use self::sign::Credentials;
