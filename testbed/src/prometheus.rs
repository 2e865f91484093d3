//! Prometheus from its Debian package: promtool, and a server on loopback that scrapes local programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::Program;
use crate::control_plane::{State, cache_dir};
use crate::ports::free_port;
use crate::process::output;
use crate::progress::SharedProgress;

const LIMIT: Duration = Duration::from_secs(60);

/// The path of promtool. `PROMTOOL` overrides it.
pub fn promtool(progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    program("promtool", progress)
}

/// A running server, which ends with this value.
pub struct Prometheus {
    /// The server's URL.
    pub url: String,
    promtool: PathBuf,
    _program: Program,
}

/// A program to scrape, with the labels that a PodMonitor would add.
#[derive(Clone)]
pub struct Target {
    /// The port on loopback.
    pub port: u16,
    /// The namespace of the pod.
    pub namespace: String,
    /// The namespace and the name of the PodMonitor.
    pub job: String,
    /// The name of the pod.
    pub pod: String,
}

/// A sample of a series.
#[derive(Debug, Deserialize)]
pub struct Sample {
    /// The labels, including the metric's name.
    #[serde(rename = "metric")]
    pub labels: BTreeMap<String, String>,
    #[serde(rename = "value")]
    at: (f64, String),
}

impl Sample {
    /// The sample's value.
    pub fn value(&self) -> f64 {
        self.at.1.parse().unwrap_or(f64::NAN)
    }
}

impl Prometheus {
    /// Starts a server that scrapes the targets and evaluates the rules every second. `PROMETHEUS` overrides the
    /// program. Its files are in the control plane's directory.
    pub async fn start(
        state: &State,
        targets: &[Target],
        rules: &Path,
        progress: &SharedProgress,
    ) -> anyhow::Result<Self> {
        let folder = state.dir.join("prometheus");
        fs::create_dir_all(&folder)?;
        let config = folder.join("prometheus.yml");
        // JSON is valid YAML.
        fs::write(&config, configuration(targets, rules).to_string())?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let arguments = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let server = Program::spawn(state, "prometheus", program("prometheus", progress)?, arguments)?;
        server.wait_for_output("Server is ready to receive web requests", LIMIT).await?;
        Ok(Self { url: format!("http://{address}"), promtool: promtool(progress)?, _program: server })
    }

    /// Evaluates an expression. Leaves out values that are not a number, which panels do not show either.
    pub async fn query(&self, expression: &str) -> anyhow::Result<Vec<Sample>> {
        let text = self.ask(&["instant", &self.url, expression]).await?;
        let samples: Vec<Sample> = serde_json::from_str(&text).with_context(|| format!("{expression} gives {text}"))?;
        Ok(samples.into_iter().filter(|sample| !sample.value().is_nan()).collect())
    }

    /// The values of a label in the series that match a selector.
    pub async fn label_values(&self, selector: &str, label: &str) -> anyhow::Result<Vec<String>> {
        let text = self.ask(&["labels", "--match", selector, &self.url, label]).await?;
        serde_json::from_str(&text).with_context(|| format!("the values of {label} are {text}"))
    }

    async fn ask(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = tokio::process::Command::new(&self.promtool);
        command.args(["query", "--format=json"]).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.with_context(|| format!("cannot run {}", self.promtool.display()))?;
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "promtool query {}: {complaint}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn configuration(targets: &[Target], rules: &Path) -> Value {
    let each = |target: &Target| {
        json!({"job_name": target.job, "static_configs": [{
            "targets": [format!("127.0.0.1:{}", target.port)],
            "labels": {"namespace": target.namespace, "pod": target.pod},
        }]})
    };
    json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [rules],
        "scrape_configs": targets.iter().map(each).collect::<Vec<_>>(),
    })
}

/// A program of the package, which is unpacked into the user's cache instead of being installed. A variable overrides
/// it.
fn program(name: &str, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    let variable = name.to_uppercase();
    if let Some(named) = std::env::var_os(&variable) {
        return Ok(named.into());
    }
    let folder = cache_dir()?.join("prometheus");
    let program = folder.join("usr/bin").join(name);
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&folder)?;
    progress.line(&format!("unpacking Debian's package prometheus into {}", folder.display()));
    for (program, arguments) in
        [("apt-get", ["download", "prometheus"]), ("sh", ["-c", "dpkg -x prometheus_*.deb . && rm prometheus_*.deb"])]
    {
        let unpacked = output(Command::new(program).args(arguments).current_dir(&folder));
        unpacked.with_context(|| format!("it cannot be unpacked; or set {variable}"))?;
    }
    ensure!(program.is_file(), "Debian's package prometheus has no {name}");
    Ok(program)
}
