//! The two sidecars that are compared.

use std::path::{Path, PathBuf};

use testbed::cluster::provisioner_program;
use testbed::control_plane::State;
use testbed::external_provisioner::EXTERNAL_PROVISIONER;
use testbed::progress;

/// One of the two sidecars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    Ours,
    Go,
}

impl Peer {
    pub(super) const BOTH: [Self; 2] = [Self::Ours, Self::Go];

    /// The title in tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Ours => "csi-provisioner",
            Self::Go => "external-provisioner v6.4.0",
        }
    }

    /// The form for object names.
    pub(super) fn slug(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Go => "go",
        }
    }
}

/// The paths of the two binaries.
#[derive(Clone)]
pub(super) struct Programs {
    ours: PathBuf,
    go: PathBuf,
}

impl Programs {
    pub(super) async fn find() -> anyhow::Result<Self> {
        let go = EXTERNAL_PROVISIONER.path(&State::for_tests()?.guard(), &progress::silent()).await?;
        Ok(Self { ours: provisioner_program("csi-provisioner")?, go })
    }

    pub(super) fn path(&self, peer: Peer) -> &Path {
        match peer {
            Peer::Ours => &self.ours,
            Peer::Go => &self.go,
        }
    }
}
