//! The provisioner.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{
    Bucket, BucketCapabilities, BucketProvisioner, Credentials, DeletionPolicy, ProvisionedBucket, RequestOf,
};
use kube_provisioner::{DeleteError, ProvisionError, StartError};
use s3_client::iam::User;
use s3_client::lifecycle::Lifecycle;

use crate::account::{Account, CLAIM_UID};
use crate::bucket::{self, Live, Owner, owner};
use crate::failure::Failure;
use crate::parameters::{Config, Parameters};
use crate::store::{ADMIN, Defaults, Misconfigured, Store, Stores};

/// That the lifecycle was set, so that it is taken away when nobody asks for it any more.
const LIFECYCLE: &str = "lifecycle";

/// Makes buckets and users in accounts of AWS.
pub struct Aws {
    stores: Stores,
}

impl Aws {
    pub fn new(defaults: Defaults) -> Self {
        Self { stores: Stores::new(defaults) }
    }
}

impl BucketProvisioner for Aws {
    type Parameters = Parameters;
    type Config = Config;

    async fn provision(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let (store, account) = self.asked(&request).await?;
        let (access, name) = (request.parameters.access_mode.restricted_to(request.config.access_mode)?, &request.name);
        let user = account.find(&store).await?;
        let live = match bucket::find(&store, name).await? {
            Live::Absent => None,
            Live::Tagged(tags) => Some(tags),
            // Nothing tells whose it is, and in some regions making it again is no error.
            Live::Hidden(failure) => {
                let text = format!("{failure}, or the bucket is another account's: choose another bucketName");
                return Err(ProvisionError::retry(text));
            }
        };
        if let Some(tags) = &live
            && let Some(text) = objection(tags, &request, &account, user.as_ref())
        {
            return refuse(&store, &account, &request, text).await;
        }
        if user.is_none() {
            // With a bucket that is there the tag would be a lie.
            let begun = live.is_none().then_some(name.as_str());
            account.make(&store, &request.parameters, begun).await?;
        }
        let tags = match live {
            Some(tags) => tags,
            None => match bucket::create(&store, name, &request.parameters).await {
                Ok(()) => BTreeMap::new(),
                Err(failure) if failure.code() == "BucketAlreadyExists" => {
                    let text =
                        format!("the bucket {name} exists and belongs to somebody else: choose another bucketName");
                    return refuse(&store, &account, &request, text).await;
                }
                Err(failure) => return Err(failure.into()),
            },
        };
        bucket::apply(&store, name, &request.parameters, &tags, &account.tags()).await?;
        let lifecycle = apply_lifecycle(&store, &request).await?;
        account.let_in(&store, name, access, request.parameters.kms_key()).await?;
        let answer = answer(&store, &account, &request).await?;
        Ok(if lifecycle { answer.state(LIFECYCLE, "set") } else { answer })
    }

    async fn grant(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let (store, account) = self.asked(&request).await?;
        let (access, name) = (request.parameters.access_mode.restricted_to(request.config.access_mode)?, &request.name);
        if request.config.bucket_lifecycle.is_some() {
            let text = "bucketLifecycle is not possible for a bucket that the class names: it is not this claim's";
            return refuse(&store, &account, &request, text.to_owned()).await;
        }
        match bucket::find(&store, name).await? {
            Live::Tagged(_) => {}
            Live::Absent => {
                return Err(ProvisionError::retry(format!(
                    "the bucket {name} does not exist: make it, or change bucketName in the StorageClass"
                )));
            }
            Live::Hidden(failure) => {
                return Err(ProvisionError::retry(format!("{failure}, or the bucket belongs to another account")));
            }
        }
        if account.find(&store).await?.is_none() {
            account.make(&store, &request.parameters, None).await?;
        }
        account.let_in(&store, name, access, request.parameters.kms_key()).await?;
        answer(&store, &account, &request).await
    }

    async fn delete(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.recorded(&bucket).await?;
        let policy = bucket.parameters.as_ref().map(|class| class.deletion_policy).unwrap_or_default();
        let name = &bucket.name;
        let user = account.look(&store).await?;
        match bucket::find(&store, name).await? {
            Live::Absent => {}
            Live::Hidden(failure) if bucket.state.is_empty() => {
                // There was none of its name when it was begun.
                if account.has_begun(user.as_ref(), name) {
                    return Err(failure.into());
                }
                tracing::info!(bucket = name, "left a bucket that is not the claim's");
            }
            Live::Hidden(failure) => return Err(failure.into()),
            Live::Tagged(tags) => match owner(&tags, &bucket.claim.uid) {
                Owner::Other => tracing::info!(bucket = name, "left a bucket that is not the claim's"),
                Owner::Unknown if !is_begun(&account, user.as_ref(), name, &bucket.claim.uid) => {
                    if !bucket.state.is_empty() {
                        return Err(DeleteError::retry(format!(
                            "the bucket {name} has lost its tag {CLAIM_UID}, and may be somebody else's: set it to {} if it \
                             is to be deleted, or to another text if it is to stay",
                            bucket.claim.uid
                        )));
                    }
                    tracing::info!(bucket = name, "left a bucket that was not made for the claim");
                }
                Owner::Claim | Owner::Unknown => {
                    let only_empty = policy == DeletionPolicy::DeleteIfEmpty;
                    if only_empty && !bucket::is_empty(&store, name).await? {
                        return Err(DeletionPolicy::not_empty(name));
                    }
                    // Whoever still writes would write for ever.
                    account.close(&store, user.as_ref()).await?;
                    match only_empty {
                        true => bucket::delete_empty(&store, name).await?,
                        false => bucket::delete(&store, name).await?,
                    }
                }
            },
        }
        Ok(account.remove(&store).await?)
    }

