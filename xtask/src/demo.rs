//! `cargo xtask demo`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use kube_provisioner::{Capabilities, Options, rbac};
use serde_json::json;
use testbed::cluster::{self, eventually};
use testbed::control_plane::NODE;
use testbed::guard::Guard;
use testbed::nfs as nfs_server;
use testbed::process::ProcessId;
use testbed::progress::{self, SharedProgress};

use crate::build::{self, Profile};
use crate::image::HOSTPATH;
use crate::install::Install;

#[cfg(feature = "full")]
mod backend;
#[cfg(feature = "full")]
mod buckets;
pub(crate) mod context;
mod kubectl;
mod nfs;
mod node;
mod report;
mod stage;

use report::{Figures, Report};
use stage::{On, Stage};

/// A release build above this size contains unwanted dependencies.
const SIZE_LIMIT: u64 = 12_000_000;
const LIMIT: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "hostpath-demo";
const ACCOUNT: &str = "hostpath-provisioner";
const PROVISIONER: &str = "demo.example.com/hostpath";
const CLASS: &str = "hostpath-demo";
const CLAIM: &str = "data";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) kind: Option<Kind>,

    #[command(flatten)]
    pub(crate) volumes: Volumes,
}

/// The demo to run; the default is the hostPath demo.
#[derive(Subcommand)]
pub(crate) enum Kind {
    /// Bucket demo on an object store: two claims for one bucket, key rotation, and cleanup
    #[cfg(feature = "full")]
    Buckets(buckets::Arguments),
    /// Bucket demo on an object store: two claims for one bucket, key rotation, and cleanup
    #[cfg(not(feature = "full"))]
    #[command(disable_help_flag = true)]
    Buckets {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        all: Vec<std::ffi::OsString>,
    },
    /// NFS demo on a real NFS server: a claim, and two clients that see each other's file
    Nfs {
        /// Run on a real control plane; builds Kubernetes on first use
        #[arg(long)]
        real: bool,
    },
    /// Demo on a real node: the provisioner runs as a pod, and a pod writes to its volume; needs root on Linux
    Node,
}

#[derive(Args)]
pub(crate) struct Volumes {
    /// Run the release build on a real control plane, and print its figures; builds Kubernetes on first use
    #[arg(long)]
    real: bool,

    /// Like `--real`, but keep the control plane and the provisioner running until `control-plane down`
    #[arg(long)]
    keep: bool,

    /// Run on your own cluster, selected by this kubeconfig context; asks before it creates anything
    #[arg(long, value_name = "NAME", conflicts_with_all = ["real", "keep"])]
    pub(crate) context: Option<String>,

    /// Create the objects that `--context` needs without asking
    #[arg(long, requires = "context")]
    pub(crate) yes: bool,

    #[command(flatten)]
    install: Install,
}

pub(crate) async fn run(Arguments { kind, volumes }: Arguments, guard: &Guard) -> anyhow::Result<ExitCode> {
    let on = |real| if real { On::Real } else { On::Simulated };
    let prepare = |dependency, command| volumes.install.prepare(dependency, command, &progress::terminal());
    match kind {
        None if volumes.keep => show_volumes(On::Standing, guard).await,
        None => show_volumes(on(volumes.real), guard).await,
        Some(Kind::Node) => {
            prepare(&NODE, "demo node")?;
            show_volumes(On::Node, guard).await
        }
        Some(Kind::Nfs { real }) => {
            prepare(&nfs_server::GANESHA, "demo nfs")?;
            nfs::run(on(real), guard).await
        }
        #[cfg(feature = "full")]
        Some(Kind::Buckets(arguments)) => buckets::run(arguments, &volumes.install, guard).await,
        #[cfg(not(feature = "full"))]
        Some(Kind::Buckets { .. }) => crate::full_build::run().await,
    }
}

