//! Buckets: how they are found, made and set, and how they go.

use std::collections::BTreeMap;
use std::time::Duration;

use kube_provisioner::DeleteError;
use kube_provisioner::bucket::DeletionPolicy;
use s3_client::{Error, NewBucket};
use tokio::time::Instant;

use crate::failure::{Failure, of_parameter};
use crate::ownership::{NEW, OBJECT_OWNERSHIP};
use crate::parameters::{ObjectLock, Parameters, StoreKind};
use crate::store::Store;

/// After this time a call that deletes objects reports its progress, and the next call continues.
const SLICE: Duration = Duration::from_secs(20);

/// What there is under a bucket's name.
#[derive(Debug)]
pub(crate) enum Live {
    Absent,
    /// Another account's, or one that the administrator may not look at.
    Forbidden(Failure),
    /// In another region than the class's. Whose it is, this region does not say.
    Elsewhere(Failure),
    Tagged(BTreeMap<String, String>),
}

pub(crate) async fn find(store: &Store, name: &str) -> Result<Live, Failure> {
    let failed = || Failure::of(format!("read the tags of the bucket {name}"), "s3:GetBucketTagging");
    match store.s3.bucket_tagging(name).await {
        Ok(tags) => Ok(Live::Tagged(tags)),
        Err(error) if error.code() == "NoSuchBucket" => Ok(Live::Absent),
        Err(error) if error.code() == "AccessDenied" => Ok(Live::Forbidden(failed()(error))),
        Err(error) if is_of_another_region(store, &error) => Ok(Live::Elsewhere(failed()(error))),
        Err(error) => Err(failed()(error)),
    }
}

fn is_of_another_region(store: &Store, error: &Error) -> bool {
    match error.code() {
        "PermanentRedirect" => true,
        // Elsewhere the class may name a region that the whole store does not have.
        "AuthorizationHeaderMalformed" => store.is_aws(),
        _ => false,
    }
}

/// Makes the bucket, with its tags where the store takes them.
///
/// # Errors
/// `BucketAlreadyExists` and `BucketAlreadyOwnedByYou` among others.
pub(crate) async fn create(
    store: &Store,
    name: &str,
    object_lock: bool,
    tags: &BTreeMap<String, String>,
    user: &str,
) -> Result<(), Failure> {
    let plain = NewBucket {
        location: store.region.location_constraint(),
        object_lock,
        namespace: is_of_account(store, name).then_some("account-regional"),
        ..NewBucket::default()
    };
    let create = async |new: NewBucket<'_>| store.s3.create_bucket_with(name, new).await;
    // AWS takes the tags, and asks for another right where a rule is named.
    let ownership = (!store.is_aws()).then_some(NEW);
    let made = match store.kind() {
        StoreKind::SeaweedFs => create(NewBucket { acl_reader: Some(user), ..plain }).await,
        _ => match create(NewBucket { tags: Some(tags), ownership, ..plain }).await {
            Err(error) if !store.is_aws() && is_about_new_fields(&error) => create(plain).await,
            made => made,
        },
    };
    made.map_err(Failure::of(format!("create the bucket {name}"), "s3:CreateBucket and s3:TagResource"))
}

