//! The provisioner.

mod removing;

use kube_provisioner::bucket::{
    Access, Bucket, BucketCapabilities, BucketProvisioner, Credentials, MadeFor, ProvisionedBucket, RequestOf, Source,
};
use kube_provisioner::{DeleteError, ProvisionError, StartError};
use serde_json::Value;

use crate::admin::{BucketInfo, Failure, Key, Quotas, Rights};
use crate::claim::{BUCKET_ID, Claim};
use crate::parameters::{Config, Limit, Parameters};
use crate::store::{ADMIN, Defaults, Store, Stores};

const LIFECYCLE: &str = "bucketLifecycle";

/// Makes buckets and keys on Garage.
pub struct Garage {
    stores: Stores,
}

impl Garage {
    /// One with these arguments.
    pub fn new(defaults: Defaults) -> Self {
        Self { stores: Stores::new(defaults) }
    }
}

impl BucketProvisioner for Garage {
    type Parameters = Parameters;
    type Config = Config;

    async fn provision(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets)?;
        let claim = Claim::of(&request.claim, &request.cluster_id)?;
        let access = request.parameters.access_mode.restricted_to(request.config.access_mode)?;
        let name = &request.name;
        let named = store.admin.bucket_named(name).await?;
        let own = claim.bucket(&store, name, named.as_ref(), &request.state).await?;
        if let Some(named) = &named
            && own.as_ref().is_none_or(|own| own.id != named.id)
        {
            return refuse(&store, &claim, &request, own, in_the_way(&request, named)).await;
        }
        let (keys, _) = claim.keys(&store).await?;
        let (key, is_new) = match own.is_none() && !request.state.is_empty() {
            // Somebody has deleted the bucket by hand, and a key that has had a bucket of this name can make no other one.
            true => {
                delete_keys(&store, &claim).await?;
                (claim.make_key(&store).await?, true)
            }
            false => key(&store, &claim, &keys, request.access_key_id.as_deref()).await?,
        };
        let made = match own {
            Some(own) => own,
            None => match store.admin.create_bucket(name, &key.access_key_id).await {
                Err(failure) if failure.is_bad_request() && is_new => {
                    return refuse(&store, &claim, &request, None, failure.to_string()).await;
                }
                Err(failure) if failure.is_bad_request() => {
                    store.admin.delete_key(&key.access_key_id).await?;
                    return Err(failure.into());
                }
                made => made?,
            },
        };
        let own = match named {
            // Garage writes the name first where everybody finds the bucket by it, and then where the bucket says it.
            Some(named) if named.global_aliases.contains(name) => named,
            _ => match name_it(&store, &made, name).await? {
                Named::Own(own) => own,
                Named::Others(others) => {
                    let text = in_the_way(&request, &others);
                    return refuse(&store, &claim, &request, Some(made), text).await;
                }
                Named::Refused(text) => return refuse(&store, &claim, &request, Some(made), text).await,
            },
        };
        let key = admit(&store, &own, (name, true), &keys, key, rights(access)).await?;
        settle(&store, &request, &own).await?;
        Ok(answer(&store, &own, key))
    }

    async fn grant(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets)?;
        let claim = Claim::of(&request.claim, &request.cluster_id)?;
        let access = request.parameters.access_mode.restricted_to(request.config.access_mode)?;
        let name = &request.name;
        if let Some(key) = request.config.of_the_bucket() {
            let text = format!(
                "{key} is not possible for a bucket that was not made for this claim: remove it from additionalConfig"
            );
            return refuse(&store, &claim, &request, None, text).await;
        }
        let named = store.admin.bucket_named(name).await?;
        if let Some(made_for) = &request.made_for
            && !is_made_for(made_for, named.as_ref(), name, &request.cluster_id)
        {
            return refuse(&store, &claim, &request, None, made_for.is_not_its(name)).await;
        }
        let bucket = named.ok_or_else(|| {
            let text = format!("the bucket {name} does not exist: make it, or change bucketName in the StorageClass");
            ProvisionError::retry(text)
        })?;
        let (keys, _) = claim.keys(&store).await?;
        let (key, _) = key(&store, &claim, &keys, request.access_key_id.as_deref()).await?;
        let key = admit(&store, &bucket, (name, false), &keys, key, rights(access)).await?;
        Ok(answer(&store, &bucket, key))
    }

    async fn delete(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        self.remove_bucket(bucket).await
    }

    async fn revoke(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        self.remove_keys(bucket).await
    }

    async fn rotate(&self, bucket: ProvisionedBucket<Parameters>) -> Result<Credentials, ProvisionError> {
        let (store, claim) = self.recorded(&bucket)?;
        let kept = self.retire_keys(&store, &claim, &bucket).await?;
        let class = bucket.parameters.as_ref().map(|class| class.access_mode).unwrap_or_default();
        let asked =
            bucket.config_texts.get("accessMode").map(|text| serde_json::from_value(Value::String(text.clone())));
        let rights = rights(class.restricted_to(asked.transpose()?)?);
        let live = self.live(&store, &claim, &bucket).await?;
        let live = live.ok_or_else(|| ProvisionError::retry(format!("the bucket {} is gone", bucket.name)))?;
        let key = claim.make_key(&store).await?;
        let is_own = bucket.source == Source::Provisioned;
        let key = admit(&store, &live, (&bucket.name, is_own), &kept, key, rights).await?;
        Ok(Credentials::new(key.access_key_id, key.secret_access_key))
    }

    async fn retire(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, claim) = self.recorded(&bucket)?;
        self.retire_keys(&store, &claim, &bucket).await?;
        Ok(())
    }

    async fn probe(&self) -> Result<(), StartError> {
        if let Some(store) = self.stores.default()? {
            store.admin.bucket_named("kube-provisioner-probe").await?;
        }
        Ok(())
    }

    fn capabilities() -> BucketCapabilities {
        BucketCapabilities::default().rotation().optional_secret(ADMIN)
    }
}

