//! The provisioner, which creates a directory for each volume.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use directory_volumes::{
    CallError as _, Deletion, DirectoryError, NotCreated, Worker, has_retain_policy, owner_in_this_cluster,
    path_and_owner,
};
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::k8s_openapi::api::storage::v1::StorageClass;
use kube_provisioner::kube::{Api, Client, ResourceExt as _};
use kube_provisioner::prometheus_client::registry::Registry;
use kube_provisioner::protocol::MAX_REQUEST_DURATION;
use kube_provisioner::{
    Capabilities, DeleteError, ExpandError, Hooks, ProvisionError, ProvisionRequest, ProvisionVerdict,
    ProvisionedVolume, Provisioner, StartContext, StartError, Volume, error_chain,
};

use crate::node::{Node, WrongNode};
use crate::parameters::Parameters;
use crate::placement::{ANNOTATIONS, Placement, VOLUME_TYPE, path_of};
use crate::roots::{DiskError, Disks};

pub(crate) struct HostPath {
    disks: Arc<Disks>,
    /// The node that contains the roots, if the cluster has several nodes.
    node: Option<Arc<Node>>,
    client: OnceLock<Client>,
}

impl HostPath {
    pub(crate) fn new(disks: impl Into<Disks>, node: Option<String>) -> Self {
        let node = node.map(|name| Arc::new(Node::new(name)));
        Self { disks: Arc::new(disks.into()), node, client: OnceLock::new() }
    }

    fn client(&self) -> Result<&Client, &'static str> {
        self.client.get().ok_or("the provisioner has not started")
    }

    /// Determines a volume's directory. Does not create it.
    async fn prepare(&self, request: &ProvisionRequest<Parameters>) -> Result<(Placement, Worker), ProvisionError> {
        let node = match &self.node {
            Some(here) => {
                if let Some(selected) = request.selected_node.as_ref().filter(|selected| *selected != here.name()) {
                    let text = format!("the claim's pod runs on the node {selected}, but this node is {}", here.name());
                    return Err(ProvisionError::ignored(text));
                }
                Some(here.observe(self.client().map_err(ProvisionError::retry)?).await?)
            }
            None => None,
        };
        let place = Placement::of(request, node.as_ref())?;
        let worker =
            self.disks.worker_for_class(request.parameters.root.as_deref()).map_err(ProvisionError::reschedule)?;
        Ok((place, worker))
    }

    async fn create(
        (place, worker): (Placement, Worker),
        request: &ProvisionRequest<Parameters>,
    ) -> Result<Volume, NotCreated> {
        let size = (request.bytes, request.parameters.enforce_size, request.parameters.reserve);
        let (retain, permissions, token) =
            (has_retain_policy(request), request.parameters.permissions(), request.fencing_token.clone());
        let (path, owner) = (place.path.clone(), place.owner.clone());
        let (below, its) = (path.clone(), owner.clone());
        let (path, size) = worker.create(path, owner, retain, permissions, size, token).await?;
        if let Some(label) = request.parameters.se_linux_label.clone() {
            let labelled = worker.run(move |root| Ok::<_, ProvisionError>(root.label(&below, &its, &label)?)).await;
            labelled.map_err(|error| NotCreated { error, has_begun: true })?;
        }
        Ok(size.apply_to(place.volume(&path, worker.root()), None))
    }

    /// Converts a failure of this node. If there is another node, it may provision the claim once this node has no
    /// leftovers of the attempt.
    async fn reschedule_or_retry(
        &self,
        error: ProvisionError,
        request: &ProvisionRequest<Parameters>,
        may_have_leftovers: bool,
    ) -> ProvisionError {
        if error.verdict() != ProvisionVerdict::Reschedule {
            return error;
        }
        let has_leftovers =
            may_have_leftovers && (self.may_be_saved(request).await || self.end_attempt(request).await.is_err());
        match (has_leftovers, &self.node) {
            (true, _) => with_verdict(error, ProvisionError::retry),
            (false, Some(_)) => error,
            (false, None) => with_verdict(error, ProvisionError::nothing_left),
        }
    }

    async fn provision_volume(&self, request: &ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let prepared = match self.prepare(request).await {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.reschedule_or_retry(error, request, request.resumed).await),
        };
        match Self::create(prepared, request).await {
            Ok(made) => Ok(made),
            Err(NotCreated { error, has_begun }) => {
                // The root is missing, lacks space, or cannot enforce sizes. Another node's root may be usable.
                let is_elsewhere = if has_begun { is_of_this_node(&error) } else { !is_occupied(&error) };
                let error = if is_elsewhere { with_verdict(error, ProvisionError::reschedule) } else { error };
                Err(self.reschedule_or_retry(error, request, has_begun || request.resumed).await)
            }
        }
    }

    /// Returns true if a volume with the directory of this attempt may exist or may still be saved.
    async fn may_be_saved(&self, attempt: &ProvisionRequest<Parameters>) -> bool {
        attempt.resumed
            && (attempt.claim_seen.elapsed() < MAX_REQUEST_DURATION
                || !matches!(self.is_saved(attempt).await, Ok(false)))
    }

    /// Returns true if a volume of this name may be in this root: another node's replica may have saved it, if both
    /// nodes share the root.
    async fn is_saved(&self, attempt: &ProvisionRequest<Parameters>) -> Result<bool, DeleteError> {
        let volumes = Api::<PersistentVolume>::all(self.client().map_err(DeleteError::retry)?.clone());
        let volume = volumes.get_metadata_opt(&attempt.name).await.map_err(|error| {
            DeleteError::retry(format!("the volume {} cannot be read: {}", attempt.name, error_chain(&error)))
        })?;
        let Some(volume) = volume else { return Ok(false) };
        let worker = self.disks.worker_for_class(attempt.parameters.root.as_deref())?;
        Ok(volume.annotations().get(ANNOTATIONS.root).is_none_or(|root| worker.root().id() == Some(root)))
    }

    async fn end_attempt(&self, attempt: &ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        match path_and_owner(attempt, &attempt.parameters.path_pattern) {
            Ok((path, owner)) => {
                // The root may have existed when the attempt began.
                let worker = self.disks.worker_for_class(attempt.parameters.root.as_deref())?;
                worker.end(Deletion::of_attempt(path, owner), attempt.fencing_token.clone()).await
            }
            // The attempt was refused before it created anything.
            Err(_) => Ok(()),
        }
    }
}

