//! Situations of PersistentVolumes.

use super::cluster::{ALIVE, DEAD, event, journal, lease, restored, volume, with_additional_name};
use super::{Situation, situation};

const ASK: &str = "explain pv disk";

fn ours(identity: &str, finalizers: &str, spec: &str, rest: &str) -> String {
    let metadata = format!(
        "annotations: {{pv.kubernetes.io/provisioned-by: example.com/p, kube-provisioner/identity: {identity}}}, finalizers: [{finalizers}]"
    );
    let reference = "claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: shop, name: data, uid: 4d6f}";
    volume("disk", &metadata, &format!("{spec}, {reference}"), rest)
}

const DELETE: &str = "persistentVolumeReclaimPolicy: Delete, nfs: {server: s, path: /v}";
const RETAIN: &str = "persistentVolumeReclaimPolicy: Retain, nfs: {server: s, path: /v}";
const CSI: &str = "persistentVolumeReclaimPolicy: Delete, csi: {driver: example.com, volumeHandle: h}";
const OURS: &str = "external-provisioner.volume.kubernetes.io/finalizer";
const RELEASED: &str = "status: {phase: Released}";

pub(crate) fn all() -> Vec<Situation> {
    let attachment = "{apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, metadata: {name: a},
        spec: {attacher: example.com/p, nodeName: n1, source: {persistentVolumeName: disk}}, status: {attached: true}}";
    let in_use = event("PersistentVolume", "disk", "VolumeFailedDelete", "the export is still mounted by 10.0.0.7");
    let going = format!("{RELEASED}, gone: true");
    let unclaimed = ours("storage", OURS, DELETE, "status: {phase: Available}, gone: true");
    let (before, _) = unclaimed.split_once(", claimRef").unwrap();
    let unclaimed = format!("{before}}}, status: {{phase: Available}}, gone: true}}");
    // Object names cannot contain capital letters, so these names end with a hash.
    let capital = ours("n1", OURS, DELETE, RELEASED).replace("example.com/p", "example.com/P");
    let of_capital = journal("example.com-p-journal-node-n1-d8774004", "node", None)
        .replace("\"example.com-p\"", "\"example.com-p-caf12ea1\"");
    let of_former = ours("n1", OURS, DELETE, RELEASED).replace("example.com/p", "example.com/former");
    let renamed = with_additional_name(&journal("example.com-p-journal-node-n1", "node", None));
    let orphan = journal("example.com-p-journal", "1", Some("4d6f"));
    vec![
        situation("Released and kept", ASK, &[&ours("storage", "", RETAIN, RELEASED), &lease(ALIVE)]),
        situation(
            "Released, and its deletion fails",
            ASK,
            &[&ours("storage", OURS, DELETE, RELEASED), &lease(ALIVE), &in_use],
        ),
        situation(
            "Released, and created by another installation",
            ASK,
            &[&ours("elsewhere", OURS, DELETE, RELEASED), &lease(ALIVE)],
        ),
        situation(
            "The same, with its identity given",
            "explain pv disk --identity elsewhere",
            &[&ours("elsewhere", OURS, DELETE, RELEASED), &lease(ALIVE)],
        ),
        situation(
            "Released, nobody works, and a node has it",
            ASK,
            &[&ours("storage", OURS, CSI, RELEASED), &lease(DEAD), attachment],
        ),
        situation("Kept after its deletion had begun", ASK, &[&ours("storage", OURS, RETAIN, &going), &lease(ALIVE)]),
        situation(
            "Deleted manually while it is in use",
            ASK,
            &[&ours("storage", OURS, DELETE, "status: {phase: Bound}, gone: true"), &lease(ALIVE)],
        ),
        situation(
            "Released on a node that does not exist",
            ASK,
            &[&ours("n9", OURS, DELETE, RELEASED), &journal("example.com-p-journal-node-n1", "node", None)],
        ),
        situation(
            "Released on a node that was renamed",
            ASK,
            &[
                &ours("n9", OURS, DELETE, RELEASED),
                &journal("example.com-p-journal-node-n9", "node", None),
                &journal("example.com-p-journal-node-n1", "node", None),
                "{apiVersion: v1, kind: Node, metadata: {name: n1}}",
            ],
        ),
        situation(
            "Released on a node, and the provisioner's name has a capital letter",
            ASK,
            &[&capital, &of_capital, "{apiVersion: v1, kind: Node, metadata: {name: n1}}"],
        ),
        situation(
            "Released on a node, and created under an additional name",
            ASK,
            &[&of_former, &renamed, "{apiVersion: v1, kind: Node, metadata: {name: n1}}"],
        ),
        situation("Deleted after its claimRef was removed", ASK, &[&unclaimed, &lease(ALIVE)]),
        situation("The same, found by orphans", "orphans", &[&unclaimed, &lease(ALIVE)]),
        situation(
            "Deleted before Kubernetes has released it",
            ASK,
            &[&ours("storage", OURS, DELETE, "status: {phase: Available}, gone: true"), &lease(ALIVE)],
        ),
        situation("Created manually", ASK, &[&volume("disk", "", RETAIN, "status: {phase: Available}")]),
        situation("No volume, but an attempt", "explain pv pvc-4d6f", &[&lease(ALIVE), &orphan]),
        situation("No volume, but a restored attempt", "explain pv pvc-4d6f", &[&lease(ALIVE), &restored(&orphan)]),
        situation(
            "No volume, and an unreadable line in the journal",
            "explain pv pvc-4d6f",
            &[&lease(ALIVE), &orphan.replace("gold-1,spec-1", "lost")],
        ),
        situation("The claim cannot be read", ASK, &[&ours("storage", OURS, DELETE, RELEASED), &lease(ALIVE)])
            .without(&["persistentvolumeclaims"]),
    ]
}
