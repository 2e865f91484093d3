//! `cargo xtask bench report`: every scenario of the performance page in one run, and the page's figures.

mod chart;
mod page;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use testbed::control_plane::Versions;
use testbed::figures::Figures;
use testbed::guard::Guard;
use testbed::packages::{self, Package};
use testbed::process::machine_memory;
use testbed::progress::{self, SharedProgress};

use crate::build::{self, Profile, workspace_root};

/// Measures every scenario of `docs/book/pages/operate/performance.md`, and writes its figures.
#[derive(Parser)]
#[command(name = "cargo xtask bench report", max_term_width = 100)]
struct Options {
    /// Continue a report that was interrupted, with the same sources of the libraries and provisioners
    #[arg(long)]
    resume: bool,
    /// Measure nothing; only write the page, its charts and README.md again
    #[arg(long, conflicts_with = "resume")]
    render: bool,
}

/// A measurement, and the quantities in its chart.
struct Scenario {
    name: &'static str,
    command: &'static str,
    charts: &'static [&'static str],
}

const fn scenario(name: &'static str, command: &'static str, charts: &'static [&'static str]) -> Scenario {
    Scenario { name, command, charts }
}

/// The least important come last, so that a run that must end early has measured the others.
const SCENARIOS: [Scenario; 23] = [
    scenario("handover", "handover --rounds 2", &["first volume of the next replica after, s"]),
    scenario("nfs-handover", "nfs-handover --rounds 2 --both", &["SIGTERM, s", "SIGKILL, s"]),
    scenario("csi-handover", "csi handover --rounds 2", &["SIGTERM, s", "SIGKILL, s"]),
    scenario("csi-restarts", "csi restarts", &["next CreateVolume after, s"]),
    scenario("burst-100", "burst --claims 100 --rounds 2 --defaults", &["all bound, s"]),
    scenario("burst-1000", "burst --claims 1000 --rounds 2", &["all bound, s", "all deleted, s"]),
    scenario("csi-burst", "csi burst --claims 1000 --rounds 2", &["all bound, s", "peak memory, MB"]),
    scenario("directories-ext4", "directories --claims 1000 --rounds 2 --file-system ext4", &["volumes/s"]),
    scenario("directories-xfs", "directories --claims 1000 --rounds 2 --file-system xfs", &["volumes/s"]),
    scenario("directories-tmpfs", "directories --claims 1000 --rounds 2 --file-system tmpfs", &["volumes/s"]),
    scenario("slow-backend", "waiting --claims 300 --rounds 2 --delay 1000", &["volumes/s"]),
    scenario("buckets", "buckets --rounds 2 --bound 2000", &["all bound, s"]),
    scenario("shards", "shards --claims 1000 --rounds 2", &["volumes/s"]),
    scenario("csi-topology", "csi topology --rounds 2", &["volumes/s from the start"]),
    scenario("waiting-3000", "waiting --claims 3000 --rounds 2", &["volumes/s", "peak memory, MB"]),
    scenario("removal", "removal --files 300000", &["files removed after, s", "another claim bound after, s"]),
    scenario("journal", "journal --rounds 2", &["writes per claim", "volumes/s"]),
    scenario("csi-foreign", "csi burst --foreign 50000 --rounds 2", &["peak memory, MB"]),
    scenario("foreign", "foreign --pairs 0,50000,100000 --rounds 1", &["peak memory, MB", "first volume after, s"]),
    scenario("own", "foreign --own --pairs 0,100000 --rounds 1", &["peak memory, MB", "first volume after, s"]),
    scenario("csi-nodes", "csi topology --memory 5000 --rounds 1", &["memory after 20 s, MB"]),
    scenario(SIMULATION, "sim --seeds 500 --threads 1", &["seeds/s"]),
    scenario("waiting-10000", "waiting --claims 10000 --rounds 1", &["volumes/s", "peak memory, MB"]),
];

/// The scenarios about directories create file systems.
const PACKAGES: [Package; 2] = [
    Package { name: "e2fsprogs", file: "/usr/sbin/mkfs.ext4", services: &[] },
    Package { name: "xfsprogs", file: "/usr/sbin/mkfs.xfs", services: &[] },
];

/// The only scenario without a control plane.
const SIMULATION: &str = "simulation";

/// The content of `figures.json`.
#[derive(Deserialize, Serialize)]
struct Report {
    machine: Machine,
    scenarios: Vec<Measured>,
}

/// The machine and the build of all scenarios.
#[derive(Deserialize, Serialize)]
struct Machine {
    date: String,
    commit: String,
    /// The trees of the sources that are measured.
    sources: Vec<String>,
    processors: usize,
    memory_gb: u64,
    kernel: String,
    rust: String,
    kubernetes: String,
    etcd: String,
}

#[derive(Deserialize, Serialize)]
struct Measured {
    name: String,
    command: String,
    minutes: f64,
    figures: Figures,
}

