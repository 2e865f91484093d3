//! A volume with very many files is deleted while other claims are provisioned: the time that these are pending, and
//! the cost compared with `rm -rf` of the same tree.

use std::fs::{self, File};
use std::ops::ControlFlow::{Break, Continue};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kube::api::{DeleteParams, PostParams};
use testbed::cluster::{is_bound, provisioner_program};
use testbed::figures::Figures;

use crate::burst::mb;
use crate::cluster::{CLASS, Cluster};
use crate::measurement::Measurement;
use crate::process::Provisioner;
use crate::wait::until;

/// Pause between two timed claims.
const PAUSE: Duration = Duration::from_millis(250);
/// Number of timed claims before the removal begins.
const BEFORE: usize = 40;

pub(crate) async fn run(files: usize) -> anyhow::Result<Measurement> {
    let cluster = Cluster::connect().await?;
    cluster.clear().await?;
    let place = tempfile::tempdir()?;
    let root = place.path().canonicalize()?.join("volumes");
    fs::create_dir(&root)?;
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700))?;
    let arguments = ["--root".to_owned(), root.display().to_string()];
    let mut provisioner =
        Provisioner::start_program(&cluster, &provisioner_program("hostpath-provisioner")?, "hostpath", &arguments)
            .await?;
    provisioner.wait_ready().await?;
    let large = bind(&cluster, "large").await?.0;
    let large = root.join(large);
    fill(&large, files)?;
    let beside = place.path().join("beside");
    fs::create_dir(&beside)?;
    fill(&beside, files)?;
    let idle = provisioner.memory("VmRSS")?;
    let mut before = Vec::new();
    for number in 0..BEFORE {
        before.push(timed(&cluster, &format!("before-{number}")).await?);
    }
    let processor_time = provisioner.processor_time()?;
    let start = Instant::now();
    cluster.claims().delete("large", &DeleteParams::default()).await?;
    let mut during = Vec::new();
    while !is_gone(&root, &large) {
        during.push(timed(&cluster, &format!("during-{}", during.len())).await?);
    }
    let removed = start.elapsed();
    let processor_time = provisioner.processor_time()? - processor_time;
    let start = Instant::now();
    ensure!(Command::new("rm").arg("-rf").arg(&beside).status()?.success(), "rm failed");
    let by_rm = start.elapsed();
    let mut figures = Figures::default();
    figures.record("hostPath", "files removed after, s", removed.as_secs_f64());
    figures.record("hostPath", "processor time, s", processor_time.as_secs_f64());
    figures.record("hostPath", "idle memory, MB", mb(idle));
    figures.record("hostPath", "peak memory, MB", mb(provisioner.memory("VmHWM")?));
    figures.record("`rm -rf` of the same tree", "files removed after, s", by_rm.as_secs_f64());
    for (name, times) in [("hostPath, before", before), ("hostPath", during)] {
        times.iter().for_each(|time| figures.record(name, "another claim bound after, s", time.as_secs_f64()));
    }
    cluster.clear().await?;
    Ok(figures.into())
}

/// Creates files, a thousand in each directory.
fn fill(top: &Path, files: usize) -> anyhow::Result<()> {
    for directory in 0..files.div_ceil(1000) {
        let directory_path = top.join(format!("d{directory}"));
        fs::create_dir(&directory_path)?;
        for file in 0..(files - directory * 1000).min(1000) {
            File::create(directory_path.join(format!("f{file}")))?;
        }
    }
    Ok(())
}

fn is_gone(root: &Path, volume: &Path) -> bool {
    let deleting: PathBuf = root.join(".kube-provisioner/deleting");
    !volume.exists() && fs::read_dir(deleting).is_ok_and(|mut entries| entries.next().is_none())
}

/// Returns the name of its volume, and the time until the claim was bound.
async fn bind(cluster: &Cluster, name: &str) -> anyhow::Result<(String, Duration)> {
    let start = Instant::now();
    let claims = cluster.claims();
    claims.create(&PostParams::default(), &testbed::cluster::claim(name, CLASS)).await?;
    let bound = until(Duration::from_secs(60), Duration::from_millis(2), async || {
        let claim = claims.get(name).await?;
        Ok(if is_bound(&claim) { Break(claim) } else { Continue(format!("{name} is not bound")) })
    })
    .await?;
    let volume = bound.spec.and_then(|spec| spec.volume_name).context("a bound claim without a volume")?;
    Ok((volume, start.elapsed()))
}

async fn timed(cluster: &Cluster, name: &str) -> anyhow::Result<Duration> {
    let (_, took) = bind(cluster, name).await?;
    tokio::time::sleep(PAUSE).await;
    Ok(took)
}
