//! Kubernetes' storage tests with both sidecars on one cluster with a real node. Each sidecar uses its own driver,
//! csi-sim with data; the sidecars for snapshots and expansion are upstream's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use clap::Args;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use testbed::cluster::{Program, apply, class};
use testbed::control_plane::{State, client_from, kubeconfig_for_service_account};
use testbed::csi_driver::CsiDriver;
use testbed::guard::{Lifetime, Running};
use testbed::progress;
use testbed::scenario::csi_rights;
use testbed::storage_suite::StorageSuite;

use super::peer::{Peer, Programs};
use super::stage::ACCOUNT;

#[derive(Args, Clone)]
pub(crate) struct Settings {
    /// Specs to run, of those that begin with "External Storage"
    #[arg(long, default_value = "")]
    focus: String,
    /// Specs to skip. Some need a second node's SSH server, and one needs images that cannot be built
    #[arg(long, default_value = "Disruptive|any volume data source")]
    skip: String,
    /// Number of specs to run in parallel
    #[arg(long, default_value_t = 4)]
    procs: usize,
    /// Directory for the suite's output and report
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<()> {
    let state = State::for_tests()?;
    let client = client_from(&state.kubeconfig).await?;
    let programs = Programs::find().await?;
    let suite = StorageSuite::build(&state.guard(), &progress::terminal()).await?;
    suite.prepare(&state)?;
    let arguments = [format!("--kubeconfig={}", state.kubeconfig.display()), "--leader-election=false".to_owned()];
    let _controller = Program::spawn(&state, "snapshot-controller", &suite.snapshot_controller, arguments)?;
    let folder = tempfile::tempdir()?;
    let mut stages = Vec::new();
    for peer in Peer::BOTH {
        stages.push(Stage::set(peer, &state, &client, &programs, &suite, folder.path()).await?);
    }
    let output = settings.output.clone().unwrap_or_else(|| folder.path().to_owned());
    fs::create_dir_all(&output)?;
    let report = run_specs(&settings, &state, &suite, &stages, &output).await?;
    print_results(&report, &stages);
    for stage in &stages {
        println!("left in the driver of {}: {:?}", stage.peer.title(), stage.driver.data()?);
    }
    Ok(())
}

/// A driver with its sidecars.
struct Stage {
    peer: Peer,
    name: String,
    driver: CsiDriver,
    /// The driver definition for the suite.
    definition: PathBuf,
    _sidecars: Vec<Program>,
}

impl Stage {
    async fn set(
        peer: Peer,
        state: &State,
        client: &Client,
        programs: &Programs,
        suite: &StorageSuite,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let name = format!("{}.csi.example.com", peer.slug());
        let driver = CsiDriver::start(state, &name).await?;
        let namespace = format!("csi-{}", peer.slug());
        let mut objects =
            vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}), driver.object()];
        objects.extend(classes(&name)?);
        objects.extend(csi_rights(&namespace)?);
        apply(client, &objects).await?;
        let kubeconfig = kubeconfig_for_service_account(client, state, &namespace, ACCOUNT).await?;
        driver.wait_until_registered(client).await?;
        let start = |what: &str, program: &Path, kubeconfig: &Path, more: &[String]| {
            let mut arguments = vec![
                format!("--csi-address={}", driver.socket().display()),
                format!("--kubeconfig={}", kubeconfig.display()),
                "--timeout=60s".to_owned(),
            ];
            arguments.extend_from_slice(more);
            Program::spawn(state, &format!("{namespace}-{what}"), program, arguments)
        };
        let of_provisioner = [format!("--leader-election-namespace={namespace}")];
        let sidecars = vec![
            start("provisioner", programs.path(peer), &kubeconfig, &of_provisioner)?,
            start("snapshotter", &suite.csi_snapshotter, &state.kubeconfig, &[])?,
            start("resizer", &suite.csi_resizer, &state.kubeconfig, &[])?,
        ];
        let definition = folder.join(format!("{name}.json"));
        fs::write(&definition, serde_json::to_string_pretty(&definition_of(&name))?)?;
        Ok(Self { peer, name, driver, definition, _sidecars: sidecars })
    }
}

fn classes(name: &str) -> anyhow::Result<Vec<Value>> {
    let mut storage = serde_json::to_value(class(name, name))?;
    storage["allowVolumeExpansion"] = true.into();
    let metadata = json!({"name": name});
    Ok(vec![
        storage,
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": metadata, "driver": name, "deletionPolicy": "Delete",
        }),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": metadata, "driverName": name, "parameters": {"tier": "gold"},
        }),
    ])
}

