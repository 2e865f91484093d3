//! Runs simulations: a campaign of many seeds, or one seed with its trace. `cargo xtask sim` builds and starts it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to its user")]

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use mimalloc::MiMalloc;
use simulation::{
    BucketSafeguard, Campaign, CampaignEvent, Failure, Invariant, Plan, Progress, RunOptions, Safeguard, Subject,
    Tally, Trace, run_seed,
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Test by simulation that the controllers survive crashes.
#[derive(Parser)]
#[command(name = "sim", bin_name = "cargo xtask sim", max_term_width = 100)]
struct Arguments {
    /// Number of seeds to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,

    /// First seed
    #[arg(long, default_value_t = 0)]
    from: u64,

    /// Number of seeds to run in parallel [default: number of cores]
    #[arg(long)]
    threads: Option<usize>,

    /// Start no more runs after this many minutes
    #[arg(long)]
    minutes: Option<u64>,

    /// Keep going after a failure
    #[arg(long)]
    keep_going: bool,

    /// Run only this seed and print its trace
    #[arg(long, conflicts_with_all = ["seeds", "from", "threads", "minutes", "keep_going", "digest"])]
    seed: Option<u64>,

    /// Print a digest of all requests of all seeds; it changes only if a request changes
    #[arg(long)]
    digest: bool,

    /// Skip these invariants
    #[arg(long, value_delimiter = ',', value_parser = invariant)]
    ignore: Vec<Invariant>,

    /// Disable one safeguard of the volume controller: journal, fencing, read-back, ownership, uid-precondition,
    /// failed-attempts, identity, cluster, copies, journals, unreadable, fresh-volumes or expand-first
    #[arg(long, value_name = "SAFEGUARD", value_parser = safeguard)]
    without: Option<Safeguard>,

    /// Simulate the volume controller with a CSI driver whose volumes are accessible only from some nodes
    #[arg(long, conflicts_with = "buckets")]
    topology: bool,

    /// Simulate the bucket controller instead of the volume controller
    #[arg(long)]
    buckets: bool,

    /// Disable one safeguard of the bucket controller: failed-attempts, order, ownership, fencing, key-record, fresh,
    /// absence, cluster, unreadable, pointer, shared, version or finalizer
    #[arg(long, value_name = "SAFEGUARD", value_parser = bucket_safeguard, requires = "buckets", conflicts_with = "without")]
    without_bucket: Option<BucketSafeguard>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let trace = match (arguments.seed, arguments.digest) {
        (Some(_), _) => Trace::Full,
        (None, true) => Trace::Requests,
        (None, false) => Trace::Off,
    };
    let ignored = arguments.ignore.iter().copied().collect();
    let subject = match (arguments.buckets, arguments.topology) {
        (true, _) => Subject::Buckets,
        (false, true) => Subject::Topology,
        (false, false) => Subject::Volumes,
    };
    let (without, without_bucket) = (arguments.without, arguments.without_bucket);
    let run_options = RunOptions { trace, ignored, without, without_bucket, subject };
    match arguments.seed {
        Some(seed) => run_one(seed, &run_options),
        None => run_many(&arguments, run_options),
    }
}

fn run_one(seed: u64, run_options: &RunOptions) -> ExitCode {
    match run_options.subject {
        Subject::Volumes => println!("{}", Plan::draw(seed)),
        Subject::Topology => println!("{}", Plan::draw_with_topology(seed)),
        Subject::Buckets => {}
    }
    let outcome = run_seed(seed, run_options);
    println!("{}", outcome.trace);
    match outcome.violation {
        Some(violation) => {
            println!("seed {seed} fails: {violation}");
            ExitCode::FAILURE
        }
        None => {
            println!("seed {seed} holds, after {} simulated seconds", outcome.simulated.as_secs());
            ExitCode::SUCCESS
        }
    }
}

fn run_many(arguments: &Arguments, run_options: RunOptions) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let campaign = Campaign {
        seeds: arguments.from..arguments.from.saturating_add(arguments.seeds),
        threads: arguments.threads.unwrap_or(cores),
        limit: arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes)),
        keep_going: arguments.keep_going,
        run_options,
    };
    let tally = campaign.run(|news| match news {
        CampaignEvent::Progress(Progress { runs, failures, took }) => {
            let rate = runs as f64 / took.as_secs_f64();
            eprintln!("{runs} seeds, {rate:.0} per second, {failures} failed");
        }
        CampaignEvent::Failure(Failure { seed, violation }) => {
            println!("seed {seed} fails: {violation}");
            println!("  again, with its trace: cargo xtask sim --seed {seed}{}", replay_options(arguments));
        }
    });
    report(&tally);
    if arguments.digest {
        println!("digest of the requests: {:016x}", tally.digest);
    }
    let without = arguments.without.map(|safeguard| format!("{safeguard:?}"));
    let without = without.or_else(|| arguments.without_bucket.map(|safeguard| format!("{safeguard:?}")));
    if let Some(safeguard) = without {
        match tally.failures.first() {
            Some(first) => println!("the missing safeguard {safeguard} was detected by seed {}", first.seed),
            None => println!("the missing safeguard {safeguard} was not detected"),
        }
    }
    if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The options that a replay needs in addition to the seed.
