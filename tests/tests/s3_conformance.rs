//! `aws-s3-provisioner` keeps the contract of provisioners of buckets, on moto.

use std::time::Duration;

use aws_s3_provisioner::{Args, Aws};
use clap::Parser as _;
use e2e::control_plane::State;
use e2e::s3::proxy::{self, Faults};
use e2e::s3::{S3, Server};
use kube_provisioner::conformance::BucketConformance;
use serde_json::json;

#[tokio::test]
async fn aws_the_contract_is_kept() -> anyhow::Result<()> {
    contract(None).await
}

#[tokio::test]
async fn aws_the_contract_is_kept_when_calls_fail() -> anyhow::Result<()> {
    let latency = Duration::from_millis(5);
    contract(Some(Faults { unavailable: 7, too_many: 11, cut_before: 13, cut_after: 17, latency })).await
}

async fn contract(faults: Option<Faults>) -> anyhow::Result<()> {
    let s3 = S3::start(&State::for_tests()?.guard()).await?;
    let server = s3.server().clone();
    server.admin()?.create_bucket("existing", Some("eu-central-1")).await?;
    let Server { access_key, secret_key, .. } = &server;
    let endpoint = match faults {
        Some(faults) => &proxy::start(&server, faults).await?,
        None => &server.endpoint,
    };
    let admin = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
        "stringData": {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key},
    });
    let given = [
        "aws-s3-provisioner",
        "--provisioner-name",
        "aws",
        "--region",
        "eu-central-1",
        "--endpoint",
        endpoint,
        "--iam-endpoint",
        endpoint,
    ];
    let defaults = Args::parse_from(given).defaults;
    let listed = server.clone();
    let report = BucketConformance::new(
        move || Aws::new(defaults.clone()),
        move || {
            let server = listed.clone();
            async move { assets(&server).await.expect("moto answers") }
        },
    )
    .parameters([("adminSecretName", "admin"), ("adminSecretNamespace", "default")])
    .existing_bucket("existing")
    .keys_shown_once()
    .objects([admin])
    .seeds(0..1)
    .real_time()
    .run()
    .await;
    assert!(report.is_kept(), "{report}");
    Ok(())
}

/// Buckets, users and their keys.
async fn assets(server: &Server) -> anyhow::Result<Vec<String>> {
    let iam = server.iam()?;
    let mut all: Vec<String> = server.admin()?.list_buckets().await?.into_iter().map(|bucket| bucket.name).collect();
    for user in iam.users("/kube-provisioner/").await? {
        all.extend(iam.access_keys(&user).await?.into_iter().map(|key| format!("key {}", key.id)));
        all.push(user);
    }
    Ok(all)
}
