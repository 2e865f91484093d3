//! The programs that are measured in turns.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use testbed::figures::Figures;

use crate::cluster::Cluster;
use crate::process::{Provisioner, sibling};

/// The Go library is fastest with this number of threads.
const GO_THREADS: &str = "100";
/// Time in which a Go provisioner has filled its caches; it does not report it.
const SETTLE: Duration = Duration::from_secs(3);

/// A program with the name of its row.
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) program: Program,
}

pub(crate) enum Program {
    /// Posts the volumes that a provisioner would save.
    Bare,
    Ours {
        path: PathBuf,
        log: &'static str,
        arguments: Vec<String>,
    },
    Go {
        arguments: Vec<String>,
    },
}

impl Contender {
    pub(crate) fn bare() -> Self {
        Self { name: "bare client".to_owned(), program: Program::Bare }
    }

    /// The library with a backend that does no work.
    pub(crate) fn noop(name: &str, arguments: &[String]) -> anyhow::Result<Self> {
        Ok(Self::ours(name, sibling("noop-provisioner")?, "noop-provisioner", arguments))
    }

    pub(crate) fn ours(name: &str, path: PathBuf, log: &'static str, arguments: &[String]) -> Self {
        Self { name: name.to_owned(), program: Program::Ours { path, log, arguments: arguments.to_vec() } }
    }

    /// The Go library without its client's limits.
    pub(crate) fn go_tuned(name: &str, arguments: &[String]) -> Self {
        let tuned = ["-qps", "-1", "-threads", GO_THREADS, "-add-finalizer"].map(str::to_owned);
        Self { name: name.to_owned(), program: Program::Go { arguments: [&tuned, arguments].concat() } }
    }

    /// The Go library with its default settings.
    pub(crate) fn go_defaults(arguments: &[String]) -> Self {
        Self { name: "Go library, defaults".to_owned(), program: Program::Go { arguments: arguments.to_vec() } }
    }

    pub(crate) async fn start(&self, cluster: &Cluster, more: &[String]) -> anyhow::Result<Provisioner> {
        match &self.program {
            Program::Bare => anyhow::bail!("the bare client does not run as a process"),
            Program::Ours { path, log, arguments } => {
                Provisioner::start_program(cluster, path, log, &[arguments, more].concat()).await
            }
            Program::Go { arguments } => Provisioner::start_go(cluster, &[arguments, more].concat()).await,
        }
    }

    pub(crate) async fn wait_ready(&self, provisioner: &mut Provisioner) -> anyhow::Result<()> {
        match &self.program {
            Program::Go { .. } => tokio::time::sleep(SETTLE).await,
            Program::Bare | Program::Ours { .. } => provisioner.wait_ready().await?,
        }
        Ok(())
    }

    /// Time limit for the events of claims: the Go library never emits events on some claims.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(if matches!(self.program, Program::Go { .. }) { 20 } else { 120 })
    }
}

/// Reverses the order in every second round, because the control plane becomes slower as it ages.
pub(crate) fn in_turns<T>(round: usize, all: &[T]) -> Vec<&T> {
    let order = all.iter();
    if round.is_multiple_of(2) { order.collect() } else { order.rev().collect() }
}

/// Amount of work to measure.
#[derive(Args)]
pub(crate) struct Turns {
    #[arg(long, default_value_t = 3000)]
    pub(crate) claims: usize,
    /// Number of rounds for each program, alternately in forward and reverse order
    #[arg(long, default_value_t = 4)]
    pub(crate) rounds: usize,
}

impl Turns {
    /// Measures each contender once per round.
    pub(crate) async fn take(
        &self,
        contenders: &[Contender],
        mut turn: impl AsyncFnMut(&Contender, &mut Figures) -> anyhow::Result<()>,
    ) -> anyhow::Result<Figures> {
        // A new control plane processes the first turn faster than all later ones.
        turn(&contenders[0], &mut Figures::default()).await?;
        let mut figures = Figures::default();
        for round in 0..self.rounds {
            for contender in in_turns(round, contenders) {
                turn(contender, &mut figures).await?;
                eprintln!("round {} of {}: {}", round + 1, self.rounds, contender.name);
            }
        }
        Ok(figures)
    }
}
