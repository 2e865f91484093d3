//! List of a project's assets that were created for claims. A bucket and its service account name the claim's uid.

use std::collections::BTreeMap;
use std::error::Error;

use kube_provisioner::bucket::{Account, Asset, AssetKind, Assets, ClaimName, MarkedCluster};

use super::PROJECT;
use crate::account::{account_id, email, label_value, parse_description, parse_labels};
use crate::store::Store;

/// Lists buckets first, because a service account is created after its bucket and deleted after it.
pub(super) async fn list(store: &Store, cluster: &str) -> Result<Assets, Box<dyn Error + Send + Sync>> {
    let (buckets, mut assets) = (store.storage.buckets().await?, Assets::default());
    let of_project = BTreeMap::from([(PROJECT.to_owned(), store.storage.project.clone())]);
    let mut claims = BTreeMap::new();
    for account in store.iam.accounts().await? {
        let text = |field: &str| account[field].as_str().unwrap_or_default();
        let Some((uid, of_cluster)) = parse_description(text("description")) else { continue };
        let address = text("email");
        // The display name of an account for COSI has no namespace.
        let (namespace, name) = text("displayName").split_once('/').unwrap_or(("", text("displayName")));
        let claim = ClaimName { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() };
        // The display name may be shortened or edited. The address is derived from the full name, so it verifies the
        // claim.
        let is_its =
            |claim: &ClaimName| email(&account_id(&Account::of(claim.clone()).name), &store.iam.project) == address;
        let Some(claim) = Some(claim).filter(is_its) else {
            assets
                .unread
                .push(format!("the service account {address} is skipped: its display name is not its claim's"));
            continue;
        };
        let mut asset = Asset::new(AssetKind::Account, address, claim.clone(), MarkedCluster::of(of_cluster, cluster));
        asset.state.clone_from(&of_project);
        assets.found.push(asset);
        claims.insert(label_value(uid), claim);
    }
    for bucket in buckets {
        let (Some(name), Some((labelled, cluster))) = (bucket["name"].as_str(), parse_labels(&bucket, cluster)) else {
            continue;
        };
        let of_account = claims.get(&labelled.uid).cloned();
        // The account is deleted with its claim, so a bucket without one was retained, or its pods have access without
        // a key.
        let retained = of_account.is_none();
        let mut asset = Asset::new(AssetKind::Bucket, name, of_account.unwrap_or(labelled), cluster);
        asset.retained = retained;
        asset.state.clone_from(&of_project);
        assets.found.push(asset);
    }
    Ok(assets)
}
