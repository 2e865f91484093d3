//! The provisioner: a directory per volume.

use directory_volumes::{Deletion, Worker, owner_here, retains, whose};
use kube_provisioner::{
    Capabilities, DeleteError, ExpandError, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Start,
    StartError, Volume,
};

use crate::node::{Elsewhere, NODE, Node};
use crate::parameters::Parameters;
use crate::placement::{ANNOTATIONS, Placement, VOLUME_TYPE, path_of};
use crate::registration;

pub(crate) struct HostPath {
    worker: Worker,
    /// The node that the root directory is on, where there are several.
    node: Option<Node>,
}

impl HostPath {
    pub(crate) fn new(worker: Worker, node: Option<String>) -> Self {
        Self { worker, node: node.map(Node::new) }
    }
}

impl Provisioner for HostPath {
    type Parameters = Parameters;

    async fn start(&self, start: Start) -> Result<(), StartError> {
        if let Some(node) = &self.node {
            node.look(&start.client).await.map_err(StartError::new)?;
        }
        if let Some(advice) = self.worker.root().advice() {
            tracing::warn!("{advice}");
        }
        let is_here = |volume: &ProvisionedVolume| {
            self.node.as_ref().is_none_or(|node| volume.annotation(NODE) == Some(node.name()))
        };
        self.worker.begin(&ANNOTATIONS, &start, is_here).await?;
        match &self.node {
            Some(node) => registration::again(&self.worker, node, &start).await,
            None => Ok(()),
        }
    }

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let place = Placement::of(&request, self.node.as_ref())?;
        let (bytes, enforced) = (request.bytes, request.parameters.enforce_size);
        let (retain, permissions, token) =
            (retains(&request), request.parameters.permissions(), request.fencing_token.clone());
        let (path, owner) = (place.path.clone(), place.owner.clone());
        let (path, size) = self.worker.create(path, owner, retain, permissions, (bytes, enforced), token).await?;
        Ok(size.tell(place.volume(&path, self.worker.root())))
    }

    /// What the object says of its directory may be anybody's word: the mark of the directory names its owner.
    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        if let Some(node) = &self.node {
            node.check(&volume, self.worker.root()).map_err(Elsewhere::for_deletion)?;
        }
        let path = path_of(&volume.object, self.worker.root())?;
        let deletion = Deletion::of(&volume, path, &ANNOTATIONS, self.worker.root())?;
        self.worker.end(deletion, volume.fencing_token.clone()).await
    }

    async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
        let root = self.worker.root();
        if let Some(node) = &self.node {
            node.check(&volume, root).map_err(Elsewhere::for_expansion)?;
        }
        self.worker.resize(path_of(&volume.object, root)?, owner_here(&volume), bytes).await
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().expansion().allowed_topologies().claim_annotations([VOLUME_TYPE])
    }

    async fn probe(&self) -> Result<(), StartError> {
        self.worker.probe().await
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        match whose(&attempt, &attempt.parameters.path_pattern) {
            Ok((path, owner)) => {
                self.worker.end(Deletion::of_attempt(path, owner), attempt.fencing_token.clone()).await
            }
            // It was refused before anything was made.
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use directory_volumes::Root;
    use directory_volumes::hostile::contract;
    use kube_provisioner::conformance::Conformance;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn keeps_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        contract(conformance(&folder, None), folder.path());
    }

    #[test]
    fn keeps_the_contract_on_a_node() {
        let folder = tempfile::tempdir().unwrap();
        // Its label says another name, as in some clouds.
        let node = serde_json::json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-a", "labels": {"kubernetes.io/hostname": "host-a.internal"}}});
        contract(conformance(&folder, Some("node-a")).node("node-a").objects([node]), folder.path());
    }

    /// As `main` starts it.
    fn conformance(folder: &TempDir, node: Option<&'static str>) -> Conformance {
        let (root, listed) = (folder.path().to_owned(), folder.path().to_owned());
        let start = move || HostPath::new(Worker::new(Root::open(&root).unwrap()), node.map(str::to_owned));
        Conformance::new(start, async move || entries(&listed)).refuses([("path", "/etc")])
    }

    /// The volumes, and what is kept of them.
    fn entries(root: &Path) -> Vec<String> {
        let own = root.join(".kube-provisioner");
        let places = [root.to_owned(), own.join("volumes"), own.join("deleting")];
        let names = places.iter().filter_map(|place| place.read_dir().ok()).flatten();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != ".kube-provisioner");
        names.sort();
        names.dedup();
        names
    }
}
