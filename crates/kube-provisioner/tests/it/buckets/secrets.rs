//! Keys and admin Secrets appear only in the claim's Secret.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::fixture::{BUCKETS, CLAIMS, Fixture};
use super::store::Failure;

/// The prefix of every secret in this test: the store's keys, and the admin Secret.
const KEY: &str = "secret-";
const ADMIN: &str = "open-sesame";
/// The kinds of objects that the test reads, with their groups.
const KINDS: [(&str, &str); 8] = [
    ("", "secrets"),
    ("", "configmaps"),
    ("", "events"),
    ("coordination.k8s.io", "leases"),
    ("events.k8s.io", "events"),
    ("objectbucket.io", BUCKETS),
    ("objectbucket.io", CLAIMS),
    ("storage.k8s.io", "storageclasses"),
];

thread_local! {
    /// The log lines of this thread.
    static LINES: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// Everything that is logged on a thread, on all levels, with all fields of events and spans.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Lines {
    /// Records this thread's log lines from now on.
    fn begin() -> Self {
        // Install one subscriber per process: with one per thread, the first log call of other tests decides what is
        // logged.
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| tracing::subscriber::set_global_default(Recorder).expect("no other test has one"));
        let lines = Self::default();
        LINES.set(Some(lines.clone()));
        lines
    }

    fn add(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut dyn Visit)) {
        let mut line = Line(format!("{} {} {}", metadata.level(), metadata.target(), metadata.name()));
        record(&mut line);
        let mut all = self.0.lock().unwrap();
        all.push_str(&line.0);
        all.push('\n');
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

struct Recorder;

impl Recorder {
    fn to_lines(&self, add: impl FnOnce(&Lines)) {
        LINES.with_borrow(|lines| lines.as_ref().map(add));
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.to_lines(|lines| lines.add(span.metadata(), |line| span.record(line)));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line("span".to_owned());
        values.record(&mut line);
        self.to_lines(|lines| lines.0.lock().unwrap().push_str(&line.0));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.to_lines(|lines| lines.add(event.metadata(), |line| event.record(line)));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the lines that contain a secret, also as base64.
fn leaks<'a>(places: impl IntoIterator<Item = (&'a str, String)>) -> Vec<String> {
    // For each secret, its three possible forms inside a longer base64 text, without the ends that depend on neighbors.
    let forbidden =
        [KEY, ADMIN, "c2VjcmV0L", "NlY3JldC", "zZWNyZXQt", "b3Blbi1zZXNhbW", "9wZW4tc2VzYW1l", "vcGVuLXNlc2Ft"];
    let lines = places.into_iter().flat_map(|(place, text)| {
        let found = |line: &&str| forbidden.iter().any(|secret| line.contains(secret));
        text.lines().filter(found).map(|line| format!("{place}: {line}")).collect::<Vec<_>>()
    });
    lines.collect()
}

impl Fixture {
    /// Returns all objects of the cluster, without the data of Secrets.
    fn objects(&self) -> String {
        let mut all = String::new();
        for (group, plural) in KINDS {
            let objects = self.cluster.list(group, plural, None).unwrap();
            for mut object in objects {
                if plural == "secrets" {
                    object["data"] = Value::Null;
                }
                writeln!(all, "{plural} {object}").unwrap();
            }
        }
        all
    }

    /// Waits for a condition, and checks every intermediate state for leaks.
    async fn until_without_leaks(&self, what: &str, so: impl Fn() -> bool) {
        self.until(what, || {
            assert_eq!(leaks([("objects", self.objects())]), Vec::<String>::new(), "while waiting: {what}");
            so()
        })
        .await;
    }
}

/// Requests a path from the process that has written these log lines.
async fn page(lines: &Lines, path: &'static str) -> String {
    let address = lines.text().rsplit("/metrics on ").next().unwrap().lines().next().unwrap().to_owned();
    // The simulated clock stops during the request.
    let asked = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    asked.await.unwrap()
}

/// Provisioning, a rotation, the retirement of the former key, and the deletion, each with failures.
async fn whole_life(lines: &Lines) -> (Fixture, Vec<(&'static str, String)>) {
    let mut fixture = Fixture::new();
    fixture.options.options.http_endpoint = Some(([127, 0, 0, 1], 0).into());
    fixture.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
        "stringData": {"password": ADMIN},
    }));
    let admin = json!({
        "adminSecretName": "admin", "adminSecretNamespace": "default", "credentialsOverlap": "10s", "host": "store",
    });
    let mut granted = admin.clone();
    granted["bucketName"] = "shared".into();
    fixture.class("made", json!({"parameters": admin}));
    fixture.class("granted", json!({"parameters": granted}));
    fixture.store.state().buckets.insert("shared".to_owned(), "somebody".to_owned());
    for method in ["create_bucket", "grant", "rotate", "retire", "delete_bucket", "revoke"] {
        for failure in [Failure::Retry, Failure::Panic, Failure::NothingLeft, Failure::Late] {
            fixture.store.fail(method, failure);
        }
    }
    let running = fixture.start(1);
    let claims = ["photos", "music"];
    fixture.claim("photos", json!({"storageClassName": "made"}));
    fixture.claim("music", json!({"storageClassName": "granted"}));
    let all = |phase: &str| claims.iter().all(|claim| fixture.phase(claim) == phase);
    fixture.until_without_leaks("both are bound", || all("Bound")).await;
    for claim in claims {
        // A user edits one Secret and deletes the other.
        let mend = json!({"stringData": {"AWS_SECRET_ACCESS_KEY": "another"}});
        if claim == "photos" {
            fixture.patch("secrets", claim, mend);
        } else {
            fixture.delete("secrets", claim);
        }
        fixture.patch(
            CLAIMS,
            claim,
            json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}),
        );
    }
    let has_event = |claim: &str, reason: &str| fixture.events(claim).iter().any(|event| event.contains(reason));
    fixture
        .until_without_leaks("keys are retired", || claims.iter().all(|claim| has_event(claim, "CredentialsRetired")))
        .await;
    let other = json!({"adminSecretName": "other", "adminSecretNamespace": "default", "host": "store"});
    fixture.class("lacking", json!({"parameters": other}));
    fixture.claim("late", json!({"storageClassName": "lacking"}));
    fixture.until_without_leaks("the missing Secret is reported", || has_event("late", "SecretMissing")).await;
    sleep(Duration::from_secs(100)).await;
    let metrics = page(lines, "/metrics").await;
    let helps = || metrics.lines().filter(|line| line.starts_with("# HELP"));
    assert!(helps().count() > 10 && helps().all(|help| help.ends_with('.') && !help.ends_with("..")), "{metrics}");
    fixture.delete(CLAIMS, "late");
    let oldest = metrics.lines().find_map(|line| line.strip_prefix("bucket_provisioner_oldest_waiting_claim_seconds "));
    assert!(oldest.is_some_and(|age| (100.0..200.0).contains(&age.parse::<f64>().unwrap())), "{metrics}");
    let not_yet = r#"bucket_provisioner_attempts_total{operation="delete",outcome="success",class="made"} 0"#;
    assert!(metrics.contains(not_yet), "{metrics}");
    let ready = page(lines, "/readyz").await;
    // The deletion needs the admin Secret.
    fixture.delete("secrets", "admin");
    claims.iter().for_each(|claim| fixture.delete(CLAIMS, claim));
    fixture
        .until_without_leaks("it is reported", || claims.iter().all(|claim| has_event(claim, "SecretMissing")))
        .await;
    fixture.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
        "stringData": {"password": ADMIN},
    }));
    fixture
        .until_without_leaks("both claims are deleted", || {
            claims.iter().all(|claim| fixture.get(CLAIMS, claim).is_none())
        })
        .await;
    sleep(Duration::from_secs(60)).await;
    running.abort();
    let pages = vec![("metrics", metrics), ("readyz", ready), ("objects", fixture.objects())];
    (fixture, pages)
}

