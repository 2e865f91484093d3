//! [SeaweedFS](https://github.com/seaweedfs/seaweedfs) on loopback: a whole cluster in one process, whose S3 server
//! also implements AWS IAM and enforces its users, keys and policies.

#[cfg(feature = "s3")]
mod server;

use crate::cached_program::Built;
use crate::dependency::{Dependency, is_named};
use crate::go_module::{GoProgram, Source};

#[cfg(feature = "s3")]
pub use self::server::SeaweedFs;

const WEED: GoProgram = GoProgram {
    program: Built { name: "weed", version: "0.0.0-20261109003541-7506e5f91cd6", time: "10 to 15 minutes" },
    package: "weed",
    source: Source::Module("github.com/seaweedfs/seaweedfs"),
};

/// The requirements of SeaweedFS.
pub static SEAWEEDFS: Dependency = Dependency {
    name: "SeaweedFS",
    suits: || WEED.check(),
    needed_by: |path| is_named(path, "seaweedfs_"),
    program: Some(|guard, progress| Box::pin(WEED.path(guard, progress))),
    ..Dependency::NOTHING
};
