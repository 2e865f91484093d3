//! Parameters that SeaweedFS cannot keep.

use anyhow::ensure;
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;

use super::fixture::{Fixture, REGION};

pub(crate) const LIFECYCLE: &str =
    r#"{"Rules":[{"ID":"old","Status":"Enabled","Filter":{"Prefix":""},"Expiration":{"Days":30}}]}"#;
const TRANSITION: &str = r#"{"Rules":[{"ID":"cold","Status":"Enabled","Filter":{"Prefix":""},"Transitions":[{"Days":30,"StorageClass":"GLACIER"}]}]}"#;
const BOUNDARY: &str = "arn:aws:iam::000000000000:policy/kube-provisioner-boundary";

/// The claim says which parameter it is. It gets no key of a bucket that would lack what the class says, and leaves nothing.
#[tokio::test]
async fn seaweedfs_parameters_that_it_cannot_keep_are_refused_by_name() -> anyhow::Result<()> {
    let fixture = Fixture::new("weed-refused").await?;
    let _program = fixture.start().await?;
    let parameters = [("blockPublicAccess", "true"), ("lifecycle", TRANSITION), ("permissionsBoundary", BOUNDARY)];
    let mut wrong = Vec::new();
    for (name, value) in parameters {
        let class = name.to_lowercase();
        fixture.class_with(&class, &[(name, value)]).await?;
        fixture.claim(&class, &class, json!({})).await?;
        if let Err(error) = fixture.told(&class, name).await {
            wrong.push(format!("{name}: {error}"));
            continue;
        }
        ensure!(fixture.user(&class).await.is_err(), "{name}: the claim has a key");
        fixture.delete(&class).await?;
    }
    fixture.class_with("keyless", &[("authentication", "ServiceAccount"), ("serviceAccount", "app")]).await?;
    fixture.claim("keyless", "keyless", json!({})).await?;
    fixture.told("keyless", "leave authentication and serviceAccount out").await?;
    fixture.delete("keyless").await?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    fixture.done().await
}

#[tokio::test]
async fn seaweedfs_z14_versions_and_locks_are_kept_and_go_with_the_bucket() -> anyhow::Result<()> {
    let fixture = Fixture::new("weed-settings").await?;
    let _program = fixture.start().await?;
    fixture.class_with("versions", &[("versioning", "true"), ("lifecycle", LIFECYCLE)]).await?;
    fixture.claim("photos", "versions", json!({"bucketName": "my-photos"})).await?;
    fixture.bound("photos").await?;
    let admin = fixture.server().admin()?;
    let tags = admin.bucket_tagging("my-photos").await?;
    assert_eq!(tags["kube-provisioner/claim"], format!("{}/photos", fixture.space.namespace()));
    ensure!(!admin.bucket_lifecycle("my-photos").await?.is_empty(), "the bucket has no lifecycle");
    let user = fixture.user("photos").await?;
    for text in ["one", "two", "three"] {
        user.put("cat", text).await?;
    }
    // Names that have a meaning in addresses, in XML and for file systems.
    for (name, text) in [("a b+c%41&<ü>", "x"), ("dir/", ""), ("dir/cat", "x"), ("dir/sub/cat", "x")] {
        user.put(name, text).await?;
    }
    user.client.delete_object("my-photos", "cat").await?;
    // Three versions, the mark of the deletion, and the others.
    assert_eq!(admin.list_object_versions("my-photos").await?.len(), 8);
    fixture.delete("photos").await?;
    fixture.nothing_left().await?;

    fixture.class_with("locks", &[("objectLock", "governance:1d")]).await?;
    fixture.claim("locked", "locks", json!({})).await?;
    fixture.bound("locked").await?;
    fixture.delete("locked").await?;
    fixture.done().await
}

/// Every bucket there has one rule for the ownership of objects, and no new one has tags.
#[tokio::test]
async fn seaweedfs_a_bucket_that_is_made_by_hand_is_never_taken() -> anyhow::Result<()> {
    let fixture = Fixture::new("weed-by-hand").await?;
    let _program = fixture.start().await?;
    let admin = fixture.server().admin()?;
    for name in ["empty-bucket", "full-bucket"] {
        admin.create_bucket(name, Some(REGION)).await?;
    }
    admin.put_object("full-bucket", "x", "hello").await?;
    for name in ["empty-bucket", "full-bucket"] {
        fixture.claim(name, "class", json!({"bucketName": name})).await?;
        fixture.told(name, "was not made for this claim").await?;
        fixture.delete(name).await?;
        ensure!(admin.bucket_tagging(name).await?.is_empty(), "{name} has tags");
        admin.empty_bucket(name).await?;
        admin.delete_bucket(name).await?;
    }
    fixture.done().await
}
