mod administrators;
mod adoption;
mod leases;
mod restored;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_sim::{After, Before, Cluster, Faults, Interceptor, Request, Verb};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::entries::MAX_ENTRY_BYTES;
use super::format::{Content, ENTRIES, Unreadable, entry_bytes, write};
use super::state::WriterAction;
use super::*;
use crate::{CallError, Environment};

const NAME: &str = "disks-journal";

struct HeldJournal {
    journal: Journal,
    entries: Vec<Entry>,
    writer: JoinHandle<String>,
}

impl Drop for HeldJournal {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

fn options(name: &str, holder: &str) -> JournalOptions {
    JournalOptions {
        kind: JournalKind::ConfigMap,
        namespace: "default".to_owned(),
        name: name.to_owned(),
        group: "disks".to_owned(),
        aliases: Vec::new(),
        layout: "1".to_owned(),
        cluster_id: "this".to_owned(),
        holder: holder.to_owned(),
        sets_restored_apart: true,
        tenant_of: |_| String::new(),
        environment: Environment::default(),
    }
}

async fn hold_as(client: Client, options: JournalOptions) -> HeldJournal {
    let (journal, writer, entries) = Journal::take_over(client, options, || true).await.unwrap();
    HeldJournal { journal, entries, writer: tokio::spawn(writer.run()) }
}

async fn hold(cluster: &Cluster, holder: &str) -> HeldJournal {
    hold_as(cluster.client(holder), options(NAME, holder)).await
}

fn entry(key: &str) -> Entry {
    Entry { key: key.to_owned(), text: format!("{{\"about\":\"{key}\"}}"), shared: vec![("gold".into(), "{}".into())] }
}

async fn stored(cluster: &Cluster) -> ConfigMap {
    Api::<ConfigMap>::default_namespaced(cluster.client("reader")).get(NAME).await.unwrap()
}

async fn stored_keys(cluster: &Cluster) -> Vec<String> {
    let content = Content::read(&stored(cluster).await.data.unwrap());
    content.entries.into_iter().map(|entry| entry.key).collect()
}

#[test]
fn reads_back_entries_and_keeps_unreadable_lines() {
    let plain = Entry { key: "a".into(), text: "x y".into(), shared: Vec::new() };
    // One of its shared texts is lost, and no other line uses the remaining one.
    let damaged = Unreadable::new("b silver,lost-text {}", &[("silver", "{}".into())].into());
    let mut two = entry("d");
    two.shared.push(("spec".into(), "s".into()));
    let data = write([&plain, &entry("c"), &two].into_iter(), std::slice::from_ref(&damaged), &[]);
    let lines = ["a - x y", r#"c gold {"about":"c"}"#, r#"d gold,spec {"about":"d"}"#, "b silver,lost-text {}", ""];
    assert_eq!(data["entries"], lines.join("\n"));
    assert_eq!(data["shared"], "gold {}\nsilver {}\nspec s\n");
    assert_eq!(data["entries"].len(), [&plain, &entry("c"), &two].into_iter().map(entry_bytes).sum::<usize>() + 22);
    let content = Content::read(&data);
    assert_eq!(content.entries, [plain, entry("c"), two]);
    assert_eq!(content.unreadable, [damaged]);
}

#[tokio::test(start_paused = true)]
async fn confirmed_entries_are_stored_and_found_by_the_next_holder() {
    let cluster = Cluster::builder().build();
    let first = hold(&cluster, "first").await;
    assert_eq!(first.entries, []);
    first.journal.record(entry("a")).await.unwrap();
    assert_eq!(stored_keys(&cluster).await, ["a"]);
    drop(first);
    assert_eq!(hold(&cluster, "second").await.entries, [entry("a")]);
}

#[tokio::test(start_paused = true)]
async fn keeps_different_texts_with_the_same_name() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    let with = |key: &str, text: &str| Entry { shared: vec![("gold".into(), text.into())], ..entry(key) };
    for entry in [with("a", "first"), with("b", "second"), with("c", "second"), with("d", "third")] {
        held.journal.record(entry).await.unwrap();
    }
    let content = Content::read(&stored(&cluster).await.data.unwrap());
    let texts: Vec<&str> = content.entries.iter().map(|entry| &*entry.shared[0].1).collect();
    assert_eq!(texts, ["first", "second", "second", "third"]);
    held.journal.remove("a");
    held.journal.record(with("a", "second")).await.unwrap();
    assert!(!stored(&cluster).await.data.unwrap()["shared"].contains("first"));
}

#[tokio::test(start_paused = true)]
async fn changes_during_a_write_share_the_next_one() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    let all = (0..100).map(|number| held.journal.record(entry(&format!("key-{number}"))));
    for recorded in futures::future::join_all(all).await {
        recorded.unwrap();
    }
    assert_eq!(held.journal.stats().entries, 100);
    assert!(held.journal.stats().commits <= 2, "{:?}", held.journal.stats());
}

