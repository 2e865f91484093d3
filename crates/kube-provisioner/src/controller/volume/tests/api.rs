//! An API server inside the test. It holds a few objects, sends every change to the watches, and fails as the test
//! wants.
//!
//! It binds a claim when its volume is created, as the controller-manager does. Claims are told apart by name: all are in
//! one namespace.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const VOLUMES: &str = "persistentvolumes";
pub(super) const CLASSES: &str = "storageclasses";
pub(super) const EVENTS: &str = "events";
/// The journal is one.
pub(super) const CONFIG_MAPS: &str = "configmaps";

/// The resources that the controller watches.
pub(super) const WATCHED: [&str; 3] = [CLAIMS, VOLUMES, CLASSES];

/// How long the server keeps a watch open.
const WATCH: Duration = Duration::from_secs(60);

/// More requests than any test has.
const ENDLESS: usize = 20_000;

/// What becomes of a request instead of being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Not done, answered with this status.
    Refuse(u16),
    /// Not done, answered with 429 and the wish to be left alone for these seconds.
    Busy(u32),
    /// Not done, never answered.
    Hang,
    /// Done after this time, and answered as it should be.
    Late(Duration),
    /// Done, answered with this status.
    Lose(u16),
    /// Done, never answered.
    Swallow,
    /// A watch that begins, says nothing and never ends.
    Still,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) verb: &'static str,
    pub(super) resource: &'static str,
    name: String,
    query: String,
    pub(super) at: Instant,
}

