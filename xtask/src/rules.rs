//! `cargo xtask rules`: checks `deploy/monitoring` with a Prometheus that scrapes running provisioners.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{bail, ensure};
use testbed::cluster::eventually;
use testbed::guard::Guard;
use testbed::manifests::{parse, project};
use testbed::progress::{self, SharedProgress};
use testbed::prometheus::{self, Prometheus};

use crate::manifests::run_tool;

mod dashboard;
mod site;

use dashboard::Dashboard;
use site::{BUCKETS, Site, VOLUMES};

const RULES: &str = "deploy/monitoring/rules.yaml";
const TESTS: &str = "deploy/monitoring/rules_test.yaml";
const DASHBOARD: &str = "deploy/monitoring/dashboard.json";
const LIMIT: Duration = Duration::from_secs(60);

/// The panel whose series rise when failures begin.
const MADE_AND_DELETED: &str = "Created and deleted in 5 minutes";
const FAILED: [&str; 2] = ["creation failed", "deletion failed"];

/// Panels that are empty if no volume provisioner is selected.
const ABOUT_VOLUMES: [&str; 5] = [
    "Claims without a volume",
    MADE_AND_DELETED,
    "From the first attempt to the volume",
    "Attempts by outcome, in 5 minutes",
    "Duration of one attempt, 99 %",
];

/// Panels that are empty if no bucket provisioner is selected.
const ABOUT_BUCKETS: [&str; 4] = [
    "Claims without a bucket",
    "Claims with a bucket",
    "Bucket attempts by outcome, in 5 minutes",
    "Duration of one bucket attempt, 99 %",
];

/// Checks the rules and their unit tests, then rules and dashboard with and without failures.
pub(crate) async fn run(stay: bool, guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let promtool = prometheus::promtool(&progress)?;
    for arguments in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        progress.output(run_tool(&promtool, &arguments)?.trim_end());
    }
    let dashboard = Dashboard::read(&project().join(DASHBOARD))?;
    for line in FAILED {
        let exists = dashboard.queries().any(|(panel, query)| panel.title == MADE_AND_DELETED && query.legend == line);
        ensure!(exists, "{DASHBOARD} has no {line:?} of {MADE_AND_DELETED:?}");
    }
    let mut site = Site::start(guard, &progress).await?;
    let prometheus = Prometheus::start(site.state(), &site.targets(), &project().join(RULES), &progress).await?;
    look(&dashboard, &prometheus, &mut site, &progress).await?;
    if stay {
        progress.output(&format!("Prometheus is at {} until Ctrl-C", prometheus.url));
        loop {
            site.round().await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    site.stop().await?;
    Ok(ExitCode::SUCCESS)
}

async fn look(
    dashboard: &Dashboard,
    prometheus: &Prometheus,
    site: &mut Site,
    progress: &SharedProgress,
) -> anyhow::Result<()> {
    let missing = work_until_shown(dashboard, prometheus, site, false);
    let missing = progress::during(progress, "all is well", missing).await?;
    ensure!(missing.is_empty(), "without failures, the dashboard does not show {}", missing.join(", "));
    let quiet = eventually(LIMIT, async || Ok(alerts(prometheus, "ALERTS").await?.is_empty().then_some(())));
    if quiet.await?.is_none() {
        let alerts = alerts(prometheus, "ALERTS").await?;
        bail!("without failures, these alerts are pending: {}", alerts.join(", "));
    }
    progress.output("without failures: the dashboard shows all expected series, and no alert is pending");

    site.break_down()?;
    let missing = work_until_shown(dashboard, prometheus, site, true);
    let missing = progress::during(progress, "disk and Google are unavailable", missing).await?;
    ensure!(missing.is_empty(), "the dashboard does not show {}", missing.join(", "));
    check_each_namespace(dashboard, prometheus).await?;
    for name in recorded()? {
        ensure!(!prometheus.query(&name).await?.is_empty(), "the rule {name} records nothing");
    }
    site.mend()?;
    progress::during(progress, "disk and Google are available again", site.settled()).await?;
    let fired = alerts(prometheus, "max_over_time(ALERTS{alertstate=\"firing\"}[1h])").await?;
    ensure!(fired.is_empty(), "alerts fired in a minute: {}", fired.join(", "));
    let (panels, queries) = (dashboard.panels().count(), dashboard.queries().count());
    progress.output(&format!("with failures: each of {queries} queries of {panels} panels has data, no alert fired"));
    Ok(())
}

/// Creates and deletes claims until each series of each panel has data, and the failure series rise if there are
/// failures. Returns the missing series.
async fn work_until_shown(
    dashboard: &Dashboard,
    prometheus: &Prometheus,
    site: &mut Site,
    with_failures: bool,
) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    eventually(LIMIT, async || {
        site.round().await?;
        let all = dashboard.variables(prometheus, None).await?;
        let without = all.iter().filter(|(_, value)| value.as_str() == "()");
        missing = without.map(|(name, _)| format!("a value of the variable {name}")).collect();
        if !missing.is_empty() {
            return Ok(None);
        }
        for (panel, query) in dashboard.queries() {
            let rises = with_failures && panel.title == MADE_AND_DELETED && FAILED.contains(&query.legend.as_str());
            let highest = panel.highest(query, &all, prometheus).await?;
            if !highest.is_some_and(|value| !rises || value > 0.0) {
                missing.push(format!("{:?} of {:?}", query.legend, panel.title));
            }
        }
        Ok(missing.is_empty().then_some(()))
    })
    .await?;
    Ok(missing)
}

/// Checks each namespace on its own: only its job can be selected, and only the other provisioner's panels are empty.
async fn check_each_namespace(dashboard: &Dashboard, prometheus: &Prometheus) -> anyhow::Result<()> {
    for (namespace, others) in [(VOLUMES, &ABOUT_BUCKETS[..]), (BUCKETS, &ABOUT_VOLUMES)] {
        let chosen = dashboard.variables(prometheus, Some(namespace)).await?;
        let mut empty = BTreeSet::new();
        for panel in dashboard.panels() {
            if !panel.shows_something(&chosen, prometheus).await? {
                empty.insert(panel.title.as_str());
            }
        }
        let expected = others.iter().copied().collect();
        ensure!(empty == expected, "with only the namespace {namespace}, {empty:?} are empty, not {expected:?}");
    }
    Ok(())
}

/// The alerts in an expression.
async fn alerts(prometheus: &Prometheus, expression: &str) -> anyhow::Result<Vec<String>> {
    let alerts = prometheus.query(expression).await?;
    Ok(alerts.iter().map(|alert| alert.labels.get("alertname").cloned().unwrap_or_default()).collect())
}

/// The names of recording rules.
fn recorded() -> anyhow::Result<Vec<String>> {
    let rules = parse(&std::fs::read_to_string(project().join(RULES))?)?;
    let groups = rules.iter().flat_map(|file| file["groups"].as_array()).flatten();
    let rules = groups.flat_map(|group| group["rules"].as_array()).flatten();
    let names: Vec<_> = rules.filter_map(|rule| Some(rule["record"].as_str()?.to_owned())).collect();
    ensure!(!names.is_empty(), "{RULES} records nothing");
    Ok(names)
}
