//! Tests of the assets that the provisioner lists for the command `orphans`.

use kube_provisioner::bucket::{AssetKind, BucketHooks, ListAssets, MarkedCluster};

use super::Fixture;

#[tokio::test]
async fn lists_buckets_and_users_with_their_marks() {
    let fixture = Fixture::new("list").await;
    let listed = async |cluster: &str| {
        let list = ListAssets::new(fixture.parameters(), fixture.secrets(), cluster);
        let mut assets = fixture.rgw.list_assets(list).await.unwrap();
        assets.found.retain(|asset| asset.owner.name.contains(&fixture.run));
        assets
    };
    let request = fixture.request("a", &[]);
    drop(request.provision(&fixture.rgw).await.unwrap());
    let (owner, s3) = fixture.stranger("owner").await;
    let lent = fixture.request("lent", &[("bucketOwner", &owner)]);
    drop(lent.provision(&fixture.rgw).await.unwrap());
    s3.create_bucket(&format!("{}-own", fixture.run), None).await.unwrap();

    let cluster = request.cluster_id.clone();
    let assets = listed(&cluster).await;
    let found: Vec<_> = assets.found.iter().map(|asset| (asset.kind, asset.name.as_str(), asset.retained)).collect();
    let user = request.account().name;
    assert_eq!(found, [(AssetKind::Bucket, &*request.name, false), (AssetKind::Account, &*user, false)]);
    assert!(assets.found.iter().all(|asset| asset.cluster == MarkedCluster::This && asset.owner.name == user));
    assert!(assets.unread.iter().any(|text| text.contains(&lent.account().name)), "{:?}", assets.unread);
    let elsewhere = listed("another-cluster").await.found;
    assert!(elsewhere.iter().all(|asset| asset.cluster == MarkedCluster::Other(cluster.clone())), "{elsewhere:?}");

    // The class retained the bucket.
    request.revoke(&fixture.rgw).await.unwrap();
    let retained = listed(&cluster).await.found;
    assert!(retained.len() == 2 && retained.iter().all(|asset| asset.retained), "{retained:?}");
    // A process ended while it was changing the bucket's policy.
    fixture.admin().create_temporary_key(&user).await.unwrap().unwrap();
    assert!(listed(&cluster).await.found.iter().all(|asset| asset.retained));
    fixture.admin().set_display_name(&user, &user).await.unwrap();
    assert!(listed(&cluster).await.found.iter().all(|asset| asset.cluster == MarkedCluster::Unknown));
}

#[tokio::test]
async fn deletes_listed_buckets_without_their_record() {
    let fixture = Fixture::new("orphan").await;
    let request = fixture.request("a", &[]);
    drop(request.provision(&fixture.rgw).await.unwrap());
    let cluster = request.cluster_id.clone();
    let list = ListAssets::new(fixture.parameters(), fixture.secrets(), cluster);
    let assets = fixture.rgw.list_assets(list.clone()).await.unwrap().found;
    let bucket = assets.into_iter().find(|asset| asset.name == request.name).unwrap();
    // The claim is derived from its user's ID, so the boundary between namespace and name may differ.
    let mut orphan = request.clone();
    orphan.claim = bucket.owner.claim;
    orphan.delete(&fixture.rgw).await.unwrap();
    let left = fixture.rgw.list_assets(list).await.unwrap().found;
    assert!(left.iter().all(|asset| asset.owner.name != bucket.owner.name), "{left:?}");
}
