//! Runs the steps of a scenario in order, and collects the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context;
use http::Method;
use kube::Client;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::csi::{Host, Stage};
use super::file::{Action, Csi, Needs, Step};
use super::kinds::{self, Kind};
use super::send::{Answer, Request, Watch, send, watch};
use super::value::{Variables, holds, pick};
use super::{Library, Scenario, normal};

/// The limit for a step with `until`. Controllers resync every 15 seconds, and machines can be busy.
const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// The outcome of a scenario.
pub struct Run {
    /// The answer of each step that ran.
    pub answers: Vec<Value>,
    /// The paths of the cluster-scoped objects that were created.
    pub made: Vec<String>,
    /// The resource versions of all objects in the answers, even if a step shows only other parts.
    pub versions: BTreeSet<u64>,
    /// The reason why the scenario could not be completed.
    pub failure: Option<anyhow::Error>,
}

/// Runs a scenario in a separate namespace. `name` is the name of the namespace and the value of `$(run)`.
pub async fn run(library: &Library, scenario: &Scenario, client: &Client, name: &str) -> Run {
    run_on(library, scenario, client, name, None).await
}

/// Like [`run`], for a CSI scenario, whose sidecar runs on this host.
pub async fn run_csi(library: &Library, scenario: &Scenario, client: &Client, name: &str, host: &Host) -> Run {
    run_on(library, scenario, client, name, Some(host)).await
}

async fn run_on(library: &Library, scenario: &Scenario, client: &Client, name: &str, host: Option<&Host>) -> Run {
    let values = BTreeMap::from([("run".to_owned(), Value::from(name))]);
    let mut runner = Runner {
        client,
        scenario,
        variables: Variables { values, objects: &library.objects },
        stage: None,
        watches: BTreeMap::new(),
        answers: Vec::new(),
        made: Vec::new(),
        versions: BTreeSet::new(),
    };
    let failure = runner.all(library, name, host).await.err();
    let failure = failure.map(|error| match &runner.stage {
        Some(stage) => error.context(format!("the sidecar says\n{}", stage.log())),
        None => error,
    });
    let Runner { answers, made, versions, .. } = runner;
    Run { answers, made, versions, failure }
}

struct Runner<'a> {
    client: &'a Client,
    scenario: &'a Scenario,
    variables: Variables<'a>,
    stage: Option<Stage<'a>>,
    watches: BTreeMap<String, Watch>,
    answers: Vec<Value>,
    made: Vec<String>,
    versions: BTreeSet<u64>,
}

