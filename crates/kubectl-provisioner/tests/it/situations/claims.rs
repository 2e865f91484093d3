//! Situations of PersistentVolumeClaims.

use super::cluster::{
    ALIVE, ASKED, DEAD, claim, claim_with, class, class_of, event, journal, lease, lease_for, lease_of, replica,
    volume, with_additional_name,
};
use super::{Situation, situation};

const ASK: &str = "explain pvc data";
const GOLD: &str = "storageClassName: gold";
const LATE: &str = "volumeBindingMode: WaitForFirstConsumer";
const PVC: &str = "PersistentVolumeClaim";

fn selected(node: &str) -> String {
    format!("{ASKED}, volume.kubernetes.io/selected-node: {node}")
}

fn pod(spec: &str, status: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: shop}}, spec: {{containers: [{{name: c, image: i}}],
        volumes: [{{name: v, persistentVolumeClaim: {{claimName: data}}}}], {spec}}}, status: {{{status}}}}}"
    )
}

fn ours(phase: &str, more: &str) -> String {
    let metadata = "annotations: {pv.kubernetes.io/provisioned-by: example.com/p, kube-provisioner/identity: storage},
        finalizers: [external-provisioner.volume.kubernetes.io/finalizer]";
    let spec = format!(
        "persistentVolumeReclaimPolicy: Delete, nfs: {{server: s, path: /v}},
        claimRef: {{apiVersion: v1, kind: PersistentVolumeClaim, namespace: shop, name: data, uid: UID(data)}}, {more}"
    );
    volume("pvc-UID(data)", metadata, &spec, &format!("status: {{phase: {phase}}}"))
}

pub(crate) fn all() -> Vec<Situation> {
    [missing(), unasked(), asked(), refused(), recorded(), bound()].concat()
}

fn missing() -> Vec<Situation> {
    let quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: small, namespace: shop}, spec: {hard: {persistentvolumeclaims: '2'}},
        status: {hard: {persistentvolumeclaims: '2'}, used: {persistentvolumeclaims: '2'}}}";
    let refused = event(
        "StatefulSet",
        "web",
        "FailedCreate",
        "create Claim data for Pod web-0 in StatefulSet web failed error: persistentvolumeclaims \"data\" is forbidden: exceeded quota: small",
    );
    let refused = refused.replace("UID(web)", "");
    let earlier =
        refused.replace("web.failedcreate", "web.a").replace("23:58:00", "23:40:00").replace(": small", ": tiny");
    let unrelated = event("Pod", "web-0", "Failed", "Error: cannot open data in container web");
    let awaited = event(
        "Pod",
        "web-0",
        "FailedScheduling",
        "0/1 nodes are available: persistentvolumeclaim \"data\" not found. not found",
    );
    vec![
        situation("A claim that does not exist", ASK, &[]),
        situation(
            "A claim that does not exist, and an event that has its name as a word",
            ASK,
            &[&unrelated.replace("UID(web-0)", "")],
        ),
        situation("A claim that a pod waits for", ASK, &[&awaited.replace("UID(web-0)", "")]),
        situation("A claim that a quota refuses", ASK, &[quota, &refused]),
        situation("A claim that quotas refuse repeatedly", ASK, &[quota, &earlier, &refused]),
    ]
}

fn unasked() -> Vec<Situation> {
    let default = class("")
        .replace("{name: gold}", "{name: gold, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}");
    let unschedulable = "conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/3 nodes are available: 3 Insufficient cpu.'}]";
    let manager = "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kube-controller-manager, namespace: kube-system},
        spec: {holderIdentity: m, leaseDurationSeconds: 15, renewTime: '2029-12-31T23:00:00.000000Z'}}";
    let waits = [&*claim("", GOLD), &class(LATE), &lease(ALIVE)].map(str::to_owned);
    let with = |pod: &str| [&*waits[0], &waits[1], &waits[2], pod].map(str::to_owned);
    let late = |title, objects: &[String]| situation(title, ASK, &objects.iter().map(|one| &**one).collect::<Vec<_>>());
    vec![
        situation("No class, and no default class", ASK, &[&claim("", "")]),
        situation("No class yet, and a default class", ASK, &[&claim("", ""), &default]),
        situation("A claim for a manually created volume", ASK, &[&claim("", "storageClassName: ''")]),
        situation("A class that does not exist", ASK, &[&claim("", GOLD)]),
        late("No pod uses the claim", &waits),
        late("The scheduler places no pod", &with(&pod("", unschedulable))),
        late("A pod that bypasses the scheduler", &with(&pod("nodeName: n1", ""))),
        situation("kube-controller-manager does not run", ASK, &[&claim("", GOLD), &class(""), &lease(ALIVE), manager]),
        situation(
            "A class of manually created volumes",
            ASK,
            &[&claim("", GOLD), &class_of("gold", "kubernetes.io/no-provisioner", "")],
        ),
    ]
}

