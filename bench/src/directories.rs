//! Pending claims with a directory each: the hostPath provisioner compared with one written with the Go library that
//! only creates directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use tempfile::TempDir;
use testbed::cluster::provisioner_program;

use crate::cluster::Cluster;
use crate::process::Provisioner;
use crate::waiting::{A_WHILE, GO_THREADS, PATIENCE, Round, Turns, median_of, provisioner, waiting_claims};

/// Options of the measurement.
#[derive(Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    turns: Turns,
    /// Existing directory in which the volumes are created [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    place: Option<PathBuf>,
    /// Also measure another build of `hostpath-provisioner`
    #[arg(long, value_name = "PROGRAM")]
    beside: Option<PathBuf>,
}

enum Contender {
    /// No directory.
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
    let count = settings.turns.claims;
    let place = settings.place.unwrap_or_else(std::env::temp_dir);
    // All roots are removed at the end: for a minute, ext4 checks each freed inode before it allocates another one.
    let mut roots = Vec::new();
    let in_new_root = async |contender: &Contender| {
        let root = new_root(&place)?;
        let result = turn(&cluster, count, contender, root.path()).await;
        roots.push(root);
        result
    };
    let results = settings.turns.take(&cluster, &contenders, Contender::name, in_new_root).await?;
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
