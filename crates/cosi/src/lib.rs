#![doc = include_str!("../README.md")]
//!
//! ```
//! use cosi::v1alpha2::messages::{DriverGetInfoRequest, DriverGetInfoResponse};
//! use cosi::v1alpha2::{Identity, Provisioner};
//! use cosi::{Client, Error, Server};
//!
//! struct Driver;
//!
//! impl Identity for Driver {
//!     async fn driver_get_info(&self, _: DriverGetInfoRequest) -> Result<DriverGetInfoResponse, Error> {
//!         Ok(DriverGetInfoResponse { name: "example.com".into(), ..Default::default() })
//!     }
//! }
//! // Calls that a driver does not have answer `Unimplemented`.
//! impl Provisioner for Driver {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("cosi.sock");
//! tokio::spawn(Server::bind(&path)?.v1alpha2(Driver).serve());
//!
//! let client = Client::new(path.to_str().unwrap().parse()?);
//! let info = client.driver_get_info(DriverGetInfoRequest {}).await?;
//! assert_eq!(info.name, "example.com");
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

mod protocol;
mod server;

pub mod v1alpha1;
pub mod v1alpha2;

pub use self::protocol::Protocol;
pub use self::server::Server;
pub use driver_rpc::{Address, AddressError, Client, Code, Error, Secrets, Status, code_name};