fn definition_of(name: &str) -> Value {
    json!({
        "StorageClass": {"FromExistingClassName": name},
        "SnapshotClass": {"FromExistingClassName": name},
        "VolumeAttributesClass": {"FromExistingClassName": name},
        "DriverInfo": {
            "Name": name,
            "SupportedSizeRange": {"Min": "1Mi"},
            "SupportedFsType": {"": {}},
            "SupportedMountOption": {"noatime": {}},
            "StressTestOptions": {"NumPods": 3, "NumRestarts": 3},
            "VolumeSnapshotStressTestOptions": {"NumPods": 2, "NumSnapshots": 3},
            "Capabilities": {
                "persistence": true, "block": true, "fsGroup": true, "exec": true, "multipods": true, "RWX": true,
                "capReadOnlyMany": true, "readWriteOncePod": true, "singleNodeVolume": true, "multiplePVsSameID": true,
                "snapshotDataSource": true, "pvcDataSource": true,
                // A volume is a directory of the node's file system, so its size is always the same.
                "FSResizeFromSourceNotSupported": true,
                "controllerExpansion": true, "nodeExpansion": true, "offlineExpansion": true, "onlineExpansion": true,
            },
        },
    })
}

async fn run_specs(
    settings: &Settings,
    state: &State,
    suite: &StorageSuite,
    stages: &[Stage],
    output: &Path,
) -> anyhow::Result<Vec<Spec>> {
    let kubectl = state.kubectl.as_deref().context("there is no kubectl")?;
    let mut command = state.guard().command(Lifetime::WithOwner, &suite.ginkgo);
    command.arg(format!("--procs={}", settings.procs)).args([
        "--timeout=3h",
        "--no-color",
        "--json-report=report.json",
    ]);
    command.arg(format!("--focus=External.Storage.*{}", settings.focus)).arg(format!("--skip={}", settings.skip));
    command.arg(format!("--output-dir={}", output.display())).arg(&suite.suite).arg("--");
    command.args(["--provider=skeleton", "--num-nodes=1"]).arg(format!("--kubeconfig={}", state.kubeconfig.display()));
    command.arg(format!("--kubectl-path={}", kubectl.display()));
    command.args(stages.iter().map(|stage| format!("--storage.testdriver={}", stage.definition.display())));
    let log = fs::File::create(output.join("suite.log"))?;
    command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
    let status = Running::start(command)?.ended().await?;
    let report = output.join("report.json");
    ensure!(report.exists(), "the suite ended with {status}; its log is {}", output.join("suite.log").display());
    let suites: Vec<Report> = serde_json::from_str(&fs::read_to_string(report)?)?;
    Ok(suites.into_iter().flat_map(|suite| suite.spec_reports).filter(|spec| spec.num_attempts > 0).collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Vec<Spec>,
}

/// A finished spec, as ginkgo reports it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    #[serde(default)]
    leaf_node_text: String,
    state: String,
    #[serde(default)]
    num_attempts: u32,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

impl Spec {
    /// The title without the driver: `[Testpattern: …] snapshottable …`.
    fn title(&self, driver: &str) -> Option<String> {
        let groups = self.container_hierarchy_texts.as_ref()?;
        let first = groups.iter().position(|group| group.contains(driver))?;
        let parts = groups[first + 1..].iter().map(String::as_str).chain([self.leaf_node_text.as_str()]);
        Some(parts.collect::<Vec<_>>().join(" "))
    }

    fn result(&self) -> String {
        let state = &self.state;
        match self.failure.as_ref().and_then(|failure| failure.message.lines().next()) {
            // Messages repeat whole commands.
            Some(line) => format!("{state}: {}", line.chars().take(200).collect::<String>()),
            None => state.clone(),
        }
    }
}

/// Prints the result of each spec, by driver.
fn print_results(report: &[Spec], stages: &[Stage]) {
    let mut results: BTreeMap<String, BTreeMap<&str, &Spec>> = BTreeMap::new();
    for spec in report {
        for stage in stages {
            if let Some(title) = spec.title(&stage.name) {
                results.entry(title).or_default().insert(stage.peer.slug(), spec);
            }
        }
    }
    println!("| specs | {} |", stages.iter().map(|stage| stage.peer.title()).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(stages.len()));
    for state in ["passed", "failed", "skipped"] {
        let count = |stage: &Stage| {
            let has =
                |specs: &&BTreeMap<&str, &Spec>| specs.get(stage.peer.slug()).is_some_and(|spec| spec.state == state);
            results.values().filter(has).count().to_string()
        };
        println!("| {state} | {} |", stages.iter().map(count).collect::<Vec<_>>().join(" | "));
    }
    println!("\nSpecs that have not passed with both:");
    for (title, specs) in &results {
        let of = |stage: &Stage| specs.get(stage.peer.slug()).map_or("not run".to_owned(), |spec| spec.result());
        let ours: Vec<String> = stages.iter().map(of).collect();
        if ours.iter().any(|result| result != "passed") {
            println!("* {title}");
            stages.iter().zip(ours).for_each(|(stage, result)| println!("    {}: {result}", stage.peer.title()));
        }
    }
}