fn asked() -> Vec<Situation> {
    let failed = |message: &str| event(PVC, "data", "ProvisioningFailed", message);
    let later = |reason, message| event(PVC, "data", reason, message).replace("23:58:00", "23:59:50");
    let others = later("ExternalProvisioning", "Waiting for a volume to be created").replace("pod-1_0a", "manager");
    let of_kubernetes = later("ProvisioningFailed", "storageclass.storage.k8s.io \"gold\" not found")
        .replace("data.provisioningfailed", "data.of-kubernetes")
        .replace("\"reportingComponent\":\"example.com/p\"", "\"reportingComponent\":\"persistentvolume-controller\"");
    let at_work = later("Provisioning", "the copy is at 40 %");
    // Journals are named after the main name.
    let on_node = |title, node: &str| {
        let objects = [
            claim(&selected(node).replace("example.com/p", "example.com/former"), GOLD),
            class_of("gold", "example.com/former", LATE),
            with_additional_name(&journal("example.com-p-journal-node-n1", "node", None)),
            format!("{{apiVersion: v1, kind: Node, metadata: {{name: {node}}}}}"),
        ];
        situation(title, ASK, &objects.each_ref().map(String::as_str))
    };
    let fails = |title, message: &str| {
        situation(title, ASK, &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &failed(message)])
    };
    vec![
        situation("The provisioner is at work", ASK, &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE)]),
        situation("All replicas are dead", ASK, &[&claim(ASKED, GOLD), &class(""), &lease(DEAD)]),
        situation("The provisioner is not installed", ASK, &[&claim(ASKED, GOLD), &class("")]),
        fails(
            "A permission is missing",
            "Creating the volume: The API server does not allow this: persistentvolumes is forbidden",
        ),
        fails("A Secret is missing", "The Secret storage/admin does not exist; create it"),
        fails(
            "The class is wrong",
            "the claim's StorageClass cannot be used: parameter \"pool\" is missing; an administrator has to delete the class and create it \
             with correct parameters",
        ),
        fails(
            "The provisioner has given up",
            "backend: pool is full (gave up after 15 attempts; change the claim or its class to try again)",
        ),
        situation(
            "Kubernetes also reports failures",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &failed("the pool is full"), &of_kubernetes],
        ),
        situation(
            "The provisioner's pod is ready",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &replica("True")],
        ),
        situation(
            "Permissions were revoked while the provisioner runs",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &replica("False")],
        ),
        situation("A class for buckets", ASK, &[&claim(ASKED, GOLD), &class(""), &lease_for("buckets")]),
        situation(
            "A class for buckets, and no provisioner is assigned yet",
            ASK,
            &[&claim("", GOLD), &class(""), &lease_for("buckets")],
        ),
        situation("A class for volumes", ASK, &[&claim(ASKED, GOLD), &class(""), &lease_for("volumes")]),
        situation(
            "Others report more often than the provisioner",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &failed("the pool is full"), &others],
        ),
        situation(
            "The backend is at work",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &failed("no answer"), &at_work],
        ),
        situation(
            "The selected node does not exist",
            ASK,
            &[&claim(&selected("n9"), GOLD), &class(LATE), &lease(ALIVE)],
        ),
        situation(
            "The selected node has no replica",
            ASK,
            &[
                &claim(&selected("n2"), GOLD),
                &class(LATE),
                &journal("example.com-p-journal-node-n1", "node", None),
                "{apiVersion: v1, kind: Node, metadata: {name: n2}}",
            ],
        ),
        on_node("The replica of the selected node has an additional name", "n1"),
        on_node("The selected node has no replica with the additional name", "n2"),
        situation(
            "The selected node is not where the class allows volumes",
            ASK,
            &[
                &claim(&selected("n1"), GOLD),
                &class(&format!(
                    "{LATE}, allowedTopologies: [{{matchLabelExpressions: [{{key: zone, values: [a, b]}}]}}]"
                )),
                &lease(ALIVE),
                "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {zone: c}}}",
            ],
        ),
        situation("Only the claim can be read", ASK, &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE)]).without(&[
            "leases",
            "configmaps",
            "storageclasses",
            "persistentvolumes",
            "events",
            "nodes",
            "pods",
        ]),
        situation("Provisioners cannot be seen", ASK, &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE)])
            .without(&["leases", "configmaps"]),
        situation("Not even the claim can be read", ASK, &[&claim(ASKED, GOLD)]).without(&["persistentvolumeclaims"]),
    ]
}

