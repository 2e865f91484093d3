//! Saves a PersistentVolume whose asset exists. If the name is taken, it compares the two volumes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::PersistentVolume;
use provisioner_runtime::Cache;
use provisioner_runtime::call::CallError;
use provisioner_runtime::limiter::Purpose;

use super::objects::LiveVolume;
use super::{Actions, Step};
use crate::controller::volume::decision::NoAction;
use crate::controller::volume::events::about_claim;
use crate::controller::volume::facts::{ClaimState, Facts, Progress, UnsavedVolume, VolumeState};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::{Done, Outcome, Stopped};
use crate::controller::volume::report::provisioned_with_warning;
use crate::controller::volume::safeguards::Safeguard;
use crate::protocol;

/// The result of comparing a volume of the same name with the one to save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// The same volume: an earlier request has saved it, and its answer was lost.
    Same,
    /// A volume of another installation, with the same asset.
    SameAsset,
    /// A volume of the same claim with another asset: ours is surplus.
    OtherAsset,
    /// A volume of the same claim with another asset, which is being deleted: ours is saved once it no longer exists.
    Former,
    /// A volume of the same claim with the same path on another server, or on the same server under another name.
    OtherServer,
    /// One of our volumes, for another claim.
    OfAnother,
    /// Another volume.
    Foreign,
}

impl Actions {
    pub(super) async fn save_again(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let Progress::Unsaved(unsaved) = &facts.progress else { return Err(Stopped::Changed) };
        // A policy could refuse a second request, although the first one has saved the volume.
        let is_saved = matches!(facts.volume, VolumeState::Ours(_));
        self.try_save(unsaved, is_saved, step).await
    }

    pub(super) async fn save(&self, unsaved: UnsavedVolume, step: &Step<'_>) -> Outcome {
        let unsaved = Arc::new(unsaved);
        // The asset exists, so only a saved volume completes the work.
        self.cache().set_progress(step.key(), Progress::Unsaved(unsaved.clone()));
        self.try_save(&unsaved, false, step).await
    }

    async fn try_save(&self, unsaved: &Arc<UnsavedVolume>, is_saved: bool, step: &Step<'_>) -> Outcome {
        let key = step.key();
        let created =
            if is_saved { Err(CallError::AlreadyExists) } else { self.create_volume(unsaved.body.clone()).await };
        let saved = match created {
            Ok(saved) => saved,
            Err(CallError::AlreadyExists) => match self.read_volume(&unsaved.name).await {
                Ok(LiveVolume { seen, .. }) if !self.rules.safeguards.include(Safeguard::ReadBack) => seen,
                Ok(LiveVolume { seen, object }) => match compare(unsaved, &object) {
                    Comparison::Same if !self.is_foreign_volume(&seen) => seen,
                    // Names are the same on every node. Once the claim is bound, the attempt is cleaned up.
                    Comparison::SameAsset
                        if self.rules.capabilities.node_local && !self.no_clean_up.load(Ordering::Relaxed) =>
                    {
                        self.cache().set_progress(key, Progress::Background(unsaved.pending.clone()));
                        return Err(Stopped::WatchBehind);
                    }
                    Comparison::Same | Comparison::SameAsset => {
                        self.finish(&unsaved.pending, Purpose::Create, step).await?;
                        return Err(Stopped::NoAction(NoAction::OtherInstallation));
                    }
                    Comparison::OtherAsset => {
                        tracing::warn!(pv = unsaved.name, "the volume was saved with another asset; ours is deleted");
                        self.cache().set_progress(key, Progress::Surplus(unsaved.clone()));
                        return Err(Stopped::Changed);
                    }
                    Comparison::Former => {
                        let after = object.metadata.uid.as_deref().map(Arc::from);
                        let unsaved = Arc::new(UnsavedVolume { after, ..(**unsaved).clone() });
                        let mut cache = self.cache();
                        cache.set_progress(key, Progress::Unsaved(unsaved));
                        cache.observe_volume(seen);
                        return Err(Stopped::Changed);
                    }
                    Comparison::OtherServer => {
                        let text = other_server_text(&unsaved.body, &object);
                        self.warn(&text, unsaved);
                        self.end_attempt(&unsaved.pending, Purpose::Create, step).await?;
                        self.cache().apply_saved(key, seen);
                        return Err(Stopped::Changed);
                    }
                    Comparison::OfAnother => {
                        // Its asset may be the one that the provisioner has created or found for this claim, so nothing
                        // is deleted. The provisioner is called again once the other volume no longer exists, which the
                        // watch shows.
                        let attempt = Progress::Background(unsaved.pending.clone());
                        self.cache().set_progress(key, attempt);
                        return Err(Stopped::WatchBehind);
                    }
                    Comparison::Foreign => return Err(Stopped::NameTakenMeanwhile),
                },
                Err(CallError::NotFound) if is_saved => {
                    self.cache().remove_volume(key);
                    return Err(Stopped::Changed);
                }
                Err(error) => return Err(Stopped::NotSaved(error)),
            },
            Err(error @ (CallError::Forbidden(_) | CallError::Invalid(_))) => {
                return Err(self.not_accepted(unsaved, error, key));
            }
            Err(error) => return Err(Stopped::NotSaved(error)),
        };
        self.end_attempt(&unsaved.pending, Purpose::Create, step).await?;
        // The watch may be slower than the next run of this key.
        self.cache().apply_saved(key, saved);
        if let Some(text) = &unsaved.warning {
            self.warn(text, unsaved);
        }
        Ok(Done::Provisioned { took: unsaved.pending.begun.elapsed() })
    }

