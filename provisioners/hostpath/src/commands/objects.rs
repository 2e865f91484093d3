//! What commands do with the objects of volumes.

use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube_provisioner::kube::{Api, Error};
use kube_provisioner::protocol::FINALIZER;
use serde_json::json;

use super::BoxError;

/// What keeps a volume that a claim has.
const PROTECTION: &str = "kubernetes.io/pv-protection";
/// How many volumes are asked for at once.
const PAGE: u32 = 500;
/// So often a write is made again after a conflict.
const MOST_ATTEMPTS: usize = 5;

/// The volumes that are wanted, and of them only what is wanted: there may be very many.
pub(super) async fn volumes<T>(
    api: &Api<PersistentVolume>,
    wanted: impl Fn(PersistentVolume) -> Option<T>,
) -> Result<Vec<T>, BoxError> {
    let (mut found, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let list = api.list(&page).await?;
        found.extend(list.items.into_iter().filter_map(&wanted));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// What of a volume's object is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// What this program does with it.
    Ours,
    /// Also that a claim has it.
    Everything,
}

/// Removes the object of a volume, whatever becomes of its data. Another one of its name stays.
pub(super) async fn remove(api: &Api<PersistentVolume>, name: &str, uid: &str, ended: Ended) -> Result<(), BoxError> {
    settled(api.delete(name, &only(uid)).await.map(drop))?;
    let is_ended = |finalizer: &String| finalizer == FINALIZER || ended == Ended::Everything && finalizer == PROTECTION;
    // The controller-manager writes to it at the same time.
    for _ in 0..MOST_ATTEMPTS {
        let live = api.get_opt(name).await?.filter(|live| live.metadata.uid.as_deref() == Some(uid));
        let Some(mut live) = live.map(|live| live.metadata) else { break };
        let finalizers = live.finalizers.get_or_insert_default();
        if !finalizers.iter().any(is_ended) {
            break;
        }
        finalizers.retain(|finalizer| !is_ended(finalizer));
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": live.resource_version}});
        settled(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))?;
    }
    Ok(())
}

/// An object that is gone was deleted by somebody else. The next call checks one that has changed.
pub(super) fn settled(done: Result<(), Error>) -> Result<(), BoxError> {
    match done {
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        done => Ok(done?),
    }
}

pub(super) fn only(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

pub(super) fn annotation<'a>(volume: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    volume.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn name_of(volume: &PersistentVolume) -> &str {
    text(&volume.metadata.name)
}

pub(super) fn text(part: &Option<String>) -> &str {
    part.as_deref().unwrap_or_default()
}

/// The claim that a volume is bound to.
pub(super) fn claim_of(volume: &PersistentVolume) -> String {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    claim.map(|claim| format!("{}/{}", text(&claim.namespace), text(&claim.name))).unwrap_or_default()
}
