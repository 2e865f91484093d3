//! Situations of ObjectBucketClaims.

use super::cluster::{ALIVE, class, event, journal, lease, lease_for, replica};
use super::{Situation, situation};

const ASK: &str = "bucket photos";

fn claim(metadata: &str, spec: &str, rest: &str) -> String {
    format!(
        "{{apiVersion: objectbucket.io/v1alpha1, kind: ObjectBucketClaim, metadata: {{name: photos, namespace: shop, {metadata}}},
        spec: {{storageClassName: gold, {spec}}}, {rest}}}"
    )
}

fn bucket(uid: &str, annotations: &str, rest: &str) -> String {
    format!(
        "{{apiVersion: objectbucket.io/v1alpha1, kind: ObjectBucket, metadata: {{name: obc-shop-photos, finalizers: [objectbucket.io/finalizer],
        annotations: {{kube-provisioner/provisioned-by: example.com/p, kube-provisioner/identity: storage, {annotations}}}}},
        spec: {{storageClassName: gold, reclaimPolicy: Delete, endpoint: {{bucketName: photos}},
        claimRef: {{namespace: shop, name: photos, uid: '{uid}'}}}}, {rest}}}"
    )
}

pub(crate) fn all() -> Vec<Situation> {
    let good = claim("", "bucketName: photos", "");
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: photos, namespace: shop, labels: {bucket-provisioner: example.com-p}},
        stringData: {AWS_SECRET_ACCESS_KEY: sesame}}";
    let unlabelled =
        "{apiVersion: v1, kind: Secret, metadata: {name: photos, namespace: shop}, stringData: {password: sesame}}";
    let fails = event("ObjectBucketClaim", "photos", "ProvisioningFailed", "the store does not answer");
    let failed = claim(
        "",
        "bucketName: photos",
        "status: {phase: Failed, conditions: [{type: Ready, status: 'False', reason: ProvisioningFailed, \
         lastTransitionTime: '2029-12-31T23:00:00Z', message: 'maxObjects must be a number'}]}",
    );
    let record = "kube-provisioner/bucket: '{\"source\":\"Provisioned\",\"made\":true}'";
    let bound = claim("", "bucketName: photos, objectBucketName: obc-shop-photos", "status: {phase: Bound}");
    let rotate = claim(
        "annotations: {kube-provisioner/rotate-credentials: '1'}",
        "bucketName: photos, objectBucketName: obc-shop-photos",
        "status: {phase: Bound}",
    );
    let going = claim("finalizers: [objectbucket.io/finalizer]", "bucketName: photos", "gone: true");
    let own = "{apiVersion: v1, kind: Secret, metadata: {name: photos, namespace: shop, labels: {bucket-provisioner: example.com-p},
        ownerReferences: [{apiVersion: objectbucket.io/v1alpha1, kind: ObjectBucketClaim, name: photos, uid: UID(photos)}]},
        stringData: {AWS_SECRET_ACCESS_KEY: sesame}}";
    let of_another = bucket("7a", record, "status: {phase: Bound}")
        .replace("name: obc-shop-photos", "name: obc-shop-x-photos")
        .replace("{namespace: shop, name: photos", "{namespace: shop-x, name: photos");
    let x_photos = good.replace("{name: photos", "{name: x-photos");
    let is = |title, objects: &[&str]| situation(title, ASK, objects);
    let is_of_x = |title, objects: &[&str]| situation(title, "bucket x-photos -n shop", objects);
    vec![
        is("A bucket's claim that does not exist", &[]),
        is("A bucket's class does not exist", &[&good]),
        is("A bucket is being created", &[&good, &class(""), &lease(ALIVE)]),
        is("A bucket cannot be created", &[&good, &class(""), &lease(ALIVE), &fails]),
        is("A bucket has failed permanently", &[&failed, &class(""), &lease(ALIVE)]),
        is("A bucket has failed permanently, and its event is kept", &[&failed, &class(""), &lease(ALIVE), &fails]),
        is("A bucket's class is for volumes", &[&good, &class(""), &lease_for("volumes")]),
        is(
            "A bucket's class is for volumes, as the journal shows",
            &[&good, &class(""), &lease(ALIVE), &journal("example.com-p-journal", "1", Some("4d6f"))],
        ),
        is(
            "A bucket's provisioner lost its permissions",
            &[&good, &class(""), &lease_for("buckets"), &replica("False")],
        ),
        is("A bucket without a name", &[&claim("", "", ""), &class(""), &lease(ALIVE)]),
        is("A name that no bucket can have", &[&claim("", "bucketName: My_Photos", ""), &class(""), &lease(ALIVE)]),
        is("A Secret has the claim's name", &[&good, &class(""), &lease(ALIVE), secret]),
        is("An unrelated Secret has the claim's name", &[&good, &class(""), &lease(ALIVE), unlabelled]),
        is(
            "An unrelated Secret has the name that the claim asks for",
            &[
                &claim("", "bucketName: photos, additionalConfig: {secretName: keys}", ""),
                &class(""),
                &lease(ALIVE),
                &unlabelled.replace("name: photos", "name: keys"),
            ],
        ),
        is(
            "The former bucket is not gone",
            &[&good, &class(""), &lease(ALIVE), &bucket("former", record, "gone: true")],
        ),
        is(
            "A damaged record",
            &[&bound, &class(""), &lease(ALIVE), &bucket("UID(photos)", "kube-provisioner/bucket: '{'", "")],
        ),
        is(
            "A bucket whose ConfigMap is gone",
            &[&bound, &class(""), &lease(ALIVE), &bucket("UID(photos)", record, "status: {phase: Bound}"), own],
        ),
        is(
            "A bucket whose Secret is missing",
            &[&bound, &class(""), &lease(ALIVE), &bucket("UID(photos)", record, "status: {phase: Bound}")],
        ),
        is(
            "A bound bucket's Secret was replaced",
            &[&bound, &class(""), &lease(ALIVE), &bucket("UID(photos)", record, "status: {phase: Bound}"), secret],
        ),
        is(
            "A Secret has the claim's name, and the bucket is not bound yet",
            &[&good, &class(""), &lease(ALIVE), &bucket("UID(photos)", record, ""), unlabelled],
        ),
        is(
            "New keys are requested",
            &[&rotate, &class(""), &lease(ALIVE), &bucket("UID(photos)", record, "status: {phase: Bound}"), own],
        ),
        is("A bucket's claim is deleted before anything was created", &[&going, &class(""), &lease(ALIVE)]),
        is(
            "A bucket goes with its claim",
            &[&going, &class(""), &lease(ALIVE), &bucket("UID(photos)", record, "status: {phase: Bound}")],
        ),
        is("Secrets cannot be read", &[&good, &class(""), &lease(ALIVE), secret]).without(&["secrets"]),
        is(
            "A claim is deleted, and its ObjectBucket is not",
            &[&bucket("former", record, "gone: true"), &lease(ALIVE)],
        ),
        is_of_x("A claim does not exist, and another claim's ObjectBucket has its name", &[&of_another, &lease(ALIVE)]),
        is_of_x(
            "Another claim's ObjectBucket has the name of the claim's",
            &[&x_photos, &class(""), &lease(ALIVE), &of_another],
        ),
    ]
}
