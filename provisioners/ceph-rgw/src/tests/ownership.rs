//! Tests of bucket ownership: actions of tenants, administrators and other clusters' installations do not prove it.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{BucketHooks, ClaimName};
use kube_provisioner::{ProvisionError, ProvisionVerdict};

use super::{Claim, Fixture};

/// Returns a claim in another namespace that requests the bucket of this claim.
fn another(request: &Claim) -> Claim {
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

fn assert_message(error: ProvisionError, part: &str, hidden: &[&str]) {
    let text = error.to_string();
    assert!(text.contains(part), "{text}");
    assert!(!hidden.iter().any(|hidden| text.contains(hidden)), "{text}");
}

#[tokio::test]
async fn only_one_of_two_concurrent_claims_receives_the_bucket() {
    let fixture = Fixture::new("two").await;
    let (owner, _) = fixture.stranger("owner").await;
    for (bucket, config) in [("own", &[][..]), ("lent", &[("bucketOwner", owner.as_str())])] {
        let first = fixture.request(bucket, config);
        let second = another(&first);
        let answers = tokio::join!(first.provision(&fixture.rgw), second.provision(&fixture.rgw));
        let (won, lost, answer, error) = match answers {
            (Ok(answer), Err(error)) => (first, second, answer, error),
            (Err(error), Ok(answer)) => (second, first, answer, error),
            (Ok(_), Ok(_)) => panic!("both claims received the bucket {bucket}"),
            (Err(one), Err(two)) => panic!("neither claim received the bucket {bucket}: {one} {two}"),
        };
        assert_message(error, "choose another bucketName", &[&won.account().name, &won.claim.namespace]);
        fixture.s3(&answer).put_object(&won.name, "x", "hello").await.unwrap();
        drop(lost.provision(&fixture.rgw).await.unwrap_err());
        lost.delete(&fixture.rgw).await.unwrap();
        assert!(!fixture.has_user(&lost.account().name).await);
        assert!(fixture.s3(&answer).object_exists(&won.name, "x").await.unwrap());
        won.after(&answer).delete(&fixture.rgw).await.unwrap();
        assert_eq!(fixture.owner_of(&won.name).await, None);
        assert!(!fixture.has_user(&won.account().name).await);
    }
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn tenants_cannot_forge_ownership() {
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
        let error = request.provision(&fixture.rgw).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Invalid, "{error}");
        assert_message(error, "was not created for this claim", &[]);
        request.delete(&fixture.rgw).await.unwrap();
        assert!(s3.object_exists(&request.name, "x").await.unwrap(), "{} is purged", request.name);
        fixture.admin().delete_bucket(&request.name, true).await.unwrap();
    }
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn does_not_adopt_buckets_created_by_an_administrator() {
    let fixture = Fixture::new("meanwhile").await;
    let (owner, s3) = fixture.stranger("owner").await;
    for (bucket, config) in [("own", &[][..]), ("lent", &[("bucketOwner", owner.as_str())])] {
        let request = fixture.request(bucket, config);
        // The claim waits after CreateBucket was refused.
        let mut early = request.clone();
        early.name = format!("{}-X", request.name);
        drop(early.provision(&fixture.rgw).await.unwrap_err());
        s3.create_bucket(&request.name, None).await.unwrap();
        s3.put_object(&request.name, "x", "hello").await.unwrap();
        assert_message(request.provision(&fixture.rgw).await.unwrap_err(), "choose another bucketName", &[]);
        request.delete(&fixture.rgw).await.unwrap();
        assert!(s3.object_exists(&request.name, "x").await.unwrap());
        fixture.admin().delete_bucket(&request.name, true).await.unwrap();
    }
    // The same owner replaces the claim's bucket.
    let request = fixture.request("replaced", &[("bucketOwner", &owner)]);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    fixture.admin().delete_bucket(&request.name, true).await.unwrap();
    s3.create_bucket(&request.name, None).await.unwrap();
    s3.put_object(&request.name, "x", "hello").await.unwrap();
    let again = fixture.request("replaced", &[("bucketOwner", &owner)]).after(&bucket);
    assert_eq!(again.provision(&fixture.rgw).await.unwrap_err().verdict(), ProvisionVerdict::Retry);
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
    assert!(s3.object_exists(&request.name, "x").await.unwrap());
    assert!(!fixture.has_user(&request.account().name).await);
    fixture.admin().delete_bucket(&request.name, true).await.unwrap();
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn reports_a_rejected_admin_key_when_deleting_keys() {
    let fixture = Fixture::new("rejected").await;
    let Some(fake) = &fixture.fake else { return };
    let request = fixture.request("a", &[]);
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    let user = request.account().name;
    let key = fixture.admin().user(&user).await.unwrap().unwrap().keys.remove(0).access_key;
    fake.reject_deletions(true);
    let error = fixture.admin().delete_key(&user, &key).await.unwrap_err().to_string();
    assert!(error.contains("does not accept the admin key"), "{error}");
    fake.reject_deletions(false);
    for _ in 0..2 {
        fixture.admin().delete_key(&user, &key).await.unwrap();
    }
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
}

#[tokio::test]
async fn does_not_change_users_and_buckets_of_other_clusters() {
    let fixture = Fixture::new("clones").await;
    // Both clusters were restored from one backup, so the claim and its uid are the same.
    let theirs = fixture.request("a", &[]);
    let bucket = theirs.provision(&fixture.rgw).await.unwrap();
    fixture.s3(&bucket).put_object(&theirs.name, "x", "hello").await.unwrap();
    let elsewhere = |mut request: Claim| {
        request.cluster_id = "another-cluster".to_owned();
        request
    };
    for ours in [theirs.clone(), fixture.request("a", &[]).after(&bucket)] {
        let error = elsewhere(ours.clone()).provision(&fixture.rgw).await.unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Retry);
        assert_message(error, "created for a claim of another cluster", &["test-cluster"]);
        for record in [elsewhere(ours.clone()), elsewhere(ours.clone()).with_existing_bucket()] {
            record.delete(&fixture.rgw).await.unwrap();
            record.revoke(&fixture.rgw).await.unwrap();
            drop(fixture.rgw.rotate(record.granted()).await.unwrap_err());
            drop(fixture.rgw.revoke_old_keys(record.granted()).await.unwrap_err());
        }
        assert!(fixture.s3(&bucket).object_exists(&theirs.name, "x").await.unwrap());
    }
    // A user that an administrator has reassigned is adopted.
    let user = theirs.account().name;
    fixture.admin().set_display_name(&user, &user).await.unwrap();
    let taken = elsewhere(theirs.clone()).provision(&fixture.rgw).await.unwrap();
    assert_eq!(taken.credentials, bucket.credentials);
    drop(theirs.provision(&fixture.rgw).await.unwrap_err());
    let mut record = theirs.after(&bucket);
    record.cluster_id = "another-cluster".to_owned();
    record.delete(&fixture.rgw).await.unwrap();
    assert!(!fixture.has_user(&user).await);
    assert_eq!(fixture.owner_of(&theirs.name).await, None);
}

#[tokio::test]
async fn owns_buckets_before_they_are_handed_over() {
    let fixture = Fixture::new("handover").await;
    let (owner, s3) = fixture.stranger("owner").await;
    let config = [("bucketOwner", owner.as_str())];
    for (bucket, deleted) in [("goes-on", false), ("is-deleted", true)] {
        // The process was killed after the claim's own user had created the bucket.
        let request = fixture.request(bucket, &config);
        drop(fixture.request(bucket, &[]).provision(&fixture.rgw).await.unwrap());
        assert_eq!(fixture.owner_of(&request.name).await, Some(request.account().name));
        if !deleted {
            let answer = request.provision(&fixture.rgw).await.unwrap();
            assert_eq!(fixture.owner_of(&request.name).await.as_ref(), Some(&owner));
            s3.put_object(&request.name, "x", "hello").await.unwrap();
            // That answer was lost, and the claim now names no owner or another one.
            for config in [&[][..], &[("bucketOwner", "bob")]] {
                let error = fixture.request(bucket, config).provision(&fixture.rgw).await.unwrap_err();
                assert_eq!(error.verdict(), ProvisionVerdict::Retry);
                assert_message(error, "restore the former bucketOwner", &[&owner]);
            }
            // Or the claim requests less access than an owner has.
            let config = [config[0], ("accessMode", "read-only")];
            let error = fixture.request(bucket, &config).provision(&fixture.rgw).await.unwrap_err();
            assert_eq!(error.verdict(), ProvisionVerdict::Retry, "{error}");
            drop(answer);
        }
        request.delete(&fixture.rgw).await.unwrap();
        assert_eq!(fixture.owner_of(&request.name).await, None);
        assert!(!fixture.has_user(&request.account().name).await);
    }
    // The owner's bucket limit applies.
    fixture.admin().set_max_buckets(&owner, 1).await.unwrap();
    let (one, two) = (fixture.request("one", &config), fixture.request("two", &config));
    let answer = one.provision(&fixture.rgw).await.unwrap();
    assert_message(two.provision(&fixture.rgw).await.unwrap_err(), "has reached its bucket limit", &[]);
    two.delete(&fixture.rgw).await.unwrap();
    one.after(&answer).delete(&fixture.rgw).await.unwrap();
    assert!(!fixture.has_user(&two.account().name).await);
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn adopts_unmarked_users_of_earlier_versions() {
    let fixture = Fixture::new("before").await;
    let request = fixture.request("a", &[]);
    let user = request.account().name;
    fixture.admin().create_user(&user, &user, 1).await.unwrap();
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    let mark = fixture.admin().user(&user).await.unwrap().unwrap().mark();
    assert_eq!(mark.map(|mark| mark.cluster).as_deref(), Some("test-cluster"));
    fixture.admin().set_display_name(&user, &user).await.unwrap();
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
    assert!(!fixture.has_user(&user).await);
}

#[tokio::test]
async fn supports_names_of_maximum_length() {
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
    let bucket = request.provision(&fixture.rgw).await.unwrap();
    fixture.s3(&bucket).put_object(&request.name, "x", "hello").await.unwrap();
    request.after(&bucket).delete(&fixture.rgw).await.unwrap();
    let mut granted = long("b", &[]).with_existing_bucket();
    granted.name = format!("{}-shared", fixture.run);
    s3.create_bucket(&granted.name, None).await.unwrap();
    let bucket = granted.provision(&fixture.rgw).await.unwrap();
    fixture.s3(&bucket).put_object(&granted.name, "x", "hello").await.unwrap();
    granted.after(&bucket).revoke(&fixture.rgw).await.unwrap();
    assert!(s3.bucket_policy(&granted.name).await.unwrap().is_empty());
    assert!(!fixture.has_user(&granted.account().name).await && !fixture.has_user(&request.account().name).await);
    fixture.admin().delete_bucket(&granted.name, true).await.unwrap();
    fixture.admin().delete_user(&owner).await.unwrap();
}
