//! Tests that the simulated API server treats claims and buckets like the real one.

use kube_sim::Cluster;
use objectbucket_api::Validation;

use crate::served::Served;

const ROOK: &str = include_str!("../../fixtures/crds/rook.yaml");
const NOOBAA: &str = include_str!("../../fixtures/crds/noobaa.yaml");
const UPSTREAM: &str = include_str!("../../fixtures/crds/upstream.yaml");

fn served() -> (Cluster, Served) {
    let cluster = Cluster::new();
    let served = Served {
        client: cluster.client("test"),
        group: objectbucket_api::GROUP.to_owned(),
        namespace: "default".to_owned(),
    };
    (cluster, served)
}

fn install(cluster: &Cluster, definitions: &[serde_json::Value]) {
    definitions.iter().for_each(|definition| drop(cluster.create(definition).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn serves_standard_definitions() {
    let (cluster, served) = served();
    install(&cluster, &served.definitions(Validation::Standard));
    served.takes_what_others_left(false).await;
    served.takes_nulls(true).await;
    served.keeps_status_apart().await;
    served.refuses_nonsense().await;
    served.takes_changes().await;
}

#[tokio::test(start_paused = true)]
async fn serves_strict_definitions() {
    let (cluster, served) = served();
    install(&cluster, &served.definitions(Validation::Strict));
    served.takes_what_others_left(false).await;
    served.takes_nulls(true).await;
    served.keeps_status_apart().await;
    served.refuses_nonsense().await;
    served.refuses_bad_names().await;
}

#[tokio::test(start_paused = true)]
async fn serves_rook_definitions() {
    let (cluster, served) = served();
    install(&cluster, &served.definitions_of(ROOK));
    served.takes_what_others_left(false).await;
    served.takes_nulls(false).await;
}

#[tokio::test(start_paused = true)]
async fn serves_upstream_definitions() {
    let (cluster, served) = served();
    install(&cluster, &served.definitions_of(UPSTREAM));
    served.takes_what_others_left(false).await;
}

#[tokio::test(start_paused = true)]
async fn serves_noobaa_definitions() {
    let (cluster, served) = served();
    install(&cluster, &served.definitions_of(NOOBAA));
    served.takes_what_others_left(true).await;
    served.takes_nulls(false).await;
}
