//! `pkg/scheduler/framework/plugins/volumebinding`: the nodes that a pod's claims allow, and the writes for the chosen
//! node.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::actors::api::{Api, ObservedObject};
use crate::actors::storage::{self, SELECTED_NODE, bound_to, is_enough, requested, volume_name};
use crate::actors::volume_index::VolumeIndex;
use crate::actors::{node_selector, pods};
use crate::object::{self, annotation};
use crate::selector::LabelSelector;
use crate::status::Status;
use crate::validate::quantity::Quantity;

/// The claims of a pod.
pub(super) struct Volumes {
    /// Volumes of the claims that are bound.
    bound: Vec<Arc<Value>>,
    /// Claims that wait for their first consumer, each with its class.
    waiting: Vec<(ObservedObject, Arc<Value>)>,
}

/// The writes for one node.
#[derive(Default)]
pub(super) struct Plan {
    bindings: Vec<(ObservedObject, ObservedObject)>,
    provisions: Vec<ObservedObject>,
}

impl Volumes {
    /// Reads the claims of a pod. `None` if the pod cannot be scheduled to any node yet.
    pub(super) fn of(pod: &Value, api: &Api) -> Option<Self> {
        let (mut bound, mut waiting) = (Vec::new(), Vec::new());
        let names: BTreeSet<String> = pods::claims_of(pod).collect();
        for name in names {
            let claim = ObservedObject::from(api.peek(storage::claims(), object::namespace(pod), &name)?);
            if claim.stored.is_deleting() || storage::phase(&claim.value) == "Lost" {
                return None;
            }
            if storage::is_fully_bound(&claim.value) {
                bound.push(api.peek(storage::volumes(), "", volume_name(&claim.value))?.parsed());
                continue;
            }
            // Only the binder binds claims with immediate binding.
            let class = api.peek(storage::classes(), "", storage::class(&claim.value))?.parsed();
            let waits = object::text_at(&class, &["volumeBindingMode"]) == "WaitForFirstConsumer";
            if !waits || !volume_name(&claim.value).is_empty() {
                return None;
            }
            waiting.push((claim, class));
        }
        Some(Self { bound, waiting })
    }

    /// Returns the writes for a node. `None` if the node does not fit.
    pub(super) fn plan(&self, node: &Value, volumes: &VolumeIndex, api: &Api) -> Option<Plan> {
        if !self.bound.iter().all(|volume| node_selector::volume_reaches(volume, node)) {
            return None;
        }
        let mut plan = Plan::default();
        for (claim, class) in &self.waiting {
            let selected = annotation(&claim.value, SELECTED_NODE);
            if selected.is_some_and(|selected| selected != object::name(node)) {
                return None;
            }
            let taken: BTreeSet<&str> = plan.bindings.iter().map(|(volume, _)| volume.stored.name()).collect();
            let found = volumes.find_on_node(&claim.value, node, &taken).filter(|_| selected.is_none());
            match found {
                Some(volume) => plan.bindings.push((ObservedObject::from(Arc::clone(volume)), claim.clone())),
                None if can_provision(&claim.value, class, node, api) => plan.provisions.push(claim.clone()),
                None => return None,
            }
        }
        Some(plan)
    }
}

impl Plan {
    /// Returns whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }

    /// `bindAPIUpdate`.
    pub(super) async fn execute(self, node: &str, api: &mut Api) -> Result<(), Status> {
        for (volume, claim) in &self.bindings {
            if let Some(change) = bound_to(&volume.value, &claim.value) {
                api.update(storage::volumes(), volume, None, change).await?;
            }
        }
        for claim in &self.provisions {
            let change = |claim: &mut Value| object::set_annotation(claim, SELECTED_NODE, node);
            api.update(storage::claims(), claim, None, change).await?;
        }
        Ok(())
    }
}

/// `checkVolumeProvisions`.
fn can_provision(claim: &Value, class: &Value, node: &Value, api: &Api) -> bool {
    let provisioner = object::text_at(class, &["provisioner"]);
    !provisioner.is_empty()
        && provisioner != "kubernetes.io/no-provisioner"
        && node_selector::class_allows(class, node)
        && has_capacity(provisioner, claim, class, node, api)
}

/// `hasEnoughCapacity`: only a driver that publishes its capacity can run out of it.
fn has_capacity(provisioner: &str, claim: &Value, class: &Value, node: &Value, api: &Api) -> bool {
    let driver = api.peek(storage::drivers(), "", provisioner).map(|driver| driver.parsed());
    if driver.and_then(|driver| object::at(&driver, &["spec", "storageCapacity"])?.as_bool()) != Some(true) {
        return true;
    }
    let size = requested(claim);
    let capacities = api.cluster().list_stored("storage.k8s.io", "csistoragecapacities", None).unwrap_or_default();
    capacities.iter().map(|capacity| capacity.parsed()).any(|capacity| {
        let text = |field: &str| object::text_at(&capacity, &[field]);
        let amount = [text("maximumVolumeSize"), text("capacity")].into_iter().find(|amount| !amount.is_empty());
        let amount = amount.and_then(|amount| Quantity::parse(amount).ok());
        let here = LabelSelector::from_object(capacity.get("nodeTopology"));
        text("storageClassName") == object::name(class)
            && amount.is_some()
            && is_enough(amount.as_ref(), size.as_ref())
            && here.is_some_and(|selector| selector.matches(|label| object::label(node, label)))
    })
}
