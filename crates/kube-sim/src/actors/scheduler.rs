//! The parts of kube-scheduler that concern volumes: the plugin `volumebinding`, and the labels, taints and cordons of
//! nodes. It selects a random node among those that fit. Resources other than storage never run out.
//!
//! To exclude a node, a test cordons it. To simulate a node without capacity, a test creates a CSIDriver with
//! `storageCapacity`, and CSIStorageCapacity objects for the other nodes only, as a CSI driver does.

mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use self::volumes::{Plan, Volumes};
use super::api::{Api, ObservedObject};
use super::storage::{self, SELECTED_NODE};
use super::volume_index::VolumeIndex;
use super::worker::{Controller, WorkQueue};
use super::{node_selector, pods};
use crate::object;
use crate::status::Status;
use crate::store::{ChangeKind, key};
use crate::subscription::Change;

/// `bindTimeoutSeconds` of the plugin.
const BIND_TIMEOUT: Duration = Duration::from_secs(600);
/// Backoff of a pod that could not be bound. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The scheduler with its pending pods.
#[derive(Default)]
pub(super) struct Scheduler {
    /// Pods without a node, by namespace and name.
    pending: BTreeMap<String, Pending>,
    /// Pods without a node, by the claims that they use.
    by_claim: BTreeMap<String, BTreeSet<String>>,
    volumes: VolumeIndex,
}

#[derive(Default)]
struct Pending {
    claims: Vec<String>,
    /// The chosen node, while the pod's claims are being bound, and the deadline for that.
    assumed: Option<(String, Instant)>,
    failures: u32,
    /// End of the backoff.
    not_before: Option<Instant>,
}

impl Controller for Scheduler {
    type Key = String;

    const RESOURCES: &'static [(&'static str, &'static str)] = &[
        ("", "pods"),
        ("", "nodes"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("storage.k8s.io", "storageclasses"),
    ];

    fn observe(&mut self, change: &Change, _: &Api, queue: &mut WorkQueue<String>) {
        let object = change.object();
        let name = key(object.namespace(), object.name());
        match change.resource.plural.as_str() {
            "pods" => {
                let pod = (change.kind != ChangeKind::Deleted).then(|| object.parsed());
                match pod.filter(|pod| is_ours(pod)) {
                    Some(pod) => self.keep(name, &pod, queue),
                    None => self.forget(&name),
                }
            }
            "persistentvolumeclaims" => queue.extend(self.by_claim.get(&name).into_iter().flatten().cloned()),
            plural => {
                match change.kind {
                    _ if plural != "persistentvolumes" => {}
                    ChangeKind::Deleted => self.volumes.remove(&name),
                    _ => self.volumes.keep(&ObservedObject::from(Arc::clone(object))),
                }
                let unassumed = self.pending.iter().filter(|(_, pod)| pod.assumed.is_none());
                queue.extend(unassumed.map(|(name, _)| name.clone()));
            }
        }
    }

    async fn sync(&mut self, name: String, api: &mut Api, queue: &mut WorkQueue<String>) -> Result<(), Status> {
        let Some(pending) = self.pending.get(&name) else { return Ok(()) };
        let (namespace, pod) = name.split_once('/').unwrap_or_default();
        let Some(pod) = api.peek(storage::pods(), namespace, pod).map(ObservedObject::from) else { return Ok(()) };
        if !is_ours(&pod.value) {
            return Ok(());
        }
        let now = Instant::now();
        match &pending.assumed {
            Some((node, deadline)) => {
                let node = node.clone();
                match self.progress(&pod.value, &node, api) {
                    BindingProgress::Bound => self.bind(&name, &pod, &node, api).await,
                    BindingProgress::Waits if now < *deadline => Ok(()),
                    BindingProgress::Waits | BindingProgress::Failed => {
                        self.give_up(&name, queue);
                        Ok(())
                    }
                }
            }
            None if pending.not_before.is_some_and(|time| now < time) => Ok(()),
            None => match self.schedule(&name, &pod, api, queue).await {
                Err(refused) => {
                    self.give_up(&name, queue);
                    Err(refused)
                }
                done => done,
            },
        }
    }
}

/// State of the claims of a pod with a chosen node.
enum BindingProgress {
    Bound,
    Waits,
    Failed,
}

impl Scheduler {
    fn keep(&mut self, name: String, pod: &Value, queue: &mut WorkQueue<String>) {
        if !self.pending.contains_key(&name) {
            let claims: Vec<String> = pods::claims_of(pod).map(|claim| key(object::namespace(pod), &claim)).collect();
            for claim in &claims {
                self.by_claim.entry(claim.clone()).or_default().insert(name.clone());
            }
            self.pending.insert(name.clone(), Pending { claims, ..Pending::default() });
        }
        queue.add(name);
    }

