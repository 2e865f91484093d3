//! The provisioner's commands: the common commands of directory provisioners, for this node's root, and those for nodes
//! and disks.

mod gone_nodes;
mod objects;
mod root_disk;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use clap::{Args, Subcommand};
use directory_volumes::commands::Place;
use directory_volumes::{Annotations, DirectoryError, Root, VolumePath, commands};
use kube_provisioner::k8s_openapi::api::core::v1::{
    HostPathVolumeSource, LocalVolumeSource, NodeSelectorRequirement, PersistentVolume, PersistentVolumeSpec,
    VolumeNodeAffinity,
};
use kube_provisioner::kube::Client;
use kube_provisioner::protocol::HOSTNAME_LABEL;
use kube_provisioner::topology;

use self::objects::annotation;
use crate::node::{NODE, Node};
use crate::parameters::VolumeType;
use crate::placement::{ANNOTATIONS, NodeTopology, path_of};
use crate::roots::{self, RootName};

type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Subcommand)]
pub(crate) enum Commands {
    #[command(flatten)]
    Shared(Box<commands::Commands<Site>>),
    /// Find volumes of nodes that no longer exist, and delete them after a grace period
    GoneNodes(gone_nodes::GoneNodes),
    /// Recover from a replaced disk or a renamed node
    Root(root_disk::RootDisk),
}

