//! Exports of a server of the provisioner's own.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use e2e::cluster::{TestSpace, eventually};
use e2e::control_plane::Signal;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};

use crate::fixture::*;

#[tokio::test]
async fn ganesha_g1_g2_g3_g4_g6_two_clients_see_each_others_file() -> anyhow::Result<()> {
    let (space, server) = (TestSpace::new("ganesha-g1").await?, Server::new()?);
    let access = account(&space).await?;
    let _program = server.started(&space, &access).await?;
    let mut class = space.class("class");
    class.parameters = Some(BTreeMap::from([("mountOptions".to_owned(), "vers=4.1,hard".to_owned())]));
    let class = space.create_class(class).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    let (claim, volume) = space.wait_bound("claim").await?;
    let spec = volume.spec.clone().unwrap();
    assert_eq!(spec.mount_options, Some(vec!["vers=4.1".to_owned(), "hard".to_owned()]));
    assert_eq!(spec.persistent_volume_reclaim_policy, class.reclaim_policy);
    assert_eq!(spec.access_modes, claim.spec.as_ref().and_then(|spec| spec.access_modes.clone()));
    assert_eq!(spec.claim_ref.and_then(|reference| reference.uid), claim.uid());
    let path = source(&volume).path;
    assert_eq!(source(&volume).server, "127.0.0.1");
    let file = server.runtime.path().join("hello");
    std::fs::write(&file, "hello")?;
    server.client.put(&file, &format!("{path}/hello")).await?;
    assert_eq!(server.client.get(&format!("{path}/hello")).await?, "hello");
    assert!(server.client.list(&path).await?.contains("hello"));
    // What the old provisioner's own tests refuse beside parameters and limits.
    let mut selects = space.claim("selects", &class);
    selects.spec.get_or_insert_default().selector = Some(LabelSelector::default());
    space.create_claim(selects).await?;
    space.wait_until_told("PersistentVolumeClaim", "selects", "selector").await?;
    let named = [("pathPattern", "${.PVC.namespace}-${.PVC.name}"), ("rootSquash", "true")];
    let named = space.class_with("named", named).await?;
    let there = server.root.path().join(format!("{}-there", space.namespace()));
    std::fs::create_dir(&there)?;
    space.create_claim(space.claim("there", &named)).await?;
    space.wait_until_told("PersistentVolumeClaim", "there", "no ownership mark").await?;
    std::fs::remove_dir(&there)?;
    let (_, volume) = space.wait_bound("there").await?;
    server.client.put(&file, &format!("{}/hello", source(&volume).path)).await?;
    assert_ne!(std::fs::metadata(there.join("hello"))?.uid(), 0, "root of a client is nobody here");
    space.delete_claim("there").await?;
    let start = Instant::now();
    space.delete_claim("claim").await?;
    assert!(start.elapsed().as_secs() < 60);
    assert_eq!((server.exports(), names(server.root.path())), (vec![], vec![]));
    assert!(server.client.list(&path).await.is_err(), "nothing is exported");
    space.done().await
}

/// The server is gone and there again, stopped and killed, with the provisioner and without it: ids and data are the same.
#[tokio::test]
async fn ganesha_g5_restarts_keep_ids_and_data() -> anyhow::Result<()> {
    let (space, server) = (TestSpace::new("ganesha-g5").await?, Server::new()?);
    let access = account(&space).await?;
    let mut program = server.started(&space, &access).await?;
    let class = space.class_with("class", []).await?;
    space.create_claims(&class, 3).await?;
    space.wait_all_bound(3, 4 * SOON).await?;
    let exports = server.exports();
    let (_, volume) = space.wait_bound("claim-0").await?;
    let path = source(&volume).path;
    let file = server.runtime.path().join("hello");
    std::fs::write(&file, "hello")?;
    server.client.put(&file, &format!("{path}/hello")).await?;
    // The server alone is killed; it is started again.
    let killed = server.ganesha()?;
    killed.signal(Signal::KILL);
    server.ready(Some(killed)).await?;
    assert_eq!(server.gets(&format!("{path}/hello")).await?, "hello");
    // The provisioner is told to end, and the server with it.
    program.terminate(SOON).await?;
    drop(program);
    let mut program = server.started(&space, &access).await?;
    assert_eq!(server.gets(&format!("{path}/hello")).await?, "hello");
    // Both are killed; what the provisioner left running is in nobody's way.
    program.kill().await?;
    drop(program);
    let _program = server.started(&space, &access).await?;
    assert_eq!(server.gets(&format!("{path}/hello")).await?, "hello");
    assert_eq!(server.exports(), exports);
    // What is deleted gives no id to what is made afterwards.
    space.delete_claim("claim-2").await?;
    space.create_claim(space.claim("later", &class)).await?;
    space.wait_bound("later").await?;
    let last = exports.iter().map(|(id, _)| *id).max().unwrap();
    assert!(server.exports().iter().any(|(id, _)| *id > last));
    space.done().await
}

