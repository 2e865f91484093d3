//! Lists the buckets and users of claims. A bucket belongs to the user of its claim, whose mark names the cluster.

use std::error::Error;

use kube_provisioner::bucket::{Asset, AssetKind, Assets, MarkedCluster};

use crate::admin::Key;
use crate::store::Store;
use crate::users::claim_of;

pub(super) async fn list(store: &Store, cluster: &str) -> Result<Assets, Box<dyn Error + Send + Sync>> {
    let mut assets = Assets::default();
    for id in store.admin.users().await? {
        let Some(claim) = claim_of(&id) else { continue };
        let buckets = store.admin.buckets_of(&id).await?;
        // Read the user after its buckets, since it has keys before it has a bucket.
        let Some(user) = store.admin.user(&id).await? else { continue };
        let mark = user.mark();
        if let Some(transferred) = mark.as_ref().and_then(|mark| mark.transferred_bucket.as_ref()) {
            let text =
                format!("the user {id} is skipped: its bucket {} belongs to {}", transferred.marker, transferred.owner);
            assets.unread.push(text);
            continue;
        }
        let marked = MarkedCluster::of(mark.as_ref().map(|mark| mark.cluster.as_str()), cluster);
        // The owner of a retained bucket has no keys.
        let retained = !buckets.is_empty() && user.keys.iter().all(Key::is_temporary);
        let asset = |kind, name: String| {
            let mut asset = Asset::new(kind, name, claim.clone(), marked.clone());
            asset.retained = retained;
            asset
        };
        assets.found.extend(buckets.into_iter().map(|name| asset(AssetKind::Bucket, name)));
        assets.found.push(asset(AssetKind::Account, id));
    }
    Ok(assets)
}
