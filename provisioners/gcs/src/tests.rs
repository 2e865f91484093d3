//! Tests of the provisioner with a simulation of Google's services.

mod http;
mod keyless;
mod listing;
mod ownership;
mod pod;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use futures::future::join_all;
use gcs_sim::{Account, Faults, Key, PROJECT, Server};
use kube_provisioner::bucket::{BucketHooks, Credentials};
use kube_provisioner::conformance::{BucketClaim, BucketConformance};
use kube_provisioner::{DeleteVerdict, ProvisionError, ProvisionVerdict, Secrets, parameters};
use serde_json::json;

use crate::account::{account_id, email};
use crate::gcs::Gcs;
use crate::http::{Clients, Proxies};
use crate::parameters::{Config, Parameters};
use crate::store::{Defaults, Stores};
use crate::tests::pod::Pod;

type Claim = BucketClaim<Parameters, Config>;

impl Defaults {
    fn of(google: &Server) -> Self {
        Self {
            project: None,
            credentials_file: None,
            workload_identity: false,
            workload_identity_pool: None,
            endpoint: google.endpoint.parse().unwrap(),
            iam_endpoint: google.endpoint.parse().unwrap(),
            metadata_host: google.endpoint.trim_start_matches("http://").to_owned(),
            ca_bundle: None,
            call_timeout: Duration::from_secs(5),
        }
    }
}

/// Checks all rules concurrently, each with a separate simulation.
async fn conformance(faults: Faults, storms: u64) {
    join_all(BucketConformance::rules().map(|rule| check(rule, faults, storms))).await;
}

async fn check(rule: &'static str, faults: Faults, storms: u64) {
    let google = Server::start().await.unwrap();
    let admin = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
        "stringData": {"key.json": google.admin_key()},
    });
    google.model().faults = faults;
    let fixture = Fixture { gcs: Gcs::new(Defaults::of(&google), Proxies::default()), google: google.clone() };
    fixture.own_bucket("existing");
    let defaults = Defaults::of(&google);
    let (makes, removes) = (fixture, google.clone());
    let report = BucketConformance::new(
        move || Gcs::new(defaults.clone(), Proxies::default()),
        move || {
            let assets = google.assets();
            async move { assets }
        },
    )
    .parameters([("adminSecretName", "admin"), ("adminSecretNamespace", "default")])
    .existing_bucket("existing")
    .manually_created(
        move |name| {
            let is_free = !makes.google.model().buckets.contains_key(&name);
            if is_free {
                makes.own_bucket(&name);
            }
            std::future::ready(is_free)
        },
        move |name| {
            removes.model().buckets.remove(&name);
            std::future::ready(())
        },
    )
    .keys_shown_once()
    .objects([admin])
    .seeds(0..storms)
    .real_time()
    .only(rule)
    .run()
    .await;
    assert!(report.is_kept(), "{report}");
}

#[tokio::test]
async fn keeps_the_contract() {
    conformance(Faults::default(), 3).await;
}

#[tokio::test]
async fn keeps_the_contract_when_calls_fail() {
    let latency = Duration::from_millis(5);
    let faults =
        Faults { unavailable: 7, too_many: 11, cut_before: 13, cut_after: 17, latency, spreading: 1, hiding: 1 };
    conformance(faults, 1).await;
}

#[test]
fn rejects_invalid_flags_at_startup() {
    let parsed = |flag: &str, value: &str| {
        crate::Args::try_parse_from(["gcs-provisioner", "--provisioner-name", "gcs", flag, value])
    };
    for (flag, value, problem) in [
        ("--endpoint", "storage.googleapis.com", "expected an endpoint"),
        ("--endpoint", "http://store/storage", "has no path"),
        ("--iam-endpoint", "localhost:8080", "expected an endpoint"),
        ("--workload-identity-pool", "pool", "pool"),
    ] {
        let error = parsed(flag, value).map(drop).unwrap_err().to_string();
        assert!(error.contains(flag) && error.contains(problem), "{error}");
    }
    for (flag, value, problem) in [
        ("--ca-bundle", "/nonexistent/file", "cannot read /nonexistent/file: "),
        ("--credentials-file", "/nonexistent/file", "cannot read /nonexistent/file: "),
        ("--metadata-host", "http://metadata", "--metadata-host: "),
    ] {
        let error = parsed(flag, value).unwrap().defaults.check().unwrap_err().to_string();
        assert!(error.starts_with(problem), "{error}");
    }
}

