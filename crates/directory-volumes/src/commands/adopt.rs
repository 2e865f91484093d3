//! `adopt`: turns a directory into a volume, or takes over a volume of another provisioner.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use kube_provisioner::console::print;
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use kube_provisioner::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_provisioner::kube::api::{Patch, PatchParams, PostParams};
use kube_provisioner::kube::{Api, Client};
use kube_provisioner::protocol::{ADOPTED, CLUSTER_ID, FINALIZER, IDENTITY, PROVISIONED_BY, RELEASE};
use kube_provisioner::{error_chain, quantity};
use serde_json::json;

use super::restored::AdoptionPlan;
use super::trash::reference;
use super::volumes::{LocatedVolume, Relation, Volumes};
use super::{BoxError, Place, Site, VolumeTemplate, is_refused};
use crate::deletion::{is_retained, owner_of};
use crate::mark::Owner;
use crate::path::VolumePath;
use crate::root::Root;

/// The command and its arguments.
#[derive(Debug, Args)]
pub struct Adopt<S: Site> {
    /// Directory below the root; --claim, --size and --storage-class make it a new volume
    ///
    /// Without these flags, the command adopts the volume that uses the directory. If there is none, it permits new
    /// volumes in it.
    #[arg(required_unless_present_any = ["volume", "restored"])]
    directory: Option<PathBuf>,

    /// Existing volume of another program, or from a backup; its directory is below the root
    #[arg(long, value_name = "NAME", conflicts_with = "directory")]
    volume: Option<String>,

    /// Adopt all volumes that a backup restored with new uids
    #[arg(long, conflicts_with_all = ["directory", "volume"])]
    pub(super) restored: bool,

    /// Also adopt directories of the cluster with this ID; it must no longer use the root
    #[arg(long, value_name = "ID")]
    pub(super) from_cluster: Option<String>,

    /// Skip the confirmation of --restored
    #[arg(long, requires = "restored")]
    pub(super) yes: bool,

    /// Claim that receives the new volume
    #[arg(long, value_name = "NAMESPACE/NAME", requires_all = ["directory", "size", "storage_class"])]
    claim: Option<String>,

    /// The volume's size, such as 10Gi
    #[arg(long, value_name = "QUANTITY", requires = "claim")]
    size: Option<String>,

    /// The volume's StorageClass
    #[arg(long, value_name = "NAME", requires = "claim")]
    storage_class: Option<String>,

    /// The volume's name [default: the name in the directory's mark, or derived from the directory's name]
    #[arg(long, value_name = "NAME", requires = "claim")]
    name: Option<String>,

    /// The volume's access modes
    #[arg(long, value_name = "MODE", default_value = "ReadWriteOnce", requires = "claim")]
    access_mode: Vec<String>,

    /// The volume's reclaim policy
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "Retain",
        value_parser = ["Retain", "Delete"],
        requires = "claim"
    )]
    reclaim_policy: String,

    #[command(flatten)]
    source: S::Source,

    #[command(flatten)]
    pub(super) site: S,
}

impl<S: Site> Adopt<S> {
    pub(crate) async fn execute(self) -> Result<(), BoxError> {
        let (root, client) = (self.site.checked_root()?, self.site.connection().client().await?);
        let cluster = self.site.connection().cluster(&client).await?;
        let template = self.site.template(&self.source, &client).await?;
        let volumes = Volumes::list(&client).await?;
        let places = self.site.places(&root);
        let adoption = Adoption { root, client, cluster, template, volumes, places, adopt: &self };
        match (&self.volume, &self.directory) {
            _ if self.restored => adoption.adopt_restored().await,
            (Some(volume), _) => adoption.adopt_volume(volume).await,
            (None, Some(directory)) => adoption.adopt_directory(directory).await,
            (None, None) => Err("name a directory, or a volume with --volume".into()),
        }
    }
}

