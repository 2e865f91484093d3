//! The bucket provisioner for AWS.

mod grants;
mod listing;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use kube_provisioner::bucket::{
    Assets, BackendConfigError, Bucket, BucketCapabilities, BucketHooks, BucketLookup, BucketProvisioner, Credentials,
    DeletionPolicy, GrantOf, Granted, GrantedAccount, ListAssets, Owner, ProvisionedBucket, Record, RequestFailure,
    RequestOf,
};
use kube_provisioner::{DeleteError, ProvisionError, Secrets, StartError};
use tokio::task::JoinSet;

use self::grants::service_account;
use crate::account::{Account, CLAIM_UID, IamLookup};
use crate::bucket::{self, Applied, LiveBucket};
use crate::dialect::Creator;
use crate::failure::Failure;
use crate::parameters::{Config, Parameters, SETTINGS};
use crate::store::{ADMIN, Defaults, Store, Stores};

/// Provisions buckets and users in AWS accounts.
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

    async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let store = self.store(&request.parameters, &request.secrets, &request.name).await;
        let store = store.map_err(ProvisionError::before_changes)?;
        let account = Account::of(&request.owner, &request.cluster_id, (&request.name, true), &request.state);
        let account = account.for_dialect(store.dialect(), &request.cluster_id);
        let account = account.with_tags(request.parameters.asked_tags(&request.config));
        match create_or_update_bucket(&store, &account, &request).await {
            Ok(bucket) => Ok(bucket),
            Err(objection) => {
                let undone =
                    async { Ok::<_, Failure>(request.state.is_empty() && remove_user(&store, &account).await?) };
                Err(objection.into_error(undone).await)
            }
        }
    }

    async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        self.grant_access(request).await
    }

    async fn delete_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let record = bucket.record()?;
        let (store, account) = self.recorded(&record, (&bucket.name, true)).await?;
        let name = &bucket.name;
        let user = account.look_up_with_retry(&store, record.parameters).await?;
        // Every attempt creates the user before the bucket.
        let begun = !bucket.state.is_empty() || matches!(user, IamLookup::Own(()) | IamLookup::Forbidden(_));
        match bucket::find_with_retry(&store, name, &account, &user).await? {
            LiveBucket::Absent => {}
            LiveBucket::Forbidden(failure) | LiveBucket::OtherRegion(failure) if begun => return Err(failure.into()),
            LiveBucket::Forbidden(_) | LiveBucket::OtherRegion(_) => {
                tracing::info!(bucket = name, "kept a bucket that does not belong to the claim");
            }
            LiveBucket::Tagged(tags) => match determine_ownership(&store, &account, name, &tags, &user).await? {
                BucketOwnership::Other if !account.may_have_lost_a_tag(&tags, &user) => {
                    tracing::info!(bucket = name, "kept a bucket that does not belong to the claim");
                }
                BucketOwnership::LostTag | BucketOwnership::Other => {
                    let uid = &bucket.owner.claim.uid;
                    return Err(DeleteError::retry(format!(
                        "the bucket {name} has lost its tag {CLAIM_UID}, and may not belong to this claim: set the tag to {uid} to \
                         delete the bucket, or to another text to keep it"
                    )));
                }
                BucketOwnership::Unknown => {
                    return Err(DeleteError::retry(unknown_owner_message(name, &bucket.owner.claim.uid)));
                }
                BucketOwnership::Claim => {
                    if record.parameters.deletion_policy == DeletionPolicy::DeleteIfEmpty {
                        // Revoke access only after the deletion, so that a bucket with objects stays usable.
                        if !bucket::is_empty(&store, name).await? {
                            return Err(DeletionPolicy::not_empty(name));
                        }
                        bucket::delete_empty(&store, &bucket).await?;
                    } else {
                        // Clients that continue to write could prevent the deletion indefinitely.
                        account.remove_credentials(&store, &user).await?;
                        bucket::remove_policy(&store, &bucket).await?;
                        bucket::delete(&store, name).await?;
                    }
                    store.recent.removed(name);
                }
            },
        }
        Ok(account.remove(&store).await?)
    }

    async fn revoke(&self, known: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.of_account(&known).await?;
        account.look_up_with_retry(&store, known.record()?.parameters).await?;
        Ok(account.remove(&store).await?)
    }

    fn capabilities() -> BucketCapabilities {
        let capabilities = BucketCapabilities::default().rotation().multiple_buckets().assets();
        let capabilities = capabilities.bucket_settings(SETTINGS);
        ADMIN.into_iter().fold(capabilities, BucketCapabilities::optional_secret)
    }
}

