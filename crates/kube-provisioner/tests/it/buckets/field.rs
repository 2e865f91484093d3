//! Adoption of objects created by Rook, NooBaa and the AWS provisioner of 2019, without calls to the store and without
//! changes to Secrets or ConfigMaps.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{BUCKETS, CLAIMS, Fixture};

macro_rules! fixture {
    ($from:literal, $what:literal) => {
        include_str!(concat!("../../../../objectbucket-api/fixtures/", $from, "/", $what, ".json"))
    };
}

/// The claim, ObjectBucket, Secret and ConfigMap of each provisioner.
const RECORDED: [(&str, [&str; 4]); 4] = [
    (
        "rook",
        [
            fixture!("rook", "claim"),
            fixture!("rook", "bucket"),
            fixture!("rook", "secret"),
            fixture!("rook", "configmap"),
        ],
    ),
    (
        "rook-existing",
        [
            fixture!("rook-existing", "claim"),
            fixture!("rook-existing", "bucket"),
            fixture!("rook-existing", "secret"),
            fixture!("rook-existing", "configmap"),
        ],
    ),
    (
        "noobaa",
        [
            fixture!("noobaa", "claim"),
            fixture!("noobaa", "bucket"),
            fixture!("noobaa", "secret"),
            fixture!("noobaa", "configmap"),
        ],
    ),
    (
        "aws",
        [fixture!("aws", "claim"), fixture!("aws", "bucket"), fixture!("aws", "secret"), fixture!("aws", "configmap")],
    ),
];

/// Creates the objects of another provisioner, with the uids of this cluster.
fn create_recorded(fixture: &Fixture, [claim, bucket, secret, map]: [&str; 4]) -> (String, String, String) {
    let [mut claim, mut bucket, mut secret, mut map] =
        [claim, bucket, secret, map].map(|text| serde_json::from_str::<Value>(text).unwrap());
    let namespace = claim["metadata"]["namespace"].as_str().unwrap().to_owned();
    let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
    let class = claim["spec"]["storageClassName"].as_str().unwrap().to_owned();
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    let status = |object: &mut Value| object.as_object_mut().unwrap().remove("status").unwrap_or_default();
    let clean = |object: &mut Value| {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
            object["metadata"].as_object_mut().unwrap().remove(field);
        }
    };
    [&mut claim, &mut bucket, &mut secret, &mut map].into_iter().for_each(clean);
    let (of_claim, of_bucket) = (status(&mut claim), status(&mut bucket));
    let uid = fixture.create(claim)["metadata"]["uid"].clone();
    if bucket["spec"]["claimRef"]["uid"].is_string() {
        bucket["spec"]["claimRef"]["uid"] = uid.clone();
    }
    for object in [&mut secret, &mut map] {
        object["metadata"]["ownerReferences"][0]["uid"] = uid.clone();
    }
    let object = bucket["metadata"]["name"].as_str().unwrap().to_owned();
    for made in [bucket, secret, map] {
        fixture.create(made);
    }
    let path = format!("{namespace}/{name}");
    let set = |plural, name: &str, status: Value| {
        fixture
            .cluster
            .patch(
                &super::fixture::target(plural, name),
                Some(kube_sim::Subresource::Status),
                kube_sim::PatchKind::Merge,
                &json!({"status": status}),
            )
            .unwrap();
    };
    set(CLAIMS, &path, of_claim);
    set(BUCKETS, &object, of_bucket);
    (path, object, class)
}

// Rules: Z15, Y6, Y7, Y8.
#[tokio::test(start_paused = true)]
async fn adopts_and_deletes_objects_of_other_provisioners() {
    for (from, left) in RECORDED {
        let mut fixture = Fixture::new();
        let (path, object, class) = create_recorded(&fixture, left);
        let provisioner = match from {
            "noobaa" => "openshift-storage.noobaa.io/obc".to_owned(),
            "aws" => "aws-s3.io/bucket".to_owned(),
            _ => "rook-ceph.ceph.rook.io/bucket".to_owned(),
        };
        fixture.options.options.provisioner_name.clone_from(&provisioner);
        let parameters = if from == "rook-existing" {
            json!({"bucketName": fixture.get(BUCKETS, &object).unwrap()["spec"]["endpoint"]["bucketName"]})
        } else {
            // Their pods refer to the Secret by its name.
            json!({"claimSecretName": "${pvc.name}-keys"})
        };
        fixture.class(&class, json!({"provisioner": provisioner, "parameters": parameters}));
        let (secret, map) = (fixture.get("secrets", &path), fixture.get("configmaps", &path));
        let _running = fixture.start(1);
        fixture
            .until(&format!("{from} is adopted"), || {
                fixture.get(BUCKETS, &object).unwrap()["metadata"]["annotations"]["kube-provisioner/bucket"].is_string()
            })
            .await;
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(fixture.store.state().calls, Vec::<String>::new(), "{from}: no calls");
        assert_eq!((fixture.get("secrets", &path), fixture.get("configmaps", &path)), (secret, map), "{from}");
        assert_eq!(fixture.phase(&path), "Bound");
        // The class may be deleted, since the information needed for the deletion is recorded.
        fixture.delete("storageclasses", &class);
        fixture.delete(CLAIMS, &path);
        fixture.until_gone(&path).await;
        let calls = fixture.store.state().calls.clone();
        let methods: Vec<&str> = calls.iter().filter_map(|call| call.split(' ').next()).collect();
        let expected = if from == "rook-existing" { &["revoke"][..] } else { &["delete_bucket", "revoke"] };
        assert_eq!(methods, expected, "{from}: {calls:?}");
        for (plural, name) in [(BUCKETS, object.as_str()), ("secrets", &path), ("configmaps", &path)] {
            fixture.until(&format!("{from}: {plural} is gone"), || fixture.get(plural, name).is_none()).await;
        }
    }
}
