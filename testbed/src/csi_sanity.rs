//! [csi-sanity](https://github.com/kubernetes-csi/csi-test), upstream's conformance tests for CSI drivers.

use crate::cached_program::Built;
use crate::dependency::{Dependency, is_named};
use crate::go_module::{GoProgram, Source};

const SANITY: GoProgram = GoProgram {
    program: Built { name: "csi-sanity", version: "5.6.0", time: "half a minute" },
    package: "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity",
    source: Source::Package,
};

/// The requirements of csi-sanity.
pub static CSI_SANITY: Dependency = Dependency {
    name: "csi-sanity",
    suits: || SANITY.check(),
    needed_by: |path| is_named(path, "csi_sanity_"),
    program: Some(|guard, progress| Box::pin(SANITY.path(guard, progress))),
    ..Dependency::NOTHING
};
