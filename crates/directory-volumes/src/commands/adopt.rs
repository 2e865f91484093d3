//! `adopt`: a directory becomes a volume, or a volume of another program becomes ours.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use kube_provisioner::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_provisioner::kube::api::{Patch, PatchParams, PostParams};
use kube_provisioner::kube::{Api, Client};
use kube_provisioner::protocol::{FINALIZER, IDENTITY, PROVISIONED_BY};
use kube_provisioner::quantity;
use serde_json::json;

use super::trash::reference;
use super::{BoxError, Maker, Site, print};
use crate::deletion::owner_of;
use crate::mark::Owner;
use crate::path::VolumePath;
use crate::root::Root;

/// The command and its arguments.
#[derive(Debug, Args)]
pub struct Adopt<S: Site> {
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

    #[command(flatten)]
    source: S::Source,

    #[command(flatten)]
    site: S,
}

impl<S: Site> Adopt<S> {
    pub(crate) async fn carry_out(self) -> Result<(), BoxError> {
        let (root, client) = (self.site.checked_root()?, self.site.connection().client().await?);
        let maker = self.site.maker(&self.source, &client).await?;
        let adoption = Adoption { root, client, maker, adopt: &self };
        match (&self.volume, &self.directory) {
            (Some(volume), _) => adoption.volume(volume).await,
            (None, Some(directory)) => adoption.directory(directory).await,
            (None, None) => Err("name a directory, or a volume with --volume".into()),
        }
    }
}

struct Adoption<'a, S: Site> {
    root: Root,
    client: Client,
    maker: Box<dyn Maker>,
    adopt: &'a Adopt<S>,
}

impl<S: Site> Adoption<'_, S> {
    /// Marks the directory of a volume that is there, and says on the volume what ours say.
    async fn volume(&self, name: &str) -> Result<(), BoxError> {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let volume = volumes.get(name).await?;
        let owner = owner_of(&volume);
        if owner.provisioner.is_empty() {
            return Err(format!(
                "the volume {name} has no annotation {PROVISIONED_BY}, so nobody would ever delete it"
            )
            .into());
        }
        self.maker.check(&volume)?;
        let path = self.adopt.site.path_of(&volume, &self.root)?;
        self.root.adopt(&path, &owner)?;
        self.adopt.site.came(&self.root, &path, &volume).await?;
        let patch = json!({"metadata": {
            "uid": volume.metadata.uid,
            "annotations": self.annotations(Some(&volume)),
        }});
        volumes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        print(&format!(
            "{name} is a volume of this installation, at {}\n",
            self.root.path().join(path.as_str()).display()
        ));
        if owner.provisioner != self.adopt.site.connection().provisioner_name {
            print(&format!(
                "its maker was {by}: start the provisioner with --additional-provisioner-names {by}, and stop {by}\n",
                by = owner.provisioner
            ));
        }
        Ok(())
    }

    /// Marks a directory, and makes a volume for it that only one claim can get.
    async fn directory(&self, directory: &Path) -> Result<(), BoxError> {
        let directory = match directory.is_absolute() {
            true => directory.to_owned(),
            false => self.root.path().join(directory),
        };
        let path = VolumePath::below(self.root.path(), directory.to_str().ok_or("the path is no UTF-8")?)?;
        let name = self.adopt.name.clone().unwrap_or_else(|| name_of(&path));
        let object = self.object(&path, &name)?;
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        // What the API server refuses leaves no mark.
        volumes.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await?;
        let mut owner = owner_of(&object);
        owner.claim = None;
        self.root.adopt(&path, &owner)?;
        self.adopt.site.came(&self.root, &path, &object).await?;
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

    fn object(&self, path: &VolumePath, name: &str) -> Result<PersistentVolume, BoxError> {
        let adopt = self.adopt;
        let size = adopt.size.clone().unwrap_or_default();
        quantity::parse_bytes(&size)?;
        let mut annotations = self.annotations(None);
        annotations.insert(PROVISIONED_BY.to_owned(), adopt.site.connection().provisioner_name.clone());
        let mut spec = PersistentVolumeSpec {
            access_modes: Some(adopt.access_mode.clone()),
            capacity: Some(BTreeMap::from([("storage".to_owned(), Quantity(size))])),
            claim_ref: adopt.claim.as_deref().map(reference).transpose()?,
            persistent_volume_reclaim_policy: Some(adopt.reclaim_policy.clone()),
            storage_class_name: adopt.storage_class.clone(),
            ..PersistentVolumeSpec::default()
        };
        self.maker.fill(&mut spec, &self.root, path)?;
        Ok(PersistentVolume {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                annotations: Some(annotations),
                finalizers: Some(vec![FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
            status: None,
        })
    }

    fn annotations(&self, volume: Option<&PersistentVolume>) -> BTreeMap<String, String> {
        let connection = self.adopt.site.connection();
        let identity = connection.identity.as_ref().or(connection.node_name.as_ref()).or(connection.namespace.as_ref());
        let identity = identity.map_or_else(|| self.client.default_namespace().to_owned(), Clone::clone);
        let root = self.root.id().map(|id| (S::ANNOTATIONS.root.to_owned(), id.to_owned()));
        self.maker.annotations(volume).into_iter().chain(root).chain([(IDENTITY.to_owned(), identity)]).collect()
    }
}

/// Volumes are called like hosts.
fn name_of(path: &VolumePath) -> String {
    let text = path.as_str().to_lowercase().replace(['/', '_'], "-");
    text.trim_matches(|letter| matches!(letter, '-' | '.')).to_owned()
}
