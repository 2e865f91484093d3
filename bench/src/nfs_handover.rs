//! Two replicas of an NFS provisioner, of which the active one is stopped or killed during a burst of claims: time
//! until the next volume, and directories that remain after the claims are deleted. The share is a local directory.

use std::fs;
use std::ops::ControlFlow::{Break, Continue};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use futures::future::try_join;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::cluster::{apply, provisioner_program};
use testbed::control_plane::Signal;
use testbed::figures::Figures;
use testbed::{nfs_subdir, progress};

use crate::cluster::{Cluster, GO_ACCOUNT, NAMESPACE, PROVISIONER};
use crate::contender::in_turns;
use crate::measurement::Measurement;
use crate::process::Provisioner;
use crate::replicas::{Election, KILL_LIMIT, Pair, SIGNALS, Takeover, within};
use crate::saved::Saved;
use crate::wait::until;

const CLAIMS: usize = 600;
/// Number of volumes before the signal.
const BEFORE: usize = 10;
/// The next replica's requests queue behind the requests that create the claims.
const STOP_LIMIT: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(600);
/// Time without a change after which nothing else will be deleted.
const QUIET: Duration = Duration::from_secs(5);
const CLASS: &str = "bench-nfs";
const SERVER: &str = "nfs.example.com";
const EXPORT: &str = "/exports";

#[derive(Args)]
pub(crate) struct Settings {
    /// Number of rounds for each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Also measure nfs-subdir-external-provisioner, which needs root
    #[arg(long)]
    both: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Ours,
    Peer,
}

impl Variant {
    fn title(self) -> &'static str {
        match self {
            Self::Ours => "nfs-provisioner",
            Self::Peer => "nfs-subdir-external-provisioner 59a3ca2",
        }
    }

    fn election(self) -> Election {
        match self {
            Self::Ours => Election::Lease,
            Self::Peer => Election::Endpoints,
        }
    }
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let cluster = Cluster::connect().await?;
    apply(&cluster.client(), &objects()).await?;
    let mut programs = vec![(Variant::Ours, provisioner_program("nfs-provisioner")?)];
    if settings.both {
        let peer = nfs_subdir::program(&cluster.state().guard(), &progress::silent()).await?;
        programs.push((Variant::Peer, peer));
    }
    let mut figures = Figures::default();
    for number in 0..settings.rounds {
        for (which, program) in in_turns(number, &programs) {
            for (signal, name) in SIGNALS {
                let log = format!("{}-{name}-{number}", which.title().replace(' ', "-"));
                let share = Share::new(&cluster, *which, program).await?;
                let (time, left) = round(&share, signal, &log).await?;
                eprintln!("{}, {name}: {:.2} s, {left} directories left", which.title(), time.as_secs_f64());
                figures.record(which.title(), &time_after(name), time.as_secs_f64());
                figures.record(which.title(), &left_after(name), left as f64);
            }
        }
    }
    cluster.clear().await?;
    let ours = Variant::Ours.title();
    let in_time = within(&figures, ours, &time_after("SIGTERM"), STOP_LIMIT)
        && within(&figures, ours, &time_after("SIGKILL"), KILL_LIMIT);
    let leaves_none = |name: &str| figures.summary(ours, &left_after(name)).is_some_and(|left| left.most == 0.0);
    let none_left = SIGNALS.iter().all(|(_, name)| leaves_none(name));
    Ok(Measurement::from(figures)
        .limit(in_time, format!("claims waited longer than {STOP_LIMIT:?} and {KILL_LIMIT:?}"))
        .limit(none_left, format!("{ours} has left directories without a volume")))
}

fn time_after(signal: &str) -> String {
    format!("{signal}, s")
}

fn left_after(signal: &str) -> String {
    format!("directories left after {signal}")
}

