//! Builds with cargo, and their results.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;
use testbed::cargo::{BINARIES_ARE_BUILT, cargo_program, without_package};
use testbed::guard::{Guard, Lifetime, Running};
use testbed::progress::{self, SharedProgress};

/// Build profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Fastest to build.
    Dev,
    /// The release profile.
    Release,
    /// Optimized for runs that last hours.
    Sim,
}

/// Builds the binary of a package with the given features, and returns its path.
pub(crate) async fn program(
    profile: Profile,
    package: &str,
    features: &[&str],
    guard: &Guard,
    progress: &SharedProgress,
) -> anyhow::Result<PathBuf> {
    if profile == Profile::Dev && std::env::var_os(BINARIES_ARE_BUILT).is_some() {
        return Ok(std::env::current_exe()?.with_file_name(package));
    }
    let mut found = None;
    let features = features.join(",");
    let mut arguments = vec!["build", "--package", package, "--features", &features];
    match profile {
        // The features of this program's own build are used, so that nothing is compiled twice.
        Profile::Dev => arguments.extend(["--package", "workspace-hack", "--bin", package]),
        Profile::Release => arguments.push("--release"),
        Profile::Sim => arguments.extend(["--profile", "sim"]),
    }
    let what = format!("building {package}");
    let each = |artifact: &Value| found = executable(artifact).or(found.take());
    if !artifacts(cargo(guard), &arguments, &what, each, progress).await? {
        bail!("{package} does not compile");
    }
    found.with_context(|| format!("package {package} has no program"))
}

/// Builds the binary of a package so that it is static, and identical wherever its sources are located.
/// `sources` is a checkout of this project, `target` its target folder.
pub(crate) async fn static_program(
    package: &str,
    sources: &Path,
    target: &Path,
    guard: &Guard,
    progress: &SharedProgress,
) -> anyhow::Result<PathBuf> {
    // An explicit target keeps these flags away from build scripts and macros.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/kube-provisioner", sources.display()),
        format!("--remap-path-prefix={}=/cargo", cargo_home()?.display()),
    ];
    let mut cargo = cargo(guard);
    cargo.current_dir(sources).env("CARGO_TARGET_DIR", target).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let arguments = ["build", "--locked", "--release", "--target", &triple, "--package", package];
    let mut found = None;
    let each = |artifact: &Value| found = executable(artifact).or(found.take());
    if !artifacts(cargo, &arguments, &format!("building {package}, static"), each, progress).await? {
        bail!("{package} does not compile");
    }
    found.with_context(|| format!("package {package} has no program"))
}

/// A guarded command in the workspace.
pub(crate) fn command(guard: &Guard, program: impl AsRef<OsStr>) -> Command {
    let mut command = guard.command(Lifetime::WithOwner, program);
    command.current_dir(workspace_root());
    command
}

/// A guarded cargo in the workspace, with the environment of a user's shell.
pub(crate) fn cargo(guard: &Guard) -> Command {
    without_package(command(guard, cargo_program()))
}

/// Cargo with the environment of a user's shell.
pub(crate) fn plain_cargo() -> Command {
    without_package(Command::new(cargo_program()))
}

/// The directory where cargo keeps the sources of dependencies.
fn cargo_home() -> anyhow::Result<PathBuf> {
    let home = || std::env::home_dir().map(|home| home.join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("neither CARGO_HOME nor HOME is set")
}

/// The directory of the workspace.
pub(crate) fn workspace_root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The path of a program that is not a test.
fn executable(artifact: &Value) -> Option<PathBuf> {
    if artifact["profile"]["test"] == true {
        return None;
    }
    artifact["executable"].as_str().map(PathBuf::from)
}

/// Runs cargo and passes on what it compiled; `false` if the build failed. Cargo prints its own messages.
async fn artifacts(
    cargo: Command,
    arguments: &[&str],
    what: &str,
    mut each: impl FnMut(&Value),
    progress: &SharedProgress,
) -> anyhow::Result<bool> {
    let arguments: Vec<_> = arguments.iter().copied().chain(["--message-format", "json-render-diagnostics"]).collect();
    let each = |line: Value| {
        if line["reason"] == "compiler-artifact" {
            each(&line);
        }
    };
    lines(cargo, &arguments, what, each, progress).await
}

/// Runs cargo and passes on its standard output as JSON, line by line.
async fn lines(
    mut cargo: Command,
    arguments: &[&str],
    what: &str,
    mut each: impl FnMut(Value),
    progress: &SharedProgress,
) -> anyhow::Result<bool> {
    cargo.args(arguments).stdout(Stdio::piped());
    let mut cargo = Running::start(cargo).context("cannot start cargo")?;
    let output = cargo.take_stdout().context("cargo has no output")?;
    let reader = std::thread::spawn(|| std::io::read_to_string(output));
    // On a terminal cargo shows a progress bar; elsewhere it is silent while it links a program.
    let progress = if std::io::stderr().is_terminal() { &progress::silent() } else { progress };
    let status = progress::during(progress, what, cargo.ended()).await?;
    let text = reader.join().ok().context("cargo's output was lost")??;
    for line in text.lines() {
        if let Ok(value) = serde_json::from_str(line) {
            each(value);
        }
    }
    Ok(status.success())
}
