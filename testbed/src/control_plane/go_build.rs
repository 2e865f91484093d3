//! Builds the control plane's programs from their Go modules, once per user.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use super::instance::wait_for_lock;
use super::versions::Versions;
use crate::go_module::{COMPILER_FLAGS, STRIP};
use crate::guard::{Guard, Lifetime, Running};
use crate::progress::{self, SharedProgress, seconds};

/// Builds the programs into their folder below `cache`. Concurrent runs build them only once.
pub(super) async fn build(
    set: &Set,
    cache: &Path,
    versions: &Versions,
    guard: &Guard,
    progress: &SharedProgress,
) -> anyhow::Result<()> {
    let bin = cache.join(set.folder);
    if bin.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    check_go(versions)?;
    let _lock = wait_for_lock(&cache.join("lock"), "waiting for another build", progress).await?;
    if bin.is_dir() {
        // The run that held the lock built them.
        return Ok(());
    }

    let unfinished = cache.join("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir_all(&unfinished)?;
    progress.line(&format!(
        "building {} (etcd {}, Kubernetes {}) into {} (once, {} on two cores)",
        set.what,
        versions.etcd,
        versions.kubernetes,
        cache.display(),
        set.time
    ));
    let log = cache.join("build.log");
    let start = Instant::now();
    for (number, program) in set.programs.iter().enumerate() {
        let label = format!("building {} ({} of {})", program.name, number + 1, set.programs.len());
        build_one(program, versions, &unfinished, &log, guard, &label, progress).await?;
    }
    fs::rename(&unfinished, &bin).with_context(|| format!("cannot create {}", bin.display()))?;
    progress.line(&format!("built {} in {}", set.what, seconds(start.elapsed())));
    Ok(())
}

/// Programs that are built together.
pub(super) struct Set {
    what: &'static str,
    time: &'static str,
    pub(super) folder: &'static str,
    programs: &'static [Program],
}

pub(super) const CONTROL_PLANE: Set =
    Set { what: "the control plane", time: "some 6 to 10 minutes", folder: "bin", programs: &PROGRAMS };

/// The programs for another version of Kubernetes, with this project's etcd.
pub(super) const WITHOUT_ETCD: Set = Set { programs: PROGRAMS.split_at(1).1, ..CONTROL_PLANE };

/// A separate set, because most runs need no node.
pub(super) const NODE: Set = Set {
    what: "the kubelet and kube-proxy",
    time: "a minute after the control plane",
    folder: "node",
    programs: &[
        kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
        kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    ],
};

struct Program {
    name: &'static str,
    package: &'static str,
    kubernetes: bool,
}

static PROGRAMS: [Program; 5] = [
    Program { name: "etcd", package: "go.etcd.io/etcd/server/v3", kubernetes: false },
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];

const fn kubernetes(name: &'static str, package: &'static str) -> Program {
    Program { name, package, kubernetes: true }
}

async fn build_one(
    program: &Program,
    versions: &Versions,
    bin: &Path,
    log: &Path,
    guard: &Guard,
    label: &str,
    progress: &SharedProgress,
) -> anyhow::Result<()> {
    let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = guard.command(Lifetime::WithOwner, "go");
    command
        .args(["build", if versions.pinned { "-mod=readonly" } else { "-mod=mod" }])
        .args(COMPILER_FLAGS)
        .args(["-ldflags", &linker_flags(program, versions)])
        .arg("-o")
        .arg(bin.join(program.name));
    if program.kubernetes {
        // Kubernetes' own release build uses these tags, and others that affect only code with cgo.
        command.args(["-tags", "grpcnotrace,notest"]);
    }
    command
        .arg(program.package)
        .current_dir(&versions.module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdout(output.try_clone()?)
        .stderr(output);

    let start = Instant::now();
    let mut go = Running::start(command).context("cannot start go")?;
    let status = progress::during(progress, label, go.ended()).await?;
    if !status.success() {
        bail!("{label} failed ({status}):\n{}", super::logs::last_lines(log, 15));
    }
    progress.line(&format!("{label}: {}", seconds(start.elapsed())));
    Ok(())
}

/// Unstamped programs report a version that clients cannot parse.
fn linker_flags(program: &Program, versions: &Versions) -> String {
    let mut flags = STRIP.to_owned();
    if !program.kubernetes {
        return flags;
    }
    let (major, minor) = versions.kubernetes_minor();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (variable, value) in [
            ("gitVersion", format!("v{}", versions.kubernetes).as_str()),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
        ] {
            flags.push_str(&format!(" -X {package}.{variable}={value}"));
        }
    }
    flags
}

/// Runs in the module's directory, where Go may choose a newer toolchain than the installed one.
pub(super) fn check_go(versions: &Versions) -> anyhow::Result<()> {
    let wanted = &versions.go;
    let what_to_do =
        format!("install Go {wanted} or newer, or set KUBEBUILDER_ASSETS to a directory with the programs");
    let answer = Command::new("go")
        .args(["env", "GOVERSION"])
        .current_dir(&versions.module)
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .output();
    let output = match answer {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("the control plane must be built, but there is no Go toolchain: {what_to_do}")
        }
        Err(error) => bail!("the control plane must be built, but go does not run ({error}): {what_to_do}"),
    };
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
        bail!("the control plane must be built, but Go refuses ({reason}): {what_to_do}");
    }
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // A development version has no number, and is newer than any release.
    if found.starts_with("go") && go_version(&found[2..]) < go_version(wanted) {
        bail!("the control plane must be built, but {found} is too old: {what_to_do}");
    }
    Ok(())
}

fn go_version(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_go_versions_numerically() {
        assert!(go_version("1.26.8") > go_version("1.26.0"));
        assert!(go_version("1.9") < go_version("1.26.0"));
        assert!(go_version("1.26rc1") < go_version("1.27.0"));
    }

    #[test]
    fn stamps_only_kubernetes_programs() {
        let versions = Versions::of_this_project().unwrap();
        assert_eq!(linker_flags(&PROGRAMS[0], &versions), "-s -w");
        let flags = linker_flags(&PROGRAMS[1], &versions);
        assert!(flags.contains(&format!("-X k8s.io/component-base/version.gitVersion=v{}", versions.kubernetes)));
    }
}
