//! Claims that wait, with a directory for each: the hostPath provisioner beside one written with the Go library that makes
//! directories and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use tempfile::TempDir;
use testbed::cluster::provisioner_program;

use crate::cluster::Cluster;
use crate::process::Provisioner;
use crate::waiting::{A_WHILE, GO_THREADS, PATIENCE, Round, median_of, print_medians, provisioner, waiting_claims};

/// What is measured, and where.
#[derive(Args)]
pub(crate) struct Settings {
    #[arg(long, default_value_t = 3000)]
    claims: usize,
    /// Rounds of each, in turns from first to last and from last to first; the table has all of them and the medians
    #[arg(long, default_value_t = 4)]
    rounds: usize,
    /// Existing directory in which the volumes are made [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    place: Option<PathBuf>,
    /// Measure another build of `hostpath-provisioner` too
    #[arg(long, value_name = "PROGRAM")]
    beside: Option<PathBuf>,
}

enum Contender {
    /// No directory at all.
    Noop,
    HostPath(PathBuf),
    OtherBuild(PathBuf),
    Go,
}

impl Contender {
    fn name(&self) -> String {
        match self {
            Self::Noop => "no directories".to_owned(),
            Self::HostPath(_) => "hostPath".to_owned(),
            Self::OtherBuild(_) => "hostPath, the other build".to_owned(),
            Self::Go => format!("the Go library, {GO_THREADS} threads"),
        }
    }
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let mut contenders = vec![Contender::HostPath(provisioner_program("hostpath-provisioner")?), Contender::Go];
    contenders.extend(settings.beside.map(Contender::OtherBuild));
    contenders.push(Contender::Noop);
    let count = settings.claims;
    let place = settings.place.unwrap_or_else(std::env::temp_dir);
    // All go at the end: for a minute ext4 looks at each inode that became free before it takes another one.
    let mut roots = Vec::new();
    let mut results: Vec<Vec<Round>> = contenders.iter().map(|_| Vec::new()).collect();
    Round::print_header();
    // A new control plane serves the first turn faster than all that follow.
    roots.push(new_root(&place)?);
    turn(&cluster, count, &contenders[0], roots[0].path()).await?;
    for round in 0..settings.rounds {
        let mut turns: Vec<_> = contenders.iter().zip(&mut results).collect();
        // The control plane becomes slower as it ages: whoever is first in one round is last in the next.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (contender, results) in turns {
            let root = new_root(&place)?;
            let result = turn(&cluster, count, contender, root.path()).await?;
            roots.push(root);
            result.print(&contender.name(), count);
            results.push(result);
        }
    }
    cluster.clear().await?;
    for (contender, results) in contenders.iter().zip(&results) {
        print_medians(&contender.name(), results);
    }
    let [ours, go] = [0, 1].map(|at: usize| median_of(&results[at], Round::rate));
    ensure!(ours >= go, "hostPath made {ours:.0} volumes a second, the Go library {go:.0}");
    Ok(())
}

async fn turn(cluster: &Cluster, count: usize, contender: &Contender, root: &Path) -> anyhow::Result<Round> {
    let claims = waiting_claims(cluster, count).await?;
    match contender {
        Contender::Noop => provisioner(cluster, &claims, Provisioner::start(cluster, &[]), PATIENCE).await,
        Contender::HostPath(program) | Contender::OtherBuild(program) => {
            let arguments = ["--root".to_owned(), root.display().to_string()];
            let start = Provisioner::start_program(cluster, program, "hostpath", &arguments);
            provisioner(cluster, &claims, start, PATIENCE).await
        }
        Contender::Go => {
            provisioner(cluster, &claims, Provisioner::start_go(cluster, GO_THREADS, Some(root)), A_WHILE).await
        }
    }
}

fn new_root(place: &Path) -> anyhow::Result<TempDir> {
    let root = tempfile::tempdir_in(place)?;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700))?;
    Ok(root)
}