impl BucketHooks for Aws {
    async fn find_bucket(&self, wanted: BucketLookup<Parameters>) -> Result<Option<Bucket>, ProvisionError> {
        let store = self.store(&wanted.parameters, &wanted.secrets, &wanted.name).await?;
        match bucket::find(&store, &wanted.name).await? {
            LiveBucket::Absent => Ok(None),
            LiveBucket::Tagged(_) => Ok(Some(Bucket::new(store.endpoint))),
            LiveBucket::Forbidden(failure) | LiveBucket::OtherRegion(failure) => Err(failure.into()),
        }
    }

    async fn rotate(&self, known: GrantedAccount<Parameters>) -> Result<Credentials, ProvisionError> {
        let (store, account) = self.of_account(&known).await?;
        if !account.has_own_user(&store).await? {
            let text = format!(
                "the IAM user {} no longer exists, or belongs to another claim: if that claim has the bucket now, delete \
                 this one",
                account.name
            );
            return Err(ProvisionError::retry(text));
        }
        account.remove_keys_except(&store, known.access_key_id.as_deref()).await?;
        Ok(account.new_key(&store).await?)
    }

    async fn revoke_old_keys(&self, known: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.of_account(&known).await?;
        if known.access_key_id.is_some() && account.has_own_user(&store).await? {
            account.remove_keys_except(&store, known.access_key_id.as_deref()).await?;
        }
        Ok(())
    }

    async fn list_keys(
        &self,
        known: GrantedAccount<Parameters>,
    ) -> Result<Option<Vec<String>>, Box<dyn Error + Send + Sync>> {
        let (store, account) = self.of_account(&known).await?;
        if !account.has_own_user(&store).await? {
            return Ok(Some(Vec::new()));
        }
        Ok(Some(account.key_ids(&store, known.access_key_id).await?))
    }

    async fn list_assets(&self, list: ListAssets<Parameters>) -> Result<Assets, Box<dyn Error + Send + Sync>> {
        listing::list(&self.stores.of(&list.parameters, &list.secrets).await?, &list.cluster_id).await
    }

    async fn probe(&self) -> Result<(), StartError> {
        Ok(self.stores.probe().await?)
    }

    async fn probe_class(&self, parameters: Arc<Parameters>) -> Result<(), StartError> {
        for endpoint in self.stores.endpoints(&parameters).await? {
            endpoint.connect().await?;
        }
        Ok(())
    }
}

impl Aws {
    async fn store(&self, parameters: &Parameters, secrets: &Secrets, bucket: &str) -> Result<Store, ProvisionError> {
        let store = self.stores.of(parameters, secrets).await?;
        store.learn_dialect(bucket).await?;
        Ok(store)
    }

    /// Returns the store and the account of a record. `bucket` contains the bucket's name, and whether the bucket was
    /// created for the account.
    async fn recorded(
        &self,
        record: &Record<'_, Parameters>,
        bucket: (&str, bool),
    ) -> Result<(Store, Account), BackendConfigError> {
        let Record { account, parameters, state, secrets, cluster_id, .. } = record;
        if account.claim.uid.is_empty() && state.is_empty() {
            return Err(BackendConfigError::new("the ObjectBucket names neither its claim's uid nor UserName"));
        }
        let store = self.stores.of(parameters, secrets).await?;
        let account = Account::of(account, cluster_id, bucket, state);
        if account.unfinished {
            store.learn_dialect(bucket.0).await.map_err(BackendConfigError::new)?;
        }
        let account = account.for_dialect(store.dialect(), cluster_id);
        Ok((store, account))
    }

    async fn of_account(&self, known: &GrantedAccount<Parameters>) -> Result<(Store, Account), BackendConfigError> {
        // The list is empty if the user's only bucket no longer exists.
        let own = known.buckets.iter().find(|bucket| bucket.belongs_to(&known.account));
        let bucket = own.or(known.buckets.first());
        let bucket = bucket.map_or(("", false), |bucket| (&*bucket.name, bucket.belongs_to(&known.account)));
        self.recorded(&known.record()?, bucket).await
    }
}