fn refused() -> Vec<Situation> {
    let block = claim(ASKED, "storageClassName: gold, volumeMode: Block");
    let told = event(
        PVC,
        "data",
        "ProvisioningFailed",
        "example.com/p does not support block volume provisioning; delete the claim and create it with volumeMode: Filesystem",
    );
    let copy = claim(ASKED, "storageClassName: gold, dataSource: {kind: PersistentVolumeClaim, name: old}");
    let across = copy.replace("dataSource: {", "dataSourceRef: {namespace: other, ");
    let bound = claim("", "volumeName: v").replace("name: data, namespace: shop", "name: old, namespace: other");
    let filled = claim(ASKED, "storageClassName: gold, dataSourceRef: {apiGroup: example.com, kind: Backup, name: b1}");
    let foreign = volume("pvc-UID(data)", "", "persistentVolumeReclaimPolicy: Retain, nfs: {server: s, path: /v}", "");
    let on_node = claim(&selected("n1"), GOLD);
    let wrong = event(
        PVC,
        "data",
        "ProvisioningFailed",
        "the claim's StorageClass cannot be used: the parameter \"pool\" is missing",
    );
    let silent = event(
        PVC,
        "data",
        "Provisioning",
        "The replica of example.com/p on the selected node n1 has not provisioned the volume yet; if no other event on the claim gives the reason, an administrator can check whether the provisioner's pod runs on that node",
    )
    .replace("23:58:00", "23:59:50");
    vec![
        situation(
            "A class that the replica of the node refuses, and other replicas wait",
            ASK,
            &[
                &on_node,
                &class(LATE),
                &journal("example.com-p-journal-node-n1", "node", None),
                "{apiVersion: v1, kind: Node, metadata: {name: n1}}",
                &wrong,
                &silent,
            ],
        ),
        situation("A block device, refused", ASK, &[&block, &class(""), &lease(ALIVE), &told]),
        situation("A block device, and no event yet", ASK, &[&block, &class(""), &lease(ALIVE)]),
        situation("A copy of a claim that does not exist", ASK, &[&copy, &class(""), &lease(ALIVE)]),
        situation("A copy of a claim in another namespace", ASK, &[&bound, &across, &class(""), &lease(ALIVE)]),
        situation("A claim for a populator", ASK, &[&filled, &class(""), &lease(ALIVE)]),
        situation("The class is gone", ASK, &[&claim(ASKED, GOLD), &lease(ALIVE)]),
        situation(
            "The class is another provisioner's",
            ASK,
            &[&claim(ASKED, GOLD), &class_of("gold", "example.com/q", ""), &lease(ALIVE)],
        ),
        situation("The name of the volume is taken", ASK, &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &foreign]),
        situation(
            "A replica on each node, and a class that binds at once",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &journal("example.com-p-journal-node-n1", "node", None)],
        ),
    ]
}

