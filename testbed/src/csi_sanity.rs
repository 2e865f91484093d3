//! [csi-sanity](https://github.com/kubernetes-csi/csi-test), upstream's conformance tests for CSI drivers.

use std::path::PathBuf;

use crate::built::Built;
use crate::dependency::{self, Dependency, is_named};
use crate::go_module::{GoProgram, Source};
use crate::guard::Guard;
use crate::progress::SharedProgress;

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

/// The path of csi-sanity, which is built once into the user's cache.
pub async fn program(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    CSI_SANITY.check_use()?;
    CSI_SANITY.check(dependency::INSTALL)?;
    SANITY.path(guard, progress).await
}