/// The simulation, and a provisioner that uses it.
struct Fixture {
    gcs: Gcs,
    google: Server,
}

impl Fixture {
    async fn new() -> Self {
        let google = Server::start().await.unwrap();
        Self { gcs: Gcs::new(Defaults::of(&google), Proxies::default()), google }
    }

    fn secrets(&self) -> Secrets {
        Secrets::new([("admin", [("key.json", self.google.admin_key())])])
    }

    /// Returns a request for a claim and a bucket that both have this name.
    fn request(&self, name: &str, class: &[(&str, &str)]) -> Claim {
        let texts = class.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let parameters: Parameters = parameters::from_map(&texts).unwrap();
        let mut request = Claim::new(name, parameters, Config::default());
        request.claim.name = name.to_owned();
        request.claim.uid = format!("uid-of-{name}");
        request.secrets = self.secrets();
        request
    }

    /// Shows the hidden service accounts after the next lookup of one.
    async fn show_accounts_after_lookup(&self) {
        let lookups = || self.google.count("GET /v1/projects/");
        let before = lookups();
        while lookups() == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.google.model().accounts.values_mut().for_each(|account| account.hidden_for = 0);
    }

    fn s3(&self, key: &Option<Credentials>) -> Pod {
        let clients = Clients::new(Proxies::default(), Duration::from_secs(5));
        Pod { client: clients.get(&self.google.endpoint, None).unwrap(), key: key.clone().expect("there is a key") }
    }

    /// Creates a bucket in this project that belongs to no claim.
    fn own_bucket(&self, name: &str) {
        let mut model = self.google.model();
        let policy = json!({"version": 3, "bindings": [
            {"role": "roles/storage.legacyBucketOwner", "members": ["projectOwner:shop-project"]},
            {"role": "roles/storage.objectUser", "members": ["user:x@example.com"],
             "condition": {"title": "t", "expression": "true"}},
        ]});
        let bucket = gcs_sim::Bucket {
            project: PROJECT.to_owned(),
            metadata: json!({}),
            metageneration: 1,
            policy,
            policy_etag: 1,
            objects: Default::default(),
        };
        model.buckets.insert(name.to_owned(), bucket);
    }

    fn email_of(&self, request: &Claim) -> String {
        email(&account_id(&request.account().name), PROJECT)
    }
}

#[tokio::test]
async fn uses_the_first_project_that_is_not_empty() {
    let fixture = Fixture::new().await;
    let defaults = Defaults { project: Some("of-flag".to_owned()), ..Defaults::of(&fixture.google) };
    let stores = Stores::new(defaults, Proxies::default());
    for (recorded, of_class, used) in [
        (Some("recorded"), "of-class", "recorded"),
        (Some(""), "of-class", "of-class"),
        (None, "of-class", "of-class"),
        (None, "", "of-flag"),
    ] {
        let class = Parameters { project: Some(of_class.to_owned()), ..Parameters::default() };
        let store = stores.of(&class, &fixture.secrets(), recorded).await.unwrap();
        assert_eq!(store.storage.project, used, "{recorded:?} {of_class:?}");
    }
}

