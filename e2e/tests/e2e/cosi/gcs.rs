//! The driver on a fake of Google's services.

use std::collections::BTreeSet;

use anyhow::ensure;
use cosi_sanity::Version;
use gcs_sim::Server;

use super::fixture::Bed;

#[tokio::test]
async fn gcs_driver_passes_cosi_sanity() -> anyhow::Result<()> {
    let (bed, google, files) = (Bed::new("cosi-gcs").await?, Server::start().await?, tempfile::tempdir()?);
    let file = files.path().join("key.json").display().to_string();
    std::fs::write(&file, google.admin_key())?;
    let arguments =
        [["--endpoint", &google.endpoint], ["--iam-endpoint", &google.endpoint], ["--credentials-file", &file]];
    let start = async || bed.start("gcs-provisioner", &["RUST_LOG=trace"], &arguments.concat()).await;
    for version in Version::ALL {
        bed.check_sanity(version, start, "location=EU").await?;
    }

    let mut program = start().await?;
    bed.create("bc-gcs-photos").await?;
    let key = bed.grant("ba-gcs-photos", "bc-gcs-photos", &[]).await?;
    key.client()?.put_object("bc-gcs-photos", "cat", "miaow").await?;
    program.kill().await?;
    let program = start().await?;
    ensure!(bed.grant("ba-gcs-photos", "bc-gcs-photos", &[]).await? == key, "the key has changed");
    Bed::leaks_no_secrets(&program, &[&key.secret, "ya29.", "PRIVATE KEY"])?;
    bed.revoke("ba-gcs-photos", "bc-gcs-photos").await?;
    bed.delete("bc-gcs-photos").await?;
    let left: BTreeSet<_> = google.assets().into_iter().collect();
    ensure!(left.is_empty(), "leftovers: {left:?}");
    bed.has_no_records().await?;
    bed.space.done().await
}
