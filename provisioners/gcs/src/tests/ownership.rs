//! Tests of ownership: only the provisioner's marks prove that a bucket or service account belongs to a claim.

use gcs_sim::Account;
use kube_provisioner::bucket::{BucketHooks, ClaimName};
use kube_provisioner::{ProvisionError, ProvisionVerdict};
use serde_json::json;

use super::{Claim, Fixture};

fn assert_message(error: &ProvisionError, part: &str, hidden: &str) {
    let text = error.to_string();
    assert!(text.contains(part) && !text.contains(hidden), "{text}");
}

/// Returns the same claim in another cluster, restored from the same backup.
fn elsewhere(request: &Claim) -> Claim {
    let mut request = request.clone();
    request.cluster_id = "another-cluster".to_owned();
    request
}

#[tokio::test]
async fn only_one_of_several_concurrent_claims_receives_the_bucket() {
    let fixture = Fixture::new().await;
    let first = fixture.request("photos", &[]);
    // One claim has the same namespace and name in another cluster, and one is in another namespace.
    let (mut same, mut third) = (elsewhere(&first), first.clone());
    same.claim.uid = "another-uid".to_owned();
    third.claim = ClaimName { namespace: "elsewhere".into(), uid: "third-uid".into(), ..first.claim.clone() };
    let requests = [first, same, third];
    let answers = futures::future::join_all(requests.iter().map(|request| request.provision(&fixture.gcs))).await;
    let won = answers.iter().position(Result::is_ok).unwrap();
    for (at, (request, answer)) in requests.iter().zip(&answers).enumerate().filter(|(at, _)| *at != won) {
        let error = answer.as_ref().unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Invalid, "{at}");
        assert_message(error, "choose another bucketName", &requests[won].claim.uid);
        let mut record = request.clone();
        record.cluster_id.clone_from(&request.cluster_id);
        record.delete(&fixture.gcs).await.unwrap();
    }
    let owner = requests[won].claim.uid.clone();
    assert_eq!(fixture.google.model().buckets["photos"].metadata["labels"]["objectbucketclaim-uid"], owner);
    let model = fixture.google.model();
    assert_eq!((model.accounts.len(), model.keys.len()), (1, 1));
}

#[tokio::test]
async fn rejects_changes_of_the_location() {
    let fixture = Fixture::new().await;
    let asked = |location: &'static str| fixture.request("photos", &[("location", location)]);
    drop(asked("eu").provision(&fixture.gcs).await.unwrap());
    // A repeated call may spell the location differently.
    drop(asked("EU").provision(&fixture.gcs).await.unwrap());
    let error = asked("ASIA").provision(&fixture.gcs).await.unwrap_err();
    assert_eq!(error.verdict(), ProvisionVerdict::AlreadyExists);
    assert_message(&error, "the bucket photos exists in EU: set location to EU, or delete the bucket", "ASIA");
    assert!(fixture.google.model().buckets.contains_key("photos"));
}

#[tokio::test]
async fn retries_while_a_deleted_bucket_occupies_its_name() {
    let fixture = Fixture::new().await;
    fixture.google.model().ending.insert("photos".to_owned());
    let error = fixture.request("photos", &[]).provision(&fixture.gcs).await.unwrap_err();
    assert_message(&error, "reports that the bucket photos exists", "bucketClaimName");
    assert_eq!(error.verdict(), ProvisionVerdict::Retry);
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn does_not_adopt_buckets_created_by_an_administrator() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[]);
    fixture.google.model().denied.insert("storage.buckets.create".to_owned());
    drop(request.provision(&fixture.gcs).await.unwrap_err());
    fixture.google.model().denied.clear();
    fixture.own_bucket("photos");
    assert_message(&request.provision(&fixture.gcs).await.unwrap_err(), "was not created for this claim", "@");
    request.delete(&fixture.gcs).await.unwrap();
    let left = fixture.google.assets();
    assert!(left.len() == 1 && left[0].starts_with("bucket photos"), "{left:?}");
    // An administrator's bucket replaces the claim's bucket.
    let request = fixture.request("videos", &[]);
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    fixture.google.model().buckets.remove("videos");
    fixture.own_bucket("videos");
    let error = request.after(&bucket).provision(&fixture.gcs).await.unwrap_err();
    assert_message(&error, "has lost its label", "@");
    drop(request.after(&bucket).delete(&fixture.gcs).await.unwrap_err());
    assert!(fixture.google.model().buckets.contains_key("videos"));
}