#[tokio::test]
async fn creates_and_deletes_a_bucket() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[("location", "eu"), ("versioning", "true"), ("labels", "team=a")]);
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    let other = fixture.request("videos", &[]).provision(&fixture.gcs).await.unwrap();
    let s3 = fixture.s3(&bucket.credentials);
    s3.put("photos", "x/y z+ü", "hello").await.unwrap();
    s3.put("photos", "x/y z+ü", "again").await.unwrap();
    assert_eq!(s3.get("photos", "x/y z+ü").await.unwrap().unwrap(), "again");
    assert_eq!(fixture.s3(&other.credentials).get("photos", "x").await.unwrap_err(), "AccessDenied");
    assert_eq!(bucket.endpoint.region, "auto");
    {
        let model = fixture.google.model();
        let metadata = &model.buckets["photos"].metadata;
        assert_eq!(metadata["location"], "EU");
        assert_eq!(metadata["labels"]["objectbucketclaim-uid"], "uid-of-photos");
        assert_eq!(metadata["labels"]["team"], "a");
        assert_eq!(metadata["iamConfiguration"]["publicAccessPrevention"], "enforced");
        assert_eq!(model.accounts[&fixture.email_of(&request)].display_name, "test/photos");
        assert_eq!(model.tokens_made, 1);
    }
    // A repeated call writes nothing.
    let writes = || ["PUT", "PATCH", "POST /storage"].map(|method| fixture.google.count(method));
    let before = writes();
    let same = request.after(&bucket).provision(&fixture.gcs).await.unwrap();
    assert_eq!(same.credentials, bucket.credentials);
    assert_eq!(writes(), before);
    // The class changes.
    let changed = fixture.request("photos", &[("versioning", "false"), ("softDeleteDays", "7")]);
    drop(changed.after(&bucket).provision(&fixture.gcs).await.unwrap());
    let metadata = fixture.google.model().buckets["photos"].metadata.clone();
    assert_eq!(metadata["versioning"]["enabled"], false);
    assert_eq!(metadata["softDeletePolicy"]["retentionDurationSeconds"], "604800");
    for _ in 0..2 {
        request.after(&bucket).delete(&fixture.gcs).await.unwrap();
    }
    fixture.request("videos", &[]).delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn deletes_keys_whose_response_was_lost() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[]);
    let lost = request.provision(&fixture.gcs).await.unwrap();
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    assert_ne!(lost.credentials, bucket.credentials);
    assert_eq!(fixture.google.model().keys.len(), 1);
    // The Secret is lost with its key.
    let mut again = request.after(&bucket);
    again.credentials = None;
    let new = again.provision(&fixture.gcs).await.unwrap();
    assert!(fixture.s3(&new.credentials).get("photos", "x").await.is_ok());
    // Running pods use the previous key.
    assert!(fixture.s3(&bucket.credentials).get("photos", "x").await.is_ok());
    assert_eq!(fixture.google.model().keys.len(), 2);
    // A change of the claim during a rotation keeps both keys.
    let record = request.after(&new);
    let rotated = fixture.gcs.rotate(record.granted()).await.unwrap();
    let rotated = fixture.gcs.rotate(record.granted()).await.map(|again| (rotated, again)).unwrap();
    assert_eq!(fixture.google.model().keys.len(), 2);
    let mut again = request.after(&new);
    again.access_key_id = Some(rotated.1.access_key_id.clone());
    again.credentials = Some(rotated.1.clone());
    assert_eq!(again.provision(&fixture.gcs).await.unwrap().credentials, Some(rotated.1.clone()));
    assert_eq!(fixture.google.model().keys.len(), 2);
    let mut retired = record.clone();
    retired.access_key_id = Some(rotated.1.access_key_id.clone());
    fixture.gcs.revoke_old_keys(retired.granted()).await.unwrap();
    assert!(fixture.s3(&Some(rotated.0)).get("photos", "x").await.is_err());
    assert!(fixture.s3(&Some(rotated.1)).get("photos", "x").await.is_ok());
    assert_eq!(fixture.google.model().keys.len(), 1);
    record.delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn neither_adopts_nor_deletes_foreign_buckets_and_accounts() {
    let fixture = Fixture::new().await;
    fixture.own_bucket("ours-by-hand");
    fixture.own_bucket("elsewhere");
    fixture.google.model().buckets.get_mut("elsewhere").unwrap().project = "another".to_owned();
    let before = fixture.google.assets();
    for (name, part) in [("ours-by-hand", "was not created for this claim"), ("elsewhere", "belongs to another owner")]
    {
        let request = fixture.request(name, &[]);
        let error = request.provision(&fixture.gcs).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Invalid);
        assert!(error.to_string().contains(part), "{error}");
        request.delete(&fixture.gcs).await.unwrap();
        request.revoke(&fixture.gcs).await.unwrap();
        assert_eq!(fixture.google.assets(), before);
    }
    // Without permission to read the bucket, its owner is unknown.
    fixture.google.model().denied.insert("storage.buckets.get".to_owned());
    let request = fixture.request("ours-by-hand", &[]);
    let error = request.provision(&fixture.gcs).await.unwrap_err();
    assert_eq!(error.verdict(), ProvisionVerdict::NoChange);
    assert!(error.to_string().contains("needs the permission storage.buckets.get"), "{error}");
    assert!(request.delete(&fixture.gcs).await.is_err());
    fixture.google.model().denied.clear();

    // A foreign service account has the claim's name.
    let request = fixture.request("photos", &[]);
    let (address, theirs) = (fixture.email_of(&request), "theirs".to_owned());
    let account = Account { description: theirs.clone(), display_name: theirs, unknown_for: 0, hidden_for: 0 };
    let key = Key { email: address.clone(), active: true, secret: "s".into(), etag: 1 };
    fixture.google.model().accounts.insert(address.clone(), account);
    fixture.google.model().keys.insert("GOOGTHEIRS".into(), key);
    let before = fixture.google.assets();
    let error = request.provision(&fixture.gcs).await.unwrap_err();
    assert!(error.to_string().contains("was not created for this claim in this cluster: delete it"), "{error}");
    request.delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets(), before);
}

