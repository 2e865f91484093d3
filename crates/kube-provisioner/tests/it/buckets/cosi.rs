//! The provisioner of the tests as a COSI driver on a socket, with exactly the permissions in its manifests.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Parser;
use driver_rpc::cosi::v1alpha1;
use driver_rpc::cosi::v1alpha1::Provisioner as V1;
use driver_rpc::cosi::v1alpha2::Provisioner as V2;
use driver_rpc::cosi::v1alpha2::{
    AccessMode, AuthenticationType, DriverCreateBucketRequest, DriverDeleteBucketRequest,
    DriverGetExistingBucketRequest, DriverGrantBucketAccessRequest, DriverRevokeBucketAccessRequest, ObjectProtocol,
    S3CredentialInfo, driver_grant_bucket_access_request as grant, driver_revoke_bucket_access_request as revoke,
};
use driver_rpc::{Client, Code, Error};
use kube_provisioner::bucket::{BucketProvisioner, Credentials};
use kube_provisioner::rbac::{Account, cosi_rules, manifests};
use kube_provisioner::{BucketOptions, CancellationToken, CosiDriver, RunError};
use kube_sim::Cluster;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::store::{Failure, Store};

const NAMESPACE: &str = "storage";

struct Bed {
    cluster: Cluster,
    store: Store,
    options: BucketOptions,
    folder: TempDir,
    driver: Option<JoinHandle<Result<(), RunError>>>,
}

