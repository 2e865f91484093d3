//! The bucket provisioner for Garage.

mod deletion;
mod listing;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use kube_provisioner::bucket::{
    Access, Account, Assets, BackendConfigError, Bucket, BucketAccess, BucketCapabilities, BucketHooks, BucketLookup,
    BucketProvisioner, Credentials, Endpoint, GrantOf, Granted, GrantedAccount, Limit, ListAssets, ProvisionedBucket,
    Record, RequestFailure, RequestOf,
};
use kube_provisioner::{DeleteError, ProvisionError, StartError};
use serde_json::Value;

use crate::admin::{BucketInfo, Failure, Key, Permissions, Quotas};
use crate::claim::{BUCKET_ID, Claim};
use crate::parameters::{AdminUrl, Config, LIFECYCLE, Parameters, SETTINGS};
use crate::store::{ADMIN, Defaults, Store, Stores};

/// Creates and deletes buckets and keys on Garage.
pub struct Garage {
    stores: Stores,
}

impl Garage {
    /// Creates a provisioner with these arguments.
    pub fn new(defaults: Defaults) -> Self {
        Self { stores: Stores::new(defaults) }
    }
}

impl BucketProvisioner for Garage {
    type Parameters = Parameters;
    type Config = Config;

    async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets);
        let store = store.map_err(ProvisionError::before_changes)?;
        let claim = Claim::of(&request.owner.claim, &request.cluster_id)?;
        // Reject an access that cannot be granted before creating anything.
        request.parameters.access_mode.restricted_to(request.config.access_mode)?;
        let name = &request.name;
        let named = store.admin.bucket_named(name).await.map_err(ProvisionError::before_changes)?;
        let own = claim.bucket(&store, name, named.as_ref(), &request.state).await?;
        if let Some(named) = &named
            && own.as_ref().is_none_or(|own| own.id != named.id)
        {
            return refuse(&store, &claim, &request, own, name_conflict_message(&request, named)).await;
        }
        let (keys, _) = claim.keys(&store).await?;
        let (key, is_new) = if own.is_none() && !request.state.is_empty() {
            // The bucket was deleted manually, and a key that has had a bucket with this name cannot create another
            // one.
            delete_keys(&store, &claim).await?;
            (claim.make_key(&store).await?, true)
        } else {
            key(&store, &claim, &keys, None).await?
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
            // Garage writes a global alias to the index of aliases first, and then to the bucket.
            Some(named) if named.global_aliases.contains(name) => named,
            _ => match assign_global_alias(&store, &made, name).await? {
                AliasResult::Own(own) => own,
                AliasResult::Other(other) => {
                    let text = name_conflict_message(&request, &other);
                    return refuse(&store, &claim, &request, Some(made), text).await;
                }
                AliasResult::Refused(text) => return refuse(&store, &claim, &request, Some(made), text).await,
            },
        };
        add_ownership_alias(&store, &own, name, &key.access_key_id).await?;
        update_settings(&store, &request, &own).await?;
        Ok(Bucket::new(store.endpoint).state(BUCKET_ID, &own.id))
    }

    async fn delete_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        self.remove_bucket(bucket).await
    }

    async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        let store = self.stores.of(&request.parameters, &request.secrets);
        let store = store.map_err(ProvisionError::before_changes)?;
        let claim = Claim::of(&request.account.claim, &request.cluster_id)?;
        match self.grant_access(&store, &claim, &request).await {
            Ok(granted) => Ok(granted),
            Err(objection) => {
                // The claim's keys also mark its own bucket, and are deleted with it.
                let has_bucket = request.buckets.iter().any(|bucket| bucket.belongs_to(&request.account));
                let is_known = has_bucket || !request.state.is_empty() || request.access_key_id.is_some();
                let undone = async { Ok::<_, Failure>(!is_known && delete_keys(&store, &claim).await.map(|()| true)?) };
                Err(objection.into_error(undone).await)
            }
        }
    }

    async fn revoke(&self, account: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        self.remove_keys(account).await
    }

    fn capabilities() -> BucketCapabilities {
        let capabilities = BucketCapabilities::default().rotation().multiple_buckets().assets();
        capabilities.bucket_settings(SETTINGS).optional_secret(ADMIN)
    }
}

impl BucketHooks for Garage {
    async fn find_bucket(&self, wanted: BucketLookup<Parameters>) -> Result<Option<Bucket>, ProvisionError> {
        let store = self.stores.of(&wanted.parameters, &wanted.secrets)?;
        let named = store.admin.bucket_named(&wanted.name).await?;
        Ok(named.map(|_| Bucket::new(store.endpoint)))
    }