/// Whether the name is one that no other account can have, `PREFIX-ACCOUNT-REGION-an`. AWS takes it only with a header.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/gpbucketnamespaces.html>
fn is_of_account(store: &Store, name: &str) -> bool {
    let account = name.strip_suffix("-an").and_then(|rest| rest.strip_suffix(store.region.name())?.strip_suffix('-'));
    let account = account.and_then(|rest| rest.rsplit_once('-'));
    store.is_aws() && account.is_some_and(|(_, id)| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a store does not know tags of new buckets, or rules for their objects.
fn is_about_new_fields(error: &Error) -> bool {
    ["MalformedXML", "InvalidRequest", "InvalidArgument", "NotImplemented"].contains(&error.code())
}

/// What the class and the claim say of a bucket.
pub(crate) struct Settings<'a> {
    pub(crate) class: &'a Parameters,
    pub(crate) lock: Option<ObjectLock>,
}

/// Writes tags, which are all that the bucket is to have, and the settings of the class. They are written in any case: it is as quick
/// as looking. `is_new`: nobody else can have set it yet. The answer is a warning for the claim.
pub(crate) async fn apply(
    store: &Store,
    name: &str,
    Settings { class: parameters, lock }: Settings<'_>,
    live: &BTreeMap<String, String>,
    tags: &BTreeMap<String, String>,
    is_new: bool,
) -> Result<Option<String>, Failure> {
    let doing = |what: &str| format!("{what} of the bucket {name}");
    if tags != live {
        let put = store.s3.put_bucket_tagging(name, tags).await;
        put.map_err(Failure::of(doing("set the tags"), "s3:PutBucketTagging"))?;
    }
    if is_new && store.kind() == StoreKind::Other {
        // Where there are no such rules, there are none to change.
        match store.s3.put_bucket_ownership(name, OBJECT_OWNERSHIP).await {
            Err(error) if [400, 405, 501].map(Some).contains(&error.status()) => {}
            put => put.map_err(Failure::of(doing("set the object ownership"), "s3:PutBucketOwnershipControls"))?,
        }
    }
    let warning = match parameters.block_public_access {
        Some(false) => {
            if is_new {
                unblock_public_access(store, name).await?;
            }
            None
        }
        demanded => block_public_access(store, name, demanded.is_some()).await?,
    };
    if let Some(key) = parameters.kms_key() {
        let put = store.s3.put_bucket_encryption(name, key).await;
        put.map_err(of_parameter(doing("set the encryption"), "s3:PutEncryptionConfiguration", "kmsKeyId"))?;
    }
    if let Some(lock) = lock {
        let put = store.s3.put_object_lock(name, lock.mode.name(), lock.days).await;
        put.map_err(of_parameter(doing("set the object lock"), "s3:PutBucketObjectLockConfiguration", "objectLock"))?;
    }
    Ok(warning)
}

/// The answer is a warning where the store has no such block and the class does not demand it.
async fn block_public_access(store: &Store, name: &str, demanded: bool) -> Result<Option<String>, Failure> {
    match store.s3.put_public_access_block(name).await {
        Err(error) if !demanded && !store.is_aws() && error.status() == Some(501) => Ok(Some(format!(
            "the store cannot block public access to the bucket {name}; set blockPublicAccess to \"false\" in the \
             StorageClass to accept that"
        ))),
        put => {
            let doing = format!("block public access of the bucket {name}");
            put.map_err(of_parameter(doing, "s3:PutBucketPublicAccessBlock", "blockPublicAccess"))?;
            let only_acls = store.kind() == StoreKind::SeaweedFs;
            Ok(only_acls.then(|| {
                format!(
                    "the store blocks public ACLs of the bucket {name}, but no public bucket policies; set blockPublicAccess to \
                     \"false\" in the StorageClass to accept that"
                )
            }))
        }
    }
}

/// AWS blocks it in every new bucket, and other stores may know no blocks.
async fn unblock_public_access(store: &Store, name: &str) -> Result<(), Failure> {
    match store.s3.delete_public_access_block(name).await {
        Err(error) if !store.is_aws() && [400, 405, 501].map(Some).contains(&error.status()) => Ok(()),
        deleted => {
            let doing = format!("unblock public access of the bucket {name}");
            deleted.map_err(Failure::of(doing, "s3:PutBucketPublicAccessBlock"))
        }
    }
}

/// Whether it holds no version and no delete marker.
pub(crate) async fn is_empty(store: &Store, name: &str) -> Result<bool, Failure> {
    match store.s3.list_object_versions(name).await {
        Ok(versions) => Ok(versions.is_empty()),
        Err(error) if error.code() == "NoSuchBucket" => Ok(true),
        Err(error) => {
            Err(Failure::of(format!("list the objects of the bucket {name}"), "s3:ListBucketVersions")(error))
        }
    }
}

/// Deletes the bucket if nothing has been written to it.
pub(crate) async fn delete_empty(store: &Store, name: &str) -> Result<(), DeleteError> {
    match store.s3.delete_bucket(name).await {
        Err(error) if error.code() == "BucketNotEmpty" => Err(DeletionPolicy::not_empty(name)),
        Err(error) => Err(Failure::of(format!("delete the bucket {name}"), "s3:DeleteBucket")(error).into()),
        Ok(_) => Ok(()),
    }
}

/// Deletes the bucket with all that it holds, or a part of it and says so.
pub(crate) async fn delete(store: &Store, name: &str) -> Result<(), DeleteError> {
    let start = Instant::now();
    let mut deleted = 0;
    loop {
        loop {
            match delete_some(store, name).await? {
                0 => break,
                count => deleted += count,
            }
            if start.elapsed() >= SLICE {
                let text = format!("{deleted} more objects of the bucket {name} are deleted, and others are left");
                return Err(DeleteError::in_progress(text).after(Duration::from_secs(1)));
            }
        }
        match store.s3.delete_bucket(name).await {
            Err(error) if error.code() == "BucketNotEmpty" && start.elapsed() < SLICE => {
                // Something was written meanwhile, or the list is behind.
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
        Err(error @ Error::ListedOtherwise { .. }) => {
            Err(DeleteError::retry(format!("cannot empty the bucket {name}: {error}")))
        }
        Err(Error::Object { key, code }) if code == "AccessDenied" => Err(DeleteError::retry(format!(
            "cannot delete the object {key:?} of the bucket {name}: it is locked until its retention ends, or the \
             administrator needs the rights s3:DeleteObject and s3:DeleteObjectVersion"
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
    use super::*;
    use crate::store::tests::store;

    #[tokio::test]
    async fn names_of_the_account_are_known_by_their_ends() {
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