pub(super) struct Adoption<'a, S: Site> {
    pub(super) root: Root,
    pub(super) client: Client,
    pub(super) cluster: String,
    pub(super) template: Box<dyn VolumeTemplate>,
    pub(super) volumes: Volumes,
    pub(super) places: Vec<Place>,
    pub(super) adopt: &'a Adopt<S>,
}

impl<S: Site> Adoption<'_, S> {
    /// Marks the directory of an existing volume, and adds this provisioner's annotations to the volume.
    async fn adopt_volume(&self, name: &str) -> Result<(), BoxError> {
        let plan = self.plan(self.find(name)?).await?;
        self.execute(&plan).await?;
        print(&format!(
            "{name} belongs to this installation now, at {}\n",
            self.root.path().join(plan.path.as_str()).display()
        ));
        let by = &plan.owner.provisioner;
        if *by != self.adopt.site.connection().provisioner_name {
            print(&format!(
                "it was created by {by}: start the provisioner with --additional-provisioner-names {by}, and stop {by}\n"
            ));
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&LocatedVolume, BoxError> {
        let unreadable = self.volumes.unreadable.iter().find(|(unreadable, _)| unreadable == name);
        match (self.volumes.get(name), unreadable) {
            (Some(volume), _) => Ok(volume),
            (None, Some((_, why))) => Err(format!("the volume {name} cannot be read: {why}").into()),
            (None, None) => Err(format!("there is no volume {name}").into()),
        }
    }

    /// Writes the mark, and then the volume's annotations.
    pub(super) async fn execute(&self, plan: &AdoptionPlan<'_>) -> Result<(), BoxError> {
        let (volume, path) = (&plan.volume.object, &plan.path);
        let retain = is_retained(volume);
        match &plan.former {
            Some(former) => self.root.transfer(path, &former.owner, &plan.owner, retain)?,
            None => self.root.adopt(path, &plan.owner, retain)?,
        }
        self.adopt.site.publish(&self.root, path, volume).await?;
        let mut annotations = self.annotations(Some(volume));
        annotations.insert(ADOPTED.to_owned(), Timestamp::now().to_string());
        if plan.former.is_none() || plan.is_unfinished() {
            // Another client created the object, so the controller treats it as a copy whose data must not be deleted.
            // Adoption permits the deletion. For a restored volume, only a claim that is bound to it again, or an
            // administrator, does so.
            annotations.extend(volume.metadata.uid.clone().map(|uid| (RELEASE.to_owned(), uid)));
        }
        let patch = json!({"metadata": {"uid": volume.metadata.uid, "annotations": annotations}});
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        volumes.patch(&plan.volume.name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    async fn adopt_directory(&self, directory: &Path) -> Result<(), BoxError> {
        let absolute = if directory.is_absolute() { directory.to_owned() } else { self.root.path().join(directory) };
        let path = self.root.volume_path(absolute.to_str().ok_or("the path is not valid UTF-8")?)?;
        if self.adopt.claim.is_some() {
            return self.new_volume(&path).await;
        }
        let named =
            |volume: &&LocatedVolume| self.adopt.site.path_of(&volume.object, &self.root).is_ok_and(|of| of == path);
        match self.volumes.all.iter().find(|volume| named(volume) && self.template.check(&volume.object).is_ok()) {
            Some(volume) => self.adopt_volume(&volume.name).await,
            None => self.allow_volumes_in(&path),
        }
    }

    /// Allows volumes in a directory that is not a volume itself.
    fn allow_volumes_in(&self, path: &VolumePath) -> Result<(), BoxError> {
        for (volume, relation) in self.volumes.overlapping(&self.root, &self.places, path) {
            if matches!(relation, Relation::Same | Relation::Above) && self.template.check(&volume.object).is_ok() {
                return Err(
                    format!("the volume {} {}; no volume can be created in it", volume.name, relation.text()).into()
                );
            }
        }
        self.root.adopt_above(path)?;
        print(&format!(
            "no volume names {path}, so volumes may be created in it; `adopt {path} --claim NAMESPACE/NAME --size \
             QUANTITY --storage-class NAME` makes it a volume instead\n"
        ));
        Ok(())
    }

    /// Marks a directory, and creates a volume for it that only one claim can be bound to.
    async fn new_volume(&self, path: &VolumePath) -> Result<(), BoxError> {
        self.volumes.check_alone(&self.root, &self.places, path, |volume| self.template.check(volume).is_ok())?;
        let former = self.root.mark_of(path)?.map(|mark| mark.owner);
        let marked_name = former.as_ref().map(|former| former.volume.clone());
        let name = self.adopt.name.clone().or(marked_name).unwrap_or_else(|| name_of(path));
        let object = self.object(path, &name, former.map(|former| former.provisioner))?;
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        // Check first, so that an object refused by the API server leaves no mark.
        volumes.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await?;
        let mut owner = owner_of(&object);
        owner.claim = None;
        self.root.adopt(path, &owner, is_retained(&object))?;
        self.adopt.site.publish(&self.root, path, &object).await?;
        match volumes.create(&PostParams::default(), &object).await {
            Ok(created) => self.root.note_uid(path, &Owner { uid: created.metadata.uid, ..owner })?,
            Err(error) => {
                let is_here = |volume: &PersistentVolume| {
                    self.adopt.site.path_of(volume, &self.root).is_ok_and(|there| there == *path)
                };
                // If the response was lost, the volume may exist, now or later, and pods may use the directory.
                return match volumes.get_opt(&name).await {
                    Ok(found) if is_refused(&error) && !found.as_ref().is_some_and(is_here) => {
                        let error = error_chain(&error);
                        let unpublished = self.adopt.site.unpublish(&self.root, path).await;
                        unpublished
                            .map_err(|problem| format!("{error}; {path} stays marked: {}", error_chain(&*problem)))?;
                        self.root.remove_mark(path, &owner)?;
                        Err(error.into())
                    }
                    _ => Err(format!(
                        "{}; if {name} is a volume when the API server answers, run `adopt {path}`, otherwise this \
                         command again",
                        error_chain(&error)
                    )
                    .into()),
                };
            }
        }
        print(&format!("{name} is the volume of {}\n", self.root.path().join(path.as_str()).display()));
        Ok(())
    }

    /// Returns the object of a new volume. `marked` is the provisioner in the directory's mark.
    fn object(&self, path: &VolumePath, name: &str, marked: Option<String>) -> Result<PersistentVolume, BoxError> {
        let (adopt, options) = (self.adopt, self.adopt.site.connection().options());
        let provisioner = marked.filter(|name| options.serves(name)).unwrap_or(options.provisioner_name);
        let size = adopt.size.clone().unwrap_or_default();
        quantity::parse_bytes(&size)?;
        let mut annotations = self.annotations(None);
        annotations.insert(PROVISIONED_BY.to_owned(), provisioner);
        let mut spec = PersistentVolumeSpec {
            access_modes: Some(adopt.access_mode.clone()),
            capacity: Some(BTreeMap::from([("storage".to_owned(), Quantity(size))])),
            claim_ref: adopt.claim.as_deref().map(reference).transpose()?,
            persistent_volume_reclaim_policy: Some(adopt.reclaim_policy.clone()),
            storage_class_name: adopt.storage_class.clone(),
            ..PersistentVolumeSpec::default()
        };
        self.template.fill(&mut spec, &self.root, path)?;
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
        let who = [(IDENTITY.to_owned(), identity), (CLUSTER_ID.to_owned(), self.cluster.clone())];
        self.template.annotations(volume).into_iter().chain(root).chain(who).collect()
    }
}

/// Derives a volume name, which must be a DNS subdomain.
fn name_of(path: &VolumePath) -> String {
    let text = path.as_str().to_lowercase().replace(['/', '_'], "-");
    text.trim_matches(|letter| matches!(letter, '-' | '.')).to_owned()
}