// Rules: Z16.
#[tokio::test(start_paused = true)]
async fn keys_appear_only_in_the_claims_secret() {
    let lines = Lines::begin();
    let (fixture, mut places) = whole_life(&lines).await;
    let text = lines.text();
    // Verify that the test has recorded log lines of every level.
    for level in ["TRACE", "DEBUG", "INFO", "WARN"] {
        assert!(text.lines().any(|line| line.starts_with(level)), "nothing is logged at {level}");
    }
    for method in ["create_bucket", "grant", "rotate", "retire", "delete_bucket", "revoke"] {
        assert!(fixture.store.calls(method) >= 4, "{method}: {}", fixture.store.calls(method));
    }
    assert!(text.contains("The claim's Secret has a new key"), "the provisioner has logged nothing");
    places.push(("log", text));
    assert_eq!(leaks(places), Vec::<String>::new());
}

#[test]
fn finds_plain_and_encoded_leaks() {
    let text = |text: &str| leaks([("place", text.to_owned())]).len();
    assert_eq!(text("the key secret-1 and\n open-sesame, and\nnothing"), 2);
    // `secret-1`, `x secret-1` and `xy secret-1` in base64.
    for encoded in ["c2VjcmV0LTE=", "eCBzZWNyZXQtMQ==", "eHkgc2VjcmV0LTE="] {
        assert_eq!(text(encoded), 1, "{encoded}");
    }
    assert_eq!(text("the Secret default/secrets"), 0);
}
