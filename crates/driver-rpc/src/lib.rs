#![doc = include_str!("../README.md")]
//!
//! ```
//! use driver_rpc::csi::{Controller, GetPluginInfoRequest, GetPluginInfoResponse, Identity, Node};
//! use driver_rpc::{Client, Error, Server};
//!
//! struct Driver;
//!
//! impl Identity for Driver {
//!     async fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Error> {
//!         Ok(GetPluginInfoResponse { name: "example.com".into(), ..Default::default() })
//!     }
//! }
//! // Calls that a driver does not implement return `Unimplemented`.
//! impl Controller for Driver {}
//! impl Node for Driver {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("csi.sock");
//! tokio::spawn(Server::bind(&path)?.csi(Driver).serve());
//!
//! let client = Client::new(path.to_str().unwrap().parse()?);
//! let info = client.get_plugin_info(GetPluginInfoRequest {}).await?;
//! assert_eq!(info.name, "example.com");
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

#[cfg(any(feature = "cosi", feature = "csi"))]
#[macro_use]
mod service;

mod address;
mod client;
mod error;
mod secrets;
mod server;

#[cfg(feature = "cosi")]
pub mod cosi;
#[cfg(feature = "csi")]
pub mod csi;

pub use self::address::{Address, AddressError};
pub use self::client::{CallObserver, Client};
pub use self::error::{Error, code_name};
pub use self::secrets::Secrets;
pub use self::server::Server;
pub use tonic::{Code, Status};
