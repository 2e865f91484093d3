//! Tests of the comparison, and of the command on an in-memory cluster and backend.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_sim::{Cluster, DeleteOptions, Target};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::bucket::{
    Account, AssetKind, Assets, Bucket, BucketCapabilities, BucketHooks, BucketProvisioner, ClaimName, DeletionPolicy,
    GrantOf, Granted, GrantedAccount, MarkedCluster, ProvisionedBucket, RequestOf,
};
use crate::{DeleteError, ProvisionError};

const UID: &str = "00000000-0000-4000-8000-000000000001";
const OTHER_UID: &str = "00000000-0000-4000-8000-000000000002";

/// A backend with some assets. Buckets whose names begin with `full` contain objects, and the deletion of `slow` takes
/// three calls.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Vec<Asset>>>, Arc<AtomicUsize>);

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parameters {
    #[serde(default)]
    deletion_policy: DeletionPolicy,
}

impl BucketProvisioner for Store {
    type Parameters = Parameters;
    type Config = ();

    async fn create_bucket(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        Err(ProvisionError::retry("not asked for"))
    }

    async fn delete_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let keeps = bucket.parameters.unwrap().deletion_policy == DeletionPolicy::DeleteIfEmpty;
        if keeps && bucket.name.starts_with("full") {
            return Err(DeletionPolicy::not_empty(&bucket.name));
        }
        if bucket.name == "slow" && self.1.fetch_add(1, Ordering::Relaxed) < 2 {
            return Err(DeleteError::in_progress("its objects are being deleted"));
        }
        self.0.lock().unwrap().retain(|asset| asset.kind != AssetKind::Bucket || asset.name != bucket.name);
        Ok(())
    }

    async fn grant(&self, _: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        Err(ProvisionError::retry("not asked for"))
    }

    async fn revoke(&self, known: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        self.0.lock().unwrap().retain(|asset| asset.kind != AssetKind::Account || asset.owner != known.account);
        Ok(())
    }

    fn capabilities() -> BucketCapabilities {
        BucketCapabilities::default().assets()
    }
}

impl BucketHooks for Store {
    async fn list_assets(&self, _: ListAssets<Parameters>) -> Result<Assets, Box<dyn Error + Send + Sync>> {
        Ok(Assets { found: self.0.lock().unwrap().clone(), unread: Vec::new() })
    }
}

/// Returns a bucket and the account of its claim.
fn bucket_assets(bucket: &str, uid: &str) -> [Asset; 2] {
    let claim = ClaimName { namespace: "shop".into(), name: bucket.into(), uid: uid.into() };
    let asset = |kind, name: &str| Asset::new(kind, name, claim.clone(), MarkedCluster::This);
    [asset(AssetKind::Bucket, bucket), asset(AssetKind::Account, &Account::of(claim.clone()).name)]
}

struct Fixture {
    cluster: Cluster,
    store: Store,
}

impl Fixture {
    fn new(assets: impl IntoIterator<Item = Asset>) -> Self {
        Self::serving(&["ObjectBucketClaim", "ObjectBucket"], assets)
    }

    /// Creates a fixture whose cluster serves these kinds.
    fn serving(kinds: &[&str], assets: impl IntoIterator<Item = Asset>) -> Self {
        let cluster = Cluster::new();
        let definitions = objectbucket_api::crds(objectbucket_api::Validation::Standard);
        for definition in definitions.into_iter().filter(|definition| kinds.contains(&&*definition.spec.names.kind)) {
            cluster.create(&serde_json::to_value(definition).unwrap()).unwrap();
        }
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "example.com/b"});
        cluster.create(&class).unwrap();
        let assets = Arc::new(Mutex::new(assets.into_iter().collect()));
        Self { cluster, store: Store(assets, Arc::default()) }
    }

    fn object_bucket(&self, mut spec: Value, record: &str) {
        spec["storageClassName"] = "fast".into();
        let annotations = if record.is_empty() { json!({}) } else { json!({"kube-provisioner/bucket": record}) };
        let metadata = json!({"name": "obc-shop-photos", "annotations": annotations});
        let object = json!({"apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucket", "metadata": metadata, "spec": spec});
        self.cluster.create(&object).unwrap();
    }

    /// Returns the names of what remains after the command, and its error.
    async fn run(&self, orphans: Orphans) -> (Vec<String>, Option<String>) {
        let context = SearchContext {
            backend: &self.store,
            client: self.cluster.client("admin"),
            cluster_id: "c".to_owned(),
            names: vec!["example.com/b".to_owned()],
            driver: Some("b.example.com".to_owned()),
        };
        let console = Console { print: |_| {}, confirm: |_| Ok(false) };
        let error = orphans.run(&context, &console).await.err().map(|error| error.to_string());
        let left = self.store.0.lock().unwrap().iter().map(|asset| asset.name.clone()).collect();
        (left, error)
    }
}

