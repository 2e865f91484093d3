//! A driver that answers according to the scenario, and records its calls.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use driver_rpc::csi::controller_service_capability::rpc::Type as Rpc;
use driver_rpc::csi::plugin_capability::service::Type as Service;
use driver_rpc::csi::*;
use driver_rpc::{Code, Error, Status, code_name};
use serde_json::{Value, json};

use super::messages;

/// The remaining answers by call. The last answer of a call is repeated; a call without answers succeeds.
pub(super) type Script = BTreeMap<String, VecDeque<Value>>;

/// A recorded call of the driver.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    /// The volume's name, or the id of a volume that this driver did not create; empty if the call concerns no volume.
    pub(super) subject: String,
    /// The request in the form that scenarios show.
    pub(super) shown: Value,
}

/// A driver that a server and a scenario share.
#[derive(Clone)]
pub(super) struct Driver(Arc<Mutex<State>>);

struct State {
    name: String,
    plugin: Vec<PluginCapability>,
    controller: Vec<ControllerServiceCapability>,
    /// The topology of its node.
    segments: BTreeMap<String, String>,
    /// The script for volumes that the driver does not know yet.
    script: Script,
    scripts: BTreeMap<String, Script>,
    names_by_id: BTreeMap<String, String>,
    calls: Vec<Call>,
    /// The last call that a step has shown, for each volume.
    last_shown: BTreeMap<String, Value>,
}

