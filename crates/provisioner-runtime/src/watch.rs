//! Lists and watches one kind of object.
//!
//! This module uses the client's plain list and watch calls, because each step needs a deadline and the client has
//! none. If a connection breaks silently during a list or the start of a watch, the controller would otherwise not
//! notice it until the kernel's timeout, a quarter of an hour later. `reader` reads the lines of a watch.

mod reader;
mod stale;

use std::fmt::Debug;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::response::Status;
use kube::core::{ListMeta, Request};
use kube::{Api, Resource, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use self::stale::Expected;
use crate::backoff::{Backoff, Random};
use crate::call::CallError;
use crate::environment::Environment;
use crate::notify::Notifier;
pub use reader::FromJson;
pub(crate) use reader::Reader;

/// The number of objects in a page of a list. Pages of 500 cost the API server half as much again per object.
const PAGE: u32 = 1000;

/// The page size for lists of metadata. Such lists are used for large objects, such as nodes with 5 kB of metadata
/// each, and the memory of larger pages would not be returned to the system.
const METADATA_PAGE: u32 = 50;

/// The minimum time for which the server keeps a watch open, in seconds: `minWatchTimeout` of client-go's reflector.
const MIN_WATCH_SECONDS: u32 = 300;

/// The time after which a silent watch is considered dead: the server sends a bookmark every minute, even without
/// changes. If a server does not send bookmarks, the watch is restarted after this time, and no change is lost.
pub(crate) const SILENCE: Duration = Duration::from_secs(65);

/// The time limit for one page of a list.
const LIST: Duration = Duration::from_secs(30);

/// The time limit for the start of a watch. It is short because it adds to [`SILENCE`] when the network fails.
const START: Duration = Duration::from_secs(15);

/// The time after which an open watch is considered working. A watch that ends earlier without delivering anything has
/// failed.
pub(crate) const SETTLED: Duration = Duration::from_secs(1);

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(200), Duration::from_secs(30));

/// A change that a watch delivers. Changes arrive in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// A complete list begins: at the start, and after a gap that only a list closes. If the list fails, `Begin` is
    /// delivered again before `Ready`.
    Begin,
    /// An object in the list.
    Listed(T),
    /// The list is complete: known objects that were not listed no longer exist.
    Ready,
    /// An object was created or changed.
    Applied(T),
    /// An object was deleted.
    Deleted(T),
}

impl<T> Change<T> {
    /// Converts the object with `read`.
    pub fn map<U>(self, read: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Self::Begin => Change::Begin,
            Self::Listed(object) => Change::Listed(read(object)),
            Self::Ready => Change::Ready,
            Self::Applied(object) => Change::Applied(read(object)),
            Self::Deleted(object) => Change::Deleted(read(object)),
        }
    }
}

/// The objects that a watch follows: all objects of an `Api`, or only objects with certain labels.
#[derive(Clone, Debug)]
pub struct Scope<T> {
    api: Api<T>,
    labels: Option<String>,
    only_metadata: bool,
}

impl<T> Scope<T> {
    /// Follows only objects that match this label selector, such as `app=web`.
    #[must_use]
    pub fn with_labels(self, selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), ..self }
    }

    /// Follows all objects, but only their metadata, which the API server sends as `PartialObjectMetadata`.
    pub fn metadata(api: Api<T>) -> Self {
        Self { only_metadata: true, ..Self::from(api) }
    }

    pub(crate) fn list_params(&self) -> ListParams {
        ListParams { label_selector: self.labels.clone(), ..ListParams::default() }
    }

    fn watch_params(&self, seconds: u32) -> WatchParams {
        WatchParams { label_selector: self.labels.clone(), ..WatchParams::default().timeout(seconds) }
    }
}

impl<T> From<Api<T>> for Scope<T> {
    fn from(api: Api<T>) -> Self {
        Self { api, labels: None, only_metadata: false }
    }
}

/// One page of a list. Its objects are decoded one by one: decoding all of them at once needs many times the memory of
/// the text.
#[derive(Deserialize)]
struct Page<'a> {
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

impl<T: Resource + Clone + DeserializeOwned + Debug> Scope<T> {
    /// Reads the text of one page. The client's own methods keep three copies of it in memory.
    async fn page(&self, params: &ListParams, text: &mut Vec<u8>) -> kube::Result<()> {
        let request = Request::new(self.api.resource_url());
        let request = if self.only_metadata { request.list_metadata(params) } else { request.list(params) };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let body = pin!(self.api.clone().into_client().request_stream(request).await?);
        text.clear();
        read_all(body, text).await.map_err(kube::Error::ReadEvents)
    }

