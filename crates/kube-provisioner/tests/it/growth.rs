//! An expansion whose result cannot be written.

use kube_provisioner::{
    Capabilities, DeleteError, ExpandError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner,
    Volume,
};
use kube_sim::Verb::Patch;
use serde_json::json;

use super::fixture::{CLAIMS, Fixture, Script, VOLUMES, volume};
use super::outages::Outage::Refuse;

struct Growing;

impl Provisioner for Growing {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        Ok(volume(&request.name))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }

    async fn expand(&self, _: ProvisionedVolume, _: u64) -> Result<(), ExpandError> {
        Ok(())
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().expansion()
    }
}

impl Hooks for Growing {}

// Rules: X10, G46.
#[tokio::test(start_paused = true)]
async fn a_rejected_size_update_is_reported_and_retried() {
    let (outages, fixture) = Fixture::with_outages(Script::default());
    fixture.class("growing", json!({"allowVolumeExpansion": true}));
    let _running = fixture.start_author(1, Growing);
    fixture.claim("one", "growing");
    fixture.until("bound", || fixture.is_bound("one")).await;
    outages.schedule(Patch, VOLUMES, [Refuse(409); 4]);
    fixture.patch(CLAIMS, "one", json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    let has_event = || fixture.events("one").iter().any(|text| text.contains("VolumeResizeFailed"));
    fixture.until("the claim has an event", has_event).await;
    let size = || fixture.get(CLAIMS, "one").unwrap()["status"]["capacity"]["storage"].clone();
    fixture.until("expanded", || size() == "2Gi").await;
    assert!(outages.are_over());
}
