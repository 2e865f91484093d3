//! Tests that a shard never has two holders, regardless of faults.

use kube_sim::{DeleteOptions, Fault, Faults};

use super::*;

/// Number of runs with random faults for each kind of fleet.
const SEEDS: u64 = 6;

/// Randomness for the run itself.
struct Dice(crate::backoff::Random);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        (self.0.next() * limit as f64) as usize
    }

    fn time(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.0.next())
    }
}

/// Runs replicas that start, stop, crash and hang, while the server injects faults. `shards` are the numbers of shards
/// that replicas are started with. Returns the trace.
async fn storm(seed: u64, shards: &[u32]) -> String {
    let faults = Faults::storm(seed).with(Fault::HangAfter, 0.02).with(Fault::WatchSilence, 0.01);
    let cluster = Cluster::builder().seed(seed).faults(&faults).hide_managed_fields().trace().build();
    let terms = Terms::default();
    let mut dice = Dice(crate::backoff::Random::new(seed));
    let mut replicas: Vec<Replica> = Vec::new();
    let mut stopped: Vec<Replica> = Vec::new();
    let mut next = 0;
    for _ in 0..25 {
        match dice.below(8) {
            0..3 if replicas.len() < 4 => {
                let workload =
                    [Workload::Obedient, Workload::Stuck, Workload::Slow(seconds(3)), Workload::Short(seconds(20))]
                        [dice.below(4)];
                let count = shards[dice.below(shards.len())];
                replicas.push(Replica::start_with(&cluster, &terms, &format!("{seed}-{next}"), count, workload));
                next += 1;
            }
            3 if !replicas.is_empty() => {
                let replica = replicas.remove(dice.below(replicas.len()));
                replica.stop.cancel();
                stopped.push(replica);
            }
            4 if !replicas.is_empty() => replicas.remove(dice.below(replicas.len())).crash().await,
            5 if !replicas.is_empty() => replicas[dice.below(replicas.len())].pause.begin(),
            6 => replicas.iter().for_each(|replica| replica.pause.end()),
            // Delete a Lease manually, but not while it has a holder that newcomers cannot know.
            7 if terms.valid().is_empty() => {
                let names = leases(&cluster);
                if !names.is_empty() {
                    let name = &names[dice.below(names.len())];
                    cluster.delete(&target(name), DeleteOptions::default()).unwrap();
                }
            }
            _ => {}
        }
        let until = Instant::now() + dice.time(seconds(30));
        while Instant::now() < until {
            sleep(Duration::from_millis(100)).await;
            terms.check();
        }
    }

    // Once all faults end, a fleet acquires all its shards, whatever the others have left behind.
    faults.stop();
    for replica in replicas.into_iter().chain(stopped) {
        replica.task.abort();
    }
    let last = ["y", "z"].map(|name| Replica::start(&cluster, &terms, name, shards[0]));
    let start = Instant::now();
    let held = || last.iter().map(|replica| replica.held().len()).sum::<usize>();
    while held() < shards[0] as usize {
        sleep(Duration::from_millis(100)).await;
        terms.check();
        assert!(start.elapsed() < seconds(200), "seed {seed}: {:?}", last.map(|replica| replica.health));
    }
    cluster.trace()
}

/// Runs in a separate runtime, so that nothing is left over.
fn run(seed: u64, shards: &[u32]) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(storm(seed, shards))
}

fn storms(shards: &[u32]) {
    (0..SEEDS).for_each(|seed| drop(run(seed, shards)));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..3 {
        let (one, two) = (run(seed, &[1, 2, 3]), run(seed, &[1, 2, 3]));
        let difference = one.lines().zip(two.lines()).enumerate().find(|(_, (one, two))| one != two);
        assert_eq!((difference, one.len()), (None, two.len()), "seed {seed}");
        assert!(one.contains(" create leases"), "seed {seed}: nothing happened");
    }
}

#[test]
fn one_lease_has_one_holder_in_any_storm() {
    storms(&[1]);
}

#[test]
fn each_shard_has_one_holder_in_any_storm() {
    storms(&[3]);
}

#[test]
fn fleets_with_different_shard_counts_never_work_concurrently() {
    storms(&[1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn suspended_replica_notices_the_end_of_its_term() {
    let (cluster, terms) = (Cluster::new(), Terms::default());
    let first = Replica::start_with(&cluster, &terms, "a", 1, Workload::Stuck);
    first.until_holding(1).await;
    // Use another number of shards, so that no replica touches the Lease of the suspended one.
    let second = Replica::start(&cluster, &terms, "b", 2);
    sleep(seconds(5)).await;
    first.pause.begin();
    until(|| second.held().len() == 2).await;
    terms.check();
    assert_eq!(lease(&cluster, NAME)["spec"]["holderIdentity"], "a");
    first.pause.end();
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        terms.check();
    }
    assert_eq!((first.health.lost_terms(), first.health.begun(), second.held().len()), (1, 1, 2));
    assert!(first.health.waiting_notice().unwrap().contains("waiting for b"));
}
