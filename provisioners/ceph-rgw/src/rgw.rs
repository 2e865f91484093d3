//! The bucket provisioner for Ceph RGW.

mod account;
mod bucket;
mod deletion;
mod listing;
mod ownership;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use kube_provisioner::bucket::{
    self as api, Access, Assets, BackendConfigError, Bucket, BucketAccess, BucketCapabilities, BucketHooks,
    BucketLookup, BucketProvisioner, Credentials, GrantOf, Granted, GrantedAccount, ListAssets, ProvisionedBucket,
    Record, RequestFailure, RequestOf,
};
use kube_provisioner::{DeleteError, ProvisionError, StartError};
use s3_client::policy::Policy;

use self::account::{Account, AccountError, key_command};
use self::ownership::{BucketOwnership, Evidence};
use crate::admin::{BucketInfo, User};
use crate::grants::{change_policy, with_grant, with_owner_grant};
use crate::parameters::{Config, Parameters, SETTINGS};
use crate::quota::Quota;
use crate::store::{ADMIN, Defaults, Store, Stores};

/// Keys in an ObjectBucket's state that Rook also uses.
const CEPH_USER: &str = "cephUser";
const BUCKET_OWNER: &str = "bucketOwner";
/// An additional key, which identifies the bucket if the claim names the owner.
const BUCKET_MARKER: &str = "bucketMarker";

/// Values of `max-buckets` of users: for the gateway, 0 means no limit, and a negative number means that the user may
/// not own buckets.
const ONE_BUCKET: i64 = 1;
const NO_BUCKETS: i64 = -1;

const OWNERS_DO_EVERYTHING: &str =
    "accessMode is for buckets that a class names or that another claim owns: the owner of a bucket can do everything";

/// Creates and deletes buckets and users on gateways.
pub(crate) struct Rgw {
    stores: Stores,
}

impl Rgw {
    pub(crate) fn new(defaults: Defaults) -> Self {
        Self { stores: Stores::new(defaults) }
    }
}

impl BucketProvisioner for Rgw {
    type Parameters = Parameters;
    type Config = Config;

    async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets);
        let store = store.map_err(ProvisionError::before_changes)?;
        let bucket_owner = request.config.bucket_owner.as_deref();
        let users = Users::of(&request.owner, &request.state, bucket_owner, &request.cluster_id)?;
        let access = request.parameters.access_mode.restricted_to(request.config.access_mode)?;
        let live = store.admin.bucket(&request.name).await.map_err(ProvisionError::before_changes)?;
        if access != Access::ReadWrite {
            return refuse(&store, &users, &request, live.as_ref(), OWNERS_DO_EVERYTHING.to_owned()).await;
        }
        let owner = &users.owner;
        let ownership = match &live {
            Some(live) => Some(users.ownership(&store, &request.state, live).await?),
            None => None,
        };
        if let Some(text) = ownership.and_then(|ownership| refusal_reason(ownership, &users, &request)) {
            if let Some(live) = &live {
                tracing::info!(bucket = request.name, owner = live.owner, "refused a bucket that is not the claim's");
            }
            return refuse(&store, &users, &request, live.as_ref(), text).await;
        }
        let user = owner.ensure(&store, ONE_BUCKET).await?;
        let key = owner.key(&store, &user, None).await?;
        let is_new = live.is_none();
        let transferred_marker = match (live, ownership) {
            (Some(live), Some(BucketOwnership::Claim)) => (!owner.generated).then_some(live.marker),
            _ => match bucket::create_and_transfer(&store, &users, &user, &request, is_new).await {
                Ok(transferred_marker) => transferred_marker,
                Err(RequestFailure::Refused(text)) => return refuse(&store, &users, &request, None, text).await,
                Err(RequestFailure::Failed(error)) => return Err(error),
            },
        };
        if owner.generated && user.max_buckets != ONE_BUCKET {
            store.admin.set_max_buckets(&owner.id, ONE_BUCKET).await?;
        }
        let limits = [("maxObjects", request.config.max_objects), ("maxSize", request.config.max_size)];
        let wanted = Quota::of(limits, &request.applied_config, user.user_quota);
        if owner.generated && !wanted.is_met_by(user.user_quota) {
            store.admin.set_user_quota(&owner.id, wanted).await?;
        }
        let lock = self.stores.lock(store.lock_key(&request.name));
        let _locked = lock.lock().await;
        bucket::apply(&store, &request, &owner.id, key, transferred_marker.as_deref(), is_new).await?;
        let bucket = Bucket::new(store.endpoint).state(CEPH_USER, &owner.id);
        Ok(match transferred_marker {
            Some(marker) => bucket.state(BUCKET_OWNER, &owner.id).state(BUCKET_MARKER, marker),
            None => bucket,
        })
    }

    async fn delete_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        self.remove_bucket(bucket).await
    }

    async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets);
        let store = store.map_err(ProvisionError::before_changes)?;
        let bucket_owner = request.config.bucket_owner.as_deref();
        let users = Users::of(&request.account, &request.state, bucket_owner, &request.cluster_id)?;
        match self.grant_access(&store, &users, &request).await {
            Ok(granted) => Ok(granted),
            // An earlier attempt may have changed the bucket's policy, which `revoke` restores.
            Err(objection) => {
                let undone = async {
                    match &users.own {
                        Some(own) => Ok::<_, AccountError>(own.user(&store).await?.is_none()),
                        None => Ok(false),
                    }
                };
                Err(objection.into_error(undone).await)
            }
        }
    }

    async fn revoke(&self, account: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        self.remove_user(account).await
    }

    fn capabilities() -> BucketCapabilities {
        let capabilities = BucketCapabilities::default().rotation().multiple_buckets().assets();
        capabilities.bucket_settings(SETTINGS).optional_secret(ADMIN)
    }
}