    fn forget(&mut self, name: &str) {
        for claim in self.pending.remove(name).into_iter().flat_map(|pod| pod.claims) {
            if let Some(pods) = self.by_claim.get_mut(&claim) {
                pods.remove(name);
                if pods.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
    }

    /// Discards the chosen node and backs off.
    fn give_up(&mut self, name: &str, queue: &mut WorkQueue<String>) {
        if let Some(pod) = self.pending.get_mut(name) {
            let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(pod.failures)).min(MAX_PAUSE);
            let due = Instant::now() + pause;
            pod.failures += 1;
            pod.assumed = None;
            pod.not_before = Some(due);
            queue.add_at(due, name.to_owned());
        }
    }

    /// Chooses a node and starts to bind the claims for it. If no node fits, the next change adds the pod again.
    async fn schedule(
        &mut self,
        name: &str,
        pod: &ObservedObject,
        api: &mut Api,
        queue: &mut WorkQueue<String>,
    ) -> Result<(), Status> {
        let Some(volumes) = Volumes::of(&pod.value, api) else { return Ok(()) };
        let nodes = api.list(storage::nodes(), None).await;
        let nodes: Vec<Arc<Value>> = nodes.iter().map(|node| node.parsed()).collect();
        let fitting = nodes.iter().filter(|node| node_selector::pod_fits(&pod.value, node));
        let mut plans: Vec<(&Arc<Value>, Plan)> =
            fitting.filter_map(|node| Some((node, volumes.plan(node, &self.volumes, api)?))).collect();
        if plans.is_empty() {
            return Ok(());
        }
        let chosen = api.random.usize(..plans.len());
        let (node, plan) = plans.swap_remove(chosen);
        let node = object::name(node).to_owned();
        if plan.is_empty() {
            return self.bind(name, pod, &node, api).await;
        }
        let deadline = Instant::now() + BIND_TIMEOUT;
        if let Some(pod) = self.pending.get_mut(name) {
            pod.assumed = Some((node.clone(), deadline));
        }
        queue.add_at(deadline, name.to_owned());
        plan.execute(&node, api).await
    }

    /// `checkBindings`.
    fn progress(&self, pod: &Value, node: &str, api: &Api) -> BindingProgress {
        let Some(node) = api.peek(storage::nodes(), "", node).map(|node| node.parsed()) else {
            return BindingProgress::Failed;
        };
        let mut waits = false;
        for name in pods::claims_of(pod) {
            let claim = api.peek(storage::claims(), object::namespace(pod), &name).map(|claim| claim.parsed());
            let Some(claim) = claim.filter(|claim| object::deletion_timestamp(claim).is_none()) else {
                return BindingProgress::Failed;
            };
            if !storage::volume_name(&claim).is_empty() {
                let volume =
                    api.peek(storage::volumes(), "", storage::volume_name(&claim)).map(|volume| volume.parsed());
                match volume {
                    Some(volume) if !node_selector::volume_reaches(&volume, &node) => return BindingProgress::Failed,
                    Some(_) => waits |= !storage::is_fully_bound(&claim),
                    None => waits = true,
                }
                continue;
            }
            let selected = object::annotation(&claim, SELECTED_NODE);
            let reserved = || self.volumes.is_reserved_for(&claim);
            if selected != Some(object::name(&node)) && !reserved() {
                return BindingProgress::Failed;
            }
            waits = true;
        }
        if waits { BindingProgress::Waits } else { BindingProgress::Bound }
    }

    /// Does the work of `POST pods/binding`.
    async fn bind(&mut self, name: &str, pod: &ObservedObject, node: &str, api: &mut Api) -> Result<(), Status> {
        let now = api.cluster().clock().seconds();
        let condition =
            json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now, "lastProbeTime": null});
        api.bind_pod(pod, |pod| {
            pod["spec"]["nodeName"] = node.into();
            let status = object::object_mut(pod, "status");
            let conditions = status.entry("conditions").or_insert_with(|| json!([]));
            if let Value::Array(conditions) = conditions {
                conditions.retain(|condition| condition["type"] != "PodScheduled");
                conditions.push(condition);
            }
        })
        .await?;
        self.forget(name);
        Ok(())
    }
}

/// Returns whether this scheduler is responsible for a pod that needs scheduling.
fn is_ours(pod: &Value) -> bool {
    let scheduler = object::text_at(pod, &["spec", "schedulerName"]);
    pods::node(pod).is_empty()
        && object::deletion_timestamp(pod).is_none()
        && !pods::has_ended(pod)
        && matches!(scheduler, "" | "default-scheduler")
}
