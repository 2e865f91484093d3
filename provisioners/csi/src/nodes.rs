//! The nodes, and the topology keys that the driver registers on them.
//!
//! The place of a claim's selected node is read from the API server after the claim was seen. The watches are used only
//! for requirements that depend on all nodes, and to wake claims that wait for a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube_provisioner::k8s_openapi::api::core::v1::{Node, TopologySelectorLabelRequirement, TopologySelectorTerm};
use kube_provisioner::k8s_openapi::api::storage::v1::CSINode;
use kube_provisioner::kube::api::{Api, ApiResource, DynamicObject};
use kube_provisioner::kube::{Client, ResourceExt};
use kube_provisioner::{Change, ObjectWatch, ProvisionError, ProvisionRequest, Trigger, error_chain};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::parameters::Texts;
use crate::request::Settings;
use crate::requests::existing;
use crate::topology::{Labels, NoRequirement, RegisteredNode, Requirement, RequirementInputs, Segment, allows};
use crate::watched_objects::{ChangedObjects, WatchedObjects};

/// Time that an attempt waits for the first list of the nodes.
const LISTING: Duration = Duration::from_secs(10);
/// Time for which claims share the place of a node. Two reads per claim would reduce the rate in a burst by a third.
const RECENT: Duration = Duration::from_secs(1);

/// A shared handle: clones refer to the same nodes.
#[derive(Clone)]
pub(crate) struct Nodes {
    driver: Arc<str>,
    state: Arc<Mutex<State>>,
    /// Notified after each list.
    listed: Arc<Notify>,
    /// Notified of each change.
    pub(crate) changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// The labels with the driver's topology keys. Storing the nodes' other labels would take megabytes.
    labels: WatchedObjects<Labels>,
    listed: ListProgress,
    /// The different labels in the list in progress. Nodes in the same place share them.
    listed_labels: BTreeSet<Labels>,
    /// The driver's topology keys on each node where it is registered.
    keys: WatchedObjects<Arc<[String]>>,
    /// Every list of topology keys seen since the start. Nodes with the same keys share one.
    key_lists: BTreeSet<Arc<[String]>>,
    /// True if a claim waits for a node that does not exist yet.
    is_awaited: bool,
    /// The places that were read recently, by node. Cleared when any node changes.
    recent: BTreeMap<String, ReadPlace>,
    changed_at: Option<Instant>,
}

/// The place of a node in a class with these `allowedTopologies`.
struct ReadPlace {
    begun: Instant,
    allowed: Vec<TopologySelectorTerm>,
    place: Segment,
}

/// The state of listing all nodes since the last topology key appeared.
#[derive(Default, PartialEq, Eq)]
enum ListProgress {
    #[default]
    NotStarted,
    /// The list is in progress.
    Running,
    Complete,
}

impl Nodes {
    pub(crate) fn of_driver(name: &str) -> Self {
        Self { driver: name.into(), state: Arc::default(), listed: Arc::default(), changed: Arc::default() }
    }

    /// Returns the topology requirement of a new attempt's volume. `None` leaves the choice to the driver.
    pub(crate) async fn requirement(
        &self,
        client: Client,
        settings: &Settings,
        request: &ProvisionRequest<Texts>,
    ) -> Result<Option<Requirement>, ProvisionError> {
        let selected = match &request.selected_node {
            Some(node) => Some(self.place_of(client, node, request).await?),
            None => None,
        };
        let inputs = RequirementInputs::of(request, settings, selected);
        if inputs.needs_nodes() {
            self.requirement_from_all_nodes(&inputs).await
        } else {
            inputs.requirement(&[]).map_err(refusal)
        }
    }

    /// Returns the values of the driver's topology keys on the selected node, as they were after the claim was seen.
    async fn place_of(
        &self,
        client: Client,
        name: &str,
        request: &ProvisionRequest<Texts>,
    ) -> Result<Segment, ProvisionError> {
        let allowed = request.allowed_topologies();
        let is_for_it = |read: &&ReadPlace| {
            read.begun > request.claim_seen && read.begun.elapsed() < RECENT && read.allowed == allowed
        };
        if let Some(read) = self.lock().recent.get(name).filter(is_for_it) {
            return Ok(read.place.clone());
        }
        let begun = Instant::now();
        let place = self.read_place(client, name, allowed).await?;
        let mut state = self.lock();
        if state.changed_at.is_none_or(|changed| begun > changed) {
            state.recent.retain(|_, read| read.begun.elapsed() < RECENT);
            state.recent.insert(name.to_owned(), ReadPlace { begun, allowed: allowed.to_vec(), place: place.clone() });
        }
        Ok(place)
    }