#[tokio::test]
async fn deletes_new_service_accounts_that_google_does_not_show() {
    let fixture = Fixture::new().await;
    fixture.google.model().faults.hiding = 2;
    let request = fixture.request("photos", &[]);
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    let record = request.after(&bucket);
    for _ in 0..2 {
        let error = record.delete(&fixture.gcs).await.unwrap_err();
        assert!(error.to_string().contains("is not shown yet"), "{error}");
    }
    record.delete(&fixture.gcs).await.unwrap();
    assert!(fixture.google.assets().is_empty(), "{:?}", fixture.google.assets());
    // The process ends before the attempt, and the account is shown later.
    fixture.google.model().faults.hiding = u32::MAX;
    drop(request.provision(&fixture.gcs).await.unwrap());
    let [another, restarted] = [(); 2].map(|()| Gcs::new(Defaults::of(&fixture.google), Proxies::default()));
    let error = request.provision(&another).await.unwrap_err();
    assert!(error.to_string().contains("is not shown yet"), "{error}");
    tokio::join!(async { request.delete(&restarted).await.unwrap() }, fixture.show_accounts_after_lookup());
    assert!(fixture.google.assets().is_empty(), "{:?}", fixture.google.assets());
}

#[tokio::test]
async fn keeps_buckets_that_lost_their_label() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[]);
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    fixture.google.model().buckets.get_mut("photos").unwrap().metadata["labels"] = json!({});
    let record = request.after(&bucket);
    let error = record.delete(&fixture.gcs).await.unwrap_err();
    assert!(error.to_string().contains("set it to uid-of-photos"), "{error}");
    assert_eq!(error.verdict(), DeleteVerdict::Retry);
    fixture.google.model().buckets.get_mut("photos").unwrap().metadata["labels"] =
        json!({"objectbucketclaim-uid": "x"});
    record.delete(&fixture.gcs).await.unwrap();
    assert!(fixture.google.model().accounts.is_empty() && fixture.google.model().buckets.contains_key("photos"));
}

/// COSI stores no state.
#[tokio::test]
async fn reports_cosi_buckets_that_lost_their_label() {
    let fixture = Fixture::new().await;
    let mut request = fixture.request("photos", &[]);
    (request.claim.namespace, request.claim.uid) = (String::new(), "b.photos".to_owned());
    drop(request.provision(&fixture.gcs).await.unwrap());
    let labels = |labels| fixture.google.model().buckets.get_mut("photos").unwrap().metadata["labels"] = labels;
    labels(json!({"objectbucketclaim-cluster": "test-cluster"}));
    let error = request.delete(&fixture.gcs).await.unwrap_err();
    assert!(error.to_string().contains("set it to b_photos"), "{error}");
    labels(json!({}));
    request.delete(&fixture.gcs).await.unwrap();
    assert!(fixture.google.model().buckets.contains_key("photos"), "no label proves that COSI created the bucket");
}

