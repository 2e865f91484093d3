#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod client;
mod credentials;
mod error;
mod http;
mod interceptors;
mod operations;

pub mod iam;
pub mod lifecycle;
pub mod policy;
pub mod tags;

pub use self::client::{Client, Settings, SettingsError};
pub use self::credentials::Credentials;
pub use self::error::{Error, ErrorResponse, chain};
pub use self::http::{Connections, Http};
pub use self::operations::{NewBucket, ObjectVersion};
