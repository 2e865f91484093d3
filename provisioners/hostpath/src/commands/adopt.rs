//! `adopt`: a directory becomes a volume, or a volume of another program becomes ours.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use directory_volumes::{Owner, Root, VolumePath};
use kube_provisioner::k8s_openapi::api::core::v1::{
    HostPathVolumeSource, LocalVolumeSource, PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity,
};
use kube_provisioner::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_provisioner::kube::api::{Patch, PatchParams, PostParams};
use kube_provisioner::kube::{Api, Client};
use kube_provisioner::protocol::{FINALIZER, IDENTITY, PROVISIONED_BY};
use kube_provisioner::{quantity, topology};
use serde_json::json;

use super::trash::reference;
use super::{BoxError, Place, print};
use crate::node::Node;
use crate::parameters::VolumeType;
use crate::placement::{NodePlace, ROOT, owner_of, path_of};

#[derive(Args)]
pub(crate) struct Adopt {
    /// The directory below the root; a volume is made for it
    #[arg(required_unless_present = "volume", requires_all = ["claim", "size", "storage_class"])]
    directory: Option<PathBuf>,

    /// A volume that is there already, made by another program, with its directory below the root
    #[arg(long, value_name = "NAME", conflicts_with = "directory")]
    volume: Option<String>,

    /// The claim that gets the volume
    #[arg(long, value_name = "NAMESPACE/NAME")]
    claim: Option<String>,

    /// The volume's size, such as 10Gi
    #[arg(long, value_name = "QUANTITY")]
    size: Option<String>,

    /// The volume's StorageClass
    #[arg(long, value_name = "NAME")]
    storage_class: Option<String>,

    /// The volume's name [default: made of the directory's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// What the volume can be used for
    #[arg(long, value_name = "MODE", default_value = "ReadWriteOnce")]
    access_mode: Vec<String>,

    /// What becomes of the data when the claim is deleted
    #[arg(long, value_name = "POLICY", default_value = "Retain", value_parser = ["Retain", "Delete"])]
    reclaim_policy: String,

    /// The volume's source: hostPath or local
    #[arg(long, value_name = "SOURCE", default_value = "hostPath")]
    volume_type: VolumeType,

    #[command(flatten)]
    place: Place,
}

impl Adopt {
    pub(crate) async fn carry_out(self) -> Result<(), BoxError> {
        let (root, client) = (self.place.root()?, self.place.client().await?);
        let node = match &self.place.node_name {
            Some(name) => {
                let node = Node::new(name.clone());
                node.look(&client).await?;
                Some(node.place(None)?)
            }
            None => None,
        };
        let adoption = Adoption { root, client, node };
        match (&self.volume, &self.directory) {
            (Some(volume), _) => adoption.volume(volume, &self.place).await,
            (None, Some(directory)) => adoption.directory(directory, &self).await,
            (None, None) => Err("name a directory, or a volume with --volume".into()),
        }
    }
}

struct Adoption {
    root: Root,
    client: Client,
    node: Option<NodePlace>,
}

impl Adoption {
    /// Marks the directory of a volume that is there, and says on the volume what ours say.
    async fn volume(&self, name: &str, place: &Place) -> Result<(), BoxError> {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let volume = volumes.get(name).await?;
        let owner = owner_of(&volume);
        if owner.provisioner.is_empty() {
            return Err(format!(
                "the volume {name} has no annotation {PROVISIONED_BY}, so nobody would ever delete it"
            )
            .into());
        }
        self.check_node(&volume)?;
        let path = path_of(&volume, &self.root)?;
        self.root.adopt(&path, &owner)?;
        let patch = json!({"metadata": {
            "uid": volume.metadata.uid,
            "annotations": self.annotations(place),
        }});
        volumes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        print(&format!(
            "{name} is a volume of this installation, at {}\n",
            self.root.path().join(path.as_str()).display()
        ));
        if owner.provisioner != place.provisioner_name {
            print(&format!(
                "its maker was {by}: start the provisioner with --additional-provisioner-names {by}, and stop {by}\n",
                by = owner.provisioner
            ));
        }
        Ok(())
    }

