//! A CSI driver in memory: volumes, snapshots, clones, topology, capacity and the paths of a node.
//!
//! [`Driver`] implements the three services, so it is called in the process, or served on a socket by [`csi::Server`] and by the program
//! `csi-sim`. It keeps the contract of the specification, which `csi-sanity` checks, and breaks it where a test asks for that: single calls
//! by [`Driver::script`], any call by chance with [`Faults`]. Chance comes from a seed and time from tokio, so that a run can be repeated.
#![deny(missing_docs)]

mod capability;
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
pub use self::settings::{NodeSettings, Pool, Settings};
