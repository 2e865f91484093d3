//! Tests of the provisioner against a gateway: the fake one, or the real one that `RGW_TEST_ENDPOINT` names (with
//! `RGW_TEST_ACCESS_KEY` and `RGW_TEST_SECRET_KEY` of an admin user).

mod fake;
mod listing;
mod ownership;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use futures::future::join_all;
use kube_provisioner::bucket::{BucketHooks, Granted};
use kube_provisioner::conformance::{BucketClaim, BucketConformance};
use kube_provisioner::{DeleteError, ProvisionError, ProvisionVerdict, Secrets, parameters};
use s3_client::policy::{Policy, allow};
use s3_client::{Client, Credentials, Http, Settings};

use crate::admin::Admin;
use crate::parameters::{Config, Parameters};
use crate::quota::Quota;
use crate::rgw::Rgw;
use crate::store::Defaults;
use crate::users::arn;
use fake::Fake;

#[tokio::test]
async fn keeps_the_contract() {
    join_all(BucketConformance::rules().map(check)).await;
}

/// Checks one rule on a separate gateway.
async fn check(rule: &'static str) {
    let fake = Fake::start().await;
    let endpoint = fake.endpoint.clone();
    let (makes, removes) = (fake.clone(), fake.clone());
    let admin = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
        "stringData": {"accessKey": "ADMIN", "secretKey": "admin-secret"},
    });
    let start = || Rgw::new(Defaults::of_classes());
    let parameters =
        [("endpoint", endpoint.as_str()), ("adminSecretName", "admin"), ("adminSecretNamespace", "default")];
    let report = BucketConformance::new(start, move || {
        let assets = fake.assets();
        async move { assets }
    })
    .parameters(parameters)
    .manually_created(
        move |name| std::future::ready(makes.create_foreign_bucket(&name)),
        move |name| {
            removes.remove(&name);
            std::future::ready(())
        },
    )
    .objects([admin])
    .seeds(0..3)
    .real_time()
    .only(rule)
    .run()
    .await;
    assert!(report.is_kept(), "{report}");
}

type Claim = BucketClaim<Parameters, Config>;

/// A gateway with a provisioner for it.
struct Fixture {
    endpoint: String,
    admin_key: Credentials,
    rgw: Rgw,
    fake: Option<Fake>,
    /// A prefix that is unique to this test, since a real gateway keeps leftovers of earlier runs.
    run: String,
}

impl Defaults {
    /// Returns defaults without values, since the classes in the tests set everything.
    fn of_classes() -> Self {
        Self {
            endpoint: None,
            admin_access_key_file: None,
            admin_secret_key_file: None,
            ca_bundle: None,
            call_timeout: Duration::from_secs(15),
        }
    }
}

#[test]
fn rejects_invalid_flags_at_startup() {
    let parsed = |more: &[&str]| {
        let given = ["ceph-rgw-provisioner", "--provisioner-name", "ceph"];
        crate::Args::try_parse_from([&given, more].concat())
    };
    for (endpoint, problem) in [("ftp://rgw", "expected an endpoint"), ("http://rgw/s3/", "has no path")] {
        let error = parsed(&["--endpoint", endpoint]).map(drop).unwrap_err().to_string();
        assert!(error.contains("--endpoint") && error.contains(problem), "{error}");
    }
    let missing = "/nonexistent/file";
    let key = ["--admin-access-key-file", missing, "--admin-secret-key-file", missing];
    for flags in [&["--ca-bundle", missing][..], &key] {
        let error = parsed(flags).unwrap().defaults.check().unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nonexistent/file: "), "{error}");
    }
}

fn http() -> Http {
    Http::from_env(None).unwrap()
}

