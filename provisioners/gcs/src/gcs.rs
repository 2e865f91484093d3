//! Implementation of the library's traits for Google Cloud Storage.

mod deletion;
mod keys;
mod listing;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use kube_provisioner::bucket::{
    self, Access, Assets, BackendConfigError, Bucket, BucketAccess, BucketCapabilities, BucketHooks, BucketLookup,
    BucketProvisioner, ClaimName, Credentials, GrantOf, Granted, GrantedAccount, ListAssets, Owner, ProvisionedBucket,
    Record, RequestFailure, RequestOf,
};
use kube_provisioner::{DeleteError, ProvisionError, Secrets, StartError};
use serde_json::{Value, json};

use self::keys::former_keys;
use crate::account::{CLAIM_UID, account_id, email, labels, owner};
use crate::api::Failure;
use crate::http::Proxies;
use crate::iam::{AccountClaim, AddressOwner};
use crate::parameters::{BUCKET_TAGS, Config, Parameters, SETTINGS, is_set};
use crate::policy::{with_account, with_principal, without_account, without_title};
use crate::principal::{principal, title};
use crate::storage::BucketState;
use crate::store::{ADMIN, Defaults, Store, Stores};

/// Keys of the state in an ObjectBucket: the bucket's project, and the service account that owns the claim's HMAC key.
const PROJECT: &str = "project";
const SERVICE_ACCOUNT: &str = "serviceAccount";
/// Key of the state: the claim's key, if the class names its service account.
const ACCESS_KEY_ID: &str = "accessKeyID";
/// Key of the state: the keys that this key has replaced, separated by commas, if the class names its service account.
const FORMER_KEYS: &str = "formerAccessKeyIDs";
/// Key of the state: the principal that has access without a key.
const PRINCIPAL: &str = "principal";

/// Google needs some seconds to propagate a new service account.
pub(crate) const ACCOUNT_PROPAGATION_TIME: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 2_000 });

/// Provisions buckets and service accounts in Google Cloud projects.
pub(crate) struct Gcs {
    stores: Stores,
}

impl Gcs {
    pub(crate) fn new(defaults: Defaults, proxies: Proxies) -> Self {
        Self { stores: Stores::new(defaults, proxies) }
    }
}

impl BucketProvisioner for Gcs {
    type Parameters = Parameters;
    type Config = Config;

    async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let store = self.store(&request.parameters, &request.secrets, &request.state).await;
        let store = store.map_err(ProvisionError::before_changes)?;
        let (name, parameters, config) = (&request.name, &*request.parameters, &*request.config);
        // A request that cannot be granted fails before the bucket is created.
        parameters.access_mode.restricted_to(config.access_mode)?;
        principal((parameters, config), &request.owner.claim, &store)?;
        let live = store.storage.find_bucket(name).await.map_err(ProvisionError::before_changes)?;
        if let Some(objection) = objection(&live, &request) {
            return Err(objection);
        }
        match live {
            BucketState::Bucket(live) => reconcile_settings(&store, &request, &live).await?,
            BucketState::Absent | BucketState::Foreign => make_bucket(&store, &request).await?,
        }
        Ok(Bucket::new(store.endpoint).state(PROJECT, store.storage.project))
    }

    async fn delete_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        self.remove_bucket(bucket).await
    }

    async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        let store = self.store(&request.parameters, &request.secrets, &request.state).await;
        let store = store.map_err(ProvisionError::before_changes)?;
        let (parameters, config) = (&*request.parameters, &*request.config);
        let account = Account::of(&store, &request.account, &request.cluster_id, (&request.state, parameters));
        let principal = principal((parameters, config), &request.account.claim, &store)?;
        if let Some(objection) = account.cosi_objection(&request) {
            return Err(objection);
        }
        let mut buckets = Vec::new();
        for bucket in &request.buckets {
            match asked_access(&store, &request, bucket).await {
                Ok(access) => buckets.push((bucket, access)),
                Err(objection) => {
                    let undone = account.undo_attempt(&store, &request);
                    return Err(objection.into_error(undone).await);
                }
            }
        }
        match principal {
            Some(principal) => account.grant_without_key(&store, &request, &buckets, &principal).await,
            None => account.grant_with_key(&store, &request, &buckets).await,
        }
    }

    async fn revoke(&self, account: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        self.remove_account(account).await
    }

    fn capabilities() -> BucketCapabilities {
        let capabilities = BucketCapabilities::default().rotation().multiple_buckets().assets();
        capabilities.bucket_settings(SETTINGS).optional_secret(ADMIN)
    }
}

