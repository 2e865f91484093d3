//! Saves a PersistentVolume whose asset is made. What is there already is compared, never taken on trust.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use provisioner_runtime::call::CallError;
use tokio::time::Instant;

use super::objects::LiveVolume;
use super::{Actor, Outcome};
use crate::controller::facts::{Facts, Progress, UnsavedVolume};
use crate::controller::key::Key;
use crate::controller::safeguards::Safeguard;
use crate::protocol;

impl Actor {
    pub(super) async fn save_again(&self, facts: &Facts, key: &Key) -> Outcome {
        let Progress::Unsaved(unsaved) = &facts.progress else { return Outcome::Changed };
        self.try_save(key, unsaved, Instant::now()).await
    }

    pub(super) async fn save(&self, key: &Key, unsaved: UnsavedVolume, started: Instant) -> Outcome {
        let unsaved = Arc::new(unsaved);
        // From here on there is an asset, so nothing but a saved volume ends the work.
        self.world().set_progress(key, Progress::Unsaved(unsaved.clone()));
        self.try_save(key, &unsaved, started).await
    }

    async fn try_save(&self, key: &Key, unsaved: &UnsavedVolume, started: Instant) -> Outcome {
        let saved = match self.create_volume(unsaved.body.clone()).await {
            Ok(saved) => saved,
            Err(CallError::AlreadyExists) => match self.read_volume(&unsaved.name).await {
                Ok(LiveVolume { seen, .. }) if !self.rules.safeguards.include(Safeguard::ReadBack) => seen,
                Ok(LiveVolume { seen, object }) if is_ours(unsaved, &object) => seen,
                Ok(_) => return Outcome::NameTakenMeanwhile,
                Err(error) => return Outcome::NotSaved(error),
            },
            Err(error) => return Outcome::NotSaved(error),
        };
        // The watch may be slower than the next look at this key.
        self.world().saved(key, saved);
        Outcome::Provisioned { took: started.elapsed() }
    }
}

/// Whether the volume that has the name is the one we wanted to save: an earlier attempt whose answer was lost.
fn is_ours(unsaved: &UnsavedVolume, volume: &PersistentVolume) -> bool {
    let Ok(wanted) = serde_json::from_slice::<PersistentVolume>(&unsaved.body) else { return false };
    let by = |volume: &PersistentVolume| volume.metadata.annotations.as_ref()?.get(protocol::PROVISIONED_BY).cloned();
    let claim = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.as_ref()?.uid.clone();
    if volume.metadata.deletion_timestamp.is_some() || by(volume) != by(&wanted) || claim(volume) != claim(&wanted) {
        return false;
    }
    let same_source = serde_json::to_value(&wanted.spec).ok().zip(serde_json::to_value(&volume.spec).ok());
    if let Some((wanted, found)) = same_source
        && let Some(difference) = source_difference(&wanted, &found)
    {
        tracing::warn!(
            pv = unsaved.name,
            difference,
            "the volume was saved by an earlier attempt with another source; the saved one counts"
        );
    }
    true
}

/// The first part of the source that the saved volume has otherwise. Defaults that the API server added do not count.
fn source_difference<'a>(wanted: &'a serde_json::Value, found: &serde_json::Value) -> Option<&'a str> {
    const SOURCES: [&str; 7] = ["csi", "fc", "flexVolume", "hostPath", "iscsi", "local", "nfs"];
    let wanted = wanted.as_object()?;
    let differs = |source: &serde_json::Value, name: &String| {
        let fields = source.as_object();
        fields.is_none_or(|fields| fields.iter().any(|(field, value)| found[name].get(field) != Some(value)))
    };
    let mut sources = wanted.iter().filter(|(name, _)| SOURCES.contains(&name.as_str()));
    sources.find(|(name, source)| differs(source, name)).map(|(name, _)| name.as_str())
}
