//! The command `orphans`.

use anyhow::{Context as _, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::eventually;

use super::{Fixture, SOON};

impl Fixture {
    async fn orphans(&self, more: &[&str]) -> anyhow::Result<(bool, String)> {
        let server = self.server();
        let variables = [("AWS_ACCESS_KEY_ID", &*server.access_key), ("AWS_SECRET_ACCESS_KEY", &*server.secret_key)];
        let arguments = ["orphans", "--endpoint", &server.endpoint, "--iam-endpoint", &server.endpoint];
        self.buckets.command("aws-s3-provisioner", &variables, &[&arguments, more].concat()).await
    }
}

#[tokio::test]
async fn aws_z34_orphans_are_found_and_removed_and_nothing_else_is() -> anyhow::Result<()> {
    let fixture = Fixture::new("s3-orphans").await?;
    let mut program = fixture.start().await?;
    for claim in ["photos", "videos"] {
        fixture.claim(claim, "class", json!({})).await?;
        fixture.bound(claim).await?;
    }
    let (lost, kept) = (fixture.user("photos").await?, fixture.user("videos").await?);
    lost.put("cat", "x").await?;
    program.kill().await?;
    let (_, text) = fixture.orphans(&[]).await?;
    ensure!(text.contains("2 in use, 0 orphans"), "{text}");

    // Somebody removes the objects by force.
    let claims = fixture.space.api::<ObjectBucketClaim>();
    let object = claims.get("photos").await?.spec.object_bucket_name.context("it is bound")?;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let objects = fixture.space.cluster_api::<ObjectBucket>();
    claims.patch("photos", &PatchParams::default(), &bare).await?;
    claims.delete("photos", &DeleteParams::default()).await?;
    objects.patch(&object, &PatchParams::default(), &bare).await?;
    objects.delete(&object, &DeleteParams::default()).await?;
    let (_, text) = fixture.orphans(&[]).await?;
    ensure!(text.contains(&lost.bucket) && !text.contains(&kept.bucket), "{text}");
    ensure!(text.contains("1 in use, 1 orphans"), "{text}");

    // Other tests have ObjectBuckets that nobody can read, and nothing is removed meanwhile.
    let told = async |more: &[&str], part: &str| {
        let mut text = String::new();
        let found = eventually(SOON, async || {
            text = fixture.orphans(more).await?.1;
            Ok(text.contains(part).then_some(()))
        });
        found.await?.with_context(|| format!("no {part:?} in {text}"))
    };
    let name = lost.bucket.as_str();
    told(&["--delete", "--yes"], &format!("--with-objects {name} removes the bucket with its objects")).await?;
    ensure!(fixture.server().admin()?.get_object(name, "cat").await?.is_some(), "the objects are gone");
    told(&["--delete", "--yes", "--with-objects", name], "is removed").await?;
    let left = fixture.assets().await?;
    ensure!(left.len() == 2 && left.contains(&kept.bucket) && kept.works().await, "{left:?}");

    let _program = fixture.start().await?;
    fixture.delete("videos").await?;
    fixture.done().await
}
