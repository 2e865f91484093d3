//! Publishes the free capacity: one CSIStorageCapacity for each of the driver's classes and each topology segment of
//! the nodes. The scheduler reads them before it selects a node.
//!
//! The objects have the same format as external-provisioner v6.4.0's, so each program can take over the other's
//! objects: <https://github.com/kubernetes-csi/external-provisioner/blob/v6.4.0/pkg/capacity/capacity.go>.

mod owner;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use driver_rpc::csi::{Controller, GetCapacityRequest, GetCapacityResponse, Topology};
use futures::future::join_all;
use kube_provisioner::k8s_openapi::api::core::v1::TopologySelectorTerm;
use kube_provisioner::k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use kube_provisioner::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube_provisioner::kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ObjectMeta, PostParams, Preconditions,
};
use kube_provisioner::kube::{Client, ResourceExt};
use kube_provisioner::prometheus_client::metrics::gauge::Gauge;
use kube_provisioner::prometheus_client::registry::Registry;
use kube_provisioner::quantity::{format_bytes, parse_bytes};
use kube_provisioner::{Change, ObjectWatch, StartError, Trigger, error_chain};
use provisioner_runtime::{Backoff, CallError, Next, Priority, Queue, QueueOptions, Work, short_hash};
use tokio::time::{Instant, sleep};

use crate::nodes::Nodes;
use crate::own_node::OwnNode;
use crate::parameters::Texts;
use crate::requests::limited;
use crate::topology::{self, Segment, is_within};
use crate::watched_objects::{ChangedObjects, WatchedObjects, hash};

const DRIVER: &str = "csi.storage.k8s.io/drivername";
const MANAGED_BY: &str = "csi.storage.k8s.io/managed-by";
const MANAGER: &str = "external-provisioner";
/// Changes of nodes, classes and objects come in bursts. The delay handles each burst at once.
const SETTLING: Duration = Duration::from_secs(1);
/// The time between warnings while no capacity can be published.
const WARN_AGAIN: Duration = Duration::from_secs(600);

/// The settings of storage capacity.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CapacitySettings {
    /// The namespace of the objects.
    pub namespace: String,
    /// The pod whose controllers are followed to find the objects' owner, and the number of controllers to follow. With
    /// `None` the objects have no owner, and outlive the provisioner.
    pub owner: Option<(String, u32)>,
    /// The number of concurrent GetCapacity calls.
    pub threads: usize,
    /// The interval between two calls for the same object.
    pub poll_interval: Duration,
    /// Also publish for classes with immediate binding.
    pub for_immediate_binding: bool,
    /// The delay after the first failure.
    pub retry_interval_start: Duration,
    /// The longest delay after a failure.
    pub retry_interval_max: Duration,
}

impl CapacitySettings {
    /// Returns external-provisioner's default settings.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            owner: None,
            threads: 1,
            poll_interval: Duration::from_secs(60),
            for_immediate_binding: false,
            retry_interval_start: Duration::from_secs(1),
            retry_interval_max: Duration::from_secs(300),
        }
    }
}

/// The class and the topology segment of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    class: String,
    segment: Segment,
}