impl Fixture {
    async fn new(test: &str) -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let run = format!("{test}-{}", std::process::id());
        let (endpoint, admin_key, fake) = match variable("RGW_TEST_ENDPOINT") {
            Some(endpoint) => {
                let key = ["RGW_TEST_ACCESS_KEY", "RGW_TEST_SECRET_KEY"].map(|name| variable(name).unwrap());
                (endpoint, Credentials::new(&key[0], &key[1]), None)
            }
            None => {
                let fake = Fake::start().await;
                (fake.endpoint.clone(), Credentials::new("ADMIN", "admin-secret"), Some(fake))
            }
        };
        Self { endpoint, admin_key, rgw: Rgw::new(Defaults::of_classes()), fake, run }
    }

    fn parameters(&self) -> Parameters {
        Parameters { endpoint: self.endpoint.parse().ok(), ..Parameters::default() }
    }

    fn secrets(&self) -> Secrets {
        let key = &self.admin_key;
        let data = [("accessKey", key.access_key_id.as_str()), ("secretKey", key.secret_access_key.as_str())];
        Secrets::new([("admin", data)])
    }

    /// Returns a claim with the same name as its bucket.
    fn request(&self, name: &str, config: &[(&str, &str)]) -> Claim {
        let texts = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let config: Config = parameters::from_map(&texts).unwrap();
        let mut request = Claim::new(format!("{}-{name}", self.run), self.parameters(), config);
        request.claim.name = format!("{}-{name}", self.run);
        request.config_texts = texts;
        request.secrets = self.secrets();
        request
    }

    fn client(&self, key: Credentials) -> Client {
        Client::new(&Settings::new(http()).at(&self.endpoint), key).unwrap()
    }

    fn s3(&self, answer: &Granted) -> Client {
        let key = answer.credentials.as_ref().expect("there is a key");
        self.client(Credentials::new(&key.access_key_id, &key.secret_access_key))
    }

    fn admin(&self) -> Admin {
        let region = "us-east-1".to_owned();
        let (address, key) = (self.endpoint.clone(), self.admin_key.clone());
        Admin { http: http(), address, region, key, time_limit: Duration::from_secs(15) }
    }

    /// Creates a user who does not belong to a claim. Returns the user's ID and S3 client.
    async fn stranger(&self, name: &str) -> (String, Client) {
        let id = format!("{}-{name}", self.run);
        self.admin().create_user(&id, &id, 0).await.unwrap();
        let key = self.admin().user(&id).await.unwrap().unwrap().key(None).unwrap();
        (id, self.client(key))
    }

    /// Returns the number of requests with this prefix that the fake gateway has received, or `None` for a real
    /// gateway.
    fn count(&self, request: &str) -> Option<usize> {
        self.fake.as_ref().map(|fake| fake.log().iter().filter(|line| line.starts_with(request)).count())
    }
}

