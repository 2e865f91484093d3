#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod address;
mod client;
mod error;
#[cfg(feature = "serde")]
mod recording;
mod secrets;
mod server;
mod service;

pub use self::address::{Address, AddressError};
pub use self::client::{CallObserver, Client};
pub use self::error::{Error, code_name};
pub use self::secrets::Secrets;
pub use self::server::Server;
pub use self::service::unimplemented;
pub use tonic::{Code, Status};

/// What the macro [`service!`] needs.
#[doc(hidden)]
pub mod private {
    pub use http::{Request, Response};
    pub use hyper::body::Incoming;
    pub use tonic::body::Body;

    pub use crate::service::unary;
}