#[tokio::test(start_paused = true)]
async fn removals_are_batched_but_not_delayed_forever() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    held.journal.record(entry("a")).await.unwrap();
    held.journal.record(entry("b")).await.unwrap();
    let commits = held.journal.stats().commits;
    held.journal.remove("a");
    held.journal.record(entry("c")).await.unwrap();
    assert_eq!(stored_keys(&cluster).await, ["b", "c"]);
    assert_eq!(held.journal.stats().commits, commits + 1);
    held.journal.remove("b");
    held.journal.remove("c");
    sleep(Duration::from_secs(2)).await;
    assert!(stored_keys(&cluster).await.is_empty());
    assert_eq!(held.journal.stats().commits, commits + 2);
    held.journal.record(entry("d")).await.unwrap();
    held.journal.remove("d");
    held.journal.flush().await.unwrap();
    assert!(stored_keys(&cluster).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn former_holder_is_fenced() {
    let cluster = Cluster::builder().build();
    let old = hold(&cluster, "old").await;
    old.journal.record(entry("a")).await.unwrap();
    let new = hold(&cluster, "new").await;
    assert_eq!(new.entries, [entry("a")]);
    assert!(matches!(old.journal.record(entry("b")).await, Err(JournalError::Lost(by)) if by == "new"));
    assert!(old.journal.over().is_cancelled());
    assert!(matches!(old.journal.fence().await, Err(JournalError::Lost(_))));
    new.journal.fence().await.unwrap();
    assert_eq!(stored_keys(&cluster).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn fence_checks_the_holder_without_a_write() {
    let cluster = Cluster::builder().build();
    let old = hold(&cluster, "old").await;
    old.journal.fence().await.unwrap();
    assert_eq!((old.journal.stats().commits, old.journal.stats().checks), (0, 1));
    // Recording an entry that already exists does not need a second write either.
    old.journal.record(entry("a")).await.unwrap();
    old.journal.record(entry("a")).await.unwrap();
    assert_eq!((old.journal.stats().commits, old.journal.stats().checks), (1, 2));
    let _new = hold(&cluster, "new").await;
    assert!(matches!(old.journal.fence().await, Err(JournalError::Lost(by)) if by == "new"));
}

#[tokio::test(start_paused = true)]
async fn fence_stores_earlier_removals() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    held.journal.record(entry("a")).await.unwrap();
    held.journal.remove("a");
    held.journal.fence().await.unwrap();
    assert!(stored_keys(&cluster).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn overwrites_manual_edits_and_recreates_a_deleted_journal() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    held.journal.record(entry("a")).await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client("person"));
    let edit = Patch::Merge(serde_json::json!({"data": {"entries": "nonsense"}}));
    api.patch(NAME, &PatchParams::default(), &edit).await.unwrap();
    held.journal.record(entry("b")).await.unwrap();
    assert_eq!(stored_keys(&cluster).await, ["a", "b"]);
    for _ in 0..2 {
        api.delete(NAME, &DeleteParams::default()).await.unwrap();
        held.journal.fence().await.unwrap();
        assert_eq!(stored_keys(&cluster).await, ["a", "b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_recreate_a_journal_it_may_have_lost() {
    let cluster = Cluster::builder().build();
    let ours = Arc::new(AtomicBool::new(true));
    let asked = ours.clone();
    let client = cluster.client("one");
    let taken = Journal::take_over(client.clone(), options(NAME, "one"), move || asked.load(Ordering::Relaxed)).await;
    let (journal, writer, _) = taken.unwrap();
    let _writer = tokio::spawn(writer.run());
    ours.store(false, Ordering::Relaxed);
    Api::<ConfigMap>::default_namespaced(client).delete(NAME, &DeleteParams::default()).await.unwrap();
    assert!(matches!(journal.record(entry("a")).await, Err(JournalError::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn full_journal_refuses_entries_until_others_are_removed() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    let mut refused = Vec::new();
    let recorded = (0..40).map(|number| held.journal.record(large(&format!("{number:02}"))));
    for (number, recorded) in futures::future::join_all(recorded).await.into_iter().enumerate() {
        refused.extend(recorded.err().map(|error| (number, error.to_string())));
    }
    let (first, error) = &refused[0];
    assert_eq!(*first, 23, "a group leaves a fifth to others");
    assert!(error.contains("other attempts of this class must end first"), "{error}");
    let other = Entry { shared: vec![("other".into(), "{}".into())], ..large("other") };
    held.journal.record(other).await.unwrap();
    held.journal.remove("00");
    held.journal.remove("01");
    held.journal.record(large("new")).await.unwrap();
    assert_eq!(stored_keys(&cluster).await.len(), 23);
    // A large group text does not count towards the size of its entries.
    let shared = vec![("large".into(), "x".repeat(MAX_ENTRY_BYTES).into())];
    held.journal.record(Entry { key: "c".into(), text: "x".into(), shared: shared.clone() }).await.unwrap();
    let shared = [shared, vec![("spec".into(), "x".repeat(MAX_ENTRY_BYTES).into())]].concat();
    let never = Entry { key: "d".into(), text: "x".into(), shared };
    assert!(matches!(held.journal.record(never).await, Err(JournalError::TooLarge { bytes: 16_001, most: 16_000 })));
}

#[tokio::test(start_paused = true)]
async fn limits_writes_to_20_and_1500_kilobytes_per_second() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    let started = Instant::now();
    for number in 0..40 {
        held.journal.record(entry(&format!("key-{number}"))).await.unwrap();
    }
    assert!(started.elapsed() >= Duration::from_millis(39 * 50), "{:?}", started.elapsed());
    let (started, before) = (Instant::now(), held.journal.stats().bytes_written);
    for number in 0..20 {
        held.journal.record(large(&number.to_string())).await.unwrap();
    }
    let bytes = held.journal.stats().bytes_written - before;
    let last = held.journal.stats().bytes as u64;
    assert!(bytes - last <= started.elapsed().as_millis() as u64 * 1500, "{bytes} in {:?}", started.elapsed());
    assert!(last > 200_000 && last < JournalKind::ConfigMap.capacity().all as u64);
}

/// Returns an entry of nearly the maximum size.
fn large(key: &str) -> Entry {
    Entry { key: key.into(), text: "x".repeat(MAX_ENTRY_BYTES - 1_000), shared: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn does_not_touch_the_format_of_a_later_version() {
    let cluster = Cluster::builder().build();
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client("later"));
    let later = serde_json::json!({"metadata": {"name": NAME}, "data": {"version": "2", "blob": "…"}});
    api.create(&PostParams::default(), &serde_json::from_value(later).unwrap()).await.unwrap();
    let error = Journal::take_over(cluster.client("one"), options(NAME, "one"), || true).await.unwrap_err();
    assert!(error.to_string().contains("\"2\""), "{error}");
    assert!(stored(&cluster).await.data.unwrap().contains_key("blob"));
}

#[tokio::test(start_paused = true)]
async fn confirmed_entries_are_stored_despite_faults() {
    let mut total = 0;
    for seed in 0..50 {
        let faults = Faults::storm(seed);
        let cluster = Cluster::builder().seed(seed).faults(&faults).build();
        let mut confirmed: Vec<String> = Vec::new();
        for holder in 0..3 {
            let holder = format!("holder-{holder}");
            let held = loop {
                let client = cluster.client(&holder);
                match Journal::take_over(client, options(NAME, &holder), || true).await {
                    Ok((journal, writer, entries)) => {
                        break HeldJournal { journal, entries, writer: tokio::spawn(writer.run()) };
                    }
                    Err(_) => sleep(Duration::from_secs(1)).await,
                }
            };
            let found: Vec<&str> = held.entries.iter().map(|entry| &*entry.key).collect();
            for key in &confirmed {
                assert!(found.contains(&&**key), "seed {seed}: {key} is not in {found:?}");
            }
            for number in 0..10 {
                let key = format!("{holder}-{number}");
                if held.journal.record(entry(&key)).await.is_ok() {
                    confirmed.push(key);
                }
                if number % 3 == 2
                    && let Some(key) = confirmed.pop()
                {
                    held.journal.remove(&key);
                }
            }
        }
        total += confirmed.len();
    }
    assert!(total > 500, "too little happened: {total}");
}

/// The caller that recorded first stops waiting, and another caller records the same entry again before the first write
/// has failed.
#[tokio::test(start_paused = true)]
async fn failed_write_keeps_an_entry_that_was_recorded_again() {
    let mut state = State::new(Content::default(), &options(NAME, "holder"), Vec::new());
    drop(state.record(entry("a")).unwrap());
    let WriterAction::Commit(_, first) = state.next_action(Instant::now()) else {
        panic!("there is something to store")
    };
    state.remove("a");
    let again = state.record(entry("a")).unwrap();
    state.failed(first, CallError::TimedOut(Duration::from_secs(10)), 0.0, Instant::now());
    sleep(Duration::from_secs(60)).await;
    let WriterAction::Commit(data, second) = state.next_action(Instant::now()) else {
        panic!("there is something to store")
    };
    assert!(data[ENTRIES].contains("a "), "{data:?}");
    state.committed(second);
    again.await.unwrap().unwrap();
}

/// A restored entry may be the only record of an asset.
#[tokio::test(start_paused = true)]
async fn a_restored_entry_stays_until_its_replacement_is_stored() {
    let restored = vec![Unreadable::new("a - {}", &BTreeMap::new())];
    let mut state = State::new(Content { restored, ..Content::default() }, &options(NAME, "holder"), Vec::new());
    for (is_recorded_again, left) in [(false, 1), (true, 0)] {
        drop(state.record(entry("a")).unwrap());
        let WriterAction::Commit(_, batch) = state.next_action(Instant::now()) else {
            panic!("there is something to store")
        };
        if is_recorded_again {
            drop(state.record(entry("a")).unwrap());
        }
        state.failed(batch, CallError::TimedOut(Duration::from_secs(10)), 0.0, Instant::now());
        assert_eq!(state.stats().restored, left);
        sleep(Duration::from_secs(60)).await;
    }
}

/// The first write is under way when the same entry is recorded again, and then fails.
#[tokio::test(start_paused = true)]
async fn entry_of_an_unfinished_write_does_not_count_as_stored() {
    let mut state = State::new(Content::default(), &options(NAME, "holder"), Vec::new());
    let first = state.record(entry("a")).unwrap();
    let WriterAction::Commit(_, batch) = state.next_action(Instant::now()) else {
        panic!("there is something to store")
    };
    let mut again = state.record(entry("a")).unwrap();
    state.failed(batch, CallError::TimedOut(Duration::from_secs(10)), 0.0, Instant::now());
    first.await.unwrap().unwrap_err();
    sleep(Duration::from_secs(60)).await;
    assert!(again.try_recv().is_err());
    let WriterAction::Commit(data, batch) = state.next_action(Instant::now()) else {
        panic!("there is something to store")
    };
    assert!(data[ENTRIES].contains("a "), "{data:?}");
    state.committed(batch);
    again.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn checks_an_empty_journal_until_its_problem_has_passed() {
    let day = Some(Duration::from_secs(86_400));
    let busy = CallError::TooManyRequests { retry_after: day, message: String::new() };
    for error in [CallError::TimedOut(Duration::from_secs(10)), busy] {
        let mut state = State::new(Content::default(), &options(NAME, "holder"), Vec::new());
        drop(state.fence().unwrap());
        let WriterAction::Check(batch) = state.next_action(Instant::now()) else { panic!("a fence waits") };
        state.failed(batch, error, 0.0, Instant::now());
        assert!(state.problem().is_some());
        sleep(Duration::from_secs(61)).await;
        let WriterAction::Check(batch) = state.next_action(Instant::now()) else { panic!("there is a problem") };
        state.checked(batch);
        assert_eq!(state.problem(), None);
        assert!(matches!(state.next_action(Instant::now()), WriterAction::Wait(None)));
    }
}

#[tokio::test(start_paused = true)]
async fn removes_data_of_an_earlier_version() {
    let cluster = Cluster::builder().build();
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client("earlier"));
    let earlier = serde_json::json!({"metadata": {"name": NAME}, "data": {
        "version": "1", "entries": "a - text\n", "adopting": "a\n",
    }});
    api.create(&PostParams::default(), &serde_json::from_value(earlier).unwrap()).await.unwrap();
    let held = hold(&cluster, "one").await;
    assert_eq!(held.entries.len(), 1);
    assert!(!stored(&cluster).await.data.unwrap().contains_key("adopting"));
}

// Rules: G80.
/// The first write arrives after the second one, which has removed the entry again.
#[tokio::test(start_paused = true)]
async fn late_write_does_not_restore_a_removed_entry() {
    let late = Arc::new(Late::default());
    let cluster = Cluster::builder().interceptor(late.clone()).build();
    let held = hold(&cluster, "holder").await;
    // The first write after the creation adds the journal's uid.
    held.journal.record(entry("a")).await.unwrap();
    held.journal.remove("a");
    held.journal.fence().await.unwrap();
    late.delay_next(Verb::Update);
    held.journal.record(entry("a")).await.unwrap_err();
    held.journal.remove("a");
    held.journal.fence().await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(stored_keys(&cluster).await, Vec::<String>::new());
}

/// Delays the next request of each of these kinds by 20 s, after breaking its connection.
#[derive(Default)]
struct Late(Mutex<Vec<Verb>>);

impl Late {
    fn delay_next(&self, verb: Verb) {
        self.0.lock().unwrap().push(verb);
    }
}

impl Interceptor for Late {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let mut verbs = self.0.lock().unwrap();
        let is_late = verbs.iter().position(|verb| *verb == request.verb).map(|index| verbs.remove(index)).is_some();
        let answer = if is_late { Before::BreakAndHandle(Duration::from_secs(20)) } else { Before::Handle };
        Box::pin(async move { answer })
    }

    fn after<'a>(&'a self, _: &'a Request, _: u16) -> BoxFuture<'a, After> {
        Box::pin(async { After::Deliver })
    }
}
