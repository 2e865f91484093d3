//! Lists the buckets and users in an AWS account that have the tags of claims.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use kube_provisioner::bucket::{Asset, AssetKind, Assets};

use crate::account::{BUCKET, PATH, USER_NAME, claim_from_tags};
use crate::bucket::{LiveBucket, find};
use crate::failure::Failure;
use crate::store::Store;

/// Lists buckets before users: if a user is deleted between the two requests, its bucket is listed as retained.
pub(super) async fn list(store: &Store, cluster: &str) -> Result<Assets, Box<dyn Error + Send + Sync>> {
    let names = store.s3.list_buckets().await;
    let names = names.map_err(Failure::of("list the buckets".to_owned(), "s3:ListAllMyBuckets"))?;
    let (mut assets, mut unread, mut buckets) = (Assets::default(), BTreeSet::new(), Vec::new());
    for name in names {
        match find(store, &name).await {
            Ok(LiveBucket::Tagged(tags)) => buckets.extend(claim_from_tags(&tags, cluster).map(|owner| (name, owner))),
            Ok(LiveBucket::Absent) => {}
            // Another class may use the bucket's region.
            Ok(LiveBucket::Forbidden(failure) | LiveBucket::OtherRegion(failure)) | Err(failure) => {
                assets.unread.push(format!("the bucket {name} is skipped, with its user: {failure}"));
                unread.insert(name);
            }
        }
    }
    let mut users: BTreeMap<(String, String), String> = BTreeMap::new();
    for (name, tags) in users_of(store).await? {
        let Some((claim, marked)) = claim_from_tags(&tags, cluster) else { continue };
        let bucket = tags.get(BUCKET).cloned().unwrap_or_default();
        if unread.contains(&bucket) {
            continue;
        }
        let mut asset = Asset::new(AssetKind::Account, &name, claim.clone(), marked);
        asset.state.insert(USER_NAME.to_owned(), name.clone());
        assets.found.push(asset);
        users.insert((bucket, claim.uid), name);
    }
    for (name, (claim, marked)) in buckets {
        let user = users.get(&(name.clone(), claim.uid.clone()));
        let mut asset = Asset::new(AssetKind::Bucket, &name, claim, marked);
        // The user is deleted when its claim is released, so a retained bucket has no user.
        asset.retained = user.is_none();
        asset.state.extend(user.map(|user| (USER_NAME.to_owned(), user.clone())));
        assets.found.push(asset);
    }
    Ok(assets)
}

async fn users_of(store: &Store) -> Result<Vec<(String, BTreeMap<String, String>)>, Failure> {
    let names = store.iam.users(PATH).await.map_err(Failure::of("list the IAM users".to_owned(), "iam:ListUsers"))?;
    let mut users = Vec::new();
    for name in names {
        let user = store.iam.user(&name).await;
        let user = user.map_err(Failure::of(format!("look up the IAM user {name}"), "iam:GetUser"))?;
        users.extend(user.map(|user| (name, user.tags)));
    }
    Ok(users)
}
