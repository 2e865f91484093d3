//! The format of a scenario file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::kinds::Kind;

/// One scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// `<topic>/<name>`, from the file's path.
    #[serde(skip)]
    pub name: String,
    /// The path of the recorded answers.
    #[serde(skip)]
    pub expected: PathBuf,
    /// The behavior that the scenario shows, as a sentence.
    pub title: String,
    /// The components that must run.
    pub needs: Needs,
    /// True if the scenario would disturb others, for instance with a default class.
    #[serde(default)]
    pub alone: bool,
    /// True if managed fields of answers are compared.
    #[serde(default)]
    pub managed_fields: bool,
    /// Kinds that the scenario defines itself.
    #[serde(default)]
    pub(super) kinds: BTreeMap<String, Kind>,
    /// The driver and the sidecar of a CSI scenario.
    #[serde(default)]
    pub(super) csi: Option<Csi>,
    /// Variables.
    #[serde(default)]
    pub(super) values: BTreeMap<String, Value>,
    pub(super) steps: Vec<Step>,
}

/// The components that must run in addition to the API server's storage.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// Only kube-apiserver.
    Apiserver,
    /// Additionally kube-controller-manager.
    ControllerManager,
    /// Additionally kube-scheduler.
    Scheduler,
}

impl Scenario {
    pub(super) fn load(root: &Path, path: &Path) -> anyhow::Result<Self> {
        let mut scenario: Self = read_yaml(path)?;
        scenario.name = path.strip_prefix(root)?.with_extension("").display().to_string();
        scenario.expected = path.with_extension("expected.yaml");
        for step in &scenario.steps {
            step.check(scenario.csi.is_some()).with_context(|| path.display().to_string())?;
        }
        Ok(scenario)
    }
}

pub(super) fn read_yaml<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // Unlike in YAML 1.1, `n` and `yes` are strings.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options).with_context(|| format!("cannot understand {}", path.display()))
}

/// A driver whose answers the steps choose, and the program that provisions for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Csi {
    /// The capabilities of the plug-in.
    pub(super) plugin: Vec<String>,
    /// The capabilities of the controller service.
    pub(super) controller: Vec<String>,
    /// The driver's name; the default is `$(run).example.com`.
    pub(super) name: String,
    /// Additional flags of the sidecar.
    pub(super) flags: Vec<String>,
    /// True if steps start the driver and the sidecar.
    pub(super) manual: bool,
    /// The driver's node, for sidecars that run on each node.
    pub(super) node: Option<CsiNode>,
}

/// The node of a driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CsiNode {
    /// The sidecar's `$NODE_NAME`.
    pub(super) name: Option<String>,
    /// The topology that the driver reports for the node.
    #[serde(default)]
    pub(super) segments: BTreeMap<String, String>,
}

impl Default for Csi {
    fn default() -> Self {
        Self {
            plugin: vec!["CONTROLLER_SERVICE".to_owned()],
            controller: vec!["CREATE_DELETE_VOLUME".to_owned()],
            name: "$(run).example.com".to_owned(),
            flags: Vec::new(),
            manual: false,
            node: None,
        }
    }
}

/// The action of a step on the sidecar.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SidecarStep {
    Start,
    /// Kills it to simulate a crash.
    Kill,
    /// Waits until it exits.
    Ended,
}

/// The action of a step on the driver.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) enum DriverStep {
    /// Starts it with these capabilities of the controller service.
    Start(Vec<String>),
    /// Stops it and removes its socket.
    Stop,
}