#[tokio::test]
async fn reports_buckets_that_google_does_not_delete() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[]);
    let record = request.after(&request.provision(&fixture.gcs).await.unwrap());
    // A managed folder is not in the list of objects.
    fixture.google.model().buckets.get_mut("photos").unwrap().objects.insert("folder/".to_owned(), Vec::new());
    let error = record.delete(&fixture.gcs).await.unwrap_err();
    assert_eq!(error.verdict(), DeleteVerdict::Retry);
    assert!(error.to_string().contains("it may have managed folders"), "{error}");
    fixture.google.model().buckets.get_mut("photos").unwrap().objects.clear();
    record.delete(&fixture.gcs).await.unwrap();
    assert!(fixture.google.assets().is_empty(), "{:?}", fixture.google.assets());
}

#[tokio::test]
async fn keeps_access_to_a_bucket_that_google_does_not_delete() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[("deletionPolicy", "DeleteIfEmpty")]);
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    // A managed folder is not in the list of objects.
    fixture.google.model().buckets.get_mut("photos").unwrap().objects.insert("folder/".to_owned(), Vec::new());
    let error = request.after(&bucket).delete(&fixture.gcs).await.unwrap_err();
    assert!(error.to_string().contains("the bucket photos contains objects"), "{error}");
    fixture.s3(&bucket.credentials).put("photos", "x", "hello").await.unwrap();
}

#[tokio::test]
async fn grants_and_revokes_access_of_several_claims() {
    let fixture = Fixture::new().await;
    let requests = ["a", "b", "c"].map(|claim| {
        let mut request = fixture.request(claim, &[]).with_existing_bucket();
        request.name = "shared".to_owned();
        request
    });
    let [a, mut b, mut c] = requests;
    b.config = Arc::new(Config { access_mode: Some(kube_provisioner::bucket::Access::ReadOnly), ..Config::default() });
    c.config = Arc::new(Config { access_mode: Some(kube_provisioner::bucket::Access::WriteOnly), ..Config::default() });
    let absent = a.provision(&fixture.gcs).await.unwrap_err();
    assert!(absent.to_string().contains("does not exist"), "{absent}");
    fixture.own_bucket("shared");
    let policy = fixture.google.model().buckets["shared"].policy.clone();
    let answers = tokio::join!(a.provision(&fixture.gcs), b.provision(&fixture.gcs), c.provision(&fixture.gcs));
    let (to_a, to_b, to_c) = (answers.0.unwrap(), answers.1.unwrap(), answers.2.unwrap());
    let [s3_a, s3_b, s3_c] = [&to_a, &to_b, &to_c].map(|answer| fixture.s3(&answer.credentials));
    s3_a.put("shared", "x", "hello").await.unwrap();
    assert_eq!(s3_b.get("shared", "x").await.unwrap().unwrap(), "hello");
    assert_eq!(s3_b.put("shared", "y", "no").await.unwrap_err(), "AccessDenied");
    s3_c.put("shared", "y", "yes").await.unwrap();
    assert_eq!(s3_c.get("shared", "y").await.unwrap_err(), "AccessDenied");
    for (request, answer) in [(&a, &to_a), (&b, &to_b), (&c, &to_c)] {
        for _ in 0..2 {
            request.after(answer).revoke(&fixture.gcs).await.unwrap();
        }
        assert!(fixture.s3(&answer.credentials).get("shared", "x").await.is_err());
    }
    let model = fixture.google.model();
    assert_eq!(model.buckets["shared"].policy["bindings"], policy["bindings"]);
    assert!(model.accounts.is_empty() && model.keys.is_empty());
    assert_eq!(model.buckets["shared"].objects.len(), 2);
}

