//! helm and promtool, for the commands that check charts and rules; no ordinary test needs them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

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

/// promtool of Debian's package `prometheus`, unpacked into the user's cache and not installed; `PROMTOOL` names another one.
pub fn promtool(progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("PROMTOOL") {
        return Ok(named.into());
    }
    let folder = cache_dir()?.join("promtool");
    let program = folder.join("usr/bin/promtool");
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&folder)?;
    progress.line(&format!("unpacking Debian's package prometheus into {}", folder.display()));
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(&folder).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot run {program}, or set PROMTOOL"))?;
        ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        anyhow::Ok(())
    };
    run("apt-get", &["download", "prometheus"])?;
    run("sh", &["-c", "dpkg -x prometheus_*.deb . && rm prometheus_*.deb"])?;
    ensure!(program.is_file(), "Debian's package prometheus has no promtool");
    Ok(program)
}
