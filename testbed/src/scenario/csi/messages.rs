//! Messages of CSI as scenarios show them.

use anyhow::Context;
use driver_rpc::csi::volume_capability::access_mode::Mode;
use driver_rpc::csi::{CreateVolumeRequest, Volume};
use serde::Serialize;
use serde_json::{Value, json};

/// The capabilities of a plug-in.
pub(super) const PLUGIN: &[(&str, i32)] = &[("CONTROLLER_SERVICE", 1), ("VOLUME_ACCESSIBILITY_CONSTRAINTS", 2)];

/// The capabilities of a controller service.
pub(super) const CONTROLLER: &[(&str, i32)] = &[
    ("CREATE_DELETE_VOLUME", 1),
    ("PUBLISH_UNPUBLISH_VOLUME", 2),
    ("CREATE_DELETE_SNAPSHOT", 5),
    ("CLONE_VOLUME", 7),
    ("SINGLE_NODE_MULTI_WRITER", 13),
    ("MODIFY_VOLUME", 14),
];

/// The numbers of capabilities by their names.
pub(super) fn numbers(names: &[String], known: &[(&str, i32)]) -> anyhow::Result<Vec<i32>> {
    let number = |name: &String| {
        let found = known.iter().find(|(known, _)| known == name);
        found.map(|(_, number)| *number).with_context(|| format!("no capability is called {name}"))
    };
    names.iter().map(number).collect()
}

/// A request, with the names of access modes.
pub(super) fn shown(request: &impl Serialize) -> Value {
    let mut shown = json!(request);
    for capability in shown["volumeCapabilities"].as_array_mut().into_iter().flatten() {
        if let Some(mode) = capability["accessMode"]["mode"].as_i64() {
            capability["accessMode"] = mode_name(mode).into();
        }
    }
    if let Some(fields) = shown.as_object_mut() {
        // Looking for it may have made it.
        fields.retain(|_, value| !value.is_null());
    }
    shown
}

/// The volume that an obedient driver makes, with the changes of an answer; none if there is to be none in it.
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

fn mode_name(number: i64) -> &'static str {
    match i32::try_from(number).ok().and_then(|number| Mode::try_from(number).ok()) {
        Some(Mode::SingleNodeWriter) => "SINGLE_NODE_WRITER",
        Some(Mode::SingleNodeReaderOnly) => "SINGLE_NODE_READER_ONLY",
        Some(Mode::MultiNodeReaderOnly) => "MULTI_NODE_READER_ONLY",
        Some(Mode::MultiNodeSingleWriter) => "MULTI_NODE_SINGLE_WRITER",
        Some(Mode::MultiNodeMultiWriter) => "MULTI_NODE_MULTI_WRITER",
        Some(Mode::SingleNodeSingleWriter) => "SINGLE_NODE_SINGLE_WRITER",
        Some(Mode::SingleNodeMultiWriter) => "SINGLE_NODE_MULTI_WRITER",
        Some(Mode::Unknown) | None => "UNKNOWN",
    }
}
