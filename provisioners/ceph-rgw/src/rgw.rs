//! The provisioner.

mod account;
mod making;
mod ownership;
mod removing;
mod settings;

use std::collections::BTreeMap;

use kube_provisioner::bucket::{
    Access, Bucket, BucketCapabilities, BucketProvisioner, Credentials, MadeFor, ProvisionedBucket, RequestOf,
};
use kube_provisioner::{DeleteError, ProvisionError, StartError};
use s3_client::policy::Policy;

use self::account::{Account, AccountError};
use self::making::Problem;
use self::ownership::{Evidence, Whose};
use crate::admin::{BucketInfo, User};
use crate::grants::{change_policy, granted, with_owner};
use crate::parameters::{Config, Parameters};
use crate::quota::Quota;
use crate::store::{ADMIN, Defaults, Store, Stores};

/// What Rook keeps in an ObjectBucket, too.
const CEPH_USER: &str = "cephUser";
const BUCKET_OWNER: &str = "bucketOwner";
/// What we keep there besides: which bucket it is, where the claim names the owner.
const BUCKET_MARKER: &str = "bucketMarker";

/// `max-buckets` of users: 0 is no limit for the gateway, and a negative number is none at all.
const ONE_BUCKET: i64 = 1;
const NO_BUCKETS: i64 = -1;

/// Makes buckets and users on gateways.
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

    async fn provision(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets)?;
        let users = Users::of(&request)?;
        if request.parameters.access_mode.restricted_to(request.config.access_mode)? != Access::ReadWrite {
            let text = "accessMode is for buckets that a class names: the owner of a bucket can do everything";
            return refuse(&store, &users, &request, None, text.to_owned()).await;
        }
        let live = store.admin.bucket(&request.name).await?;
        let owner = &users.owner;
        let whose = match &live {
            Some(live) => Some(users.whose(&store, &request.state, live).await?),
            None => None,
        };
        if let Some(text) = whose.and_then(|whose| objection(whose, &users, &request)) {
            if let Some(live) = &live {
                tracing::info!(bucket = request.name, owner = live.owner, "refused a bucket that is not the claim's");
            }
            return refuse(&store, &users, &request, live.as_ref(), text).await;
        }
        let user = owner.ensured(&store, ONE_BUCKET).await?;
        let key = owner.key(&store, &user, request.access_key_id.as_deref()).await?;
        let lent = match (live, whose) {
            (Some(live), Some(Whose::Claim)) => (!owner.generated).then_some(live.marker),
            (live, _) => match making::make(&store, &users, &user, &request, live.is_none()).await {
                Ok(lent) => lent,
                Err(Problem::Refused(text)) => return refuse(&store, &users, &request, None, text).await,
                Err(Problem::Failed(error)) => return Err(error),
            },
        };
        if owner.generated && user.max_buckets != ONE_BUCKET {
            store.admin.set_max_buckets(&owner.id, ONE_BUCKET).await?;
        }
        let wanted = Quota::of(request.config.max_objects, request.config.max_size);
        if owner.generated && !wanted.is_met_by(user.user_quota) {
            store.admin.set_user_quota(&owner.id, wanted).await?;
        }
        let lock = self.stores.lock(store.place(&request.name));
        let _locked = lock.lock().await;
        let mut bucket = answer(&store, &request, owner, &key);
        if let Some(marker) = lent {
            bucket = bucket.state(BUCKET_MARKER, marker);
        }
        settings::apply(&store, &request, &owner.id, key, bucket).await
    }

    async fn grant(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets)?;
        let users = Users::of(&request)?;
        let account = &users.owner;
        let access = request.parameters.access_mode.restricted_to(request.config.access_mode)?;
        if let Some(key) = settings::of_the_bucket(&request.config) {
            let text = format!(
                "{key} is not possible for a bucket that was not made for this claim: remove it from additionalConfig"
            );
            return refuse_grant(&store, &users, text).await;
        }
        let name = &request.name;
        let live = store.admin.bucket(name).await?;
        if let Some(made_for) = &request.made_for
            && !is_made_for(made_for, live.as_ref(), &store, &request).await?
        {
            return refuse_grant(&store, &users, made_for.is_not_its(name)).await;
        }
        let Some(info) = live else {
            return Err(ProvisionError::retry(format!(
                "the bucket {name} does not exist: make it, or change bucketName in the StorageClass"
            )));
        };
        let owner = store.admin.user(&info.owner).await?;
        let owner_key = owner.as_ref().and_then(|owner| owner.key(request.access_key_id.as_deref()));
        let Some(owner_key) = owner_key else {
            tracing::warn!(
                bucket = name,
                owner = info.owner,
                "the owner of a bucket that a claim is let into has no key"
            );
            return Err(ProvisionError::retry(format!(
                "the owner of the bucket {name} has no key to change the bucket's policy with: an administrator makes one by \
                 radosgw-admin key create --uid=<owner> --key-type=s3; the provisioner's log names the owner"
            )));
        };
        if info.owner == account.id {
            // With bucketOwner the claim gets the owner's own key.
            return Ok(answer(&store, &request, account, &owner_key));
        }
        if !account.generated {
            let text = format!("the bucket {name} does not belong to the bucketOwner {}", account.id);
            return refuse_grant(&store, &users, text).await;
        }
        let user = account.ensured(&store, NO_BUCKETS).await?;
        let key = account.key(&store, &user, request.access_key_id.as_deref()).await?;
        if user.max_buckets >= 0 {
            store.admin.set_max_buckets(&account.id, NO_BUCKETS).await?;
        }
        let lock = self.stores.lock(store.place(name));
        let _locked = lock.lock().await;
        let is_shared = request.made_for.is_some();
        let wanted = |policy: &Policy| {
            let policy = granted(policy, &account.id, name, access);
            if is_shared { with_owner(&policy, &info.owner, name) } else { policy }
        };
        change_policy(&store, owner_key, name, wanted).await?;
        let bucket = answer(&store, &request, account, &key);
        Ok(match request.config.max_objects.or(request.config.max_size) {
            Some(_) => {
                bucket.warning("maxObjects and maxSize have no effect on a bucket that was not made for this claim")
            }
            None => bucket,
        })
    }

    async fn delete(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        self.remove_bucket(bucket).await
    }

    async fn revoke(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        self.remove_user(bucket).await
    }

    async fn rotate(&self, bucket: ProvisionedBucket<Parameters>) -> Result<Credentials, ProvisionError> {
        let (store, users) = self.recorded(&bucket)?;
        let account = users.owner;
        if !account.generated {
            let text =
                format!("the keys of {} are not rotated: it is the bucketOwner, not made for the claim", account.id);
            return Err(ProvisionError::invalid(text));
        }
        let before = account.remove_other_keys(&store, bucket.access_key_id.as_deref()).await?;
        let keys = store.admin.create_key(&account.id).await?;
        let new = keys.iter().find(|key| !before.contains(&key.access_key));
        let new = new.ok_or_else(|| ProvisionError::retry("the gateway made no new key"))?.credentials();
        Ok(Credentials::new(new.access_key_id, new.secret_access_key))
    }

    async fn retire(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, users) = self.recorded(&bucket)?;
        let account = users.owner;
        if account.generated {
            account.remove_other_keys(&store, bucket.access_key_id.as_deref()).await?;
        }
        Ok(())
    }

    async fn probe(&self) -> Result<(), StartError> {
        if let Some(store) = self.stores.default()? {
            store.admin.user("kube-provisioner-probe").await?;
        }
        Ok(())
    }

    fn capabilities() -> BucketCapabilities {
        BucketCapabilities::default().rotation().optional_secret(ADMIN)
    }
}

