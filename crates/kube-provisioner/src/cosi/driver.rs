//! The COSI calls independent of the version: their calls to the provisioner, and the records of accounts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use driver_rpc::{Code, Status};
use futures::future::BoxFuture;
use provisioner_runtime::controller::{FencingToken, catch_panic, guarded};
use tokio::sync::Semaphore;

use super::accounts::{Accounts, Record, StoredAccount};
use super::errors::{aborted, crashed, exists, invalid, not_answered, not_created, not_removed, precondition};
use super::locks::Locks;
use super::names;
use crate::bucket::{Access, Account, BucketAccess, BucketCapabilities, Credentials, Endpoint};
use crate::controller::bucket::backend::{
    BucketBackend, UntypedAccount, UntypedBucket, UntypedGrant, UntypedLookup, UntypedRequest,
};
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters, Parsed};
use crate::controller::shared::limits::CallLimits;
use crate::controller::shared::secret_names::TemplateNames;
use crate::controller::shared::secret_reading::{READING, SecretReadError, read_secrets};
use crate::protocol::EXISTING_BUCKETS;
use crate::secrets::Secrets;

pub(super) type Texts = BTreeMap<String, String>;

pub(super) struct Driver {
    backend: Arc<dyn BucketBackend>,
    capabilities: BucketCapabilities,
    accounts: Accounts,
    limits: CallLimits,
    permits: Semaphore,
    locks: Locks,
}

pub(super) struct RequestedGrant {
    pub(super) account: String,
    pub(super) buckets: BTreeMap<String, Access>,
    pub(super) parameters: Texts,
}

/// The endpoint and the key that an account receives.
pub(super) struct IssuedAccess {
    pub(super) endpoint: Endpoint,
    pub(super) key: Credentials,
}

/// A class's parameters as the provisioner's methods receive them.
pub(super) struct Class {
    parsed: Arc<Parsed>,
    secrets: Secrets,
    /// True if accounts can receive access to buckets that the driver has not created.
    existing: bool,
}