impl Garage {
    /// Where a bucket is that was made, and its claim.
    fn recorded(&self, bucket: &ProvisionedBucket<Parameters>) -> Result<(Store, Claim), BadRecord> {
        let bad = |text: String| BadRecord(text);
        let parameters = bucket.parameters.as_ref();
        let parameters =
            parameters.ok_or_else(|| bad("the StorageClass is gone, and only it says where Garage is".into()))?;
        let store = self.stores.of(parameters, &bucket.secrets).map_err(|error| bad(error.to_string()))?;
        let claim = Claim::of(&bucket.claim, &bucket.cluster_id).map_err(|error| bad(error.to_string()))?;
        Ok((store, claim))
    }

    /// The claim's bucket, or the one that it was let into.
    async fn live(
        &self,
        store: &Store,
        claim: &Claim,
        bucket: &ProvisionedBucket<Parameters>,
    ) -> Result<Option<BucketInfo>, Failure> {
        let named = store.admin.bucket_named(&bucket.name).await?;
        match bucket.source {
            Source::Provisioned => claim.bucket(store, &bucket.name, named.as_ref(), &bucket.state).await,
            Source::Granted => Ok(named.filter(|named| {
                let made_for = bucket.made_for.as_ref();
                made_for.is_none_or(|made_for| is_made_for(made_for, Some(named), &bucket.name, &bucket.cluster_id))
            })),
        }
    }

    /// Removes all keys but the one that the claim has. The answer is the one that is left.
    async fn retire_keys(
        &self,
        store: &Store,
        claim: &Claim,
        bucket: &ProvisionedBucket<Parameters>,
    ) -> Result<Vec<Key>, Failure> {
        let (mut keys, _) = claim.keys(store).await?;
        let kept = keys.iter().position(|key| Some(&key.id) == bucket.access_key_id.as_ref()).unwrap_or(0);
        let kept = (!keys.is_empty()).then(|| keys.swap_remove(kept));
        for key in keys {
            store.admin.delete_key(&key.id).await?;
        }
        Ok(kept.into_iter().collect())
    }
}

/// Whether a bucket is still the one that was made for a claim.
fn is_made_for(made_for: &MadeFor, bucket: Option<&BucketInfo>, name: &str, cluster_id: &str) -> bool {
    let owner = Claim::of(&made_for.claim, cluster_id);
    bucket.zip(owner.ok()).is_some_and(|(bucket, owner)| owner.owns(bucket, name, &made_for.state))
}

/// What an ObjectBucket does not record.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadRecord(String);

fn rights(access: Access) -> Rights {
    // An owner could take the bucket's name away, or publish it as a website.
    Rights { read: access.reads(), write: access.writes(), owner: false }
}

/// The key that the claim has, or any that it may have got, or a new one. Whether it is new.
async fn key(
    store: &Store,
    claim: &Claim,
    keys: &[Key],
    wanted: Option<&str>,
) -> Result<(s3_client::Credentials, bool), Failure> {
    let known = keys.iter().find(|key| Some(key.id.as_str()) == wanted).or(keys.first());
    if let Some(known) = known
        && let Some(key) = store.admin.credentials(&known.id).await?
    {
        return Ok((key, false));
    }
    Ok((claim.make_key(store).await?, true))
}

/// Who has a name that a bucket was to get.
enum Named {
    Own(BucketInfo),
    Others(BucketInfo),
    /// Garage takes no such name.
    Refused(String),
}

/// Gives the bucket its name for everybody.
async fn name_it(store: &Store, bucket: &BucketInfo, name: &str) -> Result<Named, ProvisionError> {
    let refused = match store.admin.add_global_alias(&bucket.id, name).await {
        Err(failure) if failure.is_bad_request() => Some(failure.to_string()),
        given => given.map(|_| None)?,
    };
    // Two nodes can give one name to two buckets at a time. Afterwards one of these has it.
    match (store.admin.bucket_named(name).await?, refused) {
        (Some(named), _) if named.id == bucket.id => Ok(Named::Own(named)),
        (Some(others), _) => Ok(Named::Others(others)),
        (None, Some(text)) => Ok(Named::Refused(text)),
        (None, None) => {
            Err(ProvisionError::retry(format!("the bucket {name} has got its name and is not there by it")))
        }
    }
}

