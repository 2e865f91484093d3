//! Tests of tags, versioning and placements that a claim's `additionalConfig` requests.

use std::collections::BTreeMap;

use kube_provisioner::ProvisionVerdict;

use super::Fixture;

#[tokio::test]
async fn tags_and_versioning_follow_the_claim() {
    let fixture = Fixture::new("tags").await;
    let name = fixture.request("a", &[]).name;
    let asked = [("bucketTags", "team=shop,stage=test"), ("bucketVersioning", "Enabled")];
    let first = fixture.request("a", &asked);
    let mut bucket = first.provision(&fixture.rgw).await.unwrap();
    let s3 = fixture.s3(&bucket);
    let tags = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(s3.bucket_tagging(&name).await.unwrap(), tags(&[("team", "shop"), ("stage", "test")]));
    assert_eq!(s3.bucket_versioning(&name).await.unwrap(), Some(true));
    // Settings that already match are not written again.
    let writes =
        || Some(fixture.count(&format!("PUT /{name}?tagging"))? + fixture.count(&format!("PUT /{name}?versioning"))?);
    bucket = fixture.request("a", &asked).after(&bucket).provision(&fixture.rgw).await.unwrap();
    assert!(writes().is_none_or(|count| count == 2), "{:?}", writes());
    // Versioning cannot be removed from a bucket, so it remains unchanged if the claim does not set it.
    let mut other = fixture.request("a", &[("bucketTags", "stage=live")]).after(&bucket);
    other.applied_config = tags(&asked);
    bucket = other.provision(&fixture.rgw).await.unwrap();
    assert_eq!(s3.bucket_tagging(&name).await.unwrap(), tags(&[("stage", "live")]));
    assert_eq!(s3.bucket_versioning(&name).await.unwrap(), Some(true));
    let mut none = fixture.request("a", &[("bucketVersioning", "Suspended")]).after(&bucket);
    none.applied_config = tags(&[("bucketTags", "stage=live")]);
    bucket = none.provision(&fixture.rgw).await.unwrap();
    assert_eq!(s3.bucket_tagging(&name).await.unwrap(), BTreeMap::new());
    assert_eq!(s3.bucket_versioning(&name).await.unwrap(), Some(false));
    first.after(&bucket).delete(&fixture.rgw).await.unwrap();
}

#[tokio::test]
async fn replaces_a_policy_that_denies_other_settings() {
    let fixture = Fixture::new("frozen").await;
    let name = fixture.request("a", &[]).name;
    let policy = |action: &str| {
        format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Sid":"frozen","Effect":"Deny","Principal":"*",
             "Action":["s3:{action}"],"Resource":["arn:aws:s3:::{name}"]}}]}}"#
        )
    };
    let (tags, versions) = (policy("PutBucketTagging"), policy("PutBucketVersioning"));
    let first = fixture.request("a", &[("bucketPolicy", &tags), ("bucketTags", "stage=test")]);
    let bucket = first.provision(&fixture.rgw).await.unwrap();
    // The former policy denies the change of the tags.
    let asked = [("bucketPolicy", versions.as_str()), ("bucketTags", "stage=live")];
    let mut other = fixture.request("a", &asked).after(&bucket);
    other.applied_config = first.config_texts.clone();
    let bucket = other.provision(&fixture.rgw).await.unwrap();
    let live = fixture.s3(&bucket).bucket_tagging(&name).await.unwrap();
    assert_eq!(live, BTreeMap::from([("stage".to_owned(), "live".to_owned())]));
    first.after(&bucket).delete(&fixture.rgw).await.unwrap();
}

#[tokio::test]
async fn placement_cannot_change_after_creation() {
    let fixture = Fixture::new("placement").await;
    let asked = [("bucketPlacement", "default-placement"), ("bucketStorageClass", "STANDARD")];
    let first = fixture.request("a", &asked);
    let bucket = first.provision(&fixture.rgw).await.unwrap();
    let elsewhere = fixture.request("a", &[("bucketPlacement", "cold")]).after(&bucket);
    let error = elsewhere.provision(&fixture.rgw).await.unwrap_err().to_string();
    assert!(error.contains("is in the placement default-placement with the storage class STANDARD"), "{error}");
    let error = fixture.request("b", &[("bucketPlacement", "nowhere")]).provision(&fixture.rgw).await.unwrap_err();
    assert!(error.to_string().contains("InvalidLocationConstraint"), "{error}");
    fixture.request("b", &[]).delete(&fixture.rgw).await.unwrap();
    // The fake gateway ignores the storage class of a new bucket, which exists afterwards.
    if fixture.fake.is_some() {
        let ignored = fixture.request("c", &[("bucketStorageClass", "ICE")]);
        assert_eq!(ignored.provision(&fixture.rgw).await.unwrap_err().verdict(), ProvisionVerdict::Retry);
        ignored.delete(&fixture.rgw).await.unwrap();
    }
    first.after(&bucket).delete(&fixture.rgw).await.unwrap();
}
