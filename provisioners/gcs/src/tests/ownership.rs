//! Whose a bucket and a service account are: what tenants, administrators and other clusters' installations do is no proof.

use gcs_sim::Account;
use kube_provisioner::bucket::{BucketProvisioner, ClaimName, RequestOf, Source};
use kube_provisioner::{ProvisionError, ProvisionVerdict};
use serde_json::json;

use super::Lab;
use crate::gcs::Gcs;

fn told(error: &ProvisionError, part: &str, hidden: &str) {
    let text = error.to_string();
    assert!(text.contains(part) && !text.contains(hidden), "{text}");
}

/// The same claim in another cluster, that is of the same backup.
fn elsewhere(request: &RequestOf<Gcs>) -> RequestOf<Gcs> {
    let mut request = request.clone();
    request.cluster_id = "another-cluster".to_owned();
    request
}

#[tokio::test]
async fn of_two_claims_with_one_name_at_once_one_has_the_bucket() {
    let lab = Lab::new().await;
    let first = lab.request("photos", &[]);
    // A claim of the same namespace and name in another cluster, and one of another namespace.
    let (mut same, mut third) = (elsewhere(&first), first.clone());
    same.claim.uid = "another-uid".to_owned();
    third.claim = ClaimName { namespace: "elsewhere".into(), uid: "third-uid".into(), ..first.claim.clone() };
    let requests = [first, same, third];
    let answers = futures::future::join_all(requests.iter().map(|request| lab.gcs.provision(request.clone()))).await;
    let won = answers.iter().position(Result::is_ok).unwrap();
    for (at, (request, answer)) in requests.iter().zip(&answers).enumerate().filter(|(at, _)| *at != won) {
        let error = answer.as_ref().unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Invalid, "{at}");
        told(error, "choose another bucketName", &requests[won].claim.uid);
        let mut record = lab.record(Source::Provisioned, request, None);
        record.cluster_id.clone_from(&request.cluster_id);
        lab.gcs.delete(record).await.unwrap();
    }
    let owner = requests[won].claim.uid.clone();
    assert_eq!(lab.google.model().buckets["photos"].metadata["labels"]["objectbucketclaim-uid"], owner);
    let model = lab.google.model();
    assert_eq!((model.accounts.len(), model.keys.len()), (1, 1));
}

#[tokio::test]
async fn a_bucket_that_an_administrator_makes_meanwhile_is_the_administrators() {
    let lab = Lab::new().await;
    let request = lab.request("photos", &[]);
    lab.google.model().denied.insert("storage.buckets.create".to_owned());
    drop(lab.gcs.provision(request.clone()).await.unwrap_err());
    lab.google.model().denied.clear();
    lab.own_bucket("photos");
    told(&lab.gcs.provision(request.clone()).await.unwrap_err(), "was not made for this claim", "@");
    lab.gcs.delete(lab.record(Source::Provisioned, &request, None)).await.unwrap();
    let left = lab.google.assets();
    assert!(left.len() == 1 && left[0].starts_with("bucket photos"), "{left:?}");
    // One that replaces the claim's.
    let request = lab.request("videos", &[]);
    let bucket = lab.gcs.provision(request.clone()).await.unwrap();
    lab.google.model().buckets.remove("videos");
    lab.own_bucket("videos");
    let error = lab.gcs.provision(lab.again(&request, &bucket)).await.unwrap_err();
    told(&error, "has lost its label", "@");
    drop(lab.gcs.delete(lab.record(Source::Provisioned, &request, Some(&bucket))).await.unwrap_err());
    assert!(lab.google.model().buckets.contains_key("videos"));
}

#[tokio::test]
async fn what_is_of_another_cluster_is_left_alone() {
    let lab = Lab::new().await;
    let theirs = lab.request("photos", &[]);
    let bucket = lab.gcs.provision(theirs.clone()).await.unwrap();
    let before = lab.google.assets();
    for ours in [theirs.clone(), lab.again(&theirs, &bucket)] {
        let error = lab.gcs.provision(elsewhere(&ours)).await.unwrap_err();
        told(&error, "was not made for this claim", "test-cluster");
        let answer = (!ours.state.is_empty()).then_some(&bucket);
        for source in [Source::Provisioned, Source::Granted] {
            let mut record = lab.record(source, &ours, answer);
            record.cluster_id = "another-cluster".to_owned();
            lab.gcs.delete(record.clone()).await.unwrap();
            lab.gcs.revoke(record.clone()).await.unwrap();
            drop(lab.gcs.rotate(record.clone()).await.unwrap_err());
            lab.gcs.retire(record).await.unwrap();
        }
        assert_eq!(lab.google.assets(), before);
    }
    // The account alone is another cluster's where the class names the bucket.
    lab.own_bucket("shared");
    let mut granted = elsewhere(&theirs);
    granted.name = "shared".to_owned();
    told(&lab.gcs.grant(granted).await.unwrap_err(), "was not made for this claim of this cluster", "test-cluster");
    lab.gcs.delete(lab.record(Source::Provisioned, &theirs, Some(&bucket))).await.unwrap();
    assert_eq!(lab.google.assets().len(), 1);
}

