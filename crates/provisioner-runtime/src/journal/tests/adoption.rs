//! Tests of entries that move from one journal to another.

use super::*;

const OLD: &str = "disks-old";

#[tokio::test(start_paused = true)]
async fn entries_of_another_layout_are_adopted_once() {
    let cluster = Cluster::builder().build();
    let old = old_journal(&cluster, &[entry("a"), entry("b"), entry("c")]).await;
    let (first_options, first) = new_journal(&cluster, "disks-0-of-2").await;
    let (second_options, second) = new_journal(&cluster, "disks-1-of-2").await;
    let is_a = |_: OtherJournal<'_>, entry: &Entry| entry.key == "a";
    let mut by_first = Adoption::new(cluster.client("0"), &first_options, &first.journal);
    let mut by_second = Adoption::new(cluster.client("1"), &second_options, &second.journal);
    let (one, two) =
        tokio::join!(by_first.run(abandoned, is_a), by_second.run(abandoned, |other, entry| !is_a(other, entry)));
    assert_eq!(one.unwrap(), adopted([entry("a")]));
    assert_eq!(two.unwrap(), adopted([entry("b"), entry("c")]));
    assert!(first.journal.contains("a") && second.journal.contains("c"));
    assert_eq!(by_first.run(abandoned, is_a).await.unwrap(), Adopted::default());
    // The journal was emptied and deleted; its holder cannot continue.
    assert_eq!(keys_in(&cluster, OLD), None);
    assert!(old.journal.record(entry("d")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn does_not_adopt_from_a_journal_written_since_it_was_read() {
    let cluster = Cluster::builder().build();
    let living = old_journal(&cluster, &[entry("a")]).await;
    let (options, mine) = new_journal(&cluster, "mine").await;
    let mut adoption = Adoption::new(cluster.client("mine"), &options, &mine.journal);
    let api: Api<JournalObject> = Api::namespaced_with(cluster.client("mine"), "default", &JournalKind::ConfigMap);
    let before = api.get(OLD).await.unwrap();
    living.journal.record(entry("b")).await.unwrap();
    let seen = before.resource_version().unwrap();
    let found = adoption
        .move_entries(
            before,
            &mut |other: OtherJournal<'_>| other.version == seen,
            &|_: OtherJournal<'_>, _: &Entry| true,
        )
        .await;
    assert_eq!(found.unwrap(), []);
    assert!(!mine.journal.contains("a"));
    assert_eq!(keys_in(&cluster, OLD).unwrap(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn entries_that_do_not_fit_are_fenced_and_adopted_later() {
    let cluster = Cluster::builder().build();
    let begun: Vec<Entry> = (0..5).map(|number| large(&format!("old-{number}"))).collect();
    let old = old_journal(&cluster, &begun).await;
    let (options, mine) = new_journal(&cluster, "mine").await;
    // 29 entries fit. New entries of a group must leave a fifth free; adopted entries need not.
    let other = |key: usize| Entry { shared: vec![("other".into(), "{}".into())], ..large(&format!("other-{key}")) };
    for number in 0..23 {
        mine.journal.record(large(&format!("mine-{number}"))).await.unwrap();
    }
    for number in 0..3 {
        mine.journal.record(other(number)).await.unwrap();
    }
    let mut adoption = Adoption::new(cluster.client("mine"), &options, &mine.journal);
    let found = adoption.run(abandoned, |_, _| true).await.unwrap();
    assert_eq!((found.entries.len(), found.left.len()), (3, 2));
    assert_eq!(keys_in(&cluster, OLD).unwrap(), ["old-3", "old-4"]);
    assert!(matches!(old.journal.fence().await, Err(JournalError::Lost(by)) if by == "mine"));
    // The holder is fenced even if nothing fits.
    let found = adoption.run(abandoned, |_, _| true).await.unwrap();
    assert_eq!((found.entries.len(), found.left.len()), (0, 2));
    mine.journal.remove("mine-1");
    mine.journal.remove("mine-2");
    let found = adoption.run(abandoned, |_, _| true).await.unwrap();
    assert_eq!(found, adopted([large("old-3"), large("old-4")]));
    assert_eq!(keys_in(&cluster, OLD), None);
}

#[tokio::test(start_paused = true)]
async fn fences_the_former_holder_even_if_nothing_fits() {
    let cluster = Cluster::builder().build();
    let old = old_journal(&cluster, &[entry("a")]).await;
    let (options, mine) = new_journal(&cluster, "mine").await;
    // An earlier version allowed more.
    let large = (0..5).map(|key| Entry { text: "x".repeat(100_000), ..entry(&format!("large-{key}")) });
    *crate::sync::lock(&mine.journal.shared.state) =
        State::new(Content { entries: large.collect(), ..Content::default() }, &options, Vec::new());
    let mut adoption = Adoption::new(cluster.client("mine"), &options, &mine.journal);
    for _ in 0..2 {
        let found = adoption.run(abandoned, |_, _| true).await.unwrap();
        assert_eq!(found, Adopted { entries: Vec::new(), left: vec![entry("a")] });
    }
    assert!(matches!(old.journal.fence().await, Err(JournalError::Lost(by)) if by == "mine"));
}

#[tokio::test(start_paused = true)]
async fn entry_already_in_our_journal_is_only_removed_elsewhere() {
    let cluster = Cluster::builder().build();
    let _old = old_journal(&cluster, &[entry("a")]).await;
    let (options, mine) = new_journal(&cluster, "mine").await;
    let newer = Entry { text: "newer".into(), ..entry("a") };
    mine.journal.record(newer.clone()).await.unwrap();
    let mut adoption = Adoption::new(cluster.client("mine"), &options, &mine.journal);
    let found = adoption.run(abandoned, |_, _| true).await.unwrap();
    assert_eq!(found.entries.len(), 1);
    let text = cluster.get("", "configmaps", "default", "mine").unwrap()["data"][ENTRIES].clone();
    assert!(text.as_str().unwrap().contains("newer"), "{text}");
    assert_eq!(keys_in(&cluster, OLD), None);
}

#[tokio::test(start_paused = true)]
async fn does_not_adopt_dropped_entries() {
    let cluster = Cluster::builder().build();
    let old = old_journal(&cluster, &[entry("a"), entry("b")]).await;
    drop(old);
    request_drop(&cluster.client("person"), JournalKind::ConfigMap, "default", OLD, "a").await.unwrap();
    let (options, mine) = new_journal(&cluster, "mine").await;
    let mut adoption = Adoption::new(cluster.client("mine"), &options, &mine.journal);
    assert_eq!(adoption.run(abandoned, |_, _| true).await.unwrap(), adopted([entry("b")]));
    assert_eq!(keys_in(&cluster, OLD), None);
}

/// Otherwise the former holder's last write would leave an entry in a journal that no process reads.
#[tokio::test(start_paused = true)]
async fn deletes_an_empty_journal_before_a_late_write() {
    let late = Arc::new(Late::default());
    let cluster = Cluster::builder().interceptor(late.clone()).build();
    let old = old_journal(&cluster, &[]).await;
    late.delay_next(Verb::Update);
    old.journal.record(entry("a")).await.unwrap_err();
    drop(old);
    let (options, mine) = new_journal(&cluster, "mine").await;
    let mut adoption = Adoption::new(cluster.client("mine"), &options, &mine.journal);
    late.delay_next(Verb::Delete);
    assert_eq!(adoption.run(abandoned, |_, _| true).await.unwrap(), Adopted::default());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(keys_in(&cluster, OLD), None);
}

/// Two replicas adopt the entries of one journal under random faults, and restart in between.
#[tokio::test(start_paused = true)]
async fn every_entry_is_always_in_a_journal_despite_faults() {
    let mut total = 0;
    for seed in 0..100 {
        let faults = Faults::storm(seed);
        let cluster = Cluster::builder().seed(seed).faults(&faults).build();
        let take = async |options: JournalOptions| loop {
            match Journal::take_over(cluster.client(&options.holder), options.clone(), || false).await {
                Ok((journal, writer, entries)) => {
                    return HeldJournal { journal, entries, writer: tokio::spawn(writer.run()) };
                }
                Err(_) => sleep(Duration::from_secs(1)).await,
            }
        };
        let old = take(options(OLD, "old")).await;
        let mut begun = Vec::new();
        for key in ["a", "b", "c", "d"] {
            if old.journal.record(entry(key)).await.is_ok() {
                begun.push(key.to_owned());
            }
        }
        total += begun.len();
        let everywhere = || -> Vec<String> {
            [OLD, "one", "two"].iter().filter_map(|name| keys_in(&cluster, name)).flatten().collect()
        };
        let adopt = async |name: &'static str, keys: [&'static str; 2]| {
            let mut mine: Vec<String> = Vec::new();
            for holder in 0..2 {
                let options = JournalOptions { layout: "2".to_owned(), ..options(name, &format!("{name}-{holder}")) };
                let held = take(options.clone()).await;
                mine = held.entries.iter().map(|entry| entry.key.clone()).collect();
                let mut adoption = Adoption::new(cluster.client(&options.holder), &options, &held.journal);
                for attempt in 0.. {
                    match adoption.run(abandoned, |_, entry| keys.contains(&&*entry.key)).await {
                        Ok(found) => {
                            assert_eq!(found.left, [], "seed {seed}");
                            for entry in &found.entries {
                                let in_old = keys_in(&cluster, OLD).unwrap_or_default();
                                assert!(!in_old.contains(&entry.key), "seed {seed}: {} is in both", entry.key);
                                assert!(keys_in(&cluster, name).unwrap().contains(&entry.key), "seed {seed}");
                            }
                            mine.extend(found.entries.into_iter().map(|entry| entry.key));
                            break;
                        }
                        // The first replica stops halfway.
                        Err(_) if holder == 0 && attempt > 0 => break,
                        Err(_) => sleep(Duration::from_secs(1)).await,
                    }
                }
            }
            mine
        };
        let missing = async || loop {
            let there = everywhere();
            if let Some(key) = begun.iter().find(|key| !there.contains(key)) {
                return key.clone();
            }
            sleep(Duration::from_millis(20)).await;
        };
        let (one, two) = tokio::select! {
            both = async { tokio::join!(adopt("one", ["a", "b"]), adopt("two", ["c", "d"])) } => both,
            key = missing() => panic!("seed {seed}: {key} is in no journal"),
        };
        for key in &begun {
            assert!(one.contains(key) || two.contains(key), "seed {seed}: {key} was not adopted");
        }
    }
    assert!(total > 200, "too little happened: {total}");
}

fn abandoned(other: OtherJournal<'_>) -> bool {
    other.layout != "2"
}

fn adopted<const N: usize>(entries: [Entry; N]) -> Adopted {
    Adopted { entries: entries.into(), left: Vec::new() }
}

async fn old_journal(cluster: &Cluster, entries: &[Entry]) -> HeldJournal {
    let taken = Journal::take_over(cluster.client("old"), options(OLD, "old"), || false).await;
    let (journal, writer, _) = taken.unwrap();
    let held = HeldJournal { journal, entries: Vec::new(), writer: tokio::spawn(writer.run()) };
    for entry in entries {
        held.journal.record(entry.clone()).await.unwrap();
    }
    held
}

async fn new_journal(cluster: &Cluster, name: &str) -> (JournalOptions, HeldJournal) {
    let options = JournalOptions { layout: "2".to_owned(), ..options(name, name) };
    (options.clone(), hold_as(cluster.client(name), options).await)
}

/// Returns the keys of a stored journal, if it exists.
fn keys_in(cluster: &Cluster, name: &str) -> Option<Vec<String>> {
    let stored = cluster.get("", "configmaps", "default", name).ok()?;
    let entries = stored["data"][ENTRIES].as_str().unwrap_or_default();
    Some(entries.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect())
}
