//! Situations of the commands `list`, `journal` and `orphans`.

use super::cluster::{ALIVE, DEAD, claim, class, class_of, journal, lease, lease_of, restored, volume};
use super::{Situation, situation};

pub(crate) fn all() -> Vec<Situation> {
    let shards = [lease_of("example.com-p-0", "2", ALIVE), lease_of("example.com-p-1", "2", DEAD)];
    let entry = journal("example.com-p-journal-0-of-2", "2", Some("4d6f"));
    let other = class_of("blue", "example.com/q", "");
    let metadata = "annotations: {pv.kubernetes.io/provisioned-by: example.com/p, kube-provisioner/identity: storage}";
    let released = "persistentVolumeReclaimPolicy: Delete, nfs: {server: s, path: /v},
        claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: shop, name: data, uid: 4d6f}";
    let disk = volume("disk", metadata, released, "status: {phase: Released}");
    let bound = volume("disk", metadata, released, "status: {phase: Bound}");
    let elsewhere = disk.replace("name: disk", "name: far").replace("identity: storage", "identity: elsewhere");
    let bucket = "{apiVersion: objectbucket.io/v1alpha1, kind: ObjectBucket, metadata: {name: obc-shop-photos},
        spec: {storageClassName: gold, claimRef: {namespace: shop, name: photos, uid: 7a}}}";
    let each_node = journal("example.com-p-journal-node-n1", "node", None);
    let prefixed = journal("example.com-p-journal", "1", Some("UID(data)")).replace("pvc-UID(data)", "disk-UID(data)");
    let attempt = journal("example.com-p-journal", "1", Some("4d6f"));
    let unreadable = attempt.replace("gold-1,spec-1", "lost");
    // Object names cannot contain underscores, so these names end with a hash.
    let my_disk = |object: &str| {
        object
            .replace("example.com-p-journal-0-of-2", "example.com-my-disk-journal-0-of-2-05adfda9")
            .replace("example.com-p", "example.com-my-disk-be1e350f")
    };
    let ours = "metadata: {annotations: {kube-provisioner/provisioned-by: example.com/p},
        finalizers: [objectbucket.io/finalizer], ";
    let kept = bucket.replace("metadata: {", ours);
    let deleted = kept.replace("photos", "films").replace("spec: {", "gone: true, spec: {");
    let lost = [class(""), lease(ALIVE), kept, deleted];
    let lost = lost.each_ref().map(String::as_str);
    vec![
        situation("Two shards, one without a holder", "list", &[&class(""), &other, &shards[0], &shards[1], &entry]),
        situation(
            "Two shards of a provisioner whose name has an underscore",
            "list",
            &[
                &class_of("gold", "example.com/my_disk", ""),
                &my_disk(&shards[0]),
                &my_disk(&shards[1]),
                &my_disk(&entry),
            ],
        ),
        situation("A replica on each node", "list", &[&class(""), &each_node]),
        situation("The same as JSON", "list -o json", &[&class(""), &each_node]),
        situation("Leases cannot be read", "list", &[&class(""), &lease(ALIVE)]).without(&["leases"]),
        situation("What the journals record", "journal", &[&entry, &each_node]),
        situation("What a restored journal records", "journal -o json", &[&restored(&attempt)]),
        situation("No journal", "journal", &[]),
        situation("Only one namespace may be read", "journal --provisioner-namespace storage", &[&entry]),
        situation("Orphaned objects", "orphans", &[&class(""), &lease(DEAD), &entry, &disk, bucket]),
        situation("ObjectBuckets whose claims do not exist", "orphans", &lost),
        situation("The same, and Leases cannot be read", "orphans", &lost).without(&["leases"]),
        situation("A restored attempt", "orphans", &[&class(""), &lease(ALIVE), &restored(&attempt)]),
        situation("An attempt that cannot be read", "orphans", &[&class(""), &lease(ALIVE), &unreadable]),
        situation("A volume of another installation", "orphans", &[&class(""), &lease(ALIVE), &disk, &elsewhere]),
        situation("No orphans", "orphans", &[&class(""), &lease(ALIVE), &disk]),
        situation(
            "A replica on each node, and the Lease of an earlier one",
            "orphans",
            &[&class(""), &lease(DEAD), &each_node, &bound],
        ),
        situation(
            "An attempt whose volume has another prefix",
            "orphans",
            &[&claim("", "storageClassName: gold"), &class(""), &lease(ALIVE), &prefixed],
        ),
        situation("Nothing found, and little read", "orphans", &[&disk]).without(&["persistentvolumes", "leases"]),
    ]
}