/// Returns the text for the claim's user if the error contains paths.
fn message_for_users(cause: &(dyn Error + Send + Sync + 'static)) -> Option<String> {
    match cause.downcast_ref()? {
        DiskError::Opening { .. } | DiskError::Unusable(_) | DiskError::OutsideRoots { .. } => {
            Some("the storage of this class cannot be used on this node; ask the administrator".to_owned())
        }
        DiskError::Unknown { .. } | DiskError::Unnamed(_) => None,
    }
}

/// Returns the same error with another verdict.
fn with_verdict(error: ProvisionError, new: fn(String) -> ProvisionError) -> ProvisionError {
    let error = error.for_users(message_for_users);
    new(error.to_string()).with_user_text(error.user_text())
}

/// Returns true if the root responds, but is busy.
fn is_occupied(error: &ProvisionError) -> bool {
    matches!(error.cause().downcast_ref(), Some(DirectoryError::Occupied { .. }))
}

/// Returns true if the failure is specific to this node: its disk has no space, or it lacks SELinux.
fn is_of_this_node(error: &ProvisionError) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error.cause().downcast_ref() {
        Some(DirectoryError::Io { source, .. }) => {
            matches!(source.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
        }
        Some(DirectoryError::Unlabelled { .. }) => true,
        _ => false,
    }
}

impl Provisioner for HostPath {
    type Parameters = Parameters;

    async fn start(&self, start: StartContext) -> Result<(), StartError> {
        self.client.get_or_init(|| start.client.clone());
        if let Some(node) = &self.node {
            node.start(&start.client).await.map_err(StartError::new)?;
        }
        self.disks.start(self.node.as_ref(), &start).await
    }

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        self.provision_volume(&request).await.map_err(|error| error.for_users(message_for_users))
    }

    /// Relies on the directory's mark for the owner: users may have edited the object.
    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        let worker = self.disks.worker_for_volume(&volume.object);
        if let Some(node) = &self.node {
            node.check(&volume, worker.as_ref().ok().map(Worker::root)).map_err(WrongNode::for_deletion)?;
        }
        let worker = worker?;
        let path = path_of(&volume.object, worker.root())?;
        let deletion = Deletion::of(&volume, path, &ANNOTATIONS, worker.root())?;
        worker.end(deletion, volume.fencing_token.clone()).await
    }

    async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
        let worker = self.disks.worker_for_volume(&volume.object);
        if let Some(node) = &self.node {
            node.check(&volume, worker.as_ref().ok().map(Worker::root)).map_err(WrongNode::for_expansion)?;
        }
        let resized = async {
            let worker = worker?;
            worker.resize(path_of(&volume.object, worker.root())?, owner_in_this_cluster(&volume), bytes).await
        };
        resized.await.map_err(|error: ExpandError| error.for_users(message_for_users))
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().expansion().allowed_topologies().node_local().claim_annotations([VOLUME_TYPE])
    }

    async fn probe(&self) -> Result<(), StartError> {
        self.disks.probe().await
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        let ended = async { if self.is_saved(&attempt).await? { Ok(()) } else { self.end_attempt(&attempt).await } };
        ended.await.map_err(|error: DeleteError| error.for_users(message_for_users))
    }
}