    async fn rotate(&self, account: GrantedAccount<Parameters>) -> Result<Credentials, ProvisionError> {
        let (store, claim) = self.of_account(&account)?;
        let kept = retire_keys(&store, &claim, &account).await?;
        let class = account.parameters.as_ref().map(|class| class.access_mode).unwrap_or_default();
        let asked =
            account.config_texts.get("accessMode").map(|text| serde_json::from_value(Value::String(text.clone())));
        let asked = asked.transpose()?;
        let mut buckets = Vec::new();
        for bucket in &account.buckets {
            let live = self.live(&store, bucket, (&account.account, &account.cluster_id)).await?;
            let live =
                live.ok_or_else(|| ProvisionError::retry(format!("the bucket {} no longer exists", bucket.name)))?;
            buckets.push((bucket, live, permissions(bucket.allowed(class, asked)?)));
        }
        let key = claim.make_key(&store).await?;
        for (bucket, live, permissions) in buckets {
            grant_key(&store, &live, bucket, (&account.account, &kept), (&key.access_key_id, permissions)).await?;
        }
        Ok(Credentials::new(key.access_key_id, key.secret_access_key))
    }

    async fn revoke_old_keys(&self, account: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let (store, claim) = self.of_account(&account)?;
        retire_keys(&store, &claim, &account).await?;
        Ok(())
    }

    async fn list_keys(
        &self,
        account: GrantedAccount<Parameters>,
    ) -> Result<Option<Vec<String>>, Box<dyn Error + Send + Sync>> {
        let (store, claim) = self.of_account(&account)?;
        let (keys, _) = claim.keys(&store).await?;
        Ok(Some(keys.into_iter().filter(|key| !key.expired).map(|key| key.id).collect()))
    }

    async fn list_assets(&self, list: ListAssets<Parameters>) -> Result<Assets, Box<dyn Error + Send + Sync>> {
        listing::list(&self.stores.of(&list.parameters, &list.secrets)?, &list.cluster_id).await
    }

    async fn probe(&self) -> Result<(), StartError> {
        if let Some(store) = self.stores.default()? {
            store.admin.bucket_named("kube-provisioner-probe").await?;
        }
        Ok(())
    }

    async fn probe_class(&self, parameters: Arc<Parameters>) -> Result<(), StartError> {
        let (endpoint, AdminUrl(admin)) = self.stores.endpoints(&parameters)?;
        endpoint.connect().await?;
        // Remove the path.
        let admin = admin.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        admin.parse::<Endpoint>()?.connect().await
    }
}

impl Garage {
    async fn grant_access(
        &self,
        store: &Store,
        claim: &Claim,
        request: &GrantOf<Self>,
    ) -> Result<Granted, RequestFailure> {
        let mut buckets = Vec::new();
        for bucket in &request.buckets {
            let access = bucket.allowed(request.parameters.access_mode, request.config.access_mode)?;
            request.check_settings(bucket, &SETTINGS)?;
            let Some(live) = self.live(store, bucket, (&request.account, &request.cluster_id)).await? else {
                // Another bucket may have the name.
                if bucket.owner.is_some() && store.admin.bucket_named(&bucket.name).await?.is_some() {
                    return Err(RequestFailure::Refused(bucket.wrong_owner_message()));
                }
                return Err(bucket.missing().into());
            };
            buckets.push((bucket, live, permissions(access)));
        }
        let (keys, _) = claim.keys(store).await?;
        let (key, _) = key(store, claim, &keys, request.access_key_id.as_deref()).await?;
        for (bucket, live, permissions) in buckets {
            grant_key(store, &live, bucket, (&request.account, &keys), (&key.access_key_id, permissions)).await?;
        }
        Ok(answer(store, key))
    }

    /// Returns the Garage cluster of a record, and the claim of its account.
    fn recorded(&self, record: &Record<'_, Parameters>) -> Result<(Store, Claim), BackendConfigError> {
        let store = self.stores.of(record.parameters, record.secrets)?;
        Ok((store, Claim::of(&record.account.claim, record.cluster_id)?))
    }

    fn of_account(&self, account: &GrantedAccount<Parameters>) -> Result<(Store, Claim), BackendConfigError> {
        self.recorded(&account.record()?)
    }

    /// Returns the bucket with this name, if it was created for its owner. Finds the claim's own bucket even if another
    /// bucket has its name.
    async fn live(
        &self,
        store: &Store,
        bucket: &BucketAccess,
        (account, cluster_id): (&Account, &str),
    ) -> Result<Option<BucketInfo>, Failure> {
        let named = store.admin.bucket_named(&bucket.name).await?;
        let Some(owner) = &bucket.owner else { return Ok(named) };
        let Ok(claim) = Claim::of(&owner.claim, cluster_id) else { return Ok(None) };
        if owner == account {
            claim.bucket(store, &bucket.name, named.as_ref(), &bucket.state).await
        } else {
            Ok(named.filter(|named| claim.owns(named, &bucket.name, &bucket.state)))
        }
    }
}