impl Commands {
    pub(crate) async fn execute(self) -> Result<(), BoxError> {
        match self {
            Self::Shared(command) => command.execute().await,
            Self::GoneNodes(command) => command.execute().await,
            Self::Root(command) => command.execute().await,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Site {
    /// Value of the provisioner's --root
    #[arg(long = "root", env = "HOSTPATH_ROOT", value_name = "[NAME=]DIR", value_delimiter = ',', required = true)]
    roots: Vec<RootName>,

    /// Name of the root to work on [default: the root without a name]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    root_name: String,

    #[command(flatten)]
    connection: commands::Connection,
}

#[derive(Debug, Args)]
pub(crate) struct Source {
    /// The volume's source: hostPath or local
    #[arg(long, value_name = "SOURCE", default_value = "hostPath")]
    volume_type: VolumeType,
}

impl Site {
    /// Returns the directory of the selected root.
    fn directory(&self) -> Result<&Path, BoxError> {
        roots::check(&self.roots)?;
        let root = match &self.roots[..] {
            [only] if self.root_name.is_empty() => Some(only),
            roots => roots.iter().find(|root| root.name == self.root_name),
        };
        match root {
            Some(root) => Ok(&root.directory),
            None if self.root_name.is_empty() => Err("every root has a name: select one with --root-name".into()),
            None => Err(format!("there is no root named {}", self.root_name).into()),
        }
    }
}

impl commands::Site for Site {
    const ANNOTATIONS: Annotations = ANNOTATIONS;
    type Source = Source;

    fn root(&self) -> Result<Root, BoxError> {
        Ok(Root::open(self.directory()?)?)
    }

    fn places(&self, root: &Root) -> Vec<Place> {
        let given = self.directory().ok().map(Path::to_owned);
        [Some(root.path().to_owned()), given].into_iter().flatten().map(Place::Directory).collect()
    }

    fn connection(&self) -> &commands::Connection {
        &self.connection
    }

    fn path_of(&self, volume: &PersistentVolume, root: &Root) -> Result<VolumePath, DirectoryError> {
        path_of(volume, root)
    }

    fn is_elsewhere(&self, volume: &PersistentVolume) -> bool {
        let Some(here) = &self.connection.node_name else { return false };
        match annotation(volume, NODE) {
            Some(there) => there != here,
            None => {
                let expressions = expressions(volume).filter(|expression| expression.key == HOSTNAME_LABEL);
                let mut nodes = expressions.flat_map(|expression| expression.values.iter().flatten()).peekable();
                nodes.peek().is_some() && nodes.all(|there| there != here)
            }
        }
    }

    async fn template(&self, source: &Source, client: &Client) -> Result<Box<dyn commands::VolumeTemplate>, BoxError> {
        let node = match &self.connection.node_name {
            Some(name) => Some(Node::new(name.clone()).start(client).await?.place(None)?),
            None => None,
        };
        Ok(Box::new(VolumeTemplate { node, volume_type: source.volume_type }))
    }
}

/// Returns the expressions in a volume's node affinity.
fn expressions(volume: &PersistentVolume) -> impl Iterator<Item = &NodeSelectorRequirement> {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let terms = affinity.into_iter().flat_map(|required| &required.node_selector_terms);
    terms.flat_map(|term| term.match_expressions.iter().flatten())
}

struct VolumeTemplate {
    node: Option<NodeTopology>,
    volume_type: VolumeType,
}

impl commands::VolumeTemplate for VolumeTemplate {
    /// Refuses another node's volume: its directory is not on this node. With `nodeAffinityKey`, only the annotation of
    /// a volume names its node.
    fn check(&self, volume: &PersistentVolume) -> Result<(), BoxError> {
        let values = expressions(volume).flat_map(|expression| expression.values.iter().flatten());
        let mut names = annotation(volume, NODE).into_iter().chain(values.map(String::as_str));
        match (&self.node, names.next()) {
            (_, None) => Ok(()),
            (None, Some(there)) => {
                Err(format!("the volume is on the node {there}; specify this node with --node-name").into())
            }
            (Some(node), Some(there)) => {
                if *there == node.value || node.annotations.iter().any(|(_, name)| name == there) {
                    Ok(())
                } else {
                    Err(format!("the volume is on the node {there}, but this node is {}", node.value).into())
                }
            }
        }
    }

    fn annotations(&self, _: Option<&PersistentVolume>) -> BTreeMap<String, String> {
        let of_node = self.node.iter().flat_map(|node| &node.annotations);
        of_node.map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    }

    fn fill(&self, spec: &mut PersistentVolumeSpec, root: &Root, path: &VolumePath) -> Result<(), BoxError> {
        let directory = root.path().join(path.as_str()).to_string_lossy().into_owned();
        match (self.volume_type, &self.node) {
            (VolumeType::Local, Some(_)) => {
                spec.local = Some(LocalVolumeSource { path: directory, fs_type: None });
            }
            (VolumeType::Local, None) => return Err("--volume-type local needs --node-name".into()),
            (VolumeType::HostPath, _) => {
                spec.host_path = Some(HostPathVolumeSource { path: directory, type_: Some("Directory".to_owned()) });
            }
        }
        let affinity = |node: &NodeTopology| topology::nodes_with(&node.label, &node.value);
        spec.node_affinity = self.node.as_ref().map(|node| VolumeNodeAffinity { required: Some(affinity(node)) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use directory_volumes::commands::VolumeTemplate as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_node_annotation_takes_precedence_over_the_affinity() {
        let (label, value, annotations) =
            (HOSTNAME_LABEL.to_owned(), "host-a".to_owned(), vec![(NODE, "node-a".to_owned())]);
        let template = VolumeTemplate {
            node: Some(NodeTopology { label, value, annotations }),
            volume_type: VolumeType::HostPath,
        };
        let is_here = |node: Option<&str>, value: &str| {
            let term = json!({"matchExpressions": [{"key": "key", "operator": "In", "values": [value]}]});
            let volume = json!({"metadata": {"annotations": node.map(|node| json!({NODE: node}))},
                "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
            template.check(&serde_json::from_value(volume).unwrap()).is_ok()
        };
        assert!(is_here(Some("node-a"), "rack-1") && !is_here(Some("node-b"), "rack-1"));
        assert!(is_here(None, "host-a") && is_here(None, "node-a") && !is_here(None, "host-b"));
    }
}
