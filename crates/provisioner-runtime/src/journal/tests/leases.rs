//! Journals in Leases, and in memory only.

use k8s_openapi::api::coordination::v1::Lease;

use super::*;

async fn hold_lease(cluster: &Cluster, holder: &str) -> HeldJournal {
    hold_as(cluster.client(holder), in_lease(NAME, holder)).await
}

fn in_lease(name: &str, holder: &str) -> JournalOptions {
    JournalOptions { kind: JournalKind::Lease, ..options(name, holder) }
}

async fn lease(cluster: &Cluster) -> Lease {
    Api::default_namespaced(cluster.client("reader")).get(NAME).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn stores_entries_as_annotations_of_a_lease() {
    let cluster = Cluster::builder().build();
    let first = hold_lease(&cluster, "first").await;
    first.journal.record(entry("a")).await.unwrap();
    let stored = lease(&cluster).await;
    let annotation = |name: &str| stored.annotations().get(&format!("kube-provisioner/{name}")).map(String::as_str);
    assert_eq!(annotation("journal-version"), Some("1"));
    assert_eq!(annotation("journal-entries"), Some("a gold {\"about\":\"a\"}\n"));
    assert_eq!(annotation("journal-shared"), Some("gold {}\n"));
    assert_eq!(annotation("journal-uid"), stored.metadata.uid.as_deref());
    assert_eq!(annotation("holder"), Some("first"));
    let second = hold_lease(&cluster, "second").await;
    assert_eq!(second.entries, [entry("a")]);
    assert!(matches!(first.journal.record(entry("b")).await, Err(JournalError::Lost(by)) if by == "second"));
    second.journal.remove("a");
    second.journal.flush().await.unwrap();
    assert_eq!(lease(&cluster).await.annotations().get("kube-provisioner/journal-entries"), None);
}

#[tokio::test(start_paused = true)]
async fn entries_of_a_copied_lease_can_be_dropped_and_accepted() {
    let cluster = Cluster::builder().build();
    let first = hold_lease(&cluster, "first").await;
    for key in ["a", "b", "c"] {
        first.journal.record(entry(key)).await.unwrap();
    }
    drop(first);
    let mut copy = lease(&cluster).await;
    let api: Api<Lease> = Api::default_namespaced(cluster.client("backup"));
    api.delete(NAME, &DeleteParams::default()).await.unwrap();
    (copy.metadata.uid, copy.metadata.resource_version) = (None, None);
    api.create(&PostParams::default(), &copy).await.unwrap();
    let held = hold_lease(&cluster, "second").await;
    assert_eq!((held.entries.len(), held.journal.stats().restored), (0, 3));
    let person = cluster.client("person");
    request_drop(&person, JournalKind::Lease, "default", NAME, "a").await.unwrap();
    request_accept(&person, JournalKind::Lease, "default", NAME, "b").await.unwrap();
    assert_eq!(held.journal.accepted().await, [entry("b")]);
    held.journal.flush().await.unwrap();
    let listed = list(&person, JournalKind::Lease, "default", Some("disks")).await.unwrap();
    assert_eq!((&*listed[0].entries, &*listed[0].restored), (&[entry("b")][..], &[entry("c")][..]));
    assert_eq!(list(&person, JournalKind::ConfigMap, "default", None).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn entries_of_another_lease_are_adopted() {
    let cluster = Cluster::builder().build();
    let old = hold_as(cluster.client("old"), in_lease("disks-old", "old")).await;
    old.journal.record(entry("a")).await.unwrap();
    let options = JournalOptions { layout: "2".to_owned(), ..in_lease(NAME, "new") };
    let new = hold_as(cluster.client("new"), options.clone()).await;
    let mut adoption = Adoption::new(cluster.client("new"), &options, &new.journal);
    let found = adoption.run(|other| other.layout == "1", |_, _| true).await.unwrap();
    assert_eq!(found.entries, [entry("a")]);
    let left = list(&cluster.client("person"), JournalKind::Lease, "default", None).await.unwrap();
    assert_eq!(left.iter().map(|listing| &*listing.name).collect::<Vec<_>>(), [NAME]);
}

#[tokio::test(start_paused = true)]
async fn full_journal_fits_into_a_lease() {
    let cluster = Cluster::builder().build();
    let held = hold_lease(&cluster, "one").await;
    let large = |key: usize| {
        let shared = vec![(format!("class-{}", key / 4), "{}".into())];
        Entry { key: key.to_string(), text: "x".repeat(MAX_ENTRY_BYTES - 100), shared }
    };
    let mut refused = 0;
    for key in 0..30 {
        match held.journal.record(large(key)).await {
            Ok(()) => {}
            Err(JournalError::Full { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((12..25).contains(&refused), "{refused}");
    let bytes: usize = lease(&cluster).await.annotations().iter().map(|(name, text)| name.len() + text.len()).sum();
    assert!((200_000..256 * 1024).contains(&bytes), "{bytes}");
}

#[tokio::test(start_paused = true)]
async fn journal_in_memory_sends_no_requests() {
    let cluster = Cluster::builder().build();
    let in_memory = |holder: &str| JournalOptions { kind: JournalKind::Memory, ..options(NAME, holder) };
    let first = hold_as(cluster.client("first"), in_memory("first")).await;
    first.journal.record(entry("a")).await.unwrap();
    first.journal.fence().await.unwrap();
    assert!(first.journal.contains("a"));
    drop(first);
    assert_eq!(hold_as(cluster.client("second"), in_memory("second")).await.entries, []);
    for plural in ["configmaps", "leases"] {
        let group = if plural == "leases" { "coordination.k8s.io" } else { "" };
        assert_eq!(cluster.list(group, plural, Some("default")).unwrap(), Vec::<serde_json::Value>::new());
    }
}

/// An attempt that cannot be recorded does not begin, and the error names the reason.
#[tokio::test(start_paused = true)]
async fn reports_a_deleted_namespace_until_it_exists_again() {
    use k8s_openapi::api::core::v1::Namespace;
    use kube_sim::{DeleteOptions, Target};
    use serde_json::json;
    for (kind, group, plural) in
        [(JournalKind::ConfigMap, "", "configmaps"), (JournalKind::Lease, "coordination.k8s.io", "leases")]
    {
        let cluster = Cluster::new();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "short"}});
        cluster.create(&namespace).unwrap();
        let options = JournalOptions { kind, namespace: "short".to_owned(), ..options(NAME, "one") };
        let held = hold_as(cluster.client("one"), options).await;
        held.journal.record(entry("a")).await.unwrap();
        let of_namespace = Target { group: "", plural: "namespaces", namespace: "", name: "short" };
        cluster.delete(&of_namespace, DeleteOptions::default()).unwrap();
        // The namespace controller deletes the content.
        let _ = cluster.delete(&Target { group, plural, namespace: "short", name: NAME }, DeleteOptions::default());
        let failed = held.journal.record(entry("b")).await.unwrap_err().to_string();
        assert!(failed.contains("The namespace short is being deleted"), "{plural}: {failed}");
        let namespaces = Api::<Namespace>::all(cluster.client("controller-manager"));
        let mut going = namespaces.get("short").await.unwrap();
        going.spec.get_or_insert_default().finalizers = None;
        namespaces.replace_subresource("finalize", "short", &PostParams::default(), &going).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        let failed = held.journal.record(entry("b")).await.unwrap_err().to_string();
        assert!(failed.contains("The namespace short does not exist"), "{plural}: {failed}");
        cluster.create(&namespace).unwrap();
        sleep(Duration::from_secs(60)).await;
        held.journal.record(entry("b")).await.unwrap();
        let listed = list(&cluster.client("person"), kind, "short", Some("disks")).await.unwrap();
        let keys: Vec<&str> = listed[0].entries.iter().map(|entry| &*entry.key).collect();
        assert_eq!(keys, ["a", "b"], "{plural}: earlier entries are stored again");
    }
}
