//! Creates a claim's bucket, and updates it to match the claim's `additionalConfig`.

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{RequestFailure, RequestOf, Versioning};
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::Policy;
use s3_client::tags::Tags;
use s3_client::{Credentials, NewBucket};

use super::account::Account;
use super::{ONE_BUCKET, Rgw, Users};
use crate::admin::{BucketInfo, Failure, User};
use crate::grants::{GrantError, change_policy, with_grants_of};
use crate::parameters::{BUCKET_LIFECYCLE, BUCKET_POLICY, BUCKET_TAGS, Config, Placement};
use crate::quota::Quota;
use crate::store::Store;
use crate::users::TransferredBucket;

/// The default storage class of buckets, which the gateway omits.
const STANDARD: &str = "STANDARD";

/// Creates the bucket if it is `absent`, and transfers it to its owner. The claim's own user always creates it: only
/// that user's name contains the claim's uid, so its bucket belongs to the claim, even if this function is interrupted.
/// A bucket created by the owner whom the claim names could not be distinguished from that owner's other buckets.
/// Returns the marker of a bucket that belongs to that owner.
pub(super) async fn create_and_transfer(
    store: &Store,
    users: &Users,
    owner: &User,
    request: &RequestOf<Rgw>,
    absent: bool,
) -> Result<Option<String>, RequestFailure> {
    if users.owner.generated {
        return create(store, &users.owner, owner, request).await.map(|()| None);
    }
    let own = users.own.as_ref().ok_or_else(|| RequestFailure::Refused("the claim has no uid".to_owned()))?;
    let own_user = own.ensure(store, ONE_BUCKET).await?;
    if absent {
        check_bucket_limit(store, &users.owner, owner).await?;
        create(store, own, &own_user, request).await?;
    }
    let name = &request.name;
    let made = store.admin.bucket(name).await?.filter(|made| made.owner == own.id);
    let made = made.ok_or_else(|| {
        RequestFailure::Failed(ProvisionError::retry(format!("the bucket {name} was created but cannot be found")))
    })?;
    own.record_transfer(store, TransferredBucket { marker: made.marker.clone(), owner: users.owner.id.clone() })
        .await?;
    store.admin.give_bucket(name, &made.id, &users.owner.id).await?;
    Ok(Some(made.marker))
}