/// Creates or updates the bucket of a claim.
async fn create_or_update_bucket(
    store: &Store,
    account: &Account,
    request: &RequestOf<Aws>,
) -> Result<Bucket, RequestFailure> {
    let (name, parameters) = (&request.name, &request.parameters);
    // Before the first change, reject access that cannot be granted.
    parameters.access_mode.restricted_to(request.config.access_mode)?;
    let service_account = service_account(parameters, &request.config, &request.owner.claim)?;
    let user = account.look_up(store).await.map_err(ProvisionError::before_changes)?;
    let live = match bucket::find(store, name).await.map_err(ProvisionError::before_changes)? {
        LiveBucket::Absent => None,
        LiveBucket::Tagged(tags) => Some(tags),
        // A bucket cannot move to another region.
        LiveBucket::OtherRegion(failure) => return Err(ProvisionError::already_exists(failure).into()),
        // The bucket's owner is unknown, and in some regions S3 reports success for a bucket that already exists.
        LiveBucket::Forbidden(failure) => {
            let failure = if let IamLookup::Forbidden(of_user) = user { of_user } else { failure };
            let text = format!("{failure}, or choose another bucketName: this one may be taken");
            return Err(ProvisionError::no_change(text).into());
        }
    };
    if let Some(tags) = &live {
        let uid = &request.owner.claim.uid;
        match determine_ownership(store, account, name, tags, &user).await? {
            BucketOwnership::Claim => {}
            BucketOwnership::Other => return Err(RequestFailure::Refused(foreign_bucket_message(name))),
            BucketOwnership::LostTag => {
                let text = format!("the bucket {name} has lost its tag {CLAIM_UID}: set it to {uid}");
                return Err(RequestFailure::Refused(text));
            }
            BucketOwnership::Unknown => return Err(ProvisionError::retry(unknown_owner_message(name, uid)).into()),
        }
    }
    if let Err(objection) = store.dialect().check(parameters.block_public_access, service_account.is_some()) {
        return Err(match objection {
            // An earlier attempt has created the bucket, and its user may be the only proof of that.
            RequestFailure::Refused(text) if live.is_some() => ProvisionError::retry(text).into(),
            objection => objection,
        });
    }
    // If IAM denied the lookup, the creation shows whether the user exists.
    ensure_user(account, store, parameters, user, live.is_some(), |user| reserved(user, name)).await?;
    let tags = match live {
        Some(tags) => tags,
        None => create(store, account, request).await?,
    };
    let Applied { warning, state } = bucket::apply(store, request, &account.tags(), &tags, account.unfinished).await?;
    let mut made = Bucket::new(store.endpoint.clone());
    made.warning = warning;
    Ok(account.state(None).into_iter().chain(state).fold(made, |made, (key, value)| made.state(key, value)))
}

/// Creates the bucket, whose name is reserved for the claim, and returns its tags.
async fn create(
    store: &Store,
    account: &Account,
    request: &RequestOf<Aws>,
) -> Result<BTreeMap<String, String>, ProvisionError> {
    let (name, dialect) = (&request.name, store.dialect());
    let Some(made) = create_if_absent(store, account, request).await? else { return Err(just_created_error(name)) };
    match made {
        Ok(()) => store.recent.created(name),
        Err(failure) => {
            // An existing bucket may come from an attempt whose answer was lost. After any other refusal, the bucket
            // does not exist, and a bucket that appears under this name later has another owner.
            let ends = account.unfinished && failure.is_final() && !dialect.may_exist(failure.code());
            let ended = ends && account.remove(store).await.is_ok();
            return Err(match failure.code() {
                "BucketAlreadyExists" if ended => {
                    ProvisionError::invalid(format!("the bucket name {name} is taken: choose another bucketName"))
                }
                // AWS reserves some prefixes and suffixes.
                "InvalidBucketName" if ended => {
                    ProvisionError::invalid(format!("{failure}; choose another bucketName or generateBucketName"))
                }
                code if dialect.is_own(code) => just_created_error(name),
                _ => failure.into(),
            });
        }
    }
    let tags = match bucket::find(store, name).await? {
        LiveBucket::Tagged(tags) => tags,
        LiveBucket::Forbidden(failure) | LiveBucket::OtherRegion(failure) => return Err(failure.into()),
        LiveBucket::Absent => return Err(Failure::NotShownYet(format!("bucket {name}")).into()),
    };
    match account.owner_of(&tags) {
        Owner::Claim => Ok(tags),
        Owner::Unknown if store.success_proves_creation() => Ok(tags),
        // The store ignores the tags, or reports the tags of a deleted bucket with the same name. A bucket that was
        // just created is empty.
        _ if !dialect.supports_all_properties() && bucket::is_empty(store, name).await? => Ok(BTreeMap::new()),
        Owner::Unknown => Err(Failure::NotShownYet(format!("tags of the bucket {name}")).into()),
        Owner::Other => Err(ProvisionError::retry(foreign_bucket_message(name))),
    }
}

