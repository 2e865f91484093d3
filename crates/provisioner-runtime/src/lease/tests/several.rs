//! Several shards, shared by several replicas.

use super::*;

const SHARDS: u32 = 4;

#[tokio::test(start_paused = true)]
async fn single_replica_holds_all_shards_and_a_member_lease() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let replica = Replica::start(&cluster, &terms, "a", SHARDS);
    replica.until_holding(4).await;
    assert_eq!(replica.held(), [0, 1, 2, 3]);
    let names = leases(&cluster);
    assert_eq!(names.len(), 5, "{names:?}");
    assert_eq!(names[..4], [0, 1, 2, 3].map(|shard| format!("{NAME}-{shard}")));
    assert!(names[4].starts_with("example.com-toy-member-"));
    assert_eq!(replica.health.problem(), None);
    replica.end().await;
    assert_eq!(leases(&cluster).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn shards_stay_balanced_as_replicas_join_and_leave() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let mut replicas: Vec<Replica> = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        replicas.push(Replica::start(&cluster, &terms, name, SHARDS));
        let took = until(|| is_even(&replicas)).await;
        assert!(took < seconds(1), "{name}: {took:?}");
        let before = begun(&replicas);
        sleep(seconds(60)).await;
        assert!(is_even(&replicas));
        assert_eq!(begun(&replicas), before, "shards keep moving");
        assert!(replicas.iter().all(|replica| replica.health.members() == replicas.len()));
    }
    while replicas.len() > 1 {
        replicas.remove(0).end().await;
        let took = until(|| is_even(&replicas)).await;
        assert!(took < seconds(1), "{took:?}");
        let before = begun(&replicas);
        sleep(seconds(60)).await;
        assert_eq!(begun(&replicas), before, "shards keep moving");
    }
    assert!(replicas.iter().all(|replica| replica.health.lost_terms() == 0));
}

#[tokio::test(start_paused = true)]
async fn moves_as_few_shards_as_possible() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let mut replicas = vec![Replica::start(&cluster, &terms, "a", SHARDS)];
    until(|| is_even(&replicas)).await;
    for (name, moved) in [("b", 2), ("c", 1), ("d", 1), ("e", 0)] {
        let before = begun(&replicas);
        replicas.push(Replica::start(&cluster, &terms, name, SHARDS));
        sleep(seconds(30)).await;
        assert!(is_even(&replicas));
        assert_eq!(begun(&replicas), before + moved, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_together_share_at_once() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let replicas = ["a", "b", "c"].map(|name| Replica::start(&cluster, &terms, name, 6));
    let took = until(|| is_even(&replicas)).await;
    assert!(took < seconds(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn takes_over_a_crashed_replicas_shards_and_removes_its_lease() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let mut replicas =
        ["a", "b", "c"].map(|name| Replica::start(&cluster, &terms, name, SHARDS)).into_iter().collect::<Vec<_>>();
    until(|| is_even(&replicas)).await;
    sleep(seconds(20)).await;
    replicas.remove(0).crash().await;
    let took = until(|| is_even(&replicas)).await;
    assert!(took <= seconds(17), "{took:?}");
    assert_eq!(leases(&cluster).len(), 4 + 3);
    sleep(seconds(90)).await;
    assert_eq!(leases(&cluster).len(), 4 + 2);
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_handed_over_only_when_its_work_is_done() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let first = Replica::start_with(&cluster, &terms, "a", 2, Workload::Slow(seconds(40)));
    first.until_holding(2).await;
    let second = Replica::start(&cluster, &terms, "b", 2);
    let took = second.until_holding(1).await;
    assert!(seconds(40) <= took && took < seconds(41), "{took:?}");
    assert_eq!((first.held(), second.held(), first.health.lost_terms()), (vec![0], vec![1], 0));
}

#[tokio::test(start_paused = true)]
async fn resized_fleet_waits_until_the_old_fleet_has_stopped() {
    for (old, new) in [(2, 4), (4, 2), (1, 3), (3, 1)] {
        let (cluster, terms) = (Cluster::new(), Terms::default());
        let first = Replica::start(&cluster, &terms, "a", old);
        let second = Replica::start(&cluster, &terms, "b", old);
        sleep(seconds(30)).await;
        // A rolling update: one replica starts, one stops.
        let third = Replica::start(&cluster, &terms, "c", new);
        sleep(seconds(30)).await;
        assert!(third.held().is_empty());
        let notice = third.health.waiting_notice().unwrap();
        assert!(notice.contains(&format!("as one of {old} instead of {new}")), "{notice}");
        assert_eq!(third.health.problem(), None, "a problem would block the rolling update");
        first.end().await;
        second.until_holding(old as usize).await;
        let fourth = Replica::start(&cluster, &terms, "d", new);
        sleep(seconds(30)).await;
        assert_eq!((third.held(), fourth.held(), second.held().len()), (vec![], vec![], old as usize));
        second.end().await;
        let took = until(|| is_even(&[&third, &fourth])).await;
        assert!(took < seconds(5), "{old} to {new}: {took:?}");
        assert_eq!(third.health.waiting_notice(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn resized_fleet_waits_until_a_crashed_fleets_leases_expire() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let first = Replica::start(&cluster, &terms, "a", 2);
    first.until_holding(2).await;
    let second = Replica::start(&cluster, &terms, "b", 4);
    sleep(seconds(30)).await;
    first.crash().await;
    let took = until(|| second.held().len() == 4).await;
    assert!(seconds(13) < took && took <= seconds(17), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn one_of_two_concurrent_fleets_of_different_size_wins() {
    for (one, other) in [(2, 4), (4, 2), (1, 2), (2, 1), (3, 7)] {
        let (cluster, terms) = (Cluster::new(), Terms::default());
        let first = Replica::start(&cluster, &terms, "a", one);
        let second = Replica::start(&cluster, &terms, "b", other);
        until(|| is_even(&[&first]) || is_even(&[&second])).await;
        sleep(seconds(60)).await;
        assert!(first.held().is_empty() != second.held().is_empty());
        let (ahead, behind) = if second.held().is_empty() { (first, second) } else { (second, first) };
        ahead.end().await;
        until(|| is_even(&[&behind])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lease_of_client_go_counts_as_one_shard() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    cluster.create(&foreign(NAME, &json!({"holderIdentity": "go", "leaseDurationSeconds": 15}))).unwrap();
    let replica = Replica::start(&cluster, &terms, "a", 2);
    sleep(seconds(10)).await;
    assert!(replica.health.waiting_notice().unwrap().contains("as one of 1 instead of 2"));
    let took = seconds(10) + replica.until_holding(2).await;
    assert!(seconds(15) <= took && took < seconds(20), "{took:?}");
}

fn is_even<R: std::borrow::Borrow<Replica>>(replicas: &[R]) -> bool {
    let counts: Vec<usize> = replicas.iter().map(|replica| replica.borrow().health.held().len()).collect();
    let shards = counts.iter().sum::<usize>();
    let of = replicas.first().map_or(0, |replica| replica.borrow().shards);
    let fair = |count: &usize| *count == shards / counts.len() || *count == shards.div_ceil(counts.len());
    shards == of && counts.iter().all(fair)
}

fn begun(replicas: &[Replica]) -> u64 {
    replicas.iter().map(|replica| replica.health.begun()).sum()
}