fn recorded() -> Vec<Situation> {
    let entry = |name: &str, layout: &str| journal(name, layout, Some("UID(data)"));
    // The claim's uid determines its shard.
    let shards = ["example.com-p-0", "example.com-p-1"]
        .map(|name| lease_of(name, "2", if name.ends_with('0') { ALIVE } else { DEAD }));
    let going = |metadata: &str| claim_with(metadata, GOLD, "gone: true");
    let held = going(&format!("annotations: {{{ASKED}}}, finalizers: [example.com/keep]"));
    let short = entry("example.com-p-journal", "1").replace("pvc-UID(data) ", "disk-4d6f ");
    vec![
        situation(
            "An attempt is recorded",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &entry("example.com-p-journal", "1")],
        ),
        situation(
            "An attempt is recorded, and names of volumes are shortened",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &short],
        ),
        situation(
            "An attempt of another number of shards",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &entry("example.com-p-journal-0-of-2", "2")],
        ),
        situation("A shard without a holder", ASK, &[&claim(ASKED, GOLD), &class(""), &shards[0], &shards[1]]),
        situation("A claim that is deleted before it has a volume", ASK, &[&held, &class(""), &lease(ALIVE)]),
        situation(
            "A claim that goes while its attempt is recorded",
            ASK,
            &[&held, &class(""), &lease(ALIVE), &entry("example.com-p-journal", "1")],
        ),
    ]
}

fn bound() -> Vec<Situation> {
    let bind =
        |more: &str| format!("{{bind: pvc-UID(data), status: {{phase: Bound, capacity: {{storage: 1Gi}}}}, {more}}}");
    let plain = claim(ASKED, GOLD);
    let named = claim(ASKED, "storageClassName: gold, volumeName: old");
    let of_another = volume(
        "old",
        "annotations: {pv.kubernetes.io/provisioned-by: example.com/p, kube-provisioner/identity: storage}",
        "persistentVolumeReclaimPolicy: Delete, nfs: {server: s, path: /v},
        claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: shop, name: other, uid: 5a5a}",
        "status: {phase: Bound}",
    );
    let resized = event(
        PVC,
        "data",
        "VolumeResizeFailed",
        "example.com/p cannot expand volumes; to get more space, create a larger claim and copy the data; an administrator can remove allowVolumeExpansion from the StorageClass",
    );
    let larger = plain.replace("storage: 1Gi", "storage: 2Gi");
    let grows = class("allowVolumeExpansion: true");
    let user = pod("nodeName: n1", "");
    vec![
        situation(
            "The volume is created and not bound",
            ASK,
            &[&claim(ASKED, GOLD), &class(""), &lease(ALIVE), &ours("Available", "")],
        ),
        situation("A bound claim", ASK, &[&plain, &class(""), &lease(ALIVE), &ours("Bound", ""), &bind("")]),
        situation("A claim that names a volume which does not exist", ASK, &[&named, &class(""), &lease(ALIVE)]),
        situation(
            "A claim that names the volume of another claim",
            ASK,
            &[&named.replace(", }", ", status: {phase: Lost}}"), &class(""), &lease(ALIVE), &of_another],
        ),
        situation("The same, before Kubernetes calls it Lost", ASK, &[&named, &class(""), &lease(ALIVE), &of_another]),
        situation(
            "A claim with the annotations of a bound one",
            ASK,
            &[
                &claim(&format!("{ASKED}, pv.kubernetes.io/bind-completed: 'yes'"), GOLD)
                    .replace(", }", ", status: {phase: Lost}}"),
                &class(""),
                &lease(ALIVE),
            ],
        ),
        situation("A bound claim whose volume is missing", ASK, &[&plain, &class(""), &bind("")]),
        situation(
            "A bound claim that goes while a pod uses it",
            ASK,
            &[&plain, &class(""), &lease(ALIVE), &ours("Bound", ""), &bind("gone: true"), &user],
        ),
        situation("A claim that wants more", ASK, &[&larger, &grows, &lease(ALIVE), &ours("Bound", ""), &bind("")]),
        situation(
            "An expansion that the provisioner does not support",
            ASK,
            &[&larger, &grows, &lease(ALIVE), &ours("Bound", ""), &bind(""), &resized],
        ),
    ]
}
