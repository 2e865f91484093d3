//! Tests of the watch against an API server that responds, and against one that does not.

use std::collections::VecDeque;

use futures::stream;
use futures::{Stream, StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::testing::{self, client, lines, object, refusal};

#[tokio::test(start_paused = true)]
async fn all_pages_are_listed_between_begin_and_ready() {
    let test = Test::start([Answer::Object(page(&["a", "b"], "", "more")), Answer::Object(page(&["c"], "7", ""))]);
    test.wait(1).await;
    assert_eq!(test.events(), ["begin", "listed a", "listed b", "listed c", "ready"]);
    let queries = test.queries();
    assert!(queries[0].contains("limit=1000"), "{queries:?}");
    assert!(queries[1].contains("continue=more"), "{queries:?}");
    assert!(queries[2].contains("watch=true") && queries[2].contains("resourceVersion=7"));
    assert!(queries[2].contains("allowWatchBookmarks=true"), "{queries:?}");
    assert!(test.health.synced());
}

#[tokio::test]
async fn reading_a_slow_page_does_not_rewrite_the_buffer() {
    let chunks = stream::iter(0..20_000).then(async |_| {
        tokio::task::yield_now().await;
        Ok(b"x")
    });
    let mut bytes = Vec::with_capacity(64 << 20);
    let start = std::time::Instant::now();
    read_all(pin!(chunks.into_async_read()), &mut bytes).await.unwrap();
    assert_eq!(bytes, [b'x'; 20_000]);
    // Writing to the whole buffer after each wait takes more than a minute.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn watch_continues_from_the_last_position() {
    let test = Test::start([
        Answer::Object(page(&[], "1", "")),
        Answer::Events(vec![change("ADDED", "a", "2"), change("MODIFIED", "a", "3")]),
        Answer::Events(vec![change("DELETED", "a", "4"), bookmark("9")]),
    ]);
    test.wait(200).await;
    assert_eq!(test.events(), ["begin", "ready", "applied a", "applied a", "deleted a"]);
    let versions: Vec<String> = test.queries()[1..4].iter().map(|query| version_in(query)).collect();
    assert_eq!(versions, ["1", "3", "9"]);
    assert_eq!(test.health.position(), 9);
    assert_eq!(test.health.problem(), None);
}

#[tokio::test(start_paused = true)]
async fn begin_does_not_wait_for_the_list_response() {
    let test = Test::start([Answer::Silence]);
    test.wait(1).await;
    assert_eq!((test.events(), test.queries().len()), (vec!["begin".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn list_again_delivers_a_new_list() {
    let test = Test::start([
        Answer::Object(page(&["a"], "1", "")),
        Answer::EventsThenSilence(vec![change("ADDED", "b", "2")]),
        Answer::Object(page(&["a", "c"], "5", "")),
    ]);
    test.wait(1).await;
    assert_eq!((test.health.size(), test.health.position()), (1, 2));
    test.health.list_again().await;
    assert_eq!((test.health.size(), test.health.position()), (2, 5));
    assert_eq!(test.events(), ["begin", "listed a", "ready", "applied b", "begin", "listed a", "listed c", "ready"]);
    assert_eq!(test.health.problem(), None);
}

#[tokio::test(start_paused = true)]
async fn expired_position_triggers_a_new_list() {
    let gone = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
    let test = Test::start([
        Answer::Object(page(&["a"], "1", "")),
        Answer::Events(vec![json!({ "type": "ERROR", "object": gone })]),
        Answer::Object(page(&["b"], "5", "")),
        Answer::Refusal(410, "Expired"),
        Answer::Object(page(&["c"], "6", "")),
    ]);
    test.wait(5).await;
    let expected = [["begin", "listed a", "ready"], ["begin", "listed b", "ready"], ["begin", "listed c", "ready"]];
    assert_eq!(test.events(), expected.concat());
    assert_eq!(test.health.problem(), None);
}

#[tokio::test(start_paused = true)]
async fn too_new_position_triggers_a_new_list() {
    let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
    let details = json!({ "causes": [cause], "retryAfterSeconds": 1 });
    let unknown = json!({ "kind": "Status", "code": 504, "reason": "Timeout", "details": details });
    let test = Test::start([
        Answer::Object(page(&["a"], "9", "")),
        Answer::Events(vec![json!({ "type": "ERROR", "object": unknown })]),
        Answer::Object(page(&["b"], "2", "")),
    ]);
    test.wait(5).await;
    assert_eq!(test.events(), ["begin", "listed a", "ready", "begin", "listed b", "ready"]);
    assert_eq!(test.health.problem(), None);
}

#[tokio::test(start_paused = true)]
async fn failed_list_starts_over() {
    let test = Test::start([
        Answer::Object(page(&["a"], "", "more")),
        Answer::Refusal(500, "InternalError"),
        Answer::Object(page(&["b"], "5", "")),
    ]);
    test.wait(5).await;
    assert_eq!(test.events(), ["begin", "listed a", "begin", "listed b", "ready"]);
}

#[tokio::test(start_paused = true)]
async fn reports_a_list_that_expires_midway() {
    let test = Test::start([
        Answer::Object(page(&["a"], "", "more")),
        Answer::Refusal(410, "Expired"),
        Answer::Object(page(&["b"], "5", "")),
    ]);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(test.health.problem().as_deref(), Some("The list expired before its last page was read."));
    test.wait(1).await;
    assert_eq!((test.health.problem(), test.health.size()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn notices_a_silent_connection_within_65_seconds() {
    let test = Test::start([
        Answer::Object(page(&[], "1", "")),
        Answer::EventsThenSilence(vec![change("ADDED", "a", "2")]),
        Answer::EventsThenSilence(vec![change("ADDED", "b", "3")]),
    ]);
    test.wait(64).await;
    assert_eq!(test.events(), ["begin", "ready", "applied a"]);
    assert_eq!(test.health.last_progress(), Duration::from_secs(64));
    test.wait(2).await;
    assert_eq!(test.events(), ["begin", "ready", "applied a", "applied b"]);
    assert!(test.health.last_progress() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn reconnects_when_an_expected_version_does_not_arrive() {
    let silence = |name: &str, version: &str| Answer::EventsThenSilence(vec![change("ADDED", name, version)]);
    let test =
        Test::start([Answer::Object(page(&[], "1", "")), silence("a", "2"), silence("b", "3"), silence("c", "4")]);
    test.wait(2).await;
    // Already delivered.
    test.health.expect(2);
    test.wait(20).await;
    assert_eq!(test.queries().len(), 2);
    test.health.expect(4);
    test.health.expect(3);
    test.wait(4).await;
    assert_eq!(test.queries().len(), 2);
    test.wait(2).await;
    assert_eq!(test.events(), ["begin", "ready", "applied a", "applied b"]);
    // The expected version has still not arrived.
    test.wait(10).await;
    assert_eq!(test.events(), ["begin", "ready", "applied a", "applied b", "applied c"]);
    test.wait(20).await;
    let versions: Vec<String> = test.queries()[1..].iter().map(|query| version_in(query)).collect();
    assert_eq!((versions, test.health.problem()), (["1", "2", "3"].map(str::to_owned).to_vec(), None));
}

#[tokio::test(start_paused = true)]
async fn expected_version_that_never_arrives_causes_few_reconnects() {
    let test = Test::start([Answer::Object(page(&[], "1", ""))]);
    test.wait(2).await;
    test.health.expect(2);
    test.wait(600).await;
    // Reconnects after 5, 10, 20 and 40 seconds; then bookmarks show that the watch works.
    assert!((11..=15).contains(&test.queries().len()), "{}", test.queries().len());
}

#[tokio::test(start_paused = true)]
async fn keeps_a_lagging_watch_that_still_delivers() {
    let changes = (2..40).map(|version| change("MODIFIED", "a", &version.to_string()));
    let test = Test::start([Answer::Object(page(&[], "1", "")), Answer::Slow(changes.collect())]);
    test.wait(2).await;
    test.health.expect(30);
    test.wait(49).await;
    assert_eq!((test.queries().len(), test.health.position()), (2, 13));
}

/// The server's data was restored from a backup: its versions start again.
#[tokio::test(start_paused = true)]
async fn new_list_clears_the_expected_version() {
    let test = Test::start([
        Answer::Object(page(&[], "90", "")),
        Answer::EventsThenSilence(Vec::new()),
        Answer::Refusal(410, "Expired"),
        Answer::Object(page(&["a"], "2", "")),
        Answer::EventsThenSilence(Vec::new()),
    ]);
    test.wait(2).await;
    test.health.expect(100);
    test.wait(60).await;
    assert_eq!((test.events().last().map(String::as_str), test.health.position()), (Some("ready"), 2));
    assert_eq!(test.queries().len(), 5, "{:?}", test.queries());
}

#[test]
fn list_of_restored_data_outdates_earlier_states() {
    let health = WatchHealth::new();
    health.delivered("90");
    health.set_delivering("95");
    let changes = [Change::Listed(()), Change::Ready, Change::Applied(())];
    assert_eq!(changes.each_ref().map(|change| health.listing(change)), [95, 95, 0]);
    health.set_delivering("2");
    assert_eq!(changes.each_ref().map(|change| health.listing(change)), [u64::MAX, u64::MAX, 0]);
}

#[tokio::test(start_paused = true)]
async fn retries_a_list_without_response() {
    let test = Test::start([Answer::Silence, Answer::Object(page(&["a"], "1", ""))]);
    sleep(LIST + Duration::from_millis(50)).await;
    let problem = test.health.problem();
    assert_eq!(problem.as_deref(), Some("The API server did not answer within 30s."));
    assert!(!test.health.synced());
    test.wait(1).await;
    assert!(test.health.synced());
    assert_eq!(test.health.problem(), None);
}

#[tokio::test(start_paused = true)]
async fn retries_a_watch_that_does_not_start() {
    let test = Test::start([
        Answer::Object(page(&[], "1", "")),
        Answer::Silence,
        Answer::EventsThenSilence(vec![change("ADDED", "a", "2")]),
    ]);
    test.wait(16).await;
    assert_eq!(test.events(), ["begin", "ready", "applied a"]);
}

#[tokio::test(start_paused = true)]
async fn retries_failures_with_growing_delays() {
    let refusals = (0..1_000).map(|_| Answer::Refusal(403, "Forbidden"));
    let test = Test::start(refusals);
    test.wait(600).await;
    let requests = test.queries().len();
    // 0.2 s doubling up to 30 s, each up to 10 % shorter.
    assert!((20..40).contains(&requests), "{requests}");
    let problem = test.health.problem();
    assert_eq!(problem.as_deref(), Some("The API server does not allow this: refused"));
}

#[tokio::test(start_paused = true)]
async fn does_not_flood_a_server_that_ends_every_watch() {
    let ends = (0..1_000).map(|_| Answer::Ends);
    let test = Test::start([Answer::Object(page(&[], "1", ""))].into_iter().chain(ends));
    test.wait(60).await;
    assert!(test.queries().len() < 20, "{}", test.queries().len());
    assert!(test.health.problem().is_some());
}

#[tokio::test(start_paused = true)]
async fn success_resets_the_retry_delay() {
    let refusals = || (0..10).map(|_| Answer::Refusal(503, "ServiceUnavailable"));
    let works = [
        Answer::Object(page(&[], "1", "")),
        Answer::Events(vec![change("ADDED", "a", "2")]),
        Answer::Refusal(503, "ServiceUnavailable"),
        Answer::EventsThenSilence(vec![change("ADDED", "b", "3")]),
    ];
    let test = Test::start(refusals().chain(works));
    while test.events().last().is_none_or(|last| last != "applied a") {
        test.wait(1).await;
    }
    test.wait(62).await;
    assert_eq!(test.events().last().map(String::as_str), Some("applied b"));
}

#[tokio::test(start_paused = true)]
async fn skips_an_unreadable_change() {
    let unreadable = json!({ "type": "ADDED", "object": { "metadata": { "name": 1 } } });
    let test = Test::start([
        Answer::Object(page(&[], "1", "")),
        Answer::EventsThenSilence(vec![unreadable, change("ADDED", "b", "3")]),
    ]);
    test.wait(1).await;
    assert_eq!(test.events(), ["begin", "ready", "applied b"]);
}

#[tokio::test(start_paused = true)]
async fn waiters_for_the_first_list_are_woken() {
    let test = Test::start([Answer::Refusal(500, ""), Answer::Object(page(&[], "1", ""))]);
    let health = test.health.clone();
    tokio::time::timeout(Duration::from_secs(1), health.wait_synced()).await.unwrap();
    // It returns at once when the watch is synced.
    health.wait_synced().await;
}

#[tokio::test(start_paused = true)]
async fn working_watch_reports_progress_without_changes() {
    let test = Test::start([Answer::Object(page(&[], "1", ""))]);
    test.wait(3_600).await;
    assert!(test.health.last_progress() <= Duration::from_secs(60));
    assert_eq!(test.health.problem(), None);
    // A list, and a watch every five to ten minutes.
    assert!((7..=13).contains(&test.queries().len()), "{}", test.queries().len());
}

/// Like the watches of a thousand nodes after a restart of the API server.
#[tokio::test(start_paused = true)]
async fn watches_that_began_together_do_not_end_together() {
    let start = |seed| {
        let environment = Environment::simulated(seed, Timestamp::UNIX_EPOCH);
        Test::start_in(environment, [Answer::Object(page(&[], "1", ""))])
    };
    let tests: Vec<Test> = (0..1_000).map(start).collect();
    tests[0].wait(1).await;
    let asked: Vec<u64> = tests.iter().map(|test| seconds_in(&test.queries()[1])).collect();
    assert!(asked.iter().all(|seconds| (300..600).contains(seconds)), "{asked:?}");
    // On average 33 of a thousand end in the same ten seconds.
    let most = (30..60).map(|tenth| asked.iter().filter(|seconds| **seconds / 10 == tenth).count()).max();
    assert!(most.is_some_and(|most| most < 60), "{most:?}");
    let again: Vec<Test> = (0..3).map(start).collect();
    again[0].wait(1).await;
    assert!(again.iter().zip(&asked).all(|(test, asked)| seconds_in(&test.queries()[1]) == *asked), "reproducible");
    // The next watch of the same process has a different duration.
    tests[0].wait(600).await;
    assert_ne!(seconds_in(&tests[0].queries()[2]), asked[0]);
}

enum Answer {
    Object(Value),
    Refusal(u16, &'static str),
    /// The connection is cut silently before there is a response.
    Silence,
    /// These events, ending after a minute.
    Events(Vec<Value>),
    /// These events, then the connection is cut silently.
    EventsThenSilence(Vec<Value>),
    /// One of these events every four seconds.
    Slow(Vec<Value>),
    /// Bookmarks of this version, ending after the requested number of seconds.
    Quiet {
        version: String,
        seconds: u64,
    },
    Ends,
}

struct Test {
    health: WatchHealth,
    events: Arc<Mutex<Vec<String>>>,
    queries: Arc<Mutex<Vec<String>>>,
}

impl Test {
    /// Watches a server that gives these responses, followed by watches that only deliver bookmarks.
    fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::start_in(Environment::default(), answers)
    }

    fn start_in(environment: Environment, answers: impl IntoIterator<Item = Answer>) -> Self {
        let (health, events) = (WatchHealth::new(), Arc::new(Mutex::new(Vec::new())));
        let queries = Arc::new(Mutex::new(Vec::new()));
        let mut answers: VecDeque<Answer> = answers.into_iter().collect();
        let seen = Arc::clone(&queries);
        let client = client(move |request: Request<Body>| {
            crate::sync::lock(&seen).push(request.uri().query().unwrap_or_default().to_owned());
            let query = request.uri().query().unwrap_or_default();
            let quiet = || Answer::Quiet { version: version_in(query), seconds: seconds_in(query) };
            reply(answers.pop_front().unwrap_or_else(quiet))
        });
        let sink = Arc::clone(&events);
        let api = Api::<ConfigMap>::all(client);
        tokio::spawn(watch(api, "test", environment, health.clone(), move |event| {
            let name = |object: ConfigMap| object.name_any();
            crate::sync::lock(&sink).push(match event {
                Change::Begin => "begin".to_owned(),
                Change::Listed(object) => format!("listed {}", name(object)),
                Change::Ready => "ready".to_owned(),
                Change::Applied(object) => format!("applied {}", name(object)),
                Change::Deleted(object) => format!("deleted {}", name(object)),
            });
        }));
        Self { health, events, queries }
    }

    async fn wait(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    fn events(&self) -> Vec<String> {
        crate::sync::lock(&self.events).clone()
    }

    fn queries(&self) -> Vec<String> {
        crate::sync::lock(&self.queries).clone()
    }
}

async fn reply(answer: Answer) -> testing::Answer {
    let minute = Duration::from_secs(60);
    match answer {
        Answer::Object(value) => object(&value),
        Answer::Refusal(code, reason) => refusal(code, reason, "refused"),
        Answer::Silence => std::future::pending().await,
        Answer::Events(events) => lines(stream::iter(events).chain(nothing(sleep(minute)))),
        Answer::EventsThenSilence(events) => lines(stream::iter(events).chain(nothing(std::future::pending()))),
        Answer::Slow(events) => lines(stream::iter(events).then(async |event| {
            sleep(Duration::from_secs(4)).await;
            event
        })),
        Answer::Quiet { version, seconds } => {
            let bookmarks = stream::repeat(bookmark(&version)).then(async |bookmark| {
                sleep(Duration::from_secs(60)).await;
                bookmark
            });
            lines(bookmarks.take_until(sleep(Duration::from_secs(seconds))))
        }
        Answer::Ends => lines(stream::empty()),
    }
}

/// Returns a stream that ends without an item when `end` completes.
fn nothing<T>(end: impl Future<Output = ()>) -> impl Stream<Item = T> {
    stream::once(end).filter_map(async |()| None)
}

fn page(names: &[&str], version: &str, more: &str) -> Value {
    let items: Vec<Value> = names.iter().map(|name| config_map(name, "1")).collect();
    json!({
        "kind": "ConfigMapList",
        "apiVersion": "v1",
        "metadata": { "resourceVersion": version, "continue": more },
        "items": items,
    })
}

fn config_map(name: &str, version: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "n", "resourceVersion": version } })
}

fn change(kind: &str, name: &str, version: &str) -> Value {
    json!({ "type": kind, "object": config_map(name, version) })
}

fn bookmark(version: &str) -> Value {
    let object = json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": { "resourceVersion": version },
    });
    json!({ "type": "BOOKMARK", "object": object })
}

fn version_in(query: &str) -> String {
    value_in(query, "resourceVersion=").expect("a watch names its position").to_owned()
}

fn seconds_in(query: &str) -> u64 {
    value_in(query, "timeoutSeconds=").expect("a watch has an end").parse().unwrap()
}

fn value_in<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(key))
}