/// Removes all keys except the claim's current key. Returns the remaining key.
async fn retire_keys(store: &Store, claim: &Claim, account: &GrantedAccount<Parameters>) -> Result<Vec<Key>, Failure> {
    let (mut keys, _) = claim.keys(store).await?;
    let kept = keys.iter().position(|key| Some(&key.id) == account.access_key_id.as_ref()).unwrap_or(0);
    let kept = (!keys.is_empty()).then(|| keys.swap_remove(kept));
    for key in keys {
        store.admin.delete_key(&key.id).await?;
    }
    Ok(kept.into_iter().collect())
}

fn permissions(access: Access) -> Permissions {
    // An owner could remove the bucket's name, or publish the bucket as a website.
    Permissions { read: access.can_read(), write: access.can_write(), owner: false }
}

/// Returns the key with this ID, or else another key. Expired keys are ignored.
fn usable_key<'a>(keys: &'a [Key], wanted: Option<&str>) -> Option<&'a Key> {
    let active = || keys.iter().filter(|key| !key.expired);
    active().find(|key| Some(key.id.as_str()) == wanted).or_else(|| active().next())
}

/// Returns the claim's current key, or another key that it may have received, or a new key, and whether the key is new.
async fn key(
    store: &Store,
    claim: &Claim,
    keys: &[Key],
    wanted: Option<&str>,
) -> Result<(s3_client::Credentials, bool), Failure> {
    if let Some(known) = usable_key(keys, wanted)
        && let Some(key) = store.admin.credentials(&known.id).await?
    {
        return Ok((key, false));
    }
    Ok((claim.make_key(store).await?, true))
}

/// The result of naming a bucket: the bucket that has the name.
enum AliasResult {
    Own(BucketInfo),
    Other(BucketInfo),
    /// Garage does not accept the name.
    Refused(String),
}

/// Adds the bucket's global alias.
async fn assign_global_alias(store: &Store, bucket: &BucketInfo, name: &str) -> Result<AliasResult, ProvisionError> {
    let refused = match store.admin.add_global_alias(&bucket.id, name).await {
        Err(failure) if failure.is_bad_request() => Some(failure.to_string()),
        given => given.map(|_| None)?,
    };
    // Two nodes can give the same name to two buckets concurrently, and only one of the buckets keeps it.
    match (store.admin.bucket_named(name).await?, refused) {
        (Some(named), _) if named.id == bucket.id => Ok(AliasResult::Own(named)),
        (Some(other), _) => Ok(AliasResult::Other(other)),
        (None, Some(text)) => Ok(AliasResult::Refused(text)),
        (None, None) => {
            Err(ProvisionError::retry(format!("the bucket {name} was named but cannot be found by its name")))
        }
    }
}

/// Adds the bucket's name as a local alias of the key, which marks the bucket as the claim's own.
async fn add_ownership_alias(store: &Store, bucket: &BucketInfo, name: &str, key: &str) -> Result<(), Failure> {
    let known = bucket.keys.iter().find(|known| known.id == key);
    if known.is_none_or(|known| !known.bucket_local_aliases.iter().any(|alias| alias == name)) {
        store.admin.add_local_alias(&bucket.id, key, name).await?;
    }
    Ok(())
}

/// Grants the key access to the bucket, and sets the same permissions for the account's `others` that have access. If
/// the bucket is the account's own, also marks it with the key.
async fn grant_key(
    store: &Store,
    live: &BucketInfo,
    bucket: &BucketAccess,
    (account, others): (&Account, &[Key]),
    (key, wanted): (&str, Permissions),
) -> Result<(), Failure> {
    if bucket.belongs_to(account) {
        add_ownership_alias(store, live, &bucket.name, key).await?;
    }
    let known = live.keys.iter().find(|known| known.id == key);
    let has = known.map_or(Permissions::NONE, |known| known.permissions);
    store.admin.set_permissions(&live.id, key, (has, wanted)).await?;
    for other in live.keys.iter().filter(|known| known.id != key && known.permissions.any()) {
        if others.iter().any(|claims| claims.id == other.id) {
            store.admin.set_permissions(&live.id, &other.id, (other.permissions, wanted)).await?;
        }
    }
    Ok(())
}