    /// Reads the current resource version of this kind from the API server.
    pub(crate) async fn current_version(&self) -> kube::Result<u64> {
        let list = self.api.list_metadata(&self.list_params().limit(1)).await?;
        Ok(list.metadata.resource_version.and_then(|version| version.parse().ok()).unwrap_or_default())
    }
}

/// Appends everything that `body` contains. `AsyncReadExt::read_to_end` fills the rest of the buffer with zeros
/// whenever it has waited, which took three quarters of the startup time.
async fn read_all(mut body: impl AsyncBufRead + Unpin, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    loop {
        let chunk = body.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(());
        }
        bytes.extend_from_slice(chunk);
        let read = chunk.len();
        body.consume_unpin(read);
    }
}

/// Returns the time for which the server should keep the next watch open, in seconds. It is random, so that watches
/// that began together, such as the watches of a thousand nodes after a restart of the API server, do not end together.
pub(crate) fn watch_seconds(random: &mut Random) -> u32 {
    MIN_WATCH_SECONDS + (f64::from(MIN_WATCH_SECONDS) * random.next()) as u32
}

/// Delivers all objects in `scope` and their changes to `sink`. Runs until dropped.
///
/// Retries failures with a back-off from 0.2 to 30 seconds, and reports them in `health` and, once per distinct
/// problem, in the log under `name`. Detects a silently broken connection after 65 seconds, or 5 seconds after
/// [`WatchHealth::expect`] has named a version that the connection does not deliver.
pub async fn watch<T>(
    scope: impl Into<Scope<T>>,
    name: &'static str,
    environment: Environment,
    health: WatchHealth,
    mut sink: impl FnMut(Change<T>) + Send,
) where
    T: Resource + Clone + FromJson + Debug + Send + 'static,
{
    let scope = scope.into();
    let mut random = environment.random(name);
    let mut asked = health.shared.asked.follow();
    let mut position = None;
    let mut failures = 0;
    loop {
        let step = match &mut position {
            None => {
                let asked = asked.catch_up();
                list(&scope, &health, &mut sink).await.map(|(version, size)| {
                    health.clear_problem(name);
                    health.listed(LastList { size, asked });
                    position = Some(version);
                })
            }
            Some(version) => {
                let params = scope.watch_params(watch_seconds(&mut random));
                tokio::select! {
                    biased;
                    () = asked.changed() => {
                        position = None;
                        continue;
                    }
                    step = follow(&scope, name, &health, &params, version, &mut failures, &mut sink) => step,
                }
            }
        };
        match step {
            Ok(()) => continue,
            Err(WatchError::Expired) => match position.take() {
                Some(_) => debug!(watch = name, "the server no longer knows the resource version, listing again"),
                None => health.set_problem(name, "The list expired before its last page was read.".to_owned()),
            },
            Err(WatchError::Failed(error)) => health.set_problem(name, error.to_string()),
        }
        failures += 1;
        sleep(BACKOFF.delay(failures, random.next())).await;
    }
}

/// The health of a watch. Clones refer to the same watch.
#[derive(Clone, Debug)]
pub struct WatchHealth {
    shared: Arc<Shared>,
}

impl WatchHealth {
    /// Creates the health of a watch that has not started.
    pub fn new() -> Self {
        let state = State { last_progress: Instant::now(), problem: None, listed: None };
        let [lists, asked] = [(); 2].map(|()| Notifier::default());
        let [delivering, position] = [0; 2].map(AtomicU64::new);
        let expected = Expected::default();
        Self { shared: Arc::new(Shared { state: Mutex::new(state), lists, asked, delivering, position, expected }) }
    }

    /// Returns whether all objects have been listed at least once.
    pub fn synced(&self) -> bool {
        self.last_list().is_some()
    }

    /// Returns the number of objects in the last complete list.
    pub fn size(&self) -> usize {
        self.last_list().map_or(0, |listed| listed.size)
    }

    /// Waits until all objects have been listed once.
    pub async fn wait_synced(&self) {
        self.wait_listed(0).await;
    }

    /// Lists all objects again. Returns once every object is known in its state at the time of the call, or a newer
    /// one.
    pub async fn list_again(&self) {
        self.wait_listed(self.shared.asked.notify()).await;
    }

