//! Requests about claims and volumes, with deadlines and preconditions.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use provisioner_runtime::call::{CallError, call, create_request_as, invalid_request};
use provisioner_runtime::watch::WatchHealth;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Actions;
use crate::controller::shared::requests;
use crate::controller::volume::facts::ClaimFacts;
use crate::controller::volume::partial::{WatchedClaim, WatchedVolume};
use crate::controller::volume::safeguards::Safeguard;
use crate::protocol;

/// The time limit of a list for the provisioner's `start`, which does not wait behind other requests.
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// A volume as the API server returned it.
pub(super) struct LiveVolume {
    pub(super) seen: WatchedVolume,
    pub(super) object: PersistentVolume,
}

/// Returns a volume for the author's code. A volume that cannot be read has only its metadata, but is never left out.
fn full_volume(json: &str, name: &str) -> PersistentVolume {
    #[derive(Default, Deserialize)]
    struct Head {
        metadata: ObjectMeta,
    }
    serde_json::from_str(json).unwrap_or_else(|error| {
        tracing::error!(pv = name, "the volume cannot be read, and the provisioner gets only its metadata: {error}");
        let Head { metadata } = serde_json::from_str(json).unwrap_or_default();
        PersistentVolume { metadata, ..PersistentVolume::default() }
    })
}

