//! Tests that apply to all bucket provisioners, whatever their object store. The ids refer to rows of
//! `docs/book/pages/reference/behaviour.md`.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kube_provisioner::protocol::ROTATE_CREDENTIALS;
use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use serde_json::{Value, json};

use crate::cluster::{BucketSpace, Program, eventually, is_bucket_bound, named};

/// The limit for every wait.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A provisioner with its own object store, and a class named `class`.
#[expect(async_fn_in_trait, reason = "tests are of one thread")]
pub trait BucketFixture: Deref<Target = BucketSpace> + Sized {
    /// The parameters of every class.
    const PARAMETERS: &[(&str, &str)];

    /// Starts the object store, and creates the class.
    async fn new(test: &str) -> anyhow::Result<Self>;

    /// Ends the object store.
    fn into_space(self) -> BucketSpace;

    /// Starts the provisioner with verbose logs.
    fn spawn(&self) -> anyhow::Result<Program>;

    /// The buckets and users that the provisioner created.
    async fn assets(&self) -> anyhow::Result<BTreeSet<String>>;

    /// Starts the provisioner and waits until it is connected.
    async fn start(&self) -> anyhow::Result<Program> {
        let program = self.spawn()?;
        program.wait_for_output("connected", SOON).await?;
        Ok(program)
    }

    /// Starts the object store and the provisioner.
    async fn started(test: &str) -> anyhow::Result<(Self, Program)> {
        let fixture = Self::new(test).await?;
        let program = fixture.start().await?;
        Ok((fixture, program))
    }

    /// Creates a class with additional parameters.
    async fn class_with(&self, suffix: &str, more: &[(&str, &str)]) -> anyhow::Result<()> {
        self.class(suffix, &[Self::PARAMETERS, more].concat()).await
    }

    /// Waits until the object store contains no buckets or users of this test.
    async fn nothing_left(&self) -> anyhow::Result<()> {
        let mut left = BTreeSet::new();
        let gone = eventually(SOON, async || {
            left = self.assets().await?;
            Ok(left.is_empty().then_some(()))
        });
        gone.await?.with_context(|| format!("this is left: {left:?}"))
    }

    /// Ends the test once the object store contains no leftovers.
    async fn done(self) -> anyhow::Result<()> {
        self.nothing_left().await?;
        self.into_space().space.done().await
    }

    /// Deletes these claims, and ends the test once the object store contains no leftovers.
    async fn done_without(self, claims: &[&str]) -> anyhow::Result<()> {
        for claim in claims {
            self.delete(claim).await?;
        }
        self.done().await
    }

    /// Runs a whole test with its own object store.
    async fn case(test: &str, case: impl AsyncFn(&Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let fixture = Self::new(test).await?;
        case(&fixture).await?;
        fixture.done().await
    }
}

/// U1 U3 U7 U8 Y1 Y5: a claim is provisioned once its class exists; its Secret and ConfigMap have the standard form.
pub async fn claims_are_provisioned_once_their_class_exists(fixture: &impl BucketFixture) -> anyhow::Result<()> {
    let _program = fixture.start().await?;
    fixture.claim("photos", "late", json!({"generateBucketName": "p".repeat(60)})).await?;
    fixture.bind("videos", "class", json!({})).await?;
    fixture.class_with("late", &[]).await?;
    let claim = fixture.bound("photos").await?;
    let user = fixture.user("photos").await?;
    ensure!(user.works().await && user.bucket.len() <= 63 && user.bucket.starts_with("ppp"), "{}", user.bucket);
    let secret = fixture.space.api::<Secret>().get("photos").await?;
    let keys: Vec<&String> = secret.data.iter().flatten().map(|(key, _)| key).collect();
    assert_eq!(keys, ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]);
    let map = fixture.space.api::<ConfigMap>().get("photos").await?;
    let data = map.data.clone().unwrap_or_default();
    for key in ["BUCKET_HOST", "BUCKET_NAME", "BUCKET_PORT", "BUCKET_REGION", "BUCKET_SUBREGION"] {
        ensure!(data.contains_key(key), "the ConfigMap has no {key}");
    }
    for (owners, labels) in [(secret.owner_references(), secret.labels()), (map.owner_references(), map.labels())] {
        ensure!(owners.iter().any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref()), "{owners:?}");
        ensure!(labels.contains_key("bucket-provisioner"), "{labels:?}");
    }
    fixture.delete("photos").await?;
    fixture.delete("videos").await
}

