//! `cargo xtask manifests` and `charts`

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;
use testbed::guard::Guard;
use testbed::helm;
use testbed::manifests::{PROVISIONERS, Provisioner, compare, project, render, rules, write};
use testbed::progress::{self, SharedProgress};

use crate::build;

/// Writes what is generated in `deploy/`.
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

/// Lints and renders the charts, and compares what they render with `deploy/` and with the programs' rights.
pub(crate) async fn charts(guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let helm = helm::helm(guard, &progress).await?;
    for provisioner in &PROVISIONERS {
        let program = program(provisioner, guard, &progress).await?;
        let chart = provisioner.chart();
        let chart = chart.to_str().context("no UTF-8")?;
        compare(&provisioner.chart_files(&|_| Ok(program.clone()))?)?;
        for variant in provisioner.variants {
            compare(&render(&helm, provisioner, variant)?)?;
            run_tool(&helm, &[&["lint", "--strict", chart], set(variant.values).as_slice()].concat())?;
        }
        check_refusals(&helm, chart)?;
        if provisioner.has_shards() {
            check_shards(&helm, chart, &program, provisioner.mode)?;
        }
        progress.line(&format!("{}: as helm renders it", provisioner.name));
    }
    Ok(ExitCode::SUCCESS)
}

async fn program(provisioner: &Provisioner, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    build::program(build::Profile::Dev, provisioner.package, &[], guard, progress).await
}

/// The values are checked by the schema.
fn check_refusals(helm: &Path, chart: &str) -> anyhow::Result<()> {
    for wrong in
        ["unknown=1", "image.unknown=1", "options.NO_OPTION=1", "provisionerName=Not A Name", "coordination=none"]
    {
        let refused = run_tool(helm, &["template", "x", chart, "--set", wrong]);
        ensure!(refused.is_err(), "{chart} takes {wrong}");
    }
    Ok(())
}

/// The names of journals are the chart's own work.
fn check_shards(helm: &Path, chart: &str, program: &Path, mode: &[&str]) -> anyhow::Result<()> {
    let values = ["shards=3", "formerShards=[2]", r#"provisionerName="a.example/b""#];
    let text = run_tool(helm, &[&["template", "x", chart], set(&values).as_slice()].concat())?;
    let objects: Vec<Value> = text.split("\n---\n").map(parse).collect::<anyhow::Result<_>>()?;
    let expected =
        rules(program, mode, "a.example/b", &["--coordination", "lease", "--shards", "3", "--former-shards", "2"])?;
    for (kind, expected) in ["ClusterRole", "Role"].into_iter().zip(expected) {
        let role = objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))?;
        ensure!(role["rules"] == expected, "{kind} of three shards: {}\nrbac prints {expected}", role["rules"]);
    }
    Ok(())
}

fn parse(document: &str) -> anyhow::Result<Value> {
    Ok(testbed::manifests::parse(document)?.into_iter().next().unwrap_or_default())
}

fn set<'a>(values: &[&'a str]) -> Vec<&'a str> {
    values.iter().flat_map(|value| ["--set-json", value]).collect()
}

pub(crate) fn run_tool(program: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).current_dir(project()).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let (said, complained) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr).into_owned());
    ensure!(output.status.success(), "{} {}\n{said}{complained}", program.display(), arguments.join(" "));
    Ok(said)
}
