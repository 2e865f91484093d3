//! Rules of the binder that no recorded scenario covers, from `pkg/controller/volume/persistentvolume` of Kubernetes.

use std::time::Duration;

use kube_sim::{Actor, Actors, Cluster, DeleteOptions, Pace, Target, object};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{get, volume_phase};
use crate::common::{claim, class, created, pod, until, volume};

/// Returns a cluster that runs only the binder.
fn with_binder() -> (Cluster, kube_sim::Running) {
    let cluster = Cluster::new();
    let actors = cluster.run(Actors::none().with(Actor::Binder, Pace::PROMPT));
    (cluster, actors)
}

fn with(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    object
}

fn events(cluster: &Cluster) -> Vec<(String, String)> {
    let events = cluster.list("", "events", None).unwrap();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    events.iter().map(|event| (text(event, "reason"), text(event, "message"))).collect()
}

#[tokio::test(start_paused = true)]
async fn prefers_fewer_access_modes_then_reserved_then_smaller_volumes() {
    let (once, many) = (json!(["ReadWriteOnce"]), json!(["ReadWriteOnce", "ReadWriteMany"]));
    let reserved = json!({"namespace": "default", "name": "data"});
    let disk = |name: &str, modes: &Value, size: &str, reserved: Option<&Value>| {
        let mut disk = with(
            volume(name, "fast"),
            &[("/spec/accessModes", modes.clone()), ("/spec/capacity/storage", size.into())],
        );
        if let Some(reserved) = reserved {
            disk["spec"]["claimRef"] = reserved.clone();
        }
        disk
    };
    let cases = [
        ("small", vec![disk("large", &once, "3Gi", None), disk("small", &once, "2Gi", None)]),
        ("once", vec![disk("many", &many, "1Gi", None), disk("once", &once, "3Gi", None)]),
        ("reserved", vec![disk("free", &once, "1Gi", None), disk("reserved", &once, "3Gi", Some(&reserved))]),
        ("free", vec![disk("free", &once, "3Gi", None), disk("reserved", &many, "1Gi", Some(&reserved))]),
        ("reserved", vec![disk("reserved", &once, "1Gi", Some(&reserved)), disk("tiny", &once, "1Mi", None)]),
    ];
    for (expected, volumes) in cases {
        let (cluster, _actors) = with_binder();
        volumes.into_iter().for_each(|volume| drop(created(&cluster, volume)));
        sleep(Duration::from_secs(1)).await;
        created(&cluster, claim("data", "fast"));
        until(&cluster, || get(&cluster, "data")["status"]["phase"] == "Bound").await;
        assert_eq!(get(&cluster, "data")["spec"]["volumeName"], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn event_names_the_unscheduled_pods_of_a_claim() {
    let (cluster, _actors) = with_binder();
    created(&cluster, class("slow", "WaitForFirstConsumer"));
    created(&cluster, pod("one", "data"));
    created(&cluster, pod("two", "data"));
    created(&cluster, pod("other", "else"));
    created(&cluster, claim("data", "slow"));
    until(&cluster, || !events(&cluster).is_empty()).await;
    let expected = ("WaitForPodScheduled".to_owned(), "waiting for pods one,two to be scheduled".to_owned());
    assert_eq!(events(&cluster), [expected]);
}

#[tokio::test(start_paused = true)]
async fn reclaims_released_volumes_by_provisioner_and_policy() {
    let none = Value::Null;
    let gone = json!({"namespace": "default", "name": "gone", "uid": "00000000-0000-4000-8000-000000000000"});
    // Provisioner, reclaim policy, source, final phase (`None` if it is deleted), message.
    let cases = [
        ("disks.example.com", "Delete", json!({"hostPath": {"path": "/srv"}}), Some("Released"), ""),
        ("disks.example.com", "Retain", json!({"hostPath": {"path": "/srv"}}), Some("Released"), ""),
        ("", "Delete", json!({"hostPath": {"path": "/tmp/a"}}), None, ""),
        (
            "",
            "Delete",
            json!({"hostPath": {"path": "/srv"}}),
            Some("Failed"),
            "host_path deleter only supports /tmp/.+ but received provided /srv",
        ),
        ("", "Delete", json!({"csi": {"driver": "d", "volumeHandle": "h"}}), Some("Released"), ""),
        (
            "kubernetes.io/other",
            "Delete",
            json!({"nfs": {"server": "s", "path": "/"}}),
            Some("Failed"),
            "no volume plugin matched name: kubernetes.io/other",
        ),
        ("", "Recycle", json!({"nfs": {"server": "s", "path": "/"}}), Some("Released"), ""),
        (
            "",
            "Recycle",
            json!({"csi": {"driver": "d", "volumeHandle": "h"}}),
            Some("Failed"),
            "No recycler plugin found for the volume!",
        ),
    ];
    for (maker, policy, source, phase, message) in cases {
        let cluster = Cluster::new();
        let _actors = cluster.run(Actors::all());
        let mut disk = volume("disk", "fast");
        disk["metadata"]["annotations"] =
            if maker.is_empty() { none.clone() } else { json!({"pv.kubernetes.io/provisioned-by": maker}) };
        disk["spec"]["persistentVolumeReclaimPolicy"] = policy.into();
        disk["spec"]["claimRef"] = gone.clone();
        disk["spec"].as_object_mut().unwrap().remove("hostPath");
        disk["spec"].as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        created(&cluster, disk);
        sleep(Duration::from_secs(1)).await;
        let found = cluster.get("", "persistentvolumes", "", "disk").ok();
        let read = |field: &str| found.as_ref().map(|volume| object::text_at(volume, &["status", field]).to_owned());
        assert_eq!(read("phase").as_deref(), phase, "{maker} {policy} {source}");
        assert_eq!(read("message").unwrap_or_default(), message, "{maker} {policy} {source}");
    }
}

#[tokio::test(start_paused = true)]
async fn sets_finalizer_only_on_deletable_in_tree_volumes() {
    const EXTERNAL: &str = "external-provisioner.volume.kubernetes.io/finalizer";
    let cases = [
        ("disks.example.com", "Delete", vec![EXTERNAL]),
        ("kubernetes.io/disk", "Delete", vec!["kubernetes.io/pv-controller"]),
        ("kubernetes.io/disk", "Retain", vec![]),
    ];
    for (maker, policy, expected) in cases {
        let (cluster, _actors) = with_binder();
        let mut disk = volume("disk", "fast");
        disk["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": maker});
        disk["metadata"]["finalizers"] = json!([EXTERNAL]);
        disk["spec"]["persistentVolumeReclaimPolicy"] = policy.into();
        created(&cluster, disk);
        until(&cluster, || volume_phase(&cluster, "disk") == "Available").await;
        let disk = cluster.get("", "persistentvolumes", "", "disk").unwrap();
        let found: Vec<_> = object::finalizers(&disk).filter(|name| *name != "kubernetes.io/pv-protection").collect();
        assert_eq!(found, expected, "{maker} {policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn second_claim_for_a_bound_volume_is_lost() {
    let (cluster, _actors) = with_binder();
    created(&cluster, volume("disk", "fast"));
    created(&cluster, claim("data", "fast"));
    until(&cluster, || get(&cluster, "data")["status"]["phase"] == "Bound").await;
    let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
    created(
        &cluster,
        with(claim("other", "fast"), &[("/spec/volumeName", "disk".into()), ("/metadata/annotations", bound)]),
    );
    until(&cluster, || get(&cluster, "other")["status"]["phase"] == "Lost").await;
    assert_eq!(events(&cluster).last().unwrap().0, "ClaimMisbound");
    assert_eq!(get(&cluster, "data")["status"]["phase"], "Bound");
}

#[tokio::test(start_paused = true)]
async fn assigns_newest_default_class_at_resync() {
    let (cluster, _actors) = with_binder();
    let claimed = with(claim("data", ""), &[("/spec/storageClassName", Value::Null)]);
    created(&cluster, claimed);
    sleep(Duration::from_secs(5)).await;
    let marked = |name: &str| {
        with(
            class(name, "Immediate"),
            &[("/metadata/annotations", json!({"storageclass.kubernetes.io/is-default-class": "true"}))],
        )
    };
    created(&cluster, marked("a-old"));
    sleep(Duration::from_secs(5)).await;
    created(&cluster, marked("c-new"));
    created(&cluster, marked("b-new"));
    sleep(Duration::from_millis(4900)).await;
    assert!(get(&cluster, "data")["spec"].get("storageClassName").is_none());
    sleep(Duration::from_millis(200)).await;
    assert_eq!(get(&cluster, "data")["spec"]["storageClassName"], "b-new");
}

#[tokio::test(start_paused = true)]
async fn releases_the_volume_of_a_claim_that_is_deleted_while_it_is_bound() {
    let cluster = Cluster::new();
    let latency = Duration::from_millis(10);
    let slow = Pace { request: latency..=latency, ..Pace::PROMPT };
    let _actors = cluster.run(Actors::none().with(Actor::Binder, slow).with(Actor::Protection, Pace::PROMPT));
    created(&cluster, volume("disk", "fast"));
    created(&cluster, claim("data", "fast"));
    until(&cluster, || volume_phase(&cluster, "disk") == "Bound").await;
    let target = Target { plural: "persistentvolumeclaims", namespace: "default", name: "data", ..Target::default() };
    cluster.delete(&target, DeleteOptions::default()).unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(volume_phase(&cluster, "disk"), "Released");
}
