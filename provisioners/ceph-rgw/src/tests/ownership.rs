//! Whose a bucket is: what tenants, administrators and other clusters' installations can do is no proof.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{BucketProvisioner, ClaimName, RequestOf, Source};
use kube_provisioner::{ProvisionError, ProvisionVerdict};

use super::Fixture;
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

impl Fixture {
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
    let fixture = Fixture::new("two").await;
    let (owner, _) = fixture.stranger("owner").await;
    for (bucket, config) in [("own", &[][..]), ("lent", &[("bucketOwner", owner.as_str())])] {
        let first = fixture.request(bucket, config);
        let second = another(&first);
        let answers = tokio::join!(fixture.rgw.provision(first.clone()), fixture.rgw.provision(second.clone()));
        let (won, lost, answer, error) = match answers {
            (Ok(answer), Err(error)) => (first, second, answer, error),
            (Err(error), Ok(answer)) => (second, first, answer, error),
            (Ok(_), Ok(_)) => panic!("both have the bucket {bucket}"),
            (Err(one), Err(two)) => panic!("nobody has the bucket {bucket}: {one} {two}"),
        };
        told(error, "choose another bucketName", &[&won.claim.user(), &won.claim.namespace]);
        fixture.s3(&answer).put_object(&won.name, "x", "hello").await.unwrap();
        drop(fixture.rgw.provision(lost.clone()).await.unwrap_err());
        fixture.rgw.delete(fixture.record(Source::Provisioned, &lost, None)).await.unwrap();
        assert!(!fixture.has_user(&lost.claim.user()).await);
        assert!(fixture.s3(&answer).object_exists(&won.name, "x").await.unwrap());
        fixture.rgw.delete(fixture.record(Source::Provisioned, &won, Some(&answer))).await.unwrap();
        assert_eq!(fixture.owner_of(&won.name).await, None);
        assert!(!fixture.has_user(&won.claim.user()).await);
    }
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn what_tenants_can_write_makes_no_bucket_theirs() {
    let fixture = Fixture::new("tenant").await;
    let (owner, s3) = fixture.stranger("owner").await;
    let config = [("bucketOwner", owner.as_str())];
    let tagged = fixture.request("tagged", &config);
    let mut named = fixture.request("named", &config);
    named.name = format!("{}-{}", fixture.run, named.claim.uid);
    for request in [&tagged, &named] {
        s3.create_bucket(&request.name, None).await.unwrap();
        s3.put_object(&request.name, "x", "hello").await.unwrap();
    }
    let tags = BTreeMap::from([("objectbucketclaim-uid".to_owned(), tagged.claim.uid.clone())]);
    s3.put_bucket_tagging(&tagged.name, &tags).await.unwrap();
    for request in [tagged, named] {
        let error = fixture.rgw.provision(request.clone()).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Invalid, "{error}");
        told(error, "was not made for this claim", &[]);
        fixture.rgw.delete(fixture.record(Source::Provisioned, &request, None)).await.unwrap();
        assert!(s3.object_exists(&request.name, "x").await.unwrap(), "{} is purged", request.name);
        fixture.admin().delete_bucket(&request.name).await.unwrap();
    }
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn a_bucket_that_an_administrator_makes_meanwhile_is_the_administrators() {
    let fixture = Fixture::new("meanwhile").await;
    let (owner, s3) = fixture.stranger("owner").await;
    for (bucket, config) in [("own", &[][..]), ("lent", &[("bucketOwner", owner.as_str())])] {
        let request = fixture.request(bucket, config);
        // The claim waits after a refused CreateBucket.
        let mut early = request.clone();
        early.name = format!("{}-X", request.name);
        drop(fixture.rgw.provision(early).await.unwrap_err());
        s3.create_bucket(&request.name, None).await.unwrap();
        s3.put_object(&request.name, "x", "hello").await.unwrap();
        told(fixture.rgw.provision(request.clone()).await.unwrap_err(), "choose another bucketName", &[]);
        fixture.rgw.delete(fixture.record(Source::Provisioned, &request, None)).await.unwrap();
        assert!(s3.object_exists(&request.name, "x").await.unwrap());
        fixture.admin().delete_bucket(&request.name).await.unwrap();
    }
    // One that replaces the claim's bucket, of the same owner.
    let request = fixture.request("replaced", &[("bucketOwner", &owner)]);
    let bucket = fixture.rgw.provision(request.clone()).await.unwrap();
    fixture.admin().delete_bucket(&request.name).await.unwrap();
    s3.create_bucket(&request.name, None).await.unwrap();
    s3.put_object(&request.name, "x", "hello").await.unwrap();
    let again = fixture.again("replaced", &[("bucketOwner", &owner)], &bucket);
    assert_eq!(fixture.rgw.provision(again).await.unwrap_err().verdict(), ProvisionVerdict::Retry);
    fixture.rgw.delete(fixture.record(Source::Provisioned, &request, Some(&bucket))).await.unwrap();
    assert!(s3.object_exists(&request.name, "x").await.unwrap());
    assert!(!fixture.has_user(&request.claim.user()).await);
    fixture.admin().delete_bucket(&request.name).await.unwrap();
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn what_is_of_another_cluster_is_left_alone() {
    let fixture = Fixture::new("clones").await;
    // Both clusters are of one backup, so the claim and its uid are the same.
    let theirs = fixture.request("a", &[]);
    let bucket = fixture.rgw.provision(theirs.clone()).await.unwrap();
    fixture.s3(&bucket).put_object(&theirs.name, "x", "hello").await.unwrap();
    let elsewhere = |mut request: RequestOf<Rgw>| {
        request.cluster_id = "another-cluster".to_owned();
        request
    };
    for ours in [theirs.clone(), fixture.again("a", &[], &bucket)] {
        let error = fixture.rgw.provision(elsewhere(ours.clone())).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Retry);
        told(error, "made for a claim of another cluster", &["test-cluster"]);
        let answer = (!ours.state.is_empty()).then_some(&bucket);
        for source in [Source::Provisioned, Source::Granted] {
            let mut record = fixture.record(source, &ours, answer);
            record.cluster_id = "another-cluster".to_owned();
            fixture.rgw.delete(record.clone()).await.unwrap();
            fixture.rgw.revoke(record.clone()).await.unwrap();
            drop(fixture.rgw.rotate(record.clone()).await.unwrap_err());
            drop(fixture.rgw.retire(record).await.unwrap_err());
        }
        assert!(fixture.s3(&bucket).object_exists(&theirs.name, "x").await.unwrap());
    }
    // What an administrator has given away is taken.
    let user = theirs.claim.user();
    fixture.admin().set_display_name(&user, &user).await.unwrap();
    let taken = fixture.rgw.provision(elsewhere(theirs.clone())).await.unwrap();
    assert_eq!(taken.credentials, bucket.credentials);
    drop(fixture.rgw.provision(theirs.clone()).await.unwrap_err());
    let mut record = fixture.record(Source::Provisioned, &theirs, Some(&bucket));
    record.cluster_id = "another-cluster".to_owned();
    fixture.rgw.delete(record).await.unwrap();
    assert!(!fixture.has_user(&user).await);
    assert_eq!(fixture.owner_of(&theirs.name).await, None);
}

#[tokio::test]
async fn a_bucket_that_was_not_handed_over_yet_is_the_claims() {
    let fixture = Fixture::new("handover").await;
    let (owner, s3) = fixture.stranger("owner").await;
    let config = [("bucketOwner", owner.as_str())];
    for (bucket, deleted) in [("goes-on", false), ("is-deleted", true)] {
        // The process died when its own user had made the bucket.
        let request = fixture.request(bucket, &config);
        drop(fixture.rgw.provision(fixture.request(bucket, &[])).await.unwrap());
        assert_eq!(fixture.owner_of(&request.name).await, Some(request.claim.user()));
        if !deleted {
            let answer = fixture.rgw.provision(request.clone()).await.unwrap();
            assert_eq!(fixture.owner_of(&request.name).await.as_ref(), Some(&owner));
            s3.put_object(&request.name, "x", "hello").await.unwrap();
            // The answer to that was lost, and the claim names no owner any more, or another.
            for config in [&[][..], &[("bucketOwner", "bob")]] {
                let error = fixture.rgw.provision(fixture.request(bucket, config)).await.unwrap_err();
                assert_eq!(error.verdict(), ProvisionVerdict::Retry);
                told(error, "leave bucketOwner as it was", &[&owner]);
            }
            drop(answer);
        }
        fixture.rgw.delete(fixture.record(Source::Provisioned, &request, None)).await.unwrap();
        assert_eq!(fixture.owner_of(&request.name).await, None);
        assert!(!fixture.has_user(&request.claim.user()).await);
    }
    // The owner may own no more than it may.
    fixture.admin().set_max_buckets(&owner, 1).await.unwrap();
    let (one, two) = (fixture.request("one", &config), fixture.request("two", &config));
    let answer = fixture.rgw.provision(one.clone()).await.unwrap();
    told(fixture.rgw.provision(two.clone()).await.unwrap_err(), "may own no further bucket", &[]);
    fixture.rgw.delete(fixture.record(Source::Provisioned, &two, None)).await.unwrap();
    fixture.rgw.delete(fixture.record(Source::Provisioned, &one, Some(&answer))).await.unwrap();
    assert!(!fixture.has_user(&two.claim.user()).await);
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn a_user_without_a_mark_is_from_before_and_is_served() {
    let fixture = Fixture::new("before").await;
    let request = fixture.request("a", &[]);
    let user = request.claim.user();
    fixture.admin().create_user(&user, &user, 1).await.unwrap();
    let bucket = fixture.rgw.provision(request.clone()).await.unwrap();
    let mark = fixture.admin().user(&user).await.unwrap().unwrap().mark();
    assert_eq!(mark.map(|mark| mark.cluster).as_deref(), Some("test-cluster"));
    fixture.admin().set_display_name(&user, &user).await.unwrap();
    fixture.rgw.delete(fixture.record(Source::Provisioned, &request, Some(&bucket))).await.unwrap();
    assert!(!fixture.has_user(&user).await);
}

#[tokio::test]
async fn the_longest_names_are_no_trouble() {
    let fixture = Fixture::new("long").await;
    let (owner, s3) = fixture.stranger("owner").await;
    let long = |name: &str, config: &[(&str, &str)]| {
        let mut request = fixture.request(name, config);
        let rest = 253 - request.claim.name.len();
        request.claim.namespace = "n".repeat(63);
        request.claim.name.push_str(&"c".repeat(rest));
        request
    };
    let request = long("a", &[]);
    let bucket = fixture.rgw.provision(request.clone()).await.unwrap();
    fixture.s3(&bucket).put_object(&request.name, "x", "hello").await.unwrap();
    fixture.rgw.delete(fixture.record(Source::Provisioned, &request, Some(&bucket))).await.unwrap();
    let mut granted = long("b", &[]);
    granted.name = format!("{}-shared", fixture.run);
    s3.create_bucket(&granted.name, None).await.unwrap();
    let bucket = fixture.rgw.grant(granted.clone()).await.unwrap();
    fixture.s3(&bucket).put_object(&granted.name, "x", "hello").await.unwrap();
    fixture.rgw.revoke(fixture.record(Source::Granted, &granted, Some(&bucket))).await.unwrap();
    assert!(s3.bucket_policy(&granted.name).await.unwrap().unwrap().is_empty());
    assert!(!fixture.has_user(&granted.claim.user()).await && !fixture.has_user(&request.claim.user()).await);
    fixture.admin().delete_bucket(&granted.name).await.unwrap();
    fixture.admin().delete_user(&owner).await.unwrap();
}
