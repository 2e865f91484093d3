//! What a claim's `additionalConfig` says of its bucket, and the class where the claim says nothing.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{ProvisionedBucket, RequestOf, Versioning};
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::Policy;

use super::Aws;
use crate::failure::{Failure, of_parameter};
use crate::parameters::{BUCKET_POLICY, BUCKET_TAGS, Config, Parameters};
use crate::store::Store;

/// That the lifecycle was set, so that it is taken away when nobody asks for it any more.
const LIFECYCLE: &str = "lifecycle";

type Tags = BTreeMap<String, String>;

/// The tags that the bucket is to have: `ours`, and those of the class and the claim. A claim with tags removes all others. Without
/// tags of the claim, tags that somebody has set by hand stay.
pub(super) fn tags(request: &RequestOf<Aws>, live: &Tags, ours: Tags) -> Tags {
    let asked = request.config.bucket_tags.as_ref();
    let owned = asked.is_some() || request.applied_config.contains_key(BUCKET_TAGS);
    // AWS sets some of its own, and refuses their removal.
    let kept = live.iter().filter(|(key, _)| !owned || key.starts_with("aws:"));
    let kept = kept.map(|(key, value)| (key.clone(), value.clone()));
    kept.chain(request.parameters.asked_tags(&request.config)).chain(ours).collect()
}

/// Brings versioning, lifecycle and policy in line. The answer is to be kept in the state.
pub(super) async fn apply(store: &Store, request: &RequestOf<Aws>) -> Result<Option<(&'static str, String)>, Failure> {
    let name = &request.name;
    let doing = |what: &str| format!("set the {what} of the bucket {name}");
    if let Some(enabled) = versioning(&request.parameters, &request.config) {
        let put = store.s3.put_bucket_versioning(name, enabled).await;
        put.map_err(of_parameter(doing("versioning"), "s3:PutBucketVersioning", "versioning"))?;
    }
    let lifecycle = request.config.bucket_lifecycle.as_ref().or(request.parameters.lifecycle.as_ref());
    if lifecycle.is_some() || request.state.contains_key(LIFECYCLE) {
        let none = Lifecycle::default();
        let put = store.s3.put_bucket_lifecycle(name, lifecycle.unwrap_or(&none)).await;
        put.map_err(of_parameter(doing("lifecycle"), "s3:PutLifecycleConfiguration", "lifecycle"))?;
    }
    // Public access is blocked by now, so AWS refuses a policy that would allow it.
    let policy = request.config.bucket_policy.as_ref();
    if policy.is_some() || request.applied_config.contains_key(BUCKET_POLICY) {
        let none = Policy::default();
        let put = store.s3.put_bucket_policy(name, policy.unwrap_or(&none)).await;
        put.map_err(Failure::of(doing("policy"), "s3:PutBucketPolicy and s3:DeleteBucketPolicy"))?;
    }
    Ok(lifecycle.map(|_| (LIFECYCLE, "set".to_owned())))
}

/// `None` where nothing is to be said. With object lock a bucket keeps versions anyway, and the store refuses to suspend that.
fn versioning(class: &Parameters, claim: &Config) -> Option<bool> {
    let of_class = class.versioning.then_some(Versioning::Enabled);
    let wanted = claim.bucket_versioning.or(of_class).map(|wanted| wanted == Versioning::Enabled);
    wanted.filter(|enabled| !enabled || class.lock(claim).is_none())
}

/// Takes away the policy of a bucket that is to be emptied: it could let others write, or keep the administrator from deleting.
pub(super) async fn remove_policy(store: &Store, bucket: &ProvisionedBucket<Parameters>) -> Result<(), Failure> {
    if !bucket.config_texts.contains_key(BUCKET_POLICY) {
        return Ok(());
    }
    let name = &bucket.name;
    match store.s3.delete_bucket_policy(name).await {
        Err(error) if error.code() == "NoSuchBucket" => Ok(()),
        deleted => {
            deleted.map_err(Failure::of(format!("delete the policy of the bucket {name}"), "s3:DeleteBucketPolicy"))
        }
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::parameters::from_map;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn request(config: &[(&str, &str)], applied: &[(&str, &str)]) -> RequestOf<Aws> {
        let parameters = from_map::<Parameters>(&Tags::new()).unwrap();
        let mut request = RequestOf::<Aws>::new("photos", parameters, from_map::<Config>(&map(config)).unwrap());
        request.applied_config = map(applied);
        request
    }

    #[test]
    fn a_claim_that_names_tags_has_all_but_ours_and_those_of_aws() {
        let (ours, live) = (map(&[("o", "1")]), map(&[("o", "0"), ("hand", "1"), ("aws:a", "1"), ("team", "x")]));
        let of =
            |config: &[(&str, &str)], applied: &[(&str, &str)]| tags(&request(config, applied), &live, ours.clone());
        let named = [("bucketTags", "team=shop")];
        assert_eq!(of(&[], &[]), map(&[("o", "1"), ("hand", "1"), ("aws:a", "1"), ("team", "x")]));
        assert_eq!(of(&named, &[]), map(&[("o", "1"), ("aws:a", "1"), ("team", "shop")]));
        assert_eq!(of(&[], &named), map(&[("o", "1"), ("aws:a", "1")]));
    }

    #[test]
    fn the_claim_says_more_about_versions_than_its_class() {
        let class = |pairs: &[(&str, &str)]| from_map::<Parameters>(&map(pairs)).unwrap();
        let (plain, on) = (class(&[]), class(&[("versioning", "true")]));
        let locked = class(&[("objectLock", "governance:1d")]);
        let claim = |pairs: &[(&str, &str)]| from_map::<Config>(&map(pairs)).unwrap();
        let (none, lock) =
            (claim(&[]), claim(&[("bucketObjectLock", "governance:1d"), ("bucketVersioning", "Enabled")]));
        let [enabled, suspended] = ["Enabled", "Suspended"].map(|text| claim(&[("bucketVersioning", text)]));
        assert_eq!([versioning(&plain, &none), versioning(&on, &none)], [None, Some(true)]);
        assert_eq!([versioning(&plain, &enabled), versioning(&on, &suspended)], [Some(true), Some(false)]);
        assert_eq!([versioning(&locked, &enabled), versioning(&locked, &suspended)], [None, Some(false)]);
        assert_eq!(versioning(&plain, &lock), None);
    }
}