    /// Marks a directory, and makes a volume for it that only one claim can get.
    async fn directory(&self, directory: &std::path::Path, adopt: &Adopt) -> Result<(), BoxError> {
        let directory = match directory.is_absolute() {
            true => directory.to_owned(),
            false => self.root.path().join(directory),
        };
        let path = VolumePath::below(self.root.path(), directory.to_str().ok_or("the path is no UTF-8")?)?;
        let name = adopt.name.clone().unwrap_or_else(|| name_of(&path));
        let object = self.object(&path, &name, adopt)?;
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        // What the API server refuses leaves no mark.
        volumes.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await?;
        let mut owner = owner_of(&object);
        owner.claim = None;
        self.root.adopt(&path, &owner)?;
        match volumes.create(&PostParams::default(), &object).await {
            Ok(created) => self.root.note_uid(&path, &Owner { uid: created.metadata.uid, ..owner })?,
            Err(error) => {
                self.root.disown(&path, &owner)?;
                return Err(error.into());
            }
        }
        print(&format!("{name} is the volume of {}\n", directory.display()));
        Ok(())
    }

    fn object(&self, path: &VolumePath, name: &str, adopt: &Adopt) -> Result<PersistentVolume, BoxError> {
        let size = adopt.size.clone().unwrap_or_default();
        quantity::parse_bytes(&size)?;
        let mut annotations = self.annotations(&adopt.place);
        annotations.insert(PROVISIONED_BY.to_owned(), adopt.place.provisioner_name.clone());
        let directory = self.root.path().join(path.as_str()).to_string_lossy().into_owned();
        let (mut host_path, mut local) = (None, None);
        match (adopt.volume_type, &self.node) {
            (VolumeType::Local, Some(_)) => local = Some(LocalVolumeSource { path: directory, fs_type: None }),
            (VolumeType::Local, None) => return Err("--volume-type local needs --node-name".into()),
            (VolumeType::HostPath, _) => {
                host_path = Some(HostPathVolumeSource { path: directory, type_: Some("Directory".to_owned()) });
            }
        }
        Ok(PersistentVolume {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                annotations: Some(annotations),
                finalizers: Some(vec![FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: Some(PersistentVolumeSpec {
                access_modes: Some(adopt.access_mode.clone()),
                capacity: Some(BTreeMap::from([("storage".to_owned(), Quantity(size))])),
                claim_ref: adopt.claim.as_deref().map(reference).transpose()?,
                persistent_volume_reclaim_policy: Some(adopt.reclaim_policy.clone()),
                storage_class_name: adopt.storage_class.clone(),
                node_affinity: self
                    .node
                    .as_ref()
                    .map(|node| VolumeNodeAffinity { required: Some(topology::nodes_with(&node.label, &node.value)) }),
                host_path,
                local,
                ..PersistentVolumeSpec::default()
            }),
            status: None,
        })
    }

    /// The volume of another node is there, not here.
    fn check_node(&self, volume: &PersistentVolume) -> Result<(), BoxError> {
        let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
        let terms = affinity.into_iter().flat_map(|required| &required.node_selector_terms);
        let mut values =
            terms.flat_map(|term| term.match_expressions.iter().flatten()).flat_map(|one| one.values.iter().flatten());
        match (&self.node, values.next()) {
            (_, None) => Ok(()),
            (None, Some(there)) => {
                Err(format!("the volume is on the node {there}; say with --node-name which one this is").into())
            }
            (Some(node), Some(there)) => {
                match *there == node.value || node.annotations.iter().any(|(_, name)| name == there) {
                    true => Ok(()),
                    false => Err(format!("the volume is on the node {there}, this is {}", node.value).into()),
                }
            }
        }
    }

    fn annotations(&self, place: &Place) -> BTreeMap<String, String> {
        let identity = place.identity.as_ref().or(place.node_name.as_ref()).or(place.namespace.as_ref());
        let identity = identity.map_or_else(|| self.client.default_namespace().to_owned(), Clone::clone);
        let root = self.root.id().map(|id| (ROOT.to_owned(), id.to_owned()));
        let node =
            self.node.iter().flat_map(|node| &node.annotations).map(|(key, value)| ((*key).to_owned(), value.clone()));
        node.chain(root).chain([(IDENTITY.to_owned(), identity)]).collect()
    }
}

/// Volumes are called like hosts.
fn name_of(path: &VolumePath) -> String {
    let text = path.as_str().to_lowercase().replace(['/', '_'], "-");
    text.trim_matches(|letter| matches!(letter, '-' | '.')).to_owned()
}
