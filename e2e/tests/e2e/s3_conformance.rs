//! `aws-s3-provisioner` keeps the contract of bucket provisioners, on moto.

use std::time::Duration;

use futures::future::try_join_all;
use kube_provisioner::conformance::BucketConformance;
use s3_client::Client;
use testbed::control_plane::State;
use testbed::s3::S3;
use testbed::s3::proxy::Faults;

use crate::aws_compatible::contract::keeps;

#[tokio::test]
async fn aws_the_contract_is_kept() -> anyhow::Result<()> {
    contract("eu-central-1", None).await
}

#[tokio::test]
async fn aws_the_contract_is_kept_when_calls_fail() -> anyhow::Result<()> {
    contract("eu-central-1", Some(Faults::USUAL)).await
}

/// In this region, creating a bucket that one already owns succeeds.
#[tokio::test]
async fn aws_the_contract_is_kept_in_us_east_1() -> anyhow::Result<()> {
    contract("us-east-1", None).await
}

#[tokio::test]
async fn aws_the_contract_is_kept_in_us_east_1_when_calls_fail() -> anyhow::Result<()> {
    contract("us-east-1", Some(Faults::USUAL)).await
}

async fn contract(region: &str, faults: Option<Faults>) -> anyhow::Result<()> {
    // Several rules share a server, because starting moto takes a second of CPU time.
    const PARTS: usize = 4;
    let rules: Vec<_> = BucketConformance::rules().collect();
    let parts = (0..PARTS).map(|part| kept(rules.iter().skip(part).step_by(PARTS), region, faults));
    try_join_all(parts).await.map(drop)
}

/// Checks some rules on a separate server, because most of a rule's time is spent waiting.
async fn kept(rules: impl Iterator<Item = &&'static str>, region: &str, faults: Option<Faults>) -> anyhow::Result<()> {
    let s3 = S3::start(&State::for_tests()?.guard()).await?;
    let account = s3.server().account(region);
    let location = (region != "us-east-1").then(|| region.to_owned());
    account.admin()?.create_bucket("existing", location.as_deref()).await?;
    let make = move |admin: Client, name: String| {
        let location = location.clone();
        async move {
            // In us-east-1, creating it again would succeed, even concurrently with a request in flight.
            if location.is_none() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            !admin.bucket_exists(&name).await.expect("moto answers")
                && admin.create_bucket(&name, location.as_deref()).await.is_ok()
        }
    };
    keeps(&account, region, rules.copied(), faults, make).await
}