#[tokio::test]
async fn keeps_accounts_named_by_the_class_and_foreign_keys() {
    let fixture = Fixture::new().await;
    let address = "made@shop-project.iam.gserviceaccount.com";
    let class = [("serviceAccount", address)];
    let request = fixture.request("photos", &class);
    let missing = request.provision(&fixture.gcs).await.unwrap_err();
    assert!(missing.to_string().contains(&format!("create the service account {address}")), "{missing}");
    let account = Account { description: String::new(), display_name: String::new(), unknown_for: 0, hidden_for: 0 };
    fixture.google.model().accounts.insert(address.to_owned(), account);
    let key = Key { email: address.to_owned(), active: true, secret: "s".into(), etag: 1 };
    fixture.google.model().keys.insert("GOOGOTHER".into(), key);
    let mut undelivered = request.after(&request.provision(&fixture.gcs).await.unwrap());
    // The process ends after it has recorded the key, and before it has written the Secret.
    (undelivered.access_key_id, undelivered.credentials) = (None, None);
    let bucket = undelivered.provision(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.model().keys.len(), 2);
    let s3 = fixture.s3(&bucket.credentials);
    s3.put("photos", "x", "hello").await.unwrap();
    let record = request.after(&bucket);
    assert_eq!(fixture.gcs.rotate(record.granted()).await.unwrap_err().verdict(), ProvisionVerdict::Invalid);
    fixture.gcs.revoke_old_keys(record.granted()).await.unwrap();
    assert!(s3.get("photos", "x").await.is_ok());
    // The Secret is lost. Until the overlap is over, pods use the former key.
    let mut lost = record.clone();
    lost.credentials = None;
    let new = request.after(&lost.provision(&fixture.gcs).await.unwrap());
    let again = request.after(&new.provision(&fixture.gcs).await.unwrap());
    assert!(s3.get("photos", "x").await.is_ok());
    fixture.google.model().denied = ["storage.hmacKeys.delete".to_owned()].into();
    let denied = fixture.gcs.revoke_old_keys(again.granted()).await.unwrap_err().to_string();
    assert!(denied.contains("needs the permission storage.hmacKeys.delete"), "{denied}");
    fixture.google.model().denied.clear();
    fixture.gcs.revoke_old_keys(again.granted()).await.unwrap();
    assert!(s3.get("photos", "x").await.is_err() && fixture.google.model().keys.len() == 2);
    let mut record = request.after(&again.provision(&fixture.gcs).await.unwrap());
    assert!(!record.state.contains_key("formerAccessKeyIDs"));
    record.credentials = None;
    let record = request.after(&record.provision(&fixture.gcs).await.unwrap());
    record.delete(&fixture.gcs).await.unwrap();
    let model = fixture.google.model();
    assert!(model.buckets.is_empty() && model.accounts.contains_key(address));
    assert_eq!(model.keys.keys().collect::<Vec<_>>(), ["GOOGOTHER"]);
}

#[tokio::test]
async fn refuses_cosi_accounts_with_the_service_account_of_a_class() {
    let fixture = Fixture::new().await;
    let mut request = fixture.request("photos", &[("serviceAccount", "made@shop-project.iam.gserviceaccount.com")]);
    (request.claim.namespace, request.claim.uid) = (String::new(), "b.photos".to_owned());
    let error = request.provision(&fixture.gcs).await.unwrap_err();
    assert_eq!(error.verdict(), ProvisionVerdict::Invalid);
    assert!(error.to_string().contains("remove serviceAccount"), "{error}");
    assert!(fixture.google.model().keys.is_empty());
}

#[tokio::test]
async fn retains_buckets_and_deletes_large_ones_in_pages() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[("versioning", "true")]);
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    for number in 0..700_u64 {
        let generations = (0..2).map(|generation| (number * 2 + generation + 1000, "x".into())).collect();
        fixture.google.model().buckets.get_mut("photos").unwrap().objects.insert(format!("a/{number}"), generations);
    }
    let record = request.after(&bucket);
    record.revoke(&fixture.gcs).await.unwrap();
    assert!(fixture.s3(&bucket.credentials).get("photos", "a/1").await.is_err());
    assert_eq!(fixture.google.assets().len(), 1);
    assert!(!fixture.google.assets()[0].contains("serviceAccount:"), "{:?}", fixture.google.assets());
    record.delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
    assert_eq!(fixture.google.count("DELETE /storage/v1/b/photos/o/"), 1400);
}

