//! `cargo xtask rules`: what `deploy/monitoring` has, on a Prometheus that reads provisioners at work.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e::cluster::eventually;
use e2e::guard::Guard;
use e2e::manifests::{parse, project};
use e2e::progress::{self, SharedProgress};
use e2e::prometheus::{self, Prometheus};

use crate::manifests::run_tool;

mod dashboard;
mod site;

use dashboard::Dashboard;
use site::{BUCKETS, Site, VOLUMES};

const RULES: &str = "deploy/monitoring/rules.yaml";
const TESTS: &str = "deploy/monitoring/rules_test.yaml";
const DASHBOARD: &str = "deploy/monitoring/dashboard.json";
const LIMIT: Duration = Duration::from_secs(60);

/// Lines of panels that are missing while all is well, and why.
const EMPTY_WHEN_WELL: [(&str, &str, &str); 2] = [
    ("Volumes made and deleted", "making failed", "a counter begins with the first failure"),
    ("Volumes made and deleted", "deleting failed", "a counter begins with the first failure"),
];

/// Panels that are empty where only the provisioner of this namespace is chosen, and why.
const EMPTY_ALONE: [(&str, &str, &str); 4] = [
    (VOLUMES, "Buckets in use", "it makes no buckets"),
    (BUCKETS, "Oldest waiting claim", "the controller of buckets does not measure it"),
    (BUCKETS, "Volumes made and deleted", "it makes no volumes"),
    (BUCKETS, "Duration of making a volume", "it makes no volumes"),
];

/// Checks the rules and their unit tests, then rules and dashboard while all is well and while nothing is.
pub(crate) async fn run(stay: bool, guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let promtool = prometheus::promtool(&progress)?;
    for arguments in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        progress.output(run_tool(&promtool, &arguments)?.trim_end());
    }
    let dashboard = Dashboard::read(&project().join(DASHBOARD))?;
    check_names(&dashboard)?;
    let mut site = Site::start(guard, &progress).await?;
    let prometheus = Prometheus::start(site.state(), &site.targets(), &project().join(RULES), &progress).await?;
    let work = look(&dashboard, &prometheus, &mut site, stay, &progress);
    work.await.with_context(|| site.logs())?;
    site.stop().await?;
    Ok(ExitCode::SUCCESS)
}

async fn look(
    dashboard: &Dashboard,
    prometheus: &Prometheus,
    site: &mut Site,
    stay: bool,
    progress: &SharedProgress,
) -> anyhow::Result<()> {
    let missing = work_until_shown(dashboard, prometheus, site, &EMPTY_WHEN_WELL);
    let missing = progress::during(progress, "all is well", missing).await?;
    ensure!(missing.is_empty(), "while all is well, the dashboard does not show {}", missing.join(", "));
    let quiet = eventually(LIMIT, async || Ok(alerts(prometheus, "ALERTS").await?.is_empty().then_some(())));
    if quiet.await?.is_none() {
        let alerts = alerts(prometheus, "ALERTS").await?;
        anyhow::bail!("while all is well, there are the alerts {}", alerts.join(", "));
    }
    progress.output("while all is well: the dashboard shows all that it should, and no alert is pending");

    site.break_down()?;
    let missing = work_until_shown(dashboard, prometheus, site, &[]);
    let missing = progress::during(progress, "disk and Google are away", missing).await?;
    ensure!(missing.is_empty(), "the dashboard does not show {}", missing.join(", "));
    check_each_namespace(dashboard, prometheus).await?;
    for name in recorded()? {
        ensure!(!prometheus.query(&name).await?.is_empty(), "the rule {name} records nothing");
    }
    site.mend()?;
    progress::during(progress, "disk and Google are back", site.settled()).await?;
    let fired = alerts(prometheus, "max_over_time(ALERTS{alertstate=\"firing\"}[1h])").await?;
    ensure!(fired.is_empty(), "alerts fired in a minute: {}", fired.join(", "));
    let (panels, queries) = (dashboard.panels.len(), dashboard.queries().count());
    progress.output(&format!("with failures: each of {queries} queries of {panels} panels has data, no alert fired"));
    if stay {
        progress.output(&format!("Prometheus is at {} until Ctrl-C", prometheus.url));
        loop {
            site.round().await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

/// Lets claims come and go until each line of each panel is there, and returns those that are not; some may be missing.
async fn work_until_shown(
    dashboard: &Dashboard,
    prometheus: &Prometheus,
    site: &mut Site,
    may_be_missing: &[(&str, &str, &str)],
) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    eventually(LIMIT, async || {
        site.round().await?;
        let all = dashboard.variables(prometheus, None).await?;
        missing.clear();
        for (panel, query) in dashboard.queries() {
            let may_be_missing = may_be_missing.iter().any(|(of, line, _)| panel.title == *of && query.legend == *line);
            if !panel.shows(query, &all, prometheus).await? && !may_be_missing {
                missing.push(format!("{:?} of {:?}", query.legend, panel.title));
            }
        }
        Ok(missing.is_empty().then_some(()))
    })
    .await?;
    Ok(missing)
}

/// A person chooses one namespace: its job alone can be chosen then, and only the named panels are empty.
async fn check_each_namespace(dashboard: &Dashboard, prometheus: &Prometheus) -> anyhow::Result<()> {
    for namespace in [VOLUMES, BUCKETS] {
        let chosen = dashboard.variables(prometheus, Some(namespace)).await?;
        let mut empty = BTreeSet::new();
        for panel in &dashboard.panels {
            if !panel.shows_something(&chosen, prometheus).await? {
                empty.insert(panel.title.as_str());
            }
        }
        let expected = EMPTY_ALONE.iter().filter(|(of, ..)| *of == namespace).map(|(_, panel, _)| *panel).collect();
        ensure!(empty == expected, "with the namespace {namespace} alone, {empty:?} are empty, not {expected:?}");
    }
    Ok(())
}

/// What may be empty has to exist.
fn check_names(dashboard: &Dashboard) -> anyhow::Result<()> {
    for (panel, line, _) in EMPTY_WHEN_WELL {
        let exists = dashboard.queries().any(|(of, query)| of.title == panel && query.legend == line);
        ensure!(exists, "the dashboard has no {line:?} of {panel:?}");
    }
    Ok(())
}

/// The names of the alerts that an expression names.
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
