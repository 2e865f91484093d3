//! The provisioner written with the Go library (`bench/go`): the baseline of measurements, and a client that a
//! simulated API server must satisfy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::control_plane::{cache_dir, fnv1a, wait_for_lock};
use crate::go_module::COMPILER_FLAGS;
use crate::guard::{Guard, Lifetime, Running};
use crate::progress::{self, SharedProgress, seconds};

/// The program's path. It is built into the user's cache from Go modules, once for each state of its sources.
pub async fn go_provisioner(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    let module = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/go"));
    let sources = ["go.mod", "go.sum", "main.go"].map(|name| {
        let path = module.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    });
    let sources: Vec<String> = sources.into_iter().collect::<anyhow::Result<_>>()?;
    let key = fnv1a(sources.iter().map(String::as_str));
    let program = cache_dir()?.join(format!("go-provisioner-{:08x}", key as u32));
    if program.is_file() {
        return Ok(program);
    }
    // Tests of several programs may build it at the same time.
    let _lock = wait_for_lock(&program.with_extension("lock"), "waiting for another build", progress).await?;
    if !program.is_file() {
        build(module, &program, guard, progress).await?;
    }
    Ok(program)
}

async fn build(module: &Path, program: &Path, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<()> {
    let unfinished = program.with_extension("unfinished");
    let log = program.with_extension("log");
    let output = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = guard.command(Lifetime::WithOwner, "go");
    command.args(["build", "-mod=readonly"]).args(COMPILER_FLAGS).arg("-o").arg(&unfinished).arg(".");
    command.current_dir(module).env("CGO_ENABLED", "0").env("GOWORK", "off").stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(output);
    let start = Instant::now();
    let mut go = Running::start(command).context("cannot start go")?;
    let status = progress::during(progress, "building the Go provisioner", go.ended()).await?;
    if !status.success() {
        let end = crate::control_plane::last_lines(&log, 15);
        bail!("cannot build the Go provisioner (it needs Go 1.26 or newer): {status}\n{end}");
    }
    progress.line(&format!("built the Go provisioner in {}", seconds(start.elapsed())));
    fs::rename(&unfinished, program).with_context(|| format!("cannot create {}", program.display()))
}
