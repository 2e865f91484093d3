//! An in-memory CSI driver: volumes, snapshots, clones, topology, capacity and the paths of a node.
//!
//! [`Driver`] implements the three services. Call it in-process, or serve it on a socket with [`driver_rpc::Server`] or
//! the binary `csi-sim`, which can mount its volumes. It keeps the contract of the specification, which `csi-sanity`
//! checks, and breaks it on request: for single calls with [`Driver::script`], for random calls with [`Faults`].
//! Randomness comes from a seed and time from tokio, so runs can be repeated.
//!
//! ```
//! use driver_rpc::Code;
//! use driver_rpc::csi::{Controller, CreateVolumeRequest, Identity, ProbeRequest, ProbeResponse};
//! use csi_sim::{Driver, Method, Settings, Step};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let driver = Driver::new(Settings::default());
//! driver.script(Method::Probe, vec![Step::answer(ProbeResponse { ready: Some(false) }); 3]);
//! driver.script(Method::CreateVolume, [Step::refuse(Code::Aborted, "later").working()]);
//!
//! assert_eq!(driver.probe(ProbeRequest {}).await.unwrap().ready, Some(false));
//! assert!(driver.create_volume(CreateVolumeRequest::default()).await.is_err());
//! assert_eq!(driver.requests::<CreateVolumeRequest>().len(), 1);
//! # }
//! ```
#![deny(missing_docs)]

mod capability;
mod data;
mod driver;
mod faults;
mod methods;
mod model;
mod script;
mod settings;

pub use self::capability::Capability;
pub use self::driver::{Call, Driver};
pub use self::faults::Faults;
pub use self::methods::Method;
pub use self::script::Step;
pub use self::settings::{Machine, NodeSettings, Pool, Settings};
