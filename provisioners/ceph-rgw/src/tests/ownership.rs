//! Whose a bucket is: what tenants, administrators and other clusters' installations can do is no proof.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{BucketProvisioner, ClaimName, RequestOf, Source};
use kube_provisioner::{ProvisionError, ProvisionVerdict};

use super::Lab;
use crate::rgw::Rgw;

/// A claim of another namespace that wants the bucket of the claim `name`.
fn another(request: &RequestOf<Rgw>) -> RequestOf<Rgw> {
    let mut another = request.clone();
    another.claim = ClaimName { namespace: "elsewhere".into(), uid: uid(2), ..request.claim.clone() };
    another
}

fn uid(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

impl Lab {
    async fn owner_of(&self, bucket: &str) -> Option<String> {
        self.admin().bucket(bucket).await.unwrap().map(|bucket| bucket.owner)
    }

    async fn has_user(&self, id: &str) -> bool {
        self.admin().user(id).await.unwrap().is_some()
    }
}

fn told(error: ProvisionError, part: &str, hidden: &[&str]) {
    let text = error.to_string();
    assert!(text.contains(part), "{text}");
    assert!(!hidden.iter().any(|hidden| text.contains(hidden)), "{text}");
}

#[tokio::test]
async fn of_two_claims_with_one_name_at_once_one_has_the_bucket() {
    let lab = Lab::new("two").await;
    let (owner, _) = lab.stranger("owner").await;
    for (bucket, config) in [("own", &[][..]), ("lent", &[("bucketOwner", owner.as_str())])] {
        let first = lab.request(bucket, config);
        let second = another(&first);
        let answers = tokio::join!(lab.rgw.provision(first.clone()), lab.rgw.provision(second.clone()));
        let (won, lost, answer, error) = match answers {
            (Ok(answer), Err(error)) => (first, second, answer, error),
            (Err(error), Ok(answer)) => (second, first, answer, error),
            (Ok(_), Ok(_)) => panic!("both have the bucket {bucket}"),
            (Err(one), Err(two)) => panic!("nobody has the bucket {bucket}: {one} {two}"),
        };
        told(error, "choose another bucketName", &[&won.claim.user(), &won.claim.namespace]);
        lab.s3(&answer).put_object(&won.name, "x", "hello").await.unwrap();
        drop(lab.rgw.provision(lost.clone()).await.unwrap_err());
        lab.rgw.delete(lab.record(Source::Provisioned, &lost, None)).await.unwrap();
        assert!(!lab.has_user(&lost.claim.user()).await);
        assert!(lab.s3(&answer).object_exists(&won.name, "x").await.unwrap());
        lab.rgw.delete(lab.record(Source::Provisioned, &won, Some(&answer))).await.unwrap();
        assert_eq!(lab.owner_of(&won.name).await, None);
        assert!(!lab.has_user(&won.claim.user()).await);
    }
    lab.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn what_tenants_can_write_makes_no_bucket_theirs() {
    let lab = Lab::new("tenant").await;
    let (owner, s3) = lab.stranger("owner").await;
    let config = [("bucketOwner", owner.as_str())];
    let tagged = lab.request("tagged", &config);
    let mut named = lab.request("named", &config);
    named.name = format!("{}-{}", lab.run, named.claim.uid);
    for request in [&tagged, &named] {
        s3.create_bucket(&request.name, None).await.unwrap();
        s3.put_object(&request.name, "x", "hello").await.unwrap();
    }
    let tags = BTreeMap::from([("objectbucketclaim-uid".to_owned(), tagged.claim.uid.clone())]);
    s3.put_bucket_tagging(&tagged.name, &tags).await.unwrap();
    for request in [tagged, named] {
        let error = lab.rgw.provision(request.clone()).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Invalid, "{error}");
        told(error, "was not made for this claim", &[]);
        lab.rgw.delete(lab.record(Source::Provisioned, &request, None)).await.unwrap();
        assert!(s3.object_exists(&request.name, "x").await.unwrap(), "{} is purged", request.name);
        lab.admin().delete_bucket(&request.name).await.unwrap();
    }
    lab.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn a_bucket_that_an_administrator_makes_meanwhile_is_the_administrators() {
    let lab = Lab::new("meanwhile").await;
    let (owner, s3) = lab.stranger("owner").await;
    for (bucket, config) in [("own", &[][..]), ("lent", &[("bucketOwner", owner.as_str())])] {
        let request = lab.request(bucket, config);
        // The claim waits after a refused CreateBucket.
        let mut early = request.clone();
        early.name = format!("{}-X", request.name);
        drop(lab.rgw.provision(early).await.unwrap_err());
        s3.create_bucket(&request.name, None).await.unwrap();
        s3.put_object(&request.name, "x", "hello").await.unwrap();
        told(lab.rgw.provision(request.clone()).await.unwrap_err(), "choose another bucketName", &[]);
        lab.rgw.delete(lab.record(Source::Provisioned, &request, None)).await.unwrap();
        assert!(s3.object_exists(&request.name, "x").await.unwrap());
        lab.admin().delete_bucket(&request.name).await.unwrap();
    }
    // One that replaces the claim's bucket, of the same owner.
    let request = lab.request("replaced", &[("bucketOwner", &owner)]);
    let bucket = lab.rgw.provision(request.clone()).await.unwrap();
    lab.admin().delete_bucket(&request.name).await.unwrap();
    s3.create_bucket(&request.name, None).await.unwrap();
    s3.put_object(&request.name, "x", "hello").await.unwrap();
    let again = lab.again("replaced", &[("bucketOwner", &owner)], &bucket);
    assert_eq!(lab.rgw.provision(again).await.unwrap_err().verdict(), ProvisionVerdict::Retry);
    lab.rgw.delete(lab.record(Source::Provisioned, &request, Some(&bucket))).await.unwrap();
    assert!(s3.object_exists(&request.name, "x").await.unwrap());
    assert!(!lab.has_user(&request.claim.user()).await);
    lab.admin().delete_bucket(&request.name).await.unwrap();
    lab.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn what_is_of_another_cluster_is_left_alone() {
    let lab = Lab::new("clones").await;
    // Both clusters are of one backup, so the claim and its uid are the same.
    let theirs = lab.request("a", &[]);
    let bucket = lab.rgw.provision(theirs.clone()).await.unwrap();
    lab.s3(&bucket).put_object(&theirs.name, "x", "hello").await.unwrap();
    let elsewhere = |mut request: RequestOf<Rgw>| {
        request.cluster_id = "another-cluster".to_owned();
        request
    };
    for ours in [theirs.clone(), lab.again("a", &[], &bucket)] {
        let error = lab.rgw.provision(elsewhere(ours.clone())).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Retry);
        told(error, "made for a claim of another cluster", &["test-cluster"]);
        let answer = (!ours.state.is_empty()).then_some(&bucket);
        for source in [Source::Provisioned, Source::Granted] {
            let mut record = lab.record(source, &ours, answer);
            record.cluster_id = "another-cluster".to_owned();
            lab.rgw.delete(record.clone()).await.unwrap();
            lab.rgw.revoke(record.clone()).await.unwrap();
            drop(lab.rgw.rotate(record.clone()).await.unwrap_err());
            drop(lab.rgw.retire(record).await.unwrap_err());
        }
        assert!(lab.s3(&bucket).object_exists(&theirs.name, "x").await.unwrap());
    }
    // What an administrator has given away is taken.
    let user = theirs.claim.user();
    lab.admin().set_display_name(&user, &user).await.unwrap();
    let taken = lab.rgw.provision(elsewhere(theirs.clone())).await.unwrap();
    assert_eq!(taken.credentials, bucket.credentials);
    drop(lab.rgw.provision(theirs.clone()).await.unwrap_err());
    let mut record = lab.record(Source::Provisioned, &theirs, Some(&bucket));
    record.cluster_id = "another-cluster".to_owned();
    lab.rgw.delete(record).await.unwrap();
    assert!(!lab.has_user(&user).await);
    assert_eq!(lab.owner_of(&theirs.name).await, None);
}

#[tokio::test]
async fn a_bucket_that_was_not_handed_over_yet_is_the_claims() {
    let lab = Lab::new("handover").await;
    let (owner, s3) = lab.stranger("owner").await;
    let config = [("bucketOwner", owner.as_str())];
    for (bucket, deleted) in [("goes-on", false), ("is-deleted", true)] {
        // The process died when its own user had made the bucket.
        let request = lab.request(bucket, &config);
        drop(lab.rgw.provision(lab.request(bucket, &[])).await.unwrap());
        assert_eq!(lab.owner_of(&request.name).await, Some(request.claim.user()));
        if !deleted {
            let answer = lab.rgw.provision(request.clone()).await.unwrap();
            assert_eq!(lab.owner_of(&request.name).await.as_ref(), Some(&owner));
            s3.put_object(&request.name, "x", "hello").await.unwrap();
            // The answer to that was lost, and the claim names no owner any more, or another.
            for config in [&[][..], &[("bucketOwner", "bob")]] {
                let error = lab.rgw.provision(lab.request(bucket, config)).await.unwrap_err();
                assert_eq!(error.verdict(), ProvisionVerdict::Retry);
                told(error, "leave bucketOwner as it was", &[&owner]);
            }
            drop(answer);
        }
        lab.rgw.delete(lab.record(Source::Provisioned, &request, None)).await.unwrap();
        assert_eq!(lab.owner_of(&request.name).await, None);
        assert!(!lab.has_user(&request.claim.user()).await);
    }
    // The owner may own no more than it may.
    lab.admin().set_max_buckets(&owner, 1).await.unwrap();
    let (one, two) = (lab.request("one", &config), lab.request("two", &config));
    let answer = lab.rgw.provision(one.clone()).await.unwrap();
    told(lab.rgw.provision(two.clone()).await.unwrap_err(), "may own no further bucket", &[]);
    lab.rgw.delete(lab.record(Source::Provisioned, &two, None)).await.unwrap();
    lab.rgw.delete(lab.record(Source::Provisioned, &one, Some(&answer))).await.unwrap();
    assert!(!lab.has_user(&two.claim.user()).await);
    lab.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn a_user_without_a_mark_is_from_before_and_is_served() {
    let lab = Lab::new("before").await;
    let request = lab.request("a", &[]);
    let user = request.claim.user();
    lab.admin().create_user(&user, &user, 1).await.unwrap();
    let bucket = lab.rgw.provision(request.clone()).await.unwrap();
    let mark = lab.admin().user(&user).await.unwrap().unwrap().mark();
    assert_eq!(mark.map(|mark| mark.cluster).as_deref(), Some("test-cluster"));
    lab.admin().set_display_name(&user, &user).await.unwrap();
    lab.rgw.delete(lab.record(Source::Provisioned, &request, Some(&bucket))).await.unwrap();
    assert!(!lab.has_user(&user).await);
}

#[tokio::test]
async fn the_longest_names_are_no_trouble() {
    let lab = Lab::new("long").await;
    let (owner, s3) = lab.stranger("owner").await;
    let long = |name: &str, config: &[(&str, &str)]| {
        let mut request = lab.request(name, config);
        let rest = 253 - request.claim.name.len();
        request.claim.namespace = "n".repeat(63);
        request.claim.name.push_str(&"c".repeat(rest));
        request
    };
    let request = long("a", &[]);
    let bucket = lab.rgw.provision(request.clone()).await.unwrap();
    lab.s3(&bucket).put_object(&request.name, "x", "hello").await.unwrap();
    lab.rgw.delete(lab.record(Source::Provisioned, &request, Some(&bucket))).await.unwrap();
    let mut granted = long("b", &[]);
    granted.name = format!("{}-shared", lab.run);
    s3.create_bucket(&granted.name, None).await.unwrap();
    let bucket = lab.rgw.grant(granted.clone()).await.unwrap();
    lab.s3(&bucket).put_object(&granted.name, "x", "hello").await.unwrap();
    lab.rgw.revoke(lab.record(Source::Granted, &granted, Some(&bucket))).await.unwrap();
    assert!(s3.bucket_policy(&granted.name).await.unwrap().unwrap().is_empty());
    assert!(!lab.has_user(&granted.claim.user()).await && !lab.has_user(&request.claim.user()).await);
    lab.admin().delete_bucket(&granted.name).await.unwrap();
    lab.admin().delete_user(&owner).await.unwrap();
}