impl BucketHooks for Gcs {
    async fn find_bucket(&self, wanted: BucketLookup<Parameters>) -> Result<Option<Bucket>, ProvisionError> {
        let store = self.store(&wanted.parameters, &wanted.secrets, &BTreeMap::new()).await?;
        match store.storage.find_bucket(&wanted.name).await? {
            BucketState::Absent => Ok(None),
            BucketState::Bucket(_) => Ok(Some(Bucket::new(store.endpoint))),
            BucketState::Foreign => Err(ProvisionError::retry(format!(
                "the bucket {} exists and belongs to another owner, or the administrator lacks the permission to read it",
                wanted.name
            ))),
        }
    }

    async fn rotate(&self, known: GrantedAccount<Parameters>) -> Result<Credentials, ProvisionError> {
        let (store, account) = self.of_account(&known).await?;
        if !account.generated {
            let text = format!("the keys of {} are not rotated: it was not created for the claim", account.email);
            return Err(ProvisionError::invalid(text));
        }
        if account.address_owner(&store).await? == AddressOwner::Foreign {
            return Err(ProvisionError::retry(account.foreign_account_message()));
        }
        account.remove_keys_except(&store, known.access_key_id.as_deref()).await?;
        Ok(store.storage.create_key(&account.email).await?)
    }

    async fn revoke_old_keys(&self, known: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.of_account(&known).await?;
        let Some(current) = known.access_key_id.as_deref() else { return Ok(()) };
        if !account.generated {
            for id in former_keys(&known.state).filter(|id| *id != current) {
                account.remove_key(&store, id).await?;
            }
        } else if account.address_owner(&store).await? != AddressOwner::Foreign {
            account.remove_keys_except(&store, Some(current)).await?;
        }
        Ok(())
    }

    async fn list_keys(
        &self,
        known: GrantedAccount<Parameters>,
    ) -> Result<Option<Vec<String>>, Box<dyn Error + Send + Sync>> {
        let (store, account) = self.of_account(&known).await?;
        let keys = store.storage.keys(&account.email).await?;
        Ok(Some(keys.into_iter().filter(|key| key.active).map(|key| key.id).collect()))
    }

    async fn list_assets(&self, list: ListAssets<Parameters>) -> Result<Assets, Box<dyn Error + Send + Sync>> {
        let store = self.store(&list.parameters, &list.secrets, &BTreeMap::new()).await?;
        listing::list(&store, &list.cluster_id).await
    }

    async fn probe(&self) -> Result<(), StartError> {
        self.stores.probe().await?;
        self.stores.endpoint().connect().await
    }
}

impl Gcs {
    async fn store(
        &self,
        parameters: &Parameters,
        secrets: &Secrets,
        state: &BTreeMap<String, String>,
    ) -> Result<Store, BackendConfigError> {
        self.stores.of(parameters, secrets, state.get(PROJECT).map(String::as_str)).await
    }

    /// Returns the store and the account that the ObjectBucket records for a claim.
    async fn recorded(&self, record: &Record<'_, Parameters>) -> Result<(Store, Account), BackendConfigError> {
        let Record { account, parameters, state, secrets, cluster_id, .. } = record;
        if account.claim.uid.is_empty() {
            return Err(BackendConfigError::new("the ObjectBucket does not name its claim's uid"));
        }
        let store = self.store(parameters, secrets, state).await?;
        let account = Account::of(&store, account, cluster_id, (state, parameters));
        Ok((store, account))
    }

    async fn of_account(&self, known: &GrantedAccount<Parameters>) -> Result<(Store, Account), BackendConfigError> {
        self.recorded(&known.record()?).await
    }
}

/// Returns the access to a bucket that the claim requests, or the reason to refuse it.
async fn asked_access(store: &Store, request: &GrantOf<Gcs>, bucket: &BucketAccess) -> Result<Access, RequestFailure> {
    request.check_settings(bucket, &SETTINGS)?;
    let access = bucket.allowed(request.parameters.access_mode, request.config.access_mode)?;
    let Some(live) = store.storage.bucket(&bucket.name).await? else { return Err(bucket.missing().into()) };
    match &bucket.owner {
        Some(of) if owner(&live, &of.claim, &request.cluster_id) != Owner::Claim => {
            Err(RequestFailure::Refused(bucket.wrong_owner_message()))
        }
        _ => Ok(access),
    }
}

/// The service account whose key a claim receives.
#[derive(Clone, Debug)]
struct Account {
    /// The id of the service account that is generated for the claim.
    id: String,
    email: String,
    claim: ClaimName,
    /// The cluster in which this provisioner runs.
    cluster: String,
    /// True if the account is generated for the claim. The provisioner never changes or deletes other accounts.
    generated: bool,
}

