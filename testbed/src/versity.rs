//! The [Versity S3 Gateway](https://github.com/versity/versitygw) on loopback: S3 on a folder, and AWS IAM, whose
//! users, keys and policies it enforces.

#[cfg(feature = "s3")]
mod server;

use crate::cached_program::Built;
use crate::dependency::{Dependency, is_named};
use crate::go_module::{GoProgram, Source};

#[cfg(feature = "s3")]
pub use self::server::Versity;

const GATEWAY: GoProgram = GoProgram {
    program: Built { name: "versitygw", version: "1.8.0", time: "2 to 10 minutes" },
    package: "github.com/versity/versitygw/cmd/versitygw",
    source: Source::Package,
};

/// The requirements of the gateway.
pub static VERSITY: Dependency = Dependency {
    name: "the Versity S3 Gateway",
    suits: || GATEWAY.check(),
    needed_by: |path| is_named(path, "versity_"),
    program: Some(|guard, progress| Box::pin(GATEWAY.path(guard, progress))),
    ..Dependency::NOTHING
};
