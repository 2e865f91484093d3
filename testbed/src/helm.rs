//! helm, for the commands that write and check charts. Ordinary tests do not need it.

use std::path::PathBuf;

use crate::cached_program::Built;
use crate::go_module::{GoProgram, Source};
use crate::guard::Guard;
use crate::progress::SharedProgress;

const HELM: GoProgram = GoProgram {
    program: Built { name: "helm", version: "4.3.1", time: "3 to 6 minutes" },
    package: "helm.sh/helm/v4/cmd/helm",
    source: Source::Package,
};

/// The path of helm. `HELM` overrides the one in the user's cache.
pub async fn helm(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    match std::env::var_os("HELM") {
        Some(named) => Ok(named.into()),
        None => HELM.path(guard, progress).await,
    }
}