    /// Reads the current values of the driver's topology keys on a node.
    async fn read_place(
        &self,
        client: Client,
        name: &str,
        allowed: &[TopologySelectorTerm],
    ) -> Result<Segment, ProvisionError> {
        let driver = &*self.driver;
        let gone = |kind| ProvisionError::reschedule(format!("the {kind} {name} of the selected node does not exist"));
        let unready = |problem: String| ProvisionError::no_change(format!("{problem}; check the driver's pod there"));
        let unread =
            |error| ProvisionError::no_change(format!("the node {name} cannot be read: {}", error_chain(&error)));
        let (nodes, csi_nodes) = (Api::<Node>::all(client.clone()), Api::<CSINode>::all(client));
        let (node, csi_node) = tokio::join!(existing(nodes.get_metadata(name)), existing(csi_nodes.get(name)));
        let node = node.map_err(unread)?.ok_or_else(|| gone("Node"))?;
        let labels = Labels::new(node.labels());
        let holds = |one: &TopologySelectorLabelRequirement| {
            labels.get(&one.key).is_some_and(|value| one.values.iter().any(|allowed| allowed == value))
        };
        if !allows(allowed, holds) {
            let text = "the allowedTopologies of the class exclude the selected node";
            return Err(ProvisionError::reschedule(format!("{text} {name} by its current labels")));
        }
        let csi_node = csi_node.map_err(unread)?.ok_or_else(|| gone("CSINode"))?;
        let mut owners = csi_node.owner_references().iter().filter(|owner| owner.kind == "Node");
        if owners.any(|owner| Some(&owner.uid) != node.metadata.uid.as_ref()) {
            return Err(unready(format!("the CSINode {name} belongs to a deleted node of the same name")));
        }
        let registered = csi_node.spec.drivers.iter().find(|one| one.name == driver);
        let keys = registered.and_then(|one| one.topology_keys.as_deref()).unwrap_or_default();
        if keys.is_empty() {
            let what = if registered.is_some() { "registered no topology keys" } else { "not registered" };
            return Err(unready(format!("the CSI driver {driver} has {what} on the selected node {name} yet")));
        }
        labels.segment(keys).map_err(|key| {
            unready(format!(
                "the selected node {name} lacks the label {key}, which the CSI driver {driver} has registered"
            ))
        })
    }

    async fn requirement_from_all_nodes(
        &self,
        inputs: &RequirementInputs<'_>,
    ) -> Result<Option<Requirement>, ProvisionError> {
        let choosing = async {
            loop {
                let listed = self.listed.notified();
                if let Some(chosen) = self.lock().choose(inputs) {
                    return chosen;
                }
                listed.await;
            }
        };
        let chosen = timeout(LISTING, choosing).await.map_err(|_| {
            let text = "the nodes cannot be listed; the provisioner needs the permissions list and watch for nodes and csinodes";
            ProvisionError::no_change(text)
        })?;
        chosen.map_err(refusal)
    }

    /// Returns the topology segments of the nodes on which the driver is registered, or `None` until the nodes are
    /// known.
    pub(crate) fn segments(&self) -> Option<BTreeSet<Segment>> {
        let state = self.lock();
        let (labels, keys) = (state.labels()?, state.keys.all()?);
        Some(keys.iter().filter_map(|(name, keys)| labels.get(name)?.segment(keys).ok()).collect())
    }

    pub(crate) fn segment_of(&self, node: &str) -> Option<Segment> {
        let state = self.lock();
        state.labels()?.get(node)?.segment(state.keys.all()?.get(node)?).ok()
    }

    /// Returns true if the node is known to have been deleted.
    pub(crate) fn is_deleted(&self, node: &str) -> bool {
        self.lock().labels().is_some_and(|all| !all.contains_key(node))
    }

    pub(crate) fn watches(&self, client: &Client) -> [ObjectWatch; 2] {
        let nodes = Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
        let csi_nodes = Api::all_with(client.clone(), &ApiResource::erase::<CSINode>(&()));
        let (this, that) = (self.clone(), self.clone());
        let nodes = ObjectWatch::of_metadata("nodes", nodes, move |change| this.node_event(change));
        let list_nodes = nodes.lister();
        [nodes, ObjectWatch::new("csinodes", csi_nodes, move |change| that.csi_node_event(change, &list_nodes))]
    }

