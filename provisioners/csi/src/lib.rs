//! Provisions volumes for a CSI driver, like the external-provisioner sidecar, as a [`Provisioner`].
//!
//! The driver is any type that implements the services [`driver_rpc::csi::Identity`] and
//! [`driver_rpc::csi::Controller`]: a driver behind a socket, through [`driver_rpc::Client`], or one in the same
//! process.
//!
//! [`Provisioner`]: kube_provisioner::Provisioner

mod attachments;
mod capacity;
mod created_volume;
mod driver;
mod grants;
mod missing_objects;
mod nodes;
mod own_node;
mod parameters;
mod provisioner;
mod request;
mod requests;
mod secret_refs;
mod source_holds;
mod sources;
mod sweep;
mod template;
mod topology;
mod verdict;
mod watched_objects;

pub use self::capacity::CapacitySettings;
pub use self::driver::{DriverError, DriverInfo};
pub use self::own_node::OwnNode;
pub use self::provisioner::CsiProvisioner;
pub use self::request::Settings;
