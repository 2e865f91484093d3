//! Runs a few simulations, and checks that they are reproducible.

use simulation::{Campaign, Plan, RunOptions, Subject, Trace, run, run_seed};

fn traced() -> RunOptions {
    RunOptions { trace: Trace::Full, ..RunOptions::default() }
}

#[test]
fn a_seed_determines_its_plan() {
    let plan = Plan::draw(7);
    assert_eq!(plan, Plan::draw(7));
    assert_ne!(plan.to_string(), Plan::draw(8).to_string());
}

fn without_logs(trace: &str) -> Vec<String> {
    // `tracing` caches for the whole process whether a log line is enabled, and other tests run in the same process.
    trace.lines().filter(|line| !line.contains(" -- log: ")).map(str::to_owned).collect()
}

#[test]
fn bucket_runs_are_reproducible() {
    let run_options = RunOptions { subject: Subject::Buckets, ..traced() };
    for seed in 0..12 {
        let [first, second] = [(); 2].map(|()| without_logs(&run_seed(seed, &run_options).trace));
        let difference = first.iter().zip(&second).find(|(one, two)| one != two);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[test]
fn volume_runs_are_reproducible() {
    let mut eventful = 0;
    for seed in 0..10 {
        let plan = if seed % 2 == 0 { Plan::draw(seed) } else { Plan::draw_with_topology(seed) };
        let (one, two) = (run(&plan, &traced()), run(&plan, &traced()));
        let (first, second) = (without_logs(&one.trace), without_logs(&two.trace));
        let difference = first.iter().zip(&second).enumerate().find(|(_, (one, two))| one != two);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
        eventful += usize::from(one.trace.contains("is called"));
    }
    assert!(eventful >= 5, "too few runs called the backend");
}

#[test]
fn tracing_does_not_change_the_outcome() {
    for seed in 0..10 {
        let plan = Plan::draw(seed);
        let (traced, untraced) = (run(&plan, &traced()), run(&plan, &RunOptions::default()));
        assert_eq!((traced.violation, traced.simulated), (untraced.violation, untraced.simulated), "seed {seed}");
        assert!(untraced.trace.is_empty());
    }
}

#[test]
fn volumes_survive_crashes() {
    holds(Subject::Volumes, 120, "");
}

#[test]
fn volumes_survive_changes_of_nodes() {
    holds(Subject::Topology, 120, " --topology");
}

#[test]
fn buckets_survive_crashes() {
    holds(Subject::Buckets, 60, " --buckets");
}

fn holds(subject: Subject, seeds: u64, argument: &str) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let run_options = RunOptions { subject, ..RunOptions::default() };
    let campaign = Campaign { seeds: 0..seeds, threads, limit: None, keep_going: false, run_options };
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
