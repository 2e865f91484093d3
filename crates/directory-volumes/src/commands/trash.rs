//! `trash`: manages deleted volumes whose data is kept.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube_provisioner::console::{print, table};
use kube_provisioner::k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};
use kube_provisioner::kube::Api;
use kube_provisioner::kube::api::PostParams;
use kube_provisioner::protocol::CLUSTER_ID;
use kube_provisioner::{FencingToken, error_chain};

use super::{BoxError, Site, check_none_failed, is_refused};
use crate::entry::Discarded;
use crate::error::DirectoryError;
use crate::mark::Owner;
use crate::root::Root;

/// The command and its arguments.
#[derive(Debug, Args)]
pub struct Trash<S: Site> {
    #[command(subcommand)]
    action: Action<S>,
}

#[derive(Debug, Subcommand)]
enum Action<S: Site> {
    /// List the volumes in the trash
    List {
        #[command(flatten)]
        site: S,
    },
    /// Restore a volume for its former claim or another one
    Restore {
        /// Name of the volume, as `trash list` prints it
        volume: String,
        /// Claim that receives the volume [default: its former claim]
        #[arg(long, value_name = "NAMESPACE/NAME")]
        claim: Option<String>,
        #[command(flatten)]
        site: S,
    },
    /// Delete volumes in the trash permanently
    Purge {
        /// Names of the volumes, as `trash list` prints them
        #[arg(required_unless_present = "all")]
        volumes: Vec<String>,
        /// Delete all volumes that this cluster moved to the trash
        #[arg(long)]
        all: bool,
        /// Also delete volumes without a cluster ID, from an earlier version
        #[arg(long)]
        of_unknown_cluster: bool,
        #[command(flatten)]
        site: S,
    },
}

impl<S: Site> Trash<S> {
    pub(crate) async fn execute(self) -> Result<(), BoxError> {
        match self.action {
            Action::List { site } => list(&site.checked_root()?),
            Action::Restore { volume, claim, site } => restore(&site, &volume, claim.as_deref()).await,
            Action::Purge { volumes, all, of_unknown_cluster, site } => {
                purge(&site, volumes, all, of_unknown_cluster).await
            }
        }
    }
}

fn list(root: &Root) -> Result<(), BoxError> {
    let (mut rows, mut damaged) =
        (vec![["VOLUME", "CLAIM", "PATH", "DELETED", "REMOVED AFTER"].map(str::to_owned)], String::new());
    let listed = root.trash()?.into_iter().map(|entry| (entry, false));
    for (discarded, is_leaving) in listed.chain(root.restoring()?.into_iter().map(|entry| (entry, true))) {
        match discarded {
            Ok(discarded) => rows.push(row(&discarded, is_leaving)),
            Err(error) => damaged.push_str(&format!("{error}\n")),
        }
    }
    print(&match rows.len() {
        1 if damaged.is_empty() => "the trash is empty\n".to_owned(),
        1 => damaged,
        _ => table(&rows) + &damaged,
    });
    Ok(())
}

fn row(discarded: &Discarded, is_leaving: bool) -> [String; 5] {
    let owner = &discarded.mark.owner;
    let claim = owner.claim.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name)).unwrap_or_default();
    let second = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let expires = match (discarded.expires, discarded.keep) {
        _ if is_leaving => "being restored: restore it again".to_owned(),
        (Some(expires), _) => second(expires),
        (None, Some(seconds)) => format!("{seconds} s after the clock is correct"),
        (None, None) => "never".to_owned(),
    };
    [owner.volume.clone(), claim, discarded.path.to_string(), second(discarded.deleted), expires]
}

async fn purge(site: &impl Site, volumes: Vec<String>, all: bool, of_unknown_cluster: bool) -> Result<(), BoxError> {
    let (root, client) = (site.checked_root()?, site.connection().client().await?);
    let cluster = site.connection().cluster(&client).await?;
    let entries: Vec<_> = if all {
        root.trash()?.into_iter().chain(root.deleting()?).collect()
    } else {
        volumes.iter().map(|volume| root.purgeable(volume)).collect()
    };
    // An entry that cannot be removed must not prevent the removal of the others, whose space may be needed.
    let mut failed = 0;
    for entry in entries {
        let purged = entry.map_err(BoxError::from).and_then(|discarded| {
            let volume = &discarded.mark.owner.volume;
            match reason_to_keep(&discarded, &cluster, of_unknown_cluster) {
                Some(why) if all => print(&format!("{volume} is kept: {why}\n")),
                Some(why) => return Err(format!("{volume} is kept: {why}").into()),
                None => match root.purge_deleted_at(discarded.deleted, volume, &FencingToken::unlimited()) {
                    // The provisioner has removed it, or an administrator has restored it.
                    Err(DirectoryError::NotThere { .. }) if all => {}
                    purged => {
                        purged?;
                        print(&format!("{volume} is removed\n"));
                    }
                },
            }
            Ok(())
        });
        if let Err(error) = purged {
            failed += 1;
            print(&format!("{error}\n"));
        }
    }
    check_none_failed(failed, "volumes were not removed")
}