#[tokio::test]
async fn creates_and_deletes_a_bucket() {
    let fixture = Fixture::new("life").await;
    let request = fixture.request("a", &[]);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    assert_eq!(bucket.state["cephUser"], request.account().name);
    let s3 = fixture.s3(&bucket);
    s3.put_object(&request.name, "x/y z+ü", "hello").await.unwrap();
    assert_eq!(s3.get_object(&request.name, "x/y z+ü").await.unwrap().unwrap(), "hello");
    // The user may not own a second bucket.
    let another = s3.create_bucket(&format!("{}-2", request.name), None).await.unwrap_err();
    assert_eq!(another.code(), "TooManyBuckets");

    let same = fixture.request("a", &[]).after(&bucket).provision(&fixture.rgw).await.unwrap();
    assert_eq!(same.credentials, bucket.credentials);
    // Repeat the call, since the answer to the first call may be lost.
    let same = request.provision(&fixture.rgw).await.unwrap();
    assert_eq!(same.credentials, bucket.credentials);

    for _ in 0..2 {
        request.after(&bucket).delete(&fixture.rgw).await.unwrap();
        assert!(fixture.admin().bucket(&request.name).await.unwrap().is_none());
        assert!(fixture.admin().user(&request.account().name).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn deletes_buckets_with_unusual_object_names() {
    let fixture = Fixture::new("odd").await;
    let request = fixture.request("a", &[]);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    for key in ["\u{1}", "a\u{b}b", "a\nb", "a\rb", "\u{7f}", "\u{fffe}", "a//b", "%41+ &<>\"'"] {
        fixture.s3(&bucket).put_object(&request.name, key, "x").await.unwrap();
        assert!(fixture.s3(&bucket).object_exists(&request.name, key).await.unwrap(), "{key:?}");
        let s3 = fixture.s3(&bucket);
        let begun = s3.sdk().create_multipart_upload().bucket(&request.name).key(key).send().await;
        assert!(begun.is_ok() || fixture.fake.is_some(), "{key:?}: {begun:?}");
    }
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
    assert!(fixture.admin().bucket(&request.name).await.unwrap().is_none());
}

#[tokio::test]
async fn writes_quotas_only_if_they_differ() {
    let fixture = Fixture::new("quota").await;
    let writes = || Some(fixture.count("PUT /admin/user?quota")? + fixture.count("PUT /admin/bucket?quota")?);
    let limits = [("maxObjects", "7"), ("maxSize", "1025"), ("bucketMaxObjects", "1"), ("bucketMaxSize", "4Ki")];
    let request = fixture.request("a", &limits);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    let user = fixture.admin().user(&request.account().name).await.unwrap().unwrap();
    assert!(user.user_quota.enabled && user.user_quota.max_objects == 7, "{user:?}");
    let live = fixture.admin().bucket(&request.name).await.unwrap().unwrap();
    assert!(live.bucket_quota.enabled && live.bucket_quota.max_size == 4096, "{live:?}");
    let written = writes();
    drop(fixture.request("a", &limits).after(&bucket).provision(&fixture.rgw).await.unwrap());
    assert_eq!(writes(), written);
    assert!(written.is_none_or(|count| count == 2));

    let mut without = fixture.request("a", &[]).after(&bucket);
    without.applied_config = request.config_texts.clone();
    drop(without.provision(&fixture.rgw).await.unwrap());
    let live = fixture.admin().bucket(&request.name).await.unwrap().unwrap();
    assert!(!live.bucket_quota.enabled);
    fixture.s3(&bucket).put_object(&request.name, "x", vec![0; 8192]).await.unwrap();
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
}

#[tokio::test]
async fn keeps_quotas_set_by_an_administrator() {
    let fixture = Fixture::new("manual-quota").await;
    let request = fixture.request("a", &[]);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    let (user, most) = (request.account().name, Quota { enabled: true, max_size: -1, max_objects: 7 });
    fixture.admin().set_user_quota(&user, most).await.unwrap();
    fixture.admin().set_bucket_quota(&request.name, &user, most).await.unwrap();
    drop(request.after(&bucket).provision(&fixture.rgw).await.unwrap());
    assert!(most.is_met_by(fixture.admin().user(&user).await.unwrap().unwrap().user_quota));
    assert!(most.is_met_by(fixture.admin().bucket(&request.name).await.unwrap().unwrap().bucket_quota));
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
}

#[tokio::test]
async fn neither_adopts_nor_deletes_foreign_buckets() {
    let fixture = Fixture::new("theirs").await;
    let (stranger, s3) = fixture.stranger("owner").await;
    let request = fixture.request("a", &[]);
    s3.create_bucket(&request.name, None).await.unwrap();
    let error = request.provision(&fixture.rgw).await.unwrap_err();
    assert_eq!(error.verdict(), ProvisionVerdict::Invalid);
    assert!(error.to_string().contains("was not created for this claim"), "{error}");
    assert!(!error.to_string().contains(&stranger), "{error}");
    assert!(fixture.admin().user(&request.account().name).await.unwrap().is_none());

    request.delete(&fixture.rgw).await.unwrap();
    assert_eq!(fixture.admin().bucket(&request.name).await.unwrap().unwrap().owner, stranger);

    // Naming the bucket's owner does not prove that the bucket belongs to the claim.
    let owned = fixture.request("a", &[("bucketOwner", &stranger)]);
    let error = owned.provision(&fixture.rgw).await.unwrap_err();
    assert!(error.to_string().contains("was not created for this claim"), "{error}");
    // The user from an earlier attempt without that owner is deleted.
    fixture.admin().create_user(&owned.account().name, &owned.account().name, 1).await.unwrap();
    owned.delete(&fixture.rgw).await.unwrap();
    assert!(fixture.admin().user(&owned.account().name).await.unwrap().is_none());
    assert!(fixture.admin().bucket(&request.name).await.unwrap().is_some());
    fixture.admin().delete_bucket(&request.name, true).await.unwrap();
    fixture.admin().delete_user(&stranger).await.unwrap();
}

#[tokio::test]
async fn never_deletes_the_owner_named_by_the_claim() {
    let fixture = Fixture::new("owner").await;
    let missing = fixture.request("a", &[("bucketOwner", "nobody")]).provision(&fixture.rgw).await.unwrap_err();
    assert_eq!(missing.verdict(), ProvisionVerdict::Retry);
    let command = "radosgw-admin user create --uid=nobody --display-name=nobody, or";
    assert!(missing.to_string().contains(command), "{missing}");
    // A real gateway creates the user without an account.
    if fixture.fake.is_some() {
        let (member, _) = fixture.stranger("member").await;
        let refused = fixture.request("a", &[("bucketOwner", &member)]).provision(&fixture.rgw).await.unwrap_err();
        assert!(refused.to_string().contains("name a user without an account"), "{refused}");
        assert_eq!(fixture.fake.as_ref().map(|fake| fake.assets().len()), Some(1));
    }

    let (owner, s3) = fixture.stranger("owner").await;
    let config = [("bucketOwner", owner.as_str())];
    let request = fixture.request("a", &config);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    assert_eq!(fixture.admin().bucket(&request.name).await.unwrap().unwrap().owner, owner);
    s3.put_object(&request.name, "x", "hello").await.unwrap();
    // The owner remains when the claim no longer names it, and when the state is not recorded yet.
    drop(fixture.request("a", &[]).after(&bucket).provision(&fixture.rgw).await.unwrap());
    drop(request.provision(&fixture.rgw).await.unwrap());
    let rotated = fixture.rgw.rotate(request.after(&bucket).granted()).await.unwrap_err();
    assert_eq!(rotated.verdict(), ProvisionVerdict::Invalid);
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
    assert!(fixture.admin().bucket(&request.name).await.unwrap().is_none());
    assert!(fixture.admin().user(&owner).await.unwrap().is_some());
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn grants_and_revokes_access_of_several_claims() {
    let fixture = Fixture::new("grant").await;
    let (owner, s3) = fixture.stranger("owner").await;
    let name = format!("{}-shared", fixture.run);
    let request = |claim: &str, config: &[(&str, &str)]| {
        let mut request = fixture.request(claim, config).with_existing_bucket();
        request.name.clone_from(&name);
        request
    };
    let absent = request("a", &[]).provision(&fixture.rgw).await.unwrap_err();
    assert!(absent.to_string().contains("does not exist"), "{absent}");
    s3.create_bucket(&name, None).await.unwrap();
    let mut policy = Policy::default();
    policy.upsert(allow("theirs", &arn(&owner), &["s3:GetObject"], &[&format!("arn:aws:s3:::{name}/*")]));
    s3.put_bucket_policy(&name, &policy).await.unwrap();

    let (a, b) = (request("a", &[]), request("b", &[("accessMode", "read-only")]));
    let (to_a, to_b) = tokio::join!(a.provision(&fixture.rgw), b.provision(&fixture.rgw));
    let (to_a, to_b) = (to_a.unwrap(), to_b.unwrap());
    drop(request("a", &[]).provision(&fixture.rgw).await.unwrap());
    fixture.s3(&to_a).put_object(&name, "x", "hello").await.unwrap();
    assert_eq!(fixture.s3(&to_b).get_object(&name, "x").await.unwrap().unwrap(), "hello");
    assert_eq!(fixture.s3(&to_b).put_object(&name, "y", "no").await.unwrap_err().code(), "AccessDenied");
    assert!(fixture.s3(&to_a).create_bucket(&format!("{name}-2"), None).await.is_err());

    for (request, answer) in [(&a, &to_a), (&b, &to_b)] {
        request.after(answer).revoke(&fixture.rgw).await.unwrap();
        request.after(answer).revoke(&fixture.rgw).await.unwrap();
        assert!(fixture.s3(answer).get_object(&name, "x").await.is_err());
        assert!(fixture.admin().user(&request.account().name).await.unwrap().is_none());
    }
    assert!(s3.bucket_policy(&name).await.unwrap().is_equivalent_to(&policy));
    assert!(s3.object_exists(&name, "x").await.unwrap());
    let refused = request("c", &[("bucketMaxSize", "1Gi")]).provision(&fixture.rgw).await.unwrap_err();
    assert_eq!(refused.verdict(), ProvisionVerdict::Invalid);
    fixture.admin().delete_bucket(&name, true).await.unwrap();
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn revokes_access_when_the_owners_policy_denies_changes() {
    let fixture = Fixture::new("denied").await;
    let (owner, s3) = fixture.stranger("owner").await;
    let mut guest = fixture.request("a", &[]).with_existing_bucket();
    guest.name = format!("{}-shared", fixture.run);
    s3.create_bucket(&guest.name, None).await.unwrap();
    let granted = guest.provision(&fixture.rgw).await.unwrap();
    let mut policy = s3.bucket_policy(&guest.name).await.unwrap();
    let mut frozen = allow("frozen", "*", &["s3:PutBucketPolicy"], &[&format!("arn:aws:s3:::{}", guest.name)]);
    frozen["Effect"] = "Deny".into();
    policy.upsert(frozen);
    s3.put_bucket_policy(&guest.name, &policy).await.unwrap();

    guest.after(&granted).revoke(&fixture.rgw).await.unwrap();
    assert!(fixture.admin().user(&guest.account().name).await.unwrap().is_none());
    fixture.admin().delete_bucket(&guest.name, true).await.unwrap();
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn owner_of_a_retained_bucket_has_no_keys() {
    let fixture = Fixture::new("retain").await;
    let request = fixture.request("a", &[]);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    fixture.s3(&bucket).put_object(&request.name, "x", "hello").await.unwrap();
    for _ in 0..2 {
        request.after(&bucket).revoke(&fixture.rgw).await.unwrap();
        assert!(fixture.s3(&bucket).get_object(&request.name, "x").await.is_err());
    }
    assert!(fixture.admin().user(&request.account().name).await.unwrap().unwrap().keys.is_empty());
    assert!(fixture.admin().bucket(&request.name).await.unwrap().is_some());
    let mut guest = fixture.request("b", &[]).with_existing_bucket();
    guest.name.clone_from(&request.name);
    let refused = guest.provision(&fixture.rgw).await.unwrap_err().to_string();
    let command = "radosgw-admin key create --uid=<owner> --key-type=s3 --gen-access-key --gen-secret;";
    assert!(refused.contains(command), "{refused}");
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
    assert!(fixture.admin().user(&request.account().name).await.unwrap().is_none());
}

#[tokio::test]
async fn deletes_temporary_keys_of_an_earlier_process() {
    let fixture = Fixture::new("temporary").await;
    let request = fixture.request("a", &[]);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    let mut guest = fixture.request("b", &[]).with_existing_bucket();
    guest.name.clone_from(&request.name);
    let granted = guest.provision(&fixture.rgw).await.unwrap();
    request.after(&bucket).revoke(&fixture.rgw).await.unwrap();
    let (admin, owner) = (fixture.admin(), request.account().name);
    admin.create_temporary_key(&owner).await.unwrap().unwrap();
    guest.after(&granted).revoke(&fixture.rgw).await.unwrap();
    assert!(admin.user(&owner).await.unwrap().unwrap().keys.is_empty());
    assert!(admin.user(&guest.account().name).await.unwrap().is_none());
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
}

#[tokio::test]
async fn rotates_and_revokes_keys() {
    let fixture = Fixture::new("keys").await;
    let request = fixture.request("a", &[]);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    let record = request.after(&bucket);
    // The answer to the first call is lost.
    let lost = fixture.rgw.rotate(record.granted()).await.unwrap();
    let new = fixture.rgw.rotate(record.granted()).await.unwrap();
    let s3 = |key: &kube_provisioner::bucket::Credentials| {
        fixture.client(Credentials::new(&key.access_key_id, &key.secret_access_key))
    };
    assert!(s3(&lost).list_buckets().await.is_err());
    assert!(s3(&new).list_buckets().await.is_ok());
    assert!(fixture.s3(&bucket).list_buckets().await.is_ok());
    let mut again = fixture.request("a", &[]).after(&bucket);
    again.access_key_id = Some(new.access_key_id.clone());
    assert_eq!(again.provision(&fixture.rgw).await.unwrap().credentials, Some(new.clone()));
    let mut retired = record.clone();
    retired.access_key_id = Some(new.access_key_id.clone());
    fixture.rgw.revoke_old_keys(retired.granted()).await.unwrap();
    fixture.rgw.revoke_old_keys(retired.granted()).await.unwrap();
    assert!(fixture.s3(&bucket).list_buckets().await.is_err());
    assert!(s3(&new).list_buckets().await.is_ok());
    record.delete(&fixture.rgw).await.unwrap();
}

#[tokio::test]
async fn sets_changes_and_removes_policy_and_lifecycle() {
    let fixture = Fixture::new("policy").await;
    let name = fixture.request("a", &[]).name;
    let policy = |action: &str| {
        let mut policy = Policy::default();
        policy.upsert(allow("all", "*", &[action], &[&format!("arn:aws:s3:::{name}/*")]));
        policy
    };
    let lifecycle = |days: u32| {
        format!(r#"{{"Rules":[{{"ID":"old","Status":"Enabled","Prefix":"logs/","Expiration":{{"Days":{days}}}}}]}}"#)
    };
    let (read, write) = (policy("s3:GetObject"), policy("s3:PutObject"));
    let (texts, days) = ([read.to_string(), write.to_string()], [lifecycle(3), lifecycle(4)]);
    let writes =
        || Some(fixture.count(&format!("PUT /{name}?policy"))? + fixture.count(&format!("PUT /{name}?lifecycle"))?);
    let configs =
        [0, 1].map(|which| [("bucketPolicy", texts[which].as_str()), ("bucketLifecycle", days[which].as_str())]);
    let first = fixture.request("a", &configs[0]);
    let mut bucket = first.provision(&fixture.rgw).await.unwrap();
    let s3 = fixture.s3(&bucket);
    assert!(s3.bucket_policy(&name).await.unwrap().is_equivalent_to(&read));
    bucket = fixture.request("a", &configs[0]).after(&bucket).provision(&fixture.rgw).await.unwrap();
    assert!(writes().is_none_or(|count| count == 2), "{:?}", writes());
    bucket = fixture.request("a", &configs[1]).after(&bucket).provision(&fixture.rgw).await.unwrap();
    assert!(s3.bucket_policy(&name).await.unwrap().is_equivalent_to(&write));
    let live = s3.bucket_lifecycle(&name).await.unwrap();
    assert!(s3_client::lifecycle::Lifecycle::parse(&days[1]).unwrap().is_equivalent_to(&live), "{live:?}");
    // The record may come from Rook, which does not store these settings in `additionalState`.
    let mut removed = fixture.request("a", &[]).after(&bucket);
    removed.state.retain(|key, _| key == "cephUser");
    removed.applied_config = configs[1].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    bucket = removed.provision(&fixture.rgw).await.unwrap();
    assert!(s3.bucket_policy(&name).await.unwrap().is_empty());
    assert!(s3.bucket_lifecycle(&name).await.unwrap().is_empty());
    // A policy that an administrator sets later is kept.
    s3.put_bucket_policy(&name, &read).await.unwrap();
    bucket = fixture.request("a", &[]).after(&bucket).provision(&fixture.rgw).await.unwrap();
    assert!(s3.bucket_policy(&name).await.unwrap().is_equivalent_to(&read));
    first.after(&bucket).delete(&fixture.rgw).await.unwrap();
}

#[tokio::test]
async fn errors_contain_a_remedy() {
    let fixture = Fixture::new("errors").await;
    let text_of = |error: ProvisionError| {
        assert!(matches!(error.verdict(), ProvisionVerdict::Retry | ProvisionVerdict::NoChange), "{error:?}");
        let text = error.to_string();
        assert!(!text.contains("wrong-secret"), "{text}");
        text
    };
    let with_key = |id: &str, secret: &str| {
        let mut request = fixture.request("a", &[]);
        request.secrets = Secrets::new([("admin", [("accessKey", id), ("secretKey", secret)])]);
        request
    };
    // The fake gateway does not verify signatures.
    let known = fixture.fake.is_none().then_some(fixture.admin_key.access_key_id.as_str());
    for id in known.into_iter().chain(["unknown"]) {
        let text = text_of(with_key(id, "wrong-secret").provision(&fixture.rgw).await.unwrap_err());
        assert!(text.contains("the gateway does not accept the admin key: check accessKey"), "{text}");
        assert_eq!(text.matches("403").count(), 1, "{text}");
    }
    let (id, _) = fixture.stranger("nocaps").await;
    let key = fixture.admin().user(&id).await.unwrap().unwrap().key(None).unwrap();
    let text = text_of(with_key(&key.access_key_id, &key.secret_access_key).provision(&fixture.rgw).await.unwrap_err());
    assert!(text.contains("radosgw-admin caps add --uid=<admin user> --caps=\"buckets=*\""), "{text}");
    let mut down = fixture.request("a", &[]);
    Arc::make_mut(&mut down.parameters).endpoint = "127.0.0.1:1".parse().ok();
    let text = text_of(down.provision(&fixture.rgw).await.unwrap_err());
    assert!(text.contains("http://127.0.0.1:1 cannot be reached"), "{text}");
    let mut nowhere = fixture.request("a", &[]);
    Arc::make_mut(&mut nowhere.parameters).endpoint = None;
    assert!(text_of(nowhere.provision(&fixture.rgw).await.unwrap_err()).contains("set endpoint"));
    let mut keyless = fixture.request("a", &[]);
    keyless.secrets = Secrets::default();
    assert!(text_of(keyless.provision(&fixture.rgw).await.unwrap_err()).contains("adminSecretName"));
    if let Some(fake) = &fixture.fake {
        assert!(fake.create_foreign_bucket("of-account"));
        let mut guest = fixture.request("b", &[]).with_existing_bucket();
        guest.name = "of-account".to_owned();
        let text = text_of(guest.provision(&fixture.rgw).await.unwrap_err());
        assert!(text.contains("radosgw-admin bucket link --bucket=of-account"), "{text}");
    }
    fixture.admin().delete_user(&id).await.unwrap();
}

#[tokio::test]
async fn reports_users_that_still_own_buckets() {
    let fixture = Fixture::new("more").await;
    let request = fixture.request("a", &[]);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    fixture.admin().set_max_buckets(&request.account().name, 0).await.unwrap();
    let more = format!("{}-more", request.name);
    fixture.s3(&bucket).create_bucket(&more, None).await.unwrap();
    let record = request.after(&bucket);
    let error: DeleteError = record.delete(&fixture.rgw).await.unwrap_err();
    assert!(error.to_string().contains("still owns buckets"), "{error}");
    let user = fixture.admin().user(&request.account().name).await.unwrap().unwrap();
    assert!(user.keys.is_empty(), "the claim's key still exists: {user:?}");
    assert!(fixture.admin().bucket(&more).await.unwrap().is_some());
    fixture.admin().delete_bucket(&more, true).await.unwrap();
    record.delete(&fixture.rgw).await.unwrap();
}