fn replay_options(arguments: &Arguments) -> String {
    let names: Vec<&str> = arguments.ignore.iter().map(|invariant| invariant.name()).collect();
    let ignore = if names.is_empty() { String::new() } else { format!(" --ignore {}", names.join(",")) };
    let without = SAFEGUARDS.into_iter().find(|(_, safeguard)| arguments.without == Some(*safeguard));
    let without = without.map(|(name, _)| format!(" --without {name}")).unwrap_or_default();
    let topology = if arguments.topology { " --topology" } else { "" };
    let buckets = if arguments.buckets { " --buckets" } else { "" };
    let bucket = BUCKET_SAFEGUARDS.into_iter().find(|(_, safeguard)| arguments.without_bucket == Some(*safeguard));
    let bucket = bucket.map(|(name, _)| format!(" --without-bucket {name}")).unwrap_or_default();
    ignore + &without + topology + buckets + &bucket
}

fn report(tally: &Tally) {
    let Tally { runs, took, processor, simulated, failures, .. } = tally;
    for (invariant, count) in tally.counts() {
        println!("{}: broken by {count} seeds", invariant.name());
    }
    let per_seed = |time: Duration| time.as_secs_f64() * 1000.0 / (*runs).max(1) as f64;
    println!(
        "{runs} seeds in {:.1} s, {:.0} per second; of each {:.2} ms of processor time, {:.1} s simulated; {} failed",
        took.as_secs_f64(),
        *runs as f64 / took.as_secs_f64(),
        per_seed(*processor),
        per_seed(*simulated) / 1000.0,
        failures.len(),
    );
}

fn invariant(name: &str) -> Result<Invariant, String> {
    let names: Vec<&str> = Invariant::ALL.iter().map(|known| known.name()).collect();
    let found = Invariant::ALL.into_iter().find(|known| known.name() == name);
    found.ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

fn safeguard(name: &str) -> Result<Safeguard, String> {
    let found = SAFEGUARDS.into_iter().find(|(known, _)| *known == name);
    let names = || SAFEGUARDS.map(|(known, _)| known).join(", ");
    found.map(|(_, safeguard)| safeguard).ok_or_else(|| format!("expected one of {}", names()))
}

fn bucket_safeguard(name: &str) -> Result<BucketSafeguard, String> {
    let found = BUCKET_SAFEGUARDS.into_iter().find(|(known, _)| *known == name);
    let names = || BUCKET_SAFEGUARDS.map(|(known, _)| known).join(", ");
    found.map(|(_, safeguard)| safeguard).ok_or_else(|| format!("expected one of {}", names()))
}

/// The safeguards of the bucket controller that can be disabled, with their names on the command line.
const BUCKET_SAFEGUARDS: [(&str, BucketSafeguard); 13] = [
    ("failed-attempts", BucketSafeguard::FailedAttempts),
    ("order", BucketSafeguard::Order),
    ("ownership", BucketSafeguard::Ownership),
    ("fencing", BucketSafeguard::Fencing),
    ("key-record", BucketSafeguard::KeyRecord),
    ("fresh", BucketSafeguard::Fresh),
    ("absence", BucketSafeguard::Absence),
    ("cluster", BucketSafeguard::Cluster),
    ("unreadable", BucketSafeguard::Unreadable),
    ("pointer", BucketSafeguard::Pointer),
    ("shared", BucketSafeguard::Shared),
    ("version", BucketSafeguard::Version),
    ("finalizer", BucketSafeguard::Finalizer),
];

/// The safeguards of the volume controller that can be disabled, with their names on the command line.
const SAFEGUARDS: [(&str, Safeguard); 13] = [
    ("journal", Safeguard::Journal),
    ("fencing", Safeguard::Fencing),
    ("read-back", Safeguard::ReadBack),
    ("ownership", Safeguard::Ownership),
    ("uid-precondition", Safeguard::UidPrecondition),
    ("failed-attempts", Safeguard::FailedAttempts),
    ("identity", Safeguard::Identity),
    ("cluster", Safeguard::Cluster),
    ("copies", Safeguard::Copies),
    ("journals", Safeguard::Journals),
    ("unreadable", Safeguard::Unreadable),
    ("fresh-volumes", Safeguard::FreshVolumes),
    ("expand-first", Safeguard::ExpandFirst),
];
