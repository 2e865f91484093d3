//! The commands `root`, for a replaced disk, and for a disk whose node was renamed.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use directory_volumes::commands::Site as _;
use directory_volumes::{DirectoryError, Mark, Owner, Root, owner_of};
use kube_provisioner::console::{is_confirmed, print, table};
use kube_provisioner::k8s_openapi::api::core::v1::{
    Node as NodeObject, PersistentVolume, PersistentVolumeClaim, VolumeNodeAffinity,
};
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_provisioner::kube::api::PostParams;
use kube_provisioner::kube::{Api, Client, Error};
use kube_provisioner::protocol::{CREATOR, HOSTNAME_LABEL, IDENTITY};
use kube_provisioner::topology;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::objects::{FinalizerScope, annotation, claim_of, name_of, remove, text, volumes};
use super::{BoxError, Site};
use crate::node::{NODE, Node, ObservedNode};
use crate::placement::{ANNOTATIONS, GONE_SINCE, directory_of, path_of};

/// A disk that does not respond within this time is considered dead.
const LIMIT: Duration = Duration::from_secs(10);
/// The root's note with the object of a volume that is being recreated.
const NOTE: &str = "renamed";

/// Commands for a whole root.
#[derive(Args)]
pub(crate) struct RootDisk {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Remove the PersistentVolumes of a dead or replaced disk, so that the node can use its new disk
    Replace(Arguments),
    /// Move the PersistentVolumes of a renamed node's disk to its new node name
    Adopt(Arguments),
}

#[derive(Args)]
struct Arguments {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    site: Site,
}

impl RootDisk {
    pub(crate) async fn execute(self) -> Result<(), BoxError> {
        match self.action {
            Action::Replace(arguments) => replace(&arguments).await,
            Action::Adopt(arguments) => adopt(&arguments).await,
        }
    }
}

/// Prints a table of volumes, and asks the user for confirmation.
fn confirm(volumes: &[PersistentVolume], yes: bool, question: &str) -> Result<(), BoxError> {
    let mut rows = vec![["VOLUME", "CLAIM", "SIZE", "RECLAIM POLICY", "NODE"].map(str::to_owned)];
    for volume in volumes {
        let spec = volume.spec.clone().unwrap_or_default();
        let size = spec.capacity.and_then(|capacity| capacity.get("storage").cloned());
        let node = annotation(volume, NODE).unwrap_or_default().to_owned();
        let policy = spec.persistent_volume_reclaim_policy.unwrap_or_default();
        let size = size.map(|size| size.0).unwrap_or_default();
        rows.push([name_of(volume).to_owned(), claim_of(volume), size, policy, node]);
    }
    print(&table(&rows));
    if yes || is_confirmed(question)? { Ok(()) } else { Err("nothing was changed".into()) }
}

/// Abandons the volumes of this node that were created in the root's directory, but on a disk other than the current
/// one.
async fn replace(Arguments { yes, site }: &Arguments) -> Result<(), BoxError> {
    let directory = site.directory()?;
    let given = directory.to_owned();
    let opened = timeout(LIMIT, spawn_blocking(move || Root::open(&given))).await;
    let root = match opened {
        Ok(opened) => match opened? {
            Err(error) if !is_missing(&error) => return Err(error.into()),
            opened => opened.map_err(|error| error.to_string()),
        },
        Err(_) => Err("the disk does not answer".to_owned()),
    };
    if let Err(why) = &root {
        print(&format!("{why}\n"));
    }
    let root = root.ok();
    let id = root.as_ref().and_then(Root::id);
    let client = site.connection().client().await?;
    let api = Api::<PersistentVolume>::all(client);
    let node = site.connection().node_name.as_deref();
    let is_lost = |volume: &PersistentVolume| {
        let (there, disk) = (annotation(volume, NODE), annotation(volume, ANNOTATIONS.root));
        let path = Path::new(directory_of(volume));
        // Volumes may refer to the root by a path with or without symlinks.
        let is_here = root.as_ref().map_or_else(|| path.starts_with(directory), |root| root.contains(path));
        there == node && is_here && disk.is_some() && disk != id
    };
    let mut lost = volumes(&api, |volume| is_lost(&volume).then_some(volume)).await?;
    if let Some(root) = root.as_ref().filter(|root| root.id().is_some()) {
        // If a mark exists, an administrator has copied the directory with its mark.
        lost.retain(|volume| match is_marked(root, volume) {
            Ok(false) => true,
            Ok(true) => {
                print(&format!(
                    "{name}: its directory exists with its mark, so it is not abandoned; if its data was copied here, \
                     run `adopt --volume {name}`\n",
                    name = name_of(volume)
                ));
                false
            }
            Err(error) => {
                print(&format!("{}: not abandoned: {error}\n", name_of(volume)));
                false
            }
        });
    }
    if lost.is_empty() {
        let place = directory.display();
        print(&format!("no volume of this node was created in {place} on another disk than the present one\n"));
        return Ok(());
    }
    let question = format!("abandon volumes whose data is on a missing disk ({} in total)?", lost.len());
    confirm(&lost, *yes, &question)?;
    let mut claims = BTreeSet::new();
    for volume in &lost {
        let (name, claim) = (name_of(volume), claim_of(volume));
        remove(&api, name, text(&volume.metadata.uid), FinalizerScope::Everything).await?;
        print(&format!("{name} is abandoned\n"));
        claims.extend(
            claim.split_once('/').map(|(namespace, name)| format!("kubectl delete pvc -n {namespace} {name}\n")),
        );
    }
    print(&format!(
        "their claims are Lost; new claims receive new volumes after the pods of the old claims are deleted:\n{}then \
         restart the provisioner of this node, which marks the new disk\n",
        claims.into_iter().collect::<String>()
    ));
    Ok(())
}

