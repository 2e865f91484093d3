//! The provisioner.

mod removing;
mod settings;

use std::collections::BTreeMap;

use kube_provisioner::bucket::{
    Access, Bucket, BucketCapabilities, BucketProvisioner, ClaimName, Credentials, ProvisionedBucket, RequestOf,
};
use kube_provisioner::{DeleteError, ProvisionError, StartError};
use s3_client::Error;

use crate::admin::{Failure, User};
use crate::grants::{change_policy, granted};
use crate::parameters::{Config, Parameters};
use crate::quota::Quota;
use crate::store::{ADMIN, Defaults, Store, Stores};
use crate::users::is_generated;

/// What Rook keeps in an ObjectBucket, too.
const CEPH_USER: &str = "cephUser";
const BUCKET_OWNER: &str = "bucketOwner";

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
        let owner = Account::of(&request.claim, &request.state, request.config.bucket_owner.as_deref())?;
        if request.parameters.access_mode.restricted_to(request.config.access_mode)? != Access::ReadWrite {
            let text = "accessMode is for buckets that a class names: the owner of a bucket can do everything";
            return refuse(&store, &owner, &request, text.to_owned()).await;
        }
        let live = store.admin.bucket(&request.name).await?;
        if let Some(info) = &live
            && let Some(text) = owner.objection(&store, &request, &info.owner).await?
        {
            return refuse(&store, &owner, &request, text).await;
        }
        let user = owner.ensured(&store, ONE_BUCKET).await?;
        let key = owner.key(&store, &user, request.access_key_id.as_deref()).await?;
        if live.is_none()
            && let Err(error) = owner.make_bucket(&store, &request.name, &request.claim, key.clone()).await
        {
            return match error.code() {
                "BucketAlreadyExists" => {
                    let text = format!("the bucket {} exists and belongs to somebody else", request.name);
                    refuse(&store, &owner, &request, text).await
                }
                "InvalidBucketName" => refuse(&store, &owner, &request, error.to_string()).await,
                _ => Err(error.into()),
            };
        }
        if owner.generated && user.max_buckets != ONE_BUCKET {
            store.admin.set_max_buckets(&owner.id, ONE_BUCKET).await?;
        }
        owner.apply_quota(&store, &user, &request.config).await?;
        let lock = self.stores.lock(store.place(&request.name));
        let _locked = lock.lock().await;
        let bucket = answer(&store, &request, &owner, &key);
        settings::apply(&store, &request, &owner.id, key, bucket).await
    }

    async fn grant(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets)?;
        let account = Account::of(&request.claim, &request.state, request.config.bucket_owner.as_deref())?;
        let access = request.parameters.access_mode.restricted_to(request.config.access_mode)?;
        if let Some(key) = settings::of_the_bucket(&request.config) {
            let text = format!("{key} is not possible for a bucket that the class names: it is not this claim's");
            return refuse(&store, &account, &request, text).await;
        }
        let name = &request.name;
        let Some(info) = store.admin.bucket(name).await? else {
            return Err(ProvisionError::retry(format!(
                "the bucket {name} does not exist: make it, or change bucketName in the StorageClass"
            )));
        };
        let owner = store.admin.user(&info.owner).await?;
        let owner_key = owner.as_ref().and_then(|owner| owner.key(request.access_key_id.as_deref()));
        let Some(owner_key) = owner_key else {
            let owner = info.owner;
            return Err(ProvisionError::retry(format!(
                "the owner {owner} of the bucket {name} has no key to change the bucket's policy with: radosgw-admin key \
                 create --uid={owner} --key-type=s3"
            )));
        };
        if info.owner == account.id {
            // With bucketOwner the claim gets the owner's own key.
            return Ok(answer(&store, &request, &account, &owner_key));
        }
        if !account.generated {
            let text = format!("the bucket {name} belongs to {}, not to the bucketOwner {}", info.owner, account.id);
            return refuse(&store, &account, &request, text).await;
        }
        let user = account.ensured(&store, NO_BUCKETS).await?;
        let key = account.key(&store, &user, request.access_key_id.as_deref()).await?;
        if user.max_buckets >= 0 {
            store.admin.set_max_buckets(&account.id, NO_BUCKETS).await?;
        }
        let lock = self.stores.lock(store.place(name));
        let _locked = lock.lock().await;
        change_policy(&store, owner_key, name, |policy| granted(policy, &account.id, name, access)).await?;
        let bucket = answer(&store, &request, &account, &key);
        Ok(match request.config.max_objects.or(request.config.max_size) {
            Some(_) => bucket.warning("maxObjects and maxSize have no effect on a bucket that the class names"),
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
        let (store, account) = self.of(&bucket)?;
        if !account.generated {
            let text =
                format!("the keys of {} are not rotated: it is the bucketOwner, not made for the claim", account.id);
            return Err(ProvisionError::invalid(text));
        }
        let before = self.remove_other_keys(&store, &account, bucket.access_key_id.as_deref()).await?;
        let keys = store.admin.create_key(&account.id).await?;
        let new = keys.iter().find(|key| !before.contains(&key.access_key));
        let new = new.ok_or_else(|| ProvisionError::retry("the gateway made no new key"))?.credentials();
        Ok(Credentials::new(new.access_key_id, new.secret_access_key))
    }

    async fn retire(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.of(&bucket)?;
        if account.generated {
            self.remove_other_keys(&store, &account, bucket.access_key_id.as_deref()).await?;
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
    /// The gateway and the user of a bucket that was made.
    fn of(&self, bucket: &ProvisionedBucket<Parameters>) -> Result<(Store, Account), BadRecord> {
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
        let account = Account::of(&bucket.claim, &bucket.state, bucket_owner.map(String::as_str))?;
        Ok((store, account))
    }

    /// Removes all keys but this one, or but the first where it is not known. The answer is the ids of all that were there.
    async fn remove_other_keys(
        &self,
        store: &Store,
        account: &Account,
        keep: Option<&str>,
    ) -> Result<Vec<String>, Failure> {
        let Some(user) = store.admin.user(&account.id).await? else { return Ok(Vec::new()) };
        let kept = user.key(keep).map(|key| key.access_key_id);
        for key in user.keys.iter().filter(|key| Some(&key.access_key) != kept.as_ref()) {
            store.admin.delete_key(&account.id, &key.access_key).await?;
        }
        Ok(user.keys.into_iter().map(|key| key.access_key).collect())
    }
}

/// What an ObjectBucket does not tell.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadRecord(String);

/// The user of a claim.
#[derive(Clone, Debug)]
struct Account {
    id: String,
    /// Whether it is made for the claim. Others are never changed and never deleted.
    generated: bool,
}

impl Account {
    /// `bucket_owner` is what the claim wants now. An owner who is no longer asked for stays.
    fn of(claim: &ClaimName, state: &BTreeMap<String, String>, bucket_owner: Option<&str>) -> Result<Self, BadRecord> {
        let known = |key| state.get(key).map(String::as_str).filter(|text| !text.is_empty());
        let bucket_owner = bucket_owner.filter(|owner| !owner.is_empty()).or(known(BUCKET_OWNER));
        let id = match bucket_owner.or(known(CEPH_USER)) {
            Some(id) => id.to_owned(),
            None if claim.uid.is_empty() => {
                return Err(BadRecord("the ObjectBucket names neither cephUser nor its claim's uid".to_owned()));
            }
            None => claim.user(),
        };
        let generated = is_generated(&id, claim, bucket_owner);
        Ok(Self { id, generated })
    }

    /// The user, which is made if it is to be.
    async fn ensured(&self, store: &Store, max_buckets: i64) -> Result<User, ProvisionError> {
        if let Some(user) = store.admin.user(&self.id).await? {
            return Ok(user);
        }
        if !self.generated {
            let id = &self.id;
            return Err(ProvisionError::retry(format!(
                "the user {id} does not exist: make it by radosgw-admin user create --uid={id}, or change bucketOwner"
            )));
        }
        store.admin.create_user(&self.id, max_buckets).await?;
        let made = store.admin.user(&self.id).await?;
        made.ok_or_else(|| ProvisionError::retry(format!("the user {} was made and is not there", self.id)))
    }

    async fn key(
        &self,
        store: &Store,
        user: &User,
        wanted: Option<&str>,
    ) -> Result<s3_client::Credentials, ProvisionError> {
        if let Some(key) = user.key(wanted) {
            return Ok(key);
        }
        if !self.generated {
            let id = &self.id;
            let text = format!("the user {id} has no key: radosgw-admin key create --uid={id} --key-type=s3");
            return Err(ProvisionError::retry(text));
        }
        let keys = store.admin.create_key(&self.id).await?;
        let key = keys.first().map(crate::admin::Key::credentials);
        key.ok_or_else(|| ProvisionError::retry("the gateway made no key"))
    }

    async fn make_bucket(
        &self,
        store: &Store,
        name: &str,
        claim: &ClaimName,
        key: s3_client::Credentials,
    ) -> Result<(), Failure> {
        let s3 = store.s3(key);
        // A region would be taken for the name of a placement.
        match s3.create_bucket(name, None).await {
            Ok(()) => {}
            // An answer to an earlier call was lost.
            Err(error) if error.code() == "BucketAlreadyOwnedByYou" => {}
            Err(error) => return Err(Failure::of_user(&format!("make the bucket {name}"), error)),
        }
        if !self.generated {
            let tags = BTreeMap::from([(CLAIM_UID.to_owned(), claim.uid.clone())]);
            let tagged = s3.put_bucket_tagging(name, &tags).await;
            tagged.map_err(|error| Failure::of_user(&format!("tag the bucket {name}"), error))?;
        }
        Ok(())
    }

    async fn apply_quota(&self, store: &Store, user: &User, config: &Config) -> Result<(), Failure> {
        let wanted = Quota::of(config.max_objects, config.max_size);
        match self.generated && !wanted.is_met_by(user.user_quota) {
            true => store.admin.set_user_quota(&self.id, wanted).await,
            false => Ok(()),
        }
    }

    /// Why a bucket that exists is not this claim's.
    async fn objection(&self, store: &Store, request: &RequestOf<Rgw>, owner: &str) -> Result<Option<String>, Failure> {
        let name = &request.name;
        if owner != self.id {
            let advice = match request.state.is_empty() {
                true => "choose another bucketName".to_owned(),
                false => {
                    "leave bucketOwner as it was, or let an administrator link the bucket to another user".to_owned()
                }
            };
            return Ok(Some(format!("the bucket {name} exists and belongs to {owner}, not to {}: {advice}", self.id)));
        }
        if self.made_for(store, name, &request.claim, &request.state).await? {
            return Ok(None);
        }
        Ok(Some(format!("the bucket {name} exists and was not made for this claim: choose another bucketName")))
    }

    /// Whether a bucket of this user's was made for the claim. Users who are not made for claims own other buckets, too.
    async fn made_for(
        &self,
        store: &Store,
        name: &str,
        claim: &ClaimName,
        state: &BTreeMap<String, String>,
    ) -> Result<bool, Failure> {
        if self.generated || !state.is_empty() || (!claim.uid.is_empty() && name.ends_with(&claim.uid)) {
            return Ok(true);
        }
        let Some(key) = store.admin.user(&self.id).await?.and_then(|user| user.key(None)) else { return Ok(false) };
        match store.s3(key).bucket_tagging(name).await {
            Ok(tags) => Ok(tags.get(CLAIM_UID).is_some_and(|uid| *uid == claim.uid)),
            Err(Error::Answer(answer)) if answer.code == "NoSuchBucket" => Ok(false),
            Err(error) => Err(Failure::of_user(&format!("read the tags of the bucket {name}"), error)),
        }
    }
}

/// The tag of a bucket that was made for a claim and belongs to a user who was not.
const CLAIM_UID: &str = "objectbucketclaim-uid";

/// What the claim wants cannot be done. It is for good only where nothing is left of earlier attempts.
async fn refuse(
    store: &Store,
    account: &Account,
    request: &RequestOf<Rgw>,
    text: String,
) -> Result<Bucket, ProvisionError> {
    if !request.state.is_empty() {
        return Err(ProvisionError::retry(text));
    }
    // A user who owns a bucket cannot be deleted: then an earlier attempt got that far.
    if account.generated && store.admin.delete_user(&account.id).await.is_err() {
        return Err(ProvisionError::retry(text));
    }
    Err(ProvisionError::invalid(text))
}

fn answer(store: &Store, request: &RequestOf<Rgw>, account: &Account, key: &s3_client::Credentials) -> Bucket {
    let credentials = Credentials::new(&key.access_key_id, &key.secret_access_key);
    let Parameters { object_store_name, object_store_namespace, .. } = &*request.parameters;
    let mut bucket = Bucket::new(store.endpoint.clone(), credentials).state(CEPH_USER, &account.id);
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
