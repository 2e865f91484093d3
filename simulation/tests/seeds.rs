//! Runs a few simulations, and checks that they are reproducible.

use simulation::{Campaign, Manner, Plan, Subject, Trace, run, run_seed};

fn told() -> Manner {
    Manner { trace: Trace::Full, ..Manner::default() }
}

#[test]
fn a_seed_says_what_will_happen() {
    let plan = Plan::draw(7);
    assert_eq!(plan, Plan::draw(7));
    assert_ne!(plan.to_string(), Plan::draw(8).to_string());
}

fn happened(trace: &str) -> Vec<String> {
    // `tracing` caches for the whole process whether a log line is enabled, and other tests run in the same process.
    trace.lines().filter(|line| !line.contains(" -- log: ")).map(str::to_owned).collect()
}

#[test]
fn a_seed_of_buckets_happens_the_same_way_twice() {
    let manner = Manner { subject: Subject::Buckets, ..told() };
    for seed in 0..12 {
        let [first, second] = [(); 2].map(|()| happened(&run_seed(seed, &manner).trace));
        let difference = first.iter().zip(&second).find(|(one, two)| one != two);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[test]
fn a_plan_happens_the_same_way_twice() {
    let mut eventful = 0;
    for seed in 0..10 {
        let plan = if seed % 2 == 0 { Plan::draw(seed) } else { Plan::draw_with_topology(seed) };
        let (one, two) = (run(&plan, &told()), run(&plan, &told()));
        let (first, second) = (happened(&one.trace), happened(&two.trace));
        let difference = first.iter().zip(&second).enumerate().find(|(_, (one, two))| one != two);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
        eventful += usize::from(one.trace.contains("is called"));
    }
    assert!(eventful >= 5, "in nearly all nothing happened");
}

#[test]
fn what_is_told_and_what_is_not_end_alike() {
    for seed in 0..10 {
        let plan = Plan::draw(seed);
        let (told, untold) = (run(&plan, &told()), run(&plan, &Manner::default()));
        assert_eq!((told.violation, told.simulated), (untold.violation, untold.simulated), "seed {seed}");
        assert!(untold.trace.is_empty());
    }
}

#[test]
fn nothing_is_lost_whatever_dies_when() {
    holds(Subject::Volumes, 120, "");
}

#[test]
fn nothing_is_lost_whatever_happens_to_nodes() {
    holds(Subject::Topology, 120, " --topology");
}

#[test]
fn no_bucket_is_lost_or_taken_from_others() {
    holds(Subject::Buckets, 60, " --buckets");
}

fn holds(subject: Subject, seeds: u64, argument: &str) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let manner = Manner { subject, ..Manner::default() };
    let campaign = Campaign { seeds: 0..seeds, threads, limit: None, keep_going: false, manner };
    let tally = campaign.run(|_| {});
    let failures: Vec<String> = tally
        .failures
        .iter()
        .map(|failure| {
            format!(
                "seed {}: {}\nagain: cargo xtask sim --seed {}{argument}",
                failure.seed, failure.violation, failure.seed
            )
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