/// Updates the claim's own bucket to match the claim. Writes only differences.
async fn update_settings(store: &Store, request: &RequestOf<Garage>, live: &BucketInfo) -> Result<(), ProvisionError> {
    let bucket_lifecycle = &request.config.bucket_lifecycle;
    let quotas = quotas(&request.config, &request.applied_config, live.quotas);
    if quotas != live.quotas {
        store.admin.set_quotas(&live.id, quotas).await?;
    }
    // Remove a lifecycle that the claim no longer requests, but keep one that was set manually.
    if bucket_lifecycle.is_none() && !request.applied_config.contains_key(LIFECYCLE) {
        return Ok(());
    }
    let wanted = bucket_lifecycle.clone().unwrap_or_default().rules;
    let as_json = serde_json::to_value(&wanted)?;
    let is_so = |live: &BucketInfo| Value::from(live.lifecycle_rules.clone().unwrap_or_default()) == as_json;
    if !is_so(live) {
        let set = store.admin.set_lifecycle(&live.id, &wanted).await?;
        // Versions of Garage without support for these rules ignore them.
        if !wanted.is_empty() && set.lifecycle_rules.is_none() {
            let text = "this version of Garage cannot set a lifecycle by its admin API: remove bucketLifecycle, or update Garage";
            return Err(ProvisionError::retry(text));
        }
    }
    Ok(())
}

/// Returns the claim's quotas. Quotas that the claim has never set come from an administrator, and are kept.
fn quotas(config: &Config, applied: &BTreeMap<String, String>, live: Quotas) -> Quotas {
    let quota = |key: &str, limit: Option<Limit>, live: Option<u64>| match limit {
        Some(limit) => Some(limit.get().unsigned_abs()),
        None => live.filter(|_| !applied.contains_key(key)),
    };
    let max_size = quota("maxSize", config.max_size, live.max_size);
    Quotas { max_size, max_objects: quota("maxObjects", config.max_objects, live.max_objects) }
}

fn answer(store: &Store, key: s3_client::Credentials) -> Granted {
    let credentials = Credentials::new(key.access_key_id, key.secret_access_key);
    // Garage refuses requests that are signed for another region.
    let regions = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter();
    regions.fold(Granted::new(store.endpoint.clone(), credentials), |answer, name| {
        answer.config(name, &store.endpoint.region)
    })
}

/// Returns the reason why the bucket with the name cannot be used for this claim.
fn name_conflict_message(request: &RequestOf<Garage>, named: &BucketInfo) -> String {
    let name = &request.name;
    match request.state.get(BUCKET_ID) {
        None => format!("the bucket {name} exists and was not created for this claim: choose another bucketName"),
        Some(id) if *id == named.id => format!(
            "the bucket {name} was created for a claim of another cluster, so this provisioner does not change it; if \
             that cluster no longer exists, an administrator can transfer the bucket to this cluster with: garage key delete --yes \
             for each key that garage bucket info {name} shows"
        ),
        Some(id) => format!(
            "another bucket has the name {name} now, which this claim's bucket had: an administrator gives the name \
             back with garage bucket alias {name} <another name>, garage bucket unalias {name} and garage bucket \
             alias {id} {name}"
        ),
    }
}

/// Refuses a request. Before the first success, deletes `own`, which is the bucket of an earlier attempt, and the
/// claim's keys, which were never delivered. The refusal is final only if `own` no longer exists.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keeps_quotas_set_by_an_administrator() {
        let live = Quotas { max_size: Some(5), max_objects: Some(7) };
        let config = Config { max_objects: Limit::try_from("3".to_owned()).ok(), ..Config::default() };
        let changed = Quotas { max_size: Some(5), max_objects: Some(3) };
        assert_eq!(quotas(&config, &BTreeMap::new(), live), changed);
        let applied = BTreeMap::from([("maxSize".to_owned(), "5".to_owned())]);
        assert_eq!(quotas(&Config::default(), &applied, live), Quotas { max_size: None, max_objects: Some(7) });
    }

    #[test]
    fn ignores_expired_keys() {
        let key = |id: &str, expired: bool| Key { id: id.to_owned(), name: String::new(), expired };
        let keys = [key("GK1", true), key("GK2", false), key("GK3", false)];
        for (wanted, used) in [(None, "GK2"), (Some("GK1"), "GK2"), (Some("GK3"), "GK3"), (Some("GK4"), "GK2")] {
            assert_eq!(usable_key(&keys, wanted).unwrap().id, used, "{wanted:?}");
        }
        assert!(usable_key(&keys[..1], Some("GK1")).is_none());
        let of_garage_2_0: Key = serde_json::from_value(json!({"id": "GK1", "name": ""})).unwrap();
        assert!(!of_garage_2_0.expired);
    }
}
