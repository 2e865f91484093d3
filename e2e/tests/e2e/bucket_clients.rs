//! Real S3 clients in the environment of a pod: only the entries of the claim's Secret and ConfigMap.

use anyhow::{Context, ensure};
use gcs_sim::Server;
use serde_json::json;
use tempfile::TempDir;
use testbed::ceph::State;
use testbed::cluster::{BucketSpace, Program};
use testbed::control_plane;
use testbed::s3::S3;
use testbed::s3::clients::{AWS, Pod, RCLONE, boto3, works};
use testbed::versity::Versity;

/// The variables that keep clients from adding checksums by default.
const CHECKSUMS: [&str; 2] = ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"];

/// A bound claim for pods.
struct Bound {
    buckets: BucketSpace,
    _program: Program,
    _files: TempDir,
}

impl Bound {
    /// Provisions a claim with this program, additional options, and the files that they name.
    async fn new(
        buckets: BucketSpace,
        package: &str,
        variables: &[&str],
        options: &[&str],
        files: TempDir,
    ) -> anyhow::Result<Self> {
        buckets.class("class", &[]).await?;
        let program = buckets.spawn(package, variables, options)?;
        buckets.bind("photos", "class", json!({})).await?;
        Ok(Self { buckets, _program: program, _files: files })
    }

    /// A pod that uses the claim's Secret and ConfigMap with `envFrom`, and `more` variables of its own.
    async fn pod(&self, more: &[(&str, &str)]) -> anyhow::Result<Pod> {
        self.buckets.pod("photos", more).await
    }

    async fn done(self) -> anyhow::Result<()> {
        self.buckets.delete("photos").await?;
        self.buckets.space.done().await
    }
}

/// Checks that boto3 and the AWS CLI fail to write without the entries about checksums.
async fn needs_the_entries(pod: &Pod, refusal: &str) -> anyhow::Result<()> {
    for name in CHECKSUMS {
        ensure!(pod.entry(name) == Some("when_required"), "the ConfigMap's {name} is {:?}", pod.entry(name));
    }
    let without = pod.without(&CHECKSUMS)?;
    let put = r#"python3 -c 'import boto3, os; boto3.client("s3").put_object(Bucket=os.environ["BUCKET_NAME"], Key="x", Body=b"x")'"#;
    let error = without.run(put).await.err().context("boto3 writes without the entries about checksums")?;
    ensure!(error.to_string().contains(refusal), "{error}");
    let put = r#"echo x | aws s3 cp - "s3://$BUCKET_NAME/x""#;
    without.run(put).await.err().context("the AWS CLI writes without the entries about checksums")?;
    Ok(())
}

#[tokio::test]
async fn ceph_clients_use_a_bucket() -> anyhow::Result<()> {
    let (ceph, files) = (State::for_tests()?, tempfile::tempdir()?);
    let file = |name: &str| files.path().join(name).display().to_string();
    let (access, secret, ca) = (file("access"), file("secret"), file("ca.crt"));
    for (file, content) in [(&access, &ceph.access_key), (&secret, &ceph.secret_key), (&ca, &ceph.ca_pem)] {
        std::fs::write(file, content)?;
    }
    let keys = ["--admin-access-key-file", &access, "--admin-secret-key-file", &secret];
    let files = tempfile::tempdir()?;
    let plain = Bound::new(
        BucketSpace::new("clients-rgw").await?,
        "ceph-rgw-provisioner",
        &[],
        &[&keys[..], &["--endpoint", &ceph.endpoint]].concat(),
        files,
    )
    .await?;
    let (boto3, script) = boto3();
    works(&plain.pod(&[]).await?, &[(boto3, &script), ("aws", AWS), ("rclone", RCLONE)]).await?;
    plain.done().await?;

    // Over TLS, clients send checksums after the body. Only this test trusts its gateway's authority.
    let secured = Bound::new(
        BucketSpace::new("clients-rgw-tls").await?,
        "ceph-rgw-provisioner",
        &[],
        &[&keys[..], &["--endpoint", &ceph.https_endpoint, "--ca-bundle", &ca]].concat(),
        tempfile::tempdir()?,
    )
    .await?;
    works(&secured.pod(&[("RCLONE_CA_CERT", &ca)]).await?, &[("rclone", RCLONE)]).await?;
    let pod = secured.pod(&[("AWS_CA_BUNDLE", &ca)]).await?;
    works(&pod, &[(boto3, &script), ("aws", AWS)]).await?;
    needs_the_entries(&pod, "MissingContentLength").await?;
    secured.done().await
}