/// Z3 Z4: a bucket is deleted or retained as configured at its creation, even if its class has changed or no longer
/// exists.
pub async fn buckets_outlive_their_classes(fixture: &impl BucketFixture) -> anyhow::Result<()> {
    let _program = fixture.start().await?;
    let classes = fixture.space.cluster_api::<StorageClass>();
    let remove = async |suffix: &str| -> anyhow::Result<()> {
        let name = fixture.space.cluster_wide_name(suffix);
        classes.delete(&name, &DeleteParams::default()).await?;
        fixture.space.wait_gone(&classes, &name).await
    };
    let shared = format!("{}-shared", fixture.space.namespace());
    fixture.bind("owner", "class", json!({"bucketName": shared})).await?;
    let before = fixture.assets().await?;
    fixture.class_with("gone", &[]).await?;
    fixture.class_with("granted", &[("bucketName", &shared)]).await?;
    fixture.claim("orphan", "gone", json!({})).await?;
    fixture.claim("reader", "granted", json!({})).await?;
    fixture.bound("orphan").await?;
    fixture.bound("reader").await?;
    remove("gone").await?;
    fixture.delete("orphan").await?;
    remove("granted").await?;
    fixture.class_with("granted", &[]).await?;
    fixture.delete("reader").await?;
    assert_eq!(fixture.assets().await?, before);
    ensure!(fixture.user("owner").await?.works().await, "the owner's key no longer works");
    fixture.delete("owner").await
}

/// Z5 Z6 Z7 Z8: the provisioner never touches foreign objects, and restores its own.
pub async fn foreign_objects_stay(fixture: &impl BucketFixture) -> anyhow::Result<()> {
    let _program = fixture.start().await?;
    let secrets = fixture.space.api::<Secret>();
    let foreign: Secret = serde_json::from_value(json!({"metadata": {"name": "photos"}, "stringData": {"a": "b"}}))?;
    let foreign = fixture.space.create(&foreign).await?;
    fixture.claim("photos", "class", json!({})).await?;
    fixture.message("photos", "SecretNotOwned").await?;
    assert_eq!(secrets.get("photos").await?.metadata.resource_version, foreign.metadata.resource_version);
    secrets.delete("photos", &DeleteParams::default()).await?;
    fixture.bound("photos").await?;
    let photos = fixture.user("photos").await?;

    // A bucket of another owner.
    let before = fixture.assets().await?;
    fixture.claim("thief", "class", json!({"bucketName": photos.bucket})).await?;
    let told = fixture.message("thief", "ProvisioningFailed").await?;
    ensure!(told.contains(&photos.bucket), "{told}");
    fixture.delete("thief").await?;
    assert_eq!(fixture.assets().await?, before);
    ensure!(photos.works().await, "the owner's key no longer works");

    // Both names result in NAMESPACE-b-c when they are joined.
    let other = Namespace { metadata: named(&format!("{}-b", fixture.space.namespace())), ..Namespace::default() };
    let other = fixture.space.create_cluster_wide(&other).await?.name_any();
    let there = Api::<ObjectBucketClaim>::namespaced(fixture.space.client(), &other);
    let mut twin = fixture.claim("b-c", "class", json!({})).await?;
    twin.metadata = named("c");
    twin.status = None;
    there.create(&PostParams::default(), &twin).await?;
    let one = fixture.bound("b-c").await?.spec.object_bucket_name;
    let two = fixture.space.wait_for_within(SOON, &there, "c", "bound", is_bucket_bound).await?.spec.object_bucket_name;
    ensure!(one != two, "both claims have bucket {one:?}");
    there.delete("c", &DeleteParams::default()).await?;
    fixture.space.wait_gone(&there, "c").await?;
    ensure!(fixture.user("b-c").await?.works().await, "the key of the other claim no longer works");

    // A user edits the ConfigMap, and deletes objects of the claim.
    let edit = json!({"data": {"BUCKET_NAME": "elsewhere"}});
    let maps = fixture.space.api::<ConfigMap>();
    maps.patch("photos", &PatchParams::default(), &Patch::Merge(edit)).await?;
    secrets.delete("photos", &DeleteParams::default()).await?;
    let mended = eventually(SOON, async || {
        let user = fixture.user("photos").await.ok().filter(|user| user.bucket == photos.bucket);
        let Some(user) = user else { return Ok(None) };
        Ok(user.works().await.then_some(()))
    });
    ensure!(mended.await?.is_some(), "the Secret or the ConfigMap was not restored");
    fixture.delete("b-c").await?;
    fixture.delete("photos").await
}

