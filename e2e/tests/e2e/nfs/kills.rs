//! The provisioner is killed with SIGKILL at random moments.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use testbed::cluster::{Program, TestSpace, eventually};

use super::fixture::*;

#[tokio::test]
async fn ganesha_leaves_nothing_when_killed_at_random_moments() -> anyhow::Result<()> {
    let (space, server) = (TestSpace::new("ganesha-k4").await?, Server::new()?);
    let access = account(&space).await?;
    let exported = || Some(server.exports().into_iter().map(|(_, path)| path).collect());
    survives(&space, server.root.path(), exported, async || server.started(&space, &access).await).await?;
    space.done().await
}

#[tokio::test]
async fn nfs_leaves_nothing_when_killed_at_random_moments() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("nfs-k4").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let start = async || {
        let program = subdir(&space, &access, &[share(root.path())], &[])?;
        let before = program.output().matches("ready shard").count();
        let ready =
            eventually(SOON, async || Ok((program.output().matches("ready shard").count() > before).then_some(())));
        anyhow::ensure!(ready.await?.is_some(), "it is not ready: {}", program.output());
        Ok(program)
    };
    survives(&space, root.path(), || None, start).await?;
    space.done().await
}

/// Checks after each kill that every export has a directory, and every directory a volume or a journal entry. At the
/// end, there are exactly one directory and one export for each volume.
#[expect(clippy::print_stdout, reason = "figures")]
async fn survives(
    space: &TestSpace,
    root: &Path,
    exported: impl Fn() -> Option<BTreeSet<String>>,
    start: impl AsyncFn() -> anyhow::Result<Program>,
) -> anyhow::Result<()> {
    let kills = testbed::count("E2E_KILLS", 5_u64)?;
    let class = space.class_with("class", [("enforceSize", "false")]).await?;
    let claims = space.api::<PersistentVolumeClaim>();
    let directories = || names(root).into_iter().collect::<BTreeSet<_>>();
    let volumes =
        async || anyhow::Ok(space.volumes().await?.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>());
    let (begin, mut random, mut unfinished) = (Instant::now(), 0x2545_f491_4f6c_dd1d_u64, 0);
    for round in 0..kills {
        let mut program = start().await?;
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let work = async {
            for at in 0..10 {
                space.create_claim(space.claim(&format!("claim-{round}-{at}"), &class)).await?;
                if round > 0 {
                    claims.delete(&format!("claim-{}-{at}", round - 1), &DeleteParams::default()).await?;
                }
            }
            anyhow::Ok(())
        };
        let death = async {
            tokio::time::sleep(Duration::from_millis((random >> 33) % 400)).await;
            program.kill().await
        };
        futures::future::try_join(work, death).await?;
        let (there, exported) = (directories(), exported().unwrap_or_default());
        let without: Vec<_> = exported.difference(&there).collect();
        anyhow::ensure!(without.is_empty(), "exports without a directory after kill {round}: {without:?}");
        let journal = serde_json::to_string(&space.api::<ConfigMap>().list(&ListParams::default()).await?.items)?;
        let volumes = volumes().await?;
        let nobodys: Vec<_> = there.difference(&volumes).filter(|name| !journal.contains(name.as_str())).collect();
        anyhow::ensure!(nobodys.is_empty(), "directories without a volume or entry after kill {round}: {nobodys:?}");
        unfinished += there.difference(&volumes).count();
    }
    let _program = start().await?;
    space.wait_all_bound(10, 4 * SOON).await?;
    let same = eventually(2 * SOON, async || {
        let (volumes, there) = (volumes().await?, directories());
        let same = volumes.len() == 10 && volumes == there && exported().is_none_or(|exported| exported == there);
        Ok(same.then_some(()))
    });
    anyhow::ensure!(same.await?.is_some(), "left: {:?}, exported: {:?}", directories(), exported());
    space.delete_claims().await?;
    let empty = eventually(2 * SOON, async || {
        Ok((directories().is_empty() && exported().unwrap_or_default().is_empty()).then_some(()))
    });
    anyhow::ensure!(empty.await?.is_some(), "left: {:?}, exported: {:?}", directories(), exported());
    println!(
        "{kills} kills in {:.0?}; after one, {} directories on average were begun and had no volume yet",
        begin.elapsed(),
        unfinished as u64 / kills.max(1)
    );
    Ok(())
}