#[tokio::test]
async fn ganesha_limits_and_parameters_are_told() -> anyhow::Result<()> {
    let (space, server) = (TestSpace::new("ganesha-limits").await?, Server::new()?);
    let access = account(&space).await?;
    let _program = server.start(&space, &access, &["--max-exports=1"])?;
    server.ready(None).await?;
    let class = space.class_with("class", [("gid", "1234"), ("rootSquash", "true")]).await?;
    let bad = space.class_with("bad", [("gid", "users")]).await?;
    let mut large = space.claim("large", &class);
    let requests =
        [("storage".to_owned(), k8s_openapi::apimachinery::pkg::api::resource::Quantity("900Pi".to_owned()))];
    large.spec.get_or_insert_default().resources.get_or_insert_default().requests = Some(requests.into());
    space.create_claim(large).await?;
    space.wait_until_told("PersistentVolumeClaim", "large", "bytes left").await?;
    space.create_claim(space.claim("first", &class)).await?;
    let (_, volume) = space.wait_bound("first").await?;
    assert_eq!(volume.annotations()["pv.beta.kubernetes.io/gid"], "1234");
    let stat = std::fs::metadata(server.root.path().join(volume.name_any()))?;
    assert_eq!((stat.gid(), stat.mode() & 0o7777), (1234, 0o2770));
    space.create_claim(space.claim("second", &class)).await?;
    space.wait_until_told("PersistentVolumeClaim", "second", "as many as there may be").await?;
    space.create_claim(space.claim("bad", &bad)).await?;
    space.wait_until_told("PersistentVolumeClaim", "bad", "gid").await?;
    space.done().await
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "figures")]
async fn ganesha_many_exports_are_served_again() -> anyhow::Result<()> {
    // `E2E_CLAIMS` is for longer runs.
    let count = std::env::var("E2E_CLAIMS").ok().and_then(|count| count.parse().ok()).unwrap_or(60);
    let (space, server) = (TestSpace::new("ganesha-500").await?, Server::new()?);
    let access = account(&space).await?;
    let program = server.started(&space, &access).await?;
    let class = space.class_with("class", [("enforceSize", "false")]).await?;
    let start = Instant::now();
    space.create_claims(&class, count).await?;
    space.wait_all_bound(count, 4 * SOON).await?;
    println!("{count} claims bound and exported after {:.1?}", start.elapsed());
    let exports = server.exports();
    assert_eq!(exports.len(), count);
    drop(program);
    let start = Instant::now();
    let _program = server.started(&space, &access).await?;
    println!("{count} exports are served again {:.1?} after a start", start.elapsed());
    for (_, path) in exports.iter().step_by(20) {
        server.client.list(&format!("{}/{path}", server.root.path().display())).await?;
    }
    assert_eq!(server.exports(), exports);
    let start = Instant::now();
    let claims = space.api::<PersistentVolumeClaim>();
    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let empty = eventually(4 * SOON, async || {
        Ok((names(server.root.path()).is_empty() && server.exports().is_empty()).then_some(()))
    });
    assert!(empty.await?.is_some(), "left: {} exports", server.exports().len());
    println!("{count} exports removed after {:.1?}", start.elapsed());
    space.done().await
}

/// The disk is one replica's at a time, and its server's for as long as that runs, wherever the provisioner has gone.
#[tokio::test]
async fn ganesha_k13_a_replica_that_stands_by_takes_the_disk() -> anyhow::Result<()> {
    let (space, server) = (TestSpace::new("ganesha-k13").await?, Server::new()?);
    let (access, other) = (account(&space).await?, server.standby()?);
    let mut program = server.started(&space, &access).await?;
    let class = space.create_class_and_claim("first").await?;
    let (_, volume) = space.wait_bound("first").await?;
    let (path, file) = (format!("{}/hello", source(&volume).path), server.runtime.path().join("hello"));
    std::fs::write(&file, "hello")?;
    server.client.put(&file, &path).await?;

    let standby = other.start(&space, &access, &[])?;
    standby.wait_for_output("stands by", SOON).await?;
    space.create_claim(space.claim("second", &class)).await?;
    space.wait_bound("second").await?;

    program.kill().await?;
    let left = server.ganesha()?;
    space.create_claim(space.claim("third", &class)).await?;
    space.wait_until_told("PersistentVolumeClaim", "third", "still has the disk").await?;
    assert!(left.is_running() && other.ganesha().is_err(), "one server at a time");
    assert_eq!(server.client.get(&path).await?, "hello");

    let exports = server.exports();
    left.signal(Signal::KILL);
    other.ready(None).await?;
    space.wait_bound("third").await?;
    assert_eq!(other.gets(&path).await?, "hello");
    assert!(exports.iter().all(|export| other.exports().contains(export)), "every id is the same");
    space.done().await
}
