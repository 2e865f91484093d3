//! The provisioner as a pod on a real node: killed, with two replicas, and with many claims.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use kube_provisioner::protocol::SELECTED_NODE;
use serde_json::json;
use testbed::cluster::{Installed, TestSpace, Variant, eventually};
use testbed::control_plane::Signal;

const LONG: Duration = Duration::from_secs(600);

/// Claims in the state in which the scheduler leaves them after it has selected a node. There are no pods.
async fn scheduled_claims(space: &TestSpace, installed: &Installed<'_>, count: usize) -> anyhow::Result<()> {
    let linux = ListParams::default().labels("kubernetes.io/os=linux");
    let node = space.cluster_api::<Node>().list(&linux).await?.items.remove(0).name_any();
    let claims = (0..count).map(|number| {
        let mut claim = testbed::cluster::claim(&format!("claim-{number}"), &installed.class("hostpath"));
        claim.annotations_mut().insert(SELECTED_NODE.to_owned(), node.clone());
        space.create_claim(claim)
    });
    stream::iter(claims).buffer_unordered(32).map(|created| created.map(drop)).try_collect().await
}

async fn wait_empty(space: &TestSpace, installed: &Installed<'_>) -> anyhow::Result<()> {
    let empty = async || Ok((space.volumes().await?.is_empty() && installed.directories().is_empty()).then_some(()));
    let empty = eventually(LONG, empty).await?;
    anyhow::ensure!(empty.is_some(), "left after {} s: {:?}", LONG.as_secs(), installed.directories());
    Ok(())
}

#[tokio::test]
async fn node_kills_leave_no_leftovers_and_no_duplicates() -> anyhow::Result<()> {
    const COUNT: usize = 60;
    let space = TestSpace::with_own_node("k4").await?;
    let installed = space.install(Variant::PerNode).await?;
    installed.processes(1).await?;
    let kills = async {
        // Each kill happens a little later during its work.
        for pause in [20, 60, 120, 250] {
            installed.processes(1).await?;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            installed.kill().await?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(scheduled_claims(&space, &installed, COUNT), kills)?;
    space.wait_all_bound(COUNT, LONG).await?;
    let volumes: BTreeSet<_> = space.volumes().await?.iter().map(ResourceExt::name_any).collect();
    assert_eq!(volumes.len(), COUNT);
    assert_eq!(installed.directories().into_iter().collect::<BTreeSet<_>>(), volumes);
    space.delete_claims().await?;
    for pause in [20, 100] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        installed.kill().await?;
        installed.processes(1).await?;
    }
    wait_empty(&space, &installed).await?;
    space.done().await
}

#[tokio::test]
async fn node_a_thousand_claims_at_once_are_bound() -> anyhow::Result<()> {
    const COUNT: usize = 1000;
    let space = TestSpace::with_own_node("k5").await?;
    let installed = space.install(Variant::PerNode).await?;
    installed.processes(1).await?;
    let audit = space.cluster().audit_log()?;
    let start = Instant::now();
    scheduled_claims(&space, &installed, COUNT).await?;
    let created = start.elapsed();
    space.wait_all_bound(COUNT, LONG).await?;
    let bound = start.elapsed();
    assert_eq!(installed.directories().len(), COUNT);
    let start = Instant::now();
    space.delete_claims().await?;
    wait_empty(&space, &installed).await?;
    let deleted = start.elapsed();
    let user = format!("system:serviceaccount:{}:hostpath-provisioner", space.namespace());
    let calls = audit.entries_of(&user)?.len();
    // Run with `-- --nocapture` to see it.
    testbed::progress::terminal().line(&format!(
        "{COUNT} claims: created in {created:.1?}, bound in {bound:.1?}, deleted in {deleted:.1?}, {calls} requests"
    ));
    // Provisioning and deleting a volume take two requests each. A journal write covers many volumes, but fewer if the
    // machine is busy and the claims take minutes.
    assert!(calls < 7 * COUNT, "{calls} requests for {COUNT} claims");
    space.done().await
}

#[tokio::test]
async fn node_second_replica_takes_over() -> anyhow::Result<()> {
    let space = TestSpace::new("k13").await?;
    let installed = space.install(Variant::Single).await?;
    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    space.api::<Deployment>().patch("hostpath-provisioner", &PatchParams::default(), &two).await?;
    let replicas = installed.processes(2).await?;
    for name in ["first", "second"] {
        space.create_claim(testbed::cluster::claim(name, &installed.class("hostpath"))).await?;
    }
    space.wait_all_bound(2, LONG).await?;
    assert_eq!(installed.directories().len(), 2);
    // Each replica is killed once, so the active replica is killed in any case.
    for (number, replica) in replicas.into_iter().enumerate() {
        replica.signal(Signal::KILL);
        space.create_claim(testbed::cluster::claim(&format!("later-{number}"), &installed.class("hostpath"))).await?;
        space.wait_all_bound(3 + number, LONG).await?;
    }
    assert_eq!(installed.directories().len(), 4);
    space.delete_claims().await?;
    wait_empty(&space, &installed).await?;
    space.done().await
}
