//! `aws-s3-provisioner` keeps the contract of provisioners of buckets, on moto.

use std::time::Duration;

use aws_s3_provisioner::{Args, Aws};
use clap::Parser as _;
use futures::future::try_join_all;
use kube_provisioner::conformance::BucketConformance;
use serde_json::json;
use testbed::control_plane::State;
use testbed::s3::proxy::{self, Faults};
use testbed::s3::{S3, Server};

const FAULTS: Faults =
    Faults { unavailable: 7, too_many: 11, cut_before: 13, cut_after: 17, latency: Duration::from_millis(5) };

#[tokio::test]
async fn aws_the_contract_is_kept() -> anyhow::Result<()> {
    contract("eu-central-1", None).await
}

#[tokio::test]
async fn aws_the_contract_is_kept_when_calls_fail() -> anyhow::Result<()> {
    contract("eu-central-1", Some(FAULTS)).await
}

/// There making one's own bucket again succeeds.
#[tokio::test]
async fn aws_the_contract_is_kept_in_us_east_1() -> anyhow::Result<()> {
    contract("us-east-1", None).await
}

#[tokio::test]
async fn aws_the_contract_is_kept_in_us_east_1_when_calls_fail() -> anyhow::Result<()> {
    contract("us-east-1", Some(FAULTS)).await
}

async fn contract(region: &str, faults: Option<Faults>) -> anyhow::Result<()> {
    // Not one for each rule: moto's start takes a second of processor time.
    const PARTS: usize = 4;
    let rules: Vec<_> = BucketConformance::rules().collect();
    let parts = (0..PARTS).map(|part| kept(rules.iter().skip(part).step_by(PARTS), region, faults));
    try_join_all(parts).await.map(drop)
}

/// Checks some rules on a server of their own: most of the time is waited.
async fn kept(rules: impl Iterator<Item = &&'static str>, region: &str, faults: Option<Faults>) -> anyhow::Result<()> {
    let s3 = S3::start(&State::for_tests()?.guard()).await?;
    let server = s3.server().clone();
    let location = (region != "us-east-1").then_some(region);
    server.admin_in(region)?.create_bucket("existing", location).await?;
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
        region,
        "--endpoint",
        endpoint,
        "--iam-endpoint",
        endpoint,
    ];
    let defaults = Args::parse_from(given).defaults;
    let listed = server.clone();
    let kit = BucketConformance::new(
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
    .real_time();
    let kit = rules.fold(kit, |kit, rule| kit.only(rule));
    let report = by_hand(kit, &server, region.to_owned()).run().await;
    assert!(report.is_kept(), "{report}");
    Ok(())
}

/// How an administrator makes buckets, and removes them.
fn by_hand(kit: BucketConformance, server: &Server, region: String) -> BucketConformance {
    let location = (region != "us-east-1").then(|| region.clone());
    let account = server.clone();
    let admin = move || account.admin_in(&region).expect("moto's address is one");
    let admins = admin.clone();
    let make = move |name: String| {
        let (admin, location) = (admin(), location.clone());
        async move {
            // In us-east-1 it would be made again without an error, also beside a request that is still on its way.
            if location.is_none() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            !admin.bucket_exists(&name).await.expect("moto answers")
                && admin.create_bucket(&name, location.as_deref()).await.is_ok()
        }
    };
    let remove = move |name: String| {
        let admin = admins();
        async move {
            admin.empty_bucket(&name).await.expect("moto answers");
            admin.delete_bucket(&name).await.expect("moto answers");
        }
    };
    kit.by_hand(make, remove)
}

/// Buckets, users, and their keys and policies.
async fn assets(server: &Server) -> anyhow::Result<Vec<String>> {
    let iam = server.iam()?;
    let mut all: Vec<String> = server.admin()?.list_buckets().await?;
    for user in iam.users("/kube-provisioner/").await? {
        all.extend(iam.access_keys(&user).await?.into_iter().map(|key| format!("key {}", key.id)));
        all.extend(testbed::s3::policies(&iam, &user).await?);
        all.push(user);
    }
    Ok(all)
}
