//! The provisioner.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{
    Access, Authentication, Bucket, BucketCapabilities, BucketProvisioner, Credentials, DeletionPolicy, MadeFor,
    ProvisionedBucket, RequestOf, ServiceAccount, Source,
};
use kube_provisioner::{DeleteError, ProvisionError, StartError};
use s3_client::lifecycle::Lifecycle;
use tokio::task::JoinSet;

use crate::account::{Account, CLAIM_UID, Sight};
use crate::bucket::{self, Live};
use crate::failure::{Failure, of_parameter};
use crate::ownership::{Maker, Owner, maker};
use crate::parameters::{Config, Parameters, StoreKind};
use crate::policy;
use crate::role::TOKEN_FILE;
use crate::seaweedfs;
use crate::store::{ADMIN, Defaults, Store, Stores};

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
        let (store, account) = self.asked(&request, Source::Provisioned).await?;
        let (way, name) = (Way::of(&request)?, &request.name);
        if let Some(text) =
            seaweedfs::lacks(&store, request.parameters.block_public_access, way.service_account.is_some())
        {
            return refuse(&store, &account, &request, text).await;
        }
        let user = account.look(&store).await?;
        let live = match bucket::find(&store, name).await? {
            Live::Absent => None,
            Live::Tagged(tags) => Some(tags),
            // Whose it is, nobody knows, and in some regions making it again is no error.
            Live::Forbidden(failure) => {
                let failure = if let Sight::Forbidden(of_user) = user { of_user } else { failure };
                return Err(ProvisionError::retry(format!(
                    "{failure}, or choose another bucketName: this one may be taken"
                )));
            }
        };
        if let Some(tags) = &live {
            match judge(tags, &store, &request, &account, &user).await? {
                Judgement::Own => {}
                Judgement::Refused(text) => return refuse(&store, &account, &request, text).await,
                Judgement::Unsure(text) => return Err(ProvisionError::retry(text)),
            }
        }
        // The answer to the creation says whether it existed.
        let taken = |user: &str| {
            format!("the IAM user {user} reserves the bucket name {name} for another claim: choose another bucketName")
        };
        own_user(&account, &store, &request.parameters, user, live.is_some(), taken).await?;
        let tags = match live {
            Some(tags) => tags,
            None => self.create(&store, &account, &request).await?,
        };
        let applied =
            bucket::apply(&store, name, &request.parameters, &tags, &account.tags(), account.unfinished).await;
        let warning = applied?;
        let lifecycle = apply_lifecycle(&store, &request).await?;
        let mut answer = give_access(&store, &account, &request, &way).await?;
        answer.warning = warning;
        Ok(if lifecycle { answer.state(LIFECYCLE, "set") } else { answer })
    }

    async fn grant(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let (store, account) = self.asked(&request, Source::Granted).await?;
        let (way, name) = (Way::of(&request)?, &request.name);
        if let Some(text) = seaweedfs::lacks(&store, None, way.service_account.is_some()) {
            return refuse(&store, &account, &request, text).await;
        }
        if request.config.bucket_lifecycle.is_some() {
            let text = "bucketLifecycle is not possible for a bucket that was not made for this claim: remove it from additionalConfig";
            return refuse(&store, &account, &request, text.to_owned()).await;
        }
        let live = match bucket::find(&store, name).await? {
            Live::Tagged(tags) => Some(tags),
            Live::Absent => None,
            Live::Forbidden(failure) => return Err(failure.into()),
        };
        if let Some(made_for) = &request.made_for
            && !is_made_for(made_for, live.as_ref(), &store, &request).await?
        {
            return refuse(&store, &account, &request, made_for.is_not_its(name)).await;
        }
        if live.is_none() {
            return Err(ProvisionError::retry(format!(
                "the bucket {name} does not exist: make it, or change bucketName in the StorageClass"
            )));
        }
        let taken = |user: &str| format!("the IAM user {user} exists and was not made for this claim: delete it");
        let user = account.look(&store).await?;
        own_user(&account, &store, &request.parameters, user, false, taken).await?;
        give_access(&store, &account, &request, &way).await
    }

    async fn delete(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.recorded(&bucket).await?;
        let policy = bucket.parameters.as_ref().map(|class| class.deletion_policy).unwrap_or_default();
        let name = &bucket.name;
        let user = account.look_carefully(&store).await?;
        // Before the bucket there is the user.
        let begun = !bucket.state.is_empty() || matches!(user, Sight::Own | Sight::Forbidden(_));
        match bucket::find(&store, name).await? {
            Live::Absent => {}
            Live::Forbidden(failure) if begun => return Err(failure.into()),
            Live::Forbidden(_) => tracing::info!(bucket = name, "left a bucket that is not the claim's"),
            Live::Tagged(tags) => match removable(&tags, &store, &bucket, &account, &user).await? {
                false => tracing::info!(bucket = name, "left a bucket that is not the claim's"),
                true => {
                    let only_empty = policy == DeletionPolicy::DeleteIfEmpty;
                    if only_empty && !bucket::is_empty(&store, name).await? {
                        return Err(DeletionPolicy::not_empty(name));
                    }
                    // Otherwise a client could go on writing forever.
                    account.close(&store, &user).await?;
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
        account.look_carefully(&store).await?;
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
    async fn asked(&self, request: &RequestOf<Self>, source: Source) -> Result<(Store, Account), ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets).await?;
        seaweedfs::learn(&store, &request.name).await?;
        let account = Account::of(&request.claim, &request.cluster_id, (source, &request.name), &request.state);
        let account = account.on(store.kind(), &request.cluster_id);
        Ok((store, account))
    }

    /// Makes the bucket, whose name is reserved for the claim. Its tags are the answer.
    async fn create(
        &self,
        store: &Store,
        account: &Account,
        request: &RequestOf<Self>,
    ) -> Result<BTreeMap<String, String>, ProvisionError> {
        let name = &request.name;
        let Some(made) = create_if_absent(store, account, request).await? else { return Err(just_made(name)) };
        match made {
            Ok(()) => store.recent.created(name),
            Err(failure) => {
                // A bucket that is there may be of an attempt whose answer was lost. Otherwise nothing was made, and what appears
                // under this name from now on is somebody else's.
                let on_seaweedfs = store.kind() == StoreKind::SeaweedFs;
                let exists = ["BucketAlreadyOwnedByYou", "OperationAborted"].contains(&failure.code())
                    || on_seaweedfs && seaweedfs::MAY_EXIST.contains(&failure.code());
                let ends = account.unfinished && failure.is_refusal() && !exists;
                let ended = ends && account.remove(store).await.is_ok();
                return Err(match failure.code() {
                    "BucketAlreadyExists" if ended => {
                        ProvisionError::invalid(format!("the bucket name {name} is taken: choose another bucketName"))
                    }
                    "BucketAlreadyOwnedByYou" => just_made(name),
                    "BucketAlreadyExists" if on_seaweedfs => just_made(name),
                    _ => failure.into(),
                });
            }
        }
        let tags = match bucket::find(store, name).await? {
            Live::Tagged(tags) => tags,
            Live::Forbidden(failure) => return Err(failure.into()),
            Live::Absent => return Err(Failure::not_shown_yet(format!("bucket {name}")).into()),
        };
        match account.owner_of(&tags) {
            Owner::Claim => Ok(tags),
            Owner::Unknown if store.makes_a_bucket_once() => Ok(tags),
            // The store leaves tags out, or shows those of a bucket of this name that is gone. Nobody has written into a bucket that
            // was made just now.
            _ if !store.is_aws() && bucket::is_empty(store, name).await? => Ok(BTreeMap::new()),
            Owner::Unknown => Err(Failure::not_shown_yet(format!("tags of the bucket {name}")).into()),
            Owner::Other => Err(ProvisionError::retry(not_for_this_claim(name))),
        }
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
        let asked = (bucket.source, bucket.name.as_str());
        let account = Account::of(&bucket.claim, &bucket.cluster_id, asked, &bucket.state);
        if account.unfinished {
            seaweedfs::learn(&store, &bucket.name).await.map_err(|error| BadRecord(error.to_string()))?;
        }
        let account = account.on(store.kind(), &bucket.cluster_id);
        Ok((store, account))
    }
}

/// What an ObjectBucket does not record.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadRecord(String);

/// Whether a bucket that exists is for this claim.
enum Judgement {
    Own,
    Refused(String),
    Unsure(String),
}

async fn judge(
    tags: &BTreeMap<String, String>,
    store: &Store,
    request: &RequestOf<Aws>,
    account: &Account,
    user: &Sight,
) -> Result<Judgement, Failure> {
    let (name, uid) = (&request.name, &request.claim.uid);
    let reserved = account.unfinished && matches!(user, Sight::Own);
    let owner = account.owner_of(tags);
    let maker = async || maker_of(store, account, name, owner, uid).await;
    Ok(match owner {
        Owner::Claim => Judgement::Own,
        Owner::Other if !reserved || maker().await? != Maker::TheAttempt => {
            Judgement::Refused(not_for_this_claim(name))
        }
        Owner::Other => Judgement::Own,
        Owner::Unknown if account.is_of_2019() && matches!(user, Sight::Own) => Judgement::Own,
        Owner::Unknown if !account.unfinished => {
            Judgement::Refused(format!("the bucket {name} has lost its tag {CLAIM_UID}: set it to {uid}"))
        }
        Owner::Unknown if !reserved => Judgement::Refused(not_for_this_claim(name)),
        Owner::Unknown => match maker().await? {
            Maker::TheAttempt => Judgement::Own,
            Maker::SomebodyElse => Judgement::Refused(not_for_this_claim(name)),
            Maker::Unknown => Judgement::Unsure(unsure(name, uid)),
        },
    })
}

/// Whether a bucket with these tags is still the one that was made for a claim.
async fn is_made_for(
    made_for: &MadeFor,
    tags: Option<&BTreeMap<String, String>>,
    store: &Store,
    request: &RequestOf<Aws>,
) -> Result<bool, Failure> {
    let (MadeFor { claim, state, .. }, Some(tags)) = (made_for, tags) else { return Ok(false) };
    let owner = Account::of(claim, &request.cluster_id, (Source::Provisioned, &request.name), state);
    Ok(match owner.owner_of(tags) {
        Owner::Claim => true,
        Owner::Unknown if owner.is_of_2019() => matches!(owner.look(store).await?, Sight::Own),
        Owner::Unknown | Owner::Other => false,
    })
}

/// Whether a bucket is deleted with its claim. An error says what a person must decide.
async fn removable(
    tags: &BTreeMap<String, String>,
    store: &Store,
    bucket: &ProvisionedBucket<Parameters>,
    account: &Account,
    user: &Sight,
) -> Result<bool, DeleteError> {
    let (name, uid) = (&bucket.name, &bucket.claim.uid);
    let reserved = account.unfinished && matches!(user, Sight::Own);
    let owner = account.owner_of(tags);
    let maker = async || maker_of(store, account, name, owner, uid).await;
    match owner {
        Owner::Claim => Ok(true),
        Owner::Other => Ok(reserved && maker().await? == Maker::TheAttempt),
        Owner::Unknown if account.is_of_2019() && matches!(user, Sight::Own) => Ok(true),
        Owner::Unknown if !account.unfinished => Err(DeleteError::retry(format!(
            "the bucket {name} has lost its tag {CLAIM_UID}, and may be somebody else's: set it to {uid} if it is to be deleted, or \
             to another text if it is to stay"
        ))),
        Owner::Unknown if !reserved => Ok(false),
        Owner::Unknown => match maker().await? {
            Maker::TheAttempt => Ok(true),
            Maker::SomebodyElse => Ok(false),
            Maker::Unknown => Err(DeleteError::retry(unsure(name, uid))),
        },
    }
}

async fn maker_of(
    store: &Store,
    account: &Account,
    name: &str,
    owner: Owner,
    claim_uid: &str,
) -> Result<Maker, Failure> {
    match store.kind() {
        StoreKind::SeaweedFs => seaweedfs::maker(store, name, owner, &account.name).await,
        _ => maker(store, name, claim_uid).await,
    }
}

/// Looks once more and makes the bucket, with nothing in between: what polls the attempt may do so rarely, and a task of its own does
/// not wait for that. It ends with the attempt. `None` where somebody has made the bucket since the first look.
async fn create_if_absent(
    store: &Store,
    account: &Account,
    request: &RequestOf<Aws>,
) -> Result<Option<Result<(), Failure>>, Failure> {
    let (store, name, parameters) = (store.clone(), request.name.clone(), request.parameters.clone());
    let (tags, user, mut task) = (account.tags(), account.name.clone(), JoinSet::new());
    task.spawn(async move {
        // Until the name was reserved it was anybody's.
        if !store.makes_a_bucket_once() && !matches!(bucket::find(&store, &name).await?, Live::Absent) {
            return Ok(None);
        }
        Ok(Some(bucket::create(&store, &name, &parameters, &tags, &user).await))
    });
    match task.join_next().await {
        Some(Ok(made)) => made,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The process ends.
        _ => std::future::pending().await,
    }
}

fn just_made(bucket: &str) -> ProvisionError {
    ProvisionError::retry(format!("the bucket {bucket} has just been made; the next attempt looks at its tags"))
}

fn not_for_this_claim(bucket: &str) -> String {
    format!("the bucket {bucket} exists and was not made for this claim: choose another bucketName")
}

fn unsure(bucket: &str, claim_uid: &str) -> String {
    format!(
        "the bucket {bucket} has no tag {CLAIM_UID}, and nothing proves that it was made for this claim: set the tag to {claim_uid} if \
         it was, or to another text if it was not; or delete the bucket"
    )
}

/// Sets the lifecycle that the claim or its class asks for, or takes it away. Whether there is one is the answer.
async fn apply_lifecycle(store: &Store, request: &RequestOf<Aws>) -> Result<bool, Failure> {
    let wanted = request.config.bucket_lifecycle.as_ref().or(request.parameters.lifecycle.as_ref());
    if wanted.is_none() && !request.state.contains_key(LIFECYCLE) {
        return Ok(false);
    }
    let none = Lifecycle::default();
    let put = store.s3.put_bucket_lifecycle(&request.name, wanted.unwrap_or(&none)).await;
    put.map_err(of_parameter(
        format!("set the lifecycle of the bucket {}", request.name),
        "s3:PutLifecycleConfiguration",
        "lifecycle",
    ))?;
    Ok(wanted.is_some())
}

/// What the claim's pods may do, and how they identify themselves.
struct Way {
    access: Access,
    service_account: Option<ServiceAccount>,
}

impl Way {
    fn of(request: &RequestOf<Aws>) -> Result<Self, ProvisionError> {
        let RequestOf::<Aws> { parameters, config, claim, .. } = request;
        let access = parameters.access_mode.restricted_to(config.access_mode)?;
        let class = (parameters.authentication, parameters.service_account.as_deref());
        let asked = (config.authentication, config.service_account.as_deref());
        Ok(Self { access, service_account: Authentication::service_account(class, asked, claim)? })
    }
}

/// Lets the claim's user in with a key, or its service account by a role.
async fn give_access(
    store: &Store,
    account: &Account,
    request: &RequestOf<Aws>,
    way: &Way,
) -> Result<Bucket, ProvisionError> {
    let document = policy::document(&store.region, &request.name, way.access, request.parameters.kms_key());
    let (made, role) = match &way.service_account {
        None => {
            account.grant_access(store, &document).await?;
            let key = account.key(store, request.access_key_id.as_deref(), request.credentials.clone()).await?;
            if account.has_role {
                account.remove_role(store).await?;
            }
            (Bucket::new(store.endpoint.clone(), key), None)
        }
        Some(service_account) => {
            let role = account.set_role(store, &request.parameters, service_account, &document).await?;
            account.remove_access(store).await?;
            let made = Bucket::without_key(store.endpoint.clone());
            (made.config("AWS_ROLE_ARN", &role).config("AWS_WEB_IDENTITY_TOKEN_FILE", TOKEN_FILE), Some(role))
        }
    };
    let made = account.state(role).into_iter().fold(made, |made, (key, value)| made.state(key, value));
    Ok(store.client_settings().into_iter().fold(made, |made, (key, value)| made.config(key, value)))
}

/// Makes the claim's user where there is none. `taken` is the problem with one that is not the claim's.
async fn own_user(
    account: &Account,
    store: &Store,
    parameters: &Parameters,
    user: Sight,
    has_bucket: bool,
    taken: impl FnOnce(&str) -> String,
) -> Result<(), ProvisionError> {
    let (user, is_new) = match user {
        Sight::Absent | Sight::Forbidden(_) => (account.make(store, parameters).await?, true),
        user => (user, false),
    };
    match user {
        Sight::Own => {}
        Sight::Forbidden(failure) => return Err(failure.into()),
        Sight::Other | Sight::Absent => return Err(ProvisionError::retry(taken(&account.name))),
    }
    let boundary = store.permissions_boundary(parameters).filter(|_| account.unfinished && !store.is_aws());
    match boundary {
        Some(boundary) if !account.is_within(store, boundary).await? => {
            let text = format!(
                "the IAM user {} does not have the permissionsBoundary {boundary}; if the store has no permissions boundaries, \
                 remove it from the StorageClass and from --permissions-boundary, or use another store",
                account.name
            );
            if !has_bucket {
                account.remove(store).await?;
            }
            // A user of an earlier attempt may have been made when the class asked for another one.
            Err(if is_new && !has_bucket { ProvisionError::invalid(text) } else { ProvisionError::retry(text) })
        }
        _ => Ok(()),
    }
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
    match account.look(store).await? {
        // IAM answers so for a user that does not exist, too.
        Sight::Forbidden(_) => return Err(ProvisionError::retry(text)),
        _ => account.remove(store).await?,
    }
    Err(ProvisionError::invalid(text))
}
