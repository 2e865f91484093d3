//! `cargo xtask demo`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use e2e::cluster::{self, Program, eventually};
use e2e::control_plane::{self, Binaries, ControlPlane, Settings, Simulated, State, Up};
use e2e::guard::Guard;
use e2e::process::ProcessId;
use e2e::progress;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use kube_provisioner::{Capabilities, Options, rbac};
use serde_json::json;

mod report;

use report::{Report, Summary};

/// Release builds above this size have taken in something that they should not have.
const SIZE_LIMIT: u64 = 12_000_000;
const LIMIT: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "hostpath-demo";
const ACCOUNT: &str = "hostpath-provisioner";
const PROVISIONER: &str = "demo.example.com/hostpath";
const CLASS: &str = "hostpath-demo";

pub(crate) async fn run(keep: bool, simulated: bool, guard: &Guard) -> anyhow::Result<ExitCode> {
    let mut kind = match (keep, simulated) {
        (true, _) => Kind::Standing,
        (_, true) => Kind::Simulated,
        _ => Kind::Real,
    };
    if kind == Kind::Real
        && let Some(obstacle) = Binaries::obstacle()
    {
        println!("on a simulated API server, as there is no real control plane: {obstacle:#}");
        kind = Kind::Simulated;
    }
    if keep && State::standing()?.is_some() {
        bail!("a control plane is already up; `cargo xtask control-plane down` first");
    }
    let mut report = Report::new();
    report.begin("build hostpath-provisioner (release)");
    let program = crate::build::release(guard, "hostpath-provisioner", &[]).await?;
    let size = fs::metadata(&program)?.len();
    report.done();
    report.show(&format!("{:.1} MB, limit {} MB", size as f64 / 1e6, SIZE_LIMIT / 1_000_000));
    ensure!(size <= SIZE_LIMIT, "{} is larger than {SIZE_LIMIT} bytes", program.display());

    let mut stage = Stage::start(kind, guard, &mut report).await?;
    let memory = show(&mut stage, &program, &mut report).await.with_context(|| stage.failure())?;
    let (state, log) = (stage.state.clone(), stage.log.clone());
    stage.end(&mut report).await?;
    report.summary(&Summary { size, memory });
    if keep {
        report.kept(&state, log.as_deref(), NAMESPACE, CLASS)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Resident memory of the provisioner when it has nothing to do, in bytes.
struct Memory {
    before: u64,
    after: u64,
}

async fn show(stage: &mut Stage, program: &Path, report: &mut Report) -> anyhow::Result<Memory> {
    let client = control_plane::client_from(&stage.state.kubeconfig).await?;
    let root = stage.state.dir.join("demo").join("volumes");
    fs::create_dir_all(&root)?;

    report.begin("create namespace, service account and its rights");
    cluster::apply(&client, &objects()).await?;
    let kubeconfig = control_plane::kubeconfig_for_service_account(&client, &stage.state, NAMESPACE, ACCOUNT).await?;
    report.done();

    report.begin("start the provisioner as that service account, let it settle");
    let id = stage.start_provisioner(program, &root, &kubeconfig)?;
    settle(id).await?;
    report.done();
    let before = id.resident_memory()?;

    report.begin("create a claim");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let claim = claims.create(&PostParams::default(), &cluster::claim("data", CLASS)).await?;
    report.done();
    report.claim(&claim);

    let (claim, volume) = bound(&claims, &client, report).await?;
    let directory = look_at(&volume, &root, report)?;
    delete(&claims, &client, &claim, &directory, report).await?;

    settle(id).await?;
    let after = id.resident_memory()?;
    Ok(Memory { before, after })
}

async fn bound(
    claims: &Api<PersistentVolumeClaim>,
    client: &Client,
    report: &mut Report,
) -> anyhow::Result<(PersistentVolumeClaim, PersistentVolume)> {
    report.begin("wait until it is bound");
    let bound = eventually(LIMIT, async || Ok(claims.get_opt("data").await?.filter(cluster::is_bound))).await?;
    let claim = bound.context("the claim was not bound")?;
    report.done();
    report.claim(&claim);
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let name = name.context("the bound claim names no volume")?;
    let volume = Api::<PersistentVolume>::all(client.clone()).get(name).await?;
    report.volume(&volume);
    Ok((claim, volume))
}

/// Uses the volume as a pod would: through its directory.
fn look_at(volume: &PersistentVolume, root: &Path, report: &mut Report) -> anyhow::Result<PathBuf> {
    report.begin("write a file into the volume");
    let spec = volume.spec.as_ref();
    let path = spec.and_then(|spec| Some(spec.host_path.as_ref()?.path.clone()));
    let directory = PathBuf::from(path.context("the volume has no directory")?);
    ensure!(directory.starts_with(root), "{} is not below {}", directory.display(), root.display());
    let file = directory.join("hello.txt");
    fs::write(&file, "hello\n").with_context(|| format!("cannot write {}", file.display()))?;
    report.done();
    report.directory(&directory)?;
    Ok(directory)
}

async fn delete(
    claims: &Api<PersistentVolumeClaim>,
    client: &Client,
    claim: &PersistentVolumeClaim,
    directory: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.begin("delete the claim, wait until volume and directory are gone");
    claims.delete("data", &DeleteParams::default()).await?;
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let gone = eventually(LIMIT, async || {
        let gone = volumes.get_opt(name).await?.is_none() && !directory.exists();
        Ok(gone.then_some(()))
    })
    .await?;
    gone.with_context(|| format!("volume {name} or {} is still there", directory.display()))?;
    report.done();
    report.show(&format!("persistentvolume/{name} is gone"));
    report.show(&format!("{} is gone", directory.display()));
    Ok(())
}

/// Memory means something only once the start's work is over.
async fn settle(id: ProcessId) -> anyhow::Result<()> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(id.is_running(), "the provisioner has ended");
    Ok(())
}

fn objects() -> Vec<serde_json::Value> {
    let account = rbac::Account { name: ACCOUNT, namespace: NAMESPACE };
    let mut objects = vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })];
    let rules = rbac::rules(&Options::new(PROVISIONER), &Capabilities::default(), &[]);
    objects.extend(rbac::manifests(&account, &rules));
    objects.push(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": CLASS },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }));
    objects
}