impl Rgw {
    /// The gateway and the users of a bucket that was made.
    fn recorded(&self, bucket: &ProvisionedBucket<Parameters>) -> Result<(Store, Users), BadRecord> {
        let Some(parameters) = &bucket.parameters else {
            return Err(BadRecord(
                "the StorageClass is gone, and only it says where the gateway is: make it again".into(),
            ));
        };
        let store = self.stores.of(parameters, &bucket.secrets).map_err(|error| BadRecord(error.to_string()))?;
        // Before the first success there is no state yet.
        let bucket_owner = bucket.state.get(BUCKET_OWNER);
        let bucket_owner =
            bucket_owner.or_else(|| bucket.config_texts.get(BUCKET_OWNER).filter(|_| bucket.state.is_empty()));
        let (claim, cluster) = (&bucket.claim, &bucket.cluster_id);
        let owner = Account::of(claim, &bucket.state, bucket_owner.map(String::as_str), cluster)?;
        Ok((store, Users { owner, own: Account::own(claim, cluster) }))
    }
}

/// What an ObjectBucket does not record.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadRecord(String);

/// The users of a claim.
struct Users {
    /// The one who owns the claim's bucket, or is let into it.
    owner: Account,
    /// The one who is made for the claim. It is the same where the claim names no owner.
    own: Option<Account>,
}

impl Users {
    fn of(request: &RequestOf<Rgw>) -> Result<Self, BadRecord> {
        let (claim, cluster) = (&request.claim, &request.cluster_id);
        let bucket_owner = request.config.bucket_owner.as_deref();
        if bucket_owner.is_some_and(|owner| owner.contains('$')) {
            return Err(BadRecord(
                "the bucketOwner cannot be a user of a tenant: name one without a tenant".to_owned(),
            ));
        }
        let owner = Account::of(claim, &request.state, bucket_owner, cluster)?;
        Ok(Self { owner, own: Account::own(claim, cluster) })
    }