impl Driver {
    /// Creates a driver that makes at most `calls` concurrent calls to the provisioner.
    pub(super) fn new(
        backend: Arc<dyn BucketBackend>,
        capabilities: BucketCapabilities,
        accounts: Accounts,
        limits: CallLimits,
        calls: usize,
    ) -> Self {
        Self { backend, capabilities, accounts, limits, permits: Semaphore::new(calls), locks: Locks::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.accounts.driver
    }

    /// Checks the class of a bucket.
    pub(super) async fn check(&self, id: &str, parameters: Texts) -> Result<(), Status> {
        names::check("the bucket's id", id).map_err(invalid)?;
        let (settings, parameters) = self.without_settings(parameters);
        self.config(&settings)?;
        self.class(parameters).await.map(drop)
    }

    /// Creates a bucket. Its ID is its name.
    pub(super) async fn create(&self, name: &str, parameters: Texts, token: &FencingToken) -> Result<Endpoint, Status> {
        names::check("name", name).map_err(invalid)?;
        let _held = self.locks.lock(format!("bucket {name}")).await;
        let (settings, parameters) = self.without_settings(parameters);
        let class = self.class(parameters).await?;
        let request = UntypedRequest {
            name: name.to_owned(),
            owner: Account::of_cosi_bucket(name),
            parameters: class.parsed.clone(),
            config: self.config(&settings)?,
            config_texts: settings,
            state: Texts::new(),
            secrets: class.secrets.clone(),
            applied_config: Texts::new(),
            cluster_id: self.accounts.cluster_id.clone(),
            fencing_token: token.clone(),
        };
        let made = self.call("create_bucket", self.limits.provision, || self.backend.create_bucket(request)).await?;
        match made {
            Ok(bucket) => {
                warn(name, bucket.warning.as_deref());
                Ok(bucket.endpoint)
            }
            Err(error) => {
                let status = not_created(&error, name);
                // Distinguish a bucket of another owner from one that can never be created.
                let is_there = status.code() == Code::InvalidArgument && self.look_up(name, class).await.is_ok();
                Err(if is_there { exists(status.message()) } else { status })
            }
        }
    }

    /// Looks up an existing bucket.
    pub(super) async fn find(&self, id: &str, parameters: Texts) -> Result<Endpoint, Status> {
        names::check("existing_bucket_id", id).map_err(invalid)?;
        let (_, parameters) = self.without_settings(parameters);
        let class = self.class(parameters).await?;
        self.look_up(id, class).await
    }

    async fn look_up(&self, name: &str, class: Class) -> Result<Endpoint, Status> {
        let lookup = UntypedLookup { name: name.to_owned(), parameters: class.parsed, secrets: class.secrets };
        match self.call("find_bucket", self.limits.provision, || self.backend.find_bucket(lookup)).await? {
            Ok(Some(bucket)) => Ok(bucket.endpoint),
            Ok(None) => Err(Status::new(Code::NotFound, format!("the bucket {name} does not exist"))),
            Err(error) => Err(not_created(&error, name)),
        }
    }

    /// Deletes a bucket that the driver has created. Foreign buckets are kept.
    pub(super) async fn delete(&self, id: &str, parameters: Texts, token: &FencingToken) -> Result<(), Status> {
        names::check("bucket_id", id).map_err(invalid)?;
        let _held = self.locks.lock(format!("bucket {id}")).await;
        let (settings, parameters) = self.without_settings(parameters);
        let class = self.class(parameters).await?;
        let bucket = UntypedBucket {
            name: id.to_owned(),
            owner: Account::of_cosi_bucket(id),
            parameters: Some(class.parsed),
            state: Texts::new(),
            config_texts: settings,
            secrets: class.secrets,
            cluster_id: self.accounts.cluster_id.clone(),
            fencing_token: token.clone(),
        };
        let deleted = self.call("delete_bucket", self.limits.delete, || self.backend.delete_bucket(bucket)).await?;
        deleted.map_err(|error| not_removed(&error, id))
    }

    pub(super) async fn grant(&self, wanted: RequestedGrant, token: &FencingToken) -> Result<IssuedAccess, Status> {
        let RequestedGrant { account, buckets, parameters } = wanted;
        names::check("the account's name", &account).map_err(invalid)?;
        buckets.keys().try_for_each(|bucket| names::check("bucket_id", bucket)).map_err(invalid)?;
        match buckets.len() {
            0 => return Err(invalid("a bucket is required")),
            1 => {}
            _ if self.capabilities.multiple_buckets => {}
            _ => return Err(Status::new(Code::OutOfRange, "this driver gives access to one bucket at a time")),
        }
        let _held = self.locks.lock(format!("account {account}")).await;
        let class = self.class(parameters.clone()).await?;
        let kept = match self.accounts.read(&account).await? {
            Some(kept) if kept.record.is_for(&buckets, &parameters) => kept,
            Some(_) => {
                return Err(exists(format!(
                    "the account {account} has access to other buckets, or has other parameters: delete the \
                     BucketAccess and create it again"
                )));
            }
            None => {
                let record = Record { buckets, parameters, key: None, state: Texts::new() };
                self.accounts.create(&account, record).await?
            }
        };
        let request = self.grant_request(&account, &kept.record, &class, token)?;
        let granted = match self.call("grant", self.limits.provision, || self.backend.grant(request)).await? {
            Ok(granted) => granted,
            Err(error) => {
                // If an earlier call may have left something behind, the provisioner does not return such a verdict.
                if !error.verdict().may_be_left() && kept.record.key.is_none() {
                    self.accounts.remove(kept).await?;
                }
                return Err(not_created(&error, &account));
            }
        };
        warn(&account, granted.warning.as_deref());
        let key = granted.credentials;
        let key = key.ok_or_else(|| invalid("the class grants access without a key, and COSI supports only keys"))?;
        let record = Record { key: Some(key.clone()), state: granted.state, ..kept.record.clone() };
        if record != kept.record {
            self.accounts.replace(kept, record).await?;
        }
        Ok(IssuedAccess { endpoint: granted.endpoint, key })
    }

    fn grant_request(
        &self,
        account: &str,
        record: &Record,
        class: &Class,
        token: &FencingToken,
    ) -> Result<UntypedGrant, Status> {
        Ok(UntypedGrant {
            account: Account::of_cosi_access(account),
            buckets: accesses(&record.buckets, class.existing),
            parameters: class.parsed.clone(),
            config: self.config(&Texts::new())?,
            config_texts: Texts::new(),
            state: record.state.clone(),
            access_key_id: record.key.as_ref().map(|key| key.access_key_id.clone()),
            credentials: record.key.clone(),
            secrets: class.secrets.clone(),
            cluster_id: self.accounts.cluster_id.clone(),
            fencing_token: token.clone(),
        })
    }

    /// Removes an account. Its record contains more than the request; `parameters` is `None` for a request without
    /// them, as in `v1alpha1`.
    pub(super) async fn revoke(
        &self,
        account: &str,
        buckets: &[String],
        parameters: Option<Texts>,
        token: &FencingToken,
    ) -> Result<(), Status> {
        names::check("account_id", account).map_err(invalid)?;
        if buckets.is_empty() {
            return Err(invalid("a bucket is required"));
        }
        let _held = self.locks.lock(format!("account {account}")).await;
        let kept = self.accounts.read(account).await?;
        let asked = || buckets.iter().map(|name| (name.clone(), Access::default())).collect();
        let record = match (&kept, parameters) {
            (Some(StoredAccount { record, .. }), _) => record.clone(),
            (None, Some(parameters)) => {
                buckets.iter().try_for_each(|bucket| names::check("bucket_id", bucket)).map_err(invalid)?;
                Record { buckets: asked(), parameters, key: None, state: Texts::new() }
            }
            (None, None) => {
                tracing::info!(account, "nothing is revoked: the account has no Secret, so it no longer exists");
                return Ok(());
            }
        };
        let class = self.class(record.parameters).await?;
        let known = UntypedAccount {
            account: Account::of_cosi_access(account),
            buckets: accesses(&record.buckets, class.existing),
            parameters: Some(class.parsed),
            state: record.state,
            config_texts: Texts::new(),
            access_key_id: record.key.map(|key| key.access_key_id),
            secrets: class.secrets,
            cluster_id: self.accounts.cluster_id.clone(),
            fencing_token: token.clone(),
        };
        let revoked = self.call("revoke", self.limits.delete, || self.backend.revoke(known)).await?;
        revoked.map_err(|error| not_removed(&error, account))?;
        match kept {
            Some(kept) => self.accounts.remove(kept).await,
            None => Ok(()),
        }
    }

    /// Reads the parameters of a class with the provisioner's types, and the Secrets that they name.
    pub(super) async fn class(&self, mut parameters: Texts) -> Result<Class, Status> {
        let existing = match parameters.remove(EXISTING_BUCKETS).as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                return Err(invalid(format!(
                    "parameter \"{EXISTING_BUCKETS}\": expected true or false, not {other:?}"
                )));
            }
        };
        let parse = |texts: &Texts| self.backend.parse(texts);
        let read = ClassParameters::read(parameters, &self.capabilities.secrets, parse);
        let ClassParameters { parsed, secrets: named } = read.map_err(|bad| match bad {
            BadParameters::Invalid(problem) => invalid(problem),
            BadParameters::Crashed(_) => crashed("Parameters::deserialize"),
        })?;
        if let Some(template) = named.iter().find_map(|secret| secret.template()) {
            return Err(invalid(format!(
                "{template:?} names a Secret by the claim, which COSI does not provide: write the Secret's name"
            )));
        }
        let names = TemplateNames { claim: "", namespace: "", volume: "" };
        let secrets = read_secrets(&self.accounts.client, &named, names).await.map_err(|unread| match unread {
            SecretReadError::Unnamed(problem) => invalid(problem),
            SecretReadError::Missing { namespace, name } => {
                precondition(format!("the Secret {namespace}/{name} that the class names does not exist: create it"))
            }
            SecretReadError::Failed(error) => not_answered(READING, &error),
        })?;
        Ok(Class { parsed: Arc::new(parsed), secrets, existing })
    }

    /// Splits the bucket's settings from the parameters of a BucketClass. The rest is the provisioner's class.
    fn without_settings(&self, parameters: Texts) -> (Texts, Texts) {
        parameters.into_iter().partition(|(key, _)| self.capabilities.bucket_settings.contains(key))
    }

    /// Parses the settings that replace `additionalConfig`, which COSI does not have.
    fn config(&self, settings: &Texts) -> Result<Arc<Parsed>, Status> {
        let read = catch_panic(|| self.backend.parse_config(settings)).map_err(|_| crashed("Config::deserialize"))?;
        read.map(Arc::new).map_err(|error| {
            if settings.is_empty() {
                invalid(format!("this provisioner needs an additionalConfig: {error}"))
            } else {
                invalid(error.to_string())
            }
        })
    }

    async fn call<'a, T: 'a>(
        &'a self,
        method: &'static str,
        limit: Duration,
        run: impl FnOnce() -> BoxFuture<'a, T> + Send + 'a,
    ) -> Result<T, Status> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let call = guarded(limit, &FencingToken::unlimited(), async { run().await }).await;
        call.map_err(|reason| aborted(method, reason))
    }
}

/// Returns the buckets of an account, each with its owner.
fn accesses(buckets: &BTreeMap<String, Access>, existing: bool) -> Vec<BucketAccess> {
    let access = |(name, access): (&String, &Access)| {
        let owner = (!existing).then(|| Account::of_cosi_bucket(name));
        BucketAccess { access: *access, ..BucketAccess::new(name, owner) }
    };
    buckets.iter().map(access).collect()
}

/// Logs the warning, because COSI cannot return one.
fn warn(name: &str, warning: Option<&str>) {
    if let Some(warning) = warning {
        tracing::warn!(name, "{warning}");
    }
}