    async fn revoke(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.recorded(&bucket).await?;
        Ok(account.remove(&store).await?)
    }

    async fn rotate(&self, bucket: ProvisionedBucket<Parameters>) -> Result<Credentials, ProvisionError> {
        let (store, account) = self.recorded(&bucket).await?;
        account.remove_keys_but(&store, bucket.access_key_id.as_deref()).await?;
        Ok(account.new_key(&store).await?)
    }

    async fn retire(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.recorded(&bucket).await?;
        if bucket.access_key_id.is_some() {
            account.remove_keys_but(&store, bucket.access_key_id.as_deref()).await?;
        }
        Ok(())
    }

    async fn probe(&self) -> Result<(), StartError> {
        Ok(self.stores.probe().await?)
    }

    fn capabilities() -> BucketCapabilities {
        let capabilities = BucketCapabilities::default().rotation();
        ADMIN.into_iter().fold(capabilities, BucketCapabilities::optional_secret)
    }
}

impl Aws {
    async fn asked(&self, request: &RequestOf<Self>) -> Result<(Store, Account), Misconfigured> {
        let store = self.stores.of(&request.parameters, &request.secrets).await?;
        Ok((store, Account::of(&request.claim, &request.state)))
    }

    /// The account and the user of a bucket that was made.
    async fn recorded(&self, bucket: &ProvisionedBucket<Parameters>) -> Result<(Store, Account), BadRecord> {
        let Some(parameters) = &bucket.parameters else {
            return Err(BadRecord(
                "the StorageClass is gone, and only it says where the bucket is: make it again".into(),
            ));
        };
        if bucket.claim.uid.is_empty() && bucket.state.is_empty() {
            return Err(BadRecord("the ObjectBucket names neither its claim's uid nor UserName".into()));
        }
        let store = self.stores.of(parameters, &bucket.secrets).await;
        let store = store.map_err(|error| BadRecord(error.to_string()))?;
        Ok((store, Account::of(&bucket.claim, &bucket.state)))
    }
}

/// What an ObjectBucket does not tell.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadRecord(String);

/// Why a bucket of this name is not for this claim.
fn objection(
    tags: &BTreeMap<String, String>,
    request: &RequestOf<Aws>,
    account: &Account,
    user: Option<&User>,
) -> Option<String> {
    let (name, uid) = (&request.name, &request.claim.uid);
    match owner(tags, uid) {
        Owner::Claim => None,
        Owner::Unknown if is_begun(account, user, name, uid) => None,
        Owner::Unknown if !request.state.is_empty() => {
            Some(format!("the bucket {name} has lost its tag {CLAIM_UID}: set it to {uid}"))
        }
        Owner::Other | Owner::Unknown => {
            Some(format!("the bucket {name} exists and was not made for this claim: choose another bucketName"))
        }
    }
}

/// Whether a bucket without our tag was made for the claim.
fn is_begun(account: &Account, user: Option<&User>, bucket: &str, claim_uid: &str) -> bool {
    let of_its_name = !claim_uid.is_empty() && bucket.ends_with(claim_uid);
    of_its_name || account.has_begun(user, bucket)
}

/// Sets the lifecycle that the claim or its class asks for, or takes it away. Whether there is one is the answer.
async fn apply_lifecycle(store: &Store, request: &RequestOf<Aws>) -> Result<bool, Failure> {
    let wanted = request.config.bucket_lifecycle.as_ref().or(request.parameters.lifecycle.as_ref());
    if wanted.is_none() && !request.state.contains_key(LIFECYCLE) {
        return Ok(false);
    }
    let none = Lifecycle::default();
    let put = store.s3.put_bucket_lifecycle(&request.name, wanted.unwrap_or(&none)).await;
    put.map_err(Failure::of(
        format!("set the lifecycle of the bucket {}", request.name),
        "s3:PutLifecycleConfiguration",
    ))?;
    Ok(wanted.is_some())
}

async fn answer(store: &Store, account: &Account, request: &RequestOf<Aws>) -> Result<Bucket, ProvisionError> {
    let key = account.key(store, request.access_key_id.as_deref(), request.credentials.clone()).await?;
    Ok(account
        .state()
        .into_iter()
        .fold(Bucket::new(store.endpoint.clone(), key), |bucket, (key, value)| bucket.state(key, value)))
}

/// What the claim wants cannot be done. It is for good only where nothing is left of earlier attempts.
async fn refuse(
    store: &Store,
    account: &Account,
    request: &RequestOf<Aws>,
    text: String,
) -> Result<Bucket, ProvisionError> {
    if !request.state.is_empty() {
        return Err(ProvisionError::retry(text));
    }
    account.remove(store).await?;
    Err(ProvisionError::invalid(text))
}