fn delete() -> Orphans {
    Orphans { delete: true, yes: true, ..Orphans::default() }
}

#[tokio::test(start_paused = true)]
async fn removes_an_orphan_only_when_confirmed() {
    let fixture = Fixture::new(bucket_assets("photos", UID));
    assert_eq!(fixture.run(Orphans::default()).await.0.len(), 2);
    assert_eq!(fixture.run(Orphans { delete: true, ..Orphans::default() }).await.0.len(), 2, "without a confirmation");
    let unknown = Orphans { class: vec!["slow".to_owned()], ..delete() };
    assert!(fixture.run(unknown).await.1.unwrap().contains("no StorageClass of this provisioner is named slow"));
    assert_eq!(fixture.run(delete()).await, (Vec::new(), None));
}

#[tokio::test(start_paused = true)]
async fn removes_nothing_if_a_crd_is_missing() {
    for kinds in [&["ObjectBucket"][..], &["ObjectBucketClaim"], &[]] {
        let fixture = Fixture::serving(kinds, bucket_assets("photos", UID));
        assert_eq!(fixture.run(delete()).await.0.len(), 2, "{kinds:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn removes_a_bucket_with_objects_only_if_named() {
    let fixture = Fixture::new(bucket_assets("full-1", UID).into_iter().chain(bucket_assets("full-2", OTHER_UID)));
    let named = Orphans { with_objects: vec!["full-1".to_owned()], ..delete() };
    let (left, error) = fixture.run(named).await;
    assert!(left.len() == 2 && left.contains(&"full-2".to_owned()), "{left:?}");
    assert_eq!(error.as_deref(), Some("orphans that could not be removed: 1"));
}

#[tokio::test(start_paused = true)]
async fn repeats_an_unfinished_deletion_after_a_pause() {
    let (fixture, start) = (Fixture::new(bucket_assets("slow", UID)), Instant::now());
    assert_eq!(fixture.run(delete()).await, (Vec::new(), None));
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn keeps_assets_that_an_object_bucket_may_represent() {
    let record = json!({"source": "Provisioned", "claim": {"namespace": "shop", "name": "x", "uid": UID}}).to_string();
    let user = format!("obc-shop-photos-{UID}");
    for (spec, record) in [
        (json!({"endpoint": {"bucketName": "photos"}}), ""),
        (json!({"endpoint": {"bucketName": "other"}, "claimRef": {"namespace": "a", "name": "b", "uid": UID}}), ""),
        (json!({"endpoint": {"bucketName": "other"}, "claimRef": {"namespace": "shop", "name": "photos"}}), ""),
        (json!({"endpoint": {"bucketName": "other"}, "additionalState": {"cephUser": user}}), ""),
        (json!({"endpoint": {"bucketName": "other"}}), &*record),
        (json!({"endpoint": {"bucketName": "other"}}), "{"),
    ] {
        let fixture = Fixture::new(bucket_assets("photos", UID));
        fixture.object_bucket(spec.clone(), record);
        let (left, error) = fixture.run(delete()).await;
        assert_eq!(left.len(), 2, "{spec} {record}");
        assert_eq!(error.is_some(), record == "{", "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_assets_of_an_existing_claim() {
    let fixture = Fixture::new([]);
    let metadata = json!({"namespace": "default", "name": "photos"});
    let claim = json!({"apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "metadata": metadata,
        "spec": {"storageClassName": "fast", "bucketName": "photos"}});
    let claim = fixture.cluster.create(&claim).unwrap();
    let uid = claim["metadata"]["uid"].as_str().unwrap();
    fixture.store.0.lock().unwrap().extend(bucket_assets("photos", uid));
    assert_eq!(fixture.run(delete()).await.0.len(), 2);
}

#[test]
fn only_unneeded_assets_are_orphans() {
    let recorded = ClusterRecords { are_served: true, ..ClusterRecords::default() };
    let state = |change: &dyn Fn(&mut Asset)| {
        let mut assets = bucket_assets("photos", UID);
        change(&mut assets[0]);
        let found = assets.into_iter().map(|asset| ("fast".to_owned(), asset)).collect();
        sets(found).into_iter().next().unwrap().state(&recorded)
    };
    assert_eq!(state(&|_| {}), State::Orphan);
    let found = bucket_assets("photos", UID).into_iter().map(|asset| ("fast".to_owned(), asset)).collect();
    assert_eq!(report(&sets(found), &recorded, &[]).lines().last(), Some("0 in use, 1 orphan"));
    assert_eq!(state(&|asset| asset.retained = true), State::Retained);
    assert_eq!(state(&|asset| asset.cluster = MarkedCluster::Unknown), State::NoCluster);
    let other = MarkedCluster::Other("d".to_owned());
    assert_eq!(state(&|asset| asset.cluster = other.clone()), State::OtherCluster("d".to_owned()));
    for (namespace, uid) in [("", UID), ("shop", "ba-1"), ("shop", "")] {
        let claim = ClaimName { namespace: namespace.into(), name: "photos".into(), uid: uid.into() };
        let asset = Asset::new(AssetKind::Account, "a", claim, MarkedCluster::This);
        assert_eq!(sets(vec![("fast".to_owned(), asset)])[0].state(&recorded), State::Foreign);
    }
    let mut unreadable = recorded;
    unreadable.objects.unreadable.push("o".to_owned());
    let found = bucket_assets("photos", UID).into_iter().map(|asset| ("fast".to_owned(), asset)).collect();
    assert_eq!(sets(found)[0].state(&unreadable), State::Unreadable);
}

#[test]
fn adds_the_kind_to_a_class_name() {
    assert_eq!(["fast", "BucketAccessClass fast"].map(with_kind), ["StorageClass fast", "BucketAccessClass fast"]);
}

#[tokio::test(start_paused = true)]
async fn a_cosi_account_without_bucket_access_is_an_orphan() {
    let account = |name: &str| {
        let claim = ClaimName { namespace: String::new(), name: name.to_owned(), uid: format!("a.{name}") };
        Asset::new(AssetKind::Account, name, claim, MarkedCluster::This)
    };
    let fixture = Fixture::new(["ba-lost", "ba-granted", "ba-recorded"].map(account));
    let left = async || fixture.run(delete()).await.0;
    assert_eq!(left().await.len(), 3, "without COSI's CRDs nothing is removed");
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/cosi/v1alpha2");
    for definition in std::fs::read_dir(definitions).unwrap() {
        fixture.cluster.create_yaml(&std::fs::read_to_string(definition.unwrap().path()).unwrap()).unwrap();
    }
    let access = json!({
        "apiVersion": "objectstorage.k8s.io/v1alpha2", "kind": "BucketAccess",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "bucketClaims": [{"bucketClaimName": "photos", "accessMode": "ReadWrite", "accessSecretName": "web"}],
            "bucketAccessClassName": "fast", "protocol": "S3",
        },
    });
    fixture.cluster.create(&access).unwrap();
    let target =
        kube_sim::Target { group: "objectstorage.k8s.io", plural: "bucketaccesses", namespace: "default", name: "web" };
    let status = json!({"status": {"readyToUse": true, "accountID": "ba-granted"}});
    fixture.cluster.patch(&target, Some(kube_sim::Subresource::Status), kube_sim::PatchKind::Merge, &status).unwrap();
    let metadata = json!({
        "name": "cosi-access-1", "namespace": "default", "labels": {"app.kubernetes.io/component": "cosi-access"},
        "annotations": {"kube-provisioner/cosi-account": "ba-recorded", "kube-provisioner/cluster-id": "c"},
    });
    fixture.cluster.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).unwrap();
    assert_eq!(left().await, ["ba-granted"]);
    assert_eq!(fixture.cluster.list("", "secrets", Some("default")).unwrap(), Vec::<Value>::new(), "record deleted");
}

#[tokio::test]
async fn reports_a_provisioner_name_without_a_class() {
    let fixture = Fixture::new(bucket_assets("photos", "u"));
    let class = Target { group: "storage.k8s.io", plural: "storageclasses", namespace: "", name: "fast" };
    fixture.cluster.delete(&class, DeleteOptions::default()).unwrap();
    let (_, error) = fixture.run(Orphans::default()).await;
    assert_eq!(error.as_deref(), Some("no StorageClass names example.com/b, so there is no backend to search"));
}
