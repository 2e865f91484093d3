//! SIGKILL at random moments.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::cluster::{TestSpace, eventually};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};

use crate::fixture::*;

/// So often without the variable `E2E_KILLS`.
const KILLS: u64 = 5;

/// In the end there is a directory and an export for each volume, and nothing else; on the way no export without a directory.
#[tokio::test]
async fn ganesha_k4_killed_at_random_moments() -> anyhow::Result<()> {
    let kills = std::env::var("E2E_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let (space, server) = (TestSpace::new("ganesha-k4").await?, Server::new()?);
    let access = account(&space).await?;
    let class = space.class_with("class", [("enforceSize", "false")]).await?;
    let claims = space.api::<PersistentVolumeClaim>();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..kills {
        let mut program = server.started(&space, &access).await?;
        let made = (0..10).map(|at| space.create_claim(space.claim(&format!("claim-{round}-{at}"), &class)));
        futures::future::try_join_all(made).await?;
        if round > 0 {
            for at in 0..10 {
                claims.delete(&format!("claim-{}-{at}", round - 1), &DeleteParams::default()).await?;
            }
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(Duration::from_millis((random >> 33) % 1500)).await;
        program.kill().await?;
        let directories: BTreeSet<_> = names(server.root.path()).into_iter().collect();
        let without: Vec<_> = server.exports().into_iter().filter(|(_, path)| !directories.contains(path)).collect();
        anyhow::ensure!(without.is_empty(), "exports without a directory after kill {round}: {without:?}");
    }
    let _program = server.started(&space, &access).await?;
    space.wait_all_bound(10, 4 * SOON).await?;
    let same = eventually(2 * SOON, async || {
        let volumes: BTreeSet<_> = space.volumes().await?.iter().map(ResourceExt::name_any).collect();
        let directories: BTreeSet<_> = names(server.root.path()).into_iter().collect();
        let exports: BTreeSet<_> = server.exports().into_iter().map(|(_, path)| path).collect();
        Ok((volumes.len() == 10 && volumes == directories && volumes == exports).then_some(()))
    });
    anyhow::ensure!(same.await?.is_some(), "left: {:?}, {:?}", names(server.root.path()), server.exports());
    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let empty = eventually(2 * SOON, async || {
        Ok((names(server.root.path()).is_empty() && server.exports().is_empty()).then_some(()))
    });
    anyhow::ensure!(empty.await?.is_some(), "left: {:?}, {:?}", names(server.root.path()), server.exports());
    space.done().await
}
