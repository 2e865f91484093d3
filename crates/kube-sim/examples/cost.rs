//! Measures the simulator: time per request and per delivered event, memory per object.
//!
//! `cargo run --release -p kube-sim --example cost`

use std::io::Write;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams, WatchParams};
use kube_sim::{Builder, Cluster, PatchKind, Target};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

const COUNT: usize = 10_000;
const MANY: usize = 100_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout();
    direct(&mut out)?;
    through_client(&mut out, "", Cluster::new()).await?;
    through_client(&mut out, " without managedFields", Cluster::builder().hide_managed_fields().build()).await?;
    watching(&mut out, "", Cluster::builder()).await?;
    watching(&mut out, " without managedFields", Cluster::builder().hide_managed_fields()).await?;
    memory(&mut out)?;
    Ok(())
}

fn direct(out: &mut impl Write) -> Result<(), Box<dyn std::error::Error>> {
    let cluster = cluster();
    let claims: Vec<Value> = (0..COUNT).map(claim).collect();
    let start = cpu_time()?;
    for claim in &claims {
        cluster.create(claim)?;
    }
    report(out, "direct create", start)?;
    let start = cpu_time()?;
    for index in 0..COUNT {
        cluster.get("", "persistentvolumeclaims", "default", &name(index))?;
    }
    report(out, "direct get, read", start)?;
    let start = cpu_time()?;
    for index in 0..COUNT {
        cluster.get_stored("", "persistentvolumeclaims", "default", &name(index));
    }
    report(out, "direct get, not read", start)?;
    let start = cpu_time()?;
    for index in 0..COUNT {
        let name = name(index);
        let target = Target { group: "", plural: "persistentvolumeclaims", namespace: "default", name: &name };
        cluster.patch(&target, None, PatchKind::Merge, &patch(index))?;
    }
    report(out, "direct merge patch", start)
}

async fn through_client(out: &mut impl Write, how: &str, cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
    cluster.create(&class())?;
    let api: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client("cost"));
    let claims: Vec<PersistentVolumeClaim> =
        (0..COUNT).map(|index| serde_json::from_value(claim(index))).collect::<Result<_, _>>()?;
    let start = cpu_time()?;
    for claim in &claims {
        api.create(&PostParams::default(), claim).await?;
    }
    report(out, &format!("client create{how}"), start)?;
    let start = cpu_time()?;
    for index in 0..COUNT {
        api.get(&name(index)).await?;
    }
    report(out, &format!("client get{how}"), start)?;
    let start = cpu_time()?;
    for index in 0..COUNT {
        api.patch(&name(index), &PatchParams::default(), &Patch::Merge(patch(index))).await?;
    }
    report(out, &format!("client merge patch{how}"), start)
}

/// Reads the bytes of the stream without decoding them, to measure the stream alone.
async fn watching(out: &mut impl Write, how: &str, cluster: Builder) -> Result<(), Box<dyn std::error::Error>> {
    let cluster = cluster.history(2 * COUNT).build();
    cluster.create(&class())?;
    let since = cluster.resource_version();
    for index in 0..COUNT {
        cluster.create(&claim(index))?;
    }
    let query = format!("watch=1&resourceVersion={since}");
    let uri = format!("/api/v1/persistentvolumeclaims?{query}");
    let request = http::Request::get(uri).body(http_body_util::Empty::<bytes::Bytes>::new())?;
    let response = tower::ServiceExt::oneshot(cluster.service("cost"), request).await?;
    let mut body = pin!(http_body_util::BodyStream::new(response.into_body()));
    let start = cpu_time()?;
    let mut lines = 0;
    while lines < COUNT {
        let frame = body.next().await.ok_or("the watch ended")??;
        lines += frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
    }
    report(out, &format!("watch event, in bulk{how}"), start)?;
    let api: Api<PersistentVolumeClaim> = Api::all(cluster.client("cost"));
    let start = cpu_time()?;
    let stream = api.watch(&WatchParams::default(), &since.to_string()).await?;
    pin!(stream.take(COUNT)).count().await;
    report(out, &format!("watch event, decoded by the client{how}"), start)
}

fn memory(out: &mut impl Write) -> Result<(), Box<dyn std::error::Error>> {
    let cluster = cluster();
    let before = resident()?;
    let start = cpu_time()?;
    for index in 0..MANY {
        cluster.create(&claim(index))?;
        cluster.create(&volume(index))?;
    }
    let created = cpu_time()? - start;
    let bytes = (resident()? - before) / (2 * MANY as u64);
    let sizes: usize = ["persistentvolumeclaims", "persistentvolumes"]
        .iter()
        .filter_map(|plural| cluster.list_stored("", plural, None).ok())
        .flatten()
        .map(|object| object.bytes().len())
        .sum();
    let size = sizes / (2 * MANY);
    writeln!(
        out,
        "{MANY} claims and {MANY} volumes: {bytes} bytes per object, of which JSON {size}, made in {created:?}"
    )?;
    let start = cpu_time()?;
    let all = cluster.list_stored("", "persistentvolumes", None)?.len();
    writeln!(out, "listing {all}: {:?}", cpu_time()? - start)?;
    Ok(())
}

fn report(out: &mut impl Write, what: &str, start: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let micros = (cpu_time()? - start).as_secs_f64() * 1e6 / COUNT as f64;
    writeln!(out, "{what}: {micros:.2} µs")?;
    Ok(())
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Result<Duration, Box<dyn std::error::Error>> {
    Ok(clock_gettime(ClockId::ThreadCPUTime).try_into()?)
}

fn resident() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

fn cluster() -> Cluster {
    let cluster = Cluster::new();
    cluster.create(&class()).expect("a good class");
    cluster
}

fn name(index: usize) -> String {
    format!("claim-{index:06}")
}

fn class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "example.com/fast", "parameters": {"a": "b"},
    })
}

fn claim(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name(index), "namespace": "default", "labels": {"app": "web", "tier": "data"},
            "annotations": {
                "volume.kubernetes.io/storage-provisioner": "example.com/fast",
                "volume.beta.kubernetes.io/storage-provisioner": "example.com/fast",
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "10Gi"}},
        },
    })
}

fn volume(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": format!("pvc-{index:036}"),
            "annotations": {"pv.kubernetes.io/provisioned-by": "example.com/fast"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name(index),
                "uid": "8f0e5d7c-0000-4000-8000-000000000000",
            },
            "nfs": {"server": "10.0.0.1", "path": format!("/export/pvc-{index:036}")},
        },
    })
}

fn patch(index: usize) -> Value {
    json!({"metadata": {"annotations": {"example.com/step": index.to_string()}}})
}