/// A step: exactly one action and its settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Step {
    create: Option<Value>,
    update: Option<Value>,
    apply: Option<Value>,
    get: Option<String>,
    list: Option<String>,
    patch: Option<String>,
    delete: Option<String>,
    delete_all: Option<String>,
    watch: Option<String>,
    expect: Option<String>,
    request: Option<String>,
    answers: Option<Value>,
    outcome: Option<String>,
    calls: Option<usize>,
    sidecar: Option<SidecarStep>,
    driver: Option<DriverStep>,
    pause: Option<f64>,
    steps: Vec<Step>,

    json: Option<Value>,
    merge: Option<Value>,
    strategic: Option<Value>,

    /// The request's body; a string is sent unchanged.
    pub(super) body: Option<Value>,
    pub(super) query: BTreeMap<String, Value>,
    pub(super) headers: BTreeMap<String, String>,
    /// Overrides the scenario's namespace; empty for all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) subresource: Option<String>,
    /// The variable that receives the answer's body, or the watch.
    #[serde(rename = "as")]
    pub(super) name: Option<String>,
    /// The parts of the answer that are compared; the default is all of it.
    pub(super) show: Option<Vec<String>>,
    /// Repeats the step until its answer contains this, or is `gone`; `expect` ends with such an event.
    pub(super) until: Option<Value>,
    /// The number of events that `expect` reads.
    pub(super) events: Option<usize>,
    /// Repeats the step for each item, as `$(item)`, with its number from 1 as `$(index)`.
    pub(super) each: Value,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action<'a> {
    Create(&'a Value),
    Update(&'a Value),
    Apply(&'a Value),
    Get(&'a str),
    List(&'a str),
    Patch(&'a str, PatchType, &'a Value),
    Delete(&'a str),
    DeleteAll(&'a str),
    Watch(&'a str),
    Expect(&'a str),
    Request(&'a str),
    Answers(&'a Value),
    Outcome(&'a str),
    Calls(usize),
    Sidecar(&'a SidecarStep),
    Driver(&'a DriverStep),
    Pause(f64),
    Steps(&'a [Step]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    Json,
    Merge,
    Strategic,
}

impl Action<'_> {
    /// True if the action concerns the driver or the sidecar.
    fn is_of_csi(self) -> bool {
        matches!(self, Self::Answers(_) | Self::Outcome(_) | Self::Calls(_) | Self::Sidecar(_) | Self::Driver(_))
    }
}

impl PatchType {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

impl Step {
    fn check(&self, csi: bool) -> anyhow::Result<()> {
        let action = self.action()?;
        ensure!(csi || !action.is_of_csi(), "only a scenario with `csi` has a driver: {self:?}");
        self.steps.iter().try_for_each(|step| step.check(csi))
    }

    pub(super) fn action(&self) -> anyhow::Result<Action<'_>> {
        let patch =
            self.patch.as_deref().map(|target| Ok::<_, anyhow::Error>((target, self.patch_body()?))).transpose()?;
        let actions = [
            self.create.as_ref().map(Action::Create),
            self.update.as_ref().map(Action::Update),
            self.apply.as_ref().map(Action::Apply),
            self.get.as_deref().map(Action::Get),
            self.list.as_deref().map(Action::List),
            patch.map(|(target, (patch, body))| Action::Patch(target, patch, body)),
            self.delete.as_deref().map(Action::Delete),
            self.delete_all.as_deref().map(Action::DeleteAll),
            self.watch.as_deref().map(Action::Watch),
            self.expect.as_deref().map(Action::Expect),
            self.request.as_deref().map(Action::Request),
            self.answers.as_ref().map(Action::Answers),
            self.outcome.as_deref().map(Action::Outcome),
            self.calls.map(Action::Calls),
            self.sidecar.as_ref().map(Action::Sidecar),
            self.driver.as_ref().map(Action::Driver),
            self.pause.map(Action::Pause),
            Some(self.steps.as_slice()).filter(|steps| !steps.is_empty()).map(Action::Steps),
        ];
        let mut actions = actions.into_iter().flatten();
        match (actions.next(), actions.next()) {
            (Some(action), None) => Ok(action),
            _ => bail!("a step has exactly one action: {self:?}"),
        }
    }

    fn patch_body(&self) -> anyhow::Result<(PatchType, &Value)> {
        match (&self.json, &self.merge, &self.strategic) {
            (Some(body), None, None) => Ok((PatchType::Json, body)),
            (None, Some(body), None) => Ok((PatchType::Merge, body)),
            (None, None, Some(body)) => Ok((PatchType::Strategic, body)),
            _ => bail!("a patch is one of json, merge and strategic: {self:?}"),
        }
    }
}
