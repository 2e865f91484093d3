//! The dashboard as Grafana reads it, limited to its queries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use testbed::prometheus::{Prometheus, Sample};

/// The dashboard's queries to Prometheus.
#[derive(Deserialize)]
pub(super) struct Dashboard {
    templating: Templating,
    panels: Vec<Panel>,
}

/// One of its panels.
#[derive(Deserialize)]
pub(super) struct Panel {
    pub(super) title: String,
    /// A heading has no queries.
    #[serde(rename = "targets", default)]
    queries: Vec<Query>,
}

/// One expression, and the legend of its series.
#[derive(Deserialize)]
pub(super) struct Query {
    #[serde(rename = "expr")]
    expression: String,
    #[serde(rename = "legendFormat")]
    pub(super) legend: String,
}

/// The value of each variable in an expression.
pub(super) type Chosen = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    query: Value,
}

impl Dashboard {
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a dashboard", file.display()))
    }

    /// The panels, without the headings between them.
    pub(super) fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.panels.iter().filter(|panel| !panel.queries.is_empty())
    }

    pub(super) fn queries(&self) -> impl Iterator<Item = (&Panel, &Query)> {
        self.panels.iter().flat_map(|panel| panel.queries.iter().map(move |query| (panel, query)))
    }

    /// Resolves the variables like Grafana, and selects all values, or one namespace and all its values.
    pub(super) async fn variables(&self, prometheus: &Prometheus, namespace: Option<&str>) -> anyhow::Result<Chosen> {
        let mut chosen = Chosen::new();
        for Variable { name, kind, query } in &self.templating.list {
            if kind == "datasource" {
                ensure!(query == "prometheus", "the variable {name} has no Prometheus data source");
                continue;
            }
            let query = query["query"].as_str().unwrap_or_default();
            let parts = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let Some((selector, label)) = parts.and_then(|parts| parts.rsplit_once(", ")) else {
                bail!("the variable {name} asks for {query:?}, which is not supported here");
            };
            let found = prometheus.label_values(&fill_in(selector, &chosen), label).await?;
            let value = match (name.as_str(), namespace) {
                ("namespace", Some(namespace)) => {
                    ensure!(found.iter().any(|value| value == namespace), "{query} finds {found:?}, not {namespace}");
                    namespace.to_owned()
                }
                ("job", Some(namespace)) => {
                    ensure!(matches!(&found[..], [job] if job.starts_with(namespace)), "{query} finds {found:?}");
                    found[0].clone()
                }
                _ => format!("({})", found.join("|")),
            };
            chosen.insert(name.clone(), value);
        }
        Ok(chosen)
    }
}

impl Panel {
    /// The highest value of a query, if it has data. Each series must have a name of its own.
    pub(super) async fn highest(
        &self,
        query: &Query,
        chosen: &Chosen,
        prometheus: &Prometheus,
    ) -> anyhow::Result<Option<f64>> {
        let samples = prometheus.query(&fill_in(&query.expression, chosen)).await?;
        let names: BTreeSet<_> = samples.iter().map(|sample| named(&query.legend, sample)).collect();
        ensure!(names.len() == samples.len(), "in {:?}, series of one query have the same name: {names:?}", self.title);
        Ok(samples.iter().map(|sample| sample.value()).reduce(f64::max))
    }

    /// Returns true if any query has data.
    pub(super) async fn shows_something(&self, chosen: &Chosen, prometheus: &Prometheus) -> anyhow::Result<bool> {
        for query in &self.queries {
            if self.highest(query, chosen, prometheus).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The expression with the values of its variables.
fn fill_in(expression: &str, chosen: &Chosen) -> String {
    let fill = |text: String, (name, value): (&String, &String)| text.replace(&format!("${name}"), value);
    chosen.iter().fold(expression.to_owned(), fill)
}

/// The name of a series.
fn named(legend: &str, sample: &Sample) -> String {
    let fill = |text: String, (name, value): (&String, &String)| text.replace(&format!("{{{{{name}}}}}"), value);
    sample.labels.iter().fold(legend.to_owned(), fill)
}
