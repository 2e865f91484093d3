//! `cargo xtask manifests` and `charts`

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use serde_json::Value;
use testbed::guard::Guard;
use testbed::helm;
use testbed::manifests::{PROVISIONERS, Provisioner, compare, project, render, rules, write};
use testbed::process::output;
use testbed::progress::{self, SharedProgress};

use crate::build;

/// Writes the generated files in `deploy/`.
pub(crate) async fn run(guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let helm = helm::helm(guard, &progress).await?;
    for provisioner in &PROVISIONERS {
        let program = program(provisioner, guard, &progress).await?;
        write(&provisioner.chart_files(&|_| Ok(program.clone()))?)?;
        for variant in provisioner.variants {
            write(&render(&helm, provisioner, variant)?)?;
        }
        progress.line(&format!("{}: {} variants", provisioner.name, provisioner.variants.len()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lints and renders the charts, and compares the result with `deploy/` and with the programs' RBAC permissions.
pub(crate) async fn charts(guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let helm = helm::helm(guard, &progress).await?;
    lint(&helm, "deploy/charts/common", &[])?;
    for provisioner in &PROVISIONERS {
        let program = program(provisioner, guard, &progress).await?;
        let chart = provisioner.chart();
        let chart = chart.to_str().context("no UTF-8")?;
        compare(&provisioner.chart_files(&|_| Ok(program.clone()))?)?;
        for variant in provisioner.variants {
            compare(&render(&helm, provisioner, variant)?)?;
            lint(&helm, chart, &[provisioner.required, variant.values].concat())?;
        }
        check_refusals(&helm, provisioner, &WRONG)?;
        if provisioner.has_shards() {
            check_rights(&helm, provisioner, &program, &SHARDS)?;
        }
        if provisioner.has_cosi() {
            check_refusals(&helm, provisioner, &WRONG_FOR_COSI)?;
            check_rights(&helm, provisioner, &program, &COSI)?;
        }
        progress.line(&format!("{}: as helm renders it", provisioner.name));
    }
    Ok(ExitCode::SUCCESS)
}

async fn program(provisioner: &Provisioner, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    build::program(build::Profile::Dev, provisioner.package, &[], guard, progress).await
}

/// Runs helm's linter, which must not report anything.
fn lint(helm: &Path, chart: &str, values: &[&str]) -> anyhow::Result<()> {
    let said = run_tool(helm, &[&["lint", "--strict", chart], set(values).as_slice()].concat())?;
    ensure!(!said.contains("[INFO]"), "{said}");
    Ok(())
}

/// Values that the schema or a template rejects.
const WRONG: [&str; 6] = [
    "unknown=1",
    "image.unknown=1",
    "options.PROVISION_TIMEOUT=1m",
    "extraEnv[0].name=COORDINATION,extraEnv[0].value=none",
    "provisionerName=Not A Name",
    "coordination=none",
];

/// Values for COSI that the schema or a template rejects.
const WRONG_FOR_COSI: [&str; 9] = [
    "cosi.mode=none",
    "cosi.mode=controller,cosi.driverName=No_Name",
    "cosi.driverName=s3.example.com",
    "cosi.mode=sidecar",
    "cosi.mode=controller,cosi.sidecarImage=sidecar:1",
    "cosi.mode=controller,shards=2",
    "cosi.mode=controller,previousShards={2}",
    "cosi.mode=controller,storageClass.parameters.region=eu-central-1",
    "extraEnv[0].name=COSI_CONTROLLER,extraEnv[0].value=true",
];

fn check_refusals(helm: &Path, provisioner: &Provisioner, values: &[&str]) -> anyhow::Result<()> {
    for wrong in values {
        let refused = template(helm, provisioner, &["--set", wrong]);
        ensure!(refused.is_err(), "{} takes {wrong}", provisioner.name);
    }
    Ok(())
}

fn template(helm: &Path, provisioner: &Provisioner, options: &[&str]) -> anyhow::Result<String> {
    let chart = provisioner.chart();
    let chart = chart.to_str().context("no UTF-8")?;
    run_tool(helm, &[&["template", "x", chart], provisioner.required_options().as_slice(), options].concat())
}

/// Values, and the `rbac` options that grant the same permissions.
type Rights<'a> = (&'a [&'a str], &'a [&'a str]);

const SHARDS: [Rights<'_>; 1] =
    [(&["shards=3", "previousShards=[2]"], &["--coordination", "lease", "--shards", "3", "--former-shards", "2"])];

const SIDECAR: &str = r#"cosi.sidecarImage="sidecar:1""#;
const COSI: [Rights<'_>; 3] = [
    (&[r#"cosi.mode="controller""#], &["--cosi-controller"]),
    (
        &[r#"cosi.mode="controller""#, r#"cosi.driverName="s3.example.com""#],
        &["--cosi-controller", "--cosi-driver-name", "s3.example.com"],
    ),
    (&[r#"cosi.mode="sidecar""#, SIDECAR], &["--cosi"]),
];

/// Checks the permissions. The chart itself adds the names of journals and Leases. Next to a sidecar, the account also
/// has the sidecar's permissions.
fn check_rights(helm: &Path, provisioner: &Provisioner, program: &Path, cases: &[Rights<'_>]) -> anyhow::Result<()> {
    for (values, options) in cases {
        let named = [values, &[r#"provisionerName="a.example/b""#][..]].concat();
        let text = template(helm, provisioner, &set(&named))?;
        let objects: Vec<Value> = text.split("\n---\n").map(parse).collect::<anyhow::Result<_>>()?;
        let expected = rules(program, provisioner.mode, "a.example/b", options)?;
        for (kind, expected) in ["ClusterRole", "Role"].into_iter().zip(expected) {
            let role = objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))?;
            let (found, expected) = (list(&role["rules"]), list(&expected));
            let is_right = if values.contains(&SIDECAR) { found.starts_with(expected) } else { found == expected };
            ensure!(is_right, "{kind} with {values:?}: {found:?}\nrbac prints {expected:?}");
        }
    }
    Ok(())
}

fn list(rules: &Value) -> &[Value] {
    rules.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn parse(document: &str) -> anyhow::Result<Value> {
    Ok(testbed::manifests::parse(document)?.into_iter().next().unwrap_or_default())
}

fn set<'a>(values: &[&'a str]) -> Vec<&'a str> {
    values.iter().flat_map(|value| ["--set-json", value]).collect()
}

pub(crate) fn run_tool(program: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    Ok(String::from_utf8(output(Command::new(program).args(arguments).current_dir(project()))?)?)
}
