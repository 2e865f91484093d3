//! `trash`: deleted volumes whose data are kept.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube_provisioner::FencingToken;
use kube_provisioner::k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};
use kube_provisioner::kube::Api;
use kube_provisioner::kube::api::PostParams;

use super::{BoxError, Site, print, table};
use crate::entry::Discarded;
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
    /// List what is in the trash
    List {
        #[command(flatten)]
        site: S,
    },
    /// Put a volume back, for a claim of its former name or of another one
    Restore {
        /// The volume, as `list` names it
        volume: String,
        /// The claim that gets it [default: the one that had it]
        #[arg(long, value_name = "NAMESPACE/NAME")]
        claim: Option<String>,
        #[command(flatten)]
        site: S,
    },
    /// Remove data for good
    Purge {
        /// The volumes, as `list` names them
        #[arg(required_unless_present = "all")]
        volumes: Vec<String>,
        /// Everything in the trash
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        site: S,
    },
}

impl<S: Site> Trash<S> {
    pub(crate) async fn carry_out(self) -> Result<(), BoxError> {
        match self.action {
            Action::List { site } => list(&site.checked_root()?),
            Action::Restore { volume, claim, site } => restore(&site, &volume, claim.as_deref()).await,
            Action::Purge { volumes, all, site } => purge(&site.checked_root()?, volumes, all),
        }
    }
}

fn list(root: &Root) -> Result<(), BoxError> {
    let mut rows = vec![["VOLUME", "CLAIM", "PATH", "DELETED", "REMOVED AFTER"].map(str::to_owned)];
    for discarded in root.trash()? {
        match discarded {
            Ok(discarded) => rows.push(row(&discarded)),
            Err(error) => tracing::warn!("{error}"),
        }
    }
    print(&match rows.len() {
        1 => "the trash is empty\n".to_owned(),
        _ => table(&rows),
    });
    Ok(())
}

fn row(discarded: &Discarded) -> [String; 5] {
    let owner = &discarded.mark.owner;
    let claim = owner.claim.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name)).unwrap_or_default();
    let second = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let expires = discarded.expires.map_or("never".to_owned(), second);
    [owner.volume.clone(), claim, discarded.path.to_string(), second(discarded.deleted), expires]
}

fn purge(root: &Root, mut volumes: Vec<String>, all: bool) -> Result<(), BoxError> {
    if all {
        let entries = root.trash()?.into_iter().collect::<Result<Vec<_>, _>>()?;
        volumes = entries.into_iter().map(|discarded| discarded.mark.owner.volume).collect();
    }
    for volume in volumes {
        root.purge(&volume, &FencingToken::unlimited())?;
        print(&format!("{volume} is removed\n"));
    }
    Ok(())
}

/// The directory first: a volume without one would be offered to pods.
async fn restore(site: &impl Site, volume: &str, claim: Option<&str>) -> Result<(), BoxError> {
    let (root, client) = (site.checked_root()?, site.connection().client().await?);
    let volumes = Api::<PersistentVolume>::all(client);
    if volumes.get_opt(volume).await?.is_some() {
        return Err(format!("the volume {volume} is still there; wait until it is gone").into());
    }
    let wanted = claim.map(reference).transpose()?;
    let discarded = root.restore(volume)?;
    let object = object(&discarded, wanted)?;
    site.came(&root, &discarded.path, &object).await?;
    let claim = object.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
    let created = volumes.create(&PostParams::default(), &object).await?;
    let owner = Owner { uid: created.metadata.uid, ..discarded.mark.owner };
    root.note_uid(&discarded.path, &owner)?;
    let (namespace, name) = (claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
    print(&format!(
        "{volume} is back, at {}; the claim {name} in the namespace {namespace} gets it if it asks for the class {:?} and for \
         at most its size, with spec.volumeName: {volume}\n",
        root.path().join(discarded.path.as_str()).display(),
        object.spec.and_then(|spec| spec.storage_class_name).unwrap_or_default(),
    ));
    Ok(())
}

/// The volume as it was, for a claim that is made anew.
fn object(discarded: &Discarded, wanted: Option<ObjectReference>) -> Result<PersistentVolume, BoxError> {
    let mut object: PersistentVolume = serde_json::from_value(discarded.object.clone())?;
    let old = std::mem::take(&mut object.metadata);
    object.metadata.name = old.name;
    object.metadata.labels = old.labels;
    object.metadata.finalizers = old.finalizers;
    object.metadata.annotations = old.annotations.map(|mut annotations| {
        annotations
            .retain(|key, _| !matches!(&**key, "pv.kubernetes.io/bound-by-controller" | "kube-provisioner/deleting"));
        annotations
    });
    object.status = None;
    let spec = object.spec.as_mut().ok_or("the volume's object is not known; take the directory over with `adopt`")?;
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