#[tokio::test]
async fn does_not_change_assets_of_other_clusters() {
    let fixture = Fixture::new().await;
    let theirs = fixture.request("photos", &[]);
    let bucket = theirs.provision(&fixture.gcs).await.unwrap();
    let before = fixture.google.assets();
    for ours in [theirs.clone(), theirs.after(&bucket)] {
        let error = elsewhere(&ours).provision(&fixture.gcs).await.unwrap_err();
        assert_message(&error, "was not created for this claim", "test-cluster");
        for record in [elsewhere(&ours), elsewhere(&ours).with_existing_bucket()] {
            record.delete(&fixture.gcs).await.unwrap();
            record.revoke(&fixture.gcs).await.unwrap();
            drop(fixture.gcs.rotate(record.granted()).await.unwrap_err());
            fixture.gcs.revoke_old_keys(record.granted()).await.unwrap();
        }
        assert_eq!(fixture.google.assets(), before);
    }
    // Only the account belongs to another cluster if the class names the bucket.
    fixture.own_bucket("shared");
    let mut granted = elsewhere(&theirs).with_existing_bucket();
    granted.name = "shared".to_owned();
    assert_message(
        &granted.provision(&fixture.gcs).await.unwrap_err(),
        "was not created for this claim in this cluster",
        "test-cluster",
    );
    theirs.after(&bucket).delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets().len(), 1);
}

#[tokio::test]
async fn adopts_and_marks_assets_of_earlier_versions() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[]);
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    {
        let mut model = fixture.google.model();
        let labels = &mut model.buckets.get_mut("photos").unwrap().metadata["labels"];
        assert_eq!(labels["objectbucketclaim-cluster"], "test-cluster");
        *labels = json!({"objectbucketclaim-uid": "uid-of-photos"});
        let account = model.accounts.get_mut(&fixture.email_of(&request)).unwrap();
        account.description = "gcs-provisioner: ObjectBucketClaim uid-of-photos".to_owned();
    }
    drop(request.after(&bucket).provision(&fixture.gcs).await.unwrap());
    let labels = fixture.google.model().buckets["photos"].metadata["labels"].clone();
    assert_eq!(labels["objectbucketclaim-cluster"], "test-cluster");
    request.after(&bucket).delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn keeps_keys_and_permissions_of_foreign_accounts() {
    let fixture = Fixture::new().await;
    fixture.own_bucket("shared");
    let mut request = fixture.request("a", &[]).with_existing_bucket();
    request.name = "shared".to_owned();
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    let email = fixture.email_of(&request);
    let theirs = Account { description: "theirs".into(), display_name: String::new(), unknown_for: 0, hidden_for: 0 };
    fixture.google.model().accounts.insert(email.clone(), theirs);
    let before = fixture.google.assets();
    let mut own = request.clone();
    own.is_own = true;
    for claim in [request, own] {
        let record = claim.after(&bucket);
        let mut newer = record.clone();
        newer.access_key_id = Some("GOOGNEWER".into());
        fixture.gcs.revoke_old_keys(newer.granted()).await.unwrap();
        drop(fixture.gcs.rotate(record.granted()).await.unwrap_err());
        record.revoke(&fixture.gcs).await.unwrap();
        assert_eq!(fixture.google.assets(), before);
    }
}

#[tokio::test]
async fn supports_names_of_maximum_length() {
    let fixture = Fixture::new().await;
    let mut request = fixture.request("photos", &[]);
    request.claim.namespace = "n".repeat(63);
    request.claim.name = "c".repeat(253);
    request.claim.uid = "00000000-0000-4000-8000-000000000001".to_owned();
    // The id is a Kubernetes label value, which may contain capital letters and dots.
    request.cluster_id = format!("Shop.{}", "e".repeat(58));
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    drop(request.after(&bucket).provision(&fixture.gcs).await.unwrap());
    let mut record = request.after(&bucket);
    record.cluster_id.clone_from(&request.cluster_id);
    record.delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn deletes_buckets_with_unusual_object_names() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[("versioning", "true")]);
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    let s3 = fixture.s3(&bucket.credentials);
    // Google refuses only line breaks.
    for key in ["\u{1}", "a\u{b}b", "\u{7f}", "\u{fffe}", "a//b", "%41+ &<>\"'#?", "..a", "ü/ü"] {
        for text in ["one", "two"] {
            s3.put("photos", key, text).await.unwrap();
        }
        assert_eq!(s3.get("photos", key).await.unwrap().unwrap(), "two", "{key:?}");
    }
    request.after(&bucket).delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}
