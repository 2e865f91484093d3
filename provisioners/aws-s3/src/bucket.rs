//! Finds, creates, configures and deletes buckets.

use std::collections::BTreeMap;
use std::time::Duration;

use kube_provisioner::DeleteError;
use kube_provisioner::bucket::{DeletionPolicy, EmptyingTimeLimit, ProvisionedBucket, RequestOf, Versioning};
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::Policy;
use s3_client::{Error, NewBucket};

use crate::account::{Account, IamLookup, SECOND_LOOK};
use crate::aws::Aws;
use crate::failure::{Failure, of_parameter};
use crate::parameters::{BUCKET_LIFECYCLE, BUCKET_POLICY, BUCKET_TAGS, Config, Parameters};
use crate::store::Store;

/// Records that the lifecycle was set, so that it is removed when the class and the claim no longer request one.
const LIFECYCLE: &str = "lifecycle";

type Tags = BTreeMap<String, String>;

/// The bucket that exists under a name.
#[derive(Debug)]
pub(crate) enum LiveBucket {
    Absent,
    /// The bucket belongs to another account, or the administrator has no permission to read it.
    Forbidden(Failure),
    /// The bucket is in another region than the class's, where its owner cannot be determined.
    OtherRegion(Failure),
    Tagged(Tags),
}

pub(crate) async fn find(store: &Store, name: &str) -> Result<LiveBucket, Failure> {
    let failed = || Failure::of(format!("read the tags of the bucket {name}"), "s3:GetBucketTagging");
    match store.s3.bucket_tagging(name).await {
        Ok(tags) => Ok(LiveBucket::Tagged(tags)),
        Err(error) if error.code() == "NoSuchBucket" => Ok(LiveBucket::Absent),
        Err(error) if error.code() == "AccessDenied" => Ok(LiveBucket::Forbidden(failed()(error))),
        Err(error) if store.dialect().is_of_another_region(&error) => Ok(LiveBucket::OtherRegion(failed()(error))),
        Err(error) => Err(failed()(error)),
    }
}

/// Finds a bucket before its removal. AWS may answer that a new bucket does not exist, so this function waits or looks
/// twice if an attempt may have created the bucket.
pub(crate) async fn find_with_retry(
    store: &Store,
    name: &str,
    account: &Account,
    user: &IamLookup,
) -> Result<LiveBucket, Failure> {
    match find(store, name).await? {
        LiveBucket::Absent if store.may_hide(name) => Err(Failure::NotShownYet(format!("bucket {name}"))),
        // A process that has just ended may have created it.
        LiveBucket::Absent
            if account.unfinished
                && store.dialect().supports_all_properties()
                && matches!(user, IamLookup::Own(())) =>
        {
            tokio::time::sleep(SECOND_LOOK).await;
            find(store, name).await
        }
        live => Ok(live),
    }
}

/// Creates the bucket, with its tags if the store accepts them in the request.
///
/// # Errors
/// Refusals include `BucketAlreadyExists` and `BucketAlreadyOwnedByYou`.
pub(crate) async fn create(
    store: &Store,
    name: &str,
    object_lock: bool,
    tags: &Tags,
    user: &str,
) -> Result<(), Failure> {
    let plain = NewBucket {
        location: store.region.location_constraint(),
        object_lock,
        namespace: is_of_account(store, name).then_some("account-regional"),
        ..NewBucket::default()
    };
    let (new, plain) = store.dialect().new_bucket(plain, tags, user);
    let made = match (store.s3.create_bucket_with(name, new).await, plain) {
        (Err(error), Some(plain)) if is_about_new_fields(&error) => store.s3.create_bucket_with(name, plain).await,
        (made, _) => made,
    };
    made.map_err(Failure::of(format!("create the bucket {name}"), "s3:CreateBucket and s3:TagResource"))
}

