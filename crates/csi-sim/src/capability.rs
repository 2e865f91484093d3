//! The capabilities of a driver as one set.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::str::FromStr;

use driver_rpc::csi::controller_service_capability::rpc::Type as Controller;
use driver_rpc::csi::node_service_capability::rpc::Type as Node;
use driver_rpc::csi::plugin_capability::service::Type as Plugin;
use driver_rpc::csi::plugin_capability::volume_expansion::Type as Expansion;

/// A capability of any of the services, displayed for example as `Controller.CloneVolume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Capability of the controller service.
    Controller(Controller),
    /// Capability of the node service.
    Node(Node),
    /// Capability of the plug-in as a whole.
    Plugin(Plugin),
    /// Type of volume expansion.
    Expansion(Expansion),
}

impl Capability {
    /// All capabilities that this driver supports.
    pub const ALL: [Self; 23] = [
        Self::Controller(Controller::CreateDeleteVolume),
        Self::Controller(Controller::PublishUnpublishVolume),
        Self::Controller(Controller::ListVolumes),
        Self::Controller(Controller::GetCapacity),
        Self::Controller(Controller::CreateDeleteSnapshot),
        Self::Controller(Controller::ListSnapshots),
        Self::Controller(Controller::CloneVolume),
        Self::Controller(Controller::PublishReadonly),
        Self::Controller(Controller::ExpandVolume),
        Self::Controller(Controller::ListVolumesPublishedNodes),
        Self::Controller(Controller::GetVolume),
        Self::Controller(Controller::SingleNodeMultiWriter),
        Self::Controller(Controller::ModifyVolume),
        Self::Controller(Controller::GetSnapshot),
        Self::Node(Node::StageUnstageVolume),
        Self::Node(Node::GetVolumeStats),
        Self::Node(Node::ExpandVolume),
        Self::Node(Node::SingleNodeMultiWriter),
        Self::Node(Node::VolumeMountGroup),
        Self::Plugin(Plugin::ControllerService),
        Self::Plugin(Plugin::VolumeAccessibilityConstraints),
        Self::Plugin(Plugin::SnapshotAccessibilityConstraints),
        Self::Expansion(Expansion::Online),
    ];

    /// The capabilities that concern topology.
    pub const TOPOLOGY: [Self; 2] =
        [Self::Plugin(Plugin::VolumeAccessibilityConstraints), Self::Plugin(Plugin::SnapshotAccessibilityConstraints)];

    /// Returns all capabilities that do not concern topology.
    pub fn without_topology() -> BTreeSet<Self> {
        Self::ALL.into_iter().filter(|capability| !Self::TOPOLOGY.contains(capability)).collect()
    }
}

impl Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller(kind) => write!(f, "Controller.{kind:?}"),
            Self::Node(kind) => write!(f, "Node.{kind:?}"),
            Self::Plugin(kind) => write!(f, "Plugin.{kind:?}"),
            Self::Expansion(kind) => write!(f, "Expansion.{kind:?}"),
        }
    }
}

impl FromStr for Capability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|capability| capability.to_string() == text).ok_or_else(|| {
            let all = Self::ALL.map(|capability| capability.to_string());
            format!("unknown capability {text:?}; use one of {}", all.join(", "))
        })
    }
}