/// Z10 Z11: a changed or recreated claim is reconciled at once, and inherits nothing from the previous one.
pub async fn changed_claims_are_reconciled_at_once(fixture: &impl BucketFixture) -> anyhow::Result<()> {
    let _program = fixture.start().await?;
    for claim in ["mended", "dropped"] {
        fixture.claim(claim, "class", json!({"additionalConfig": {"nonsense": "1"}})).await?;
        ensure!(fixture.message(claim, "ConfigNotAllowed").await?.contains("nonsense"), "the message lacks the key");
    }
    let start = Instant::now();
    fixture.delete("dropped").await?;
    fixture.patch("mended", json!({"spec": {"additionalConfig": null}})).await?;
    fixture.bound("mended").await?;
    ensure!(start.elapsed() < Duration::from_secs(20), "reconciling took {:?}", start.elapsed());

    let former = fixture.user("mended").await?;
    let claims = fixture.space.api::<ObjectBucketClaim>();
    claims.delete("mended", &DeleteParams::default()).await?;
    let again = eventually(SOON, async || Ok(fixture.claim("mended", "class", json!({})).await.ok())).await?;
    ensure!(again.is_some(), "the previous claim was not deleted");
    fixture.bound("mended").await?;
    let user = fixture.user("mended").await?;
    ensure!(user.bucket != former.bucket && user.works().await && !former.works().await, "the bucket is reused");
    fixture.delete("mended").await
}

/// Z17: with `DeleteIfEmpty`, a bucket and its keys stay until the bucket is empty.
pub async fn delete_if_empty_keeps_a_bucket_with_objects(fixture: &impl BucketFixture) -> anyhow::Result<()> {
    let _program = fixture.start().await?;
    fixture.class_with("careful", &[("deletionPolicy", "DeleteIfEmpty")]).await?;
    for claim in ["full", "empty"] {
        fixture.bind(claim, "careful", json!({})).await?;
    }
    fixture.delete("empty").await?;
    let user = fixture.user("full").await?;
    user.put("cat", "miaow").await?;
    let claims = fixture.space.api::<ObjectBucketClaim>();
    claims.delete("full", &DeleteParams::default()).await?;
    fixture.wait_for_ready_message("full", "contains objects").await?;
    ensure!(user.get("cat").await?.is_some(), "the object was deleted");
    user.client.delete_object(&user.bucket, "cat").await?;
    fixture.space.wait_gone(&claims, "full").await
}

/// Z30: claims share a bucket until the last of them is deleted, each with its own key and permissions.
pub async fn claims_share_a_bucket(fixture: &impl BucketFixture) -> anyhow::Result<()> {
    let _program = fixture.start().await?;
    let reads = json!({"bucketClaimName": "photos", "accessMode": "read-only"});
    fixture.claim("reader", "class", json!({"additionalConfig": reads})).await?;
    fixture.message("reader", "AwaitsBucketClaim").await?;
    fixture.claim("writer", "class", json!({"additionalConfig": {"bucketClaimName": "photos"}})).await?;
    fixture.claim("photos", "class", json!({})).await?;
    for claim in ["photos", "reader", "writer"] {
        fixture.bound(claim).await?;
    }
    let (photos, reader) = (fixture.user("photos").await?, fixture.user("reader").await?);
    let writer = fixture.user("writer").await?;
    let same_bucket = photos.bucket == reader.bucket && photos.bucket == writer.bucket;
    ensure!(same_bucket && photos.id != reader.id && photos.id != writer.id, "not one bucket with three keys");
    writer.put("cat", "miaow").await?;
    for user in [&photos, &reader, &writer] {
        ensure!(user.get("cat").await?.as_deref() == Some("miaow"), "a key cannot read an object in the bucket");
    }
    ensure!(reader.put("dog", "wuff").await.is_err(), "the key of a read-only claim can write");

    let claims = fixture.space.api::<ObjectBucketClaim>();
    claims.delete("photos", &DeleteParams::default()).await?;
    fixture.wait_for_ready_message("photos", "which use it, are deleted").await?;
    ensure!(reader.works().await && writer.works().await && photos.works().await, "a key no longer works");
    fixture.delete("reader").await?;
    ensure!(!reader.works().await && writer.works().await, "deleting a claim did not revoke exactly its key");
    ensure!(claims.get_opt("photos").await?.is_some(), "the claim was deleted before its bucket");
    fixture.delete("writer").await?;
    fixture.space.wait_gone(&claims, "photos").await?;
    fixture.nothing_left().await
}

