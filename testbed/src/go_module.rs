//! Go modules as they were published, from the place and with the checks that the user's Go has for them.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::guard::{Guard, Lifetime, Running};
use crate::progress::{self, SharedProgress};

/// One version of a module, on this machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GoModule {
    /// Such as `v1.35.4`.
    #[serde(default)]
    pub version: String,
    /// The file that names what it needs.
    #[serde(default)]
    pub go_mod: PathBuf,
    /// Its files.
    #[serde(default)]
    pub dir: PathBuf,
    /// The checksum of its files, as in a `go.sum`.
    #[serde(default)]
    pub sum: String,
    error: Option<String>,
}

/// Downloads `module`, such as `k8s.io/kubernetes@v1.35.4`, unless it is there.
pub async fn download(module: &str, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<GoModule> {
    let answer = tempfile::NamedTempFile::new()?;
    let mut command = guard.command(Lifetime::WithOwner, "go");
    command.args(["mod", "download", "-json", module]).current_dir(std::env::temp_dir()).env("GOWORK", "off");
    command.stdout(File::create(answer.path())?);
    let mut go = Running::start(command).context("cannot start go")?;
    progress::during(progress, &format!("downloading {module}"), go.ended()).await?;
    let found: GoModule = serde_json::from_slice(&fs::read(answer.path())?)
        .with_context(|| format!("go does not say where {module} is"))?;
    match found.error {
        Some(error) => bail!("cannot download {module}: {error}"),
        None => Ok(found),
    }
}