impl<'a> Runner<'a> {
    async fn all(&mut self, library: &Library, namespace: &str, host: Option<&'a Host>) -> anyhow::Result<()> {
        self.make("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await?;
        if self.scenario.needs == Needs::Scheduler {
            // Pods need the account, and its controller may be slower than the scenario.
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            self.make(&path, json!({"metadata": {"name": "default"}})).await?;
        }
        if let Some(csi) = &self.scenario.csi {
            self.set("driver", self.variables.text(&csi.name)?.into())?;
        }
        for (name, value) in &self.scenario.values {
            let value = self.variables.fill(value)?;
            self.set(name, value)?;
        }
        if let Some(csi) = &self.scenario.csi {
            let host = host.context("a scenario of CSI needs a host for its sidecar")?;
            self.set_stage(library, csi, host).await?;
        }
        self.steps(&self.scenario.steps).await?;
        let rest = self.stage.as_ref().map(Stage::rest).unwrap_or_default();
        if !rest.is_empty() {
            self.answers.push(json!({"step": "calls that no step shows", "body": rest}));
        }
        Ok(())
    }

    /// Grants the sidecar its permissions, and starts it and the driver.
    async fn set_stage(&mut self, library: &Library, csi: &Csi, host: &'a Host) -> anyhow::Result<()> {
        for object in &library.rights {
            let (kind, object) = self.object(object)?;
            let path = kind.path(&self.namespace(&Step::default(), &object)?);
            if kind.cluster_scoped {
                self.made.push(format!("{path}/{}", text(&object["metadata"]["name"])));
            }
            self.make(&path, object).await?;
        }
        let fill = |texts: &[String]| texts.iter().map(|text| self.variables.text(text)).collect::<anyhow::Result<_>>();
        let mut csi = Csi { name: self.variables.text("$(driver)")?, flags: fill(&csi.flags)?, ..csi.clone() };
        if let Some(name) = csi.node.as_mut().and_then(|node| node.name.as_mut()) {
            *name = self.variables.text(name)?;
        }
        let run = self.variables.text("$(run)")?;
        self.stage = Some(Stage::set(host, &csi, self.client, &run).await?);
        Ok(())
    }

    async fn steps(&mut self, steps: &[Step]) -> anyhow::Result<()> {
        for (index, step) in steps.iter().enumerate() {
            let items = match self.variables.fill(&step.each)? {
                Value::Null => {
                    self.step(step).await.with_context(|| format!("step {}", index + 1))?;
                    continue;
                }
                Value::Array(items) => items,
                other => anyhow::bail!("`each` is a list: {other}"),
            };
            for (number, item) in (1_u64..).zip(items) {
                self.set("item", item)?;
                self.set("index", number.into())?;
                self.step(step).await.with_context(|| format!("step {}, item {number}", index + 1))?;
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Value) -> anyhow::Result<()> {
        anyhow::ensure!(!self.variables.objects.contains_key(name), "{name} is the name of a shared object");
        self.variables.values.insert(name.to_owned(), value);
        Ok(())
    }

    async fn make(&mut self, path: &str, object: Value) -> anyhow::Result<()> {
        let answer = send(self.client, &post(path, object)).await?;
        // An object that another client created in the meantime suffices.
        anyhow::ensure!([201, 409].contains(&answer.status), "{path} cannot be created: {}", answer.body);
        self.versions.extend(normal::versions(&answer.body));
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        let action = step.action()?;
        let entry = match action {
            Action::Steps(steps) => return Box::pin(self.steps(steps)).await,
            Action::Pause(seconds) => {
                sleep(Duration::from_secs_f64(seconds)).await;
                return Ok(());
            }
            Action::Answers(answers) => {
                let answers = self.variables.fill(answers)?;
                return self.stage()?.script(&answers);
            }
            Action::Driver(step) => return self.stage()?.driver(step),
            Action::Sidecar(step) => match self.stage()?.sidecar(*step).await? {
                Some(entry) => entry,
                None => return Ok(()),
            },
            Action::Calls(count) => json!({"body": self.stage()?.calls(count).await?}),
            Action::Outcome(target) => {
                let (namespace, target) = (self.namespace(step, &Value::Null)?, self.variables.text(target)?);
                let until = self.variables.fill(&step.until.clone().unwrap_or_default())?;
                let client = self.client;
                let shows = |part: &str| {
                    let is_below = |path: &String| path.split('.').next() == Some(part);
                    step.show.as_ref().is_none_or(|show| show.iter().any(is_below))
                };
                let outcome = self.stage()?.outcome(client, (&namespace, &target), &until, shows).await?;
                self.versions.extend(normal::versions(&outcome));
                if let Some(name) = &step.name {
                    self.set(name, outcome.clone())?;
                }
                json!({"body": shown(step, outcome)})
            }
            Action::Expect(name) => json!({"events": self.expect(step, name).await?}),
            Action::Watch(_) => match watch(self.client, &self.request(step, action)?).await? {
                Ok(watch) => {
                    let name = step.name.clone().context("a watch needs a name: `as`")?;
                    self.watches.insert(name, watch);
                    json!({"status": 200})
                }
                Err(answer) => self.answer(step, answer)?,
            },
            _ => {
                let request = self.request(step, action)?;
                let answer = self.send(step, &request).await?;
                self.remember(&request, &answer);
                let is_refusal = answer.status >= 400 && step.until.is_none();
                let mut entry = self.answer(step, answer)?;
                if self.stage.is_some() && step.show.is_none() && !is_refusal {
                    // This only prepares the sidecar's work.
                    return Ok(());
                }
                entry[normal::GENERATE_NAME] = generate_name(&request);
                entry
            }
        };
        let mut described = Map::from_iter([("step".to_owned(), self.describe(action)?.into())]);
        described.extend(entry.as_object().cloned().unwrap_or_default());
        self.answers.push(described.into());
        Ok(())
    }

    fn stage(&mut self) -> anyhow::Result<&mut Stage<'a>> {
        self.stage.as_mut().context("only a scenario with `csi` has a driver")
    }

    /// The recorded part of an answer, which becomes a variable if the step names one.
    fn answer(&mut self, step: &Step, answer: Answer) -> anyhow::Result<Value> {
        self.versions.extend(normal::versions(&answer.body));
        if let Some(name) = &step.name {
            self.set(name, answer.body.clone())?;
        }
        Ok(json!({"status": answer.status, "body": shown(step, answer.body)}))
    }

    fn remember(&mut self, request: &Request, answer: &Answer) {
        let metadata = &answer.body["metadata"];
        if [Method::POST, Method::PATCH].contains(&request.method)
            && answer.status == 201
            && metadata["namespace"].is_null()
            && let Some(name) = metadata["name"].as_str()
        {
            let path = request.path.strip_suffix(name).unwrap_or(&request.path).trim_end_matches('/');
            self.made.push(format!("{path}/{name}"));
        }
    }

    /// Sends a request, and repeats it if the step has `until`.
    async fn send(&self, step: &Step, request: &Request) -> anyhow::Result<Answer> {
        let Some(until) = &step.until else { return send(self.client, request).await };
        let wanted = self.variables.fill(until)?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = send(self.client, request).await?;
            let done = if wanted == "gone" { answer.status == 404 } else { holds(&answer.body, &wanted) };
            if done {
                return Ok(answer);
            }
            anyhow::ensure!(Instant::now() < deadline, "not until {wanted}: {:#}", answer.body);
            sleep(POLL).await;
        }
    }

    async fn expect(&mut self, step: &Step, name: &str) -> anyhow::Result<Vec<Value>> {
        let until = step.until.as_ref().map(|until| self.variables.fill(until)).transpose()?;
        let bookmarks = until.as_ref().is_some_and(|until| until == "bookmark");
        let watch = self.watches.get_mut(name).with_context(|| format!("there is no watch {name}"))?;
        let mut events = Vec::new();
        while step.events != Some(events.len()) {
            let Some(event) = watch.next().await.with_context(|| format!("after {}", json!(events)))? else {
                events.push(json!("end"));
                break;
            };
            let is_bookmark = event["type"] == "BOOKMARK";
            // The server sends bookmarks at arbitrary times.
            if is_bookmark && !bookmarks {
                continue;
            }
            let last = is_bookmark || until.as_ref().is_some_and(|until| holds(&event, until));
            self.versions.extend(normal::versions(&event["object"]));
            events.push(json!({"type": event["type"], "object": shown(step, event["object"].clone())}));
            if last {
                break;
            }
        }
        Ok(events)
    }

    fn request(&self, step: &Step, action: Action<'_>) -> anyhow::Result<Request> {
        let mut query = BTreeMap::new();
        for (name, value) in &step.query {
            query.insert(name.clone(), self.variables.text(&text(value))?);
        }
        let mut headers = BTreeMap::from([("accept".to_owned(), "application/json".to_owned())]);
        let mut content_type = "application/json";
        let target = |name: &str| self.target(step, name);
        let (method, path, mut body) = match action {
            Action::Create(object) => {
                let (kind, object) = self.object(object)?;
                (Method::POST, kind.path(&self.namespace(step, &object)?), Some(bytes(&object)))
            }
            Action::Update(object) => {
                let (path, object) = self.named(step, object)?;
                (Method::PUT, path, Some(bytes(&object)))
            }
            Action::Apply(object) => {
                content_type = "application/apply-patch+yaml";
                let (path, object) = self.named(step, object)?;
                (Method::PATCH, path, Some(bytes(&object)))
            }
            Action::Patch(name, kind, patch) => {
                content_type = kind.content_type();
                (Method::PATCH, target(name)?, Some(bytes(&self.variables.fill(patch)?)))
            }
            Action::Get(name) | Action::List(name) => (Method::GET, target(name)?, None),
            Action::Watch(name) => {
                query.insert("watch".to_owned(), "true".to_owned());
                (Method::GET, target(name)?, None)
            }
            Action::Delete(name) | Action::DeleteAll(name) => (Method::DELETE, target(name)?, None),
            Action::Request(line) => {
                let line = self.variables.text(line)?;
                let (method, path) = line.split_once(' ').context("a request is a method and a path")?;
                (method.parse()?, path.to_owned(), None)
            }
            _ => anyhow::bail!("this step sends nothing: {step:?}"),
        };
        if let Some(given) = &step.body {
            body = Some(match self.variables.fill(given)? {
                Value::String(text) => text.into_bytes(),
                value => bytes(&value),
            });
        }
        if body.is_some() {
            headers.insert("content-type".to_owned(), content_type.to_owned());
        }
        for (name, value) in &step.headers {
            headers.insert(name.clone(), self.variables.text(value)?);
        }
        Ok(Request { method, path, query, headers, body })
    }

    /// An object with the `apiVersion` of its kind, unless it already has one.
    fn object(&self, object: &Value) -> anyhow::Result<(Kind, Value)> {
        let mut object = self.variables.fill(object)?;
        let kind = self.kind(object["kind"].as_str().context("an object has a kind")?)?;
        if object["apiVersion"].is_null() {
            object["apiVersion"] = kind.api_version.clone().into();
        }
        Ok((kind, object))
    }

    /// An object and its path.
    fn named(&self, step: &Step, object: &Value) -> anyhow::Result<(String, Value)> {
        let (kind, object) = self.object(object)?;
        let name = object["metadata"]["name"].as_str().context("the object has no name")?;
        let path = format!("{}/{name}{}", kind.path(&self.namespace(step, &object)?), subresource(step));
        Ok((path, object))
    }

    fn namespace(&self, step: &Step, object: &Value) -> anyhow::Result<String> {
        match (&step.namespace, object["metadata"]["namespace"].as_str()) {
            (Some(namespace), _) => self.variables.text(namespace),
            (None, Some(namespace)) => Ok(namespace.to_owned()),
            (None, None) => self.variables.text("$(run)"),
        }
    }

    /// The path of `Kind/name`, or of all objects of a kind.
    fn target(&self, step: &Step, target: &str) -> anyhow::Result<String> {
        let target = self.variables.text(target)?;
        let (kind, name) = target.split_once('/').map_or((target.as_str(), None), |(kind, name)| (kind, Some(name)));
        let all = self.kind(kind)?.path(&self.namespace(step, &Value::Null)?);
        Ok(name.map_or(all.clone(), |name| format!("{all}/{name}{}", subresource(step))))
    }

    fn kind(&self, name: &str) -> anyhow::Result<Kind> {
        let mut kind = kinds::find(name, &self.scenario.kinds)?;
        kind.api_version = self.variables.text(&kind.api_version)?;
        Ok(kind)
    }

    fn describe(&self, action: Action<'_>) -> anyhow::Result<String> {
        let of_object = |verb: &str, object: &Value| -> anyhow::Result<String> {
            let object = self.variables.fill(object)?;
            let name = &object["metadata"]["name"];
            Ok(format!("{verb} {} {}", text(&object["kind"]), name.as_str().unwrap_or_default()).trim_end().to_owned())
        };
        let of_target = |verb: &str, target: &str| Ok(format!("{verb} {}", self.variables.text(target)?));
        match action {
            Action::Create(object) => of_object("create", object),
            Action::Update(object) => of_object("update", object),
            Action::Apply(object) => of_object("apply", object),
            Action::Get(target) => of_target("get", target),
            Action::List(target) => of_target("list", target),
            Action::Patch(target, ..) => of_target("patch", target),
            Action::Delete(target) => of_target("delete", target),
            Action::DeleteAll(target) => of_target("delete all", target),
            Action::Watch(target) => of_target("watch", target),
            Action::Expect(target) => of_target("expect", target),
            Action::Request(line) => self.variables.text(line),
            Action::Outcome(target) => of_target("outcome of", target),
            Action::Calls(_) => Ok("calls".to_owned()),
            Action::Sidecar(_) => Ok("the sidecar ends".to_owned()),
            Action::Answers(_) | Action::Driver(_) | Action::Pause(_) | Action::Steps(_) => Ok(String::new()),
        }
    }
}

/// The `generateName` of a request.
fn generate_name(request: &Request) -> Value {
    let body = request.body.as_deref().unwrap_or_default();
    let metadata = serde_json::from_slice::<Value>(body).map(|object| object["metadata"].clone()).unwrap_or_default();
    if metadata["name"].is_null() { metadata["generateName"].clone() } else { Value::Null }
}

/// The parts that are compared. A refusal is always compared completely.
fn shown(step: &Step, mut body: Value) -> Value {
    normal::mark(&mut body);
    match &step.show {
        Some(paths) if body["kind"] != "Status" => pick(&body, &paths.iter().map(String::as_str).collect::<Vec<_>>()),
        _ => body,
    }
}

fn post(path: &str, object: Value) -> Request {
    let headers = BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
    let (method, path) = (Method::POST, path.to_owned());
    Request { method, path, query: BTreeMap::new(), headers, body: Some(bytes(&object)) }
}

fn subresource(step: &Step) -> String {
    step.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default()
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