/// The owner of an existing bucket.
enum BucketOwnership {
    Claim,
    Other,
    /// The bucket belonged to the claim when the last attempt succeeded.
    LostTag,
    /// The store provides no proof.
    Unknown,
}

async fn determine_ownership(
    store: &Store,
    account: &Account,
    bucket: &str,
    tags: &BTreeMap<String, String>,
    user: &IamLookup,
) -> Result<BucketOwnership, Failure> {
    let owner = account.owner_of(tags);
    let has_user = matches!(user, IamLookup::Own(()));
    Ok(match owner {
        Owner::Claim => BucketOwnership::Claim,
        Owner::Unknown if account.is_of_2019() && has_user => BucketOwnership::Claim,
        Owner::Unknown if !account.unfinished => BucketOwnership::LostTag,
        // The bucket name is not reserved for the claim.
        _ if !(account.unfinished && has_user) => BucketOwnership::Other,
        _ => match store.dialect().creator(store, bucket, owner, account).await? {
            Creator::ThisAttempt => BucketOwnership::Claim,
            Creator::Unknown if owner == Owner::Unknown => BucketOwnership::Unknown,
            Creator::Unknown | Creator::Other => BucketOwnership::Other,
        },
    })
}

/// Checks again that the bucket does not exist, and creates it without delay. This runs in its own task, since the
/// caller may poll the attempt rarely. Dropping the attempt aborts the task. Returns `None` if another client has
/// created the bucket since the first check.
async fn create_if_absent(
    store: &Store,
    account: &Account,
    request: &RequestOf<Aws>,
) -> Result<Option<Result<(), Failure>>, Failure> {
    let (store, name, lock) = (store.clone(), request.name.clone(), request.parameters.lock(&request.config));
    let (tags, user, mut task) = (account.tags_at_creation(), account.name.clone(), JoinSet::new());
    task.spawn(async move {
        // Another client may have created the bucket before the name was reserved.
        if !store.success_proves_creation() && !matches!(bucket::find(&store, &name).await?, LiveBucket::Absent) {
            return Ok(None);
        }
        Ok(Some(bucket::create(&store, &name, lock.is_some(), &tags, &user).await))
    });
    match task.join_next().await {
        Some(Ok(made)) => made,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The process is exiting.
        _ => std::future::pending().await,
    }
}

fn just_created_error(bucket: &str) -> ProvisionError {
    ProvisionError::retry(format!("the bucket {bucket} has just been created; the next attempt checks its tags"))
}

fn foreign_bucket_message(bucket: &str) -> String {
    format!("the bucket {bucket} exists and was not created for this claim: choose another bucketName")
}

fn unknown_owner_message(bucket: &str, claim_uid: &str) -> String {
    format!(
        "the bucket {bucket} has no tag {CLAIM_UID}, so its owner is unknown: set the tag to {claim_uid} if the bucket was created \
         for this claim, or to another text if it was not; or delete the bucket"
    )
}

/// Creates the claim's user if it does not exist. `taken` returns the error text for a user that does not belong to the
/// claim.
async fn ensure_user(
    account: &Account,
    store: &Store,
    parameters: &Parameters,
    user: IamLookup,
    has_bucket: bool,
    taken: impl FnOnce(&str) -> String,
) -> Result<(), ProvisionError> {
    let (user, is_new) = match user {
        IamLookup::Absent | IamLookup::Forbidden(_) => (account.create_user(store, parameters).await?, true),
        user => (user, false),
    };
    match user {
        IamLookup::Own(()) => {}
        IamLookup::Forbidden(failure) => return Err(failure.into()),
        IamLookup::Other | IamLookup::Absent => return Err(ProvisionError::retry(taken(&account.name))),
    }
    let boundary = store
        .permissions_boundary(parameters)
        .filter(|_| account.unfinished && !store.dialect().supports_all_properties());
    match boundary {
        Some(boundary) if !account.has_permissions_boundary(store, boundary).await? => {
            let text = format!(
                "the IAM user {} does not have the permissionsBoundary {boundary}; if the store does not support permissions \
                 boundaries, remove it from the StorageClass and from --permissions-boundary, or use another store",
                account.name
            );
            if !has_bucket {
                account.remove(store).await?;
            }
            // An earlier attempt may have created the user while the class had another boundary.
            Err(if is_new && !has_bucket { ProvisionError::invalid(text) } else { ProvisionError::retry(text) })
        }
        _ => Ok(()),
    }
}