/// Lets the key into the bucket, and gives those of the claim's `others` that are in it the same rights. In the claim's own
/// bucket the key also gets the bucket's name, as the mark of who has made it.
async fn admit(
    store: &Store,
    bucket: &BucketInfo,
    (name, is_own): (&str, bool),
    others: &[Key],
    key: s3_client::Credentials,
    wanted: Rights,
) -> Result<s3_client::Credentials, Failure> {
    let known = bucket.keys.iter().find(|known| known.id == key.access_key_id);
    if is_own && known.is_none_or(|known| !known.bucket_local_aliases.iter().any(|alias| alias == name)) {
        store.admin.add_local_alias(&bucket.id, &key.access_key_id, name).await?;
    }
    let has = known.map_or(Rights::NONE, |known| known.permissions);
    store.admin.set_rights(&bucket.id, &key.access_key_id, (has, wanted)).await?;
    for other in bucket.keys.iter().filter(|known| known.id != key.access_key_id && known.permissions.any()) {
        if others.iter().any(|claims| claims.id == other.id) {
            store.admin.set_rights(&bucket.id, &other.id, (other.permissions, wanted)).await?;
        }
    }
    Ok(key)
}

/// Brings the claim's own bucket in line. Only what differs is written.
async fn settle(store: &Store, request: &RequestOf<Garage>, live: &BucketInfo) -> Result<(), ProvisionError> {
    let Config { max_objects, max_size, bucket_lifecycle, .. } = &*request.config;
    let number = |limit: &Option<Limit>| limit.map(|Limit(limit)| limit);
    let quotas = Quotas { max_size: number(max_size), max_objects: number(max_objects) };
    if quotas != live.quotas {
        store.admin.set_quotas(&live.id, quotas).await?;
    }
    // What the claim has set, and wants no more, goes. What somebody has set by hand stays.
    if bucket_lifecycle.is_none() && !request.applied_config.contains_key(LIFECYCLE) {
        return Ok(());
    }
    let wanted = bucket_lifecycle.clone().unwrap_or_default().rules;
    let as_json = serde_json::to_value(&wanted)?;
    let is_so = |live: &BucketInfo| Value::from(live.lifecycle_rules.clone().unwrap_or_default()) == as_json;
    if !is_so(live) {
        let set = store.admin.set_lifecycle(&live.id, &wanted).await?;
        // Versions that do not know these rules ignore them.
        if !wanted.is_empty() && set.lifecycle_rules.is_none() {
            let text = "this version of Garage sets no lifecycle by its admin API: leave bucketLifecycle out, or update Garage";
            return Err(ProvisionError::retry(text));
        }
    }
    Ok(())
}

fn answer(store: &Store, bucket: &BucketInfo, key: s3_client::Credentials) -> Bucket {
    let credentials = Credentials::new(key.access_key_id, key.secret_access_key);
    let mut answer = Bucket::new(store.endpoint.clone(), credentials).state(BUCKET_ID, &bucket.id);
    // Garage refuses requests that are signed for another region.
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        answer = answer.config(name, &store.endpoint.region);
    }
    answer
}

/// Why a bucket that has the name is not for this claim.
fn in_the_way(request: &RequestOf<Garage>, named: &BucketInfo) -> String {
    let name = &request.name;
    match request.state.get(BUCKET_ID) {
        None => format!("the bucket {name} exists and was not made for this claim: choose another bucketName"),
        Some(id) if *id == named.id => format!(
            "the bucket {name} was made for a claim of another cluster, and is left alone; if that cluster is gone for good, an              administrator gives the bucket to this one: garage key delete --yes for each key that garage bucket info {name} shows"
        ),
        Some(id) => format!(
            "another bucket has the name {name} now, which this claim's bucket had: an administrator gives the name back by \
             garage bucket alias {name} <another name>, garage bucket unalias {name} and garage bucket alias {id} {name}"
        ),
    }
}

/// What the claim wants cannot be done. It is for good where nothing is left of earlier attempts: `own` is the bucket of one, which
/// nobody has had a key for.
async fn refuse(
    store: &Store,
    claim: &Claim,
    request: &RequestOf<Garage>,
    own: Option<BucketInfo>,
    text: String,
) -> Result<Bucket, ProvisionError> {
    tracing::info!(bucket = request.name, "refused: {text}");
    if !request.state.is_empty() {
        return Err(ProvisionError::retry(text));
    }
    if let Some(own) = own
        && !store.admin.delete_bucket(&own.id).await?
    {
        return Err(ProvisionError::retry(text));
    }
    delete_keys(store, claim).await?;
    Err(ProvisionError::invalid(text))
}

async fn delete_keys(store: &Store, claim: &Claim) -> Result<(), Failure> {
    let (keys, for_deletion) = claim.keys(store).await?;
    for key in keys.iter().chain(&for_deletion) {
        store.admin.delete_key(&key.id).await?;
    }
    Ok(())
}