/// Z1 Z2: claims are created, changed, rotated and deleted while the provisioner is killed at random moments,
/// `E2E_KILLS` times. `spec` is the spec of a claim, and `change` a patch of it; both classes have `parameters`. In the
/// end, four claims with working keys remain, in addition to the owner of the bucket that two of them share.
/// `is_settled` returns true if the store contains nothing else.
pub async fn leaves_nothing_behind_when_killed_at_random(
    fixture: &impl BucketFixture,
    parameters: &[(&str, &str)],
    (spec, change): (impl Fn(u64) -> Value, Value),
    is_settled: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let kills = crate::count("E2E_KILLS", 12_u64)?;
    let claims = fixture.space.api::<ObjectBucketClaim>();
    let shared = format!("shared-{}", fixture.space.namespace());
    fixture.class_with("killed", parameters).await?;
    fixture.class_with("granted", &[parameters, &[("bucketName", shared.as_str())]].concat()).await?;
    let mut program = fixture.start().await?;
    fixture.bind("owner", "killed", json!({"bucketName": shared})).await?;
    let mut moments = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..kills {
        fixture.claim(&format!("made-{kill}"), "killed", spec(kill)).await?;
        fixture.claim(&format!("granted-{kill}"), "granted", json!({})).await?;
        if kill > 0 {
            let mut patch = change.clone();
            patch["metadata"] = json!({"annotations": {(ROTATE_CREDENTIALS): kill.to_string()}});
            fixture.patch(&format!("made-{}", kill - 1), patch).await?;
        }
        if kill > 1 {
            for gone in ["made", "granted"] {
                claims.delete(&format!("{gone}-{}", kill - 2), &DeleteParams::default()).await?;
            }
        }
        moments = moments.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        tokio::time::sleep(Duration::from_millis(moments >> 54)).await;
        program.kill().await?;
        program = fixture.spawn()?;
    }
    let last = kills - 1;
    for claim in [format!("made-{last}"), format!("made-{}", last - 1), format!("granted-{last}")] {
        fixture.bound(&claim).await?;
        let works = eventually(SOON, async || Ok(fixture.user(&claim).await?.works().await.then_some(())));
        ensure!(works.await?.is_some(), "the keys of {claim} do not work");
    }
    let settled = eventually(SOON, async || Ok(is_settled().await?.then_some(())));
    ensure!(settled.await?.is_some(), "{:?}", fixture.assets().await?);
    // The last deletions may wait for another attempt.
    let all = eventually(SOON, async || {
        let all = claims.list(&ListParams::default()).await?;
        let bound = all.iter().all(is_bucket_bound);
        Ok(bound.then_some(all))
    });
    let all = all.await?.context("some claims are not bound")?;
    // The owner's bucket is deleted last.
    for claim in all.iter().map(ResourceExt::name_any).filter(|claim| claim != "owner") {
        fixture.delete(&claim).await?;
    }
    fixture.delete("owner").await
}

/// Z12: one of two replicas is active; the other takes over when it dies.
pub async fn a_replica_takes_over(fixture: &impl BucketFixture) -> anyhow::Result<()> {
    let mut first = fixture.start().await?;
    fixture.bind("a", "class", json!({})).await?;
    let _second = fixture.start().await?;
    first.kill().await?;
    let start = Instant::now();
    fixture.bind("b", "class", json!({})).await?;
    ensure!(start.elapsed() < Duration::from_secs(20), "taking over took {:?}", start.elapsed());
    fixture.delete("a").await?;
    fixture.delete("b").await
}