    /// Requests another list of all objects, without waiting for it.
    pub fn request_list(&self) {
        self.shared.asked.notify();
    }

    /// Returns the resource version up to which all changes have been delivered; 0 before the first list, or if
    /// versions are not numbers.
    pub fn position(&self) -> u64 {
        self.shared.position.load(Ordering::Acquire)
    }

    /// Records that the API server has returned an object with this resource version. If the watch does not reach the
    /// version soon, its connection is considered dead.
    pub fn expect(&self, version: u64) {
        // There is no position if versions are not numbers.
        if (1..version).contains(&self.position()) {
            self.shared.expected.raise(version);
        }
    }

    /// Returns the resource version that is being delivered: of a whole list, or of one change.
    pub fn delivering(&self) -> u64 {
        self.shared.delivering.load(Ordering::Relaxed)
    }

    /// For a change that belongs to a list, returns the version up to which earlier observations are outdated: the
    /// list's version, or `u64::MAX` if that is lower than the position, because the server's data was restored from a
    /// backup. Returns 0 for other changes.
    pub fn listing<T>(&self, change: &Change<T>) -> u64 {
        match (change, self.delivering()) {
            (Change::Listed(_) | Change::Ready, version) if version < self.position() => u64::MAX,
            (Change::Listed(_) | Change::Ready, version) => version,
            _ => 0,
        }
    }

    /// Returns the time since the server last sent something: at most 65 seconds for a working watch, even without
    /// changes.
    pub fn last_progress(&self) -> Duration {
        crate::sync::lock(&self.shared.state).last_progress.elapsed()
    }

    /// Returns a description of the problem for administrators, or `None` while the watch works.
    pub fn problem(&self) -> Option<String> {
        crate::sync::lock(&self.shared.state).problem.clone()
    }

    async fn wait_listed(&self, asked: u64) {
        let mut lists = self.shared.lists.follow();
        while self.last_list().is_none_or(|list| list.asked < asked) {
            lists.changed().await;
        }
    }

    fn last_list(&self) -> Option<LastList> {
        crate::sync::lock(&self.shared.state).listed
    }

    fn listed(&self, listed: LastList) {
        crate::sync::lock(&self.shared.state).listed = Some(listed);
        self.shared.lists.notify();
    }

    fn set_delivering(&self, version: &str) {
        self.shared.delivering.store(version.parse().unwrap_or_default(), Ordering::Relaxed);
    }

    fn delivered(&self, version: &str) {
        self.shared.position.store(version.parse().unwrap_or_default(), Ordering::Release);
    }

    fn progress(&self) {
        crate::sync::lock(&self.shared.state).last_progress = Instant::now();
    }

    fn clear_problem(&self, name: &str) {
        let mut state = crate::sync::lock(&self.shared.state);
        state.last_progress = Instant::now();
        if state.problem.take().is_some() {
            info!(watch = name, "the watch works again");
        }
    }

    fn set_problem(&self, name: &str, problem: String) {
        let mut state = crate::sync::lock(&self.shared.state);
        if state.problem.as_ref() != Some(&problem) {
            warn!(watch = name, "the watch does not work, retrying: {problem}");
            state.problem = Some(problem);
        }
    }
}

impl Default for WatchHealth {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notifies of complete lists.
    lists: Notifier,
    /// Notifies of requests for a new list.
    asked: Notifier,
    delivering: AtomicU64,
    position: AtomicU64,
    expected: Expected,
}

/// The last complete list.
#[derive(Clone, Copy, Debug)]
struct LastList {
    size: usize,
    /// The number of requests for a new list before this one began.
    asked: u64,
}

#[derive(Debug)]
struct State {
    last_progress: Instant,
    problem: Option<String>,
    listed: Option<LastList>,
}

