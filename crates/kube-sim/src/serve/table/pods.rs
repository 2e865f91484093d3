//! Pods: `printPod`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::since;
use super::columns::{Columns, age, text_or};
use crate::object::{at, deletion_timestamp, name, text_at};

pub(super) const PODS: Columns = Columns {
    names: &["Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"],
    cells: pod,
};

/// Returns the row conditions of a pod: `Completed` for a pod that has ended.
pub(super) fn conditions(object: &Value) -> Option<Value> {
    let message = match text_at(object, &["status", "phase"]) {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    let reason = text_at(object, &["status", "phase"]);
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// The summary of the containers' states.
#[derive(Default)]
struct Summary {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<String>,
}

impl Summary {
    fn count_restarts(&mut self, container: &Value) {
        self.restarts += at(container, &["restartCount"]).and_then(Value::as_i64).unwrap_or(0);
        let ended = at(container, &["lastState", "terminated", "finishedAt"]).and_then(Value::as_str);
        self.last_restart = self.last_restart.take().max(ended.map(str::to_owned));
    }

    /// Returns whether the pod is still initializing.
    fn add_init_containers(&mut self, pod: &Value) -> bool {
        let total = items(pod, &["spec", "initContainers"]).count();
        for (index, container) in items(pod, &["status", "initContainerStatuses"]).enumerate() {
            self.count_restarts(container);
            let terminated = at(container, &["state", "terminated"]).filter(|state| state.is_object());
            let waiting = text_at(container, &["state", "waiting", "reason"]);
            let is_sidecar = is_restartable(pod, text_at(container, &["name"]));
            match terminated {
                Some(state) if exit_code(state) == 0 => continue,
                _ if is_sidecar && flag(container, "started") => {
                    self.ready += usize::from(flag(container, "ready"));
                    continue;
                }
                Some(state) => self.reason = format!("Init:{}", end(state)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => self.reason = format!("Init:{waiting}"),
                None => self.reason = format!("Init:{index}/{total}"),
            }
            return true;
        }
        false
    }

    fn add_containers(&mut self, pod: &Value) {
        // Only the restarts of sidecars count among the init containers.
        let sidecars = Self::default();
        let before = std::mem::replace(self, sidecars);
        (self.reason, self.ready) = (before.reason, before.ready);
        for container in items(pod, &["status", "initContainerStatuses"]) {
            if is_restartable(pod, text_at(container, &["name"])) {
                self.count_restarts(container);
            }
        }
        let (mut has_running, mut error) = (false, None);
        let statuses: Vec<&Value> = items(pod, &["status", "containerStatuses"]).collect();
        for container in statuses.into_iter().rev() {
            self.count_restarts(container);
            let waiting = text_at(container, &["state", "waiting", "reason"]);
            let terminated = at(container, &["state", "terminated"]).filter(|state| state.is_object());
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(state) = terminated {
                self.reason = end(state);
                if exit_code(state) != 0 {
                    error = Some(self.reason.clone());
                }
            } else if flag(container, "ready") && at(container, &["state", "running"]).is_some() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            let is_ready = condition(pod, "Ready") == Some("True");
            match error {
                _ if has_running && is_ready => self.reason = "Running".to_owned(),
                Some(error) => self.reason = error,
                None if has_running => self.reason = "NotReady".to_owned(),
                None => {}
            }
        }
    }
}

fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let phase = text_at(object, &["status", "phase"]);
    let said = text_at(object, &["status", "reason"]);
    let mut summary = Summary { reason: (if said.is_empty() { phase } else { said }).to_owned(), ..Summary::default() };
    let scheduled = items(object, &["status", "conditions"]).filter(|one| text_at(one, &["type"]) == "PodScheduled");
    if scheduled.into_iter().any(|one| text_at(one, &["reason"]) == "SchedulingGated") {
        summary.reason = "SchedulingGated".to_owned();
    }
    let is_initializing = summary.add_init_containers(object);
    if !is_initializing || condition(object, "Initialized") == Some("True") {
        summary.add_containers(object);
    }
    if deletion_timestamp(object).is_some() {
        match (said, phase) {
            ("NodeLost", _) => summary.reason = "Unknown".to_owned(),
            (_, "Succeeded" | "Failed") => {}
            _ => summary.reason = "Terminating".to_owned(),
        }
    }
    let sidecars = items(object, &["spec", "initContainers"])
        .filter(|container| text_at(container, &["restartPolicy"]) == "Always");
    let total = items(object, &["spec", "containers"]).count() + sidecars.count();
    let restarts = match (summary.restarts, summary.last_restart) {
        (count, Some(time)) if count != 0 => format!("{count} ({} ago)", since(Some(&time.into()), now)),
        (count, _) => count.to_string(),
    };
    let ip = items(object, &["status", "podIPs"]).next().map_or("", |ip| text_at(ip, &["ip"]));
    vec![
        name(object).into(),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        restarts.into(),
        age(object, now),
        if ip.is_empty() { "<none>".into() } else { ip.into() },
        text_or(object, &["spec", "nodeName"], "<none>"),
        text_or(object, &["status", "nominatedNodeName"], "<none>"),
        readiness_gates(object).into(),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates: Vec<&Value> = items(pod, &["spec", "readinessGates"]).collect();
    let is_true = |gate: &&&Value| condition(pod, text_at(gate, &["conditionType"])) == Some("True");
    match gates.len() {
        0 => "<none>".to_owned(),
        total => format!("{}/{total}", gates.iter().filter(is_true).count()),
    }
}

/// Returns the reason for a container's end.
fn end(state: &Value) -> String {
    let signal = at(state, &["signal"]).and_then(Value::as_i64).unwrap_or(0);
    match text_at(state, &["reason"]) {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", exit_code(state)),
        reason => reason.to_owned(),
    }
}

fn exit_code(state: &Value) -> i64 {
    at(state, &["exitCode"]).and_then(Value::as_i64).unwrap_or(0)
}

fn is_restartable(pod: &Value, name: &str) -> bool {
    let mut containers = items(pod, &["spec", "initContainers"]);
    containers.any(|one| text_at(one, &["name"]) == name && text_at(one, &["restartPolicy"]) == "Always")
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a str> {
    let found = items(pod, &["status", "conditions"]).find(|one| text_at(one, &["type"]) == kind);
    found.map(|condition| text_at(condition, &["status"]))
}

fn flag(object: &Value, field: &str) -> bool {
    at(object, &[field]).and_then(Value::as_bool).unwrap_or(false)
}

fn items<'a>(object: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> {
    at(object, path).and_then(Value::as_array).into_iter().flatten()
}
