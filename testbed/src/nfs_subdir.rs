//! [nfs-subdir-external-provisioner](https://github.com/kubernetes-sigs/nfs-subdir-external-provisioner), which creates
//! directories on an NFS share: the peer of `nfs-provisioner subdir` in measurements.

use std::path::PathBuf;

use crate::cached_program::Built;
use crate::go_module::{GoProgram, Source};
use crate::guard::Guard;
use crate::progress::SharedProgress;

const PROVISIONER: GoProgram = GoProgram {
    program: Built {
        name: "nfs-subdir-external-provisioner",
        // The last commit. Go accepts none of the tags, because the module's path does not end with /v4.
        version: "0.0.0-20240216040740-59a3ca2cd10f",
        time: "1 to 3 minutes",
    },
    package: "cmd/nfs-subdir-external-provisioner",
    source: Source::Module("github.com/kubernetes-sigs/nfs-subdir-external-provisioner"),
};

/// The path of the program, which is built once into the user's cache.
pub async fn program(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    PROVISIONER.path(guard, progress).await
}
