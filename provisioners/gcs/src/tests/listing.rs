//! Tests of the list for the command `orphans`.

use kube_provisioner::bucket::{AssetKind, BucketHooks, ListAssets, MarkedCluster};

use super::{Claim, Fixture};

async fn listed(fixture: &Fixture, request: &Claim, cluster: &str) -> Vec<(AssetKind, String, bool, MarkedCluster)> {
    let list = ListAssets::new((*request.parameters).clone(), fixture.secrets(), cluster);
    let assets = fixture.gcs.list_assets(list).await.unwrap();
    assert_eq!(assets.unread, [""; 0]);
    let of = |asset: kube_provisioner::bucket::Asset| {
        assert_eq!(asset.owner.claim.uid, request.claim.uid);
        (asset.kind, asset.name, asset.retained, asset.cluster)
    };
    assets.found.into_iter().map(of).collect()
}

#[tokio::test]
async fn lists_buckets_and_service_accounts_with_their_marks() {
    let fixture = Fixture::new().await;
    fixture.own_bucket("by-hand");
    let request = fixture.request("photos", &[]);
    drop(request.provision(&fixture.gcs).await.unwrap());
    let found = listed(&fixture, &request, &request.cluster_id).await;
    let kinds: Vec<_> = found.iter().map(|(kind, _, retained, _)| (*kind, *retained)).collect();
    assert_eq!(kinds, [(AssetKind::Account, false), (AssetKind::Bucket, false)]);
    assert!(found.iter().all(|(.., cluster)| *cluster == MarkedCluster::This), "{found:?}");
    let elsewhere = listed(&fixture, &request, "another-cluster").await;
    assert!(elsewhere.iter().all(|(.., cluster)| matches!(cluster, MarkedCluster::Other(_))), "{elsewhere:?}");

    // The class retained the bucket.
    request.revoke(&fixture.gcs).await.unwrap();
    let retained = listed(&fixture, &request, &request.cluster_id).await;
    assert_eq!(retained, [(AssetKind::Bucket, "photos".to_owned(), true, MarkedCluster::This)]);
}

#[tokio::test]
async fn skips_service_accounts_with_a_foreign_display_name() {
    let fixture = Fixture::new().await;
    let request = fixture.request("photos", &[]);
    drop(request.provision(&fixture.gcs).await.unwrap());
    fixture.google.model().accounts.values_mut().for_each(|account| account.display_name = "a/b".to_owned());
    let list = ListAssets::new((*request.parameters).clone(), fixture.secrets(), &request.cluster_id);
    let assets = fixture.gcs.list_assets(list).await.unwrap();
    assert!(assets.unread[0].contains("is skipped"), "{:?}", assets.unread);
    assert!(assets.found.iter().all(|asset| asset.retained), "{:?}", assets.found);
}