    /// Whose a bucket is that has the name.
    async fn whose(
        &self,
        store: &Store,
        state: &BTreeMap<String, String>,
        live: &BucketInfo,
    ) -> Result<Whose, AccountError> {
        let Self { owner, own } = self;
        if owner.generated && own.as_ref().is_none_or(|own| own.id != owner.id) {
            // A user of Rook's older generations may be a claim's of another cluster.
            owner.user(store).await?;
        }
        let own_user = match own {
            Some(own) => own.user(store).await?,
            None => None,
        };
        let mark = own_user.as_ref().and_then(User::mark);
        Ok(Evidence { owner, own: own.as_ref(), mark: mark.as_ref(), state }.whose(live))
    }
}

/// Whether a bucket is still the one that was made for a claim.
async fn is_made_for(
    made_for: &MadeFor,
    live: Option<&BucketInfo>,
    store: &Store,
    request: &RequestOf<Rgw>,
) -> Result<bool, ProvisionError> {
    let (MadeFor { claim, state, .. }, Some(live)) = (made_for, live) else { return Ok(false) };
    let bucket_owner = state.get(BUCKET_OWNER).map(String::as_str);
    let owner = Account::of(claim, state, bucket_owner, &request.cluster_id)?;
    let users = Users { owner, own: Account::own(claim, &request.cluster_id) };
    Ok(users.whose(store, state, live).await? == Whose::Claim)
}

/// Why a bucket that exists is not for this claim, or not as it is. It does not name its owner.
fn objection(whose: Whose, users: &Users, request: &RequestOf<Rgw>) -> Option<String> {
    let name = &request.name;
    let recorded = request.state.get(BUCKET_OWNER).filter(|owner| **owner != users.owner.id);
    match (whose, recorded) {
        (Whose::Claim | Whose::ToHandOver, _) => None,
        (Whose::OfFormerOwner, _) => {
            Some(format!("the bucket {name} was made for another bucketOwner: leave bucketOwner as it was"))
        }
        (Whose::Others, Some(owner)) => Some(format!(
            "the bucket {name} was made for the bucketOwner {owner}: leave it so, or let an administrator link the bucket to \
             another user"
        )),
        (Whose::Others, None) if request.state.is_empty() => {
            Some(format!("the bucket {name} exists and was not made for this claim: choose another bucketName"))
        }
        (Whose::Others, None) => Some(format!(
            "the bucket {name} does not belong to this claim's user: leave bucketOwner as it was, or let an administrator \
             link the bucket to {}",
            users.owner.id
        )),
    }
}

/// What the claim wants cannot be done. It is for good only where nothing is left of earlier attempts.
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
        let noted = user.mark().and_then(|mark| mark.handed_over).map(|handed_over| handed_over.marker);
        // A user who owns a bucket cannot be deleted: then an earlier attempt got that far.
        let has_bucket = noted.is_some() && noted.as_ref() == live.map(|live| &live.marker);
        if has_bucket || store.admin.delete_user(&own.id).await.is_err() {
            return Err(ProvisionError::retry(text));
        }
    }
    Err(ProvisionError::invalid(text))
}

/// As [`refuse`], for a bucket that exists. An earlier attempt may have written into its policy, which `revoke` mends.
async fn refuse_grant(store: &Store, users: &Users, text: String) -> Result<Bucket, ProvisionError> {
    let begun = match &users.own {
        Some(own) => own.user(store).await?.is_some(),
        None => true,
    };
    Err(if begun { ProvisionError::retry(text) } else { ProvisionError::invalid(text) })
}

fn answer(store: &Store, request: &RequestOf<Rgw>, account: &Account, key: &s3_client::Credentials) -> Bucket {
    let credentials = Credentials::new(&key.access_key_id, &key.secret_access_key);
    let Parameters { object_store_name, object_store_namespace, .. } = &*request.parameters;
    let mut bucket = Bucket::new(store.endpoint.clone(), credentials).state(CEPH_USER, &account.id);
    // The gateway takes any region, but not all clients go without one.
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        bucket = bucket.config(name, &store.region);
    }
    // Clients since 2025 add checksums behind the body where they speak TLS, and Ceph 16 refuses them.
    for name in ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"] {
        bucket = bucket.config(name, "when_required");
    }
    for (key, value) in [("objectStoreName", object_store_name), ("objectStoreNamespace", object_store_namespace)] {
        if let Some(value) = value {
            bucket = bucket.state(key, value);
        }
    }
    match account.generated {
        true => bucket,
        false => bucket.state(BUCKET_OWNER, &account.id),
    }
}