/// Returns the reason if this cluster must not remove an entry.
fn reason_to_keep(discarded: &Discarded, cluster: &str, of_unknown_cluster: bool) -> Option<String> {
    match &discarded.mark.owner.cluster {
        Some(id) if id != cluster => Some(format!("the cluster {id} moved it to the trash")),
        None if !of_unknown_cluster => {
            Some("its record names no cluster; if it belongs to this cluster, set --of-unknown-cluster".to_owned())
        }
        _ => None,
    }
}

/// Restores a volume. The directory is restored before the object is created, because pods can use the volume as soon
/// as the object exists. A dry run checks first that the API server accepts the object.
async fn restore(site: &impl Site, volume: &str, claim: Option<&str>) -> Result<(), BoxError> {
    let (root, client) = (site.checked_root()?, site.connection().client().await?);
    let cluster = site.connection().cluster(&client).await?;
    let volumes = Api::<PersistentVolume>::all(client);
    let discarded = root.discarded(volume)?;
    if let Some(id) = discarded.mark.owner.cluster.as_ref().filter(|id| **id != cluster) {
        return Err(format!("the cluster {id} moved {volume} to the trash; restore it there").into());
    }
    if discarded.object.is_null() {
        let discarded = root.restore_without_mark(volume)?;
        let path = &discarded.path;
        print(&format!(
            "the directory {path} is restored without a mark, because the object of its volume is unknown: `adopt \
             {path} --claim NAMESPACE/NAME --size QUANTITY --storage-class NAME` makes it a volume\n"
        ));
        return Ok(());
    }
    if let Some(there) = volumes.get_opt(volume).await? {
        let is_begun = root.restoring()?.into_iter().flatten().any(|entry| entry.mark.owner.volume == volume);
        return if is_begun {
            // An earlier call created it, but did not finish.
            finish_restore(&root, &root.restore(volume, Some(&cluster))?, &there)
        } else {
            Err(format!("the volume {volume} still exists; wait until it is deleted").into())
        };
    }
    let object = object(&discarded, claim.map(reference).transpose()?, &cluster)?;
    volumes.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await?;
    let discarded = root.restore(volume, Some(&cluster))?;
    let published = site.publish(&root, &discarded.path, &object).await;
    let created = match published {
        Ok(()) => {
            let created = volumes.create(&PostParams::default(), &object).await;
            created.map_err(|error| (is_refused(&error), BoxError::from(error)))
        }
        Err(error) => Err((true, error)),
    };
    let created = match created {
        Ok(created) => created,
        Err((true, error)) if matches!(volumes.get_opt(volume).await, Ok(None)) => {
            let error = error_chain(&*error);
            let unpublished = site.unpublish(&root, &discarded.path).await;
            unpublished
                .map_err(|problem| format!("{error}; the directory stays restored: {}", error_chain(&*problem)))?;
            root.undo_restore(&discarded)?;
            return Err(format!("{volume} is in the trash again: {error}").into());
        }
        // If the response was lost, the volume was created, or is created later.
        Err((_, error)) => {
            return Err(format!(
                "{}; the directory is restored: run the command again when the API server answers",
                error_chain(&*error)
            )
            .into());
        }
    };
    finish_restore(&root, &discarded, &created)
}

/// Removes the entry of a volume that exists again.
fn finish_restore(root: &Root, discarded: &Discarded, created: &PersistentVolume) -> Result<(), BoxError> {
    let (volume, spec) = (&discarded.mark.owner.volume, created.spec.as_ref());
    let owner = Owner { uid: created.metadata.uid.clone(), ..discarded.mark.owner.clone() };
    root.note_uid(&discarded.path, &owner)?;
    root.end_restore(volume)?;
    let claim = spec.and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
    let (namespace, name) = (claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
    print(&format!(
        "{volume} is restored, at {}; the claim {name} in the namespace {namespace} receives it if it requests the \
         class {:?} and at most its size, with spec.volumeName: {volume}\n",
        root.path().join(discarded.path.as_str()).display(),
        spec.and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default(),
    ));
    Ok(())
}

/// Returns the former volume, prepared for a claim that is recreated.
fn object(discarded: &Discarded, wanted: Option<ObjectReference>, cluster: &str) -> Result<PersistentVolume, BoxError> {
    let mut object: PersistentVolume = serde_json::from_value(discarded.object.clone())?;
    let old = std::mem::take(&mut object.metadata);
    object.metadata.name = old.name;
    object.metadata.labels = old.labels;
    object.metadata.finalizers = old.finalizers;
    let mut annotations = old.annotations.unwrap_or_default();
    annotations.remove("pv.kubernetes.io/bound-by-controller");
    annotations.insert(CLUSTER_ID.to_owned(), cluster.to_owned());
    object.metadata.annotations = Some(annotations);
    object.status = None;
    let spec = object.spec.as_mut().ok_or("the volume's object is unknown; adopt the directory with `adopt`")?;
    let former = spec.claim_ref.take().map(|claim| ObjectReference {
        api_version: claim.api_version,
        kind: claim.kind,
        namespace: claim.namespace,
        name: claim.name,
        ..ObjectReference::default()
    });
    spec.claim_ref = wanted.or(former);
    Ok(object)
}

pub(super) fn reference(text: &str) -> Result<ObjectReference, BoxError> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        }),
        _ => Err(format!("expected NAMESPACE/NAME of a claim, not {text:?}").into()),
    }
}
