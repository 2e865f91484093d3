//! `cargo xtask test`

use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Args;
use testbed::cargo::BINARIES_ARE_BUILT;
use testbed::control_plane::{Binaries, VERSION_VARIABLE, remove_abandoned};
use testbed::dependency::{Dependency, INSTALL, Obstacle};
use testbed::guard::{Guard, Running};
use testbed::progress::{self, SharedProgress, seconds};
use testbed::{
    ceph, control_plane, csi_driver, csi_sanity, external_provisioner, garage, nfs, s3, seaweedfs, uml, versity,
};

use crate::build;
use crate::install::Install;

/// The dependencies of tests, in the order in which they are listed and installed.
static DEPENDENCIES: [&Dependency; 13] = [
    &control_plane::NODE,
    &ceph::CEPH,
    &nfs::GANESHA,
    &uml::KERNEL,
    &s3::S3_SERVER,
    &s3::clients::CLIENTS,
    &versity::VERSITY,
    &seaweedfs::SEAWEEDFS,
    &garage::GARAGE,
    &csi_sanity::CSI_SANITY,
    &csi_driver::CSI_REGISTRAR,
    &csi_driver::CSI_MOCK_DRIVER,
    &external_provisioner::EXTERNAL_PROVISIONER,
];
/// The workspace without the tests that need servers.
const WORKSPACE: [&str; 5] = ["test", "--locked", "--workspace", "--exclude", "e2e"];
/// The end-to-end tests, with the workspace's features, so that nothing is compiled twice.
const END_TO_END: [&str; 5] = ["test", "--locked", "--workspace", "--test", "e2e"];
/// Modules whose binaries take up to 15 minutes to build: they run only if a filter begins with the name.
const NAMED_ONLY: [&str; 4] = ["charts::", "csi_scenarios::", "garage::", "seaweedfs::"];
/// Modules whose recordings are tied to one Kubernetes version.
const ONE_VERSION: [&str; 3] = ["csi_scenarios::", "kubectl::", "scenarios::"];
/// End-to-end tests mostly wait: 8 at a time are the fastest on two cores.
const THREADS: usize = 8;

/// The tests to run.
#[derive(Args)]
pub(crate) struct Selection {
    /// Run only the end-to-end tests, on another version of Kubernetes, such as 1.35 or 1.35.4, which is built on first
    /// use
    #[arg(long, value_name = "VERSION")]
    kubernetes: Option<String>,

    /// Parts of test paths, such as `deploy::`: run only the tests that contain one of them
    #[arg(last = true)]
    filter: Vec<String>,
}

pub(crate) async fn run(install: Install, selection: &Selection, guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let start = Instant::now();
    if install.install_packages {
        DEPENDENCIES.iter().try_for_each(|dependency| dependency.install(&progress))?;
    }
    if let Some(obstacle) = Binaries::obstacle() {
        return Err(obstacle);
    }
    let mut passed = true;
    if selection.kubernetes.is_none() {
        passed &= cargo_test(&WORKSPACE, &["--no-fail-fast"], &selection.filter, guard).await?;
        progress.line(&format!("the workspace's own tests ended after {}", seconds(start.elapsed())));
    }
    let plan = Plan::of(tests(&selection.filter, guard)?, selection);
    for dependency in DEPENDENCIES.iter().filter(|dependency| plan.needs(dependency)) {
        if let Some(build) = dependency.program {
            build(guard, &progress).await?;
        }
    }
    if !plan.chosen.is_empty() {
        passed &= end_to_end(&plan, selection, guard, &progress).await?;
    }
    plan.summary().iter().for_each(|line| println!("{line}"));
    progress.line(&format!("{} after {}", if passed { "passed" } else { "failed" }, seconds(start.elapsed())));
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn end_to_end(
    plan: &Plan,
    selection: &Selection,
    guard: &Guard,
    progress: &SharedProgress,
) -> anyhow::Result<bool> {
    let skips = plan.left_out.iter().flat_map(|(path, _)| ["--skip", path]).map(str::to_owned);
    let threads = std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| THREADS.to_string());
    let arguments = ["--test-threads".to_owned(), threads].into_iter().chain(skips);
    let arguments: Vec<String> = arguments.chain(selection.filter.iter().cloned()).collect();
    let mut command = build::cargo(guard);
    command.args(END_TO_END).arg("--").args(arguments);
    match &selection.kubernetes {
        Some(version) => command.env(VERSION_VARIABLE, version),
        // Cargo built the binaries for the workspace's own tests, which ran before.
        None => command.env(BINARIES_ARE_BUILT, "1"),
    };
    let passed = Running::start(command)?.ended().await?.success();
    if passed {
        remove_abandoned()?;
    } else {
        progress.line("the servers' logs stay until the next start, in the cache's folder `instances`");
    }
    Ok(passed)
}

