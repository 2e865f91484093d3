//! The sidecar [external-provisioner](https://github.com/kubernetes-csi/external-provisioner), which provisions for CSI
//! drivers. The recordings in `csi-scenarios` come from it.

use crate::cached_program::Built;
use crate::dependency::Dependency;
use crate::go_module::{GoProgram, Source};

const SIDECAR: GoProgram = GoProgram {
    program: Built { name: "csi-provisioner", version: "6.4.0", time: "2 to 5 minutes" },
    package: "cmd/csi-provisioner",
    source: Source::Module("github.com/kubernetes-csi/external-provisioner/v6"),
};

/// The requirements of external-provisioner.
pub static EXTERNAL_PROVISIONER: Dependency = Dependency {
    name: "external-provisioner",
    suits: || SIDECAR.check(),
    needed_by: |path| path.starts_with("csi_scenarios::"),
    program: Some(|guard, progress| Box::pin(SIDECAR.path(guard, progress))),
    ..Dependency::NOTHING
};
