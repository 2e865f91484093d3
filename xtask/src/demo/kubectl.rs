//! Output like kubectl's, created from the API server's answers to the same requests.

use anyhow::Context;
use k8s_openapi::api::core::v1::Event;
use kube::{Client, Resource};
use serde::Deserialize;
use serde_json::Value;

/// The API server's answer to `kubectl get`: columns and cells, which the server formats itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    column_definitions: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    /// Columns above 0 are shown only with `-o wide`.
    priority: i32,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<Value>,
    object: Option<Event>,
}

/// `kubectl get` of one object.
pub(super) async fn get<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
) -> anyhow::Result<Vec<String>> {
    let path = format!("{}/{name}?includeObject=None", K::url_path(&(), namespace));
    Ok(table(client, &path).await?.lines())
}

/// The events at the end of `kubectl describe` of one namespaced object.
pub(super) async fn events<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Events> {
    let events = Event::url_path(&(), Some(namespace));
    let selector = format!("involvedObject.kind={},involvedObject.name={name}", K::kind(&()));
    let path = format!("{events}?includeObject=Object&fieldSelector={selector}");
    Ok(Events(table(client, &path).await?))
}

/// The events about one object.
pub(super) struct Events(Table);

impl Events {
    /// Returns true if there is an event with this reason.
    pub(super) fn have(&self, reason: &str) -> bool {
        let mut events = self.0.rows.iter().filter_map(|row| row.object.as_ref());
        events.any(|event| event.reason.as_deref() == Some(reason))
    }

    /// Oldest first. kubectl itself begins with events without `lastTimestamp`, since they come from `events.k8s.io`.
    pub(super) fn lines(&self) -> Vec<String> {
        const TITLES: [[&str; 5]; 2] =
            [["Type", "Reason", "Age", "From", "Message"], ["----", "------", "----", "----", "-------"]];
        let mut rows: Vec<_> = self.0.rows.iter().collect();
        rows.sort_by_key(|row| row.object.as_ref().map(last_seen));
        let titles = TITLES.iter().map(|titles| titles.map(str::to_owned).to_vec());
        let events = rows.into_iter().map(|row| self.described(row));
        let cells = titles.chain(events).collect::<Vec<_>>();
        let lines = aligned(&cells, 2).into_iter().map(|line| format!("  {line}"));
        std::iter::once("Events:".to_owned()).chain(lines).collect()
    }

    fn described(&self, row: &Row) -> Vec<String> {
        let cell = |title: &str| self.0.cell(row, title).unwrap_or_default();
        let (first, last, count) = (cell("First Seen"), cell("Last Seen"), cell("Count"));
        let age = if count == "1" { first } else { format!("{last} (x{count} over {first})") };
        let event = row.object.as_ref();
        let source = event.and_then(|event| event.source.as_ref()?.component.clone());
        let from = source.or_else(|| event?.reporting_component.clone()).unwrap_or_default();
        vec![cell("Type"), cell("Reason"), age, from, cell("Message").trim().to_owned()]
    }
}

/// When it was last seen, in seconds, the precision of most events. Within one second, the API server's order decides.
fn last_seen(event: &Event) -> (Option<i64>, u64) {
    let legacy = event.last_timestamp.as_ref().map(|time| time.0);
    let series = event.series.as_ref().and_then(|series| Some(series.last_observed_time.as_ref()?.0));
    let time = legacy.or(series).or(event.event_time.as_ref().map(|time| time.0));
    let version = event.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    (time.map(|time| time.as_second()), version.unwrap_or_default())
}

impl Table {
    fn lines(&self) -> Vec<String> {
        let shown: Vec<_> = self.column_definitions.iter().filter(|column| column.priority == 0).collect();
        let titles = shown.iter().map(|column| column.name.to_uppercase()).collect();
        let rows = self.rows.iter().map(|row| {
            let cells = shown.iter().map(|column| self.cell(row, &column.name).unwrap_or_default());
            cells.collect()
        });
        let cells = std::iter::once(titles).chain(rows).collect::<Vec<_>>();
        aligned(&cells, 3)
    }

    fn cell(&self, row: &Row, title: &str) -> Option<String> {
        let place = self.column_definitions.iter().position(|column| column.name == title)?;
        Some(match row.cells.get(place)? {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }
}

async fn table(client: &Client, path: &str) -> anyhow::Result<Table> {
    const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = http::Request::get(path).header(http::header::ACCEPT, AS_TABLE).body(Vec::new())?;
    client.request(request).await.with_context(|| format!("cannot read {path} as a table"))
}

/// Pads cells to the width of their column.
fn aligned(rows: &[Vec<String>], gap: usize) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count() + gap);
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