impl BucketHooks for Rgw {
    async fn find_bucket(&self, wanted: BucketLookup<Parameters>) -> Result<Option<Bucket>, ProvisionError> {
        let store = self.stores.of(&wanted.parameters, &wanted.secrets)?;
        let live = store.admin.bucket(&wanted.name).await?;
        Ok(live.map(|_| Bucket::new(store.endpoint)))
    }

    async fn rotate(&self, known: GrantedAccount<Parameters>) -> Result<Credentials, ProvisionError> {
        let (store, users) = self.of_account(&known)?;
        let account = users.owner;
        if !account.generated {
            let text =
                format!("the keys of {} are not rotated: it is the bucketOwner, not created for the claim", account.id);
            return Err(ProvisionError::invalid(text));
        }
        let before = account.remove_other_keys(&store, known.access_key_id.as_deref()).await?;
        let keys = store.admin.create_key(&account.id).await?;
        let new = keys.iter().find(|key| !before.contains(&key.access_key));
        let new = new.ok_or_else(|| ProvisionError::retry("the gateway returned no new key"))?.credentials();
        Ok(Credentials::new(new.access_key_id, new.secret_access_key))
    }

    async fn revoke_old_keys(&self, known: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let (store, users) = self.of_account(&known)?;
        let account = users.owner;
        if account.generated {
            account.remove_other_keys(&store, known.access_key_id.as_deref()).await?;
        }
        Ok(())
    }

    async fn list_keys(
        &self,
        known: GrantedAccount<Parameters>,
    ) -> Result<Option<Vec<String>>, Box<dyn Error + Send + Sync>> {
        let (store, users) = self.of_account(&known)?;
        let user = users.owner.user(&store).await?;
        let keys = user.into_iter().flat_map(|user| user.keys);
        let keys = keys.filter(|key| key.active && !key.is_temporary());
        Ok(Some(keys.map(|key| key.access_key).collect()))
    }

    async fn list_assets(&self, list: ListAssets<Parameters>) -> Result<Assets, Box<dyn Error + Send + Sync>> {
        listing::list(&self.stores.of(&list.parameters, &list.secrets)?, &list.cluster_id).await
    }

    async fn probe(&self) -> Result<(), StartError> {
        if let Some(store) = self.stores.default()? {
            store.admin.user("kube-provisioner-probe").await?;
        }
        Ok(())
    }

    async fn probe_class(&self, parameters: Arc<Parameters>) -> Result<(), StartError> {
        self.stores.endpoint(&parameters)?.connect().await
    }
}

/// A statement to add to the policy of a bucket that another user owns.
struct Statement<'a> {
    bucket: &'a BucketAccess,
    owner: String,
    owner_key: s3_client::Credentials,
    access: Access,
}

impl Rgw {
    async fn grant_access(
        &self,
        store: &Store,
        users: &Users,
        request: &GrantOf<Self>,
    ) -> Result<Granted, RequestFailure> {
        let mut statements = Vec::new();
        for bucket in &request.buckets {
            statements.extend(self.statement(store, users, request, bucket).await?);
        }
        let (account, owns_none) = (&users.owner, statements.len() == request.buckets.len());
        let user = account.ensure(store, NO_BUCKETS).await?;
        let key = account.key(store, &user, request.access_key_id.as_deref()).await?;
        if account.generated && owns_none && user.max_buckets >= 0 {
            store.admin.set_max_buckets(&account.id, NO_BUCKETS).await?;
        }
        for Statement { bucket, owner, owner_key, access } in statements {
            let name = &bucket.name;
            let lock = self.stores.lock(store.lock_key(name));
            let _locked = lock.lock().await;
            let wanted = |policy: &Policy| {
                let policy = with_grant(policy, &account.id, name, access);
                if bucket.owner.is_some() { with_owner_grant(&policy, &owner, name) } else { policy }
            };
            change_policy(store, owner_key, name, wanted).await?;
        }
        let answer = answer(store, &request.parameters, account, &key);
        let is_limited = request.config.max_objects.or(request.config.max_size).is_some();
        let has_bucket = request.buckets.iter().any(|bucket| bucket.belongs_to(&request.account));
        if is_limited && !has_bucket {
            let text = "maxObjects and maxSize have no effect on a bucket that was not created for this claim";
            return Ok(answer.warning(text));
        }
        Ok(answer)
    }

