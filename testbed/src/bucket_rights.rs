//! Permissions of claims' keys, for every store in which an administrator can create buckets.

use anyhow::ensure;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use s3_client::policy::Policy;
use s3_client::{Client, Error};
use serde_json::json;

use crate::bucket_cases::{BucketFixture, SOON};
use crate::cluster::{BucketUser, eventually};

/// A store with buckets that belong to no claim.
#[expect(async_fn_in_trait, reason = "tests are of one thread")]
pub trait Administered: BucketFixture {
    /// The store's region.
    const REGION: &str;
    /// True if a lost Secret is recreated with another key.
    const KEYS_SHOWN_ONCE: bool;

    /// Creates a bucket manually. The returned client has all permissions in it.
    async fn make_bucket(&self, name: &str) -> anyhow::Result<Client>;

    /// Removes an empty bucket.
    async fn remove_bucket(&self, name: &str) -> anyhow::Result<()>;

    /// A secret that only the administrator may know.
    fn administrators_secret(&self) -> &str;
}

/// Fails unless the store denied the request for lack of a permission.
pub fn is_denied<T>(what: &str, answer: Result<T, Error>) -> anyhow::Result<()> {
    match answer {
        Err(error) if error.code() == "AccessDenied" => Ok(()),
        Err(error) => anyhow::bail!("{what}: {error}"),
        Ok(_) => anyhow::bail!("{what} is allowed"),
    }
}

/// Checks that the key has no permissions beyond the objects of its bucket.
async fn has_no_other_rights<F: Administered>(user: &BucketUser, other: &str) -> anyhow::Result<()> {
    let (client, bucket) = (&user.client, user.bucket.as_str());
    let public = json!({"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": format!("arn:aws:s3:::{bucket}/*")});
    let policy = Policy::parse(&json!({"Version": "2012-10-17", "Statement": [public]}).to_string())?;
    is_denied("making a bucket", client.create_bucket("another-one", Some(F::REGION)).await)?;
    is_denied("deleting its bucket", client.delete_bucket(bucket).await)?;
    is_denied("setting tags", client.put_bucket_tagging(bucket, &[("a".into(), "b".into())].into()).await)?;
    is_denied("setting a policy", client.put_bucket_policy(bucket, &policy).await)?;
    is_denied("deleting a policy", client.delete_bucket_policy(bucket).await)?;
    is_denied("reading another bucket", client.get_object(other, "x").await)?;
    is_denied("writing another bucket", client.put_object(other, "x", "y").await)?;
    is_denied("listing another bucket", client.list_object_versions(other).await)
}

/// W1 W2 Z8 Z9 Z16: a pod can use only its own bucket, and keys rotate.
pub async fn a_pod_uses_only_its_own_bucket_and_keys_rotate<F: Administered>(fixture: &F) -> anyhow::Result<()> {
    let program = fixture.start().await?;
    for claim in ["photos", "videos"] {
        fixture.bind(claim, "class", json!({})).await?;
    }
    let (photos, videos) = (fixture.user("photos").await?, fixture.user("videos").await?);
    photos.put("cat", "miaow").await?;
    ensure!(photos.get("cat").await?.as_deref() == Some("miaow"), "the object does not exist");
    has_no_other_rights::<F>(&photos, &videos.bucket).await?;
    has_no_other_rights::<F>(&videos, &photos.bucket).await?;

    fixture.request_key_rotation("photos", "now").await?;
    let after = fixture.next_user("photos", &photos).await?;
    ensure!(after.works().await && photos.works().await, "the old and the new key must both work during the overlap");
    let retired = eventually(SOON, async || Ok((!photos.works().await).then_some(()))).await?;
    ensure!(retired.is_some() && after.works().await, "the old key keeps working");
    // A lost Secret is recreated with a key that works.
    fixture.space.api::<Secret>().delete("photos", &DeleteParams::default()).await?;
    fixture.space.wait_for_within(SOON, &fixture.space.api::<Secret>(), "photos", "back", |_| true).await?;
    let back = fixture.user("photos").await?;
    ensure!(back.works().await, "the key of the new Secret does not work");
    ensure!((back.id != after.id) == F::KEYS_SHOWN_ONCE, "the key is {} after {}", back.id, after.id);
    if F::KEYS_SHOWN_ONCE {
        // The lost key stays valid during the overlap, for running pods.
        let retired = eventually(SOON, async || Ok((!after.works().await).then_some(()))).await?;
        ensure!(retired.is_some() && back.works().await, "the lost key keeps working");
    }

    fixture.delete("photos").await?;
    fixture.delete("videos").await?;
    let all = [fixture.administrators_secret(), &photos.secret, &videos.secret, &after.secret, &back.secret];
    fixture.leaks_no_secrets(&program, &all).await
}

/// Y4: claims receive access to an existing bucket, as their classes define.
pub async fn claims_get_access_to_an_existing_bucket<F: Administered>(fixture: &F) -> anyhow::Result<()> {
    let program = fixture.start().await?;
    let buckets = ["shared-bucket", "other-bucket"];
    let mut administrators = Vec::new();
    for bucket in buckets {
        let administrator = fixture.make_bucket(bucket).await?;
        administrator.put_object(bucket, "x", "hello").await?;
        administrators.push(administrator);
    }
    let before = fixture.assets().await?;
    let mut secrets = vec![fixture.administrators_secret().to_owned()];
    for access in ["read-write", "read-only", "write-only"] {
        fixture.class_with(access, &[("bucketName", "shared-bucket"), ("accessMode", access)]).await?;
        let user = fixture.new_user(access, access, json!({})).await?;
        has_access(access, &user, "x").await?;
        has_no_other_rights::<F>(&user, "other-bucket").await?;
        secrets.push(user.secret);
    }
    // A claim for a foreign bucket is refused, and the bucket stays.
    fixture.claim("thief", "class", json!({"bucketName": "shared-bucket"})).await?;
    fixture.wait_for_ready_message("thief", "was not created for this claim").await?;
    for claim in ["read-write", "read-only", "write-only", "thief"] {
        fixture.delete(claim).await?;
    }
    assert_eq!(fixture.assets().await?, before);
    for (bucket, administrator) in buckets.into_iter().zip(administrators) {
        ensure!(administrator.get_object(bucket, "x").await?.is_some(), "another user's object is missing");
        administrator.empty_bucket(bucket).await?;
        fixture.remove_bucket(bucket).await?;
    }
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    fixture.leaks_no_secrets(&program, &secrets).await
}

/// Fails unless the key has exactly this access to a bucket that contains this object.
pub async fn has_access(access: &str, user: &BucketUser, object: &str) -> anyhow::Result<()> {
    let (reads, writes) = (access != "write-only", access != "read-only");
    let list = user.client.list_object_versions(&user.bucket).await;
    if reads {
        ensure!(user.get(object).await?.is_some() && list.is_ok(), "{access} cannot read");
    } else {
        is_denied("reading", user.get(object).await)?;
        is_denied("listing", list)?;
    }
    if writes {
        user.put("y", "yes").await?;
        user.client.delete_object(&user.bucket, "y").await?;
    } else {
        is_denied("writing", user.put("y", "no").await)?;
        is_denied("deleting", user.client.delete_object(&user.bucket, object).await)?;
    }
    Ok(())
}