pub(crate) async fn run(arguments: &[String], guard: &Guard) -> anyhow::Result<ExitCode> {
    let options = Options::try_parse_from(arguments).unwrap_or_else(|error| error.exit());
    if options.render {
        page::write(&Report::read()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let missing = packages::missing(&PACKAGES).join(" ");
    ensure!(missing.is_empty(), "install the packages that the scenarios need: apt-get install {missing}");
    let machine = Machine::detect()?;
    let mut failed = false;
    let mut report = if options.resume {
        let report = Report::read()?;
        let same = report.machine.is_like(&machine);
        ensure!(same, "the machine or the sources have changed: measure all scenarios, without --resume");
        report
    } else {
        Report { machine, scenarios: Vec::new() }
    };
    let progress = progress::terminal();
    for scenario in &SCENARIOS {
        if report.measured(scenario).is_some() {
            continue;
        }
        progress.line(&format!("{}: {}", scenario.name, scenario.command));
        let start = Instant::now();
        let (figures, within_limits) = match scenario.measure(guard, &progress).await {
            Ok(measured) => measured,
            Err(error) => {
                progress.line(&format!("{error:#}"));
                failed = true;
                continue;
            }
        };
        failed |= !within_limits;
        let minutes = (start.elapsed().as_secs_f64() / 6.0).round() / 10.0;
        report.scenarios.retain(|measured| measured.name != scenario.name);
        let [name, command] = [scenario.name, scenario.command].map(str::to_owned);
        report.scenarios.push(Measured { name, command, minutes, figures });
        report.save()?;
    }
    page::write(&report)?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Scenario {
    /// Returns the values, and whether they are within the measurement's limits.
    async fn measure(&self, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<(Figures, bool)> {
        if self.name == SIMULATION {
            return Ok((self.simulation(guard, progress).await?, true));
        }
        let output = std::env::temp_dir().join(format!("figures-{}.json", std::process::id()));
        let mut arguments: Vec<String> = self.command.split(' ').map(str::to_owned).collect();
        arguments.extend(["--output".to_owned(), output.display().to_string()]);
        // A measurement that exceeds a limit fails after it has written its values.
        let result = crate::bench::measure(&arguments, guard, progress).await;
        if let Err(error) = &result {
            progress.line(&format!("{}: {error:#}", self.name));
        }
        let figures = std::fs::read(&output).with_context(|| format!("{} has no figures", self.name))?;
        std::fs::remove_file(&output)?;
        Ok((serde_json::from_slice(&figures)?, result.is_ok()))
    }

    /// Measures the rate of simulated runs, in three rounds of each kind.
    async fn simulation(&self, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Figures> {
        let program = build::program(Profile::Sim, "simulation", &[], guard, progress).await?;
        let mut figures = Figures::default();
        for _ in 0..3 {
            for (name, kind) in [("volumes", None), ("topology", Some("--topology")), ("buckets", Some("--buckets"))] {
                let mut command = build::command(guard, &program);
                let output = command.args(self.command.split(' ').skip(1)).args(kind).output()?;
                let text = String::from_utf8_lossy(&output.stdout);
                ensure!(output.status.success(), "the simulation failed: {text}");
                // 1000 seeds in 10.3 s, 194 per second; of each 9.81 ms of processor time, …
                let line =
                    text.lines().find(|line| line.contains(" per second")).context("the simulation has no rate")?;
                let rate = line.split_once(" per second").and_then(|(before, _)| before.rsplit(' ').next());
                let cost = line.split_once(" ms of").and_then(|(before, _)| before.rsplit(' ').next());
                figures.record(name, "seeds/s", rate.context("no rate")?.parse()?);
                figures.record(name, "processor time of a seed, ms", cost.context("no time")?.parse()?);
            }
        }
        Ok(figures)
    }
}

impl Report {
    fn read() -> anyhow::Result<Self> {
        let path = path();
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not a report", path.display()))
    }

    fn save(&self) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let unfinished = path().with_extension("unfinished");
        std::fs::write(&unfinished, text).with_context(|| format!("cannot write {}", unfinished.display()))?;
        std::fs::rename(&unfinished, path()).with_context(|| format!("cannot write {}", path().display()))
    }

    /// The values of a scenario, if its command is still the same.
    fn measured(&self, scenario: &Scenario) -> Option<&Measured> {
        let is_it = |measured: &&Measured| measured.name == scenario.name && measured.command == scenario.command;
        self.scenarios.iter().find(is_it)
    }
}

impl Machine {
    fn is_like(&self, other: &Self) -> bool {
        let all = |machine: &Self| {
            (machine.sources.clone(), machine.processors, machine.kernel.clone(), machine.rust.clone())
        };
        all(self) == all(other)
    }

    fn detect() -> anyhow::Result<Self> {
        let changed = output(
            "git",
            &["status", "--porcelain", "--", "crates", "provisioners", "bench", "testbed", "Cargo.lock"],
        )?;
        ensure!(changed.is_empty(), "commit these changes first, so that the report can name its sources:\n{changed}");
        let versions = Versions::of_this_project()?;
        Ok(Self {
            date: Timestamp::now().strftime("%F").to_string(),
            commit: output("git", &["rev-parse", "--short=8", "HEAD"])?,
            sources: ["HEAD:crates", "HEAD:provisioners", "HEAD:Cargo.lock"]
                .map(|tree| output("git", &["rev-parse", tree]))
                .into_iter()
                .collect::<Result<_, _>>()?,
            processors: std::thread::available_parallelism()?.get(),
            memory_gb: machine_memory()? / 1_000_000_000,
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .split('-')
                .next()
                .unwrap_or_default()
                .to_owned(),
            rust: output("rustc", &["--version"])?.split(' ').nth(1).unwrap_or_default().to_owned(),
            kubernetes: versions.kubernetes,
            etcd: versions.etcd,
        })
    }
}

fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).current_dir(workspace_root()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} {} ended with {}", arguments.join(" "), output.status);
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn path() -> PathBuf {
    folder().join("figures.json")
}

fn folder() -> PathBuf {
    workspace_root().join("docs/book/pages/operate")
}