    /// Returns the gateway and the users of a recorded bucket or account.
    fn recorded(&self, record: &Record<'_, Parameters>) -> Result<(Store, Users), BackendConfigError> {
        let Record { account, parameters, state, config_texts, secrets, cluster_id, .. } = record;
        let store = self.stores.of(parameters, secrets)?;
        // There is no state before the first success.
        let bucket_owner = state.get(BUCKET_OWNER);
        let bucket_owner = bucket_owner.or_else(|| config_texts.get(BUCKET_OWNER).filter(|_| state.is_empty()));
        let owner = Account::of(account, state, bucket_owner.map(String::as_str), cluster_id)?;
        Ok((store, Users { owner, own: Account::own(account, cluster_id) }))
    }

    fn of_account(&self, known: &GrantedAccount<Parameters>) -> Result<(Store, Users), BackendConfigError> {
        self.recorded(&known.record()?)
    }

    /// Returns the statement that grants the account access to a bucket, or `None` if the account owns the bucket.
    async fn statement<'a>(
        &self,
        store: &Store,
        users: &Users,
        request: &GrantOf<Self>,
        bucket: &'a BucketAccess,
    ) -> Result<Option<Statement<'a>>, RequestFailure> {
        let (account, name, config) = (&users.owner, &bucket.name, &request.config);
        let access = bucket.allowed(request.parameters.access_mode, config.access_mode)?;
        let is_own = bucket.belongs_to(&request.account);
        if is_own && access != Access::ReadWrite {
            return Err(RequestFailure::Refused(OWNERS_DO_EVERYTHING.to_owned()));
        }
        request.check_settings(bucket, &SETTINGS)?;
        let Some(info) = store.admin.bucket(name).await? else { return Err(bucket.missing().into()) };
        if let Some(owner) = &bucket.owner
            && !belongs_to_owner(bucket, owner, &info, (store, &request.cluster_id)).await?
        {
            return Err(RequestFailure::Refused(bucket.wrong_owner_message()));
        }
        if info.owner == account.id {
            // With bucketOwner, the claim receives the owner's own key.
            return Ok(None);
        }
        let Some(owner) = store.admin.user(&info.owner).await? else {
            return Err(ProvisionError::retry(owner_not_a_user_message(name, &info.owner)).into());
        };
        let Some(owner_key) = owner.key(None) else {
            return Err(ProvisionError::retry(missing_key_message(name, &info.owner)).into());
        };
        if !account.generated {
            let text = format!("the bucket {name} does not belong to the bucketOwner {}", account.id);
            return Err(RequestFailure::Refused(text));
        }
        Ok(Some(Statement { bucket, owner: info.owner, owner_key, access }))
    }
}

/// The users of a claim.
struct Users {
    /// The user who owns the claim's bucket, or has access to it.
    owner: Account,
    /// The user who is created for the claim. Same as `owner` if the claim does not name an owner.
    own: Option<Account>,
}

impl Users {
    fn of(
        account: &api::Account,
        state: &BTreeMap<String, String>,
        bucket_owner: Option<&str>,
        cluster: &str,
    ) -> Result<Self, BackendConfigError> {
        if bucket_owner.is_some_and(|owner| owner.contains('$')) {
            return Err(BackendConfigError::new(
                "the bucketOwner cannot be a user of a tenant: name one without a tenant",
            ));
        }
        let owner = Account::of(account, state, bucket_owner, cluster)?;
        Ok(Self { owner, own: Account::own(account, cluster) })
    }

    /// Determines the owner of the live bucket.
    async fn ownership(
        &self,
        store: &Store,
        state: &BTreeMap<String, String>,
        live: &BucketInfo,
    ) -> Result<BucketOwnership, AccountError> {
        let Self { owner, own } = self;
        if owner.generated && own.as_ref().is_none_or(|own| own.id != owner.id) {
            // A user with a name from older versions of Rook may belong to a claim in another cluster.
            owner.user(store).await?;
        }
        let own_user = match own {
            Some(own) => own.user(store).await?,
            None => None,
        };
        let mark = own_user.as_ref().and_then(User::mark);
        Ok(Evidence { owner, own: own.as_ref(), mark: mark.as_ref(), state }.ownership(live))
    }
}