/// Returns true if the error means that the disk is dead or missing. If others may write to the root, or if it is
/// read-only, its volumes still exist.
fn is_missing(error: &DirectoryError) -> bool {
    match error {
        DirectoryError::NotADirectory(_) => true,
        DirectoryError::Unusable { source, .. }
        | DirectoryError::NotWritable { source, .. }
        | DirectoryError::Io { source, .. } => {
            !matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
        }
        _ => false,
    }
}

/// Returns true if the root contains the volume's mark.
fn is_marked(root: &Root, volume: &PersistentVolume) -> Result<bool, BoxError> {
    let mark = root.mark_of(&path_of(volume, root)?)?;
    Ok(mark.is_some_and(|mark| mark.owner.volume == name_of(volume)))
}

/// Moves the volumes of this disk that name a missing node. A volume's node cannot be changed, so each object is
/// recreated. The root's note contains the object, in case of a crash after its deletion.
async fn adopt(Arguments { yes, site }: &Arguments) -> Result<(), BoxError> {
    let root = site.checked_root()?;
    let name = site.connection().node_name.clone().ok_or("specify the node's current name with --node-name")?;
    let client = site.connection().client().await?;
    let here = Node::new(name.clone()).start(&client).await?;
    let migration = NodeMigration { api: Api::all(client.clone()), client, root, here };
    if let Some(object) = migration.root.note(NOTE)?.filter(|note| !note.is_empty()) {
        let object = serde_json::from_str(&object)?;
        match migration.api.get_opt(name_of(&object)).await? {
            // The earlier call ended before it updated the mark.
            Some(there) if annotation(&there, NODE) == Some(&*name) && claim_uid(&there) == claim_uid(&object) => {
                migration.update_mark(&there)?;
                migration.root.put_note(NOTE, "")?;
            }
            Some(_) => {}
            // If the mark is missing, the volume was deleted in the meantime.
            None if is_marked(&migration.root, &object)? => {
                migration.create(&object).await?;
                migration.root.put_note(NOTE, "")?;
            }
            None => {}
        }
    }
    let is_elsewhere = |volume: &PersistentVolume| {
        annotation(volume, ANNOTATIONS.root) == migration.root.id()
            && annotation(volume, NODE).is_some_and(|node| node != name)
    };
    let found = volumes(&migration.api, |volume| is_elsewhere(&volume).then_some(volume)).await?;
    migration.check_former(&found).await?;
    if found.is_empty() {
        print(&format!("no volume of this disk names another node than {name}\n"));
        return Ok(());
    }
    confirm(&found, *yes, &format!("recreate volumes as volumes of the node {name} ({} in total)?", found.len()))?;
    for volume in &found {
        migration.recreate(volume).await?;
    }
    Ok(())
}

fn claim_uid(volume: &PersistentVolume) -> Option<&String> {
    volume.spec.as_ref()?.claim_ref.as_ref()?.uid.as_ref()
}

/// Moves volumes from the former node to this one.
struct NodeMigration {
    client: Client,
    api: Api<PersistentVolume>,
    root: Root,
    here: ObservedNode,
}

