//! Real S3 clients in the environment of a pod: only the entries of the claim's Secret and ConfigMap.

use anyhow::{Context, ensure};
use serde_json::json;
use testbed::bucket_cases::BucketFixture;
use testbed::s3::clients::{AWS, Pod, RCLONE, boto3, works};
use testbed::versity::Versity;

use crate::{aws_compatible, buckets, buckets_gcs, buckets_s3};

/// The variables that keep clients from adding checksums by default.
const CHECKSUMS: [&str; 2] = ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"];

/// Binds the claim `photos`, and checks that all clients work in its pod, which is returned.
pub(crate) async fn all_work(fixture: &impl BucketFixture) -> anyhow::Result<Pod> {
    fixture.bind("photos", "class", json!({})).await?;
    let (pod, (boto3, script)) = (fixture.pod("photos", &[]).await?, boto3());
    works(&pod, &[(boto3, &script), ("aws", AWS), ("rclone", RCLONE)]).await?;
    Ok(pod)
}

/// Checks that boto3 and the AWS CLI fail to write without the checksum entries.
async fn needs_the_entries(pod: &Pod, refusal: &str) -> anyhow::Result<()> {
    for name in CHECKSUMS {
        ensure!(pod.entry(name) == Some("when_required"), "the ConfigMap's {name} is {:?}", pod.entry(name));
    }
    let without = pod.without(&CHECKSUMS)?;
    let put = r#"python3 -c 'import boto3, os; boto3.client("s3").put_object(Bucket=os.environ["BUCKET_NAME"], Key="x", Body=b"x")'"#;
    let error = without.run(put).await.err().context("boto3 can write without the checksum entries")?;
    ensure!(error.to_string().contains(refusal), "{error}");
    let put = r#"echo x | aws s3 cp - "s3://$BUCKET_NAME/x""#;
    without.run(put).await.err().context("the AWS CLI can write without the checksum entries")?;
    Ok(())
}

#[tokio::test]
async fn ceph_clients_use_a_bucket() -> anyhow::Result<()> {
    let (plain, program) = buckets::fixture::Fixture::started("clients-rgw").await?;
    all_work(&plain).await?;
    plain.done_without(&["photos"]).await?;
    drop(program);

    // Over TLS, clients send checksums after the body. Only this test trusts its gateway's authority.
    let (secured, files) = (buckets::fixture::Fixture::new("clients-rgw-tls").await?, tempfile::tempdir()?);
    let ca = files.path().join("ca.crt").display().to_string();
    std::fs::write(&ca, &secured.ceph.ca_pem)?;
    let _program = secured.spawn_with(&secured.ceph.https_endpoint, &["--ca-bundle", &ca])?;
    secured.bind("photos", "class", json!({})).await?;
    works(&secured.pod("photos", &[("RCLONE_CA_CERT", &ca)]).await?, &[("rclone", RCLONE)]).await?;
    let (pod, (boto3, script)) = (secured.pod("photos", &[("AWS_CA_BUNDLE", &ca)]).await?, boto3());
    works(&pod, &[(boto3, &script), ("aws", AWS)]).await?;
    needs_the_entries(&pod, "MissingContentLength").await?;
    secured.done_without(&["photos"]).await
}

#[tokio::test]
async fn aws_clients_use_a_bucket() -> anyhow::Result<()> {
    let (fixture, _program) = buckets_s3::Fixture::started("clients-s3").await?;
    let pod = all_work(&fixture).await?;
    // It would also override the address of all other AWS services.
    ensure!(pod.entry("AWS_ENDPOINT_URL").is_none(), "the ConfigMap contains an address for all services");
    // Stores other than AWS may refuse the checksums that clients add.
    ensure!(CHECKSUMS.iter().all(|name| pod.entry(name).is_some()), "clients add checksums for stores other than AWS");
    fixture.done_without(&["photos"]).await
}

#[tokio::test]
async fn versity_clients_use_a_bucket() -> anyhow::Result<()> {
    let (fixture, _program) = aws_compatible::Fixture::<Versity>::started("clients-versity").await?;
    let (pod, (boto3, script)) = (all_work(&fixture).await?, boto3());
    // This store also accepts the checksums that clients add by default.
    works(&pod.without(&CHECKSUMS)?, &[(boto3, &script), ("aws", AWS)]).await?;
    fixture.done_without(&["photos"]).await
}

#[tokio::test]
async fn gcs_clients_use_a_bucket() -> anyhow::Result<()> {
    let (fixture, _program) = buckets_gcs::Fixture::started("clients-gcs").await?;
    needs_the_entries(&all_work(&fixture).await?, "SignatureDoesNotMatch").await?;
    fixture.done_without(&["photos"]).await
}
