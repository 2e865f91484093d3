//! `cargo xtask image`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use clap::Args;
use testbed::guard::Guard;
use testbed::oci::{Image, Written};
use testbed::process::output;
use testbed::progress::{self, SharedProgress};

use crate::build;

/// An image: one static binary, and the files that it needs in addition.
pub(crate) struct Kind {
    /// The name of the chart. With the prefix `localhost/`, another registry cannot offer an image of this name.
    name: &'static str,
    package: &'static str,
    about: &'static str,
    requirement: Requirement,
}

/// The additional requirements of a binary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Requirement {
    Nothing,
    /// CA certificates, to verify the services that it calls.
    Certificates,
    /// The NFS server that it starts.
    NfsServer,
    /// The socket of a CSI driver: most drivers let only root open it, and their charts set no user for the sidecars.
    DriverSocket,
}

/// The image of the demo.
pub(crate) const HOSTPATH: Kind = Kind {
    name: "hostpath-provisioner",
    package: "hostpath-provisioner",
    about: "Kubernetes provisioner: a directory of the host per volume",
    requirement: Requirement::Nothing,
};

const KINDS: [Kind; 8] = [
    HOSTPATH,
    Kind {
        name: "nfs-subdir-provisioner",
        package: "nfs-provisioner",
        about: "Kubernetes provisioner: a directory of an NFS share per volume",
        requirement: Requirement::Nothing,
    },
    Kind {
        name: "nfs-server-provisioner",
        package: "nfs-provisioner",
        about: "Kubernetes provisioner: an NFS server with an export per volume",
        requirement: Requirement::NfsServer,
    },
    Kind {
        name: "ceph-rgw-provisioner",
        package: "ceph-rgw-provisioner",
        about: "Kubernetes provisioner: buckets on Ceph's RADOS gateway",
        requirement: Requirement::Certificates,
    },
    Kind {
        name: "aws-s3-provisioner",
        package: "aws-s3-provisioner",
        about: "Kubernetes provisioner: buckets on AWS S3",
        requirement: Requirement::Certificates,
    },
    Kind {
        name: "gcs-provisioner",
        package: "gcs-provisioner",
        about: "Kubernetes provisioner: buckets on Google Cloud Storage",
        requirement: Requirement::Certificates,
    },
    Kind {
        name: "garage-provisioner",
        package: "garage-provisioner",
        about: "Kubernetes provisioner: buckets on Garage",
        requirement: Requirement::Certificates,
    },
    Kind {
        name: "csi-provisioner",
        package: "csi-provisioner",
        about: "Kubernetes provisioner: volumes of CSI drivers, instead of external-provisioner",
        requirement: Requirement::DriverSocket,
    },
];

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// A binary above this size contains unwanted dependencies.
const SIZE_LIMIT: u64 = 15_000_000;
/// The path of the CA certificates on this machine, and in our images.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

#[derive(Args)]
pub(crate) struct Arguments {
    /// The image to build
    #[arg(default_value = HOSTPATH.name, value_parser = KINDS.map(|kind| kind.name))]
    name: String,

    /// Path of the archive [default: NAME.tar in the target folder]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Build a second time from a copy of the sources elsewhere, and fail unless both images are identical
    #[arg(long)]
    check: bool,
}

pub(crate) async fn run(arguments: &Arguments, guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let kind = KINDS.into_iter().find(|kind| kind.name == arguments.name).context("no such image")?;
    let output = arguments.output.clone().unwrap_or_else(|| kind.default_output());
    let written = kind.build(&output, guard, &progress).await?;
    let say = |text: &str| progress.output(text);
    let file = output.display();
    say(&format!("image   localhost/{}:{VERSION}", kind.name));
    say(&format!("file    {file} ({:.1} MB)", written.size as f64 / 1e6));
    say(&format!("digest  {}", written.digest));
    if arguments.check {
        kind.check(&written, guard, &progress).await?;
        say("rebuilt from a copy in another directory: same digest");
    }
    say("\nTo import it, one of:");
    say(&format!("  ctr -n k8s.io images import {file}        (on a node with containerd)"));
    say(&format!("  kind load image-archive {file}"));
    say(&format!("  docker load -i {file}"));
    say(&format!("  skopeo copy oci-archive:{file} docker://REGISTRY/{}:TAG", kind.name));
    Ok(ExitCode::SUCCESS)
}

impl Kind {
    /// Builds the image from this checkout.
    pub(crate) async fn build(
        &self,
        output: &Path,
        guard: &Guard,
        progress: &SharedProgress,
    ) -> anyhow::Result<Written> {
        let sources = build::workspace_root();
        let program = build::static_program(self.package, sources, &target_folder(), guard, progress).await?;
        self.write(&program, output)
    }

    /// The default path of the image.
    pub(crate) fn default_output(&self) -> PathBuf {
        target_folder().join(format!("{}.tar", self.name))
    }

