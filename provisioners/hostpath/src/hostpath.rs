//! The provisioner: a directory per volume.

use std::sync::Arc;

use directory_volumes::{DirectoryError, Root};
use kube_provisioner::{
    Capabilities, DeleteError, ExpandError, FencingToken, ProvisionError, ProvisionRequest, ProvisionedVolume,
    Provisioner, Start, StartError, Volume,
};
use tokio::task::spawn_blocking;

use crate::node::{Elsewhere, Node};
use crate::parameters::Parameters;
use crate::placement::{Deletion, Placement, Size, VOLUME_TYPE, owner_of, path_of};
use crate::upkeep;

pub(crate) struct HostPath {
    root: Arc<Root>,
    /// The node that the root directory is on, where there are several.
    node: Option<Node>,
}

impl HostPath {
    pub(crate) fn new(root: Arc<Root>, node: Option<String>) -> Self {
        Self { root, node: node.map(Node::new) }
    }
}

impl Provisioner for HostPath {
    type Parameters = Parameters;

    async fn start(&self, start: Start) -> Result<(), StartError> {
        if let Some(node) = &self.node {
            node.look(start.client()).await.map_err(StartError::new)?;
        }
        upkeep::begin(&self.root, self.node.as_ref(), &start).await
    }

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let place = Placement::of(&request, &self.root, self.node.as_ref())?;
        let size = Size::of(&request, &self.root)?;
        let (root, token) = (self.root.clone(), request.fencing_token.clone());
        let (path, owner, permissions) = (place.path.clone(), place.owner.clone(), request.parameters.permissions());
        let made = spawn_blocking(move || root.create(&path, &owner, &permissions, size.limit, &token)).await?;
        match made {
            Ok(path) => Ok(size.tell(place.volume(&path))),
            // It is not the directory of this volume, so no attempt for it has left anything there.
            Err(error @ (DirectoryError::Taken { .. } | DirectoryError::NotOurs { .. })) => {
                Err(ProvisionError::nothing_left(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the object says of its directory may be anybody's word: the mark of the directory says whose it is.
    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        if let Some(node) = &self.node {
            node.check(&volume, &self.root).map_err(Elsewhere::for_deletion)?;
        }
        let deletion = Deletion::of(&volume, &self.root)?;
        self.end(deletion, volume.fencing_token().clone()).await
    }

    async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
        if let Some(node) = &self.node {
            node.check(&volume, &self.root).map_err(Elsewhere::for_expansion)?;
        }
        let (root, path, owner) = (self.root.clone(), path_of(volume.object(), &self.root)?, owner_of(volume.object()));
        // A volume whose size is not enforced has room already.
        spawn_blocking(move || root.resize(&path, &owner, bytes)).await??;
        Ok(())
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().expansion().allowed_topologies().claim_annotations([VOLUME_TYPE])
    }

    async fn probe(&self) -> Result<(), StartError> {
        let root = self.root.clone();
        Ok(spawn_blocking(move || root.check()).await??)
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        match Deletion::of_attempt(&attempt) {
            Some(deletion) => self.end(deletion, attempt.fencing_token).await,
            None => Ok(()),
        }
    }
}

impl HostPath {
    /// A dropped call must not leave a thread behind that goes on deleting for hours, so that asks its fencing token.
    async fn end(&self, deletion: Deletion, token: FencingToken) -> Result<(), DeleteError> {
        let root = self.root.clone();
        match spawn_blocking(move || deletion.carry_out(&root, &token)).await? {
            Err(error @ DirectoryError::Busy { .. }) => Err(DeleteError::in_use(error)),
            result => Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kube_provisioner::conformance::Conformance;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn keeps_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        conformance(&folder, None).check();
    }

    #[test]
    fn keeps_the_contract_on_a_node() {
        let folder = tempfile::tempdir().unwrap();
        // Its label says another name, as in some clouds.
        let node = serde_json::json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-a", "labels": {"kubernetes.io/hostname": "host-a.internal"}}});
        conformance(&folder, Some("node-a")).node("node-a").objects([node]).check();
    }

    /// As `main` starts it.
    fn conformance(folder: &TempDir, node: Option<&'static str>) -> Conformance {
        let (root, listed) = (folder.path().to_owned(), folder.path().to_owned());
        let start = move || HostPath::new(Arc::new(Root::open(&root).unwrap()), node.map(str::to_owned));
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