/// Lists all objects, page by page. Returns the position from which to watch.
async fn list<T>(
    scope: &Scope<T>,
    health: &WatchHealth,
    sink: &mut (impl FnMut(Change<T>) + Send),
) -> Result<(String, usize), WatchError>
where
    T: Resource + Clone + FromJson + Debug,
{
    let mut params = scope.list_params().limit(if scope.only_metadata { METADATA_PAGE } else { PAGE });
    let (mut first, mut size) = (true, 0);
    // All pages share one buffer: with a buffer per page, the objects that the sink keeps would fragment the heap.
    let mut text = Vec::new();
    // Deliver this before the request, because other responses of the API server may be newer than the list.
    sink(Change::Begin);
    loop {
        with_timeout(LIST, scope.page(&params, &mut text)).await?;
        let page: Page<'_> = decoded(serde_json::from_slice(&text))?;
        health.progress();
        if std::mem::take(&mut first) {
            health.set_delivering(page.metadata.resource_version.as_deref().unwrap_or_default());
        }
        let given = |text: &String| !text.is_empty();
        params.continue_token = page.metadata.continue_.filter(given);
        for object in page.items.into_iter().flatten() {
            sink(Change::Listed(decoded(T::from_json(object.get()))?));
            size += 1;
        }
        if params.continue_token.is_some() {
            continue;
        }
        let Some(version) = page.metadata.resource_version.filter(given) else {
            return Err(WatchError::no_version());
        };
        sink(Change::Ready);
        health.delivered(&version);
        health.shared.expected.forget();
        return Ok((version, size));
    }
}

/// Watches from `version`, which it keeps up to date, until the server ends the watch.
async fn follow<T>(
    scope: &Scope<T>,
    name: &str,
    health: &WatchHealth,
    params: &WatchParams,
    version: &mut String,
    failures: &mut u32,
    sink: &mut (impl FnMut(Change<T>) + Send),
) -> Result<(), WatchError>
where
    T: Resource + Clone + FromJson + 'static,
{
    let request = Request::new(scope.api.resource_url());
    let request =
        if scope.only_metadata { request.watch_metadata(params, version) } else { request.watch(params, version) };
    let mut events = with_timeout(START, Reader::<T>::open(&scope.api.clone().into_client(), request)).await?;
    health.progress();
    let mut stale = pin!(health.shared.expected.stale(|| health.position()));
    let mut settling = pin!(sleep(SETTLED));
    let mut settled = false;
    let mut unreadable = 0;
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            () = &mut stale => {
                debug!(watch = name, "the watch missed a change that the server has shown, connecting again");
                return Ok(());
            }
            () = &mut settling, if !settled => {
                settled = true;
                *failures = 0;
                health.clear_problem(name);
                continue;
            }
        };
        let event = match event {
            None if settled => return Ok(()),
            None => return Err(WatchError::broken("it ended the watch immediately")),
            // The connection works, so only this change is lost.
            Some(Err(kube::Error::SerdeError(_))) => {
                unreadable += 1;
                if unreadable == 1 {
                    warn!(watch = name, "an unreadable change is skipped");
                }
                continue;
            }
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(event)) => event,
        };
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                *version = object.resource_version().ok_or_else(WatchError::no_version)?;
                health.set_delivering(version);
                sink(Change::Applied(object));
                health.delivered(version);
            }
            WatchEvent::Deleted(object) => {
                *version = object.resource_version().ok_or_else(WatchError::no_version)?;
                health.set_delivering(version);
                sink(Change::Deleted(object));
                health.delivered(version);
            }
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                health.delivered(version);
                health.progress();
                continue;
            }
            WatchEvent::Error(status) => return Err((*status).into()),
        }
        settled = true;
        *failures = 0;
        health.clear_problem(name);
    }
}

async fn with_timeout<T>(limit: Duration, request: impl Future<Output = kube::Result<T>>) -> Result<T, WatchError> {
    match timeout(limit, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(WatchError::Failed(CallError::TimedOut(limit))),
    }
}

fn decoded<T>(read: serde_json::Result<T>) -> Result<T, WatchError> {
    read.map_err(|error| kube::Error::SerdeError(error).into())
}

/// The reason why a list or a watch ended.
pub(crate) enum WatchError {
    /// The server no longer knows our position.
    Expired,
    Failed(CallError),
}

impl WatchError {
    fn broken(text: &str) -> Self {
        Self::Failed(CallError::Unavailable(text.to_owned()))
    }

    fn no_version() -> Self {
        Self::broken("its answer has no resourceVersion")
    }
}

impl From<Status> for WatchError {
    fn from(status: Status) -> Self {
        // A position that is too new dates from before the server's data was restored from a backup.
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        if status.code == 410 || causes.any(|cause| cause.reason == "ResourceVersionTooLarge") {
            return Self::Expired;
        }
        Self::Failed(status.into())
    }
}

impl From<kube::Error> for WatchError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            error => Self::Failed(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