impl Hooks for HostPath {
    fn class_problems(class: &StorageClass) -> Vec<String> {
        directory_volumes::parameters::ignored_settings(class)
    }

    fn register_metrics(&self, registry: &mut Registry) {
        self.disks.metrics.register(registry);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use directory_volumes::Root;
    use directory_volumes::hostile::{contract, entries, temp_dir};
    use kube_provisioner::conformance::Conformance;
    use kube_sim::{Cluster, PatchKind, Target};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn keeps_the_contract() {
        let folder = temp_dir();
        contract(conformance(&folder, None), folder.path());
    }

    #[test]
    fn keeps_the_contract_on_a_node() {
        let folder = temp_dir();
        // The label differs from the node's name, as in some clouds.
        let node = serde_json::json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-a", "labels": {"kubernetes.io/hostname": "host-a.internal"}}});
        contract(conformance(&folder, Some("node-a")).node("node-a").objects([node]), folder.path());
    }

    const NODE_NAME: &str = "node-a";

    /// Returns a provisioner on a node of a simulated cluster. The test changes the node's labels.
    async fn on_node(folder: &TempDir) -> (Cluster, HostPath) {
        let cluster = Cluster::builder().build();
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}});
        cluster.create(&node).unwrap();
        let worker = Worker::new(Root::open(folder.path()).unwrap());
        let hostpath = HostPath::new(worker, Some(NODE_NAME.to_owned()));
        hostpath.start(StartContext::new(cluster.client("hostpath"), Vec::new())).await.unwrap();
        (cluster, hostpath)
    }

    fn label(cluster: &Cluster, rack: &str) {
        let target = Target { group: "", plural: "nodes", namespace: "", name: NODE_NAME };
        let patch = json!({"metadata": {"labels": {"rack": rack}}});
        cluster.patch(&target, None, PatchKind::Merge, &patch).unwrap();
    }

    fn request(parameters: Parameters) -> ProvisionRequest<Parameters> {
        ProvisionRequest::new(parameters, 1 << 20).on_node(NODE_NAME, [("", ""); 0])
    }

    #[tokio::test]
    async fn the_labels_of_the_node_are_read_for_each_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let (cluster, hostpath) = on_node(&folder).await;
        let racked = || request(Parameters { node_affinity_key: Some("rack".to_owned()), ..Parameters::default() });
        let error = hostpath.provision(racked()).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Reschedule, "{error}");
        for rack in ["r1", "r2"] {
            label(&cluster, rack);
            let volume = format!("{:?}", hostpath.provision(racked()).await.unwrap());
            assert!(volume.contains(&format!("{rack:?}")), "{volume}");
        }
    }

    #[tokio::test]
    async fn warns_about_volumes_that_name_another_node() {
        let folder = tempfile::tempdir().unwrap();
        let (cluster, hostpath) = on_node(&folder).await;
        let root = Root::open(folder.path()).unwrap();
        let volume = |name: &str, root: &str, label: &str, value: &str| {
            let term = json!({"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]});
            let volume = json!({"metadata": {"name": name, "annotations":
                {"hostpath-provisioner/node": "node-b", "hostpath-provisioner/root": root}},
                "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
            serde_json::from_value(volume).unwrap()
        };
        let advice = async |volumes| {
            let start = StartContext::new(cluster.client("hostpath"), volumes);
            hostpath.node.as_ref().unwrap().advice(&root, &start).await
        };
        let elsewhere = volume("pv-1", "another root", "kubernetes.io/hostname", "node-b");
        assert!(advice(vec![elsewhere]).await.is_empty());
        let renamed = volume("pv-2", root.id().unwrap(), "kubernetes.io/hostname", "node-b");
        let told = advice(vec![renamed]).await;
        assert!(told.len() == 1 && told[0].contains("such as pv-2 on node-b"), "{told:?}");
        let alike = volume("pv-3", "another root", "kubernetes.io/hostname", NODE_NAME);
        let told = advice(vec![alike, volume("pv-4", "another root", "rack", NODE_NAME)]).await;
        assert!(told.len() == 1 && told[0].starts_with("the nodes node-a and node-b have the same value"), "{told:?}");
    }

    /// The PersistentVolumes contain the root's former path.
    #[tokio::test]
    async fn a_root_that_was_moved_behind_a_symlink_keeps_its_volumes() {
        let folder = tempfile::tempdir().unwrap();
        let (before, now) = (folder.path().join("before"), folder.path().join("now"));
        std::fs::create_dir(&before).unwrap();
        std::fs::set_permissions(&before, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let made = HostPath::new(Worker::new(Root::open(&before).unwrap()), None);
        made.disks.worker_for_class(None).unwrap().root().put_marker().unwrap();
        let request = request(Parameters::default());
        let name = request.name.clone();
        drop(made.provision(request).await.unwrap());
        std::fs::rename(&before, &now).unwrap();
        std::os::unix::fs::symlink(&now, &before).unwrap();
        let moved = HostPath::new(Worker::new(Root::open(&before).unwrap()), None);
        for path in [before.join(&name), now.join(&name)] {
            let volume = json!({"metadata": {"name": name}, "spec": {"hostPath": {"path": path}}});
            let volume = serde_json::from_value(volume).unwrap();
            let worker = moved.disks.worker_for_volume(&volume).unwrap();
            assert_eq!(path_of(&volume, worker.root()).unwrap().as_str(), name, "{}", path.display());
        }
    }

    /// The claim has moved to another node.
    #[tokio::test]
    async fn keeps_a_directory_that_another_nodes_volume_may_use() {
        for (root, stays) in [(Some("own"), true), (None, true), (Some("the root of another node"), false)] {
            let folder = tempfile::tempdir().unwrap();
            let (cluster, hostpath) = on_node(&folder).await;
            let own = Root::open(folder.path()).unwrap();
            let root = if root == Some("own") { own.id() } else { root };
            let annotations = root.map_or_else(|| json!({}), |root| json!({ANNOTATIONS.root: root}));
            let attempt = request(Parameters::default());
            drop(hostpath.provision(attempt.clone()).await.unwrap());
            let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": attempt.name, "annotations": annotations},
                "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}}});
            cluster.create(&volume).unwrap();
            hostpath.clean_up(attempt.clone()).await.unwrap();
            assert_eq!(folder.path().join(&attempt.name).exists(), stays, "{root:?}");
        }
    }

    /// With the uid, the mark proves ownership after the volume was bound to another claim.
    #[tokio::test(start_paused = true)]
    async fn records_the_uid_of_a_new_volume_in_its_mark() {
        let folder = tempfile::tempdir().unwrap();
        let (cluster, hostpath) = on_node(&folder).await;
        let request = request(Parameters::default());
        let (name, namespace) = (request.name.clone(), request.namespace().to_owned());
        let uid = request.claim.metadata.uid.clone();
        drop(hostpath.provision(request).await.unwrap());
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"},
                "claimRef": {"namespace": namespace, "name": "claim", "uid": uid}}});
        let volume = cluster.create(&volume).unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        let root = Root::open(folder.path()).unwrap();
        let marks = root.survey().unwrap().marked;
        assert_eq!(marks[0].mark.volume_uid.as_deref(), volume["metadata"]["uid"].as_str(), "{marks:?}");
    }

    #[tokio::test]
    async fn reschedules_claims_that_this_node_cannot_provision() {
        let folder = tempfile::tempdir().unwrap();
        let (_cluster, hostpath) = on_node(&folder).await;
        let limited = || Parameters { enforce_size: Some(true), ..Parameters::default() };
        let verdict = async |hostpath: &HostPath, parameters, resumed: Option<Duration>| {
            let mut request = request(parameters);
            request.resumed = resumed.is_some();
            request.claim_seen -= resumed.unwrap_or_default();
            hostpath.provision(request).await.unwrap_err().verdict()
        };
        for resumed in [None, Some(MAX_REQUEST_DURATION)] {
            assert_eq!(verdict(&hostpath, limited(), resumed).await, ProvisionVerdict::Reschedule);
        }
        // A process that was killed may still save the volume.
        assert_eq!(verdict(&hostpath, limited(), Some(Duration::ZERO)).await, ProvisionVerdict::Retry);
        let alone = HostPath::new(Worker::new(Root::open(folder.path()).unwrap()), None);
        assert_eq!(verdict(&alone, limited(), None).await, ProvisionVerdict::NothingLeft, "there is no other node");
        // The disk is not mounted, so its contents are unknown.
        std::fs::remove_dir_all(folder.path().join(".kube-provisioner")).unwrap();
        assert_eq!(verdict(&hostpath, Parameters::default(), None).await, ProvisionVerdict::Reschedule);
        assert_eq!(
            verdict(&hostpath, Parameters::default(), Some(MAX_REQUEST_DURATION)).await,
            ProvisionVerdict::Retry
        );
    }

    #[tokio::test]
    async fn reschedules_volumes_that_have_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let (_cluster, hostpath) = on_node(&folder).await;
        let asks = |reserve: Option<&str>| {
            let reserve = reserve.map(|text| text.parse().unwrap());
            let mut request = request(Parameters { reserve, ..Parameters::default() });
            request.bytes = 1 << 60;
            request
        };
        let error = hostpath.provision(asks(Some("5%"))).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Reschedule);
        assert!(error.to_string().contains("has no room for a volume of 1Ei"), "{error}");
        // Without enforcement any size is accepted, and the existing volume already has its space.
        for reserve in [None, Some("5%")] {
            drop(hostpath.provision(asks(reserve)).await.unwrap());
        }
    }

    /// The node lacks SELinux.
    #[tokio::test]
    async fn removes_a_directory_that_cannot_be_labelled() {
        if Path::new("/sys/fs/selinux/enforce").exists() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (_cluster, hostpath) = on_node(&folder).await;
        let se_linux_label = Some("system_u:object_r:container_file_t:s0".parse().unwrap());
        let labelled = request(Parameters { se_linux_label, ..Parameters::default() });
        let error = hostpath.provision(labelled).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Reschedule);
        assert!(error.to_string().contains("SELinux is not enabled on this node"), "{error}");
        assert!(entries(folder.path()).is_empty());
    }

    #[test]
    fn distinguishes_a_full_disk_from_other_failures() {
        let error = |kind: std::io::ErrorKind| {
            let (doing, name) = ("cannot create", "pvc-1".to_owned());
            ProvisionError::from(DirectoryError::Io { doing, name, source: kind.into() })
        };
        assert!(is_of_this_node(&error(std::io::ErrorKind::StorageFull)));
        assert!(!is_of_this_node(&error(std::io::ErrorKind::PermissionDenied)));
        assert!(!is_of_this_node(&ProvisionError::retry("the file system is full")));
    }

    /// Returns the same provisioner as `main` starts.
    fn conformance(folder: &TempDir, node: Option<&'static str>) -> Conformance {
        let (root, listed) = (folder.path().to_owned(), folder.path().to_owned());
        let start = move || HostPath::new(Worker::new(Root::open(&root).unwrap()), node.map(str::to_owned));
        Conformance::new(start, async move || entries(&listed)).refuses([("path", "/etc")])
    }
}
