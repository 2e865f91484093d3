//! `cargo xtask test`

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use clap::Args;
use testbed::ceph::{self, Ceph};
use testbed::control_plane::{ControlPlane, NODE, STATE_VARIABLE, Settings};
use testbed::dependency;
use testbed::go_provisioner::go_provisioner;
use testbed::guard::Guard;
use testbed::progress::{self, SharedProgress, seconds};
use testbed::{csi_sanity, external_provisioner, garage, seaweedfs, versity};

use crate::build::{self, Built, DOC_TESTS, TestProgram};
use crate::install::Install;
use crate::plan::Plan;
use crate::suite::{self, Counts, Suite};

/// What is tested.
#[derive(Args)]
pub(crate) struct Selection {
    /// Run the tests that need a control plane on another version of Kubernetes, such as 1.35 or 1.35.4, which is built
    /// the first time
    #[arg(long, value_name = "VERSION")]
    kubernetes: Option<String>,

    /// Run these suites alone, by the names that the summary has for them, or by a word of these, such as deploy,volumes
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    suite: Vec<String>,

    /// What to pass to every test program, such as a part of a test's name
    #[arg(last = true)]
    filter: Vec<String>,
}

pub(crate) async fn run(install: Install, selection: &Selection, guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let start = Instant::now();
    if install.install_packages {
        dependency::ALL.iter().try_for_each(|dependency| dependency.install(&progress))?;
    }

    let step = Instant::now();
    progress.line("building the tests and the provisioner");
    let mut built = build::tests(guard, &progress).await?;
    selection.apply(&mut built)?;
    let plan = Plan::of(&mut built, &selection.filter, guard)?;
    progress.line(&format!("built in {}", seconds(step.elapsed())));

    go_provisioner(guard, &progress).await?;
    if plan.needs(&versity::VERSITY) {
        versity::program(guard, &progress).await?;
    }
    if plan.needs(&csi_sanity::CSI_SANITY) {
        csi_sanity::program(guard, &progress).await?;
    }
    if plan.needs(&seaweedfs::SEAWEEDFS) {
        seaweedfs::program(guard, &progress).await?;
    }
    if plan.needs(&garage::GARAGE) {
        garage::program(guard, &progress).await?;
    }
    if plan.needs(&external_provisioner::EXTERNAL_PROVISIONER) {
        external_provisioner::program(guard, &progress).await?;
    }

    let step = Instant::now();
    let settings = Settings {
        audit: true,
        node: plan.needs(&NODE),
        kubernetes: selection.kubernetes.clone(),
        ..Settings::default()
    };
    let control_plane = ControlPlane::start(&settings, guard, &progress).await?;
    progress.line(&format!("control plane ready after {}", seconds(step.elapsed())));
    let other_version = control_plane.state().kubernetes.map(|version| format!("on Kubernetes {version}"));

    let step = Instant::now();
    let ceph = if plan.needs(&ceph::CEPH) {
        Some(Ceph::start(&ceph::Settings::default(), guard, &progress).await?)
    } else {
        None
    };
    if ceph.is_some() {
        progress.line(&format!("Ceph ready after {}", seconds(step.elapsed())));
    }

    let mut environment = BTreeMap::from([(STATE_VARIABLE, control_plane.state().path())]);
    if let Some(ceph) = &ceph {
        environment.insert(ceph::STATE_VARIABLE, ceph.state().path());
    }
    let mut suites = run_suites(&built, &plan, &selection.filter, environment, guard, &progress).await;
    suites.extend(built.failures.iter().map(|failure| Suite::broken(failure, "did not compile")));

    let step = Instant::now();
    let passed = is_success(&suites);
    if passed {
        if let Some(ceph) = ceph {
            ceph.stop()?;
        }
        control_plane.stop().await?;
        progress.line(&format!("control plane stopped in {}", seconds(step.elapsed())));
    } else {
        let logs = control_plane.state().dir;
        if let Some(ceph) = ceph {
            progress.line(&format!("Ceph's logs, until the next start: {}", ceph.state().dir.display()));
            ceph.stop_keeping_logs();
        }
        control_plane.stop_keeping_logs().await;
        progress.line(&format!("control plane stopped; its logs, until the next start: {}", logs.display()));
    }
    print_summary(&suites, start);
    if let Some(other_version) = other_version {
        println!("{other_version}");
    }
    plan.summary().iter().for_each(|line| println!("{line}"));
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Selection {
    /// Takes away what is not asked for.
    fn apply(&self, built: &mut Built) -> anyhow::Result<()> {
        if self.kubernetes.is_some() {
            built.programs.retain(|program| program.meets_any_version() || self.names(&program.suite));
            built.doc_tests = false;
        }
        if let Some(unknown) = self.suite.iter().find(|name| !built.suites().any(|suite| is_called(suite, name))) {
            bail!("no suite is called {unknown}; there are {}", built.suites().collect::<Vec<_>>().join(", "));
        }
        built.programs.retain(|program| !program.is_named_only() || self.names(&program.suite));
        if !self.suite.is_empty() {
            built.programs.retain(|program| self.names(&program.suite));
            built.doc_tests &= self.names(DOC_TESTS);
        }
        Ok(())
    }

    fn names(&self, suite: &str) -> bool {
        self.suite.iter().any(|name| is_called(suite, name))
    }
}

/// By the whole name or a word of it.
fn is_called(suite: &str, name: &str) -> bool {
    suite == name || suite.split(' ').any(|word| word == name)
}

/// Runs what shares the control plane one program at a time, and beside it two at a time of everything else: most tests wait.
async fn run_suites(
    built: &Built,
    plan: &Plan,
    filter: &[String],
    mut environment: BTreeMap<&str, PathBuf>,
    guard: &Guard,
    progress: &SharedProgress,
) -> Vec<Suite> {
    environment.extend(built.provisioners.clone());
    let run = async |suite: &str, command, progress: &SharedProgress| {
        progress.line(&format!("\n=== {suite}"));
        suite::run(suite, command, &environment, progress).await
    };
    let program = |program| program_command(program, plan, filter, guard);
    let (sharing, others): (Vec<_>, Vec<_>) = built.programs.iter().partition(|program| program.uses_shared_servers());
    let others = others.into_iter().map(|each| (&*each.suite, program(each)));
    let docs = built.doc_tests.then(|| (DOC_TESTS, docs_command(filter, guard)));
    // First, since cargo builds one thing at a time, and some tests build.
    let queue = RefCell::new(docs.into_iter().chain(others));
    let next = || queue.borrow_mut().next();
    let others = async || {
        let mut suites = Vec::new();
        while let Some((suite, command)) = next() {
            suites.push(run(suite, command, &progress::buffered(progress)).await);
        }
        suites
    };
    let sharing = async {
        let mut suites = Vec::new();
        for each in sharing {
            suites.push(run(&each.suite, program(each), progress).await);
        }
        suites
    };
    let (mut suites, some, rest) = tokio::join!(sharing, others(), others());
    suites.extend(some.into_iter().chain(rest));
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    suites
}

/// As `cargo test` runs it, but as a child of this process, so that it ends with it.
fn program_command(program: &TestProgram, plan: &Plan, filter: &[String], guard: &Guard) -> std::process::Command {
    let mut command = build::command(guard, &program.executable);
    command.args(plan.skips(&program.suite));
    command.args(filter).current_dir(&program.directory).env("CARGO_MANIFEST_DIR", &program.directory);
    command
}

fn docs_command(filter: &[String], guard: &Guard) -> std::process::Command {
    let mut command = build::cargo(guard);
    command.args(["test", "--quiet", "--doc", "--workspace", "--no-fail-fast", "--"]).args(filter);
    command
}

fn total(suites: &[Suite]) -> Counts {
    suites.iter().fold(Counts::default(), |total, suite| total + suite.counts)
}

/// A run without any test proves nothing.
fn is_success(suites: &[Suite]) -> bool {
    let total = total(suites);
    total.passed > 0 && total.failed == 0 && suites.iter().all(|suite| suite.problem.is_none())
}

fn print_summary(suites: &[Suite], start: Instant) {
    let width = suites.iter().map(|suite| suite.name.len()).max().unwrap_or_default();
    println!("\nSummary");
    for suite in suites {
        println!("{}", suite.line(width));
    }
    println!("{} suites in {}", suites.len(), seconds(start.elapsed()));
    let total = total(suites);
    if total.passed + total.failed == 0 {
        println!("no test ran");
    }
    println!("{} passed, {} failed", total.passed, total.failed);
}
