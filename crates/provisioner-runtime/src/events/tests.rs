//! Tests of the recorder against an API server that records its requests.

mod clock;
mod fleet;

use std::collections::VecDeque;

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::testing::{self, client, object, refusal};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_event_has_all_required_fields() {
    let test = Test::start([]);
    test.recorder.record(Event {
        object: ObjectRef {
            api_version: "v1",
            kind: "Pod",
            namespace: Some("n".into()),
            name: "a".into(),
            uid: "u".into(),
        },
        kind: EventKind::Warning,
        reason: "Failed",
        action: "Starting",
        note: "it is late".to_owned(),
        same_from_all: false,
    });
    test.wait(1).await;
    let mut request = test.only();
    let name = request.body["metadata"]["name"].take();
    assert!(name.as_str().is_some_and(|name| name.starts_with("a.")), "{name}");
    assert!(request.body["eventTime"].take().is_string());
    let expected = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "name": null, "namespace": "n" },
        "eventTime": null,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "n",
            "name": "a",
            "uid": "u",
        },
        "type": "Warning",
        "reason": "Failed",
        "action": "Starting",
        "note": "it is late",
        "reportingController": "example.com/tester",
        "reportingInstance": "one",
    });
    assert_eq!((request.method, request.body), (Method::POST, expected));
    assert_eq!(request.path, "/apis/events.k8s.io/v1/namespaces/n/events");
    assert_eq!(test.recorder.stats(), EventStats { sent: 1, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn writes_events_of_cluster_scoped_objects_to_namespace_default() {
    let test = Test::start([]);
    let mut event = event("a", "note");
    event.object.namespace = None;
    test.recorder.record(event);
    test.wait(1).await;
    let request = test.only();
    assert_eq!(request.path, "/apis/events.k8s.io/v1/namespaces/default/events");
    assert_eq!(request.body["regarding"]["namespace"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn writes_and_patches_events_of_the_core_api() {
    let test = Test::with(EventOptions { api: EventApi::Core, ..options() }, []);
    for _ in 0..3 {
        test.recorder.record(event("a", "note"));
        test.wait(60).await;
    }
    let [first, second, third] = &test.requests()[..] else { panic!("three requests") };
    assert!(first.path.starts_with("/api/v1/namespaces/") && first.path.ends_with("/events"), "{}", first.path);
    let body = &first.body;
    assert_eq!((&body["apiVersion"], &body["kind"]), (&json!("v1"), &json!("Event")));
    assert_eq!((&body["involvedObject"]["name"], &body["message"]), (&json!("a"), &json!("note")));
    assert_eq!((&body["source"], &body["count"]), (&json!({"component": "example.com/tester"}), &json!(1)));
    for (request, count) in [(second, 2), (third, 3)] {
        assert_eq!(request.method, Method::PATCH);
        assert_eq!(request.body["count"], count);
        assert!(request.body["lastTimestamp"].is_string());
        assert_eq!(request.body.as_object().map(serde_json::Map::len), Some(2));
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_notes_are_merged_into_the_latest() {
    let test = Test::start([]);
    for note in ["one", "two", "three"] {
        test.recorder.record(event("a", note));
    }
    test.recorder.record(Event { reason: "Other", ..event("a", "four") });
    test.recorder.record(Event { kind: EventKind::Normal, ..event("a", "five") });
    test.wait(1).await;
    let sent: Vec<_> =
        test.requests().iter().map(|request| (request.note(), request.body["series"]["count"].as_i64())).collect();
    let expected = [("three", Some(3)), ("four", None), ("five", None)];
    assert_eq!(sent, expected.map(|(note, count)| (note.to_owned(), count)));
    assert_eq!(test.recorder.stats(), EventStats { sent: 3, coalesced: 2, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn repeated_note_raises_only_the_count() {
    let test = Test::start([]);
    for _ in 0..3 {
        test.recorder.record(event("a", "note"));
        test.wait(60).await;
    }
    let [first, second, third] = &test.requests()[..] else { panic!("three requests") };
    assert_eq!((&first.method, &second.method, &third.method), (&Method::POST, &Method::PATCH, &Method::PATCH));
    assert!(second.path.ends_with(first.body["metadata"]["name"].as_str().unwrap()));
    assert_eq!(second.path, third.path);
    for (request, count) in [(second, 2), (third, 3)] {
        let series = &request.body["series"];
        assert_eq!(series["count"], count);
        assert!(series["lastObservedTime"].is_string());
        assert_eq!(request.body.as_object().map(serde_json::Map::len), Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn different_note_creates_a_new_event() {
    let test = Test::start([]);
    for note in ["one", "two"] {
        test.recorder.record(event("a", note));
        test.wait(60).await;
    }
    let requests = test.requests();
    assert!(requests.iter().all(|request| request.method == Method::POST));
    assert_ne!(requests[0].body["metadata"]["name"], requests[1].body["metadata"]["name"]);
}

#[tokio::test(start_paused = true)]
async fn a_series_ends_after_ten_minutes() {
    let test = Test::start([]);
    for _ in 0..2 {
        test.recorder.record(event("a", "note"));
        test.wait(601).await;
    }
    assert!(test.requests().iter().all(|request| request.method == Method::POST));
}

#[tokio::test(start_paused = true)]
async fn a_new_series_begins_when_the_event_was_deleted() {
    let test = Test::start([Answer::Ok, Answer::Refusal(404, "NotFound", "")]);
    for _ in 0..2 {
        test.recorder.record(event("a", "note"));
        test.wait(1).await;
    }
    let methods: Vec<Method> = test.requests().iter().map(|request| request.method.clone()).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::POST]);
    assert_eq!(test.recorder.stats().sent, 2);
}

#[tokio::test(start_paused = true)]
async fn long_texts_are_cut() {
    let test = Test::start([]);
    let mut long = event("a", &"x".repeat(5_000));
    long.object.name = format!("{}.b", "n".repeat(235)).into();
    test.recorder.record(long);
    test.wait(1).await;
    let body = test.only().body;
    assert_eq!(body["note"].as_str().map(str::len), Some(1024));
    let name = body["metadata"]["name"].as_str().unwrap();
    assert!(name.len() <= 253 && !name.contains(".."), "{name}");
}

#[tokio::test(start_paused = true)]
async fn sends_a_burst_of_3000_events_within_the_concurrency_limit() {
    let test = Test::start([]);
    for number in 0..3_000 {
        test.recorder.record(event(&number.to_string(), "note"));
    }
    test.wait(100).await;
    assert_eq!(test.recorder.stats(), EventStats { sent: 3_000, ..EventStats::default() });
    assert_eq!(test.server.most.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_concurrent_requests_can_be_changed() {
    let test = Test::start([]);
    test.recorder.set_concurrency(0);
    for number in 0..20 {
        test.recorder.record(event(&number.to_string(), "note"));
    }
    test.wait(1).await;
    assert_eq!(test.recorder.stats(), EventStats { queued: 20, ..EventStats::default() });
    test.recorder.set_concurrency(1);
    test.wait(1).await;
    assert_eq!(test.recorder.stats().sent, 20);
    assert_eq!(test.server.most.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn is_filling_when_more_than_half_of_the_queue_waits() {
    let test = Test::with(EventOptions { capacity: 4, ..options() }, []);
    test.recorder.set_concurrency(0);
    let filling = ["a", "b", "c"].map(|object| {
        test.recorder.record(event(object, "note"));
        test.recorder.is_filling()
    });
    assert_eq!(filling, [false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn is_due_respects_pauses_and_object_rates() {
    let test = Test::with(EventOptions { burst: 1, ..options() }, [Answer::Busy(20)]);
    let due_after = async || {
        assert!(!test.recorder.is_due());
        let start = Instant::now();
        test.recorder.wait_due().await;
        assert!(test.recorder.is_due());
        start.elapsed().as_secs_f64().round()
    };
    // The server asks for a pause.
    test.recorder.record(event("a", "first"));
    test.wait(1).await;
    test.recorder.set_concurrency(0);
    assert_eq!(due_after().await, 19.0);
    test.recorder.set_concurrency(1);
    test.wait(1).await;
    // The object has used up its events.
    test.recorder.set_concurrency(0);
    test.recorder.record(event("a", "second"));
    assert_eq!(due_after().await, 300.0 - 21.0);
    test.recorder.set_concurrency(1);
    test.wait(1).await;
    // Nothing waits.
    test.recorder.set_concurrency(0);
    let publish = async {
        sleep(5 * SECOND).await;
        test.recorder.record(event("b", "third"));
    };
    assert_eq!(tokio::join!(due_after(), publish).0, 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_new_events_and_still_merges_notes() {
    let test = Test::with(EventOptions { capacity: 10, ..options() }, []);
    for number in 0..15 {
        test.recorder.record(event(&number.to_string(), "one"));
    }
    test.recorder.record(event("3", "two"));
    assert_eq!(test.recorder.stats().dropped, 5);
    test.wait(1).await;
    assert_eq!(test.recorder.stats(), EventStats { sent: 10, coalesced: 1, dropped: 5, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn object_beyond_its_burst_has_to_wait() {
    let test = Test::start([]);
    for number in 0..40 {
        test.recorder.record(event("a", &number.to_string()));
        sleep(SECOND).await;
    }
    assert_eq!(test.requests().len(), 25);
    test.recorder.record(event("b", "others do not"));
    test.wait(1).await;
    assert_eq!(test.requests().len(), 26);
    test.wait(300).await;
    let requests = test.requests();
    assert_eq!((requests.len(), requests[26].note()), (27, "39".to_owned()));
    assert_eq!(requests[26].body["series"]["count"], 15);
}

#[tokio::test(start_paused = true)]
async fn a_pause_lasts_as_long_as_a_busy_server_requests() {
    let test = Test::start([Answer::Busy(20)]);
    for name in ["a", "b"] {
        test.recorder.record(event(name, "note"));
    }
    test.wait(19).await;
    assert_eq!(test.recorder.stats().queued, 1);
    test.recorder.record(event("c", "note"));
    test.wait(2).await;
    assert_eq!(test.recorder.stats().sent, 3);
}

#[tokio::test(start_paused = true)]
async fn failed_requests_are_repeated_with_growing_pauses() {
    let failures = (0..7).map(|_| Answer::Refusal(500, "InternalError", "oh"));
    let test = Test::with(EventOptions { concurrency: 1, ..options() }, failures);
    for name in ["a", "b"] {
        test.recorder.record(event(name, "note"));
    }
    test.wait(10).await;
    assert!(test.requests().len() <= 5, "{}", test.requests().len());
    test.wait(120).await;
    assert_eq!(test.recorder.stats(), EventStats { sent: 2, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn an_event_is_dropped_after_repeated_failures() {
    let failures = (0..10).map(|_| Answer::Refusal(500, "InternalError", "oh"));
    let test = Test::start(failures);
    test.recorder.record(event("a", "note"));
    test.wait(3_600).await;
    assert_eq!(test.recorder.stats(), EventStats { failed: 1, ..EventStats::default() });
    test.recorder.record(event("a", "note"));
    test.wait(1).await;
    assert_eq!(test.recorder.stats().sent, 1);
}

#[tokio::test(start_paused = true)]
async fn an_undeliverable_event_is_dropped_and_the_rest_are_sent() {
    let test = Test::start([
        Answer::Refusal(404, "NotFound", "namespaces \"n\" not found"),
        Answer::Refusal(403, "Forbidden", "events.events.k8s.io is forbidden"),
        Answer::Refusal(422, "Invalid", "no"),
    ]);
    for name in ["a", "b", "c", "d"] {
        test.recorder.record(event(name, "note"));
    }
    test.wait(1).await;
    assert_eq!(test.recorder.stats(), EventStats { sent: 1, dropped: 2, failed: 1, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn lost_response_does_not_write_an_event_twice() {
    let test = Test::start([Answer::Silence, Answer::Refusal(409, "AlreadyExists", "")]);
    test.recorder.record(event("a", "note"));
    test.wait(15).await;
    let [first, second] = &test.requests()[..] else { panic!("two requests") };
    assert_eq!(first.body["metadata"]["name"], second.body["metadata"]["name"]);
    assert_eq!(test.recorder.stats(), EventStats { sent: 1, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn a_note_that_arrives_during_a_request_is_sent_after_it() {
    let test = Test::start([Answer::Silence]);
    test.recorder.record(event("a", "one"));
    test.wait(1).await;
    test.recorder.record(event("a", "two"));
    test.wait(1).await;
    assert_eq!((test.requests().len(), test.recorder.stats().queued), (1, 2));
    test.wait(15).await;
    let [first, second] = &test.requests()[..] else { panic!("two requests") };
    assert_eq!(second.note(), "two");
    assert_eq!(second.body["series"]["count"], 2);
    assert_ne!(first.body["metadata"]["name"], second.body["metadata"]["name"]);
}

#[tokio::test(start_paused = true)]
async fn flush_sends_all_queued_events() {
    let test = Test::start([]);
    assert_eq!(test.recorder.flush(SECOND).await, 0);
    for number in 0..40 {
        test.recorder.record(event("a", &number.to_string()));
        test.recorder.record(event(&format!("b{number}"), "note"));
        sleep(SECOND / 10).await;
    }
    assert_eq!(test.recorder.stats().queued, 1);
    assert_eq!(test.recorder.flush(SECOND).await, 0);
    assert_eq!(test.requests().last().map(RecordedRequest::note), Some("39".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn flush_stops_at_its_time_limit() {
    let test = Test::start((0..4).map(|_| Answer::Silence));
    for number in 0..10 {
        test.recorder.record(event(&number.to_string(), "note"));
    }
    assert_eq!(test.recorder.flush(5 * SECOND).await, 10);
}

#[tokio::test(start_paused = true)]
async fn idle_objects_are_forgotten() {
    let test = Test::start([]);
    for hour in 0..4 {
        for number in 0..1_500 {
            test.recorder.record(event(&format!("{hour}-{number}"), "note"));
        }
        test.wait(3_600).await;
    }
    assert_eq!(test.recorder.stats().sent, 6_000);
    let remembered = crate::sync::lock(&test.recorder.shared.state).remembered();
    assert!(remembered <= 3_000, "{remembered}");
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_for_any_number_of_objects() {
    let test = Test::with(EventOptions { capacity: 100, ..options() }, []);
    for number in 0..3_000 {
        test.recorder.record(event(&number.to_string(), "note"));
        if number % 50 == 0 {
            test.wait(1).await;
        }
    }
    let remembered = crate::sync::lock(&test.recorder.shared.state).remembered();
    assert!(remembered <= 1_024, "{remembered}");
}

#[tokio::test(start_paused = true)]
async fn sending_ends_when_the_last_recorder_is_dropped() {
    let test = Test::start([]);
    let shared = Arc::downgrade(&test.recorder.shared);
    let other = test.recorder.clone();
    drop(test);
    sleep(SECOND).await;
    assert!(shared.upgrade().is_some());
    drop(other);
    sleep(SECOND).await;
    assert!(shared.upgrade().is_none());
}

fn event(name: &str, note: &str) -> Event {
    Event {
        object: ObjectRef {
            api_version: "v1",
            kind: "Pod",
            namespace: Some("n".into()),
            name: name.into(),
            uid: name.into(),
        },
        kind: EventKind::Warning,
        reason: "Failed",
        action: "Starting",
        note: note.to_owned(),
        same_from_all: false,
    }
}

fn options() -> EventOptions {
    EventOptions::new("example.com/tester", "one")
}

enum Answer {
    Ok,
    Refusal(u16, &'static str, &'static str),
    Busy(u32),
    Silence,
}

/// A request as received by the server.
#[derive(Clone, Debug)]
struct RecordedRequest {
    method: Method,
    path: String,
    body: Value,
}

impl RecordedRequest {
    fn note(&self) -> String {
        self.body["note"].as_str().unwrap_or_default().to_owned()
    }
}

#[derive(Default)]
struct Server {
    answers: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<RecordedRequest>>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Server {
    async fn answer(&self, request: Request<Body>) -> testing::Answer {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        crate::sync::lock(&self.requests).push(RecordedRequest {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            body: serde_json::from_slice(&body).unwrap(),
        });
        let answer = crate::sync::lock(&self.answers).pop_front().unwrap_or(Answer::Ok);
        sleep(Duration::from_millis(10)).await;
        let answer = match answer {
            Answer::Ok => object(&json!({ "metadata": {}, "eventTime": null })),
            Answer::Refusal(code, reason, message) => refusal(code, reason, message),
            Answer::Busy(seconds) => testing::busy(seconds),
            Answer::Silence => std::future::pending().await,
        };
        self.now.fetch_sub(1, Ordering::Relaxed);
        answer
    }
}

struct Test {
    recorder: EventRecorder,
    server: Arc<Server>,
}

impl Test {
    /// Creates a recorder whose server gives these answers, and accepts all later requests.
    fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with(options(), answers)
    }

    fn with(options: EventOptions, answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = Mutex::new(answers.into_iter().collect());
        let server = Arc::new(Server { answers, ..Server::default() });
        let handler = Arc::clone(&server);
        let client = client(move |request| {
            let server = Arc::clone(&handler);
            async move { server.answer(request).await }
        });
        Self { recorder: EventRecorder::new(client, options), server }
    }

    async fn wait(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    fn requests(&self) -> Vec<RecordedRequest> {
        crate::sync::lock(&self.server.requests).clone()
    }

    fn only(&self) -> RecordedRequest {
        let [request] = &self.requests()[..] else { panic!("one request") };
        request.clone()
    }
}
