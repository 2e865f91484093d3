//! Journals as users see them, and the requests that users can make.

use futures::FutureExt;
use kube_sim::Cluster;

use super::*;

#[tokio::test(start_paused = true)]
async fn removes_and_reports_an_entry_dropped_by_an_administrator() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    for key in ["a", "b"] {
        held.journal.record(entry(key)).await.unwrap();
    }
    let person = cluster.client("person");
    request_drop(&person, JournalKind::ConfigMap, "default", NAME, "a").await.unwrap();
    request_drop(&person, JournalKind::ConfigMap, "default", NAME, "a").await.unwrap();
    assert!(held.journal.dropped().now_or_never().is_none());
    let started = Instant::now();
    assert_eq!(held.journal.dropped().await, ["a"]);
    assert!(started.elapsed() <= Duration::from_secs(10));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stored_keys(&cluster).await, ["b"]);
    assert_eq!(dropping(&cluster).await, None);
    assert!(!held.journal.contains("a"));
    assert!(held.journal.dropped().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn checks_only_journals_with_entries() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    sleep(Duration::from_secs(100)).await;
    assert_eq!(held.journal.stats().checks, 0);
    held.journal.record(entry("a")).await.unwrap();
    sleep(Duration::from_secs(95)).await;
    assert_eq!((held.journal.stats().checks, held.journal.stats().commits), (9, 1));
}