    fn write(&self, program: &Path, output: &Path) -> anyhow::Result<Written> {
        let size = fs::metadata(program)?.len();
        ensure!(size <= SIZE_LIMIT, "{} has {size} bytes, more than {SIZE_LIMIT}", program.display());
        let label = |name: &str| format!("org.opencontainers.image.{name}");
        let mut image = Image::new(format!("localhost/{}:{VERSION}", self.name))
            .copy(self.package, 0o755, program)
            .entrypoint([format!("/{}", self.package)])
            // An unprivileged user is enough for `rbac` and similar commands. The manifests set the user that
            // provisions volumes, which needs more privileges.
            .user(if self.requirement == Requirement::DriverSocket { "0:0" } else { "65532:65532" })
            .label(label("title"), self.name)
            .label(label("description"), self.about)
            .label(label("version"), VERSION)
            .label(label("licenses"), "Apache-2.0");
        match self.requirement {
            Requirement::Nothing | Requirement::DriverSocket => {}
            Requirement::Certificates => {
                let there = Path::new(CERTIFICATES).is_file();
                ensure!(there, "no {CERTIFICATES}: install Debian's package ca-certificates");
                image = image.copy(CERTIFICATES.trim_start_matches('/'), 0o644, CERTIFICATES);
            }
            Requirement::NfsServer => {
                let (packages, without) = testbed::nfs::IMAGE_PACKAGES;
                image = image.debian(packages, without)?;
            }
        }
        if let Some(revision) = revision() {
            image = image.label(label("revision"), revision);
        }
        image.write(output)
    }

    /// Builds the image from a copy of the sources in another directory, and compares both.
    async fn check(&self, expected: &Written, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<()> {
        let folder = std::env::temp_dir().join(format!("image-check-{}", std::process::id()));
        let sources = folder.join("another").join("checkout");
        for file in git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?.split_terminator('\0') {
            let (from, to) = (build::workspace_root().join(file), sources.join(file));
            // A file that is deleted but not committed is still listed.
            if from.is_file() {
                fs::create_dir_all(to.parent().unwrap_or(&sources))?;
                fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            }
        }
        let program = build::static_program(self.package, &sources, &folder.join("target"), guard, progress).await?;
        let again = self.write(&program, &folder.join("image.tar"))?;
        if again != *expected {
            bail!("the second build gives {}, not {}; it is in {}", again.digest, expected.digest, folder.display());
        }
        Ok(fs::remove_dir_all(&folder)?)
    }
}

fn target_folder() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    build::workspace_root().join(named.unwrap_or_else(|| "target".into()))
}

/// The commit of the image; `None` if there are uncommitted changes, or without git.
fn revision() -> Option<String> {
    let clean = git(&["status", "--porcelain"]).ok()?.is_empty();
    let revision = git(&["rev-parse", "HEAD"]).ok()?;
    clean.then(|| revision.trim().to_owned())
}

fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let git = output(Command::new("git").current_dir(build::workspace_root()).args(arguments));
    Ok(String::from_utf8(git.context("it needs a git checkout")?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chart_has_an_image() {
        for provisioner in &testbed::manifests::PROVISIONERS {
            let kind = KINDS.iter().find(|kind| kind.name == provisioner.name);
            assert_eq!(kind.map(|kind| kind.package), Some(provisioner.package), "{}", provisioner.name);
        }
    }

    #[test]
    fn page_lists_the_packages_in_the_nfs_server_image() -> anyhow::Result<()> {
        let page = fs::read_to_string(build::workspace_root().join("docs/book/pages/use/nfs.md"))?;
        let (_, named) = page.split_once("Debian's packages ").context("the page names no packages")?;
        let named = named.split(" in its image").next().unwrap_or_default().split('`').skip(1).step_by(2);
        assert_eq!(named.collect::<Vec<_>>(), testbed::nfs::IMAGE_PACKAGES.0);
        Ok(())
    }

    #[test]
    fn release_workflow_builds_and_publishes_every_image() -> anyhow::Result<()> {
        let workflow = fs::read_to_string(build::workspace_root().join(".github/workflows/release.yaml"))?;
        let loops: Vec<Vec<&str>> = workflow
            .lines()
            .filter_map(|line| line.trim().strip_prefix("for name in ")?.strip_suffix("; do"))
            .map(|names| names.split(' ').collect())
            .collect();
        let short = |name: &'static str| name.trim_end_matches("-provisioner");
        let mut names: Vec<_> = KINDS.iter().map(|kind| short(kind.name)).collect();
        let [mut built, mut published] = <[_; 2]>::try_from(loops).map_err(|loops| anyhow::anyhow!("{loops:?}"))?;
        [&mut names, &mut built, &mut published].into_iter().for_each(|names| names.sort_unstable());
        assert_eq!((&built, &published), (&names, &names));
        Ok(())
    }
}
