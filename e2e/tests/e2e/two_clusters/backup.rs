//! Backups of a cluster's objects, as Velero creates and restores them.

use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt};
use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use serde_json::{Value, json};
use testbed::cluster::{TestSpace, eventually};

const LIMIT: Duration = Duration::from_secs(60);
/// The controller manager creates it in every namespace.
const CERTIFICATES: &str = "kube-root-ca.crt";

/// The objects of a test's namespace, and the cluster-scoped objects of its classes.
#[derive(Clone)]
pub(crate) struct Backup(Vec<Value>);

/// The state of restored volumes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Volumes {
    /// Bound again to the claims of their names, like Velero does.
    Bindable,
    /// Every second one contains the uid of its former claim, like after `kubectl apply`: Kubernetes considers it
    /// released.
    EverySecondReleased,
}

impl Backup {
    /// The objects that `kubectl get --output json` currently returns.
    pub(crate) async fn of(space: &TestSpace) -> anyhow::Result<Self> {
        let mut objects = Vec::new();
        for kind in kinds() {
            objects.extend(list(space, &kind).await?.into_iter().map(|object| json!(object)));
        }
        Ok(Self(objects))
    }

    /// Replaces the journals: a backup reads one kind after the other, so a journal may be older than the claims and
    /// volumes.
    pub(crate) fn with_journals(mut self, journals: Vec<Value>) -> Self {
        let named = |object: &Value| (object["kind"].clone(), object["metadata"]["name"].clone());
        self.0.retain(|object| journals.iter().all(|journal| named(journal) != named(object)));
        self.0.extend(journals);
        self
    }

    /// Creates the objects with new uids and without status. Returns the number of objects that already existed and
    /// were left unchanged.
    pub(crate) async fn restore(&self, space: &TestSpace, volumes: Volumes) -> anyhow::Result<usize> {
        let mut there = 0;
        let mut number = 0;
        for kind in kinds() {
            for object in self.0.iter().filter(|object| object["kind"] == kind.kind.as_str()) {
                number += 1;
                let keeps_claim = volumes == Volumes::EverySecondReleased && number % 2 == 0;
                let object: DynamicObject = serde_json::from_value(as_restored(object, keeps_claim)?)?;
                match api(space, &kind, object.namespace().is_some()).create(&PostParams::default(), &object).await {
                    Err(kube::Error::Api(status)) if status.is_already_exists() => there += 1,
                    created => {
                        created.with_context(|| format!("cannot restore {} {}", kind.kind, object.name_any()))?;
                    }
                }
            }
        }
        Ok(there)
    }
}

/// Removes all objects of the test's namespace and classes while no provisioner runs, as if the cluster had been lost.
pub(crate) async fn wipe(space: &TestSpace) -> anyhow::Result<()> {
    let kinds: Vec<_> = kinds().into_iter().chain([ApiResource::erase::<Lease>(&())]).collect();
    let mut left = Vec::new();
    let gone = eventually(LIMIT, async || {
        left.clear();
        for kind in &kinds {
            for object in list(space, kind).await? {
                let (api, name) = (api(space, kind, object.namespace().is_some()), object.name_any());
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                for refused in [
                    api.delete(&name, &DeleteParams::default()).await.err(),
                    api.patch_metadata(&name, &PatchParams::default(), &none).await.err(),
                ] {
                    let is_gone = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
                    if let Some(error) = refused.filter(|error| !is_gone(error)) {
                        return Err(error).with_context(|| format!("cannot remove {} {name}", kind.kind));
                    }
                }
                left.push(format!("{} {name}", kind.kind));
            }
        }
        Ok(left.is_empty().then_some(()))
    });
    ensure!(gone.await?.is_some(), "the cluster still has {left:?}");
    Ok(())
}

/// The kinds in the order in which Velero restores them.
fn kinds() -> [ApiResource; 6] {
    [
        ApiResource::erase::<PersistentVolume>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<Secret>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<ObjectBucketClaim>(&()),
        ApiResource::erase::<ObjectBucket>(&()),
    ]
}

fn is_cluster_wide(kind: &ApiResource) -> bool {
    ["PersistentVolume", "ObjectBucket"].contains(&kind.kind.as_str())
}

fn api(space: &TestSpace, kind: &ApiResource, namespaced: bool) -> Api<DynamicObject> {
    if namespaced {
        Api::namespaced_with(space.client(), space.namespace(), kind)
    } else {
        Api::all_with(space.client(), kind)
    }
}

/// The objects of a kind that belong to this test.
pub(crate) async fn list(space: &TestSpace, kind: &ApiResource) -> anyhow::Result<Vec<DynamicObject>> {
    let listed = api(space, kind, !is_cluster_wide(kind)).list(&ListParams::default()).await;
    let mut objects = match listed {
        // Without the CRDs of buckets, there are no objects.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
        listed => listed.with_context(|| format!("cannot list {}", kind.plural))?.items,
    };
    let of_class = |object: &DynamicObject| {
        let class = object.data["spec"]["storageClassName"].as_str().unwrap_or_default();
        class.starts_with(space.namespace())
    };
    objects.retain(|object| if is_cluster_wide(kind) { of_class(object) } else { object.name_any() != CERTIFICATES });
    for object in &mut objects {
        object.types = Some(kube::core::TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
    }
    Ok(objects)
}

/// Removes the fields that Velero removes, including those that bind claims and volumes:
/// <https://github.com/vmware-tanzu/velero/blob/main/pkg/restore/restore.go>.
fn as_restored(object: &Value, keeps_claim: bool) -> anyhow::Result<Value> {
    const OF_SERVER: [&str; 8] = [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "ownerReferences",
    ];
    const OF_BINDING: [&str; 2] = ["pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"];
    let mut object = object.clone();
    object.as_object_mut().context("not an object")?.remove("status");
    let metadata = object["metadata"].as_object_mut().context("no metadata")?;
    metadata.retain(|field, _| !OF_SERVER.contains(&field.as_str()));
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|name, _| !OF_BINDING.contains(&name.as_str()));
    }
    if object["kind"] == "PersistentVolume"
        && !keeps_claim
        && let Some(claim) = object["spec"]["claimRef"].as_object_mut()
    {
        claim.retain(|field, _| !["uid", "resourceVersion"].contains(&field.as_str()));
    }
    Ok(object)
}