    fn warn(&self, text: &str, unsaved: &UnsavedVolume) {
        let event = about_claim(provisioned_with_warning(text), &unsaved.pending.claim.facts);
        self.runtime.events().record(event);
    }

    /// Returns the outcome of a save that the API server refuses, which may be permanent: a policy forbids the volume,
    /// or the author's code has returned an invalid one. If its claim is deleted or has another volume, the attempt is
    /// cleaned up.
    fn not_accepted(&self, unsaved: &UnsavedVolume, error: CallError, key: &Key) -> Stopped {
        let mut cache = self.cache();
        let is_wanted = match cache.facts(key).claim {
            ClaimState::Absent | ClaimState::Bound { bound_here: false, .. } => false,
            ClaimState::Waiting(claim) => !claim.facts.deleting,
            ClaimState::Bound { .. } | ClaimState::Unreadable(_) => true,
        };
        // Without `clean_up`, only a saved volume leads to the deletion of its asset.
        if is_wanted || self.no_clean_up.load(Ordering::Relaxed) {
            return Stopped::NotSaved(error);
        }
        cache.set_progress(key, Progress::Background(unsaved.pending.clone()));
        Stopped::Changed
    }
}

fn compare(unsaved: &UnsavedVolume, found: &PersistentVolume) -> Comparison {
    let Ok(wanted) = serde_json::from_slice::<PersistentVolume>(&unsaved.body) else { return Comparison::Foreign };
    let annotation = |volume: &PersistentVolume, key: &str| volume.metadata.annotations.as_ref()?.get(key).cloned();
    let same = |key: &str| annotation(found, key) == annotation(&wanted, key);
    let claim = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.as_ref()?.uid.clone();
    if same(protocol::PROVISIONED_BY) && claim(found).is_some() && claim(found) != claim(&wanted) {
        return Comparison::OfAnother;
    }
    if !same(protocol::PROVISIONED_BY) {
        return Comparison::Foreign;
    }
    let of = |volume: &PersistentVolume| serde_json::to_value(&volume.spec).unwrap_or_default();
    let server = |volume: &PersistentVolume| volume.spec.as_ref()?.nfs.as_ref().map(|nfs| nfs.server.clone());
    match (same_asset(&of(&wanted), &of(found)), same(protocol::IDENTITY)) {
        // If both servers are the same, deleting the surplus asset would delete the other volume's data.
        (true, _) if server(&wanted) != server(found) => Comparison::OtherServer,
        (true, true) => Comparison::Same,
        // Without its claim, it may be any volume.
        _ if claim(found).is_none() => Comparison::Foreign,
        (true, false) => Comparison::SameAsset,
        (false, _) if found.metadata.deletion_timestamp.is_some() => Comparison::Former,
        (false, _) => Comparison::OtherAsset,
    }
}