#[tokio::test]
async fn what_is_from_before_is_served_and_marked() {
    let lab = Lab::new().await;
    let request = lab.request("photos", &[]);
    let bucket = lab.gcs.provision(request.clone()).await.unwrap();
    {
        let mut model = lab.google.model();
        let labels = &mut model.buckets.get_mut("photos").unwrap().metadata["labels"];
        assert_eq!(labels["objectbucketclaim-cluster"], "test-cluster");
        *labels = json!({"objectbucketclaim-uid": "uid-of-photos"});
        let account = model.accounts.get_mut(&lab.email_of(&request)).unwrap();
        account.description = "gcs-provisioner: ObjectBucketClaim uid-of-photos".to_owned();
    }
    drop(lab.gcs.provision(lab.again(&request, &bucket)).await.unwrap());
    let labels = lab.google.model().buckets["photos"].metadata["labels"].clone();
    assert_eq!(labels["objectbucketclaim-cluster"], "test-cluster");
    lab.gcs.delete(lab.record(Source::Provisioned, &request, Some(&bucket))).await.unwrap();
    assert_eq!(lab.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn an_account_that_replaces_the_claims_keeps_its_keys_and_its_rights() {
    let lab = Lab::new().await;
    lab.own_bucket("shared");
    let mut request = lab.request("a", &[]);
    request.name = "shared".to_owned();
    let bucket = lab.gcs.grant(request.clone()).await.unwrap();
    let email = lab.email_of(&request);
    let theirs = Account { description: "theirs".into(), display_name: String::new(), unknown_for: 0, hidden_for: 0 };
    lab.google.model().accounts.insert(email.clone(), theirs);
    let before = lab.google.assets();
    for source in [Source::Granted, Source::Provisioned] {
        let record = lab.record(source, &request, Some(&bucket));
        let mut newer = record.clone();
        newer.access_key_id = Some("GOOGNEWER".into());
        lab.gcs.retire(newer).await.unwrap();
        drop(lab.gcs.rotate(record.clone()).await.unwrap_err());
        lab.gcs.revoke(record).await.unwrap();
        assert_eq!(lab.google.assets(), before);
    }
}

#[tokio::test]
async fn the_longest_names_are_no_trouble() {
    let lab = Lab::new().await;
    let mut request = lab.request("photos", &[]);
    request.claim.namespace = "n".repeat(63);
    request.claim.name = "c".repeat(253);
    request.claim.uid = "00000000-0000-4000-8000-000000000001".to_owned();
    // It is a label's value in Kubernetes, which may have capital letters and dots.
    request.cluster_id = format!("Shop.{}", "e".repeat(58));
    let bucket = lab.gcs.provision(request.clone()).await.unwrap();
    drop(lab.gcs.provision(lab.again(&request, &bucket)).await.unwrap());
    let mut record = lab.record(Source::Provisioned, &request, Some(&bucket));
    record.cluster_id.clone_from(&request.cluster_id);
    lab.gcs.delete(record).await.unwrap();
    assert_eq!(lab.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn a_bucket_goes_whatever_its_objects_are_called() {
    let lab = Lab::new().await;
    let request = lab.request("photos", &[("versioning", "true")]);
    let bucket = lab.gcs.provision(request.clone()).await.unwrap();
    let s3 = lab.s3(&bucket.credentials);
    // Google refuses line breaks and nothing else.
    for key in ["\u{1}", "a\u{b}b", "\u{7f}", "\u{fffe}", "a//b", "%41+ &<>\"'#?", "..a", "ü/ü"] {
        for text in ["one", "two"] {
            s3.put_object("photos", key, text).await.unwrap();
        }
        assert_eq!(s3.get_object("photos", key).await.unwrap().unwrap(), "two", "{key:?}");
    }
    lab.gcs.delete(lab.record(Source::Provisioned, &request, Some(&bucket))).await.unwrap();
    assert_eq!(lab.google.assets(), Vec::<String>::new());
}
