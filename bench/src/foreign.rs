//! A cluster full of claims and volumes, our own or other provisioners': their cost in memory and at startup.

use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::burst::mb;
use crate::cluster::{Cluster, NAMESPACE};
use crate::process::Provisioner;

/// Size of a second manager's fields, which every object in a real cluster has.
const PADDING: usize = 600;

pub(crate) async fn run(pairs: usize, own: bool) -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    cluster.clear().await?;
    let empty = measure(&cluster).await?;
    if own {
        provision(&cluster, pairs).await?;
    } else {
        create(&cluster, pairs).await?;
    }
    // The time that the server needs for the same lists, for any client.
    let start = Instant::now();
    list_all(&cluster).await?;
    let server = start.elapsed();
    let full = measure(&cluster).await?;
    let whose = if own { "own" } else { "foreign" };
    println!("| | empty | {pairs} + {pairs} {whose} |\n|---|---|---|");
    println!("| resident memory when ready | {:.1} MB | {:.1} MB |", mb(empty.resident), mb(full.resident));
    println!("| peak | {:.1} MB | {:.1} MB |", mb(empty.peak), mb(full.peak));
    println!("| ready after | {:.2} s | {:.2} s |", empty.ready, full.ready);
    println!("| processor time until ready | {:.2} s | {:.2} s |", empty.processor, full.processor);
    println!("| the same lists by a client that drops them | | {:.2} s |", server.as_secs_f64());
    let bytes = (full.resident - empty.resident) as f64 * 1024.0 / pairs as f64;
    println!("| per pair | | {bytes:.0} bytes |");
    Ok(())
}

struct Measured {
    resident: u64,
    peak: u64,
    ready: f64,
    processor: f64,
}

async fn measure(cluster: &Cluster) -> anyhow::Result<Measured> {
    let start = Instant::now();
    let mut provisioner = Provisioner::start(cluster, &[]).await?;
    provisioner.wait_ready().await?;
    let (ready, processor) = (start.elapsed(), provisioner.processor_time()?);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    Ok(Measured {
        resident: provisioner.memory("VmRSS")?,
        peak: provisioner.memory("VmHWM")?,
        ready: ready.as_secs_f64(),
        processor: processor.as_secs_f64(),
    })
}

async fn provision(cluster: &Cluster, pairs: usize) -> anyhow::Result<()> {
    let mut provisioner = Provisioner::start(cluster, &[]).await?;
    provisioner.wait_ready().await?;
    cluster.create_claims(pairs).await?;
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    cluster.wait_claims(pairs, "bound", is_bound).await.map(drop)
}

/// Creates claims and volumes of another provisioner.
pub(crate) async fn create(cluster: &Cluster, pairs: usize) -> anyhow::Result<()> {
    let (claims, volumes) = (cluster.claims(), cluster.volumes());
    let make = |at: usize| {
        let (claims, volumes) = (claims.clone(), volumes.clone());
        async move {
            let padding = "x".repeat(PADDING);
            let claim: PersistentVolumeClaim = serde_json::from_value(json!({
                "metadata": {"name": format!("foreign-{at}"), "namespace": NAMESPACE, "annotations": {
                    "volume.kubernetes.io/storage-provisioner": "csi.example.com", "example.com/padding": padding}},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "foreign", "volumeName": format!("foreign-{at}"),
                    "resources": {"requests": {"storage": "1Gi"}}},
            }))?;
            let created = claims.create(&PostParams::default(), &claim).await?;
            let volume: PersistentVolume = serde_json::from_value(json!({
                "metadata": {"name": format!("pvc-{}", created.metadata.uid.clone().unwrap_or_default()), "annotations": {
                    "pv.kubernetes.io/provisioned-by": "csi.example.com", "example.com/padding": padding}},
                "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "foreign",
                    "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "csi.example.com", "volumeHandle": at.to_string()},
                    "claimRef": {"namespace": NAMESPACE, "name": format!("foreign-{at}"), "uid": created.metadata.uid}},
            }))?;
            volumes.create(&PostParams::default(), &volume).await?;
            anyhow::Ok(())
        }
    };
    stream::iter(0..pairs).map(make).buffer_unordered(64).try_collect().await
}

async fn list_all(cluster: &Cluster) -> anyhow::Result<()> {
    let (claims, volumes) = (cluster.claims(), cluster.volumes());
    tokio::try_join!(pages(&claims), pages(&volumes))?;
    Ok(())
}

async fn pages<K>(api: &kube::Api<K>) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut parameters = ListParams::default().limit(500);
    loop {
        let page = api.list_metadata(&parameters).await?;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(()),
        }
    }
}