/// Returns the text that asks an administrator to check whether both names belong to one server, which cannot be
/// determined automatically.
fn other_server_text(ours: &[u8], saved: &PersistentVolume) -> String {
    let ours: PersistentVolume = serde_json::from_slice(ours).unwrap_or_default();
    let place = |volume: &PersistentVolume| {
        let nfs = volume.spec.as_ref().and_then(|spec| spec.nfs.as_ref());
        nfs.map(|nfs| format!("{}:{}", nfs.server, nfs.path)).unwrap_or_default()
    };
    format!(
        "the volume was saved with {} before it was created as {}; if these are two directories, remove the second one manually",
        place(saved),
        place(&ours)
    )
}

/// Returns true if two specs name the same asset. The server of an NFS volume is compared separately: it may have been
/// renamed.
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

    fn compared(change: Value) -> Comparison {
        let volume = json!({
            "metadata": {"name": "pvc-u", "annotations": {protocol::PROVISIONED_BY: "p", protocol::IDENTITY: "here"}},
            "spec": {"claimRef": {"uid": "u"}, "nfs": {"server": "a", "path": "/v"}},
        });
        let body = volume.to_string().into_bytes();
        let unsaved =
            UnsavedVolume { name: "pvc-u".to_owned(), pending: Arc::new(pending()), body, warning: None, after: None };
        compare(&unsaved, &serde_json::from_value(with(volume, change)).unwrap())
    }

    // Rules: G42.
    #[test]
    fn compares_an_existing_volume_of_the_same_name() {
        assert_eq!(compared(json!({})), Comparison::Same);
        assert_eq!(compared(json!({"spec": {"nfs": {"readOnly": false}}})), Comparison::Same);
        // It may be another directory, or the same one under another name: it is neither reused nor deleted.
        assert_eq!(compared(json!({"spec": {"nfs": {"server": "b"}}})), Comparison::OtherServer);
        let elsewhere = json!({"metadata": {"annotations": {protocol::IDENTITY: "there"}}});
        assert_eq!(compared(elsewhere.clone()), Comparison::SameAsset);
        assert_eq!(compared(with(elsewhere, json!({"spec": {"nfs": {"path": "/w"}}}))), Comparison::OtherAsset);
        assert_eq!(compared(json!({"spec": {"nfs": {"path": "/w"}}})), Comparison::OtherAsset);
        assert_eq!(compared(json!({"spec": {"nfs": null, "hostPath": {"path": "/v"}}})), Comparison::OtherAsset);
        assert_eq!(compared(json!({"spec": {"claimRef": {"uid": "v"}}})), Comparison::OfAnother);
        // An administrator has released it for another claim.
        assert_eq!(compared(json!({"spec": {"claimRef": null}})), Comparison::Same);
        let another = json!({"spec": {"claimRef": null, "nfs": {"path": "/w"}}});
        assert_eq!(compared(another), Comparison::Foreign);
        assert_eq!(
            compared(json!({"metadata": {"annotations": {protocol::PROVISIONED_BY: "q"}}})),
            Comparison::Foreign
        );
        // An administrator has deleted the volume before the attempt that saved it, or a later one, has ended.
        let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(compared(deleting.clone()), Comparison::Same);
        assert_eq!(compared(with(deleting, json!({"spec": {"nfs": {"path": "/w"}}}))), Comparison::Former);
    }
}
