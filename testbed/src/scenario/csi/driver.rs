//! A driver that answers as a scenario says, and keeps what it was asked.

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

/// The answers that are left, by call. The last one of a call is given for ever; without any the call succeeds.
pub(super) type Script = BTreeMap<String, VecDeque<Value>>;

/// What the driver was asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    /// The volume's name, or the id of one that this driver has not made; empty if the call concerns none.
    pub(super) subject: String,
    /// As scenarios show it.
    pub(super) shown: Value,
}

/// A driver that a server and a scenario share.
#[derive(Clone)]
pub(super) struct Driver(Arc<Mutex<State>>);

struct State {
    name: String,
    plugin: Vec<PluginCapability>,
    controller: Vec<ControllerServiceCapability>,
    /// Where its node is.
    segments: BTreeMap<String, String>,
    /// For volumes that it has not heard of.
    script: Script,
    scripts: BTreeMap<String, Script>,
    names_by_id: BTreeMap<String, String>,
    calls: Vec<Call>,
    /// The last of the calls that were shown, by the volume that they concern.
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

    /// What is answered about volumes that the driver has not heard of yet. Others keep the answers that they have.
    pub(super) fn set_script(&self, script: Script) {
        self.state().script = script;
    }

    /// The volumes that it has heard of.
    pub(super) fn subjects(&self) -> Vec<String> {
        self.state().scripts.keys().cloned().collect()
    }

    /// The calls that concern one of these volumes.
    pub(super) fn calls(&self, subjects: &[String]) -> Vec<Call> {
        self.state().calls.iter().filter(|call| subjects.contains(&call.subject)).cloned().collect()
    }

    /// Forgets these calls, which are the oldest that concern one of these volumes: they were shown.
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

    /// All calls that nobody has taken.
    pub(super) fn take_all(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    /// The calls that nobody has taken, without those that repeat the last one that was shown.
    pub(super) fn rest(&self) -> Vec<Call> {
        let calls = self.take_all();
        let state = self.state();
        calls.into_iter().filter(|call| state.last_shown.get(&call.subject) != Some(&call.shown)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call and gives its answer.
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
        // What concerns no volume is answered from the present script, too.
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

/// Waits and fails as an answer says.
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