async fn show_volumes(on: On, guard: &Guard) -> anyhow::Result<ExitCode> {
    on.check()?;
    let progress = progress::terminal();
    let mut report = Report::new(progress.clone());
    if on == On::Node {
        return run_on_node(report, guard, &progress).await;
    }
    let (profile, step) = match on {
        On::Simulated => (Profile::Dev, "build hostpath-provisioner"),
        On::Real | On::Node | On::Standing => (Profile::Release, "build hostpath-provisioner (release)"),
    };
    report.begin(step);
    let program = build::program(profile, "hostpath-provisioner", &[], guard, &progress).await?;
    let size = fs::metadata(&program)?.len();
    report.done();
    if profile == Profile::Release {
        report.show(&format!("{:.1} MB, limit {} MB", size as f64 / 1e6, SIZE_LIMIT / 1_000_000));
        ensure!(size <= SIZE_LIMIT, "{} is larger than {SIZE_LIMIT} bytes", program.display());
    }

    let mut stage = Stage::start(on, guard, &mut report, &progress).await?;
    let (before, after) = show(&mut stage, &program, &mut report).await.with_context(|| stage.failure())?;
    let (state, log) = (stage.state.clone(), stage.log.clone());
    stage.end(&mut report).await?;
    // Figures of a debug build are meaningless.
    report.summary((profile == Profile::Release).then_some(&Figures { size, before, after }));
    match on {
        On::Simulated => report.what_next()?,
        On::Real | On::Node => {}
        On::Standing => report.kept(&state, log.as_deref())?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_on_node(mut report: Report, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<ExitCode> {
    report.begin("build the image of hostpath-provisioner");
    let image = HOSTPATH.default_output();
    let written = HOSTPATH.build(&image, guard, progress).await?;
    report.done();
    report.show(&format!("{} ({:.1} MB)", image.display(), written.size as f64 / 1e6));
    report.show(&written.digest);
    let stage = Stage::start(On::Node, guard, &mut report, progress).await?;
    node::show(&stage, &image, &mut report).await.context("the demo failed")?;
    stage.end(&mut report).await?;
    report.summary(None);
    Ok(ExitCode::SUCCESS)
}

/// Returns the resident memory of the idle provisioner, before and after it provisioned a volume.
async fn show(stage: &mut Stage, program: &Path, report: &mut Report) -> anyhow::Result<(u64, u64)> {
    let client = stage.client().await?;
    let root = stage.state.dir.join("demo").join("volumes");
    fs::create_dir_all(&root)?;

    report.begin("create a namespace, a service account with RBAC rules, and a storage class");
    report.waiting(cluster::apply(&client, &objects())).await?;
    let kubeconfig = stage.kubeconfig_for(NAMESPACE, ACCOUNT).await?;
    report.done();
    report.object::<StorageClass>(&client, None, CLASS).await?;

    report.begin("start the provisioner as that service account, and wait until it is idle");
    let arguments = [
        ("--root", root.display().to_string()),
        ("--provisioner-name", PROVISIONER.to_owned()),
        ("--kubeconfig", kubeconfig.display().to_string()),
        ("--namespace", NAMESPACE.to_owned()),
    ];
    let id = stage.start_provisioner(ACCOUNT, program, &arguments)?;
    settle(id).await?;
    report.done();
    let before = id.resident_memory()?;

    report.begin("create a claim");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    claims.create(&PostParams::default(), &cluster::claim(CLAIM, CLASS)).await?;
    report.done();
    report.object::<PersistentVolumeClaim>(&client, Some(NAMESPACE), CLAIM).await?;

    let volume = bound(&claims, &client, report).await?;
    let directory = look_at(&volume, &root, report)?;
    delete(&claims, &client, &volume, &directory, report).await?;

    settle(id).await?;
    Ok((before, id.resident_memory()?))
}

/// Waits until the claim is bound and its event exists, and prints the user's view.
async fn bound(
    claims: &Api<PersistentVolumeClaim>,
    client: &Client,
    report: &mut Report,
) -> anyhow::Result<PersistentVolume> {
    report.begin("wait until it is bound");
    let bound = eventually(LIMIT, async || Ok(claims.get_opt(CLAIM).await?.filter(cluster::is_bound)));
    let claim = report.waiting(bound).await?.context("the claim was not bound")?;
    report.done();
    report.object::<PersistentVolumeClaim>(client, Some(NAMESPACE), CLAIM).await?;
    let told = eventually(LIMIT, async || {
        let events = kubectl::events::<PersistentVolumeClaim>(client, NAMESPACE, CLAIM).await?;
        Ok(events.have("ProvisioningSucceeded").then_some(events))
    });
    let events = report.waiting(told).await?.context("no event reports the new volume")?;
    report.events::<PersistentVolumeClaim>(NAMESPACE, CLAIM, &events);
    let name = claim.spec.and_then(|spec| spec.volume_name).context("the bound claim names no volume")?;
    report.object::<PersistentVolume>(client, None, &name).await?;
    Ok(Api::<PersistentVolume>::all(client.clone()).get(&name).await?)
}

/// Accesses the volume as a pod would: through its directory.
fn look_at(volume: &PersistentVolume, root: &Path, report: &mut Report) -> anyhow::Result<PathBuf> {
    report.begin("write a file into the volume");
    let directory = directory(volume, root)?;
    let file = directory.join("hello.txt");
    fs::write(&file, "hello\n").with_context(|| format!("cannot write {}", file.display()))?;
    report.done();
    report.directory(&directory)?;
    Ok(directory)
}

fn directory(volume: &PersistentVolume, root: &Path) -> anyhow::Result<PathBuf> {
    let spec = volume.spec.as_ref();
    let path = spec.and_then(|spec| Some(spec.host_path.as_ref()?.path.clone()));
    let directory = PathBuf::from(path.context("the volume has no directory")?);
    ensure!(directory.starts_with(root), "{} is not below {}", directory.display(), root.display());
    Ok(directory)
}

async fn delete(
    claims: &Api<PersistentVolumeClaim>,
    client: &Client,
    volume: &PersistentVolume,
    directory: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.begin("delete the claim, wait until volume and directory are deleted");
    claims.delete(CLAIM, &DeleteParams::default()).await?;
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let gone = eventually(LIMIT, async || {
        let gone = volumes.get_opt(name).await?.is_none() && !directory.exists();
        Ok(gone.then_some(()))
    });
    let gone = report.waiting(gone).await?;
    gone.with_context(|| format!("volume {name} or {} still exists", directory.display()))?;
    report.done();
    report.show(&format!("persistentvolume/{name} is deleted"));
    report.show(&format!("{} is deleted", directory.display()));
    Ok(())
}

/// The memory is comparable only after startup is complete.
async fn settle(id: ProcessId) -> anyhow::Result<()> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(id.is_running(), "the provisioner has ended");
    Ok(())
}

/// A namespace, and a service account in it with these permissions.
fn account(namespace: &str, name: &str, rules: &[rbac::AccessRule]) -> Vec<serde_json::Value> {
    let mut objects = vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } })];
    objects.extend(rbac::manifests(&rbac::Account { name, namespace }, rules));
    objects
}

fn objects() -> Vec<serde_json::Value> {
    let rules = rbac::rules(&Options::new(PROVISIONER), &Capabilities::default().expansion(), &[]);
    let mut objects = account(NAMESPACE, ACCOUNT, &rules);
    objects.push(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": CLASS },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }));
    objects
}