    fn node_event(&self, change: Change<DynamicObject>) -> Vec<Trigger> {
        let mut state = self.lock();
        let (begins, is_complete) = (matches!(change, Change::Begin), matches!(change, Change::Ready));
        let is_listed = matches!(change, Change::Listed(_));
        let change = change.map(|node| {
            let lists = &state.key_lists;
            let known = node.labels().iter().filter(|(key, _)| lists.iter().any(|keys| keys.contains(*key)));
            let labels = Labels::new(known);
            let shared = state.listed_labels.get(&labels).cloned();
            if is_listed && shared.is_none() {
                state.listed_labels.insert(labels.clone());
            }
            (node.name_any(), Some(shared.unwrap_or(labels)))
        });
        if is_complete {
            state.listed_labels.clear();
        }
        let changed = state.labels.apply(change);
        if begins && state.listed == ListProgress::NotStarted {
            state.listed = ListProgress::Running;
        } else if is_complete && state.listed == ListProgress::Running {
            state.listed = ListProgress::Complete;
            self.listed.notify_waiters();
            self.changed.notify_one();
            return vec![Trigger::Claims];
        }
        self.claims_to_wake(state, changed)
    }

    fn csi_node_event(&self, change: Change<DynamicObject>, list_nodes: impl Fn()) -> Vec<Trigger> {
        let mut state = self.lock();
        let change = change.map(|node| {
            let keys = keys(&node, &self.driver).map(|keys| state.shared(keys, &list_nodes));
            (node.name_any(), keys)
        });
        let changed = state.keys.apply(change);
        self.claims_to_wake(state, changed)
    }

    /// Returns the claims to wake after a change.
    fn claims_to_wake<T>(&self, mut state: MutexGuard<'_, State>, changed: ChangedObjects<T>) -> Vec<Trigger> {
        if !matches!(changed, ChangedObjects::Nothing) {
            state.recent.clear();
            state.changed_at = Some(Instant::now());
            self.changed.notify_one();
        }
        match changed {
            ChangedObjects::Nothing => Vec::new(),
            ChangedObjects::One { .. } if std::mem::take(&mut state.is_awaited) => vec![Trigger::Claims],
            ChangedObjects::One { name, .. } => vec![Trigger::SelectedNode(name)],
            ChangedObjects::Many { .. } => {
                self.listed.notify_waiters();
                vec![Trigger::Claims]
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn refusal(unmet: NoRequirement) -> ProvisionError {
    match unmet {
        NoRequirement::TooMany(_) => ProvisionError::invalid(unmet),
        NoRequirement::NoPlaces | NoRequirement::NotAllowed(_) => ProvisionError::no_change(unmet),
    }
}

impl State {
    /// Returns the labels, or `None` until the labels of all nodes are known.
    fn labels(&self) -> Option<&BTreeMap<String, Labels>> {
        self.labels.all().filter(|_| self.listed == ListProgress::Complete)
    }

    /// Returns the shared list of these topology keys. If a key is new, all nodes are listed again for its labels.
    fn shared(&mut self, keys: Vec<String>, list_nodes: impl Fn()) -> Arc<[String]> {
        if let Some(known) = self.key_lists.get(&*keys) {
            return Arc::clone(known);
        }
        if keys.iter().any(|key| self.key_lists.iter().all(|known| !known.contains(key))) {
            self.listed = ListProgress::NotStarted;
            list_nodes();
        }
        let keys: Arc<[String]> = keys.into();
        self.key_lists.insert(Arc::clone(&keys));
        keys
    }

    /// Returns the requirement for these inputs, or `None` until all nodes are known.
    fn choose(&mut self, inputs: &RequirementInputs<'_>) -> Option<Result<Option<Requirement>, NoRequirement>> {
        let (labels, keys) = (self.labels()?, self.keys.all()?);
        let keys = keys.iter().filter(|(_, keys)| !keys.is_empty());
        let registered = keys.filter_map(|(name, keys)| Some(RegisteredNode { keys, labels: labels.get(name)? }));
        let chosen = inputs.requirement(&registered.collect::<Vec<_>>());
        self.is_awaited |= chosen.is_err();
        Some(chosen)
    }
}

/// Returns the topology keys that a driver has registered on a node, or `None` if it is not registered there.
fn keys(csi_node: &DynamicObject, driver: &str) -> Option<Vec<String>> {
    let drivers = csi_node.data.pointer("/spec/drivers")?.as_array()?;
    let registered = drivers.iter().find(|one| one["name"] == driver)?;
    let keys = registered["topologyKeys"].as_array().into_iter().flatten();
    Some(keys.filter_map(|key| key.as_str().map(str::to_owned)).collect())
}