/// Returns true if the name is reserved for the account: `PREFIX-ACCOUNT-REGION-an`. AWS requires a header to create
/// such a bucket.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/gpbucketnamespaces.html>
fn is_of_account(store: &Store, name: &str) -> bool {
    let account = name.strip_suffix("-an").and_then(|rest| rest.strip_suffix(store.region.name())?.strip_suffix('-'));
    let account = account.and_then(|rest| rest.rsplit_once('-'));
    store.dialect().supports_all_properties()
        && account.is_some_and(|(_, id)| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true if the error may mean that the store does not support tags or ownership rules of new buckets.
fn is_about_new_fields(error: &Error) -> bool {
    ["MalformedXML", "InvalidRequest", "InvalidArgument", "NotImplemented"].contains(&error.code())
}

/// The result of applying a bucket's settings.
pub(crate) struct Applied {
    /// The text of a warning event on the claim.
    pub(crate) warning: Option<String>,
    /// The state to record in the ObjectBucket.
    pub(crate) state: Option<(&'static str, String)>,
}

/// Applies the settings of the class and the claim to a bucket. It always writes them, since a read takes as long as a
/// write. `ours` are the tags that identify the owner. `is_new` is true while no one else can have changed the bucket's
/// settings.
pub(crate) async fn apply(
    store: &Store,
    request: &RequestOf<Aws>,
    ours: &Tags,
    live: &Tags,
    is_new: bool,
) -> Result<Applied, Failure> {
    let (name, had_policy) = (&request.name, request.applied_config.contains_key(BUCKET_POLICY));
    let Some(policy) = &request.config.bucket_policy else {
        // The former policy may deny the other changes.
        if had_policy {
            delete_policy(store, name).await?;
        }
        return settings(store, request, ours, live, is_new).await;
    };
    let applied = match settings(store, request, ours, live, is_new).await {
        // The former policy may deny the changes. The bucket must not be without a policy, so the new one replaces it.
        Err(failure) if had_policy && failure.code() == "AccessDenied" => {
            put_policy(store, name, policy).await?;
            settings(store, request, ours, live, is_new).await?
        }
        applied => applied?,
    };
    // The block of public access makes AWS refuse a policy that would allow public access, so the block is set first.
    put_policy(store, name, policy).await?;
    Ok(applied)
}

async fn put_policy(store: &Store, name: &str, policy: &Policy) -> Result<(), Failure> {
    let put = store.s3.put_bucket_policy(name, policy).await;
    let doing = format!("set the policy of the bucket {name}");
    put.map_err(Failure::of(doing, "s3:PutBucketPolicy and s3:DeleteBucketPolicy"))
}

/// Applies all settings except the bucket's policy.
async fn settings(
    store: &Store,
    request: &RequestOf<Aws>,
    ours: &Tags,
    live: &Tags,
    is_new: bool,
) -> Result<Applied, Failure> {
    let (name, class, claim, dialect) = (&request.name, &request.parameters, &request.config, store.dialect());
    let doing = |what: &str| format!("{what} of the bucket {name}");
    let tags = tags(request, live, ours.clone());
    if tags != *live {
        let put = store.s3.put_bucket_tagging(name, &tags).await;
        put.map_err(Failure::of(doing("set the tags"), "s3:PutBucketTagging"))?;
    }
    if let Some(rule) = dialect.settled_ownership().filter(|_| is_new) {
        // A store without ownership rules has no rule to replace.
        match store.s3.put_bucket_ownership(name, rule).await {
            Err(error) if dialect.lacks_feature(&error) => {}
            put => put.map_err(Failure::of(doing("set the object ownership"), "s3:PutBucketOwnershipControls"))?,
        }
    }
    let warning = match class.block_public_access {
        Some(false) => {
            if is_new {
                unblock_public_access(store, name).await?;
            }
            None
        }
        demanded => block_public_access(store, name, demanded.is_some()).await?,
    };
    if let Some(key) = class.kms_key() {
        let put = store.s3.put_bucket_encryption(name, key).await;
        put.map_err(of_parameter(doing("set the encryption"), "s3:PutEncryptionConfiguration", "kmsKeyId"))?;
    }
    if let Some(lock) = class.lock(claim) {
        let put = store.s3.put_object_lock(name, lock.mode.name(), lock.days).await;
        put.map_err(of_parameter(doing("set the object lock"), "s3:PutBucketObjectLockConfiguration", "objectLock"))?;
    }
    if let Some(enabled) = versioning(class, claim) {
        let put = store.s3.put_bucket_versioning(name, enabled).await;
        put.map_err(of_parameter(doing("set the versioning"), "s3:PutBucketVersioning", "versioning"))?;
    }
    let lifecycle = claim.bucket_lifecycle.as_ref().or(class.lifecycle.as_ref());
    // A failed attempt may have set a lifecycle, which is not in the state and would expire objects.
    if lifecycle.is_some()
        || request.state.contains_key(LIFECYCLE)
        || request.applied_config.contains_key(BUCKET_LIFECYCLE)
    {
        let none = Lifecycle::default();
        match store.s3.put_bucket_lifecycle(name, lifecycle.unwrap_or(&none)).await {
            // A store without lifecycles has none to delete.
            Err(error) if lifecycle.is_none() && error.status() == Some(501) => {}
            put => {
                put.map_err(of_parameter(doing("set the lifecycle"), "s3:PutLifecycleConfiguration", "lifecycle"))?;
            }
        }
    }
    Ok(Applied { warning, state: lifecycle.map(|_| (LIFECYCLE, "set".to_owned())) })
}

/// Returns the bucket's intended tags: `ours`, and the tags from the class and the claim. If the claim sets tags, all
/// other tags are removed; otherwise, tags that were set manually are kept.
fn tags(request: &RequestOf<Aws>, live: &Tags, ours: Tags) -> Tags {
    let asked = request.config.bucket_tags.as_ref();
    let owned = asked.is_some() || request.applied_config.contains_key(BUCKET_TAGS);
    // AWS sets tags with this prefix itself, and refuses to remove them.
    let kept = live.iter().filter(|(key, _)| !owned || key.starts_with("aws:"));
    let kept = kept.map(|(key, value)| (key.clone(), value.clone()));
    kept.chain(request.parameters.asked_tags(&request.config)).chain(ours).collect()
}

/// Returns true to enable versioning, false to suspend it, and `None` to leave it unchanged. Object lock already
/// enables versioning, and stores then refuse to suspend it.
fn versioning(class: &Parameters, claim: &Config) -> Option<bool> {
    let of_class = class.versioning.then_some(Versioning::Enabled);
    let wanted = claim.bucket_versioning.or(of_class).map(|wanted| wanted == Versioning::Enabled);
    wanted.filter(|enabled| !enabled || class.lock(claim).is_none())
}

/// Blocks public access. Returns a warning if the store does not fully support this and the class does not require it.
async fn block_public_access(store: &Store, name: &str, demanded: bool) -> Result<Option<String>, Failure> {
    match store.s3.put_public_access_block(name).await {
        Err(error) if !demanded && !store.dialect().supports_all_properties() && error.status() == Some(501) => {
            Ok(Some(format!(
                "the store cannot block public access to the bucket {name}; set blockPublicAccess to \"false\" in the \
             StorageClass to accept that"
            )))
        }
        put => {
            let doing = format!("block public access of the bucket {name}");
            put.map_err(of_parameter(doing, "s3:PutBucketPublicAccessBlock", "blockPublicAccess"))?;
            Ok(store.dialect().blocks_only_acls().then(|| {
                format!(
                    "the store blocks public ACLs of the bucket {name}, but not public bucket policies; set blockPublicAccess to \
                     \"false\" in the StorageClass to accept that"
                )
            }))
        }
    }
}

/// Removes the block of public access, which AWS sets on every new bucket and other stores may not support.
async fn unblock_public_access(store: &Store, name: &str) -> Result<(), Failure> {
    match store.s3.delete_public_access_block(name).await {
        Err(error) if store.dialect().lacks_feature(&error) => Ok(()),
        deleted => {
            let doing = format!("unblock public access of the bucket {name}");
            deleted.map_err(Failure::of(doing, "s3:PutBucketPublicAccessBlock"))
        }
    }
}

/// Removes the policy of a bucket before it is emptied. The policy could allow others to write, or prevent the
/// administrator from deleting objects.
pub(crate) async fn remove_policy(store: &Store, bucket: &ProvisionedBucket<Parameters>) -> Result<(), Failure> {
    if bucket.config_texts.contains_key(BUCKET_POLICY) { delete_policy(store, &bucket.name).await } else { Ok(()) }
}

async fn delete_policy(store: &Store, name: &str) -> Result<(), Failure> {
    match store.s3.delete_bucket_policy(name).await {
        // A store without policies has none to delete.
        Err(error) if error.code() == "NoSuchBucket" || error.status() == Some(501) => Ok(()),
        deleted => {
            deleted.map_err(Failure::of(format!("delete the policy of the bucket {name}"), "s3:DeleteBucketPolicy"))
        }
    }
}

/// Returns true if the bucket contains neither object versions nor delete markers, or does not exist.
pub(crate) async fn is_empty(store: &Store, name: &str) -> Result<bool, Failure> {
    match store.s3.list_object_versions(name).await {
        Ok(versions) => Ok(versions.is_empty()),
        Err(error) if error.code() == "NoSuchBucket" => Ok(true),
        Err(error) => {
            Err(Failure::of(format!("list the objects of the bucket {name}"), "s3:ListBucketVersions")(error))
        }
    }
}

/// Deletes the bucket, or fails if it contains objects. A bucket that is not deleted keeps its policy.
pub(crate) async fn delete_empty(store: &Store, bucket: &ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
    let name = &bucket.name;
    let mut deleted = store.s3.delete_bucket(name).await;
    if deleted.as_ref().is_err_and(|error| error.code() == "AccessDenied")
        && let Some(policy) = bucket.config_texts.get(BUCKET_POLICY)
    {
        // The policy may deny the deletion.
        delete_policy(store, name).await?;
        deleted = store.s3.delete_bucket(name).await;
        if let (Err(_), Ok(policy)) = (&deleted, Policy::parse(policy)) {
            put_policy(store, name, &policy).await?;
        }
    }
    match deleted {
        Err(error) if error.code() == "BucketNotEmpty" => Err(DeletionPolicy::not_empty(name)),
        Err(error) => Err(Failure::of(format!("delete the bucket {name}"), "s3:DeleteBucket")(error).into()),
        Ok(_) => Ok(()),
    }
}

/// Deletes the bucket with its contents. If this takes too long, it deletes a part and returns an error.
pub(crate) async fn delete(store: &Store, name: &str) -> Result<(), DeleteError> {
    let mut emptying = EmptyingTimeLimit::new(name);
    loop {
        loop {
            match delete_some(store, name).await? {
                0 => break,
                count => emptying.add(count)?,
            }
        }
        match store.s3.delete_bucket(name).await {
            Err(error) if error.code() == "BucketNotEmpty" && !emptying.is_over() => {
                // A client has just written an object, or the list is outdated.
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Err(error) => return Err(Failure::of(format!("delete the bucket {name}"), "s3:DeleteBucket")(error).into()),
            Ok(_) => return Ok(()),
        }
    }
}

async fn delete_some(store: &Store, name: &str) -> Result<usize, DeleteError> {
    match store.s3.delete_some(name).await {
        Ok(count) => Ok(count),
        Err(error) if error.code() == "NoSuchBucket" => Ok(0),
        // A slow store may need more time than one request allows.
        Err(error @ Error::TimedOut { .. }) => {
            Err(DeleteError::in_progress(format!("emptying the bucket {name}: {error}")).after(Duration::from_secs(1)))
        }
        Err(error @ Error::NameMismatch { .. }) => {
            Err(DeleteError::retry(format!("cannot empty the bucket {name}: {error}")))
        }
        Err(Error::Object { key, code }) if code == "AccessDenied" => Err(DeleteError::retry(format!(
            "cannot delete the object {key:?} of the bucket {name}: it is locked until its retention ends, or the \
             administrator needs the permissions s3:DeleteObject and s3:DeleteObjectVersion"
        ))),
        Err(error) => {
            let rights = "s3:ListBucketVersions, s3:DeleteObjectVersion, s3:ListBucketMultipartUploads and \
                          s3:AbortMultipartUpload";
            Err(Failure::of(format!("empty the bucket {name}"), rights)(error).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use kube_provisioner::parameters::from_map;

    use super::*;
    use crate::store::tests::{server, store};

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
    fn claim_tags_replace_manually_set_tags() {
        let (ours, live) = (map(&[("o", "1")]), map(&[("o", "0"), ("hand", "1"), ("aws:a", "1"), ("team", "x")]));
        let of =
            |config: &[(&str, &str)], applied: &[(&str, &str)]| tags(&request(config, applied), &live, ours.clone());
        let named = [("bucketTags", "team=shop")];
        assert_eq!(of(&[], &[]), map(&[("o", "1"), ("hand", "1"), ("aws:a", "1"), ("team", "x")]));
        assert_eq!(of(&named, &[]), map(&[("o", "1"), ("aws:a", "1"), ("team", "shop")]));
        assert_eq!(of(&[], &named), map(&[("o", "1"), ("aws:a", "1")]));
    }

    #[test]
    fn claim_versioning_overrides_the_class() {
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

    /// A policy such as `"Effect": "Deny", "Action": "s3:Put*"` prevents changes to the bucket's settings.
    #[tokio::test]
    async fn replaces_a_denying_policy_before_applying_settings() {
        let is_replaced = AtomicBool::new(false);
        let endpoint = server(move |request| match request.starts_with("PUT /photos/?policy") {
            true => {
                is_replaced.store(true, Ordering::Relaxed);
                (204, "")
            }
            false if is_replaced.load(Ordering::Relaxed) => (200, ""),
            false => (403, "<Error><Code>AccessDenied</Code></Error>"),
        });
        let store = store(&["--region", "us-east-1", "--endpoint", &endpoint]).await;
        let asked = [(BUCKET_POLICY, r#"{"Statement":[{"Effect":"Allow"}]}"#)];
        let none = Tags::new();
        let denied = apply(&store, &request(&asked, &[]), &none, &none, false).await.map(drop).unwrap_err();
        assert_eq!(denied.code(), "AccessDenied");
        apply(&store, &request(&asked, &[(BUCKET_POLICY, "former")]), &none, &none, false).await.unwrap();
    }

    #[tokio::test]
    async fn deletes_the_lifecycle_of_a_failed_attempt() {
        let endpoint = server(|request| {
            let deletes = request.starts_with("DELETE /photos/?lifecycle");
            if deletes { (403, "<Error><Code>AccessDenied</Code></Error>") } else { (200, "") }
        });
        let (store, none) = (store(&["--region", "us-east-1", "--endpoint", &endpoint]).await, Tags::new());
        apply(&store, &request(&[], &[]), &none, &none, false).await.unwrap();
        let attempted = request(&[], &[(BUCKET_LIFECYCLE, "former")]);
        let denied = apply(&store, &attempted, &none, &none, false).await.map(drop).unwrap_err();
        assert_eq!(denied.code(), "AccessDenied");
    }

    #[tokio::test]
    async fn tolerates_stores_without_bucket_policies() {
        let endpoint = server(|request| {
            let deletes = request.starts_with("DELETE /photos/?policy");
            if deletes { (501, "<Error><Code>NotImplemented</Code></Error>") } else { (200, "") }
        });
        let (store, none) = (store(&["--region", "us-east-1", "--endpoint", &endpoint]).await, Tags::new());
        apply(&store, &request(&[], &[(BUCKET_POLICY, "refused")]), &none, &none, false).await.unwrap();
    }

    #[tokio::test]
    async fn recognizes_names_reserved_for_the_account() {
        let (aws, other) = (store(&["--region", "eu-central-1"]).await, ["--endpoint", "http://store:9000"]);
        assert!(is_of_account(&aws, "photos-111122223333-eu-central-1-an"));
        for name in [
            "photos",
            "photos-an",
            "photos-1111-eu-central-1-an",
            "photos-111122223333-us-east-1-an",
            "111122223333-eu-central-1-an",
        ] {
            assert!(!is_of_account(&aws, name), "{name}");
        }
        let other = store(&[&["--region", "eu-central-1"][..], &other].concat()).await;
        assert!(!is_of_account(&other, "photos-111122223333-eu-central-1-an"));
    }
}
