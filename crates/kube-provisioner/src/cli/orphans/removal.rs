//! Removes the assets of one claim with the provisioner's own methods, which verify the ownership again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use provisioner_runtime::controller::FencingToken;

use super::sets::AssetSet;
use super::{SearchContext, SearchTarget, cosi, read};
use crate::bucket::{Asset, AssetKind, BucketAccess, GrantedAccount, ProvisionedBucket};
use crate::cli::BoxError;
use crate::controller::shared::class_parameters::Parsed;
use crate::error::DeleteVerdict;

/// The pause before a backend that is still working is called again, unless it requests another one.
const PAUSE: Duration = Duration::from_secs(1);

/// The parameter that every provisioner with `list_assets` has, see [`DeletionPolicy`](crate::bucket::DeletionPolicy).
const DELETION_POLICY: &str = "deletionPolicy";

/// Removes the bucket first: the account of a bucket that remains proves its ownership.
pub(super) async fn remove(
    context: &SearchContext<'_>,
    target: &SearchTarget,
    set: &AssetSet,
    with_objects: &[String],
) -> Result<(), BoxError> {
    let is_bucket = |asset: &&Asset| asset.kind == AssetKind::Bucket;
    for bucket in set.assets.iter().filter(is_bucket) {
        let policy = if with_objects.contains(&bucket.name) { "Delete" } else { "DeleteIfEmpty" };
        let known = ProvisionedBucket {
            name: bucket.name.clone(),
            owner: set.owner.clone(),
            parameters: Some(parameters(context, target, policy)?),
            state: bucket.state.clone(),
            config_texts: BTreeMap::new(),
            secrets: target.secrets.clone(),
            cluster_id: context.cluster_id.clone(),
            fencing_token: FencingToken::unlimited(),
        };
        // A bucket with many objects is emptied by several calls.
        while let Err(error) = context.backend.delete_bucket(known.clone()).await {
            match (error.verdict(), error.retry_after()) {
                (DeleteVerdict::InProgress, pause) => tokio::time::sleep(pause.unwrap_or(PAUSE)).await,
                _ if policy == "Delete" => return Err(error.to_string().into()),
                _ => {
                    let name = &bucket.name;
                    return Err(format!("{error}; --with-objects {name} removes the bucket with its objects").into());
                }
            }
        }
    }
    let Some(first) = set.assets.first() else { return Ok(()) };
    let buckets = set.assets.iter().filter(is_bucket).map(|bucket| BucketAccess {
        state: bucket.state.clone(),
        ..BucketAccess::new(&bucket.name, Some(set.owner.clone()))
    });
    let account = GrantedAccount {
        account: set.owner.clone(),
        buckets: buckets.collect(),
        parameters: Some(parameters(context, target, "DeleteIfEmpty")?),
        state: first.state.clone(),
        config_texts: BTreeMap::new(),
        access_key_id: None,
        secrets: target.secrets.clone(),
        cluster_id: context.cluster_id.clone(),
        fencing_token: FencingToken::unlimited(),
    };
    context.backend.revoke(account).await.map_err(|error| error.to_string())?;
    if let Some(name) = set.owner.claim.cosi_account() {
        cosi::forget(&context.client, name, &context.cluster_id).await?;
    }
    Ok(())
}

fn parameters(context: &SearchContext<'_>, target: &SearchTarget, policy: &str) -> Result<Arc<Parsed>, BoxError> {
    let mut texts = target.texts.clone();
    texts.insert(DELETION_POLICY.to_owned(), policy.to_owned());
    Ok(Arc::new(read(context.backend, &texts)?.parsed))
}
