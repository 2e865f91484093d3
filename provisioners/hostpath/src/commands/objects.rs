//! Helpers of commands for the objects of volumes.

use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube_provisioner::kube::{Api, Error};
use kube_provisioner::protocol::FINALIZER;
use serde_json::json;

use super::BoxError;

/// The finalizer that protects a volume while it is bound to a claim.
const PROTECTION: &str = "kubernetes.io/pv-protection";
/// The number of volumes per request.
const PAGE: u32 = 500;
/// Maximum number of attempts to write after a conflict.
const MAX_ATTEMPTS: usize = 5;

/// Lists volumes, and keeps only the result of `wanted`, because a cluster may have very many volumes.
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

/// The finalizers to remove from a volume's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalizerScope {
    /// Only this program's finalizer.
    Ours,
    /// Also the finalizer that protects a bound volume.
    Everything,
}

/// Deletes the object of a volume, but not its data. A new object with the same name is not deleted.
pub(super) async fn remove(
    api: &Api<PersistentVolume>,
    name: &str,
    uid: &str,
    ended: FinalizerScope,
) -> Result<(), BoxError> {
    ignore_concurrent_change(api.delete(name, &uid_precondition(uid)).await.map(drop))?;
    let is_ended =
        |finalizer: &String| finalizer == FINALIZER || ended == FinalizerScope::Everything && finalizer == PROTECTION;
    // The controller-manager updates the object concurrently.
    for _ in 0..MAX_ATTEMPTS {
        let live = api.get_opt(name).await?.filter(|live| live.metadata.uid.as_deref() == Some(uid));
        let Some(mut live) = live.map(|live| live.metadata) else { break };
        let finalizers = live.finalizers.get_or_insert_default();
        if !finalizers.iter().any(is_ended) {
            break;
        }
        finalizers.retain(|finalizer| !is_ended(finalizer));
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": live.resource_version}});
        ignore_concurrent_change(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))?;
    }
    Ok(())
}

/// Ignores concurrent changes. A missing object has been deleted already, and the next call checks a changed one.
pub(super) fn ignore_concurrent_change(done: Result<(), Error>) -> Result<(), BoxError> {
    match done {
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        done => Ok(done?),
    }
}

pub(super) fn uid_precondition(uid: &str) -> DeleteParams {
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

/// Returns the claim that a volume is bound to.
pub(super) fn claim_of(volume: &PersistentVolume) -> String {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    claim.map(|claim| format!("{}/{}", text(&claim.namespace), text(&claim.name))).unwrap_or_default()
}