impl Bed {
    async fn new() -> Self {
        let cluster = Cluster::builder().rbac().build();
        let folder = tempfile::tempdir().unwrap();
        let mut options = BucketOptions::new("example.com/bucket");
        options.options.namespace = Some(NAMESPACE.to_owned());
        options.cosi_endpoint = Some(folder.path().join("cosi.sock").display().to_string().parse().unwrap());
        for name in [NAMESPACE, "secrets"] {
            cluster.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).unwrap();
        }
        let rules = cosi_rules(&options.options, &Store::capabilities());
        let account = Account { name: "driver", namespace: NAMESPACE };
        manifests(&account, &rules).iter().for_each(|object| drop(cluster.create(object).unwrap()));
        let mut bed = Self { cluster, store: Store::default(), options, folder, driver: None };
        bed.restart().await;
        bed
    }

    /// Ends the driver as in a crash, and starts another one.
    async fn restart(&mut self) {
        if let Some(former) = self.driver.take() {
            former.abort();
            let _ = former.await;
        }
        let client = self.cluster.client(&format!("system:serviceaccount:{NAMESPACE}:driver"));
        let driver = CosiDriver::new(self.store.clone(), self.options.clone());
        let _ = std::fs::remove_file(self.folder.path().join("cosi.sock"));
        self.driver = Some(tokio::spawn(driver.run_with(client, CancellationToken::new())));
        while !self.folder.path().join("cosi.sock").exists() {
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn client(&self) -> Client {
        Client::new(self.options.cosi_endpoint.clone().unwrap()).with_timeout(Duration::from_secs(10))
    }

    async fn create(&self, name: &str) -> Result<String, Error> {
        self.create_with(name, &[]).await
    }

    async fn create_with(&self, name: &str, parameters: &[(&str, &str)]) -> Result<String, Error> {
        let request = DriverCreateBucketRequest { name: name.into(), protocols: vec![], parameters: texts(parameters) };
        Ok(V2::driver_create_bucket(&self.client(), request).await?.bucket_id)
    }

    async fn delete(&self, id: &str) -> Result<(), Error> {
        let request = DriverDeleteBucketRequest { bucket_id: id.into(), parameters: texts(&[]) };
        V2::driver_delete_bucket(&self.client(), request).await.map(drop)
    }

    async fn grant(&self, request: DriverGrantBucketAccessRequest) -> Result<S3CredentialInfo, Error> {
        let answer = V2::driver_grant_bucket_access(&self.client(), request).await?;
        Ok(answer.credentials.unwrap().s3.unwrap())
    }

    async fn revoke(&self, account: &str, buckets: &[&str], parameters: &[(&str, &str)]) -> Result<(), Error> {
        let bucket = |id: &&str| revoke::AccessedBucket { bucket_id: (*id).to_owned() };
        let request = DriverRevokeBucketAccessRequest {
            account_id: account.into(),
            parameters: texts(parameters),
            buckets: buckets.iter().map(bucket).collect(),
            ..Default::default()
        };
        V2::driver_revoke_bucket_access(&self.client(), request).await.map(drop)
    }

    fn records(&self) -> Vec<Value> {
        self.cluster.list("", "secrets", Some(NAMESPACE)).unwrap()
    }

    fn assert_empty(&self) {
        assert!(self.store.is_empty(), "{:?}", self.store.assets());
        assert_eq!(self.records(), Vec::<Value>::new());
    }
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns a request for read-write access with a key.
fn access(account: &str, buckets: &[&str]) -> DriverGrantBucketAccessRequest {
    let mode = Some(AccessMode { mode: 1 });
    let bucket = |id: &&str| grant::AccessedBucket { bucket_id: (*id).to_owned(), access_mode: mode };
    DriverGrantBucketAccessRequest {
        account_name: account.into(),
        protocol: Some(ObjectProtocol { r#type: 1 }),
        authentication_type: Some(AuthenticationType { r#type: 1 }),
        service_account_name: String::new(),
        parameters: texts(&[]),
        buckets: buckets.iter().map(bucket).collect(),
    }
}

fn with(parameters: &[(&str, &str)], request: DriverGrantBucketAccessRequest) -> DriverGrantBucketAccessRequest {
    DriverGrantBucketAccessRequest { parameters: texts(parameters), ..request }
}

/// Returns a request of `v1alpha1`, whose context is empty when access is revoked.
fn first(account: &str, bucket: &str) -> v1alpha1::DriverGrantBucketAccessRequest {
    v1alpha1::DriverGrantBucketAccessRequest {
        bucket_id: bucket.into(),
        name: account.into(),
        authentication_type: 1,
        parameters: texts(&[]),
    }
}

#[track_caller]
fn refused<A: std::fmt::Debug>(answer: Result<A, Error>, code: Code, part: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[tokio::test]
async fn driver_passes_the_sanity_checks_of_both_versions() {
    for shows_keys_once in [false, true] {
        let bed = Bed::new().await;
        bed.store.state().shows_keys_once = shows_keys_once;
        bed.store.state().pauses = ["create_bucket", "delete_bucket", "grant", "revoke"]
            .map(|method| (method, Duration::from_millis(5)))
            .into();
        let endpoint = bed.options.cosi_endpoint.as_ref().unwrap().to_string();
        let elsewhere = ["--other-bucket-parameters", "host=elsewhere", "--other-access-parameters", "host=elsewhere"];
        let options = ["sanity", "--endpoint", &endpoint].into_iter().chain(elsewhere);
        let options = cosi_sanity::Options::parse_from(options);
        let report = cosi_sanity::run(&options, |_| {}, std::future::pending()).await.unwrap();
        assert!(report.is_success(), "{report}");
        let skipped: Vec<_> =
            report.checks.iter().filter(|ran| matches!(ran.outcome, cosi_sanity::Outcome::Skipped(_))).collect();
        // The restarts are tested below.
        assert!(skipped.iter().all(|ran| ["restart/access", "restart/bucket"].contains(&ran.name)));
        bed.assert_empty();
    }
}

#[tokio::test]
async fn an_account_keeps_its_key_over_restarts() {
    let mut bed = Bed::new().await;
    bed.store.state().shows_keys_once = true;
    bed.create("photos").await.unwrap();
    let before = bed.grant(access("ba-1", &["photos"])).await.unwrap();
    bed.restart().await;
    assert_eq!(bed.grant(access("ba-1", &["photos"])).await.unwrap(), before);
    assert_eq!(bed.records().len(), 1);
    // After the key was deleted, a new key is created and recorded.
    bed.store.state().users.values_mut().for_each(Vec::clear);
    let after = bed.grant(access("ba-1", &["photos"])).await.unwrap();
    assert_ne!(after, before);
    bed.restart().await;
    assert_eq!(bed.grant(access("ba-1", &["photos"])).await.unwrap(), after);
    // Without its record, the account receives another key, which replaces the former one.
    let record = bed.records().remove(0);
    let name = record["metadata"]["name"].as_str().unwrap();
    let target = kube_sim::Target { plural: "secrets", namespace: NAMESPACE, name, ..Default::default() };
    bed.cluster.delete(&target, Default::default()).unwrap();
    let anew = bed.grant(access("ba-1", &["photos"])).await.unwrap();
    let keys = bed.store.state().users["obc-access.ba-1"].clone();
    assert_eq!(keys, [Credentials::new(anew.access_key_id, anew.access_secret_key)]);
    bed.revoke("ba-1", &["photos"], &[]).await.unwrap();
    bed.delete("photos").await.unwrap();
    bed.assert_empty();
}

#[tokio::test]
async fn crashes_at_any_time_leave_nothing_behind() {
    let mut bed = Bed::new().await;
    bed.store.state().shows_keys_once = true;
    bed.store.state().pauses =
        ["create_bucket", "delete_bucket", "grant", "revoke"].map(|method| (method, Duration::from_millis(3))).into();
    for step in 0..12 {
        let moment = Duration::from_millis(step);
        let _ = timeout(moment, bed.create("photos")).await;
        bed.restart().await;
        bed.create("photos").await.unwrap();
        let _ = timeout(moment, bed.grant(access("ba-1", &["photos"]))).await;
        bed.restart().await;
        let key = bed.grant(access("ba-1", &["photos"])).await.unwrap();
        let keys = bed.store.state().users["obc-access.ba-1"].clone();
        assert_eq!(keys, [Credentials::new(key.access_key_id, key.access_secret_key)], "{step}");
        let _ = timeout(moment, bed.revoke("ba-1", &["photos"], &[])).await;
        bed.restart().await;
        bed.revoke("ba-1", &["photos"], &[]).await.unwrap();
        let _ = timeout(moment, bed.delete("photos")).await;
        bed.restart().await;
        bed.delete("photos").await.unwrap();
        bed.assert_empty();
    }
}

#[tokio::test]
async fn foreign_buckets_are_refused_and_kept() {
    let bed = Bed::new().await;
    let claims = "obc-shop-photos-00000000-0000-4000-8000-000000000001";
    bed.store.state().buckets.insert("photos".to_owned(), claims.to_owned());
    bed.store.state().users.insert(claims.to_owned(), vec![Credentials::new("id", "key")]);
    let before = bed.store.assets();
    refused(bed.create("photos").await, Code::AlreadyExists, "belongs to obc-shop");
    bed.delete("photos").await.unwrap();
    refused(bed.grant(access("ba-1", &["photos"])).await, Code::InvalidArgument, "set existingBuckets to");
    bed.revoke("ba-1", &["photos"], &[]).await.unwrap();
    assert_eq!(bed.store.assets(), before);
    assert_eq!(bed.records(), Vec::<Value>::new(), "no access was granted, so none is recorded");

    let asked = |id: &str| DriverGetExistingBucketRequest { existing_bucket_id: id.into(), ..Default::default() };
    bed.client().driver_get_existing_bucket(asked("photos")).await.unwrap();
    refused(bed.client().driver_get_existing_bucket(asked("films")).await, Code::NotFound, "films");
    let existing = [("existingBuckets", "true")];
    bed.grant(with(&existing, access("ba-1", &["photos"]))).await.unwrap();
    assert!(bed.store.assets().contains(&"obc-access.ba-1 may use photos".to_owned()));
    bed.revoke("ba-1", &["photos"], &existing).await.unwrap();
    assert_eq!(bed.store.assets(), before);
    let typo = [("existingBuckets", "yes")];
    refused(bed.grant(with(&typo, access("ba-1", &["photos"]))).await, Code::InvalidArgument, "true or false");
}

#[tokio::test]
async fn bucket_settings_are_class_parameters() {
    let bed = Bed::new().await;
    let (limited, wrong) = ([("maxObjects", "5")], [("maxObjects", "many")]);
    bed.create_with("photos", &limited).await.unwrap();
    assert_eq!(bed.store.state().configs["photos"], Some(5));
    refused(bed.create_with("films", &wrong).await, Code::InvalidArgument, "maxObjects");
    // An access must not set the bucket's options, and a bucket must not set an access's options.
    refused(bed.grant(with(&limited, access("ba-1", &["photos"]))).await, Code::InvalidArgument, "maxObjects");
    let keyless = [("authentication", "ServiceAccount")];
    refused(bed.create_with("films", &keyless).await, Code::InvalidArgument, "authentication");

    let asked = DriverGetExistingBucketRequest {
        existing_bucket_id: "photos".into(),
        parameters: texts(&limited),
        ..Default::default()
    };
    bed.client().driver_get_existing_bucket(asked).await.unwrap();
    let request = DriverDeleteBucketRequest { bucket_id: "photos".into(), parameters: texts(&limited) };
    V2::driver_delete_bucket(&bed.client(), request).await.unwrap();
    bed.assert_empty();
}

#[tokio::test]
async fn a_foreign_secret_is_not_touched() {
    let bed = Bed::new().await;
    bed.create("photos").await.unwrap();
    bed.grant(access("ba-1", &["photos"])).await.unwrap();
    let name = bed.records()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    bed.revoke("ba-1", &["photos"], &[]).await.unwrap();
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}});
    let other = bed.cluster.create(&other).unwrap();
    refused(bed.grant(access("ba-1", &["photos"])).await, Code::FailedPrecondition, &name);
    refused(bed.revoke("ba-1", &["photos"], &[]).await, Code::FailedPrecondition, &name);
    assert_eq!(bed.records(), [other]);
    assert!(!bed.store.assets().iter().any(|asset| asset.contains("ba-1")));
}

#[tokio::test]
async fn bad_input_changes_nothing() {
    let bed = Bed::new().await;
    let secret = |name| [("adminSecretName", name), ("adminSecretNamespace", "secrets")];
    for (parameters, code, part) in [
        (&[("hots", "x")][..], Code::InvalidArgument, "hots"),
        (&[("bucketName", "x")], Code::InvalidArgument, "bucketName"),
        (&secret("${pvc.name}"), Code::InvalidArgument, "which COSI does not provide"),
        (&secret("missing"), Code::FailedPrecondition, "secrets/missing"),
    ] {
        refused(bed.create_with("photos", parameters).await, code, part);
        refused(bed.grant(with(parameters, access("ba-1", &["photos"]))).await, code, part);
    }
    refused(bed.create("../photos").await, Code::InvalidArgument, "name");
    let mut of_pods = access("ba-1", &["photos"]);
    (of_pods.authentication_type, of_pods.service_account_name) =
        (Some(AuthenticationType { r#type: 2 }), "web".into());
    refused(bed.grant(of_pods).await, Code::InvalidArgument, "use Key");
    let of_pods = v1alpha1::DriverGrantBucketAccessRequest { authentication_type: 2, ..first("ba-1", "photos") };
    refused(V1::driver_grant_bucket_access(&bed.client(), of_pods).await, Code::InvalidArgument, "use Key");
    refused(bed.grant(access("ba-1", &["photos", "photos"])).await, Code::InvalidArgument, "twice");
    // The bucket does not exist, so the author has not created anything.
    refused(bed.grant(access("ba-1", &["photos"])).await, Code::InvalidArgument, "the bucket photos does not exist");
    bed.assert_empty();
}

#[tokio::test]
async fn reads_the_secret_that_the_class_names() {
    let bed = Bed::new().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "secrets"}});
    bed.cluster.create(&secret).unwrap();
    let parameters = [("adminSecretName", "admin"), ("adminSecretNamespace", "secrets")];
    assert_eq!(bed.create_with("photos", &parameters).await.unwrap(), "photos");
}

#[tokio::test]
async fn v1alpha1_revokes_the_recorded_access() {
    let bed = Bed::new().await;
    bed.create("photos").await.unwrap();
    let granted = V1::driver_grant_bucket_access(&bed.client(), first("ba-1", "photos")).await.unwrap();
    let entries: Vec<_> = granted.credentials.keys().collect();
    assert_eq!(entries, ["s3"]);
    let secrets = &granted.credentials["s3"].secrets;
    assert_eq!(secrets.get("endpoint"), Some("https://store.example.com"));
    // The sidecar treats the code ALREADY_EXISTS as success.
    let other = v1alpha1::DriverGrantBucketAccessRequest {
        parameters: texts(&[("host", "elsewhere")]),
        ..first("ba-1", "photos")
    };
    refused(V1::driver_grant_bucket_access(&bed.client(), other).await, Code::FailedPrecondition, "create it again");
    let revoke = v1alpha1::DriverRevokeBucketAccessRequest {
        bucket_id: "photos".into(),
        account_id: granted.account_id,
        revoke_access_context: texts(&[]),
    };
    for _ in 0..2 {
        V1::driver_revoke_bucket_access(&bed.client(), revoke.clone()).await.unwrap();
    }
    bed.delete("photos").await.unwrap();
    bed.assert_empty();
}

#[tokio::test]
async fn repeated_calls_succeed_after_failures() {
    let bed = Bed::new().await;
    let failures = [Failure::Retry, Failure::Panic, Failure::Late, Failure::NothingLeft];
    bed.store.state().failures.insert("create_bucket", failures.to_vec());
    for _ in failures {
        let code = bed.create("photos").await.unwrap_err().code();
        assert!([Code::Unavailable, Code::Internal].contains(&code), "{code:?}");
    }
    bed.create("photos").await.unwrap();
    bed.store.state().failures.insert("grant", failures.to_vec());
    for _ in failures {
        let code = bed.grant(access("ba-1", &["photos"])).await.unwrap_err().code();
        assert!([Code::Unavailable, Code::Internal].contains(&code), "{code:?}");
    }
    bed.grant(access("ba-1", &["photos"])).await.unwrap();
    bed.store.state().failures.insert("revoke", vec![Failure::Retry]);
    refused(bed.revoke("ba-1", &["photos"], &[]).await, Code::Unavailable, "");
    assert_eq!(bed.records().len(), 1, "the record exists as long as the account");
    bed.revoke("ba-1", &["photos"], &[]).await.unwrap();
    bed.delete("photos").await.unwrap();
    bed.assert_empty();
}
