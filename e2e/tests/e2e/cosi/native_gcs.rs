//! The controller as a replacement of the sidecar, on a fake of Google's services, with the permissions of its chart.

use anyhow::ensure;
use gcs_sim::Server;
use testbed::cluster::TestSpace;
use testbed::manifests::{parse, project};

use super::native::Native;

// Rules: J14, J17.
#[tokio::test]
async fn gcs_one_account_has_access_to_two_buckets() -> anyhow::Result<()> {
    let space = TestSpace::new("cosi-n-gcs").await?;
    let name = space.namespace().to_owned();
    // The test's namespace does not contain an account of the chart's name.
    let account = std::fs::read_to_string(project().join("deploy/gcs/cosi/rbac.yaml"))?;
    let account = parse(&account.replace("gcs-provisioner", &name))?;
    let native = Native::with(space, "gcs.kube-provisioner".to_owned(), (&name, &account)).await?;
    let (google, files) = (Server::start().await?, tempfile::tempdir()?);
    let program = native.start_on_google(&google, files.path())?;
    for claim in ["photos", "films"] {
        native.claim(claim, "delete").await?;
        native.ready("BucketClaim", claim).await?;
    }
    native.access("web", &["photos", "films"]).await?;
    native.ready("BucketAccess", "web").await?;
    let (photos, films) = (native.entries("web-photos").await?, native.entries("web-films").await?);
    ensure!(photos.get("AWS_ACCESS_KEY_ID") == films.get("AWS_ACCESS_KEY_ID"), "the accesses have different keys");
    ensure!(photos.bucket() != films.bucket() && photos.works().await? && films.works().await?, "a key does not work");
    native.cosi.delete("BucketAccess", "web").await?;
    native.gone("BucketAccess", "web").await?;
    ensure!(!photos.works().await? && !films.works().await?, "the key still works");
    for claim in ["photos", "films"] {
        native.cosi.delete("BucketClaim", claim).await?;
        native.gone("BucketClaim", claim).await?;
    }
    let left: Vec<_> = google.assets().into_iter().collect();
    ensure!(left.is_empty(), "leftovers: {left:?}");
    native.done(&program, &[photos.get("AWS_SECRET_ACCESS_KEY"), "ya29.", "PRIVATE KEY"]).await
}