impl Actions {
    /// Sends one request about claims or volumes, within the limit of concurrent requests.
    pub(super) async fn request<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        self.runtime.request(request).await
    }

    pub(super) async fn read_claim(&self, namespace: &str, name: &str) -> Result<WatchedClaim, CallError> {
        let path = PersistentVolumeClaim::url_path(&(), Some(namespace));
        expect_in_watch(&self.claims, requests::get(&self.runtime, path, name), WatchedClaim::version).await
    }

    pub(super) async fn read_volume(&self, name: &str) -> Result<LiveVolume, CallError> {
        let request = kube::core::Request::new(PersistentVolume::url_path(&(), None));
        let request = request.get(name, &kube::api::GetParams::default()).map_err(invalid_request)?;
        let answer = async {
            let text = self.request(self.client().request_text(request)).await?;
            let unreadable = |error: serde_json::Error| CallError::Other(error.to_string());
            let seen = serde_json::from_str(&text).map_err(unreadable)?;
            Ok(LiveVolume { seen, object: serde_json::from_str(&text).map_err(unreadable)? })
        };
        expect_in_watch(&self.volumes, answer, |live| live.seen.version()).await
    }

    pub(super) async fn create_volume(&self, body: Vec<u8>) -> Result<WatchedVolume, CallError> {
        let request = create_request_as(protocol::CREATOR, &PersistentVolume::url_path(&(), None), body)?;
        let answer = self.request(self.client().request(request));
        expect_in_watch(&self.volumes, answer, WatchedVolume::version).await
    }

    /// Deletes the object if it still has this uid and version. Returns the object while finalizers keep it.
    pub(super) async fn delete_volume(
        &self,
        name: &str,
        uid: &str,
        resource_version: Option<&str>,
    ) -> Result<Option<PersistentVolume>, CallError> {
        let careful = self.rules.safeguards.include(Safeguard::UidPrecondition);
        let preconditions =
            Preconditions { uid: Some(uid.to_owned()), resource_version: resource_version.map(str::to_owned) };
        let preconditions = careful.then_some(preconditions);
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        let api: Api<PersistentVolume> = Api::all(self.client().clone());
        let answer = async { Ok(self.request(api.delete(name, &parameters)).await?.left()) };
        expect_in_watch(&self.volumes, answer, |left| left.as_ref()?.metadata.resource_version.as_deref()).await
    }

    /// Returns the whole objects of this provisioner's volumes.
    pub(crate) async fn own_volumes(&self) -> Result<Vec<PersistentVolume>, CallError> {
        #[derive(Deserialize)]
        struct List {
            metadata: ListMeta,
            items: Vec<Box<RawValue>>,
        }
        let (mut own, mut page) = (Vec::new(), ListParams::default().limit(500));
        loop {
            let request = kube::core::Request::new(PersistentVolume::url_path(&(), None));
            let request = request.list(&page).map_err(invalid_request)?;
            let list: List = call(LIST_LIMIT, self.client().request(request)).await?;
            for raw in list.items {
                let volume = serde_json::from_str::<WatchedVolume>(raw.get());
                let ours = |volume: &WatchedVolume| match &volume.fields {
                    Ok(fields) => self.rules.owns(fields),
                    Err(_) => self.rules.named_in(&volume.metadata().annotations),
                };
                if let Ok(volume) = volume
                    && ours(&volume)
                {
                    own.push(full_volume(raw.get(), volume.name()));
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(own),
            }
        }
    }

    /// Returns whether another installation or another provisioner created this volume.
    pub(super) fn is_foreign_volume(&self, volume: &WatchedVolume) -> bool {
        // A volume that cannot be read may be ours.
        let is_of_another = volume.fields.as_ref().is_ok_and(|fields| !self.rules.owns(fields));
        is_of_another || self.is_of_other_installation(volume)
    }

    /// Returns whether another installation of this provisioner created this volume.
    pub(super) fn is_of_other_installation(&self, volume: &WatchedVolume) -> bool {
        let Ok(fields) = &volume.fields else { return false };
        let elsewhere = || self.rules.read(fields).is_none_or(|facts| self.rules.created_elsewhere(&facts));
        self.rules.owns(fields) && elsewhere()
    }

    /// Removes only our finalizer.
    pub(super) async fn remove_finalizer(&self, volume: &PersistentVolume) -> Result<(), CallError> {
        self.patch_finalizer(volume, finalizer_patch(volume, false)).await
    }

    /// Adds or removes our finalizer if the volume still has this version: its policy may change at any time.
    pub(super) async fn set_finalizer(&self, volume: &PersistentVolume, wanted: bool) -> Result<(), CallError> {
        let unchanged = json!({
            "op": "test", "path": "/metadata/resourceVersion", "value": volume.metadata.resource_version,
        });
        let mut operations = finalizer_patch(volume, wanted);
        operations.iter_mut().filter_map(Value::as_array_mut).for_each(|all| all.push(unchanged.clone()));
        self.patch_finalizer(volume, operations).await
    }

    async fn patch_finalizer(&self, volume: &PersistentVolume, operations: Option<Value>) -> Result<(), CallError> {
        let Some(operations) = operations else { return Ok(()) };
        let patch = Patch::<Value>::Json(serde_json::from_value(operations).map_err(invalid_request)?);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let (api, parameters) = (Api::<PersistentVolume>::all(self.client().clone()), PatchParams::default());
        let answer = self.request(api.patch_metadata(name, &parameters, &patch));
        expect_in_watch(&self.volumes, answer, |object| object.metadata.resource_version.as_deref()).await.map(drop)
    }

    /// Removes the selected node from the claim. Returns `None` if the scheduler has already chosen another node.
    pub(super) async fn unselect_node(
        &self,
        claim: &ClaimFacts,
        node: &str,
    ) -> Result<Option<WatchedClaim>, CallError> {
        if self.only_updates_claims {
            return self.unselect_by_update(claim, node).await;
        }
        let path = format!("/metadata/annotations/{}", protocol::SELECTED_NODE.replace('/', "~1"));
        let operations = json!([
            {"op": "test", "path": "/metadata/uid", "value": &*claim.uid},
            {"op": "test", "path": path, "value": node},
            {"op": "remove", "path": path},
        ]);
        let patch = Patch::<Value>::Json(serde_json::from_value(operations).map_err(invalid_request)?);
        let path = PersistentVolumeClaim::url_path(&(), Some(&claim.namespace));
        let answer = requests::patch(&self.runtime, path, &claim.name, None, &patch);
        let error = match expect_in_watch(&self.claims, answer, WatchedClaim::version).await {
            Ok(claim) => return Ok(Some(claim)),
            Err(error @ (CallError::Invalid(_) | CallError::Conflict)) => error,
            Err(error) => return Err(error),
        };
        // A failed `test`, too many concurrent writers and a refusal by a policy result in the same errors.
        let live = self.read_claim(&claim.namespace, &claim.name).await?;
        let has_node = live.metadata().annotations.selected_node.as_deref() == Some(node);
        if has_node && live.metadata().uid.as_deref() == Some(&*claim.uid) { Err(error) } else { Ok(None) }
    }

    /// Removes the selected node with an account that may update claims but not patch them.
    async fn unselect_by_update(&self, claim: &ClaimFacts, node: &str) -> Result<Option<WatchedClaim>, CallError> {
        self.update_claim(claim, |object| {
            let annotations = object["metadata"]["annotations"].as_object_mut()?;
            annotations.remove(protocol::SELECTED_NODE).filter(|selected| selected == node).map(drop)
        })
        .await
    }

    /// Selects a node for the claim. Returns `None` if another node is already selected, or if the claim needs none.
    pub(super) async fn select_node(&self, claim: &ClaimFacts, node: &str) -> Result<Option<WatchedClaim>, CallError> {
        self.update_claim(claim, |object| {
            let is_free = object["spec"]["volumeName"].as_str().is_none_or(str::is_empty)
                && object["metadata"]["deletionTimestamp"].is_null();
            let annotations = &mut object["metadata"]["annotations"];
            if !is_free || annotations[protocol::SELECTED_NODE].as_str().is_some_and(|node| !node.is_empty()) {
                return None;
            }
            annotations[protocol::SELECTED_NODE] = json!(node);
            Some(())
        })
        .await
    }

    /// Updates the claim with the changes of `edit`. Returns `None` if `edit` refuses. After a conflict, it reads the
    /// claim again.
    async fn update_claim(
        &self,
        claim: &ClaimFacts,
        edit: impl Fn(&mut Value) -> Option<()>,
    ) -> Result<Option<WatchedClaim>, CallError> {
        const TRIES: u32 = 5;
        let path = PersistentVolumeClaim::url_path(&(), Some(&claim.namespace));
        let mut tries = 1..=TRIES;
        loop {
            let mut object: Value = requests::get(&self.runtime, path.clone(), &claim.name).await?;
            if object["metadata"]["uid"] != json!(*claim.uid) || edit(&mut object).is_none() {
                return Ok(None);
            }
            let answer = requests::replace(&self.runtime, path.clone(), &claim.name, &object);
            match expect_in_watch(&self.claims, answer, WatchedClaim::version).await {
                Err(CallError::Conflict) if tries.next().is_some() => {}
                answer => return answer.map(Some),
            }
        }
    }
}

