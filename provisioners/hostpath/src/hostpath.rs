//! The provisioner: a directory per volume, named like the volume.

use std::path::PathBuf;
use std::sync::Arc;

use kube_provisioner::{
    DeleteError, FencingToken, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Volume,
};
use tokio::task::spawn_blocking;

use crate::root::{Root, RootError};

pub(crate) struct HostPath {
    root: Arc<Root>,
    /// The node that the root directory is on, where there are several.
    node: Option<String>,
}

impl HostPath {
    pub(crate) fn new(root: Root, node: Option<String>) -> Self {
        Self { root: Arc::new(root), node }
    }

    /// Deletions that an earlier run did not finish: their volumes may be gone, so nobody would ask again.
    pub(crate) fn finish_deletions(&self) {
        let root = self.root.clone();
        spawn_blocking(move || match root.finish_removals(&FencingToken::unlimited()) {
            Ok(()) => {}
            Err(error) => tracing::warn!("a deletion of an earlier run is not finished: {error}"),
        });
    }
}

impl HostPath {
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
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        if let (Some(here), Some(selected)) = (&self.node, &request.selected_node)
            && here != selected
        {
            return Err(ProvisionError::not_mine(format!("the claim's pod runs on {selected}, this is {here}")));
        }
        let root = self.root.clone();
        let path: PathBuf = spawn_blocking(move || root.create(&request.name, &request.fencing_token)).await??;
        let volume = Volume::host_path(path.to_string_lossy());
        Ok(match &self.node {
            Some(node) => volume.on_node(node),
            None => volume,
        })
    }

    /// The path is made of the volume's name. What the object says about it may be anybody's word.
    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        if let (Some(here), Some(there)) = (&self.node, node_of(&volume))
            && here != there
        {
            return Err(DeleteError::not_mine(format!("the volume is on {there}, this is {here}")));
        }
        self.remove(volume.name().to_owned(), volume.fencing_token().clone()).await
    }

    async fn clean_up(&self, attempt: ProvisionRequest<()>) -> Result<(), DeleteError> {
        self.remove(attempt.name, attempt.fencing_token).await
    }
}

fn node_of(volume: &ProvisionedVolume) -> Option<&str> {
    let affinity = volume.object().spec.as_ref()?.node_affinity.as_ref()?;
    let term = affinity.required.as_ref()?.node_selector_terms.first()?;
    let expression = term.match_expressions.as_ref()?.first()?;
    expression.values.as_ref()?.first().map(String::as_str)
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
        conformance(&folder, Some("node-a")).node("node-a").check();
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
