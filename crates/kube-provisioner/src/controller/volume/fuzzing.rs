//! Entry points for the project's fuzz targets.

use std::sync::Arc;

use provisioner_runtime::{Cache, Change};

use super::cache::VolumeCache;
use super::class::read_class;
use super::decide::{Rules, decide};
use super::names::VolumeNames;
use super::safeguards::Safeguards;
use crate::controller::shared::names::ProvisionerNames;
use crate::hooks::Hooks;
use crate::provisioner::Provisioner;

/// Feeds bytes that the API server might send into the cache, and decides about the affected keys.
pub(crate) fn take_in(bytes: &[u8]) {
    struct Nothing;
    impl Provisioner for Nothing {
        type Parameters = ();
        async fn provision(
            &self,
            request: crate::ProvisionRequest<()>,
        ) -> Result<crate::Volume, crate::ProvisionError> {
            Ok(crate::Volume::nfs("server", request.name))
        }
        async fn delete(&self, _: crate::ProvisionedVolume) -> Result<(), crate::DeleteError> {
            Ok(())
        }
    }

    impl Hooks for Nothing {}
    let names = ProvisionerNames { own: "p".to_owned(), additional: Vec::new() };
    let capabilities = crate::Capabilities::default();
    let rules = Arc::new(Rules {
        names,
        volume_names: VolumeNames::Usual,
        capabilities,
        finalizer: true,
        identity: Some("here".into()),
        cluster_id: "this".into(),
        node: None,
        place: None,
        bids: None,
        safeguards: Safeguards::default(),
    });
    let mut cache = VolumeCache::new(rules.clone());
    let mut keys = Vec::new();
    if let Ok(class) = serde_json::from_slice(bytes) {
        keys.extend(cache.class_event(read_class(Change::Applied(class), &rules, &Nothing)));
    }
    if let Ok(volume) = serde_json::from_slice(bytes) {
        keys.extend(cache.volume_event(Change::Applied(volume), 0));
    }
    if let Ok(claim) = serde_json::from_slice(bytes) {
        keys.extend(cache.claim_event(Change::Applied(claim), 0));
    }
    for key in keys {
        cache.inputs(&key);
        decide(&cache.facts(&key), &rules);
    }
}
