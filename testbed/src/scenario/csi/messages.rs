//! CSI messages in the form that scenarios show.

use anyhow::Context;
use driver_rpc::csi::volume_capability::access_mode::Mode;
use driver_rpc::csi::{CreateVolumeRequest, Volume};
use serde::Serialize;
use serde_json::{Value, json};

/// Parses the names of capabilities.
pub(super) fn capabilities<K, C: From<K>>(names: &[String], kind: fn(&str) -> Option<K>) -> anyhow::Result<Vec<C>> {
    let capability = |name: &String| Ok(kind(name).with_context(|| format!("no capability is called {name}"))?.into());
    names.iter().map(capability).collect()
}

/// A request, with the names of access modes.
pub(super) fn shown(request: &impl Serialize) -> Value {
    let mut shown = json!(request);
    for capability in shown["volumeCapabilities"].as_array_mut().into_iter().flatten() {
        if let Some(mode) = capability["accessMode"]["mode"].as_i64() {
            let mode = i32::try_from(mode).ok().and_then(|number| Mode::try_from(number).ok());
            capability["accessMode"] = mode.unwrap_or(Mode::Unknown).as_str_name().into();
        }
    }
    if let Some(fields) = shown.as_object_mut() {
        // Indexing a field that does not exist adds it as null.
        fields.retain(|_, value| !value.is_null());
    }
    shown
}

/// The volume that a compliant driver would create, with the changes of an answer; `None` if the answer removes it.
pub(super) fn volume(request: &CreateVolumeRequest, changes: Option<&Value>) -> anyhow::Result<Option<Volume>> {
    let mut volume = json!(Volume {
        capacity_bytes: request.capacity_range.as_ref().map_or(0, |range| range.required_bytes),
        volume_id: format!("id-of-{}", request.name),
        content_source: request.volume_content_source.clone(),
        ..Default::default()
    });
    if let Some(changes) = changes {
        kube_sim::merge_patch(&mut volume, changes.clone());
    }
    serde_json::from_value(volume).context("a scenario's volume is none")
}