impl Key {
    /// Returns `None` for an object that this program would not create.
    fn of(object: &CSIStorageCapacity) -> Option<Self> {
        let selector = object.node_topology.as_ref().filter(|selector| selector.match_expressions.is_none())?;
        let segment = selector.match_labels.clone().unwrap_or_default().into_iter().collect();
        Some(Self { class: object.storage_class_name.clone(), segment })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Task {
    Publish(Key),
    /// Deletes the object with this name.
    Delete(String),
}

/// The relevant fields of a class.
#[derive(PartialEq)]
struct Class {
    is_immediate: bool,
    parameters: Texts,
    allowed: Vec<TopologySelectorTerm>,
}

impl Class {
    /// Returns `None` for another driver's class.
    fn read(class: &DynamicObject, driver: &str) -> Option<Self> {
        let class: StorageClass =
            class.clone().try_parse().ok().filter(|class: &StorageClass| class.provisioner == driver)?;
        Some(Self {
            is_immediate: class.volume_binding_mode.as_deref() == Some("Immediate"),
            parameters: class.parameters.unwrap_or_default(),
            allowed: class.allowed_topologies.unwrap_or_default(),
        })
    }

    /// Returns true if the class allows volumes in this segment. Ignores keys that the segment lacks.
    fn allows(&self, segment: &Segment) -> bool {
        let value_of = |key: &str| segment.iter().find(|(own, _)| own == key).map(|(_, value)| value);
        topology::allows(&self.allowed, |one| value_of(&one.key).is_none_or(|value| one.values.contains(value)))
    }
}

#[derive(Default)]
struct State {
    classes: WatchedObjects<Class>,
    objects: WatchedObjects<CSIStorageCapacity>,
    /// The objects that should exist, with the names of those that do.
    wanted: BTreeMap<Key, Option<String>>,
    /// The names of the objects that should not exist.
    obsolete: BTreeSet<String>,
    owner: Option<OwnerReference>,
    /// `Some` once this process has begun to publish.
    queue: Option<Queue<Task>>,
    /// Counts wakes. Each wake requests an answer from the driver that is newer than the wake.
    wakes: u64,
    /// The time of the last warning, until an object is published.
    warned: Option<Instant>,
}

impl State {
    fn wake(&mut self, task: Task) {
        self.wakes += 1;
        if let Some(queue) = &self.queue {
            queue.wake(task, self.wakes, Priority::Change);
        }
    }

    fn refresh(&mut self, is_stale: impl Fn(&Key) -> bool) {
        let stale: Vec<_> = self.wanted.keys().filter(|key| is_stale(key)).cloned().collect();
        stale.into_iter().for_each(|key| self.wake(Task::Publish(key)));
    }

    fn forget(&self, task: &Task) {
        if let Some(queue) = &self.queue {
            queue.forget(task);
        }
    }
}

/// Publishes the storage capacity of a driver.
pub(crate) struct Capacity {
    driver: String,
    settings: CapacitySettings,
    nodes: Nodes,
    /// The node of this replica, if each node has one.
    own_node: Option<OwnNode>,
    state: Mutex<State>,
    goal: Gauge,
    current: Gauge,
    obsolete: Gauge,
}

impl Capacity {
    pub(crate) fn new(driver: &str, settings: CapacitySettings, nodes: Nodes, own_node: Option<OwnNode>) -> Self {
        let (goal, current, obsolete) = Default::default();
        Self { driver: driver.to_owned(), settings, nodes, own_node, state: Mutex::default(), goal, current, obsolete }
    }

    /// Looks up the owner of the objects.
    pub(crate) async fn start(&self, client: &Client) -> Result<(), StartError> {
        if let Some((pod, level)) = &self.settings.owner {
            let owner = owner::find(client, &self.settings.namespace, pod, *level).await;
            let problem = |problem| StartError::new(format!("no owner for CSIStorageCapacity objects: {problem}"));
            self.lock().owner = Some(owner.map_err(problem)?);
        }
        Ok(())
    }

    pub(crate) fn watches(self: &Arc<Self>, client: &Client) -> [ObjectWatch; 2] {
        let classes = Api::all_with(client.clone(), &ApiResource::erase::<StorageClass>(&()));
        let resource = ApiResource::erase::<CSIStorageCapacity>(&());
        let objects = Api::namespaced_with(client.clone(), &self.settings.namespace, &resource);
        let labels: Vec<_> = self.labels().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        let (this, that) = (self.clone(), self.clone());
        [
            // The controller already has a watch named `storageclasses`, and the names are metric labels.
            ObjectWatch::new("storageclasses-with-capacity", classes, move |change| this.class_event(change)),
            ObjectWatch::new("csistoragecapacities", objects, move |change| that.object_event(change))
                .labelled(labels.join(",")),
        ]
    }

    fn class_event(&self, change: Change<DynamicObject>) -> Vec<Trigger> {
        let change = change.map(|class| (class.name_any(), Class::read(&class, &self.driver)));
        let mut state = self.lock();
        match state.classes.apply(change) {
            ChangedObjects::Nothing => {}
            ChangedObjects::One { name, .. } => {
                state.refresh(|key| key.class == name);
                self.nodes.changed.notify_one();
            }
            ChangedObjects::Many { .. } => self.nodes.changed.notify_one(),
        }
        Vec::new()
    }

    fn object_event(&self, change: Change<DynamicObject>) -> Vec<Trigger> {
        let change = change.map(|object| {
            let name = object.name_any();
            let read = object.try_parse::<CSIStorageCapacity>();
            let read = read.inspect_err(|error| {
                tracing::warn!(name, error = error_chain(error), "a CSIStorageCapacity cannot be read, and is kept");
            });
            (name, read.ok().map(without_managed_fields))
        });
        if !matches!(self.lock().objects.apply(change), ChangedObjects::Nothing) {
            self.nodes.changed.notify_one();
        }
        Vec::new()
    }

    /// Publishes until the future is dropped.
    pub(crate) async fn run(&self, client: &Client, driver: &impl Controller) {
        let backoff = Backoff::exponential(self.settings.retry_interval_start, self.settings.retry_interval_max);
        let queue = Queue::new(QueueOptions { backoff, ..QueueOptions::default() });
        {
            let mut state = self.lock();
            (state.wanted, state.obsolete) = Default::default();
            state.queue = Some(queue.clone());
        }
        let begin = Instant::now();
        let worker = || async {
            while let Some(work) = queue.next().await {
                let next = self.perform(&work, begin, client, driver).await;
                work.finish(next);
            }
        };
        let settling = async {
            loop {
                self.update_tasks();
                sleep(SETTLING).await;
                self.nodes.changed.notified().await;
            }
        };
        tokio::join!(settling, join_all((0..self.settings.threads.max(1)).map(|_| worker())));
    }

    /// Compares the existing objects with the wanted ones.
    fn update_tasks(&self) {
        let segments = match &self.own_node {
            Some(node) => Some([node.segment()].into()),
            None => self.nodes.segments(),
        };
        let Some(segments) = segments else { return };
        let mut state = self.lock();
        let (Some(classes), Some(objects)) = (state.classes.all(), state.objects.all()) else { return };
        let classes = classes.iter().filter(|(_, class)| self.settings.for_immediate_binding || !class.is_immediate);
        let keys = classes.flat_map(|(name, class)| {
            let allowed = segments.iter().filter(|segment| class.allows(segment));
            allowed.map(|segment| Key { class: name.clone(), segment: segment.clone() })
        });
        let mut wanted: BTreeMap<Key, Option<String>> = keys.map(|key| (key, None)).collect();
        let mut obsolete = BTreeSet::new();
        for (name, object) in objects {
            match Key::of(object).and_then(|key| wanted.get_mut(&key)) {
                Some(object @ None) => *object = Some(name.clone()),
                // A duplicate is obsolete as well.
                Some(Some(_)) | None => {
                    obsolete.insert(name.clone());
                }
            }
        }
        let before = std::mem::replace(&mut state.wanted, wanted);
        let is_new = |(key, object): &(&Key, &Option<String>)| {
            before.get(*key).is_none_or(|before| before.is_some() && object.is_none())
        };
        let new: Vec<_> = state.wanted.iter().filter(is_new).map(|(key, _)| Task::Publish(key.clone())).collect();
        before
            .into_keys()
            .filter(|key| !state.wanted.contains_key(key))
            .for_each(|key| state.forget(&Task::Publish(key)));
        let before = std::mem::replace(&mut state.obsolete, obsolete);
        let removals = state.obsolete.difference(&before).cloned().map(Task::Delete);
        let new: Vec<_> = new.into_iter().chain(removals).collect();
        new.into_iter().for_each(|task| state.wake(task));
        self.set_gauges(&state);
    }

    fn set_gauges(&self, state: &State) {
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.goal.set(count(state.wanted.len()));
        self.current.set(count(state.wanted.values().flatten().count()));
        self.obsolete.set(count(state.obsolete.len()));
    }

    async fn perform(&self, work: &Work<Task>, begin: Instant, client: &Client, driver: &impl Controller) -> Next {
        let result = match work.key() {
            Task::Publish(key) => self.publish(key, client, driver).await,
            Task::Delete(name) => self.delete(name, client).await,
        };
        let mut state = self.lock();
        match (result, work.key()) {
            (Ok(()), Task::Publish(key)) if state.wanted.contains_key(key) => {
                state.warned = None;
                Next::Wait(Some(self.until_poll(key, begin)))
            }
            (Ok(()), _) => Next::Done,
            (Err(problem), _) if state.warned.is_none_or(|warned| warned.elapsed() >= WARN_AGAIN) => {
                state.warned = Some(Instant::now());
                tracing::warn!("storage capacity cannot be published, trying again: {problem}");
                Next::RetryWithin(self.settings.poll_interval)
            }
            (Err(problem), _) => {
                tracing::debug!("storage capacity cannot be published: {problem}");
                Next::RetryWithin(self.settings.poll_interval)
            }
        }
    }

    /// Returns the time until the next poll. Each object has its own offset in the interval, which spreads the calls.
    fn until_poll(&self, key: &Key, begin: Instant) -> Duration {
        let interval = self.settings.poll_interval.max(Duration::from_millis(100)).as_nanos();
        let own = u128::from(hash(key)) % interval;
        let passed = (begin.elapsed().as_nanos() + interval - own) % interval;
        Duration::from_nanos(u64::try_from(interval - passed).unwrap_or(u64::MAX))
    }

    /// Asks the driver for the capacity, and updates the object if it has changed.
    async fn publish(&self, key: &Key, client: &Client, driver: &impl Controller) -> Result<(), String> {
        let (parameters, before) = {
            let state = self.lock();
            let class = state.classes.all().and_then(|classes| classes.get(&key.class));
            let (Some(class), Some(name)) = (class, state.wanted.get(key)) else { return Ok(()) };
            let before = name.as_ref().and_then(|name| state.objects.all()?.get(name));
            (class.parameters.clone(), before.cloned())
        };
        let segments = key.segment.iter().cloned().collect();
        let request =
            GetCapacityRequest { parameters, accessible_topology: Some(Topology { segments }), ..Default::default() };
        let Key { class, segment } = key;
        let place = || format!("of the class {class} in the segment {:?}", topology::described(segment));
        let answer = driver.get_capacity(request).await;
        let answer = answer.map_err(|error| format!("the capacity {} is unknown: {}", place(), error_chain(&error)))?;
        let Some(object) = self.object(key, before.as_ref(), &answer) else { return Ok(()) };
        let api = Api::<CSIStorageCapacity>::namespaced(client.clone(), &self.settings.namespace);
        let parameters = PostParams::default();
        let written = match &before {
            Some(before) => limited(api.replace(&before.name_any(), &parameters, &object)).await,
            None => limited(api.create(&parameters, &object)).await,
        };
        let written =
            written.map_err(|error| format!("the CSIStorageCapacity {}: {}", place(), error_chain(&error)))?;
        let mut state = self.lock();
        let name = written.name_any();
        match state.wanted.get_mut(key) {
            Some(known) => *known = Some(name.clone()),
            // The object became obsolete during the call.
            None => self.nodes.changed.notify_one(),
        }
        state.objects.apply(Change::Applied((name, Some(without_managed_fields(written)))));
        self.set_gauges(&state);
        Ok(())
    }

    /// Returns the object for this answer, or `None` if the object does not change.
    fn object(
        &self,
        key: &Key,
        before: Option<&CSIStorageCapacity>,
        answer: &GetCapacityResponse,
    ) -> Option<CSIStorageCapacity> {
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        let (available, largest) = (bytes(answer.available_capacity), answer.maximum_volume_size.map(bytes));
        let mut object = before.cloned().unwrap_or_else(|| CSIStorageCapacity {
            metadata: ObjectMeta {
                generate_name: Some("csisc-".to_owned()),
                labels: Some(self.labels()),
                ..ObjectMeta::default()
            },
            node_topology: Some(LabelSelector {
                match_labels: Some(key.segment.iter().cloned().collect()),
                ..LabelSelector::default()
            }),
            storage_class_name: key.class.clone(),
            ..CSIStorageCapacity::default()
        });
        let value = |quantity: &Option<Quantity>| quantity.as_ref().and_then(|quantity| parse_bytes(&quantity.0).ok());
        let is_same = value(&object.capacity) == Some(available) && value(&object.maximum_volume_size) == largest;
        let is_owned = self.set_owner(&mut object.metadata);
        object.capacity = Some(Quantity(format_bytes(available)));
        object.maximum_volume_size = largest.map(|bytes| Quantity(format_bytes(bytes)));
        (before.is_none() || !is_same || !is_owned).then_some(object)
    }

    /// Makes the configured owner the controller of an object. Returns true if it already was.
    fn set_owner(&self, metadata: &mut ObjectMeta) -> bool {
        let Some(owner) = self.lock().owner.clone() else { return true };
        let owners = metadata.owner_references.get_or_insert_default();
        let is_controller = |one: &OwnerReference| one.controller == Some(true);
        if owners.iter().any(|one| is_controller(one) && one.uid == owner.uid) {
            return true;
        }
        // An object can have only one controller.
        owners.retain(|one| !is_controller(one));
        owners.push(owner);
        false
    }

    async fn delete(&self, name: &str, client: &Client) -> Result<(), String> {
        let uid = {
            let state = self.lock();
            let object = state.objects.all().and_then(|objects| objects.get(name));
            let Some(object) = object.filter(|_| state.obsolete.contains(name)) else { return Ok(()) };
            object.uid()
        };
        let preconditions = Some(Preconditions { uid, ..Preconditions::default() });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        let api = Api::<CSIStorageCapacity>::namespaced(client.clone(), &self.settings.namespace);
        match limited(api.delete(name, &parameters)).await {
            Ok(_) | Err(CallError::NotFound | CallError::Conflict) => Ok(()),
            Err(error) => Err(format!("the obsolete CSIStorageCapacity {name}: {}", error_chain(&error))),
        }
    }

    /// Calls the driver soon for these segments, or for all segments of the class if `segments` is empty.
    pub(crate) fn refresh(&self, class: &str, segments: &[Segment]) {
        // A volume's topology may have fewer keys than the nodes'.
        let is_in = |key: &Key| segments.iter().any(|place| !place.is_empty() && is_within(place, &key.segment));
        let is_of = |key: &Key| segments.is_empty() && key.class == class;
        self.lock().refresh(|key| is_in(key) || is_of(key));
    }

    /// Publishes the class's capacity on this node before the scheduler selects a node again.
    pub(crate) async fn publish_for(&self, class: &str, node: &str, client: &Client, driver: &impl Controller) {
        let segment = match &self.own_node {
            Some(node) => Some(node.segment()),
            None => self.nodes.segment_of(node),
        };
        let Some(segment) = segment else { return };
        let key = Key { class: class.to_owned(), segment };
        // The first write may conflict with a concurrent one for an earlier answer.
        for _ in 0..2 {
            match self.publish(&key, client, driver).await {
                Ok(()) => return,
                Err(problem) => tracing::debug!("before the scheduler selects a node again: {problem}"),
            }
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let prefix = "csistoragecapacities";
        let gauges = [
            ("desired_goal", "CSIStorageCapacity objects that should exist", &self.goal),
            ("desired_current", "CSIStorageCapacity objects that should exist and do", &self.current),
            ("obsolete", "CSIStorageCapacity objects that are obsolete", &self.obsolete),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("{prefix}_{name}"), help, gauge.clone());
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let manager = self.own_node.as_ref().map_or_else(|| MANAGER.to_owned(), |node| manager_on(node.name()));
        [(DRIVER, self.driver.clone()), (MANAGED_BY, manager)].map(|(key, value)| (key.to_owned(), value)).into()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the label of a node's objects. A long name is shortened like external-provisioner shortens it:
/// <https://github.com/kubernetes-csi/external-provisioner/blob/v6.4.0/cmd/csi-provisioner/util.go>.
fn manager_on(node: &str) -> String {
    const LONGEST: usize = 63;
    let name = format!("{MANAGER}-{node}");
    if name.len() <= LONGEST {
        return name;
    }
    match LONGEST.checked_sub("-12345678-".len() + node.len()).filter(|length| *length > 0) {
        Some(length) => format!("{}-{}-{node}", &MANAGER[..length], short_hash(MANAGER)),
        None => format!("{MANAGER}-{}", short_hash(&name)),
    }
}

/// Removes the managed fields, which are large. A write without them does not change them.
fn without_managed_fields(mut object: CSIStorageCapacity) -> CSIStorageCapacity {
    object.metadata.managed_fields = None;
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_the_manager_label_of_long_node_names() {
        assert_eq!(manager_on("node-1"), "external-provisioner-node-1");
        let long = "n".repeat(45);
        let manager = manager_on(&long);
        assert!(manager.starts_with("external-") && manager.ends_with(&long) && manager.len() <= 63, "{manager}");
        let manager = manager_on(&"n".repeat(100));
        assert!(manager.starts_with("external-provisioner-") && manager.len() == 29, "{manager}");
    }
}
