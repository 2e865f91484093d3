//! The provisioner: a directory per volume, named like the volume.

use std::path::PathBuf;
use std::sync::Arc;

use kube_provisioner::{
    DeleteError, FencingToken, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Start, StartError,
    Volume,
};
use tokio::task::spawn_blocking;

use crate::node::Node;
use crate::parameters::{OnDelete, Parameters, VolumeType};
use crate::root::{Permissions, Root, RootError};

/// On a volume: what becomes of its data. The class may be gone by then.
const ON_DELETE: &str = "hostpath-provisioner/on-delete";

pub(crate) struct HostPath {
    root: Arc<Root>,
    /// The node that the root directory is on, where there are several.
    node: Option<Node>,
}

impl HostPath {
    pub(crate) fn new(root: Root, node: Option<String>) -> Self {
        Self { root: Arc::new(root), node: node.map(Node::new) }
    }

    /// Deletions that an earlier run did not finish: their volumes may be gone, so nobody would ask again.
    pub(crate) fn finish_deletions(&self) {
        let root = self.root.clone();
        spawn_blocking(move || match root.finish_removals(&FencingToken::unlimited()) {
            Ok(()) => {}
            Err(error) => tracing::warn!("a deletion of an earlier run is not finished: {error}"),
        });
    }

    /// A dropped call must not leave a thread behind that goes on deleting for hours, so that asks its fencing token.
    async fn remove(&self, name: String, fencing_token: FencingToken) -> Result<(), DeleteError> {
        let root = self.root.clone();
        match spawn_blocking(move || root.remove(&name, &fencing_token)).await? {
            Err(error @ RootError::Busy { .. }) => Err(DeleteError::in_use(error)),
            result => Ok(result?),
        }
    }
}

impl Provisioner for HostPath {
    type Parameters = Parameters;

    async fn start(&self, start: Start) -> Result<(), StartError> {
        match &self.node {
            Some(node) => node.look(start.client()).await,
            None => Ok(()),
        }
    }

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let Parameters { mode, uid, gid, on_delete, volume_type } = (*request.parameters).clone();
        match (&self.node, &request.selected_node) {
            (Some(here), Some(selected)) if here.name() != selected => {
                let here = here.name();
                return Err(ProvisionError::not_mine(format!("the claim's pod runs on {selected}, this is {here}")));
            }
            (None, _) if volume_type == VolumeType::Local => {
                return Err(ProvisionError::invalid(
                    "volumeType local needs a provisioner that is started with --node-name",
                ));
            }
            _ => {}
        }
        let (root, permissions) = (self.root.clone(), Permissions { mode: mode.0, uid, gid });
        let create = move || root.create(&request.name, &permissions, &request.fencing_token);
        let path: PathBuf = spawn_blocking(create).await??;
        let path = path.to_string_lossy();
        let volume = match volume_type {
            VolumeType::HostPath => Volume::host_path(path),
            VolumeType::Local => Volume::local(path),
        };
        let volume = match on_delete {
            OnDelete::Delete => volume,
            OnDelete::Retain => volume.annotation(ON_DELETE, "retain"),
        };
        Ok(match &self.node {
            Some(node) => node.mark(volume),
            None => volume,
        })
    }

    /// The path is made of the volume's name. What the object says about it may be anybody's word.
    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        if let Some(node) = &self.node {
            node.check(&volume)?;
        }
        if volume.annotation(ON_DELETE) == Some("retain") {
            tracing::info!(pv = volume.name(), "the directory is kept, as the class said");
            return Ok(());
        }
        self.remove(volume.name().to_owned(), volume.fencing_token().clone()).await
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        self.remove(attempt.name, attempt.fencing_token).await
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
        let start = move || {
            let provisioner = HostPath::new(Root::open(&root).unwrap(), node.map(str::to_owned));
            provisioner.finish_deletions();
            provisioner
        };
        Conformance::new(start, async move || entries(&listed)).refuses([("path", "/etc")])
    }

    fn entries(root: &Path) -> Vec<String> {
        root.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}