async fn create(store: &Store, account: &Account, user: &User, request: &RequestOf<Rgw>) -> Result<(), RequestFailure> {
    let name = &request.name;
    let key = account.key(store, user, None).await?;
    // The placement follows a colon. The gateway would interpret a region as the name of a placement.
    let location = request.config.bucket_placement.as_ref().map(|Placement(name)| format!(":{name}"));
    let storage_class = request.config.bucket_storage_class.as_ref().map(|Placement(name)| name.as_str());
    let new = NewBucket { location: location.as_deref(), storage_class, ..NewBucket::default() };
    let error = match store.s3(key).create_bucket_with(name, new).await {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    match error.code() {
        // The answer to an earlier call was lost.
        "BucketAlreadyOwnedByYou" => Ok(()),
        "BucketAlreadyExists" => Err(RequestFailure::Refused(format!(
            "the bucket {name} exists and belongs to another owner: choose another bucketName"
        ))),
        "InvalidBucketName" => {
            Err(RequestFailure::Refused(Failure::of_user(&format!("create the bucket {name}"), error).to_string()))
        }
        _ => Err(Failure::of_user(&format!("create the bucket {name}"), error).into()),
    }
}

/// Fails if the owner whom the claim names may not own another bucket. The gateway checks the limit only for the user
/// who creates a bucket.
async fn check_bucket_limit(store: &Store, account: &Account, owner: &User) -> Result<(), RequestFailure> {
    let (id, most) = (&account.id, owner.max_buckets);
    let full = most < 0 || (most > 0 && store.admin.buckets_of(id).await?.len() as i64 >= most);
    if full {
        let text =
            format!("the user {id} has reached its bucket limit: radosgw-admin user modify --uid={id} --max-buckets=…");
        return Err(RequestFailure::Failed(ProvisionError::retry(text)));
    }
    Ok(())
}

/// Updates a bucket to match its claim. Writes only differences. `is_new` is true if the same call created the bucket.
pub(super) async fn apply(
    store: &Store,
    request: &RequestOf<Rgw>,
    owner: &str,
    key: Credentials,
    marker: Option<&str>,
    is_new: bool,
) -> Result<(), ProvisionError> {
    let (name, config) = (&request.name, &request.config);
    let live = store.admin.bucket(name).await?;
    let is_ours = |live: &BucketInfo| live.owner == owner && marker.is_none_or(|marker| *marker == live.marker);
    let Some(live) = live.filter(is_ours) else {
        return Err(ProvisionError::retry(format!("the bucket {name} was created but cannot be found")));
    };
    if let Some(text) = placement_conflict(name, config, &live) {
        // The gateway may have ignored the placement of a new bucket, which this call has created.
        return Err(if is_new { ProvisionError::retry(text) } else { ProvisionError::already_exists(text) });
    }
    let limits = [("bucketMaxObjects", config.bucket_max_objects), ("bucketMaxSize", config.bucket_max_size)];
    let quota = Quota::of(limits, &request.applied_config, live.bucket_quota);
    if !quota.is_met_by(live.bucket_quota) {
        store.admin.set_bucket_quota(name, owner, quota).await?;
    }
    let Some(policy) = &config.bucket_policy else {
        // The former policy may deny the other changes.
        if was_set(request, BUCKET_POLICY) {
            put_policy(store, key.clone(), name, &Policy::default()).await?;
        }
        return Ok(settings(store, request, key).await?);
    };
    match settings(store, request, key.clone()).await {
        // The former policy may deny the changes.
        Err(failure) if failure.is_denied() && was_set(request, BUCKET_POLICY) => {
            put_policy(store, key.clone(), name, policy).await?;
            settings(store, request, key.clone()).await?;
        }
        applied => applied?,
    }
    // The policy may deny the changes above, so it is set after them.
    Ok(put_policy(store, key, name, policy).await?)
}

/// Returns true if the setting is to be removed when the claim does not request it, which includes settings that Rook
/// applied. Manual settings are kept. Before the first success, an earlier attempt may have applied it.
fn was_set(request: &RequestOf<Rgw>, key: &str) -> bool {
    request.state.is_empty() || request.applied_config.contains_key(key)
}

async fn put_policy(store: &Store, key: Credentials, name: &str, wanted: &Policy) -> Result<(), GrantError> {
    change_policy(store, key, name, |live| with_grants_of(wanted, live)).await
}

/// Updates the lifecycle, the tags and the versioning.
async fn settings(store: &Store, request: &RequestOf<Rgw>, key: Credentials) -> Result<(), Failure> {
    let (name, config, s3) = (&request.name, &request.config, store.s3(key));
    let failed = |doing: &'static str| move |error| Failure::of_user(&format!("{doing} of the bucket {name}"), error);
    let lifecycle = config.bucket_lifecycle.as_ref();
    if lifecycle.is_some() || was_set(request, BUCKET_LIFECYCLE) {
        let none = Lifecycle::default();
        let wanted = lifecycle.unwrap_or(&none);
        if !wanted.is_equivalent_to(&s3.bucket_lifecycle(name).await.map_err(failed("read the lifecycle"))?) {
            s3.put_bucket_lifecycle(name, wanted).await.map_err(failed("set the lifecycle"))?;
        }
    }
    let tags = config.bucket_tags.as_ref();
    if tags.is_some() || was_set(request, BUCKET_TAGS) {
        let none = Tags::default();
        let wanted = tags.unwrap_or(&none).as_map();
        if s3.bucket_tagging(name).await.map_err(failed("read the tags"))? != *wanted {
            s3.put_bucket_tagging(name, wanted).await.map_err(failed("set the tags"))?;
        }
    }
    if let Some(versioning) = config.bucket_versioning {
        let wanted = versioning == Versioning::Enabled;
        if s3.bucket_versioning(name).await.map_err(failed("read the versioning"))? != Some(wanted) {
            s3.put_bucket_versioning(name, wanted).await.map_err(failed("set the versioning"))?;
        }
    }
    Ok(())
}

/// Returns the reason why an existing bucket does not have the requested placement, which cannot be changed after
/// creation.
fn placement_conflict(name: &str, config: &Config, live: &BucketInfo) -> Option<String> {
    let (placement, class) = live.placement_rule.split_once('/').unwrap_or((&live.placement_rule, STANDARD));
    let is_other = |asked: &Option<Placement>, live: &str| asked.as_ref().is_some_and(|Placement(name)| name != live);
    let key = match (is_other(&config.bucket_placement, placement), is_other(&config.bucket_storage_class, class)) {
        (false, false) => return None,
        (true, _) => "bucketPlacement",
        (false, true) => "bucketStorageClass",
    };
    Some(format!(
        "the bucket {name} is in the placement {placement} with the storage class {class}, and stays there: change {key} in \
         additionalConfig, or copy the objects into the bucket of another claim"
    ))
}

#[cfg(test)]
mod tests {
    use kube_provisioner::parameters::from_map;

    use super::*;

    #[test]
    fn rejects_placement_changes_of_existing_buckets() {
        let placement_conflict = |rule: &str, pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let text = |text: &str| text.to_owned();
            let live = BucketInfo {
                id: text("i"),
                marker: text("m"),
                owner: text("o"),
                bucket_quota: Quota::NONE,
                placement_rule: text(rule),
            };
            super::placement_conflict("photos", &from_map::<Config>(&pairs).unwrap(), &live)
        };
        for (rule, pairs) in [
            ("default-placement", &[][..]),
            ("", &[]),
            ("cold", &[("bucketPlacement", "cold")]),
            ("cold", &[("bucketPlacement", "cold"), ("bucketStorageClass", "STANDARD")]),
            ("cold/ICE", &[("bucketPlacement", "cold"), ("bucketStorageClass", "ICE")]),
            ("cold/ICE", &[]),
        ] {
            assert_eq!(placement_conflict(rule, pairs), None, "{rule}");
        }
        let text = placement_conflict("cold/ICE", &[("bucketPlacement", "warm")]).unwrap();
        assert!(text.contains("in the placement cold with the storage class ICE"), "{text}");
        assert!(
            placement_conflict("cold", &[("bucketStorageClass", "ICE")]).unwrap().contains("change bucketStorageClass")
        );
    }
}