impl NodeMigration {
    /// Fails if the former node still exists, because the disk may be a copy of its disk.
    async fn check_former(&self, found: &[PersistentVolume]) -> Result<(), BoxError> {
        let nodes: BTreeSet<_> = found.iter().filter_map(|volume| annotation(volume, NODE)).collect();
        for node in nodes {
            if Api::<NodeObject>::all(self.client.clone()).get_metadata_opt(node).await?.is_some() {
                return Err(format!(
                    "the node {node}, which volumes of this disk name, exists; if it was replaced, delete its object: \
                     kubectl delete node {node}"
                )
                .into());
            }
        }
        Ok(())
    }

    async fn recreate(&self, volume: &PersistentVolume) -> Result<(), BoxError> {
        let (name, object) = (name_of(volume), self.object(volume)?);
        // A dry run finds out if the API server would reject the object, before the volume is deleted.
        let mut tried = object.clone();
        tried.metadata.name = Some(format!("{name}-renamed"));
        self.api.create(&PostParams { dry_run: true, ..PostParams::default() }, &tried).await?;
        self.root.put_note(NOTE, &serde_json::to_string(&object)?)?;
        remove(&self.api, name, text(&volume.metadata.uid), FinalizerScope::Everything).await?;
        self.create(&object).await?;
        self.root.put_note(NOTE, "")?;
        print(&format!("{name} is now a volume of this node\n"));
        Ok(())
    }

    /// Returns the object with this node's name.
    fn object(&self, volume: &PersistentVolume) -> Result<PersistentVolume, BoxError> {
        let mut spec = volume.spec.clone().unwrap_or_default();
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
        let key = terms.flat_map(|term| term.match_expressions.iter().flatten()).next().map(|one| one.key.clone());
        let place = self.here.place(key.as_deref().filter(|key| *key != HOSTNAME_LABEL))?;
        spec.node_affinity =
            Some(VolumeNodeAffinity { required: Some(topology::nodes_with(&place.label, &place.value)) });
        if let Some(claim) = &mut spec.claim_ref {
            claim.resource_version = None;
        }
        let mut annotations = volume.metadata.annotations.clone().unwrap_or_default();
        annotations.remove(GONE_SINCE);
        // By default, a replica's identity is its node's name.
        if annotations.get(IDENTITY).map(String::as_str) == annotation(volume, NODE) {
            annotations.insert(IDENTITY.to_owned(), self.here.name().to_owned());
        }
        annotations.extend(place.annotations.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Ok(PersistentVolume {
            metadata: ObjectMeta {
                name: volume.metadata.name.clone(),
                labels: volume.metadata.labels.clone(),
                annotations: Some(annotations),
                finalizers: volume.metadata.finalizers.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
            status: None,
        })
    }

    /// Creates the object, and updates the uid in the volume's mark, if the mark has one.
    async fn create(&self, object: &PersistentVolume) -> Result<(), BoxError> {
        // If the claim exists, this is the same volume. Otherwise the volume may be a copy whose deletion is not
        // intended.
        let field_manager = self.has_claim(object).await?.then(|| CREATOR.to_owned());
        let created = self.api.create(&PostParams { field_manager, ..PostParams::default() }, object).await;
        let created = match created {
            Err(Error::Api(status)) if status.code == 409 => {
                return Err(format!("the volume {} still exists; run the command again", name_of(object)).into());
            }
            created => created?,
        };
        self.update_mark(&created)
    }

    fn update_mark(&self, volume: &PersistentVolume) -> Result<(), BoxError> {
        let path = path_of(volume, &self.root)?;
        let has_uid = |mark: &Mark| mark.owner.uid.is_some() || mark.volume_uid.is_some();
        let Some(mark) = self.root.mark_of(&path)?.filter(has_uid) else { return Ok(()) };
        let (owner, uid) = (owner_of(volume), volume.metadata.uid.clone());
        if mark.owner.volume == owner.volume && mark.owner.provisioner == owner.provisioner {
            self.root.transfer(&path, &mark.owner, &Owner { uid, ..mark.owner.clone() }, mark.retain)?;
        }
        Ok(())
    }

    async fn has_claim(&self, volume: &PersistentVolume) -> Result<bool, BoxError> {
        let Some(claim) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return Ok(false) };
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), text(&claim.namespace));
        let found = claims.get_metadata_opt(text(&claim.name)).await?;
        Ok(claim.uid.is_some() && found.is_some_and(|found| found.metadata.uid == claim.uid))
    }
}
