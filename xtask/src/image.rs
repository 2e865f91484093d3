//! `cargo xtask image`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use e2e::guard::Guard;
use e2e::oci::{Image, Written};
use e2e::progress::{self, SharedProgress};

use crate::build;

/// The name that the manifests in `deploy/hostpath` have. Nobody else can offer an image of it.
const NAME: &str = concat!("localhost/hostpath-provisioner:", env!("CARGO_PKG_VERSION"));
const PACKAGE: &str = "hostpath-provisioner";
/// A program above this size has taken in something that it should not have.
const SIZE_LIMIT: u64 = 15_000_000;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Where the archive goes [default: hostpath-provisioner.tar in the target folder]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Build it once more from a copy of the sources elsewhere, and fail unless both are the same to the byte
    #[arg(long)]
    check: bool,
}

pub(crate) async fn run(arguments: &Arguments, guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let output = arguments.output.clone().unwrap_or_else(default_output);
    let written = build(&output, guard, &progress).await?;
    let say = |text: &str| progress.output(text);
    let file = output.display();
    say(&format!("image   {NAME}"));
    say(&format!("file    {file} ({:.1} MB)", written.size as f64 / 1e6));
    say(&format!("digest  {}", written.digest));
    if arguments.check {
        check(&written, guard, &progress).await?;
        say("built once more from a copy elsewhere: the same digest");
    }
    say("\nTo import it, one of:");
    say(&format!("  ctr -n k8s.io images import {file}        (on a node with containerd)"));
    say(&format!("  kind load image-archive {file}"));
    say(&format!("  docker load -i {file}"));
    say(&format!("  skopeo copy oci-archive:{file} docker://REGISTRY/hostpath-provisioner:TAG"));
    Ok(ExitCode::SUCCESS)
}

/// Builds the image from this checkout.
pub(crate) async fn build(output: &Path, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Written> {
    let program = build::static_program(PACKAGE, build::workspace_root(), &target_folder(), guard, progress).await?;
    write(&program, output)
}

/// Where the image goes unless told otherwise.
pub(crate) fn default_output() -> PathBuf {
    target_folder().join("hostpath-provisioner.tar")
}

fn target_folder() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    build::workspace_root().join(named.unwrap_or_else(|| "target".into()))
}

fn write(program: &Path, output: &Path) -> anyhow::Result<Written> {
    let size = fs::metadata(program)?.len();
    ensure!(size <= SIZE_LIMIT, "{} has {size} bytes, more than {SIZE_LIMIT}", program.display());
    let label = |name: &str| format!("org.opencontainers.image.{name}");
    let mut image = Image::new(NAME)
        .copy(PACKAGE, 0o755, program)
        .entrypoint([format!("/{PACKAGE}")])
        // Nobody, for `rbac` and the like. The manifests say who serves volumes, which needs more.
        .user("65532:65532")
        .label(label("title"), PACKAGE)
        .label(label("description"), "Kubernetes provisioner: a directory of the host per volume")
        .label(label("version"), env!("CARGO_PKG_VERSION"))
        .label(label("licenses"), "Apache-2.0");
    if let Some(revision) = revision() {
        image = image.label(label("revision"), revision);
    }
    image.write(output)
}

/// The commit that the image is made of; none when there are changes beside it, or no git.
fn revision() -> Option<String> {
    let clean = git(&["status", "--porcelain"]).ok()?.is_empty();
    let revision = git(&["rev-parse", "HEAD"]).ok()?;
    clean.then(|| revision.trim().to_owned())
}

/// Builds the image from a copy of the sources in another directory, and compares.
async fn check(expected: &Written, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("image-check-{}", std::process::id()));
    let sources = folder.join("another").join("checkout");
    for file in git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?.split_terminator('\0') {
        let (from, to) = (build::workspace_root().join(file), sources.join(file));
        // What is deleted and not committed is listed all the same.
        if from.is_file() {
            fs::create_dir_all(to.parent().unwrap_or(&sources))?;
            fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
    }
    let program = build::static_program(PACKAGE, &sources, &folder.join("target"), guard, progress).await?;
    let again = write(&program, &folder.join("image.tar"))?;
    if again != *expected {
        bail!("the second build gives {}, not {}; it is in {}", again.digest, expected.digest, folder.display());
    }
    Ok(fs::remove_dir_all(&folder)?)
}

fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = std::process::Command::new("git");
    let output = command.current_dir(build::workspace_root()).args(arguments).output().context("cannot run git")?;
    ensure!(output.status.success(), "git {} failed, which needs a git checkout", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}
