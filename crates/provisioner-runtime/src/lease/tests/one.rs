//! One Lease: leader election.

use kube_sim::{DeleteOptions, Fault, Faults, Target};

use super::*;

#[tokio::test(start_paused = true)]
async fn first_replica_writes_the_record_of_client_go_at_once() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let replica = Replica::start(&cluster, &terms, "a", 1);
    assert!(replica.until_holding(1).await < Duration::from_millis(10));

    let lease = lease(&cluster, NAME);
    assert_eq!(
        lease["spec"],
        json!({
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2030-01-01T00:00:00.000000Z",
            "renewTime": "2030-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        })
    );
    assert_eq!(lease["metadata"]["labels"], json!({"kube-provisioner/fleet": NAME}));
    assert_eq!(lease["metadata"]["annotations"], json!({"kube-provisioner/shards": "1"}));
    assert_eq!((replica.health.members(), replica.health.begun(), replica.health.lost_terms()), (1, 1, 0));
    assert_eq!((replica.health.problem(), replica.health.waiting_notice()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn idle_leader_sends_one_update_per_retry_period() {
    let cluster = Cluster::builder().trace().build();
    let terms = Terms::default();
    let replica = Replica::start(&cluster, &terms, "a", 1);
    sleep(seconds(10)).await;
    let before = cluster.trace().lines().count();
    sleep(seconds(600)).await;
    let trace = cluster.trace();
    let requests: Vec<&str> = trace.lines().skip(before).collect();
    let updates = requests.iter().filter(|line| line.contains(" update ")).count();
    let watches = requests.iter().filter(|line| line.contains(" watch ")).count();
    assert!((295..=300).contains(&updates), "{updates}");
    assert!((1..=2).contains(&watches), "{watches}");
    assert_eq!(updates + watches, requests.len(), "{trace}");
    assert_eq!(replica.held(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_at_once_when_the_leader_stops() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let first = Replica::start(&cluster, &terms, "a", 1);
    first.until_holding(1).await;
    let second = Replica::start(&cluster, &terms, "b", 1);
    sleep(seconds(30)).await;
    assert_eq!(terms.holder(0).as_deref(), Some("a"));
    first.end().await;
    assert!(second.until_holding(1).await < Duration::from_millis(100));
    assert_eq!((terms.transitions("a"), terms.transitions("b")), (vec![0], vec![1]));
}

#[tokio::test(start_paused = true)]
async fn last_replica_releases_its_lease() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let replica = Replica::start_with(&cluster, &terms, "a", 1, Workload::Slow(seconds(60)));
    replica.until_holding(1).await;
    sleep(seconds(1)).await;
    let start = Instant::now();
    replica.end().await;
    // The Lease was renewed until the work was done.
    assert_eq!(start.elapsed().as_secs(), 60);
    let spec = &lease(&cluster, NAME)["spec"];
    assert_eq!((spec["holderIdentity"].as_str(), &spec["leaseDurationSeconds"]), (Some(""), &json!(1)));
    assert_eq!(spec["renewTime"], "2030-01-01T00:01:01.005000Z");
    assert_eq!(spec["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn standby_takes_over_when_a_crashed_leaders_lease_expires() {
    for (index, moment) in [1, 700, 1300, 1999].into_iter().enumerate() {
        let (cluster, terms) = (Cluster::new(), Terms::default());
        let first = Replica::start(&cluster, &terms, "a", 1);
        first.until_holding(1).await;
        let second = Replica::start(&cluster, &terms, &format!("b{index}"), 1);
        sleep(seconds(20) + Duration::from_millis(moment)).await;
        first.crash().await;
        let since_renewal = Duration::from_millis(moment);
        let took = second.until_holding(1).await + since_renewal;
        assert!(seconds(13) < took && took < seconds(17), "{took:?}");
        assert_eq!(second.health.held()[0].transitions, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn standby_lists_when_its_watch_is_silent() {
    let faults = Faults::none(1).with(Fault::WatchSilence, 1.0).only("b");
    let cluster = Cluster::builder().faults(&faults).build();
    let terms = Terms::default();
    let first = Replica::start(&cluster, &terms, "a", 1);
    first.until_holding(1).await;
    let second = Replica::start(&cluster, &terms, "b", 1);
    sleep(seconds(30)).await;
    first.end().await;
    assert!(second.until_holding(1).await < seconds(3));
}

#[tokio::test(start_paused = true)]
async fn silent_watch_reconnects() {
    let cut = Arc::new(Outage::default());
    *crate::sync::lock(&cut.silent) = Some("b");
    let cluster = Cluster::builder().interceptor(cut).trace().build();
    let terms = Terms::default();
    let first = Replica::start(&cluster, &terms, "a", 1);
    first.until_holding(1).await;
    let _second = Replica::start(&cluster, &terms, "b", 1);
    sleep(seconds(50)).await;
    let trace = cluster.trace();
    let count = |what: &str| trace.lines().filter(|line| line.contains(what)).count();
    assert_eq!((count(" b watch leases"), count("nothing ever again")), (3, 1), "{trace}");
    assert_eq!(count(" b list leases"), 2, "{trace}");
}

/// The leader lists nothing, so only the silence shows that the connection is dead.
#[tokio::test(start_paused = true)]
async fn leader_reconnects_a_silent_watch_within_65_seconds() {
    let cut = Arc::new(Outage { silent: Mutex::new(Some("a")), ..Outage::default() });
    let cluster = Cluster::builder().interceptor(cut).trace().build();
    let replica = Replica::start(&cluster, &Terms::default(), "a", 1);
    replica.until_holding(1).await;
    let is_watch = |line: &&str| line.contains(" a watch leases") && !line.contains("nothing ever again");
    let watches = || cluster.trace().lines().filter(is_watch).count();
    sleep(seconds(60)).await;
    assert_eq!(watches(), 1);
    sleep(seconds(8)).await;
    assert_eq!(watches(), 2);
}

#[tokio::test(start_paused = true)]
async fn releases_the_lease_when_the_work_returns() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let first = Replica::start_with(&cluster, &terms, "a", 1, Workload::Short(seconds(5)));
    first.until_holding(1).await;
    let second = Replica::start(&cluster, &terms, "b", 1);
    second.until_holding(1).await;
    assert_eq!((first.held(), first.health.lost_terms()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn restarts_work_that_returned_after_a_retry_period() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let replica = Replica::start_with(&cluster, &terms, "a", 1, Workload::Short(Duration::ZERO));
    sleep(seconds(100)).await;
    let begun = replica.health.begun();
    assert!((20..=50).contains(&begun), "{begun}");
    // Another replica could have held the Lease between release and acquisition, so the number increases.
    let transitions = terms.transitions("a");
    assert!(transitions.is_sorted() && transitions.windows(2).all(|pair| pair[0] < pair[1]), "{transitions:?}");
}

#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_stops_before_its_lease_expires() {
    let outage = Arc::new(Outage::default());
    let cluster = Cluster::builder().interceptor(outage.clone()).build();
    let terms = Terms::default();
    let replica = Replica::start_with(&cluster, &terms, "a", 1, Workload::Stuck);
    replica.until_holding(1).await;
    outage.set(true);
    let took = until(|| terms.valid().is_empty()).await;
    assert!(seconds(8) <= took && took <= seconds(10), "{took:?}");
    assert!(replica.health.problem().is_some());
    outage.set(false);
    until(|| replica.health.begun() == 2).await;
    assert_eq!((terms.transitions("a"), replica.health.lost_terms()), (vec![0, 0], 1));
    assert_eq!(replica.health.problem(), None);

    // Long enough for others to have held the Lease in between.
    outage.set(true);
    sleep(seconds(60)).await;
    outage.set(false);
    until(|| replica.health.begun() == 3).await;
    assert_eq!(terms.transitions("a"), [0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn holder_recreates_a_deleted_lease() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let first = Replica::start(&cluster, &terms, "a", 1);
    first.until_holding(1).await;
    let second = Replica::start(&cluster, &terms, "b", 1);
    sleep(seconds(5)).await;
    cluster.delete(&target(NAME), DeleteOptions::default()).unwrap();
    sleep(seconds(1)).await;
    assert_eq!(lease(&cluster, NAME)["spec"]["holderIdentity"], "a");
    sleep(seconds(60)).await;
    assert_eq!((first.held(), first.health.begun(), second.health.begun()), (vec![0], 1, 0));
}

#[tokio::test(start_paused = true)]
async fn transitions_increase_after_the_lease_was_deleted() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let first = Replica::start(&cluster, &terms, "a", 1);
    first.until_holding(1).await;
    let second = Replica::start(&cluster, &terms, "b", 1);
    sleep(seconds(5)).await;
    first.crash().await;
    cluster.delete(&target(NAME), DeleteOptions::default()).unwrap();
    let took = second.until_holding(1).await;
    assert!(took > seconds(10), "the deleted Lease still belonged to its holder: {took:?}");
    assert_eq!(terms.transitions("b"), [1]);
}

#[tokio::test(start_paused = true)]
async fn acquires_leases_with_odd_content() {
    let odd = [
        json!(null),
        json!({}),
        json!({"holderIdentity": "", "leaseTransitions": 2_147_483_647}),
        json!({"renewTime": "9999-12-30T21:59:59.999999Z", "acquireTime": "0001-01-01T00:00:00.000000Z"}),
        json!({"holderIdentity": "gone", "renewTime": "9999-12-30T21:59:59.999999Z"}),
        json!({"holderIdentity": "a", "leaseDurationSeconds": 1}),
    ];
    for spec in odd {
        let (cluster, terms) = (Cluster::new(), Terms::default());
        cluster.create(&foreign(NAME, &spec)).unwrap();
        let replica = Replica::start(&cluster, &terms, "a", 1);
        let took = replica.until_holding(1).await;
        let wait = if spec["holderIdentity"] == "gone" { 15 } else { 0 };
        assert!(seconds(wait) <= took && took < seconds(wait + 2), "{spec}: {took:?}");
        assert!(replica.health.held()[0].transitions <= 2_147_483_647);
        replica.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn leader_removed_from_its_lease_stops_at_once() {
    for holder in ["", "somebody"] {
        let (cluster, terms) = (Cluster::new(), Terms::default());
        let replica = Replica::start_with(&cluster, &terms, "a", 1, Workload::Stuck);
        replica.until_holding(1).await;
        sleep(Duration::from_millis(2500)).await;
        let mut changed = lease(&cluster, NAME);
        changed["spec"]["holderIdentity"] = json!(holder);
        cluster.update(&changed).unwrap();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(terms.valid(), []);
        until(|| replica.health.lost_terms() == 1 && replica.held().is_empty()).await;
        // The replica acquires the Lease again as soon as it may.
        until(|| replica.health.begun() == 2).await;
        assert_eq!(terms.transitions("a"), [0, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn forbidden_requests_are_reported_without_a_busy_loop() {
    for verb in [kube_sim::Verb::List, kube_sim::Verb::Create, kube_sim::Verb::Update, kube_sim::Verb::Get] {
        let cut = Arc::new(Outage::default());
        let cluster = Cluster::builder().interceptor(cut.clone()).trace().build();
        cut.forbid(verb);
        if verb == kube_sim::Verb::Update {
            cluster.create(&foreign(NAME, &json!({}))).unwrap();
        }
        let terms = Terms::default();
        let replica = Replica::start(&cluster, &terms, "a", 1);
        sleep(seconds(100)).await;
        let problem = replica.health.problem().unwrap();
        assert!(problem.contains("does not allow"), "{problem}");
        assert!(cut.requests() < 250, "{verb:?}: {}", cut.requests());
        cut.allow();
        until(|| replica.held() == [0]).await;
        assert_eq!(replica.health.problem(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_clears_a_failure_that_has_passed() {
    let cut = Arc::new(Outage::default());
    let cluster = Cluster::builder().interceptor(cut.clone()).build();
    let terms = Terms::default();
    let replicas = ["a", "b"].map(|name| Replica::start(&cluster, &terms, name, 1));
    sleep(seconds(10)).await;
    cut.set(true);
    sleep(seconds(30)).await;
    assert!(replicas.iter().all(|replica| replica.health.problem().is_some()));
    cut.set(false);
    sleep(seconds(60)).await;
    let problems: Vec<_> = replicas.iter().filter_map(|replica| replica.health.problem()).collect();
    assert!(problems.is_empty(), "{problems:?}");
}

#[tokio::test(start_paused = true)]
async fn reports_a_missing_namespace() {
    let cluster = Cluster::new();
    let environment = Environment::simulated(1, SimClock::EPOCH);
    let options = LeaseOptions { environment, ..LeaseOptions::new("nosuch", NAME, "a") };
    let leases = Leases::new(cluster.client("a"), options).unwrap();
    let health = leases.health();
    let task = tokio::spawn(leases.hold(CancellationToken::new(), |_| std::future::pending()));
    sleep(seconds(10)).await;
    let problem = health.problem().unwrap();
    assert!(problem.contains("The namespace nosuch does not exist"), "{problem}");
    cluster.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nosuch"}})).unwrap();
    until(|| health.begun() == 1).await;
    assert_eq!(health.problem(), None);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn reports_the_deletion_of_its_namespace() {
    let cluster = Cluster::new();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "short"}});
    cluster.create(&namespace).unwrap();
    let environment = Environment::simulated(1, SimClock::EPOCH);
    let options = LeaseOptions { environment, ..LeaseOptions::new("short", NAME, "a") };
    let leases = Leases::new(cluster.client("a"), options).unwrap();
    let health = leases.health();
    let task = tokio::spawn(leases.hold(CancellationToken::new(), |_| std::future::pending()));
    until(|| health.begun() == 1).await;
    let target = |plural, namespace, name| Target { group: "", plural, namespace, name };
    cluster.delete(&target("namespaces", "", "short"), DeleteOptions::default()).unwrap();
    let lease = Target { group: "coordination.k8s.io", ..target("leases", "short", NAME) };
    let _ = cluster.delete(&lease, DeleteOptions::default());
    until(|| health.lost_terms() == 1).await;
    let problem = health.problem().unwrap();
    assert!(problem.contains("The namespace short is being deleted"), "{problem}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn replica_without_watch_permission_polls() {
    let cut = Arc::new(Outage::default());
    let cluster = Cluster::builder().interceptor(cut.clone()).build();
    cut.forbid(kube_sim::Verb::Watch);
    let terms = Terms::default();
    let first = Replica::start(&cluster, &terms, "a", 1);
    first.until_holding(1).await;
    let second = Replica::start(&cluster, &terms, "b", 1);
    sleep(seconds(30)).await;
    assert_eq!(second.health.problem(), None);
    assert!(second.health.waiting_notice().unwrap().contains("watch"));
    first.end().await;
    assert!(second.until_holding(1).await < seconds(3));
}

#[tokio::test(start_paused = true)]
async fn respects_and_takes_over_a_lease_of_client_go() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    cluster.create(&foreign(NAME, &json!({"holderIdentity": "go", "leaseDurationSeconds": 15}))).unwrap();
    let replica = Replica::start(&cluster, &terms, "a", 1);
    for second in 0..30 {
        sleep(seconds(2)).await;
        let mut renewed = lease(&cluster, NAME);
        renewed["spec"]["renewTime"] = json!(format!("2025-01-01T00:00:{second:02}.000000Z"));
        cluster.update(&renewed).unwrap();
    }
    assert_eq!(replica.health.begun(), 0);
    let mut released = lease(&cluster, NAME);
    released["spec"]["holderIdentity"] = json!("");
    released["spec"]["leaseTransitions"] = json!(7);
    cluster.update(&released).unwrap();
    assert!(replica.until_holding(1).await < seconds(3));
    assert_eq!(terms.transitions("a"), [8]);
}

/// Runs a leader that receives a response to one in `answered` updates, for this time. It must keep its Lease.
async fn assert_keeps_lease(cut: Outage, answered: usize, time: Duration) {
    let cut = Arc::new(cut);
    let cluster = Cluster::builder().interceptor(cut.clone()).build();
    let terms = Terms::default();
    let replica = Replica::start(&cluster, &terms, "a", 1);
    replica.until_holding(1).await;
    cut.mute.store(answered, std::sync::atomic::Ordering::Relaxed);
    let start = Instant::now();
    while start.elapsed() < time {
        sleep(Duration::from_millis(100)).await;
        assert_eq!(terms.holder(0).as_deref(), Some("a"));
    }
    assert_eq!((replica.health.begun(), replica.health.lost_terms()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn keeps_its_lease_when_responses_are_lost() {
    assert_keeps_lease(Outage::default(), 2, seconds(120)).await;
}

#[tokio::test(start_paused = true)]
async fn keeps_its_lease_when_only_the_watch_confirms_renewals() {
    assert_keeps_lease(Outage::default(), usize::MAX, seconds(120)).await;
}

/// The second attempt conflicts with the first one's write, and a read shows which replica wrote it.
#[tokio::test(start_paused = true)]
async fn keeps_its_lease_when_only_reads_confirm_renewals() {
    let silent = Outage { silent: Mutex::new(Some("a")), ..Outage::default() };
    // Later the watch would reconnect.
    assert_keeps_lease(silent, 2, seconds(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_ends_its_terms_and_releases_nothing() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let replica = Replica::start_with(&cluster, &terms, "a", 1, Workload::Stuck);
    replica.until_holding(1).await;
    assert_eq!(terms.valid().len(), 1);
    replica.crash().await;
    assert_eq!(terms.valid(), []);
    sleep(seconds(5)).await;
    assert_eq!(lease(&cluster, NAME)["spec"]["holderIdentity"], "a");
}