/// Returns the reason why the permissions of a bucket cannot be changed. The text does not disclose the bucket's owner
/// to tenants.
fn missing_key_message(bucket: &str, owner: &str) -> String {
    tracing::warn!(bucket, owner, "the owner of a bucket that several claims use has no key");
    format!(
        "the owner of the bucket {bucket} has no key to change the bucket's policy with: an administrator creates one \
         with {}; the provisioner's log names the owner",
        key_command("<owner>")
    )
}

/// Returns the reason why the permissions of an account's bucket cannot be changed, like [`missing_key_message`].
fn owner_not_a_user_message(bucket: &str, owner: &str) -> String {
    tracing::warn!(bucket, owner, "the owner of a bucket that several claims use is not a user");
    format!(
        "the owner of the bucket {bucket} is not a user of the gateway, but an account, or has been deleted: an \
         administrator gives the bucket to a user with radosgw-admin bucket link --bucket={bucket} --uid=<user>; the \
         provisioner's log names the owner"
    )
}

/// Returns whether a bucket is still the one that was created for its owner.
async fn belongs_to_owner(
    bucket: &BucketAccess,
    owner: &api::Account,
    live: &BucketInfo,
    (store, cluster): (&Store, &str),
) -> Result<bool, ProvisionError> {
    let bucket_owner = bucket.state.get(BUCKET_OWNER).map(String::as_str);
    let users = Users::of(owner, &bucket.state, bucket_owner, cluster)?;
    Ok(users.ownership(store, &bucket.state, live).await? == BucketOwnership::Claim)
}

/// Returns the reason why an existing bucket cannot be used for this claim. The text does not disclose the bucket's
/// owner.
fn refusal_reason(ownership: BucketOwnership, users: &Users, request: &RequestOf<Rgw>) -> Option<String> {
    let name = &request.name;
    let recorded = request.state.get(BUCKET_OWNER).filter(|owner| **owner != users.owner.id);
    match (ownership, recorded) {
        (BucketOwnership::Claim | BucketOwnership::PendingTransfer, _) => None,
        (BucketOwnership::OfFormerOwner, _) => {
            Some(format!("the bucket {name} was created for another bucketOwner: restore the former bucketOwner"))
        }
        (BucketOwnership::Other, Some(owner)) => Some(format!(
            "the bucket {name} was created for the bucketOwner {owner}: restore it, or ask an administrator to link \
             the bucket to another user"
        )),
        (BucketOwnership::Other, None) if request.state.is_empty() => {
            Some(format!("the bucket {name} exists and was not created for this claim: choose another bucketName"))
        }
        (BucketOwnership::Other, None) => Some(format!(
            "the bucket {name} does not belong to this claim's user: restore the former bucketOwner, or ask an \
             administrator to link the bucket to {}",
            users.owner.id
        )),
    }
}

/// Refuses a request. Before the first success, deletes the claim's own user, which an earlier attempt may have
/// created. The refusal is final only if that user no longer exists.
async fn refuse(
    store: &Store,
    users: &Users,
    request: &RequestOf<Rgw>,
    live: Option<&BucketInfo>,
    text: String,
) -> Result<Bucket, ProvisionError> {
    if !request.state.is_empty() {
        return Err(ProvisionError::retry(text));
    }
    if let Some(own) = &users.own
        && let Some(user) = own.user(store).await?
    {
        let noted =
            user.mark().and_then(|mark| mark.transferred_bucket).map(|transferred_bucket| transferred_bucket.marker);
        // If the user cannot be deleted, it owns a bucket that an earlier attempt created.
        let has_bucket = noted.is_some() && noted.as_ref() == live.map(|live| &live.marker);
        if has_bucket || store.admin.delete_user(&own.id).await.is_err() {
            return Err(ProvisionError::retry(text));
        }
    }
    Err(ProvisionError::invalid(text))
}

fn answer(store: &Store, parameters: &Parameters, account: &Account, key: &s3_client::Credentials) -> Granted {
    let credentials = Credentials::new(&key.access_key_id, &key.secret_access_key);
    let Parameters { object_store_name, object_store_namespace, .. } = parameters;
    let mut answer = Granted::new(store.endpoint.clone(), credentials).state(CEPH_USER, &account.id);
    // The gateway accepts any region, but some clients require one.
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        answer = answer.config(name, &store.region);
    }
    // Clients released since 2025 append checksums to the body when they use TLS. Ceph 16 rejects them.
    for name in ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"] {
        answer = answer.config(name, "when_required");
    }
    for (key, value) in [("objectStoreName", object_store_name), ("objectStoreNamespace", object_store_namespace)] {
        if let Some(value) = value {
            answer = answer.state(key, value);
        }
    }
    if account.generated { answer } else { answer.state(BUCKET_OWNER, &account.id) }
}
