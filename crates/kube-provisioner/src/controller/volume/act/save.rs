//! Saves a PersistentVolume whose asset exists. If the name is taken, it compares the two volumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use provisioner_runtime::call::CallError;
use tokio::time::{Instant, timeout_at};

use super::Actions;
use super::objects::LiveVolume;
use crate::controller::volume::decide::NoAction;
use crate::controller::volume::events;
use crate::controller::volume::facts::{Facts, Progress, UnsavedVolume};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::Outcome;
use crate::controller::volume::safeguards::Safeguard;
use crate::protocol;

/// How a volume with the same name compares with the one to save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The same volume: an earlier request has saved it, and its answer was lost.
    Same,
    /// Another installation's, with the same asset.
    SameAsset,
    /// A volume of the same claim with another asset: ours is surplus.
    OtherAsset,
    /// Another volume.
    Foreign,
}

impl Actions {
    pub(super) async fn save_again(&self, facts: &Facts, key: &Key) -> Outcome {
        let Progress::Unsaved(unsaved) = &facts.progress else { return Outcome::Changed };
        let outcome = self.try_save(key, unsaved).await;
        // The claim need not record the attempt any more.
        if matches!(outcome, Outcome::Provisioned { .. }) {
            self.release_if_over_now(facts, key).await;
        }
        outcome
    }

    /// Saves a volume, until the deadline where the claim is locked: the next holder of the lock may remove the asset.
    pub(super) async fn save(&self, key: &Key, unsaved: UnsavedVolume, deadline: Option<Instant>) -> Outcome {
        let unsaved = Arc::new(unsaved);
        // The asset exists, so only a saved volume ends the work.
        self.cache().set_progress(key, Progress::Unsaved(unsaved.clone()));
        let Some(deadline) = deadline else { return self.try_save(key, &unsaved).await };
        let begun = Instant::now();
        let outcome = match timeout_at(deadline, self.try_save(key, &unsaved)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::NotSaved(CallError::TimedOut(begun.elapsed())),
        };
        // It is saved again only under the lock, as an attempt that goes on.
        if matches!(outcome, Outcome::NotSaved(_)) {
            self.cache().set_progress(key, Progress::Background(unsaved.pending.clone()));
        }
        outcome
    }

    async fn try_save(&self, key: &Key, unsaved: &Arc<UnsavedVolume>) -> Outcome {
        let saved = match self.create_volume(unsaved.body.clone()).await {
            Ok(saved) => saved,
            Err(CallError::AlreadyExists) => match self.read_volume(&unsaved.name).await {
                Ok(LiveVolume { seen, .. }) if !self.rules.safeguards.include(Safeguard::ReadBack) => seen,
                Ok(LiveVolume { seen, object }) => match compare(unsaved, &object) {
                    Found::Same => seen,
                    Found::SameAsset => {
                        self.cache().set_progress(key, Progress::None);
                        return Outcome::NoAction(NoAction::OtherInstallation);
                    }
                    Found::OtherAsset => {
                        tracing::warn!(pv = unsaved.name, "the volume was saved with another asset; ours is deleted");
                        self.cache().set_progress(key, Progress::Surplus(unsaved.clone()));
                        return Outcome::Changed;
                    }
                    Found::Foreign => return Outcome::NameTakenMeanwhile,
                },
                Err(error) => return Outcome::NotSaved(error),
            },
            Err(error) => return Outcome::NotSaved(error),
        };
        // The watch may be slower than the next look at this key.
        self.cache().saved(key, saved);
        if let Some(text) = &unsaved.warning {
            self.context.events().record(events::warned(text, &unsaved.pending.claim.facts));
        }
        Outcome::Provisioned { took: unsaved.pending.begun.elapsed() }
    }
}

fn compare(unsaved: &UnsavedVolume, found: &PersistentVolume) -> Found {
    let Ok(wanted) = serde_json::from_slice::<PersistentVolume>(&unsaved.body) else { return Found::Foreign };
    let annotation = |volume: &PersistentVolume, key: &str| volume.metadata.annotations.as_ref()?.get(key).cloned();
    let same = |key: &str| annotation(found, key) == annotation(&wanted, key);
    let claim = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.as_ref()?.uid.clone();
    if found.metadata.deletion_timestamp.is_some() || !same(protocol::PROVISIONED_BY) || claim(found) != claim(&wanted)
    {
        return Found::Foreign;
    }
    let of = |volume: &PersistentVolume| serde_json::to_value(&volume.spec).unwrap_or_default();
    match (same_asset(&of(&wanted), &of(found)), same(protocol::IDENTITY)) {
        (true, true) => Found::Same,
        (true, false) => Found::SameAsset,
        (false, _) => Found::OtherAsset,
    }
}

/// Whether two specs name the same asset. Server names are not compared: a server may have been renamed.
fn same_asset(wanted: &serde_json::Value, found: &serde_json::Value) -> bool {
    const HANDLES: [(&str, &[&str]); 7] = [
        ("csi", &["driver", "volumeHandle"]),
        ("fc", &["lun", "targetWWNs", "wwids"]),
        ("flexVolume", &["driver", "options"]),
        ("hostPath", &["path"]),
        ("iscsi", &["iqn", "lun"]),
        ("local", &["path"]),
        ("nfs", &["path"]),
    ];
    HANDLES.iter().all(|(source, fields)| {
        wanted.get(source).is_some() == found.get(source).is_some()
            && fields.iter().all(|field| wanted[*source].get(field) == found[*source].get(field))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::volume::tests::{pending, with};

    fn compared(change: Value) -> Found {
        let volume = json!({
            "metadata": {"name": "pvc-u", "annotations": {protocol::PROVISIONED_BY: "p", protocol::IDENTITY: "here"}},
            "spec": {"claimRef": {"uid": "u"}, "nfs": {"server": "a", "path": "/v"}},
        });
        let body = volume.to_string().into_bytes();
        let unsaved = UnsavedVolume { name: "pvc-u".to_owned(), pending: Arc::new(pending()), body, warning: None };
        compare(&unsaved, &serde_json::from_value(with(volume, change)).unwrap())
    }

    #[test]
    fn g42_what_has_the_name_already_is_compared() {
        assert_eq!(compared(json!({})), Found::Same);
        assert_eq!(compared(json!({"spec": {"nfs": {"server": "alias", "readOnly": false}}})), Found::Same);
        let elsewhere = json!({"metadata": {"annotations": {protocol::IDENTITY: "there"}}});
        assert_eq!(compared(elsewhere.clone()), Found::SameAsset);
        assert_eq!(compared(with(elsewhere, json!({"spec": {"nfs": {"path": "/w"}}}))), Found::OtherAsset);
        assert_eq!(compared(json!({"spec": {"nfs": {"path": "/w"}}})), Found::OtherAsset);
        assert_eq!(compared(json!({"spec": {"nfs": null, "hostPath": {"path": "/v"}}})), Found::OtherAsset);
        assert_eq!(compared(json!({"spec": {"claimRef": {"uid": "v"}}})), Found::Foreign);
        assert_eq!(compared(json!({"metadata": {"annotations": {protocol::PROVISIONED_BY: "q"}}})), Found::Foreign);
        let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(compared(deleting), Found::Foreign);
    }
}
