//! A class whose backend hangs does not block other classes, on a real control plane with the default limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::DeleteParams;
use testbed::cluster::{TestSpace, eventually};
use testbed::toy::{Answer, Toy};

const CLAIMS: usize = 1000;
const LIMIT: Duration = Duration::from_secs(3);

// Rules: G52.
#[tokio::test]
async fn class_with_a_hanging_backend_does_not_block_other_classes() -> anyhow::Result<()> {
    let space = TestSpace::with_own_cluster("g52").await?;
    let freed = Arc::new(AtomicBool::new(false));
    let gate = freed.clone();
    let toy =
        Toy::new().on_provision(
            move |claim, _| if claim.starts_with("hangs") { Answer::Once(gate.clone()) } else { Answer::Done },
        );
    let _controller = toy.run(&space);
    let broken = space.create_class(space.class("broken")).await?;
    let healthy = space.create_class(space.class("healthy")).await?;
    let (_, old) = space.bind(space.claim("old", &healthy)).await?;
    stream::iter(0..CLAIMS)
        .map(|at| space.create_claim(space.claim(&format!("hangs-{at}"), &broken)))
        .buffer_unordered(32)
        .try_collect::<Vec<_>>()
        .await?;
    let many = eventually(Duration::from_secs(60), async || Ok((toy.calls().len() > 50).then_some(()))).await?;
    assert!(many.is_some(), "{} calls", toy.calls().len());

    let start = Instant::now();
    space.bind(space.claim("healthy", &healthy)).await?;
    assert!(start.elapsed() < LIMIT, "bound after {:?}", start.elapsed());
    // Deletions also continue.
    space.api::<PersistentVolumeClaim>().delete("old", &DeleteParams::default()).await?;
    let name = old.metadata.name.unwrap_or_default();
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &name).await?;
    assert_eq!(toy.deletes(&name), 1);

    freed.store(true, Ordering::Relaxed);
    space.delete_claims().await?;
    space.done().await
}