fn reserved(user: &str, bucket: &str) -> String {
    format!("the IAM user {user} reserves the bucket name {bucket} for another claim: choose another bucketName")
}

/// Removes the user of an attempt. Returns true if the user certainly no longer exists.
async fn remove_user(store: &Store, account: &Account) -> Result<bool, Failure> {
    match account.look_up(store).await? {
        // IAM also gives this answer for a user that does not exist.
        IamLookup::Forbidden(_) => Ok(false),
        _ => account.remove(store).await.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use clap::Parser as _;

    use super::*;
    use crate::store::tests::server;

    const OWN_USER: &str = "<GetUserResponse><GetUserResult><User><Path>/</Path><UserName>photos</UserName>\
        <UserId>A</UserId><Arn>arn</Arn><CreateDate>2026-01-02T03:04:05Z</CreateDate><Tags><member>\
        <Key>kube-provisioner/claim-uid</Key><Value>00000000-0000-4000-8000-000000000001</Value>\
        </member></Tags></User></GetUserResult></GetUserResponse>";

    const ABSENT: (u16, &str) = (404, "<ErrorResponse><Error><Code>NoSuchEntity</Code></Error></ErrorResponse>");

    fn aws(more: &[&str]) -> Aws {
        let given = ["aws-s3-provisioner", "--provisioner-name", "aws", "--region", "us-east-1"];
        Aws::new(crate::Args::parse_from([&given, more].concat()).defaults)
    }

    /// Returns the Secret of the class, and the state after a success.
    fn recorded() -> (Secrets, BTreeMap<String, String>) {
        let key = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "hidden")];
        (Secrets::new([("admin", key)]), [("UserName".to_owned(), "photos".to_owned())].into())
    }

    /// After the claim's user was deleted manually, a claim in another namespace received the bucket's name.
    #[tokio::test]
    async fn leaves_the_keys_of_another_claims_user() {
        let iam = server(|request| {
            assert!(request.contains("Action=GetUser"), "{request}");
            (200, OWN_USER)
        });
        let mut known = GrantedAccount::new("photos", Parameters::default());
        (known.secrets, known.state) = recorded();
        known.account.claim.uid = "00000000-0000-4000-8000-000000000002".to_owned();
        known.access_key_id = Some("AKID".to_owned());
        let aws = aws(&["--iam-endpoint", iam.as_str()]);
        assert_eq!(aws.list_keys(known.clone()).await.unwrap(), Some(Vec::new()));
        aws.revoke_old_keys(known.clone()).await.unwrap();
        let error = aws.rotate(known).await.unwrap_err().to_string();
        assert!(error.contains("belongs to another claim"), "{error}");
    }

    /// The process ended after it created the role, and before it recorded the role.
    #[tokio::test]
    async fn looks_twice_for_a_role_that_a_failed_attempt_may_have_created() {
        let provider = ["--oidc-provider-arn", "arn:aws:iam::1:oidc-provider/x"];
        for (provider, expected) in [(&[][..], 2), (&provider, 3)] {
            let looks = Arc::new(AtomicUsize::new(0));
            let counted = looks.clone();
            let iam = server(move |request| {
                if !request.contains("Action=GetUser") {
                    return ABSENT;
                }
                counted.fetch_add(1, Ordering::Relaxed);
                (200, OWN_USER)
            });
            let mut known = GrantedAccount::new("photos", Parameters::default());
            (known.secrets, known.state) = recorded();
            aws(&[&["--iam-endpoint", iam.as_str()], provider].concat()).revoke(known).await.unwrap();
            assert_eq!(looks.load(Ordering::Relaxed), expected);
        }
    }

    /// The answer to the creation of the user was lost, and IAM does not show the user yet.
    #[tokio::test]
    async fn waits_for_an_existing_user_that_iam_does_not_show() {
        let store = server(|request| match request.contains("Action=CreateUser") {
            true => (409, "<ErrorResponse><Error><Code>EntityAlreadyExists</Code></Error></ErrorResponse>"),
            false if request.starts_with("GET ") => (404, "<Error><Code>NoSuchBucket</Code></Error>"),
            false => ABSENT,
        });
        let mut request = RequestOf::<Aws>::new("photos", Parameters::default(), Config::default());
        (request.secrets, _) = recorded();
        let aws = aws(&["--endpoint", store.as_str(), "--iam-endpoint", store.as_str()]);
        let error = aws.create_bucket(request).await.unwrap_err().to_string();
        assert!(error.contains("does not show the newly created IAM user obc.photos yet"), "{error}");
    }

    /// Deleting the user after a throttled request would force each attempt to create it again.
    #[tokio::test]
    async fn keeps_the_user_while_bucket_requests_are_throttled() {
        let deletions = Arc::new(AtomicUsize::new(0));
        let counted = deletions.clone();
        let store = server(move |request| {
            if request.contains("Action=DeleteUser") {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            match () {
                () if request.starts_with("PUT /photos") => (503, "<Error><Code>SlowDown</Code></Error>"),
                () if request.contains("Action=GetUser") || request.contains("Action=CreateUser") => (200, OWN_USER),
                () if request.starts_with("GET ") || request.starts_with("HEAD ") => {
                    (404, "<Error><Code>NoSuchBucket</Code></Error>")
                }
                () => ABSENT,
            }
        });
        let mut request = RequestOf::<Aws>::new("photos", Parameters::default(), Config::default());
        (request.secrets, _) = recorded();
        let aws = aws(&["--endpoint", store.as_str(), "--iam-endpoint", store.as_str()]);
        let error = aws.create_bucket(request).await.unwrap_err().to_string();
        assert!(error.contains("SlowDown"), "{error}");
        assert_eq!(deletions.load(Ordering::Relaxed), 0);
    }

    /// AWS does not show the bucket yet, or its tags.
    #[tokio::test]
    async fn waits_for_a_new_bucket_before_granting_access() {
        for (answer, what) in [
            ((404, "<Error><Code>NoSuchBucket</Code></Error>"), "the newly created bucket photos yet"),
            ((404, "<Error><Code>NoSuchTagSet</Code></Error>"), "the newly created tags of the bucket photos yet"),
        ] {
            let (store, class) = (server(move |_| answer), [("store".to_owned(), "aws".to_owned())].into());
            let class: Parameters = kube_provisioner::parameters::from_map(&class).unwrap();
            let mut request = GrantOf::<Aws>::new("photos", class, Config::default());
            (request.secrets, _) = recorded();
            let aws = aws(&["--endpoint", store.as_str(), "--iam-endpoint", store.as_str()]);
            let error = aws.grant(request.clone()).await.unwrap_err().to_string();
            assert!(!error.contains(what), "{error}");
            aws.stores.of(&request.parameters, &request.secrets).await.unwrap().recent.created("photos");
            let error = aws.grant(request).await.unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    /// A client has written an object after the bucket was listed.
    #[tokio::test]
    async fn keeps_keys_and_policy_if_the_bucket_is_not_empty() {
        const TAGS: &str = "<Tagging><TagSet><Tag><Key>kube-provisioner/claim-uid</Key>\
            <Value>00000000-0000-4000-8000-000000000001</Value></Tag></TagSet></Tagging>";
        let store = server(|request| match request.split("\r\n").next().unwrap_or_default() {
            line if line.starts_with("GET /photos/?tagging") => (200, TAGS),
            line if line.starts_with("GET /photos/?versions") => (200, "<ListVersionsResult/>"),
            line if line.starts_with("DELETE /photos/ ") => (409, "<Error><Code>BucketNotEmpty</Code></Error>"),
            _ if request.contains("Action=GetUser") => (200, OWN_USER),
            _ if request.contains("Action=GetRole") => ABSENT,
            line => panic!("{line}"),
        });
        let class = [("deletionPolicy".to_owned(), "DeleteIfEmpty".to_owned())].into();
        let mut known = ProvisionedBucket::new("photos", kube_provisioner::parameters::from_map(&class).unwrap());
        (known.secrets, known.state) = recorded();
        known.config_texts.insert("bucketPolicy".to_owned(), "{}".to_owned());
        let aws = aws(&["--endpoint", store.as_str(), "--iam-endpoint", store.as_str()]);
        let error = aws.delete_bucket(known).await.unwrap_err().to_string();
        assert!(error.contains("the bucket photos contains objects"), "{error}");
    }
}
