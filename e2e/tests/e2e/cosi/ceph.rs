//! The driver on a real RADOS gateway.

use anyhow::ensure;
use cosi_sanity::Version;
use serde_json::Value;
use testbed::ceph::State;

use super::fixture::Bed;

#[tokio::test]
async fn ceph_driver_passes_cosi_sanity() -> anyhow::Result<()> {
    let (bed, ceph, files) = (Bed::new("cosi-ceph").await?, State::for_tests()?, tempfile::tempdir()?);
    let file = |name: &str| files.path().join(name).display().to_string();
    let (access, secret) = (file("access"), file("secret"));
    std::fs::write(&access, &ceph.access_key)?;
    std::fs::write(&secret, &ceph.secret_key)?;
    let arguments =
        [["--endpoint", &ceph.endpoint], ["--admin-access-key-file", &access], ["--admin-secret-key-file", &secret]];
    let start = async || bed.start("ceph-rgw-provisioner", &["RUST_LOG=trace"], &arguments.concat()).await;
    for version in Version::ALL {
        bed.check_sanity(version, start, "bucketPlacement=elsewhere").await?;
    }

    let program = start().await?;
    let (bucket, account) = ("cosi-ceph-photos", "ba-ceph-photos");
    bed.create(bucket).await?;
    let key = bed.grant(account, bucket, &[]).await?;
    key.client()?.put_object(bucket, "cat", "miaow").await?;
    bed.revoke(account, bucket).await?;
    ensure!(key.client()?.get_object(bucket, "cat").await.is_err(), "the key still works");
    bed.delete(bucket).await?;
    Bed::leaks_no_secrets(&program, &[&key.secret, &ceph.secret_key])?;

    for kind in ["user", "bucket"] {
        let all = ceph.radosgw_admin(&[kind, "list"]).await?;
        let mut names = all.as_array().into_iter().flatten().filter_map(Value::as_str);
        // Only this test creates such names on the gateway.
        let left =
            names.find(|name| ["obc-bucket.", "obc-access.", "cosi-"].iter().any(|start| name.starts_with(start)));
        ensure!(left.is_none(), "leftovers: {left:?}");
    }
    bed.has_no_records().await?;
    bed.space.done().await
}