/// Z34: the command `orphans` finds and removes exactly the assets that have no ObjectBucket.
pub async fn orphans_are_found_and_removed(
    fixture: &impl BucketFixture,
    orphans: impl AsyncFn(&[&str]) -> anyhow::Result<(bool, String)>,
) -> anyhow::Result<()> {
    let mut program = fixture.start().await?;
    fixture.bind("videos", "class", json!({})).await?;
    let before = fixture.assets().await?;
    fixture.bind("photos", "class", json!({})).await?;
    let (lost, kept) = (fixture.user("photos").await?, fixture.user("videos").await?);
    lost.put("cat", "x").await?;
    program.kill().await?;
    let (_, text) = orphans(&[]).await?;
    ensure!(text.contains("2 in use, 0 orphans"), "{text}");

    // A user removes the objects by force.
    let claims = fixture.space.api::<ObjectBucketClaim>();
    let object = claims.get("photos").await?.spec.object_bucket_name.context("it is bound")?;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let objects = fixture.space.cluster_api::<ObjectBucket>();
    claims.patch("photos", &PatchParams::default(), &bare).await?;
    claims.delete("photos", &DeleteParams::default()).await?;
    objects.patch(&object, &PatchParams::default(), &bare).await?;
    objects.delete(&object, &DeleteParams::default()).await?;
    let (_, text) = orphans(&[]).await?;
    ensure!(text.contains(&lost.bucket) && !text.contains(&kept.bucket), "{text}");
    ensure!(text.contains("1 in use, 1 orphan\n"), "{text}");

    // Other tests create ObjectBuckets that cannot be read; while they exist, the command removes nothing.
    let told = async |more: &[&str], part: &str| {
        let mut text = String::new();
        let found = eventually(SOON, async || {
            text = orphans(more).await?.1;
            Ok(text.contains(part).then_some(()))
        });
        found.await?.with_context(|| format!("no {part:?} in {text}"))
    };
    let name = lost.bucket.as_str();
    told(&["--delete", "--yes"], &format!("--with-objects {name} removes the bucket with its objects")).await?;
    ensure!(lost.get("cat").await?.is_some(), "the objects were deleted");
    told(&["--delete", "--yes", "--with-objects", name], "is removed").await?;
    assert_eq!(fixture.assets().await?, before);
    ensure!(kept.works().await, "the key of the other claim no longer works");

    let _program = fixture.start().await?;
    fixture.delete("videos").await
}

/// Z14: the objects of a full bucket are deleted page by page without delaying other claims. Set `E2E_OBJECTS` for
/// longer runs. `versioning` is the class parameter that enables versions: every fourth object has two.
pub async fn a_full_bucket_is_deleted_while_others_are_served(
    fixture: &impl BucketFixture,
    versioning: &[(&str, &str)],
) -> anyhow::Result<()> {
    let objects = crate::count("E2E_OBJECTS", 1200_usize)?;
    let program = fixture.start().await?;
    fixture.class_with("full", versioning).await?;
    let user = fixture.new_user("full", "full", json!({})).await?;
    let names = (0..objects).chain((0..objects).step_by(4)).map(|at| format!("object-{at}"));
    let user = &user;
    let put = async |name: String| user.put(&name, "x").await;
    stream::iter(names).map(put).buffer_unordered(16).try_collect::<()>().await?;
    let claims = fixture.space.api::<ObjectBucketClaim>();
    let (start, before) = (Instant::now(), program.id().resident_memory()?);
    claims.delete("full", &DeleteParams::default()).await?;
    let others = ["other-0", "other-1", "other-2", "other-3", "other-4"];
    for other in others {
        fixture.bind(other, "class", json!({})).await?;
    }
    let (served, mut most) = (start.elapsed(), before);
    let limit = Duration::from_secs(120 + objects as u64 / 20);
    let gone = eventually(limit, async || {
        most = most.max(program.id().resident_memory()?);
        Ok(claims.get_opt("full").await?.is_none().then_some(()))
    });
    ensure!(gone.await?.is_some(), "the full bucket was not deleted");
    #[expect(clippy::print_stdout, reason = "the figures of longer runs")]
    {
        let (gone, versions) = (start.elapsed(), objects.div_ceil(4));
        println!(
            "{objects} objects and {versions} versions more: gone after {gone:?}; 5 claims bound after {served:?}"
        );
        println!("memory: {before} bytes before, {most} at most");
    }
    for other in others {
        fixture.delete(other).await?;
    }
    Ok(())
}