/// The server; clones are the same.
#[derive(Clone, Default)]
pub(super) struct Api {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<(&'static str, String), Value>,
    changes: Vec<(u64, &'static str, String)>,
    faults: HashMap<(&'static str, &'static str), VecDeque<Fault>>,
    asked: Vec<Asked>,
}

impl Api {
    pub(super) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// The next requests of this kind end so, one after the other.
    pub(super) fn fail(&self, verb: &'static str, resource: &'static str, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.entry((verb, resource)).or_default().extend(faults);
    }

    /// Whether all faults have happened.
    pub(super) fn has_failed(&self) -> bool {
        self.state().faults.values().all(VecDeque::is_empty)
    }

    /// Creates or replaces an object.
    pub(super) fn put(&self, resource: &'static str, object: Value) {
        self.state().store(resource, object);
        self.changed.notify_waiters();
    }

    /// Removes an object, whatever holds it.
    pub(super) fn remove(&self, resource: &'static str, name: &str) {
        self.state().remove(resource, name);
        self.changed.notify_waiters();
    }

    pub(super) fn get(&self, resource: &'static str, name: &str) -> Option<Value> {
        self.state().objects.get(&(resource, name.to_owned())).cloned()
    }

    pub(super) fn all(&self, resource: &'static str) -> Vec<Value> {
        let state = self.state();
        state.objects.iter().filter(|((kind, _), _)| *kind == resource).map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn is_bound(&self, claim: &str) -> bool {
        self.get(CLAIMS, claim).is_some_and(|claim| claim["spec"]["volumeName"].is_string())
    }

    /// The texts of the events with this reason about the object of this name.
    pub(super) fn messages(&self, name: &str, reason: &str) -> Vec<String> {
        let about = |event: &Value| event["regarding"]["name"] == name && event["reason"] == reason;
        let events = self.all(EVENTS).into_iter().filter(about);
        events.map(|event| event["note"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// When requests of this kind came.
    pub(super) fn asked(&self, verb: &str, resource: &str) -> Vec<Instant> {
        let state = self.state();
        let such = state.asked.iter().filter(|asked| asked.verb == verb && asked.resource == resource);
        such.map(|asked| asked.at).collect()
    }

    /// How many requests came, but for watches that go on and what they bring.
    pub(super) fn requests(&self) -> usize {
        self.state().asked.iter().filter(|asked| asked.verb != "watch").count()
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let asked = Asked::read(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
        let fault = {
            let mut state = self.state();
            state.asked.push(asked.clone());
            // Time stands still in a loop without a pause: it ends here, and the test can count.
            let fault = (state.asked.len() > ENDLESS).then_some(Fault::Hang);
            fault.or_else(|| state.faults.get_mut(&(asked.verb, asked.resource)).and_then(VecDeque::pop_front))
        };
        match fault {
            None => self.serve(&asked, &body),
            Some(Fault::Refuse(code)) => refusal(code, json!({"name": "the-object"})),
            Some(Fault::Busy(seconds)) => refusal(429, json!({ "retryAfterSeconds": seconds })),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Late(time)) => {
                sleep(time).await;
                self.serve(&asked, &body)
            }
            Some(Fault::Lose(code)) => {
                self.serve(&asked, &body);
                refusal(code, json!({"name": "the-object"}))
            }
            Some(Fault::Swallow) => {
                self.serve(&asked, &body);
                std::future::pending().await
            }
            Some(Fault::Still) => lines(stream::pending()),
        }
    }

    fn serve(&self, asked: &Asked, body: &[u8]) -> Answer {
        if asked.verb == "watch" {
            return lines(self.watch(asked.resource, asked.version()));
        }
        let outcome = self.state().serve(asked, serde_json::from_slice(body).unwrap_or_default());
        self.changed.notify_waiters();
        match outcome {
            Ok(object) => Response::new(Full::new(Bytes::from(object.to_string())).boxed_unsync()),
            Err(code) => refusal(code, json!({"name": "the-object"})),
        }
    }

    fn watch(&self, resource: &'static str, from: u64) -> impl Stream<Item = String> + use<> {
        let changes = stream::unfold((self.clone(), from), move |(api, from)| async move {
            loop {
                let changed = api.changed.notified();
                let next = api.state().changes.iter().find(|(at, kind, _)| *at > from && *kind == resource).cloned();
                match next {
                    Some((at, _, line)) => return Some((line, (api.clone(), at))),
                    None => changed.await,
                }
            }
        });
        changes.take_until(sleep(WATCH))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Asked {
    fn read(method: &Method, path: &str, query: &str) -> Self {
        let parts: Vec<&str> = path.split('/').collect();
        let known = [CLAIMS, VOLUMES, CLASSES, EVENTS, CONFIG_MAPS];
        let (at, resource) = (0..parts.len())
            .find_map(|at| known.into_iter().find(|resource| *resource == parts[at]).map(|resource| (at, resource)))
            .expect("a known resource");
        let name = parts.get(at + 1).copied().unwrap_or_default().to_owned();
        let verb = match *method {
            Method::GET if query.contains("watch=true") => "watch",
            Method::GET if name.is_empty() => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::DELETE => "delete",
            Method::PUT => "update",
            _ => "patch",
        };
        Self { verb, resource, name, query: query.to_owned(), at: Instant::now() }
    }

    fn version(&self) -> u64 {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == "resourceVersion").and_then(|(_, value)| value.parse().ok()).unwrap_or_default()
    }
}

impl State {
    /// The answer, or the status of the refusal.
    fn serve(&mut self, asked: &Asked, body: Value) -> Result<Value, u16> {
        let key = (asked.resource, asked.name.clone());
        match asked.verb {
            "list" => {
                let items: Vec<&Value> = self
                    .objects
                    .iter()
                    .filter(|((kind, _), _)| *kind == asked.resource)
                    .map(|(_, item)| item)
                    .collect();
                Ok(json!({ "metadata": { "resourceVersion": self.version.to_string() }, "items": items }))
            }
            "get" => self.objects.get(&key).cloned().ok_or(404),
            "create" => self.create(asked.resource, body),
            "delete" => self.delete(&key, &body),
            "update" => self.update(&key, body),
            _ => self.patch(&key, &body),
        }
    }

    fn create(&mut self, resource: &'static str, mut object: Value) -> Result<Value, u16> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if self.objects.contains_key(&(resource, name.clone())) {
            return Err(ALREADY_EXISTS);
        }
        object["metadata"]["uid"] = json!(format!("uid-of-{name}-{}", self.version));
        let created = self.store(resource, object);
        if resource == VOLUMES {
            self.bind(created.clone());
        }
        Ok(created)
    }

    fn bind(&mut self, mut volume: Value) {
        let reference = volume["spec"]["claimRef"].clone();
        let claim = self.objects.get(&(CLAIMS, reference["name"].as_str().unwrap_or_default().to_owned())).cloned();
        match claim.filter(|claim| claim["metadata"]["uid"] == reference["uid"]) {
            Some(mut claim) => {
                volume["status"] = json!({ "phase": "Bound" });
                claim["spec"]["volumeName"] = volume["metadata"]["name"].clone();
                claim["status"] = json!({ "phase": "Bound" });
                self.store(CLAIMS, claim);
            }
            None => volume["status"] = json!({ "phase": "Released" }),
        }
        self.store(VOLUMES, volume);
    }

    fn update(&mut self, key: &(&'static str, String), object: Value) -> Result<Value, u16> {
        let known = self.objects.get(key).ok_or(404_u16)?;
        if known["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return Err(409);
        }
        Ok(self.store(key.0, object))
    }

    fn delete(&mut self, key: &(&'static str, String), options: &Value) -> Result<Value, u16> {
        let mut object = self.objects.get(key).cloned().ok_or(404_u16)?;
        let wanted = &options["preconditions"];
        let holds = |field: &str| wanted[field].is_null() || wanted[field] == object["metadata"][field];
        if !holds("uid") || !holds("resourceVersion") {
            return Err(409);
        }
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.store_or_let_go(key.0, object.clone());
        Ok(match self.objects.get(key) {
            Some(object) => object.clone(),
            None => json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }),
        })
    }

    fn patch(&mut self, key: &(&'static str, String), patch: &Value) -> Result<Value, u16> {
        let mut object = self.objects.get(key).cloned().ok_or(404_u16)?;
        match patch {
            Value::Array(operations) => {
                if !operations.iter().all(|operation| apply(&mut object, operation)) {
                    return Err(422);
                }
            }
            merge => object = super::with(object, merge.clone()),
        }
        self.store_or_let_go(key.0, object.clone());
        Ok(object)
    }

    /// An object that is being deleted goes with its last finalizer.
    fn store_or_let_go(&mut self, resource: &'static str, object: Value) {
        let meta = &object["metadata"];
        let held = meta["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if meta["deletionTimestamp"].is_null() || held {
            self.store(resource, object);
        } else {
            self.remove(resource, meta["name"].as_str().unwrap_or_default());
        }
    }

    fn store(&mut self, resource: &'static str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let known = self.objects.insert((resource, name), object.clone()).is_some();
        self.send(if known { "MODIFIED" } else { "ADDED" }, resource, &object);
        object
    }

    fn remove(&mut self, resource: &'static str, name: &str) -> Option<Value> {
        let mut object = self.objects.remove(&(resource, name.to_owned()))?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.send("DELETED", resource, &object);
        Some(object)
    }

    /// The type comes first, as from a real server.
    fn send(&mut self, kind: &str, resource: &'static str, object: &Value) {
        let line = format!(r#"{{"type":"{kind}","object":{object}}}"#);
        self.changes.push((self.version, resource, line));
    }
}

/// The two operations of JSON Patch that the controller needs here; `false` when a test fails.
fn apply(object: &mut Value, operation: &Value) -> bool {
    let path = operation["path"].as_str().unwrap();
    match operation["op"].as_str().unwrap() {
        "test" => object.pointer(path) == Some(&operation["value"]),
        "remove" => {
            let (parent, last) = path.rsplit_once('/').unwrap();
            match object.pointer_mut(parent) {
                Some(Value::Array(items)) => drop(items.remove(last.parse().unwrap())),
                Some(Value::Object(fields)) => drop(fields.remove(&last.replace("~1", "/")).unwrap()),
                other => panic!("nothing to remove from: {other:?}"),
            }
            true
        }
        other => panic!("{other} is not known here"),
    }
}

type Bytes = <Body as http_body::Body>::Data;
type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Not a status of HTTP: 409 with the reason that tells it from a conflict.
const ALREADY_EXISTS: u16 = 0;

fn refusal(code: u16, details: Value) -> Answer {
    let (code, reason) = match code {
        ALREADY_EXISTS => (409, "AlreadyExists"),
        403 => (403, "Forbidden"),
        404 => (404, "NotFound"),
        409 => (409, "Conflict"),
        422 => (422, "Invalid"),
        429 => (429, "TooManyRequests"),
        504 => (504, "Timeout"),
        code => (code, "InternalError"),
    };
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "refused by the test", "details": details });
    let mut answer = Response::new(Full::new(Bytes::from(status.to_string())).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}

fn lines(lines: impl Stream<Item = String> + Send + 'static) -> Answer {
    let frames = lines.map(|line| Ok(Frame::data(Bytes::from(format!("{line}\n")))));
    Response::new(StreamBody::new(frames).boxed_unsync())
}
