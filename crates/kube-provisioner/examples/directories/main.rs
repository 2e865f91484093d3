#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kube_provisioner::{
    DeleteError, Hooks, Options, Program, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Volume,
};
use serde::Deserialize;

/// Creates a directory for every claim
#[derive(Parser)]
struct Args {
    /// Directory that holds all volumes
    #[arg(long, env)]
    root: PathBuf,
    #[command(flatten)]
    options: Options,
}

struct Directories {
    root: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parameters {
    /// Keep the data when the claim is deleted. Set `keepData: "true"` in the class.
    #[serde(default)]
    keep_data: bool,
}

impl Provisioner for Directories {
    type Parameters = Parameters;

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let path = self.root.join(&request.name);
        tokio::fs::create_dir_all(&path).await?; // any I/O error: retried later
        let keep = request.parameters.keep_data.to_string();
        Ok(Volume::host_path(path.to_string_lossy()).annotation("example.com/keep-data", keep))
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        if volume.annotation("example.com/keep-data") == Some("true") {
            return Ok(());
        }
        match tokio::fs::remove_dir_all(self.root.join(&volume.name)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Hooks for Directories {}

fn main() -> ExitCode {
    Program::new(async |args: Args| Ok((Directories { root: args.root }, args.options))).run()
}
