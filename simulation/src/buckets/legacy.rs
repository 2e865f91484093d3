//! Leftovers of another provisioner of the same store: a claim with all its objects, without our annotations.

use kube_provisioner::bucket::objectbucket_api::names::{FINALIZER, PROVISIONER_LABEL, provisioner_label};
use kube_sim::{PatchKind, Subresource, Target};
use serde_json::{Value, json};

use super::store::{BucketOwner, secret_of};
use super::users::{Kind, Users, target};
use super::{NAMESPACE, PROVISIONER, text};

impl Users {
    /// Creates the leftovers before any process starts.
    pub(super) fn inherit(&mut self) {
        let Some(at) = self.wishes.iter().position(|wish| wish.kind == Kind::Legacy) else { return };
        let (name, bucket) = (self.wishes[at].name.clone(), format!("legacy-{}", self.number));
        let object = format!("obc-{NAMESPACE}-{name}");
        let labels = json!({PROVISIONER_LABEL: provisioner_label(PROVISIONER)});
        let claim = self.cluster.create(&json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "finalizers": [FINALIZER]},
            "spec": {"storageClassName": "made", "bucketName": bucket, "objectBucketName": object},
        }));
        let Ok(claim) = claim else { return };
        self.made(at, &claim);
        let uid = text(&claim, "/metadata/uid");
        self.inherited = Some(uid.to_owned());
        let owner =
            json!({"apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "name": name, "uid": uid});
        let delivered = json!({"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]});
        let user = format!("obc-{NAMESPACE}-{name}-{uid}");
        let key = {
            let mut store = self.world.store();
            // The other provisioner did not know about cluster ids.
            store.buckets.insert(bucket.clone(), BucketOwner::Ours { cluster: String::new(), user: user.clone() });
            store.configs.insert(bucket.clone(), 0);
            store.new_key(&user)
        };
        let endpoint = json!({"bucketHost": "store.example.com", "bucketPort": 80, "bucketName": bucket});
        let objects = [
            json!({
                "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucket",
                "metadata": {"name": object, "labels": labels, "finalizers": [FINALIZER]},
                "spec": {
                    "storageClassName": "made", "reclaimPolicy": "Delete", "endpoint": endpoint,
                    "claimRef": {"namespace": NAMESPACE, "name": name, "uid": uid},
                    "additionalState": {"kind": "simulated"},
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": delivered,
                "stringData": {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret_of(&key)},
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": delivered,
                "data": {"BUCKET_NAME": bucket, "BUCKET_HOST": "store.example.com", "BUCKET_PORT": "80"},
            }),
        ];
        objects.iter().for_each(|object| drop(self.cluster.create(object)));
        let bound = json!({"status": {"phase": "Bound"}});
        let status = |target: &Target<'_>, patch: &Value| {
            let _ = self.cluster.patch(target, Some(Subresource::Status), PatchKind::Merge, patch);
        };
        status(&target("objectbucket.io", "objectbucketclaims", &name), &bound);
        let object = Target { group: "objectbucket.io", plural: "objectbuckets", namespace: "", name: &object };
        status(&object, &bound);
    }
}