impl Driver {
    pub(super) fn new(
        name: String,
        plugin: &[String],
        controller: &[String],
        segments: BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(State {
            name,
            plugin: messages::capabilities(plugin, Service::from_str_name)?,
            controller: messages::capabilities(controller, Rpc::from_str_name)?,
            segments,
            script: Script::new(),
            scripts: BTreeMap::new(),
            names_by_id: BTreeMap::new(),
            calls: Vec::new(),
            last_shown: BTreeMap::new(),
        }))))
    }

    pub(super) fn set_capabilities(&self, controller: &[String]) -> anyhow::Result<()> {
        self.state().controller = messages::capabilities(controller, Rpc::from_str_name)?;
        Ok(())
    }

    /// Sets the answers for volumes that the driver does not know yet. Other volumes keep their answers.
    pub(super) fn set_script(&self, script: Script) {
        self.state().script = script;
    }

    /// The volumes that the driver knows.
    pub(super) fn subjects(&self) -> Vec<String> {
        self.state().scripts.keys().cloned().collect()
    }

    /// The calls that concern one of these volumes.
    pub(super) fn calls(&self, subjects: &[String]) -> Vec<Call> {
        self.state().calls.iter().filter(|call| subjects.contains(&call.subject)).cloned().collect()
    }

    /// Forgets the oldest `count` calls that concern one of these volumes, because a step has shown them.
    pub(super) fn forget(&self, subjects: &[String], mut count: usize) {
        let mut state = self.state();
        let State { calls, last_shown, .. } = &mut *state;
        calls.retain(|call| {
            let forget = count > 0 && subjects.contains(&call.subject);
            if forget {
                count -= 1;
                last_shown.insert(call.subject.clone(), call.shown.clone());
            }
            !forget
        });
    }

    /// Removes and returns all remaining calls.
    pub(super) fn take_all(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    /// The remaining calls, without those that repeat the last call that was shown.
    pub(super) fn rest(&self) -> Vec<Call> {
        let calls = self.take_all();
        let state = self.state();
        calls.into_iter().filter(|call| state.last_shown.get(&call.subject) != Some(&call.shown)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a call and returns its answer.
    fn asked(&self, subject: &str, call: &str, request: Value) -> Value {
        let mut state = self.state();
        let answer = state.answer(subject, call);
        let mut shown = json!({"call": call, "request": request});
        if answer != json!({}) {
            shown["answer"] = answer.clone();
        }
        state.calls.push(Call { subject: subject.to_owned(), shown });
        answer
    }
}

impl State {
    fn answer(&mut self, subject: &str, call: &str) -> Value {
        // Calls that do not concern a volume are also answered from the current script.
        let script = if subject.is_empty() {
            &mut self.script
        } else {
            self.scripts.entry(subject.to_owned()).or_insert_with(|| self.script.clone())
        };
        let answer = script.get_mut(call).and_then(|answers| match answers.len() {
            0 | 1 => answers.front().cloned(),
            _ => answers.pop_front(),
        });
        answer.unwrap_or_else(|| json!({}))
    }
}

/// Waits and fails as the answer specifies.
async fn follow(answer: &Value) -> Result<(), Error> {
    if let Some(seconds) = answer["after"].as_f64() {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }
    if answer["hang"] == true {
        return pending().await;
    }
    let Some(code) = answer["code"].as_str() else { return Ok(()) };
    let known = (0..=16).map(Code::from_i32).find(|known| code_name(*known) == code);
    let message = answer["message"].as_str().unwrap_or("said by the driver");
    Err(Status::new(known.unwrap_or(Code::Unknown), message).into())
}

impl Identity for Driver {
    async fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Error> {
        follow(&self.asked("", "GetPluginInfo", json!({}))).await?;
        Ok(GetPluginInfoResponse { name: self.state().name.clone(), ..Default::default() })
    }

    async fn get_plugin_capabilities(
        &self,
        _: GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Error> {
        follow(&self.asked("", "GetPluginCapabilities", json!({}))).await?;
        Ok(GetPluginCapabilitiesResponse { capabilities: self.state().plugin.clone() })
    }

    async fn probe(&self, _: ProbeRequest) -> Result<ProbeResponse, Error> {
        let answer = self.asked("", "Probe", json!({}));
        follow(&answer).await?;
        Ok(ProbeResponse { ready: answer["ready"].as_bool() })
    }
}

impl Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        _: ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Error> {
        follow(&self.asked("", "ControllerGetCapabilities", json!({}))).await?;
        Ok(ControllerGetCapabilitiesResponse { capabilities: self.state().controller.clone() })
    }

    async fn create_volume(&self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Error> {
        let answer = self.asked(&request.name, "CreateVolume", messages::shown(&request));
        follow(&answer).await?;
        let volume = messages::volume(&request, answer.get("volume"))
            .map_err(|error| Status::new(Code::Internal, format!("{error:#}")))?;
        if let Some(volume) = &volume {
            self.state().names_by_id.insert(volume.volume_id.clone(), request.name);
        }
        Ok(CreateVolumeResponse { volume })
    }

    async fn delete_volume(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Error> {
        let name = self.state().names_by_id.get(&request.volume_id).cloned();
        let subject = name.unwrap_or_else(|| request.volume_id.clone());
        follow(&self.asked(&subject, "DeleteVolume", messages::shown(&request))).await?;
        Ok(DeleteVolumeResponse {})
    }

    async fn get_capacity(&self, request: GetCapacityRequest) -> Result<GetCapacityResponse, Error> {
        let answer = self.asked("", "GetCapacity", messages::shown(&request));
        follow(&answer).await?;
        let available_capacity = answer["availableCapacity"].as_i64().unwrap_or(1 << 40);
        Ok(GetCapacityResponse { available_capacity, ..Default::default() })
    }
}

impl Node for Driver {
    async fn node_get_info(&self, _: NodeGetInfoRequest) -> Result<NodeGetInfoResponse, Error> {
        follow(&self.asked("", "NodeGetInfo", json!({}))).await?;
        let segments = Some(self.state().segments.clone()).filter(|segments| !segments.is_empty());
        let accessible_topology = segments.map(|segments| Topology { segments });
        Ok(NodeGetInfoResponse { node_id: "node".to_owned(), accessible_topology, ..Default::default() })
    }
}