impl Account {
    /// The recorded account takes precedence over the class's current parameters.
    fn of(
        store: &Store,
        account: &bucket::Account,
        cluster: &str,
        (state, parameters): (&BTreeMap<String, String>, &Parameters),
    ) -> Self {
        let id = account_id(&account.name);
        let own = email(&id, &store.iam.project);
        let named = state.get(SERVICE_ACCOUNT).or(parameters.service_account.as_ref().filter(|_| state.is_empty()));
        let email = named.filter(|email| !email.is_empty()).cloned().unwrap_or_else(|| own.clone());
        Self { generated: email == own, id, email, claim: account.claim.clone(), cluster: cluster.to_owned() }
    }

    fn identity(&self) -> AccountClaim<'_> {
        AccountClaim { claim: &self.claim, cluster: &self.cluster }
    }

    /// Refuses to issue a key without access: several COSI accounts would share the existing service account, so that
    /// none of them could be granted and revoked access separately.
    fn cosi_objection(&self, request: &GrantOf<Gcs>) -> Option<ProvisionError> {
        let is_of_driver = request.buckets.iter().any(|bucket| bucket.owner.is_some());
        let objection = || {
            ProvisionError::invalid(
                "COSI cannot grant the class's serviceAccount access to a bucket: remove serviceAccount from the \
                 BucketAccessClass",
            )
        };
        (self.claim.namespace.is_empty() && !self.generated && is_of_driver).then(objection)
    }

    async fn address_owner(&self, store: &Store) -> Result<AddressOwner, Failure> {
        store.iam.address_owner(&self.email, self.identity()).await
    }

    fn foreign_account_message(&self) -> String {
        let email = &self.email;
        format!(
            "the service account {email} exists and was not created for this claim in this cluster: delete it if it is unused"
        )
    }

    async fn ensure(&self, store: &Store) -> Result<(), ProvisionError> {
        // An existing account may belong to a project that the administrator cannot read. Creating a key fails if it
        // does not exist.
        if !self.generated || store.iam.ensure(&self.id, &self.email, self.identity()).await? {
            Ok(())
        } else {
            Err(ProvisionError::retry(self.foreign_account_message()))
        }
    }

    /// Grants access to the service account and creates its key.
    async fn grant_with_key(
        &self,
        store: &Store,
        request: &GrantOf<Gcs>,
        buckets: &[(&BucketAccess, Access)],
    ) -> Result<Granted, ProvisionError> {
        self.ensure(store).await?;
        let title = title(&self.claim);
        for (bucket, access) in buckets {
            // Only an administrator grants access to an existing bucket to an account that was not generated for the
            // claim.
            let grants_access = self.generated || bucket.belongs_to(&request.account);
            if grants_access || request.state.contains_key(PRINCIPAL) {
                let changed = store.storage.change_policy(&bucket.name, |policy| {
                    let policy = without_title(policy, &title);
                    if grants_access { with_account(&policy, &self.email, *access) } else { policy }
                });
                changed.await.map_err(|failure| self.propagation_error(failure))?;
            }
        }
        // After the key is created, no call may fail: an unrecorded key would remain.
        let mut former = if self.generated { Vec::new() } else { self.known_keys(store, request).await? };
        let key = self.key(store, request).await?;
        let id = key.access_key_id.clone();
        former.retain(|former| *former != id);
        let answer = self.answer(store, Granted::new(store.endpoint.clone(), key));
        let answer = answer.state(SERVICE_ACCOUNT, &self.email);
        let answer = if self.generated { answer } else { answer.state(ACCESS_KEY_ID, id) };
        Ok(if former.is_empty() { answer } else { answer.state(FORMER_KEYS, former.join(",")) })
    }

    /// Grants access to a principal, without a key.
    async fn grant_without_key(
        &self,
        store: &Store,
        request: &GrantOf<Gcs>,
        buckets: &[(&BucketAccess, Access)],
        principal: &str,
    ) -> Result<Granted, ProvisionError> {
        let (title, had_key) = (title(&self.claim), request.access_key_id.is_some());
        for (bucket, access) in buckets {
            let name = &bucket.name;
            let changed = store.storage.change_policy(name, |policy| {
                let policy = with_principal(policy, &title, name, principal, *access);
                if had_key { without_account(&policy, &self.email) } else { policy }
            });
            changed.await?;
        }
        // An earlier attempt may have created the service account.
        self.remove(store).await?;
        Ok(self.answer(store, Granted::without_key(store.endpoint.clone())).state(PRINCIPAL, principal))
    }

    /// Cleans up after earlier attempts to grant access. Returns false if leftovers may remain.
    async fn undo_attempt(&self, store: &Store, request: &GrantOf<Gcs>) -> Result<bool, Failure> {
        let may_end = request.state.is_empty() && self.generated;
        if may_end {
            self.wait_for_unfinished(store).await?;
            self.remove(store).await?;
        }
        Ok(may_end)
    }

    /// Converts a failure, with advice if Google does not know the service account (yet).
    fn propagation_error(&self, failure: Failure) -> ProvisionError {
        let unknown = matches!(failure.status(), Some(400 | 404)) && failure.message().contains("does not exist");
        match unknown {
            true if self.generated => {
                let text = format!("{failure}; a new service account takes some time to be known everywhere");
                ProvisionError::retry(text).after(ACCOUNT_PROPAGATION_TIME)
            }
            true => {
                let text = format!("{failure}; create the service account {}, or change serviceAccount", self.email);
                ProvisionError::retry(text)
            }
            false => failure.into(),
        }
    }

    fn answer(&self, store: &Store, granted: Granted) -> Granted {
        let granted = granted.state(PROJECT, &store.storage.project);
        // Google refuses the checksums that clients add since 2025.
        let granted = ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"]
            .into_iter()
            .fold(granted, |granted, name| granted.config(name, "when_required"));
        // The controller writes AWS_REGION, which boto3 does not read.
        granted.config("AWS_DEFAULT_REGION", &store.endpoint.region)
    }
}

