//! Journals restored from a backup, in the same cluster or in another.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use kube_sim::{After, Cluster, DeleteOptions, Interceptor, Request, Target, Verb, object};
use serde_json::Value;

use super::*;

const TARGET: Target<'_> = Target { group: "", plural: "configmaps", namespace: "default", name: NAME };

/// Returns a journal with these entries, as stored in a backup.
async fn backup(cluster: &Cluster, keys: &[&str]) -> Value {
    let held = hold(cluster, "former").await;
    for key in keys {
        held.journal.record(entry(key)).await.unwrap();
    }
    cluster.get("", "configmaps", "default", NAME).unwrap()
}

fn restore(cluster: &Cluster, mut journal: Value) {
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        object::remove_meta(&mut journal, field);
    }
    // In another cluster there may be no such journal.
    let _ = cluster.delete(&TARGET, DeleteOptions::default());
    cluster.create(&journal).unwrap();
}

// Rules: G62.
#[tokio::test(start_paused = true)]
async fn does_not_continue_entries_of_a_restored_journal() {
    for elsewhere in [false, true] {
        let first = Cluster::builder().build();
        let saved = backup(&first, &["a", "b"]).await;
        let cluster = if elsewhere { Cluster::builder().seed(7).build() } else { first };
        restore(&cluster, saved);
        let held = hold(&cluster, "one").await;
        assert_eq!((held.entries.as_slice(), held.journal.stats().restored), ([].as_slice(), 2));
        // Later holders do not see them either.
        held.journal.record(entry("c")).await.unwrap();
        drop(held);
        let held = hold(&cluster, "two").await;
        assert_eq!((keys(&held), held.journal.stats().restored), (vec!["c".to_owned()], 2));
        let listed = &list(&cluster.client("person"), JournalKind::ConfigMap, "default", None).await.unwrap()[0];
        assert_eq!(listed.restored, [entry("a"), entry("b")]);
    }
}

// Rules: G62.
#[tokio::test(start_paused = true)]
async fn an_administrator_accepts_and_drops_restored_entries() {
    let cluster = Cluster::builder().build();
    let saved = backup(&cluster, &["a", "b", "c"]).await;
    restore(&cluster, saved);
    let held = hold(&cluster, "one").await;
    let person = cluster.client("person");
    request_accept(&person, JournalKind::ConfigMap, "default", NAME, "a").await.unwrap();
    assert_eq!(held.journal.accepted().await, [entry("a")]);
    request_drop(&person, JournalKind::ConfigMap, "default", NAME, "b").await.unwrap();
    assert_eq!(held.journal.dropped().await, ["b"]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!((stored_keys(&cluster).await, held.journal.stats().restored), (vec!["a".to_owned()], 1));
    drop(held);
    // Accept an entry while the journal has no holder.
    request_accept(&person, JournalKind::ConfigMap, "default", NAME, "c").await.unwrap();
    let held = hold(&cluster, "two").await;
    assert_eq!((keys(&held), held.journal.stats().restored), (vec!["a".to_owned(), "c".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn lists_unreadable_restored_lines_and_keeps_their_journal() {
    let cluster = Cluster::builder().build();
    let mut saved = backup(&cluster, &["a"]).await;
    saved["data"][ENTRIES] = "broken lost-text {}\n".into();
    restore(&cluster, saved);
    let client = cluster.client("person");
    let listed = &list(&client, JournalKind::ConfigMap, "default", None).await.unwrap()[0];
    assert_eq!(listed.restored, []);
    assert_eq!(listed.unreadable, ["broken lost-text {}"]);
    assert!(!remove_empty(&client, JournalKind::ConfigMap, "default", listed).await.unwrap());
    assert!(stored(&cluster).await.data.unwrap().contains_key(ENTRIES));
}

#[tokio::test(start_paused = true)]
async fn new_entry_replaces_a_restored_one() {
    let cluster = Cluster::builder().build();
    let saved = backup(&cluster, &["a"]).await;
    restore(&cluster, saved);
    let held = hold(&cluster, "one").await;
    held.journal.record(entry("a")).await.unwrap();
    assert_eq!((stored_keys(&cluster).await, held.journal.stats().restored), (vec!["a".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn continues_a_journal_of_an_earlier_version() {
    let cluster = Cluster::builder().build();
    let mut saved = backup(&cluster, &["a"]).await;
    for noted in ["kube-provisioner/journal-uid", "kube-provisioner/cluster-id"] {
        assert!(object::annotation(&saved, noted).is_some());
        object::remove_annotation(&mut saved, noted);
    }
    restore(&cluster, saved);
    assert_eq!(keys(&hold(&cluster, "one").await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn entries_are_always_stored_with_the_journals_uid() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    held.journal.record(entry("a")).await.unwrap();
    cluster.delete(&TARGET, DeleteOptions::default()).unwrap();
    let mut changes = cluster.subscribe(&[("", "configmaps")]);
    held.journal.record(entry("b")).await.unwrap();
    let mut writes = 0;
    while let Some(change) = changes.try_next() {
        let stored: Value = serde_json::from_slice(change.object().bytes()).unwrap();
        let noted = object::annotation(&stored, "kube-provisioner/journal-uid");
        assert!(stored["data"]["entries"].is_null() || noted == Some(object::uid(&stored)), "{stored}");
        writes += 1;
    }
    assert_eq!((writes, stored_keys(&cluster).await), (2, vec!["a".to_owned(), "b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn does_not_adopt_from_a_restored_journal() {
    let cluster = Cluster::builder().build();
    let saved = backup(&cluster, &["a"]).await;
    restore(&cluster, saved);
    let options = JournalOptions { layout: "2".to_owned(), ..options("disks-journal-0-of-2", "one") };
    let held = hold_as(cluster.client("one"), options.clone()).await;
    let mut adoption = Adoption::new(cluster.client("one"), &options, &held.journal);
    let adopted = adoption.run(|other| other.layout != "2", |_, _| true).await.unwrap();
    assert_eq!(adopted, Adopted::default());
    assert_eq!(stored_keys(&cluster).await, ["a"]);
}

/// Restores a journal as soon as another one has been updated.
struct RestoresMeanwhile(OnceLock<(Cluster, Value)>);

impl Interceptor for RestoresMeanwhile {
    fn after<'a>(&'a self, request: &'a Request, _: u16) -> BoxFuture<'a, After> {
        let is_copied = request.verb == Verb::Update && request.name == "disks-journal-0-of-2";
        if let Some((cluster, saved)) = self.0.get().filter(|_| is_copied) {
            restore(cluster, saved.clone());
        }
        Box::pin(async { After::Deliver })
    }
}

#[tokio::test(start_paused = true)]
async fn adopts_entries_when_their_journal_is_restored_concurrently() {
    let meanwhile = Arc::new(RestoresMeanwhile(OnceLock::new()));
    let cluster = Cluster::builder().interceptor(meanwhile.clone()).build();
    let saved = backup(&cluster, &["a"]).await;
    let options = JournalOptions { layout: "2".to_owned(), ..options("disks-journal-0-of-2", "one") };
    let held = hold_as(cluster.client("one"), options.clone()).await;
    meanwhile.0.set((cluster.clone(), saved)).unwrap();
    let mut adoption = Adoption::new(cluster.client("one"), &options, &held.journal);
    let adopted = adoption.run(|other| other.layout != "2", |_, _| true).await.unwrap();
    assert_eq!(adopted.entries, [entry("a")]);
}

fn keys(held: &HeldJournal) -> Vec<String> {
    held.entries.iter().map(|entry| entry.key.clone()).collect()
}