/// Reports the version of the answer to the watch's health check, because the watch must deliver that version soon.
pub(super) async fn expect_in_watch<T>(
    watch: &WatchHealth,
    answer: impl Future<Output = Result<T, CallError>>,
    version: impl Fn(&T) -> Option<&str>,
) -> Result<T, CallError> {
    let before = watch.position();
    let answer = answer.await;
    let version = match &answer {
        Ok(object) => version(object).and_then(|version| version.parse().ok()),
        Err(CallError::NotFound) => Some(before + 1),
        Err(_) => None,
    };
    watch.expect(version.unwrap_or_default());
    answer
}

/// Returns the patch that adds or removes our finalizer. Its `test` operations ensure that the list is as we know it.
fn finalizer_patch(volume: &PersistentVolume, wanted: bool) -> Option<Value> {
    let finalizers = volume.metadata.finalizers.as_deref().unwrap_or_default();
    let at = finalizers.iter().position(|name| name == protocol::FINALIZER);
    let same_object = json!({"op": "test", "path": "/metadata/uid", "value": volume.metadata.uid});
    match (wanted, at) {
        (true, Some(_)) | (false, None) => None,
        (false, Some(at)) => {
            let path = format!("/metadata/finalizers/{at}");
            Some(json!([
                same_object,
                {"op": "test", "path": path, "value": protocol::FINALIZER},
                {"op": "remove", "path": path},
            ]))
        }
        (true, None) if finalizers.is_empty() => Some(json!([
            same_object,
            {"op": "test", "path": "/metadata/resourceVersion", "value": volume.metadata.resource_version},
            {"op": "add", "path": "/metadata/finalizers", "value": [protocol::FINALIZER]},
        ])),
        (true, None) => {
            Some(json!([same_object, {"op": "add", "path": "/metadata/finalizers/-", "value": protocol::FINALIZER}]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(finalizers: &[&str]) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"name": "v", "uid": "u", "resourceVersion": "3",
            "finalizers": finalizers}}))
        .unwrap()
    }

    // Rules: R1, R2, R3, R4, R5, A1, A2, A3, A4, G6.
    #[test]
    fn the_patch_changes_only_our_finalizer() {
        let ours = protocol::FINALIZER;
        assert_eq!(finalizer_patch(&volume(&[]), false), None);
        assert_eq!(finalizer_patch(&volume(&["other", ours]), true), None);
        let patch = finalizer_patch(&volume(&["other", ours]), false).unwrap();
        assert_eq!(patch[1], json!({"op": "test", "path": "/metadata/finalizers/1", "value": ours}));
        assert_eq!(patch[2], json!({"op": "remove", "path": "/metadata/finalizers/1"}));
        let patch = finalizer_patch(&volume(&["other"]), true).unwrap();
        assert_eq!(patch[1], json!({"op": "add", "path": "/metadata/finalizers/-", "value": ours}));
        let patch = finalizer_patch(&volume(&[]), true).unwrap();
        assert_eq!(patch[1]["path"], "/metadata/resourceVersion");
    }
}
