//! Claims and buckets on a real API server, with our CRDs and with the CRDs of other projects.

use anyhow::Context;
use kube::api::ListParams;
use objectbucket_api::Validation;
use serde_json::{Value, json};
use testbed::cluster::{DEFAULT_LIMIT, TestSpace, eventually};

#[path = "../../../crates/objectbucket-api/tests/it/served.rs"]
mod served;

use served::{Served, assert_refused};

const ROOK: &str = include_str!("../../../crates/objectbucket-api/fixtures/crds/rook.yaml");
const NOOBAA: &str = include_str!("../../../crates/objectbucket-api/fixtures/crds/noobaa.yaml");
const UPSTREAM: &str = include_str!("../../../crates/objectbucket-api/fixtures/crds/upstream.yaml");

#[tokio::test]
async fn works_with_our_standard_crds() -> anyhow::Result<()> {
    let space = TestSpace::new("obc-standard").await?;
    let served = own_group(&space, "standard");
    install(&space, &served, &served.definitions(Validation::Standard)).await?;

    served.takes_what_others_left(false).await;
    served.takes_nulls(true).await;
    served.keeps_status_apart().await;
    served.refuses_nonsense().await;
    served.takes_changes().await;
    space.done().await
}

#[tokio::test]
async fn works_with_our_strict_crds() -> anyhow::Result<()> {
    let space = TestSpace::new("obc-strict").await?;
    let served = own_group(&space, "strict");
    install(&space, &served, &served.definitions(Validation::Strict)).await?;

    served.takes_what_others_left(false).await;
    served.takes_nulls(true).await;
    served.keeps_status_apart().await;
    served.refuses_nonsense().await;
    served.refuses_bad_names().await;
    check_immutable_fields(&served).await?;
    space.done().await
}

async fn check_immutable_fields(served: &Served) -> anyhow::Result<()> {
    let spec = json!({"storageClassName": "fast", "bucketName": "photos", "generateBucketName": "photo",
        "objectBucketName": "obc-a-b", "additionalConfig": {"maxSize": "1"}});
    let refused = [
        (json!({"storageClassName": "slow"}), "the class of a claim cannot change"),
        (json!({"bucketName": "pictures"}), "the name of a claim's bucket cannot change"),
        (json!({"bucketName": ""}), "the name of a claim's bucket cannot change"),
        (json!({"bucketName": null}), "the name of a claim's bucket cannot change"),
        (json!({"generateBucketName": "picture"}), "the prefix of a claim's bucket cannot change"),
    ];
    for (index, (change, why)) in refused.into_iter().enumerate() {
        assert_refused(served.change(&format!("refused-{index}"), spec.clone(), change).await, why);
    }
    served.change("settings", spec.clone(), json!({"additionalConfig": {"maxSize": "2"}})).await?;

    // Provisioners write a field that the user omitted as absent, "" or `null`.
    let written = json!({"bucketName": "photos", "objectBucketName": "obc-a-b"});
    for (name, value) in [("absent", None), ("empty", Some(json!(""))), ("null", Some(Value::Null))] {
        let mut spec = json!({"storageClassName": "fast"});
        if let Some(value) = value {
            spec["bucketName"] = value.clone();
            spec["objectBucketName"] = value;
        }
        let found = served.change(name, spec, written.clone()).await?;
        assert_eq!(found.data["spec"]["bucketName"], "photos");
    }
    Ok(())
}

#[tokio::test]
async fn works_with_the_crds_of_rook() -> anyhow::Result<()> {
    let space = TestSpace::new("obc-rook").await?;
    let served = own_group(&space, "rook");
    install(&space, &served, &served.definitions_of(ROOK)).await?;
    served.takes_what_others_left(false).await;
    served.takes_nulls(false).await;
    space.done().await
}

#[tokio::test]
async fn works_with_the_crds_of_upstream() -> anyhow::Result<()> {
    let space = TestSpace::new("obc-upstream").await?;
    let served = own_group(&space, "upstream");
    install(&space, &served, &served.definitions_of(UPSTREAM)).await?;
    served.takes_what_others_left(false).await;
    space.done().await
}

#[tokio::test]
async fn works_with_the_crds_of_noobaa() -> anyhow::Result<()> {
    let space = TestSpace::new("obc-noobaa").await?;
    let served = own_group(&space, "noobaa");
    install(&space, &served, &served.definitions_of(NOOBAA)).await?;
    served.takes_what_others_left(true).await;
    served.takes_nulls(false).await;
    space.done().await
}

fn served(space: &TestSpace, group: String) -> Served {
    Served { client: space.client(), group, namespace: space.namespace().to_owned() }
}

fn own_group(space: &TestSpace, variant: &str) -> Served {
    served(space, format!("{variant}.{}.test", space.namespace()))
}

/// Installs CRDs, which the end of the test deletes together with their objects.
async fn install(space: &TestSpace, served: &Served, definitions: &[Value]) -> anyhow::Result<()> {
    space.apply(definitions).await?;
    for kind in ["ObjectBucketClaim", "ObjectBucket"] {
        let api = served.api(kind);
        let ask = async || Ok(api.list(&ListParams::default()).await.is_ok().then_some(()));
        let ready = eventually(DEFAULT_LIMIT, ask).await?;
        ready.with_context(|| format!("the API server serves no {kind} of {}", served.group))?;
    }
    Ok(())
}
