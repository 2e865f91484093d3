//! Requirements on how an API server treats claims and buckets under a variant of the CRDs. They are checked here on
//! the simulated server, and in the workspace's end-to-end tests on a real one.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use objectbucket_api::{GROUP, ObjectBucket, ObjectBucketClaim, VERSION, Validation, crds};
use serde::Deserialize;
use serde_json::{Value, json};

/// Complete objects left by other provisioners: kind and fixture.
const LEFT: [(&str, &str); 8] = [
    ("ObjectBucketClaim", include_str!("../../fixtures/rook/claim.json")),
    ("ObjectBucket", include_str!("../../fixtures/rook/bucket.json")),
    ("ObjectBucketClaim", include_str!("../../fixtures/rook-existing/claim.json")),
    ("ObjectBucket", include_str!("../../fixtures/rook-existing/bucket.json")),
    ("ObjectBucketClaim", include_str!("../../fixtures/noobaa/claim.json")),
    ("ObjectBucket", include_str!("../../fixtures/noobaa/bucket.json")),
    ("ObjectBucketClaim", include_str!("../../fixtures/aws/claim.json")),
    ("ObjectBucket", include_str!("../../fixtures/aws/bucket.json")),
];

/// Intermediate objects sent by Go writers, including `null` values.
const NULLS: [(&str, &str); 3] = [
    ("ObjectBucketClaim", include_str!("../../fixtures/rook/claim-new.json")),
    ("ObjectBucket", include_str!("../../fixtures/rook/bucket-nulls.json")),
    ("ObjectBucket", include_str!("../../fixtures/aws/bucket-nulls.json")),
];

/// One variant of the CRDs, served under its own group.
pub(crate) struct Served {
    pub(crate) client: Client,
    pub(crate) group: String,
    pub(crate) namespace: String,
}

impl Served {
    /// Returns a variant's definitions for the group.
    pub(crate) fn definitions(&self, validation: Validation) -> Vec<Value> {
        let definitions = crds(validation).map(|crd| serde_json::to_value(crd).unwrap());
        definitions.into_iter().map(|definition| self.renamed(definition)).collect()
    }

    /// Returns existing definitions for the group.
    pub(crate) fn definitions_of(&self, yaml: &str) -> Vec<Value> {
        let definitions = serde_saphyr::from_multiple(yaml).unwrap();
        definitions.into_iter().map(|definition| self.renamed(definition)).collect()
    }

    fn renamed(&self, mut definition: Value) -> Value {
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap().to_owned();
        definition["metadata"]["name"] = format!("{plural}.{}", self.group).into();
        definition["spec"]["group"] = self.group.clone().into();
        definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
        definition["kind"] = "CustomResourceDefinition".into();
        definition
    }

