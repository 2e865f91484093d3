//! The outcome for a claim or a volume: the calls about it, the objects, and the events of the sidecar.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{bail, ensure};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Stage;
use crate::scenario::send::{Request, send};
use crate::scenario::value::{holds, pick};

const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(60);
/// Represents an object that does not exist.
const ABSENT: &str = "absent";

/// One observation.
struct Observation {
    outcome: Value,
    /// The volumes that belong to the object.
    subjects: Vec<String>,
    calls: usize,
    events: BTreeSet<String>,
}

impl Stage<'_> {
    /// Observes `KIND/NAME`, with claims in this namespace, until it has the wanted state. Every call and event appears
    /// in exactly one outcome.
    pub(in crate::scenario) async fn outcome(
        &mut self,
        client: &Client,
        (namespace, target): (&str, &str),
        until: &Value,
        shows: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Value> {
        let mut wanted = wanted(until)?;
        // A number is the required number of calls.
        let mut count = 0;
        for wanted in &mut wanted {
            if let Some(calls) = wanted["calls"].as_u64() {
                wanted["calls"] = json!([]);
                count = calls;
            }
        }
        let deadline = Instant::now() + LIMIT;
        loop {
            let look = self.look(client, namespace, target).await?;
            if look.calls as u64 >= count && wanted.iter().any(|wanted| holds(&look.outcome, wanted)) {
                if shows("calls") {
                    self.driver.forget(&look.subjects, look.calls);
                }
                if shows("events") {
                    self.seen.entry(target.to_owned()).or_default().events.extend(look.events);
                }
                return Ok(look.outcome);
            }
            ensure!(Instant::now() < deadline, "not until {until}: {:#}", look.outcome);
            sleep(POLL).await;
        }
    }

    async fn look(&mut self, client: &Client, namespace: &str, target: &str) -> anyhow::Result<Observation> {
        let Some((kind, name)) = target.split_once('/') else { bail!("an outcome is one of KIND/NAME") };
        let is_claim = match kind {
            "PersistentVolumeClaim" => true,
            "PersistentVolume" => false,
            _ => bail!("an outcome is one of a claim or of a volume"),
        };
        // Read effects before their causes; otherwise an outcome could show an effect without its cause.
        let mut events = self.events(client, namespace, kind, name).await?;
        let (subjects, claim, volume) = if is_claim {
            let claim = get(client, &claim_path(namespace, name)).await?;
            let uid = self.remember(target, &claim);
            let subjects: Vec<_> = self.driver.subjects().into_iter().filter(|subject| is_of(subject, &uid)).collect();
            let mut volume = Value::Null;
            if let Some(subject) = subjects.last() {
                events.extend(self.events(client, namespace, "PersistentVolume", subject).await?);
                volume = get(client, &volume_path(subject)).await?;
            }
            (subjects, claim, volume)
        } else {
            let volume = get(client, &volume_path(name)).await?;
            self.remember(target, &volume);
            (vec![format!("id-of-{name}")], Value::Null, volume)
        };
        let mut calls: Vec<_> = self.driver.calls(&subjects).into_iter().map(|call| call.shown).collect();
        let count = calls.len();
        // The number of repetitions depends on time.
        calls.dedup();
        let shown = &self.seen[target].events;
        let events: Vec<_> = events.into_iter().filter(|event| !shown.contains(&event.to_string())).collect();
        let mut outcome = json!({"calls": calls, "events": events, "volume": shown_volume(&volume)});
        if is_claim {
            outcome["claim"] = shown_claim(&claim);
        }
        Ok(Observation {
            outcome: without_part_of_uid(outcome, &subjects, &self.seen[target].uid)?,
            events: events.iter().map(Value::to_string).collect(),
            subjects,
            calls: count,
        })
    }

    /// Returns the uid and remembers it, because it can no longer be read after the object's deletion.
    fn remember(&mut self, target: &str, object: &Value) -> String {
        let seen = self.seen.entry(target.to_owned()).or_default();
        if let Some(uid) = object["metadata"]["uid"].as_str()
            && seen.uid != uid
        {
            *seen = super::Seen { uid: uid.to_owned(), ..Default::default() };
        }
        seen.uid.clone()
    }

    /// The sidecar's events about an object, in their order.
    async fn events(&self, client: &Client, namespace: &str, kind: &str, name: &str) -> anyhow::Result<Vec<Value>> {
        let about = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let query = BTreeMap::from([("fieldSelector".to_owned(), about)]);
        let namespace = if kind == "PersistentVolume" { "default" } else { namespace };
        let list = read(client, &format!("/api/v1/namespaces/{namespace}/events"), query).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        // Of the cluster's controllers, only this one emits events about claims and volumes.
        let mut events: Vec<_> =
            items.iter().filter(|event| event["source"]["component"] != "persistentvolume-controller").collect();
        // Their names end with the time in nanoseconds.
        events.sort_by_key(|event| event["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        let mut shown: Vec<_> = events
            .into_iter()
            .map(|event| {
                let mut shown = pick(event, &["type", "reason", "message"]);
                let component = event["source"]["component"].as_str().unwrap_or_default();
                if !component.starts_with(&self.driver_name) {
                    shown["from"] = component.into();
                }
                if kind == "PersistentVolume" {
                    shown["about"] = "volume".into();
                }
                shown
            })
            .collect();
        shown.dedup();
        Ok(shown)
    }
}

/// Alternative conditions, of which one is sufficient. Most have a name.
fn wanted(until: &Value) -> anyhow::Result<Vec<Value>> {
    let provisioned = json!({"claim": {"phase": "Bound"}, "events": [{"reason": "ProvisioningSucceeded"}]});
    let failed = json!({"events": [{"reason": "ProvisioningFailed"}]});
    Ok(match until.as_str() {
        None if until.is_null() => vec![provisioned],
        None => vec![until.clone()],
        Some("provisioned") => vec![provisioned],
        Some("failed") => vec![failed],
        Some("decided") => vec![provisioned, failed],
        Some("deleted") => vec![json!({"claim": ABSENT, "volume": ABSENT})],
        Some("now") => vec![json!({})],
        Some(other) => bail!("no condition is called {other}"),
    })
}

fn shown_claim(claim: &Value) -> Value {
    if claim.is_null() {
        return ABSENT.into();
    }
    without_null(json!({
        "annotations": claim["metadata"]["annotations"],
        "finalizers": claim["metadata"]["finalizers"],
        "isBeingDeleted": claim["metadata"]["deletionTimestamp"].is_string().then_some(true),
        "volumeName": claim["spec"]["volumeName"],
        "phase": claim["status"]["phase"],
    }))
}

fn shown_volume(volume: &Value) -> Value {
    if volume.is_null() {
        return ABSENT.into();
    }
    let mut spec = volume["spec"].clone();
    if let Some(claim) = spec["claimRef"].as_object_mut() {
        claim.remove("resourceVersion");
    }
    without_null(json!({
        "name": volume["metadata"]["name"],
        "annotations": volume["metadata"]["annotations"],
        "labels": volume["metadata"]["labels"],
        "finalizers": volume["metadata"]["finalizers"],
        "isBeingDeleted": volume["metadata"]["deletionTimestamp"].is_string().then_some(true),
        "spec": spec,
        "phase": volume["status"]["phase"],
    }))
}

fn without_null(mut shown: Value) -> Value {
    if let Some(fields) = shown.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    shown
}

/// True if a volume's name ends with a claim's uid, or with the first characters of the uid without dashes.
fn is_of(subject: &str, uid: &str) -> bool {
    let end = subject.rsplit('-').next().unwrap_or_default();
    !uid.is_empty() && (subject.ends_with(uid) || (end.len() >= 5 && uid.replace('-', "").starts_with(end)))
}

/// Replaces parts of a uid, which are as random as the uid itself. The complete uid is replaced later.
fn without_part_of_uid(outcome: Value, subjects: &[String], uid: &str) -> anyhow::Result<Value> {
    let parts = subjects.iter().filter(|subject| !uid.is_empty() && !subject.ends_with(uid) && is_of(subject, uid));
    let mut text = outcome.to_string();
    for part in parts.filter_map(|subject| subject.rsplit('-').next()) {
        text = text.replace(part, &format!("<{} characters of the uid>", part.len()));
    }
    Ok(serde_json::from_str(&text)?)
}

fn claim_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
}

fn volume_path(name: &str) -> String {
    format!("/api/v1/persistentvolumes/{name}")
}

/// Returns null if the object does not exist.
async fn get(client: &Client, path: &str) -> anyhow::Result<Value> {
    read(client, path, BTreeMap::new()).await
}

async fn read(client: &Client, path: &str, query: BTreeMap<String, String>) -> anyhow::Result<Value> {
    let (path, headers) = (path.to_owned(), BTreeMap::new());
    let answer = send(client, &Request { method: Method::GET, path, query, headers, body: None }).await?;
    Ok(if answer.status == 200 { answer.body } else { Value::Null })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_volumes_by_the_uid_of_their_claim() {
        let uid = "0b4e6d2a-6a4c-4b3e-9f70-1f2e3d4c5b6a";
        assert!(is_of(&format!("pvc-{uid}"), uid));
        assert!(is_of("pvc-0b4e6d2a6a", uid));
        assert!(is_of("0b4e6d2a6a4c4b3e9f701f2e3d4c5b6a", uid));
        assert!(!is_of("pvc-0b4e", uid), "too short to identify the claim");
        assert!(!is_of("pvc-0b4e6d2b", uid) && !is_of("pvc-", uid) && !is_of("pvc-0b4e6d2a", ""));
        let outcome = json!({"name": "pvc-0b4e6d2a6a"});
        let shown = without_part_of_uid(outcome, &["pvc-0b4e6d2a6a".to_owned()], uid).unwrap();
        assert_eq!(shown, json!({"name": "pvc-<10 characters of the uid>"}));
    }
}
