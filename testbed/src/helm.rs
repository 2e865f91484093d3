//! helm, for the commands that write and check charts; no ordinary test needs it.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, ensure};

use crate::control_plane::{cache_dir, wait_for_lock};
use crate::guard::{Guard, Lifetime, Running};
use crate::progress::{self, SharedProgress};

const HELM: &str = "4.3.1";

/// helm. It is built once, from its Go module, into the user's cache; `HELM` names another one.
pub async fn helm(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("HELM") {
        return Ok(named.into());
    }
    let folder = cache_dir()?.join(format!("helm-{HELM}"));
    let program = folder.join("helm");
    fs::create_dir_all(&folder)?;
    let _lock = wait_for_lock(&folder.join("lock"), "waiting for another build", progress).await?;
    if program.is_file() {
        return Ok(program);
    }
    progress.line(&format!("building helm {HELM} into {} (once, some 3 to 6 minutes on two cores)", folder.display()));
    let unfinished = folder.join("unfinished");
    let log = folder.join("build.log");
    let output = fs::File::create(&log)?;
    let mut command = guard.command(Lifetime::WithOwner, "go");
    command.args(["install", "-trimpath", "-ldflags", "-s -w", &format!("helm.sh/helm/v4/cmd/helm@v{HELM}")]);
    command.env("GOBIN", &unfinished).env("CGO_ENABLED", "0").env("GOWORK", "off").stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(output);
    let mut go = Running::start(command).context("cannot start go")?;
    let status = progress::during(progress, "building helm", go.ended()).await?;
    ensure!(status.success(), "cannot build helm: {status}\n{}", crate::control_plane::last_lines(&log, 15));
    fs::rename(unfinished.join("helm"), &program)?;
    Ok(program)
}
