//! The finalizers that protect sources, and which attempts need them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube_provisioner::kube::api::{Api, DynamicObject, PostParams};
use kube_provisioner::kube::{Client, Error as KubeError, Resource, ResourceExt};
use tokio::sync::Mutex as Turn;

use crate::sources::{Kind, Source};

/// The attempts of this process by the uid of their source, which may be in several namespaces. The last one takes the
/// finalizer off.
#[derive(Default)]
pub(crate) struct Holds(Mutex<BTreeMap<String, Held>>);

#[derive(Default)]
struct Held {
    /// The names of the volumes.
    by: BTreeSet<String>,
    /// One change at a time: nobody takes off what another one has just found there.
    turn: Arc<Turn<()>>,
}

impl Holds {
    /// Forgets what an earlier term has known: its attempts may have ended since.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// Protects the source of an attempt. One that is gone or going cannot be protected any more: the driver decides.
    pub(crate) async fn hold(&self, client: &Client, source: &Source, volume: &str) -> Result<(), KubeError> {
        let turn = self.note(source, volume);
        let _turn = turn.lock().await;
        change(client, source, |object| {
            let is_new = !is_held(object, source.kind) && object.metadata.deletion_timestamp.is_none();
            is_new.then(|| object.finalizers_mut().push(source.kind.finalizer().to_owned()))
        })
        .await
    }

    /// Notes an attempt that needs the source.
    pub(crate) fn note(&self, source: &Source, volume: &str) -> Arc<Turn<()>> {
        let mut holds = self.lock();
        let held = holds.entry(source.uid.clone()).or_default();
        held.by.insert(volume.to_owned());
        held.turn.clone()
    }

    /// An attempt has ended.
    pub(crate) async fn release(&self, client: &Client, source: &Source, volume: &str) -> Result<(), KubeError> {
        let turn = self.note(source, volume);
        let _turn = turn.lock().await;
        if !self.is_needed_by_another(source, volume) {
            change(client, source, |object| {
                let finalizer = source.kind.finalizer();
                is_held(object, source.kind).then(|| object.finalizers_mut().retain(|one| one != finalizer))
            })
            .await?;
        }
        let mut holds = self.lock();
        if let Some(held) = holds.get_mut(&source.uid) {
            held.by.remove(volume);
            if held.by.is_empty() {
                holds.remove(&source.uid);
            }
        }
        Ok(())
    }

    fn is_needed_by_another(&self, source: &Source, volume: &str) -> bool {
        self.lock().get(&source.uid).is_some_and(|held| held.by.iter().any(|holder| holder != volume))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn is_held(object: &DynamicObject, kind: Kind) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == kind.finalizer())
}

/// Writes the source back if `edit` changes it. The charts of drivers grant update, and not patch.
async fn change(
    client: &Client,
    source: &Source,
    edit: impl FnOnce(&mut DynamicObject) -> Option<()>,
) -> Result<(), KubeError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &source.namespace, &source.kind.resource());
    let Some(mut object) = api.get_opt(&source.name).await? else { return Ok(()) };
    if object.meta().uid.as_deref() != Some(&*source.uid) || edit(&mut object).is_none() {
        return Ok(());
    }
    match api.replace(&source.name, &PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        // Charts from before there was the finalizer do not grant it.
        Err(KubeError::Api(status)) if status.code == 403 && source.kind == Kind::Snapshot => {
            tracing::info!(name = source.name, "the VolumeSnapshot is not protected: {}", status.message);
            Ok(())
        }
        Err(KubeError::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