#[tokio::test(start_paused = true)]
async fn drop_request_refuses_an_entry_being_recorded() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    held.journal.record(entry("b")).await.unwrap();
    annotate(&cluster, "a, b,unknown").await;
    let (refused, stored) = tokio::join!(held.journal.record(entry("a")), held.journal.record(entry("c")));
    assert!(matches!(refused, Err(JournalError::Dropped)), "{refused:?}");
    stored.unwrap();
    assert_eq!(stored_keys(&cluster).await, ["c"]);
    assert_eq!(dropping(&cluster).await, None);
    assert_eq!(held.journal.dropped().await, ["a", "b"]);
    assert!(!held.journal.contains("a"));
    // There is nothing left to write.
    let commits = held.journal.stats().commits;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(held.journal.stats().commits, commits);
    // The entry may be recorded again.
    held.journal.record(entry("a")).await.unwrap();
    assert_eq!(stored_keys(&cluster).await, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn takeover_omits_dropped_entries() {
    let cluster = Cluster::builder().build();
    let first = hold(&cluster, "first").await;
    for key in ["a", "b"] {
        first.journal.record(entry(key)).await.unwrap();
    }
    drop(first);
    annotate(&cluster, "a").await;
    let second = hold(&cluster, "second").await;
    assert_eq!(second.entries, [entry("b")]);
    assert_eq!(second.journal.dropped().now_or_never().unwrap(), ["a"]);
    assert_eq!((stored_keys(&cluster).await, dropping(&cluster).await), (vec!["b".to_owned()], None));
}

#[tokio::test(start_paused = true)]
async fn unreadable_lines_can_be_dropped() {
    let cluster = Cluster::builder().build();
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client("earlier"));
    let labels = super::super::format::labels("disks");
    let damaged = serde_json::json!({"metadata": {"name": NAME, "labels": labels}, "data": {
        "version": "1", "entries": "broken lost-text {}\n",
    }});
    api.create(&PostParams::default(), &serde_json::from_value(damaged).unwrap()).await.unwrap();
    let held = hold(&cluster, "one").await;
    request_drop(&cluster.client("person"), JournalKind::ConfigMap, "default", NAME, "broken").await.unwrap();
    assert_eq!(held.journal.dropped().await, ["broken"]);
    held.journal.flush().await.unwrap();
    assert!(!stored(&cluster).await.data.unwrap().contains_key(ENTRIES));
    assert_eq!(held.journal.stats().bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn lists_all_journals_or_those_of_one_group() {
    let cluster = Cluster::builder().build();
    let held = hold(&cluster, "one").await;
    held.journal.record(entry("a")).await.unwrap();
    let other = JournalOptions { group: "tapes".to_owned(), ..options("tapes-journal", "two") };
    let _other = hold_as(cluster.client("two"), other).await;
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client("later"));
    let labels = super::super::format::labels("future");
    let later = serde_json::json!({"metadata": {"name": "z", "labels": labels}, "data": {"version": "2"}});
    api.create(&PostParams::default(), &serde_json::from_value(later).unwrap()).await.unwrap();

    annotate(&cluster, "a").await;
    let disks = Listing {
        name: NAME.to_owned(),
        version: cluster.get("", "configmaps", "default", NAME).unwrap()["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        group: "disks".to_owned(),
        aliases: Vec::new(),
        layout: "1".to_owned(),
        holder: "one".to_owned(),
        entries: vec![entry("a")],
        restored: Vec::new(),
        unreadable: Vec::new(),
        dropping: vec!["a".to_owned()],
    };
    let client = cluster.client("person");
    let all = list(&client, JournalKind::ConfigMap, "default", None).await.unwrap();
    assert_eq!((all.len(), &all[0], &*all[1].holder), (3, &disks, "two"));
    assert_eq!(list(&client, JournalKind::ConfigMap, "default", Some("disks")).await.unwrap(), [disks]);
    assert!(all[2].unreadable[0].contains("\"2\""), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn only_existing_entries_can_be_dropped() {
    let cluster = Cluster::builder().build();
    let _held = hold(&cluster, "one").await;
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client("somebody"));
    let other = serde_json::json!({"metadata": {"name": "other"}});
    api.create(&PostParams::default(), &serde_json::from_value(other).unwrap()).await.unwrap();
    let client = cluster.client("person");
    let request = async |journal: &str| {
        request_drop(&client, JournalKind::ConfigMap, "default", journal, "a").await.unwrap_err().to_string()
    };
    assert_eq!(request(NAME).await, "the journal disks-journal has no entry a");
    assert_eq!(request("other").await, "other is not a journal");
    assert_eq!(request("nothing").await, "The object does not exist.");
    let (name, component) = crate::journal::format::COMPONENT;
    let newer =
        serde_json::json!({"metadata": {"name": "newer", "labels": {name: component}}, "data": {"version": "2"}});
    api.create(&PostParams::default(), &serde_json::from_value(newer).unwrap()).await.unwrap();
    assert!(request("newer").await.starts_with("the format \"2\" of the journal newer is not known"));
}

/// Despite random faults, the entry is dropped, and the drop is reported once.
#[tokio::test(start_paused = true)]
async fn drop_requests_succeed_despite_faults() {
    let mut reported = 0;
    for seed in 0..50 {
        let faults = Faults::storm(seed);
        let cluster = Cluster::builder().seed(seed).faults(&faults).build();
        let held = loop {
            match Journal::take_over(cluster.client("one"), options(NAME, "one"), || true).await {
                Ok((journal, writer, entries)) => {
                    break HeldJournal { journal, entries, writer: tokio::spawn(writer.run()) };
                }
                Err(_) => sleep(Duration::from_secs(1)).await,
            }
        };
        if held.journal.record(entry("a")).await.is_err() || held.journal.record(entry("b")).await.is_err() {
            continue;
        }
        // The entry may already be dropped when the response is lost.
        while let Err(DropError::Call(_)) =
            request_drop(&cluster.client("person"), JournalKind::ConfigMap, "default", NAME, "a").await
        {
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(held.journal.dropped().await, ["a"], "seed {seed}");
        while held.journal.flush().await.is_err() {
            sleep(Duration::from_secs(1)).await;
        }
        let content = cluster.get("", "configmaps", "default", NAME).unwrap();
        assert!(content["data"][ENTRIES].as_str().unwrap().starts_with("b "), "seed {seed}: {content}");
        assert_eq!(content["metadata"]["annotations"]["kube-provisioner/drop"], serde_json::Value::Null, "seed {seed}");
        assert!(held.journal.dropped().now_or_never().is_none(), "seed {seed}");
        reported += 1;
    }
    assert!(reported > 20, "too little happened: {reported}");
}

async fn annotate(cluster: &Cluster, keys: &str) {
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client("person"));
    let patch = Patch::Merge(serde_json::json!({"metadata": {"annotations": {"kube-provisioner/drop": keys}}}));
    api.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
}

async fn dropping(cluster: &Cluster) -> Option<String> {
    stored(cluster).await.annotations().get("kube-provisioner/drop").cloned()
}
