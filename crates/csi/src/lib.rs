#![doc = include_str!("../README.md")]
//!
//! ```
//! use csi::messages::{GetPluginInfoRequest, GetPluginInfoResponse};
//! use csi::{Client, Controller, Error, Identity, Node, Server};
//!
//! struct Driver;
//!
//! impl Identity for Driver {
//!     async fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Error> {
//!         Ok(GetPluginInfoResponse { name: "example.com".into(), ..Default::default() })
//!     }
//! }
//! // Calls that a driver does not have answer `Unimplemented`.
//! impl Controller for Driver {}
//! impl Node for Driver {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("csi.sock");
//! tokio::spawn(Server::bind(&path)?.serve(Driver));
//!
//! let client = Client::new(path.to_str().unwrap().parse()?);
//! let info = client.get_plugin_info(GetPluginInfoRequest {}).await?;
//! assert_eq!(info.name, "example.com");
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

mod client;
mod metrics;
#[cfg(feature = "serde")]
mod recording;
mod server;
mod services;

pub mod messages;

pub use self::client::Client;
pub use self::metrics::Operations;
pub use self::server::Server;
pub use self::services::{Controller, Identity, Node};
pub use driver_rpc::{Address, AddressError, Code, Error, Secrets, Status, code_name};
