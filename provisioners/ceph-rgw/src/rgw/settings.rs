//! What a claim's `additionalConfig` says of its bucket.

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::RequestOf;
use s3_client::Credentials;
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::Policy;

use super::Rgw;
use crate::admin::{BucketInfo, Failure};
use crate::grants::{change_policy, with_grants_of};
use crate::parameters::Config;
use crate::quota::Quota;
use crate::store::Store;

const POLICY: &str = "bucketPolicy";
const LIFECYCLE: &str = "bucketLifecycle";

/// The key that is about the bucket and not about the user.
pub(super) fn of_the_bucket(config: &Config) -> Option<&'static str> {
    let Config { bucket_max_objects, bucket_max_size, bucket_policy, bucket_lifecycle, .. } = config;
    let keys = [
        ("bucketMaxObjects", bucket_max_objects.is_some()),
        ("bucketMaxSize", bucket_max_size.is_some()),
        (POLICY, bucket_policy.is_some()),
        (LIFECYCLE, bucket_lifecycle.is_some()),
    ];
    keys.into_iter().find(|(_, set)| *set).map(|(key, _)| key)
}

/// Brings a bucket in line. Only what differs is written.
pub(super) async fn apply(
    store: &Store,
    request: &RequestOf<Rgw>,
    owner: &str,
    key: Credentials,
    marker: Option<&str>,
) -> Result<(), ProvisionError> {
    let (name, config) = (&request.name, &request.config);
    let live = store.admin.bucket(name).await?;
    let is_ours = |live: &BucketInfo| live.owner == owner && marker.is_none_or(|marker| *marker == live.marker);
    let Some(live) = live.filter(is_ours) else {
        return Err(ProvisionError::retry(format!("the bucket {name} was made and is not there")));
    };
    let quota = Quota::of(config.bucket_max_objects, config.bucket_max_size);
    if !quota.is_met_by(live.bucket_quota) {
        store.admin.set_bucket_quota(name, owner, quota).await?;
    }
    // What the claim has set, and wants no more, goes, also where Rook has set it. What somebody has set by hand stays. Before
    // the first success an attempt may have set it.
    let was_set = |key| request.state.is_empty() || request.applied_config.contains_key(key);
    let policy = config.bucket_policy.as_ref();
    if policy.is_some() || was_set(POLICY) {
        let none = Policy::default();
        let wanted = policy.unwrap_or(&none);
        change_policy(store, key.clone(), name, |live| with_grants_of(wanted, live)).await?;
    }
    let lifecycle = config.bucket_lifecycle.as_ref();
    if lifecycle.is_some() || was_set(LIFECYCLE) {
        let none = Lifecycle::default();
        apply_lifecycle(store, key, name, lifecycle.unwrap_or(&none)).await?;
    }
    Ok(())
}

async fn apply_lifecycle(store: &Store, key: Credentials, name: &str, wanted: &Lifecycle) -> Result<(), Failure> {
    let s3 = store.s3(key);
    let live = s3.bucket_lifecycle(name).await;
    let live = live.map_err(|error| Failure::of_user(&format!("read the lifecycle of the bucket {name}"), error))?;
    if wanted.same_as(&live) {
        return Ok(());
    }
    let put = s3.put_bucket_lifecycle(name, wanted).await;
    put.map_err(|error| Failure::of_user(&format!("set the lifecycle of the bucket {name}"), error))
}