/// A class with which both programs remove the data of deleted volumes, and the permissions of the peer's election.
fn objects() -> [Value; 3] {
    let election = json!({"name": "go-provisioner-election", "namespace": NAMESPACE});
    [
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
            "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
            "parameters": {"archiveOnDelete": "false"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": election,
            "rules": [{"apiGroups": [""], "resources": ["endpoints"],
                "verbs": ["get", "list", "watch", "create", "update", "patch"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": election,
            "subjects": [{"kind": "ServiceAccount", "name": GO_ACCOUNT, "namespace": NAMESPACE}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "go-provisioner-election"}}),
    ]
}

/// Returns the time from the signal to the next replica's first volume, and the number of directories that remain after
/// all claims are deleted at this moment.
async fn round(share: &Share<'_>, signal: Signal, log: &str) -> anyhow::Result<(Duration, usize)> {
    let cluster = share.cluster;
    cluster.clear().await?;
    let start = async |replica: &str| share.start_replica(&format!("{log}-{replica}")).await;
    let pair = Pair::start(cluster, share.which.election(), start).await?;
    let saved = Saved::watch(cluster, BEFORE).await?;
    let taken_over = async {
        saved.all().await?;
        pair.take_over(cluster, signal).await
    };
    let ((), Takeover { time, .. }) = try_join(cluster.create_claims_of(CLASS, CLAIMS), taken_over).await?;
    cluster.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok((time, share.left().await?))
}

/// A local directory instead of a mounted share, and a program that provisions on it.
struct Share<'a> {
    cluster: &'a Cluster,
    which: Variant,
    program: &'a Path,
    folder: TempDir,
}

impl<'a> Share<'a> {
    async fn new(cluster: &'a Cluster, which: Variant, program: &'a Path) -> anyhow::Result<Self> {
        let share = Self { cluster, which, program, folder: tempfile::tempdir()? };
        fs::create_dir(share.mount())?;
        if which == Variant::Peer {
            fs::copy(program, share.folder.path().join("provisioner"))?;
            fs::copy(cluster.go_kubeconfig().await?, share.folder.path().join("kubeconfig"))?;
        }
        Ok(share)
    }

    fn mount(&self) -> PathBuf {
        self.folder.path().join("persistentvolumes")
    }

    async fn start_replica(&self, log: &str) -> anyhow::Result<Provisioner> {
        let command = match self.which {
            Variant::Ours => {
                let mut command = Command::new(self.program);
                command.args(["subdir", "--allow-local-directory", "--provisioner-name", PROVISIONER]);
                command.arg(format!("--share={SERVER}:{EXPORT}={}", self.mount().display()));
                command.arg("--kubeconfig").arg(self.cluster.kubeconfig().await?);
                command
            }
            // It expects the share at /persistentvolumes.
            Variant::Peer => {
                let mut command = Command::new("chroot");
                command.arg(self.folder.path()).arg("/provisioner").envs([
                    ("KUBECONFIG", "/kubeconfig"),
                    ("NFS_PATH", EXPORT),
                    ("NFS_SERVER", SERVER),
                    ("POD_NAMESPACE", NAMESPACE),
                    ("PROVISIONER_NAME", PROVISIONER),
                ]);
                command
            }
        };
        Provisioner::spawn(command, &self.cluster.state().dir.join(format!("{log}.log")))
    }

    /// Waits until all volumes are deleted, and returns the number of directories that remain.
    async fn left(&self) -> anyhow::Result<usize> {
        let (mut before, mut since) = (None, Instant::now());
        until(PATIENCE, Duration::from_millis(250), async || {
            let volumes = self.cluster.volumes().list_metadata(&ListParams::default()).await?.items.len();
            let directories = self.directories()?;
            if before != Some((volumes, directories)) {
                (before, since) = (Some((volumes, directories)), Instant::now());
            }
            Ok(if volumes == 0 && since.elapsed() > QUIET {
                Break(directories)
            } else {
                Continue(format!("{volumes} volumes and {directories} directories are left"))
            })
        })
        .await
    }

    /// Number of directories of volumes, including those whose removal is unfinished.
    fn directories(&self) -> std::io::Result<usize> {
        const OWN: &str = ".kube-provisioner";
        let removals = fs::read_dir(self.mount().join(OWN).join("deleting"));
        let mut count = 0;
        for entry in fs::read_dir(self.mount())?.chain(removals.into_iter().flatten()) {
            count += usize::from(entry?.file_name() != OWN);
        }
        Ok(count)
    }
}