async fn cargo_test(which: &[&str], options: &[&str], filter: &[String], guard: &Guard) -> anyhow::Result<bool> {
    let mut command = build::cargo(guard);
    command.args(which).args(options).arg("--").args(filter);
    Ok(Running::start(command)?.ended().await?.success())
}

/// The paths of the end-to-end tests that the filter chooses.
fn tests(filter: &[String], guard: &Guard) -> anyhow::Result<Vec<String>> {
    let mut command = build::cargo(guard);
    command.args(END_TO_END).args(["--quiet", "--", "--list", "--format", "terse"]).args(filter);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "the end-to-end tests do not compile");
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// The end-to-end tests that run, and those that are skipped.
struct Plan {
    chosen: Vec<String>,
    /// The skipped tests, with the reason.
    left_out: Vec<(String, String)>,
    installs: bool,
}

impl Plan {
    fn of(tests: Vec<String>, selection: &Selection) -> Self {
        let obstacles: Vec<_> =
            DEPENDENCIES.iter().filter_map(|dependency| Some((*dependency, dependency.obstacle()?))).collect();
        Self::decide(tests, selection, &obstacles)
    }

    fn decide(tests: Vec<String>, selection: &Selection, obstacles: &[(&'static Dependency, Obstacle)]) -> Self {
        let mut plan = Self { chosen: Vec::new(), left_out: Vec::new(), installs: false };
        for path in tests {
            let missing: Vec<_> = obstacles.iter().filter(|(dependency, _)| dependency.is_needed_by(&path)).collect();
            let is_in = |modules: &[&'static str]| modules.iter().copied().find(|module| path.starts_with(module));
            let named = |module: &str| selection.filter.iter().any(|filter| filter.starts_with(module));
            let reason = if let Some(module) = is_in(&NAMED_ONLY).filter(|module| !named(module)) {
                Some(format!("run only if you name them: cargo xtask test -- {module}"))
            } else if selection.kubernetes.is_some() && is_in(&ONE_VERSION).is_some_and(|module| !named(module)) {
                Some("compare with this project's version of Kubernetes".to_owned())
            } else if let Some((dependency, obstacle)) = missing.first() {
                plan.installs |= matches!(obstacle, Obstacle::Missing(_));
                Some(format!("need {}: {obstacle}", dependency.name))
            } else {
                None
            };
            match reason {
                Some(reason) => plan.left_out.push((path, reason)),
                None => plan.chosen.push(path),
            }
        }
        plan
    }

    fn needs(&self, dependency: &Dependency) -> bool {
        self.chosen.iter().any(|path| dependency.is_needed_by(path))
    }

    /// Lists the skipped tests by reason, with the command that runs them.
    fn summary(&self) -> Vec<String> {
        let mut reasons: Vec<&str> = self.left_out.iter().map(|(_, reason)| reason.as_str()).collect();
        reasons.sort_unstable();
        let counted = reasons.chunk_by(|a, b| a == b).map(|same| format!("  {:>3} {}", same.len(), same[0]));
        let mut lines: Vec<String> = counted.collect();
        if !lines.is_empty() {
            lines.insert(0, format!("\n{} end-to-end tests left out:", self.left_out.len()));
        }
        if self.installs {
            lines.push(format!("To install the missing packages and run these tests, as root: {INSTALL}"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ceph::CEPH;
    use s3::S3_SERVER;
    use s3::clients::CLIENTS;

    fn plan(missing: &[&'static Dependency], filter: &[&str], kubernetes: Option<&str>) -> Plan {
        let tests = [
            "bucket_clients::aws_clients_use_a_bucket",
            "bucket_clients::ceph_clients_use_a_bucket",
            "buckets::claims::ceph_quotas_hold",
            "garage::cases::garage_cases::a_replica_takes_over",
            "kubectl::a_claim",
        ];
        let selection = Selection {
            kubernetes: kubernetes.map(str::to_owned),
            filter: filter.iter().map(|&filter| filter.to_owned()).collect(),
        };
        let obstacle = |dependency: &&'static Dependency| (*dependency, Obstacle::Missing("a package".to_owned()));
        let obstacles: Vec<_> = missing.iter().map(obstacle).collect();
        Plan::decide(tests.map(str::to_owned).into(), &selection, &obstacles)
    }

    #[test]
    fn dependencies_follow_from_the_path_of_a_test() {
        let needs = |path| {
            let known = DEPENDENCIES.iter().filter(|dependency| dependency.is_needed_by(path));
            known.map(|dependency| dependency.name).collect::<Vec<_>>()
        };
        assert_eq!(needs("node_nfs::ganesha_a_share"), ["a node", "an NFS server", "user-mode Linux"]);
        assert_eq!(needs("nfs::quota::ganesha_sizes_hold_on_xfs"), ["an NFS server", "user-mode Linux"]);
        assert_eq!(needs("bucket_clients::ceph_clients_use_a_bucket"), ["a Ceph cluster", "clients of S3"]);
        assert_eq!(needs("s3::rights::aws_no_administrators"), ["S3 and IAM"]);
        assert_eq!(needs("versity::versity_cases::a_replica_takes_over"), ["the Versity S3 Gateway"]);
        assert_eq!(needs("seaweedfs::seaweedfs_cases::a_replica_takes_over"), ["SeaweedFS"]);
        assert_eq!(needs("csi_sanity::csi_sanity_passes"), ["csi-sanity"]);
        assert_eq!(needs("garage::cases::garage_cases::a_replica_takes_over"), ["Garage"]);
        assert_eq!(needs("csi_scenarios::the_sidecar_agrees"), ["external-provisioner"]);
        let both = ["clients of S3", "the Versity S3 Gateway"];
        assert_eq!(needs("bucket_clients::versity_clients_use_a_bucket"), both);
        assert!(needs("nodes::the_node").is_empty());
    }

    #[test]
    fn runs_all_tests_when_nothing_is_missing() {
        let plan = plan(&[], &["garage::"], None);
        assert!(plan.left_out.is_empty() && plan.summary().is_empty());
        assert!(plan.needs(&CEPH) && plan.needs(&S3_SERVER) && plan.needs(&CLIENTS));
    }

    #[test]
    fn counts_tests_that_lack_a_dependency() {
        let plan = plan(&[&CEPH, &CLIENTS], &["garage::"], None);
        let left_out: Vec<_> = plan.left_out.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(left_out.len(), 3, "{left_out:?}");
        assert!(!plan.needs(&CEPH) && !plan.needs(&CLIENTS));
        let lines = plan.summary().join("\n");
        assert!(lines.contains("3 end-to-end tests left out"), "{lines}");
        assert!(lines.contains("  2 need a Ceph cluster: a package"), "{lines}");
        assert!(lines.contains("  1 need clients of S3: a package") && lines.ends_with(INSTALL), "{lines}");
    }

    #[test]
    fn leaves_out_slow_builds_and_recordings_of_one_version() {
        let lines = plan(&[], &[], Some("1.35")).summary().join("\n");
        assert!(lines.contains("  1 run only if you name them: cargo xtask test -- garage::"), "{lines}");
        assert!(lines.contains("  1 compare with this project's version of Kubernetes"), "{lines}");
        assert!(!lines.contains(INSTALL), "{lines}");
    }
}
