//! Released volumes of another provisioner. If each node has its own provisioner, only this event explains why they are
//! kept.

use serde_json::json;

use super::world::*;

#[test]
fn events_explain_how_to_adopt_released_volumes() {
    let world = World::new();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1",
        "labels": {"kubernetes.io/hostname": "host-1"}}});
    world.cluster.create(&node).unwrap();
    let on = |host: &str| {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
        [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}]}})
    };
    world.unmarked("there");
    world.unmarked("bound");
    for (name, path, host, phase) in [
        ("pv-here", "there", "host-1", "Released"),
        ("pv-other", "there", "host-2", "Released"),
        ("pv-gone", "nowhere", "host-1", "Released"),
        ("pv-bound", "bound", "host-1", "Bound"),
    ] {
        let mut source = world.source(path);
        source["nodeAffinity"] = on(host);
        let mut volume = world.volume_for(name, &source, Some("uid"));
        volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] = json!(RANCHER);
        let mut volume = world.cluster.update(&volume).unwrap();
        volume["status"] = json!({"phase": phase});
        world.cluster.update_status(&volume).unwrap();
    }
    let arguments = ["--node-name", "node-1", "--coordination", "per-node", "--additional-provisioner-names", RANCHER];
    let _program = world.start(&arguments);
    let told = |cluster: &kube_sim::Cluster| {
        let mut events = cluster.list("", "events", None).unwrap();
        events.retain(|event| event["message"].as_str().is_some_and(|text| text.contains("adopt --volume")));
        events
    };
    world.eventually("the released volumes have events", |cluster| told(cluster).len() >= 3);
    let mut names: Vec<_> = told(&world.cluster).iter().map(|event| event["involvedObject"]["name"].clone()).collect();
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, ["pv-gone", "pv-here", "pv-other"]);
}