/// Returns the reason why this claim cannot use the bucket.
fn objection(live: &BucketState, request: &RequestOf<Gcs>) -> Option<ProvisionError> {
    let name = &request.name;
    let text = match live {
        BucketState::Absent => return None,
        BucketState::Foreign => {
            format!("the bucket {name} exists and belongs to another owner: choose another bucketName")
        }
        BucketState::Bucket(bucket) => match owner(bucket, &request.owner.claim, &request.cluster_id) {
            Owner::Claim => return location_conflict(bucket, request),
            Owner::Unknown if !request.state.is_empty() => {
                format!("the bucket {name} has lost its label {CLAIM_UID}: set it to {}", request.owner.claim.uid)
            }
            Owner::Other | Owner::Unknown => {
                format!("the bucket {name} exists and was not created for this claim: choose another bucketName")
            }
        },
    };
    // The error is final only if no bucket was created.
    Some(if request.state.is_empty() { ProvisionError::invalid(text) } else { ProvisionError::retry(text) })
}

/// Refuses a bucket in another location, because a location cannot change. Buckets that were provisioned before are
/// accepted.
fn location_conflict(live: &Value, request: &RequestOf<Gcs>) -> Option<ProvisionError> {
    let (name, wanted, found) = (&request.name, &request.parameters.location, live["location"].as_str()?);
    let differs = request.state.is_empty() && !found.eq_ignore_ascii_case(wanted);
    let text = || format!("the bucket {name} exists in {found}: set location to {found}, or delete the bucket");
    differs.then(|| ProvisionError::already_exists(text()))
}

/// Creates the bucket.
async fn make_bucket(store: &Store, request: &RequestOf<Gcs>) -> Result<(), ProvisionError> {
    let (name, parameters) = (&request.name, &request.parameters);
    let mut body = json!({"name": name, "location": parameters.location, "labels": wanted_labels(request)});
    if let Some(class) = parameters.storage_class {
        body["storageClass"] = json!(class.name());
    }
    for (key, value) in parameters.settings_for(&request.config, &BTreeMap::new()).as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    if store.storage.create_bucket(name, body).await? {
        return Ok(());
    }
    match store.storage.find_bucket(name).await? {
        // The deletion of a former bucket has not ended.
        BucketState::Absent => Err(ProvisionError::retry(format!(
            "Google reports that the bucket {name} exists, and does not show it; the next attempt tries again"
        ))),
        // Another client created the bucket first, or the response to an earlier call was lost.
        live => objection(&live, request).map_or(Ok(()), Err),
    }
}

/// Reconciles a bucket's settings and writes only differences. The location cannot change, and the class's storage
/// class applies only to new buckets.
async fn reconcile_settings(store: &Store, request: &RequestOf<Gcs>, live: &Value) -> Result<(), Failure> {
    let mut wanted = request.parameters.settings_for(&request.config, &request.applied_config);
    let mut labels = json!(wanted_labels(request));
    // A claim that sets labels controls all labels except the provisioner's. Otherwise, other labels are kept.
    if request.config.bucket_tags.is_some() || request.applied_config.contains_key(BUCKET_TAGS) {
        for key in live["labels"].as_object().into_iter().flatten().map(|(key, _)| key) {
            // Google sets labels with this prefix.
            if labels.get(key).is_none() && !key.starts_with("goog") {
                labels[key] = Value::Null;
            }
        }
    }
    wanted["labels"] = labels;
    if is_set(live, &wanted) { Ok(()) } else { store.storage.patch_bucket(&request.name, live, wanted).await }
}

/// Returns the labels of class and claim, and the labels that name the bucket's owner.
fn wanted_labels(request: &RequestOf<Gcs>) -> BTreeMap<String, String> {
    let mut all = request.parameters.labels.0.clone();
    all.extend(request.config.bucket_tags.clone().unwrap_or_default().0);
    labels(&request.owner.claim, &request.cluster_id, all)
}