    /// Returns the API of a kind.
    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = match kind {
            "ObjectBucketClaim" => ObjectBucketClaim::api_resource(),
            _ => ObjectBucket::api_resource(),
        };
        let kind = GroupVersionKind::gvk(&self.group, VERSION, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &resource.plural);
        match kind.kind.as_str() {
            "ObjectBucketClaim" => Api::namespaced_with(self.client.clone(), &self.namespace, &resource),
            _ => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Returns the object as a client would send it to this group, with the given name.
    fn sent(&self, mut object: Value, name: &str) -> Value {
        object["apiVersion"] = format!("{}/{VERSION}", self.group).into();
        if object["kind"] == "ObjectBucketClaim" {
            object["metadata"]["namespace"] = self.namespace.clone().into();
        }
        let meta = object["metadata"].as_object_mut().unwrap();
        for field in ["uid", "resourceVersion", "generation", "finalizers"] {
            meta.remove(field);
        }
        // Go clients send this `null`.
        meta.insert("creationTimestamp".to_owned(), Value::Null);
        meta.insert("name".to_owned(), name.into());
        object
    }

    async fn create(&self, object: &Value) -> kube::Result<DynamicObject> {
        let kind = object["kind"].as_str().unwrap();
        self.api(kind).create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await
    }

    /// Creates the object, and then its status, as Go writers do. Returns the object stored by the server.
    async fn write(&self, object: &Value) -> kube::Result<DynamicObject> {
        let mut made = self.create(object).await?;
        let has_phase = object["status"]["phase"].as_str().is_some_and(|phase| !phase.is_empty());
        if has_phase || object["status"].get("conditions").is_some() {
            made.data["status"] = object["status"].clone();
            let api = self.api(object["kind"].as_str().unwrap());
            made = api.replace_status(&made.name_any(), &PostParams::default(), &made).await?;
        }
        self.api(object["kind"].as_str().unwrap()).get(&made.name_any()).await
    }

    fn name(&self, index: usize, what: &str) -> String {
        format!("{}-{what}-{index}", self.namespace)
    }

    /// Checks that all objects of other provisioners can be written again without loss, that our types read the same
    /// from the server as from the fixture, and that the server accepts what they write.
    pub(crate) async fn takes_what_others_left(&self, prunes_claim_ref: bool) {
        for (index, (kind, fixture)) in LEFT.into_iter().enumerate() {
            let mut object = self.sent(serde_json::from_str(fixture).unwrap(), &self.name(index, "left"));
            let found = self.write(&object).await.unwrap();
            if prunes_claim_ref && kind == "ObjectBucket" {
                object["spec"]["claimRef"] = json!({});
            }
            assert_eq!(found.data["spec"], object["spec"], "{fixture}");
            assert_eq!(found.data["status"], object["status"], "{fixture}");
            assert_eq!(types_read(kind, &found)["spec"], read_and_written(kind, &object)["spec"]);

            let mut ours = self.sent(read_and_written(kind, &object), &self.name(index, "ours"));
            ours["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
            let found = self.write(&ours).await.unwrap();
            assert_eq!(found.data["spec"], ours["spec"], "{fixture}");
            assert_eq!(found.data["status"], ours["status"], "{fixture}");
        }
    }

    /// Checks that every `null` of Go writers is accepted. The server drops values that a schema does not allow; our
    /// CRDs keep all values.
    pub(crate) async fn takes_nulls(&self, keeps_them: bool) {
        for (index, (kind, fixture)) in NULLS.into_iter().enumerate() {
            let object = self.sent(serde_json::from_str(fixture).unwrap(), &self.name(index, "nulls"));
            let found = self.write(&object).await.unwrap();
            if keeps_them {
                assert_eq!(found.data["spec"], object["spec"], "{fixture}");
            }
            types_read(kind, &found);
        }
    }

    /// Checks that our schemas keep conditions and any other field in the status, but no unknown field in the spec.
    pub(crate) async fn keeps_status_apart(&self) {
        let claim = json!({"kind": "ObjectBucketClaim", "metadata": {}, "status": {"phase": "Bound"},
            "spec": {"storageClassName": "fast", "unknown": 1, "additionalConfig": {"": ""}}});
        let claim = self.sent(claim, &self.name(0, "status"));
        let made = self.create(&claim).await.unwrap();
        assert_eq!(made.data["spec"], json!({"storageClassName": "fast", "additionalConfig": {"": ""}}));
        assert_eq!(made.data.get("status"), None, "creating does not set the status");

        let condition = json!({"type": "Ready", "status": "False", "reason": "Denied", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1});
        let status = json!({"phase": "Odd", "conditions": [condition], "observedGeneration": 1, "theirs": {"a": 1}});
        let mut changed = made.clone();
        changed.data["status"] = status.clone();
        changed.data["spec"]["storageClassName"] = "slow".into();
        let api = self.api("ObjectBucketClaim");
        let name = made.name_any();
        let found = api.replace_status(&name, &PostParams::default(), &changed).await.unwrap();
        assert_eq!((&found.data["spec"], &found.data["status"]), (&made.data["spec"], &status));
        assert_eq!(types_read("ObjectBucketClaim", &found)["status"]["conditions"], json!([condition]));

        let mut changed = found.clone();
        changed.data.as_object_mut().unwrap().remove("status");
        changed.data["spec"]["additionalConfig"] = Value::Null;
        let found = api.replace(&name, &PostParams::default(), &changed).await.unwrap();
        assert_eq!(found.data["spec"], json!({"storageClassName": "fast", "additionalConfig": null}));
        assert_eq!((&found.data["status"], found.metadata.generation), (&status, Some(2)));

        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "Perhaps"}]}});
        let refused = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        assert_refused(refused, "status.conditions[0]");
    }

    /// Checks values that both our schemas refuse.
    pub(crate) async fn refuses_nonsense(&self) {
        let specs = [
            (json!({}), "spec.storageClassName: Required value"),
            (json!({"storageClassName": null}), "spec.storageClassName"),
            (json!({"storageClassName": "fast", "additionalConfig": {"maxObjects": 1}}), "must be of type string"),
        ];
        for (index, (spec, why)) in specs.into_iter().enumerate() {
            let claim = json!({"kind": "ObjectBucketClaim", "metadata": {}, "spec": spec});
            assert_refused(self.create(&self.sent(claim, &self.name(index, "nonsense"))).await, why);
        }
        let none = self.sent(json!({"kind": "ObjectBucketClaim", "metadata": {}}), &self.name(9, "nonsense"));
        assert_refused(self.create(&none).await, "spec: Required value");
    }

    /// Checks that a provisioner or its user may change any part of a claim that no rule protects.
    pub(crate) async fn takes_changes(&self) {
        let spec = json!({"storageClassName": "fast", "bucketName": "photos", "objectBucketName": "obc-a-b"});
        let change = json!({"storageClassName": "slow", "bucketName": "Any_Name", "objectBucketName": null});
        let found = self.change("changed", spec, change).await.unwrap();
        assert_eq!(found.data["spec"], json!({"storageClassName": "slow", "bucketName": "Any_Name"}));
    }

    /// Creates a claim with this `spec`, then applies the change, and returns the server's response.
    pub(crate) async fn change(&self, name: &str, spec: Value, change: Value) -> kube::Result<DynamicObject> {
        let name = format!("{}-{name}", self.namespace);
        let claim = json!({"kind": "ObjectBucketClaim", "metadata": {}, "spec": spec});
        self.create(&self.sent(claim, &name)).await?;
        let patch = Patch::Merge(json!({"spec": change}));
        self.api("ObjectBucketClaim").patch(&name, &PatchParams::default(), &patch).await
    }

    /// Checks values that the schema of `Strict` refuses beyond `Standard`, apart from its rules on changes.
    pub(crate) async fn refuses_bad_names(&self) {
        let specs = [
            (json!({"storageClassName": ""}), "spec.storageClassName"),
            (json!({"storageClassName": "fast", "bucketName": "a".repeat(254)}), "spec.bucketName"),
            (json!({"storageClassName": "fast", "generateBucketName": "-photos"}), "spec.generateBucketName"),
        ];
        for (index, (spec, why)) in specs.into_iter().enumerate() {
            let claim = json!({"kind": "ObjectBucketClaim", "metadata": {}, "spec": spec});
            assert_refused(self.create(&self.sent(claim, &self.name(index, "names"))).await, why);
        }
        // The name of an existing bucket, which provisioners copy from the class.
        let existing = json!({"storageClassName": "fast", "bucketName": "Photos_of.2019"});
        let claim = json!({"kind": "ObjectBucketClaim", "metadata": {}, "spec": existing});
        self.create(&self.sent(claim, &self.name(9, "names"))).await.unwrap();
    }
}

/// Asserts that the server refused the request as invalid with this message.
pub(crate) fn assert_refused(answer: kube::Result<DynamicObject>, why: &str) {
    match answer {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 422, "{status:?}");
            assert!(status.message.contains(why), "{why:?} is not in {:?}", status.message);
        }
        other => panic!("expected a refusal with {why:?}: {other:?}"),
    }
}

fn types_read(kind: &str, found: &DynamicObject) -> Value {
    read_and_written(kind, &serde_json::to_value(found).unwrap())
}

fn read_and_written(kind: &str, object: &Value) -> Value {
    let mut back = match kind {
        "ObjectBucketClaim" => serde_json::to_value(ObjectBucketClaim::deserialize(object).unwrap()).unwrap(),
        _ => serde_json::to_value(ObjectBucket::deserialize(object).unwrap()).unwrap(),
    };
    assert_eq!(back["apiVersion"], format!("{GROUP}/{VERSION}"));
    assert!(!back["spec"].to_string().contains("null"), "{back}");
    back["kind"] = kind.into();
    back
}