#[tokio::test]
async fn errors_contain_a_remedy_and_no_secrets() {
    let fixture = Fixture::new().await;
    let text_of = |error: ProvisionError| {
        assert!(matches!(error.verdict(), ProvisionVerdict::Retry | ProvisionVerdict::NoChange), "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("ya29") && !text.contains("PRIVATE") && !text.contains("hmac-secret"), "{text}");
        text
    };
    for permission in [
        "storage.buckets.create",
        "iam.serviceAccounts.create",
        "storage.buckets.getIamPolicy",
        "storage.buckets.setIamPolicy",
        "storage.hmacKeys.create",
        "storage.hmacKeys.list",
    ] {
        fixture.google.model().denied = [permission.to_owned()].into();
        let text = text_of(fixture.request("photos", &[]).provision(&fixture.gcs).await.unwrap_err());
        assert!(text.contains(&format!("needs the permission {permission}: grant it roles/")), "{text}");
    }
    fixture.google.model().denied.clear();
    let secret = |text: String| {
        let mut request = fixture.request("videos", &[]);
        request.secrets = Secrets::new([("admin", [("key.json", text)])]);
        request
    };
    let key = fixture.google.admin_key();
    for (text, part) in [
        ("no json".to_owned(), "is not a service account key"),
        (key.replace("\"service_account\"", "\"external_account\""), "only service_account is known"),
        (key.replace("BEGIN PRIVATE KEY", "BEGIN"), "is not PKCS#8 in PEM"),
        (key.replace("admin@", "other@"), "the key may be deleted, disabled or expired"),
        (key.replace("shop-project\"", "unknown-x\""), "check project in the StorageClass"),
        (key.replace(&fixture.google.endpoint, "http://127.0.0.1:1"), "cannot be reached"),
    ] {
        let text = text_of(secret(text).provision(&fixture.gcs).await.unwrap_err());
        assert!(text.contains(part), "{part}: {text}");
    }
    // There is no fallback if the class names a Secret, or if no credentials are configured.
    let mut request = fixture.request("photos", &[]);
    request.secrets = Secrets::new([("admin", [("other", "x")])]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), fixture.google.admin_key()).unwrap();
    let by_file = Gcs::new(
        Defaults { credentials_file: Some(file.path().into()), ..Defaults::of(&fixture.google) },
        Proxies::default(),
    );
    assert!(text_of(request.provision(&by_file).await.unwrap_err()).contains("no entry key.json"));
    request.secrets = Secrets::default();
    assert!(text_of(request.provision(&fixture.gcs).await.unwrap_err()).contains("no credentials are known"));
    // Both other kinds of credentials work.
    by_file.probe().await.unwrap();
    let bucket = request.provision(&by_file).await.unwrap();
    let by_metadata =
        Gcs::new(Defaults { workload_identity: true, ..Defaults::of(&fixture.google) }, Proxies::default());
    by_metadata.probe().await.unwrap();
    let mut record = request.after(&bucket);
    record.secrets = Secrets::default();
    record.delete(&by_metadata).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn renews_revoked_tokens() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[]);
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    fixture.google.model().tokens.clear();
    request.after(&bucket).delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.model().tokens_made, 2);
}

#[tokio::test]
async fn retries_while_google_does_not_know_the_account() {
    let fixture = Fixture::new().await;
    fixture.google.model().faults.spreading = 2;
    let request = fixture.request("photos", &[]);
    for _ in 0..2 {
        let error = request.provision(&fixture.gcs).await.unwrap_err();
        assert!(error.to_string().contains("takes some time to be known"), "{error}");
        assert_eq!(
            (error.verdict(), error.retry_after()),
            (ProvisionVerdict::Retry, Some(crate::gcs::ACCOUNT_PROPAGATION_TIME))
        );
    }
    drop(request.provision(&fixture.gcs).await.unwrap());
}