#[tokio::test]
async fn aws_clients_use_a_bucket() -> anyhow::Result<()> {
    let aws = S3::start(&control_plane::State::for_tests()?.guard()).await?;
    let server = aws.server();
    let key = server.variables();
    let bound = Bound::new(
        BucketSpace::new("clients-s3").await?,
        "aws-s3-provisioner",
        &[&key[0], &key[1]],
        &["--endpoint", &server.endpoint, "--iam-endpoint", &server.endpoint, "--region", "eu-central-1"],
        tempfile::tempdir()?,
    )
    .await?;
    let (boto3, script) = boto3();
    let pod = bound.pod(&[]).await?;
    works(&pod, &[(boto3, &script), ("aws", AWS), ("rclone", RCLONE)]).await?;
    // It would override the address of all other AWS services, too.
    ensure!(pod.entry("AWS_ENDPOINT_URL").is_none(), "the ConfigMap has an address of all services");
    // Stores other than AWS may refuse the checksums that clients add.
    ensure!(CHECKSUMS.iter().all(|name| pod.entry(name).is_some()), "clients add checksums to what is not AWS");
    bound.done().await
}

#[tokio::test]
async fn versity_clients_use_a_bucket() -> anyhow::Result<()> {
    let versity = Versity::start("eu-central-1", &control_plane::State::for_tests()?.guard()).await?;
    let server = versity.server();
    let key = [("AWS_ACCESS_KEY_ID", &server.access_key), ("AWS_SECRET_ACCESS_KEY", &server.secret_key)];
    let key = key.map(|(name, value)| format!("{name}={value}"));
    let bound = Bound::new(
        BucketSpace::new("clients-versity").await?,
        "aws-s3-provisioner",
        &[&key[0], &key[1]],
        &["--endpoint", &server.endpoint, "--iam-endpoint", &server.iam_endpoint, "--region", "eu-central-1"],
        tempfile::tempdir()?,
    )
    .await?;
    let (boto3, script) = boto3();
    let pod = bound.pod(&[]).await?;
    works(&pod, &[(boto3, &script), ("aws", AWS), ("rclone", RCLONE)]).await?;
    // This store also accepts the checksums that clients add by default.
    works(&pod.without(&CHECKSUMS)?, &[(boto3, &script), ("aws", AWS)]).await?;
    bound.done().await
}

#[tokio::test]
async fn gcs_clients_use_a_bucket() -> anyhow::Result<()> {
    let (google, files) = (Server::start().await?, tempfile::tempdir()?);
    let key = files.path().join("key.json").display().to_string();
    std::fs::write(&key, google.admin_key())?;
    let bound = Bound::new(
        BucketSpace::new("clients-gcs").await?,
        "gcs-provisioner",
        &[],
        &["--endpoint", &google.endpoint, "--iam-endpoint", &google.endpoint, "--credentials-file", &key],
        files,
    )
    .await?;
    let (boto3, script) = boto3();
    let pod = bound.pod(&[]).await?;
    works(&pod, &[(boto3, &script), ("aws", AWS), ("rclone", RCLONE)]).await?;
    needs_the_entries(&pod, "SignatureDoesNotMatch").await?;
    bound.done().await
}
