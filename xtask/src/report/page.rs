//! The generated parts of the performance page and of `README.md`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use testbed::figures::{Figures, Summary, number};

use super::{Report, SCENARIOS, chart, folder};
use crate::build::workspace_root;

/// The rows of README.md's table: a label, the scenario and its quantity, and the scenario's rows for kube-provisioner,
/// for its Go peer without limits, and for the Go peer with its defaults.
const HIGHLIGHTS: [[&str; 6]; 8] = [
    ["3000 waiting claims, volumes per second", "waiting-3000", "volumes/s", OURS, GO_TUNED, ""],
    ["peak memory for them", "waiting-3000", "peak memory, MB", OURS, GO_TUNED, ""],
    ["100 claims at once, all bound", "burst-100", "all bound, s", OURS, GO_TUNED, "Go library, defaults"],
    [
        "peak memory with 100 000 claims and volumes of another provisioner",
        "foreign",
        "peak memory, MB",
        "kube-provisioner, 100000 pairs",
        "Go library, tuned, 100000 pairs",
        "",
    ],
    ["directories on ext4 with fsync, volumes per second", "directories-ext4", "volumes/s", "hostPath", GO_FSYNC, ""],
    ["CSI: 1000 claims at once, all bound", "csi-burst", "all bound, s", CSI, EXTERNAL_TUNED, EXTERNAL_DEFAULTS],
    [
        "CSI: peak memory with 50 000 claims and volumes of another driver",
        "csi-foreign",
        "peak memory, MB",
        "csi-provisioner, 50000 pairs",
        "",
        "external-provisioner v6.4.0, 50000 pairs",
    ],
    ["CSI: CreateVolume after SIGTERM of the active replica", "csi-handover", "SIGTERM, s", CSI, "", EXTERNAL],
];
const OURS: &str = "kube-provisioner";
const GO_TUNED: &str = "Go library, tuned";
const GO_FSYNC: &str = "Go library, tuned, fsync";
const CSI: &str = "csi-provisioner";
const EXTERNAL: &str = "external-provisioner v6.4.0";
const EXTERNAL_TUNED: &str = "external-provisioner v6.4.0, tuned";
const EXTERNAL_DEFAULTS: &str = "external-provisioner v6.4.0, defaults";

/// Writes all generated files.
pub(super) fn write(report: &Report) -> anyhow::Result<()> {
    let charts = folder().join("figures");
    std::fs::create_dir_all(&charts).with_context(|| format!("cannot create {}", charts.display()))?;
    for (path, content) in files(report)? {
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The expected contents of the files with figures.
fn files(report: &Report) -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let (mut files, mut parts) = (BTreeMap::new(), BTreeMap::new());
    parts.insert("machine", machine(report));
    parts.insert("highlights", highlights(report));
    for scenario in &SCENARIOS {
        let command = if scenario.command.starts_with("sim") { "" } else { "bench " };
        let command = format!("`cargo xtask {command}{}`", scenario.command);
        let part = match report.measured(scenario) {
            Some(measured) => {
                let file = format!("figures/{}.svg", scenario.name);
                files.insert(folder().join(&file), chart::svg(&measured.figures, scenario.charts));
                let (minutes, charts) = (number(measured.minutes), scenario.charts.join(", "));
                format!("{command}, {minutes} min\n\n![{charts}]({file})\n\n{}", measured.figures.table())
            }
            None => format!("{command} measures it.\n"),
        };
        parts.insert(scenario.name, part);
    }
    for path in [folder().join("performance.md"), workspace_root().join("README.md")] {
        let page = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.insert(path, fill(&page, &parts)?);
    }
    Ok(files)
}

/// Replaces the text between each `<!-- figures NAME -->` and its `<!-- end -->`.
fn fill(page: &str, parts: &BTreeMap<&str, String>) -> anyhow::Result<String> {
    let mut pieces = page.split("<!-- figures ");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(" -->").context("a mark without an end")?;
        let (_, after) = rest.split_once("<!-- end -->").with_context(|| format!("no end of {name}"))?;
        let part = parts.get(name).with_context(|| format!("there is no scenario {name}"))?;
        filled.push_str(&format!("<!-- figures {name} -->\n{part}<!-- end -->{after}"));
    }
    Ok(filled)
}

fn machine(report: &Report) -> String {
    let machine = &report.machine;
    let minutes: f64 = report.scenarios.iter().map(|measured| measured.minutes).sum();
    format!(
        "{}, commit {}, {} processors, {} GB, Linux {}, Rust {}, Kubernetes {}, etcd {} without fsync; {minutes:.0} minutes.\n",
        machine.date,
        machine.commit,
        machine.processors,
        machine.memory_gb,
        machine.kernel,
        machine.rust,
        machine.kubernetes,
        machine.etcd,
    )
}

fn highlights(report: &Report) -> String {
    let mut table = "| | kube-provisioner | Go, tuned | Go, defaults |\n|---|---|---|---|\n".to_owned();
    for [text, scenario, quantity, rows @ ..] in HIGHLIGHTS {
        if figures(report, scenario).is_none() {
            continue;
        }
        let unit = quantity.rsplit_once(", ").map_or(String::new(), |(_, unit)| format!(" {unit}"));
        let cell = |row: &str| match highlight(report, scenario, quantity, row) {
            Some(summary) => format!("{}{unit}", number(summary.median)),
            None => String::new(),
        };
        table.push_str(&format!("| {text} | {} |\n", rows.map(cell).join(" | ")));
    }
    table
}

fn highlight(report: &Report, scenario: &str, quantity: &str, row: &str) -> Option<Summary> {
    figures(report, scenario)?.summary(row, quantity)
}

fn figures<'a>(report: &'a Report, scenario: &str) -> Option<&'a Figures> {
    let scenario = SCENARIOS.iter().find(|known| known.name == scenario)?;
    report.measured(scenario).map(|measured| &measured.figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_and_readme_match_the_report() {
        let report = Report::read().unwrap();
        for (path, expected) in files(&report).unwrap() {
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(written == expected, "{}: run `cargo xtask bench report --render`", path.display());
        }
        for [_, scenario, quantity, rows @ ..] in HIGHLIGHTS {
            for row in rows.into_iter().filter(|row| figures(&report, scenario).is_some() && !row.is_empty()) {
                assert!(highlight(&report, scenario, quantity, row).is_some(), "{scenario}: {row}, {quantity}");
            }
        }
    }

    #[test]
    fn only_marked_parts_are_replaced() {
        let parts = BTreeMap::from([("machine", "new\n".to_owned())]);
        let page = "a\n<!-- figures machine -->\nold\n<!-- end -->\nb\n";
        assert_eq!(fill(page, &parts).unwrap(), "a\n<!-- figures machine -->\nnew\n<!-- end -->\nb\n");
        assert!(fill("<!-- figures nothing -->\n<!-- end -->", &parts).is_err());
    }
}