/// What the demo is shown on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A control plane that ends with the demo.
    Real,
    /// One that stays.
    Standing,
    Simulated,
}

/// What ends with the demo.
enum Ending {
    Real(ControlPlane),
    Simulated(Box<Simulated>),
}

/// The control plane and the provisioner, and whether they stay. Dropped before its end, everything is stopped.
struct Stage {
    state: State,
    /// None if it stays.
    control_plane: Option<Ending>,
    provisioner: Option<Program>,
    log: Option<PathBuf>,
    has_ended: bool,
}

impl Stage {
    async fn start(kind: Kind, guard: &Guard, report: &mut Report) -> anyhow::Result<Self> {
        report.begin(match kind {
            Kind::Real | Kind::Standing => "start the control plane",
            Kind::Simulated => "start a simulated API server with its controllers",
        });
        let settings = Settings::default();
        let progress = progress::terminal();
        let (state, control_plane) = match kind {
            Kind::Standing => match control_plane::up(&settings, guard, &progress).await? {
                Up::Started(state) => (state, None),
                Up::Already(_) => bail!("a control plane came up meanwhile; `cargo xtask control-plane down` first"),
            },
            Kind::Real => {
                let control_plane = ControlPlane::start(&settings, guard, &progress).await?;
                (control_plane.state(), Some(Ending::Real(control_plane)))
            }
            Kind::Simulated => {
                let simulated = Simulated::start(guard).await?;
                (simulated.state().clone(), Some(Ending::Simulated(Box::new(simulated))))
            }
        };
        report.done();
        Ok(Self { state, control_plane, provisioner: None, log: None, has_ended: false })
    }

    fn start_provisioner(&mut self, program: &Path, root: &Path, kubeconfig: &Path) -> anyhow::Result<ProcessId> {
        let arguments: Vec<_> = [
            ("--root", root.display().to_string()),
            ("--provisioner-name", PROVISIONER.to_owned()),
            ("--kubeconfig", kubeconfig.display().to_string()),
            ("--namespace", NAMESPACE.to_owned()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect();
        if self.control_plane.is_none() {
            let kept = control_plane::keep_program(&self.state, ACCOUNT, program, arguments)?;
            self.log = Some(kept.log);
            return kept.id.context("the provisioner has no process number");
        }
        let started = Program::spawn(&self.state, ACCOUNT, program, arguments)?;
        self.log = Some(started.log().to_owned());
        let id = started.id();
        self.provisioner = Some(started);
        Ok(id)
    }

    fn failure(&self) -> String {
        let end = self.log.as_deref().map(|log| control_plane::last_lines(log, 15));
        match end {
            Some(end) => format!("the demo failed; the provisioner's log ends:\n{end}\n"),
            None => "the demo failed".to_owned(),
        }
    }

    async fn end(mut self, report: &mut Report) -> anyhow::Result<()> {
        self.has_ended = true;
        let Some(control_plane) = self.control_plane.take() else {
            return Ok(());
        };
        if let Some(mut provisioner) = self.provisioner.take() {
            report.begin("stop the provisioner (SIGTERM)");
            let status = provisioner.terminate(LIMIT).await?;
            ensure!(status.success(), "the provisioner ended with {status}");
            report.done();
        }
        report.begin("stop the control plane");
        match control_plane {
            Ending::Real(control_plane) => control_plane.stop().await?,
            Ending::Simulated(simulated) => simulated.stop()?,
        }
        report.done();
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What does not stay ends with its handle.
        if !self.has_ended && self.control_plane.is_none() {
            control_plane::kill_standing();
        }
    }
}
