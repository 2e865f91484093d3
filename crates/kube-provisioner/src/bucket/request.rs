//! The arguments of a bucket provisioner's methods.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube::Client;
use provisioner_runtime::controller::FencingToken;

use super::account::{Account, BucketAccess, ClaimName};
use super::answer::Credentials;
use super::failure::{BackendConfigError, RequestFailure};
use super::provisioner::BucketProvisioner;
use crate::request::TEST_CLUSTER;
use crate::secrets::Secrets;

/// The argument of [`BucketProvisioner::create_bucket`].
///
/// In tests:
///
/// ```
/// # use kube_provisioner::bucket::BucketRequest;
/// let mut request = BucketRequest::new("photos", (), ());
/// request.config_texts.insert("maxObjects".to_owned(), "1000".to_owned());
/// assert_eq!(request.owner.name, "obc-test-claim-00000000-0000-4000-8000-000000000001");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BucketRequest<P, C> {
    /// The bucket's name: set by the claim, or generated from its prefix and its uid.
    pub name: String,
    /// The account that the bucket is created for. If the backend requires a user as the bucket's owner, use this
    /// account's name.
    pub owner: Account,
    /// The class's parameters, as they were when the attempt began.
    pub parameters: Arc<P>,
    /// The claim's `additionalConfig`.
    pub config: Arc<C>,
    /// The `additionalConfig` as strings, which the provisioner can store for other tools to read.
    pub config_texts: BTreeMap<String, String>,
    /// The last values of [`Bucket::state`](super::Bucket::state) and [`Granted::state`](super::Granted::state); empty
    /// for the first call. Other provisioners of the same backend may have written them.
    pub state: BTreeMap<String, String>,
    /// The Secrets named by the class, by the roles that [the provisioner declares](super::BucketCapabilities::secret).
    pub secrets: Secrets,
    /// Every key of the claim's `additionalConfig` that may have been applied: by the last attempt, by an attempt that
    /// failed midway, or by another provisioner of the same backend. Remove the settings whose keys are here but not in
    /// `config_texts`.
    pub applied_config: BTreeMap<String, String>,
    /// The ID of the cluster in which this provisioner runs, for ownership tags and labels: a bucket whose tags name
    /// another cluster belongs to that cluster.
    pub cluster_id: String,
    /// Reports whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

/// The argument of [`create_bucket`](BucketProvisioner::create_bucket) for a provisioner type.
pub type RequestOf<B> = BucketRequest<<B as BucketProvisioner>::Parameters, <B as BucketProvisioner>::Config>;

impl<P, C> BucketRequest<P, C> {
    /// Creates a request of the claim `test/claim` for a bucket of this name, for use in tests. Its fields can be
    /// changed.
    pub fn new(name: impl Into<String>, parameters: P, config: C) -> Self {
        Self {
            name: name.into(),
            owner: test_account(),
            parameters: Arc::new(parameters),
            config: Arc::new(config),
            config_texts: BTreeMap::new(),
            state: BTreeMap::new(),
            secrets: Secrets::default(),
            applied_config: BTreeMap::new(),
            cluster_id: TEST_CLUSTER.to_owned(),
            fencing_token: FencingToken::unlimited(),
        }
    }
}

/// The argument of [`BucketProvisioner::grant`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GrantRequest<P, C> {
    /// The account that receives access.
    pub account: Account,
    /// The buckets: one, unless the provisioner [supports several](super::BucketCapabilities::multiple_buckets).
    pub buckets: Vec<BucketAccess>,
    /// The class's parameters, as they were when the attempt began.
    pub parameters: Arc<P>,
    /// The claim's `additionalConfig`.
    pub config: Arc<C>,
    /// The `additionalConfig` as strings, which the provisioner can store for other tools to read.
    pub config_texts: BTreeMap<String, String>,
    /// The state as in [`BucketRequest::state`], including what an earlier grant to this account returned.
    pub state: BTreeMap<String, String>,
    /// The ID of the account's current key, once it was delivered. The backend may have other keys, which are removed
    /// later.
    pub access_key_id: Option<String>,
    /// The current key as stored in the claim's Secret, if the Secret is unchanged since the controller wrote it. For
    /// backends that show a key only once.
    pub credentials: Option<Credentials>,
    /// The Secrets named by the class, as in [`BucketRequest::secrets`].
    pub secrets: Secrets,
    /// The ID of the cluster in which this provisioner runs, as in [`BucketRequest::cluster_id`].
    pub cluster_id: String,
    /// Reports whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

/// The argument of [`grant`](BucketProvisioner::grant) for a provisioner type.
pub type GrantOf<B> = GrantRequest<<B as BucketProvisioner>::Parameters, <B as BucketProvisioner>::Config>;

impl<P, C> GrantRequest<P, C> {
    /// Creates a request of the claim `test/claim` for its own bucket of this name, for use in tests. Its fields can be
    /// changed.
    pub fn new(bucket: impl Into<String>, parameters: P, config: C) -> Self {
        let account = test_account();
        Self {
            buckets: vec![BucketAccess::new(bucket, Some(account.clone()))],
            account,
            parameters: Arc::new(parameters),
            config: Arc::new(config),
            config_texts: BTreeMap::new(),
            state: BTreeMap::new(),
            access_key_id: None,
            credentials: None,
            secrets: Secrets::default(),
            cluster_id: TEST_CLUSTER.to_owned(),
            fencing_token: FencingToken::unlimited(),
        }
    }

    /// Returns the bucket, for provisioners that receive one at a time.
    ///
    /// # Panics
    /// If a test has created a request without buckets.
    pub fn bucket(&self) -> &BucketAccess {
        &self.buckets[0]
    }

    /// Checks that a claim whose bucket was not created for it sets none of these keys of `additionalConfig`, which are
    /// [settings of the bucket].
    ///
    /// [settings of the bucket]: super::BucketCapabilities::bucket_settings
    ///
    /// # Errors
    /// [`RequestFailure::Refused`] if the claim sets one of them.
    pub fn check_settings(&self, bucket: &BucketAccess, settings: &[&str]) -> Result<(), RequestFailure> {
        match settings.iter().find(|key| self.config_texts.contains_key(**key)) {
            Some(key) if !bucket.belongs_to(&self.account) => Err(RequestFailure::Refused(format!(
                "{key} is not supported for a bucket that was not created for this claim: remove it from additionalConfig"
            ))),
            _ => Ok(()),
        }
    }
}

/// The bucket to delete, as recorded in its ObjectBucket.
///
/// In tests:
///
/// ```
/// # use kube_provisioner::bucket::ProvisionedBucket;
/// let mut bucket = ProvisionedBucket::new("photos", ());
/// bucket.state.insert("bucketId".to_owned(), "b-1".to_owned());
/// assert_eq!(bucket.name, "photos");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProvisionedBucket<P> {
    /// The bucket's name.
    pub name: String,
    /// The account that the bucket was created for. The claim may no longer exist; its uid is empty if an object of
    /// another provisioner does not contain it.
    pub owner: Account,
    /// The class's parameters as they were when the bucket was created. `None` for a bucket of another provisioner
    /// whose class no longer exists.
    pub parameters: Option<Arc<P>>,
    /// The state as in [`BucketRequest::state`]. Empty if no attempt has finished yet.
    pub state: BTreeMap<String, String>,
    /// The claim's `additionalConfig`, as it was last applied, and the settings that an attempt that failed midway may
    /// have applied.
    pub config_texts: BTreeMap<String, String>,
    /// The Secrets that the class named, with their current data.
    pub secrets: Secrets,
    /// The ID of the cluster in which this provisioner runs, as in [`BucketRequest::cluster_id`].
    pub cluster_id: String,
    /// Reports whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

impl<P> ProvisionedBucket<P> {
    /// Creates a bucket of the claim `test/claim`, for use in tests. Its fields can be changed.
    pub fn new(name: impl Into<String>, parameters: P) -> Self {
        let request = BucketRequest::new(name, parameters, ());
        Self {
            name: request.name,
            owner: request.owner,
            parameters: Some(request.parameters),
            state: request.state,
            config_texts: request.config_texts,
            secrets: request.secrets,
            cluster_id: request.cluster_id,
            fencing_token: request.fencing_token,
        }
    }

    /// Returns the recorded data, if it is enough to find the backend.
    ///
    /// # Errors
    /// If the class no longer exists and its parameters are unknown.
    pub fn record(&self) -> Result<Record<'_, P>, BackendConfigError> {
        Ok(Record {
            account: &self.owner,
            parameters: self.parameters.as_ref().ok_or_else(class_is_gone)?,
            state: &self.state,
            config_texts: &self.config_texts,
            secrets: &self.secrets,
            cluster_id: &self.cluster_id,
        })
    }
}

/// The data recorded in an ObjectBucket, from a [`ProvisionedBucket`] or a [`GrantedAccount`]. Its fields have the same
/// meaning there.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields of both")]
pub struct Record<'a, P> {
    pub account: &'a Account,
    pub parameters: &'a Arc<P>,
    pub state: &'a BTreeMap<String, String>,
    pub config_texts: &'a BTreeMap<String, String>,
    pub secrets: &'a Secrets,
    pub cluster_id: &'a str,
}

fn class_is_gone() -> BackendConfigError {
    BackendConfigError::new(
        "the StorageClass no longer exists, and nothing else records where the bucket is: create the class again",
    )
}

/// A bucket that may exist.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BucketLookup<P> {
    /// The bucket's name.
    pub name: String,
    /// The class's parameters.
    pub parameters: Arc<P>,
    /// The Secrets named by the class, as in [`BucketRequest::secrets`].
    pub secrets: Secrets,
}

impl<P> BucketLookup<P> {
    /// Creates a lookup, for use in tests. Its fields can be changed.
    pub fn new(name: impl Into<String>, parameters: P) -> Self {
        Self { name: name.into(), parameters: Arc::new(parameters), secrets: Secrets::default() }
    }
}

/// An account with access to buckets, whose keys are to be changed or which is to be removed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GrantedAccount<P> {
    /// The account. Its claim may no longer exist, as in [`ProvisionedBucket::owner`].
    pub account: Account,
    /// All buckets to which the account has access. They may no longer exist.
    pub buckets: Vec<BucketAccess>,
    /// The class's parameters, as in [`ProvisionedBucket::parameters`].
    pub parameters: Option<Arc<P>>,
    /// The state as in [`GrantRequest::state`]. Empty if no attempt has finished yet.
    pub state: BTreeMap<String, String>,
    /// The claim's `additionalConfig`, as it was last applied.
    pub config_texts: BTreeMap<String, String>,
    /// The ID of the account's current key, if it is known.
    pub access_key_id: Option<String>,
    /// The Secrets that the class named, with their current data.
    pub secrets: Secrets,
    /// The ID of the cluster in which this provisioner runs, as in [`BucketRequest::cluster_id`].
    pub cluster_id: String,
    /// Reports whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

impl<P> GrantedAccount<P> {
    /// Creates the account of the claim `test/claim` with its own bucket of this name, for use in tests. Its fields can
    /// be changed.
    pub fn new(bucket: impl Into<String>, parameters: P) -> Self {
        let request = GrantRequest::new(bucket, parameters, ());
        Self {
            account: request.account,
            buckets: request.buckets,
            parameters: Some(request.parameters),
            state: request.state,
            config_texts: request.config_texts,
            access_key_id: None,
            secrets: request.secrets,
            cluster_id: request.cluster_id,
            fencing_token: request.fencing_token,
        }
    }

    /// Returns the recorded data, like [`ProvisionedBucket::record`].
    ///
    /// # Errors
    /// If the class no longer exists and its parameters are unknown.
    pub fn record(&self) -> Result<Record<'_, P>, BackendConfigError> {
        Ok(Record {
            account: &self.account,
            parameters: self.parameters.as_ref().ok_or_else(class_is_gone)?,
            state: &self.state,
            config_texts: &self.config_texts,
            secrets: &self.secrets,
            cluster_id: &self.cluster_id,
        })
    }

    /// Returns the bucket, like [`GrantRequest::bucket`].
    ///
    /// # Panics
    /// If a test has created an account without buckets.
    pub fn bucket(&self) -> &BucketAccess {
        &self.buckets[0]
    }
}

fn test_account() -> Account {
    Account::of(ClaimName {
        namespace: "test".to_owned(),
        name: "claim".to_owned(),
        uid: "00000000-0000-4000-8000-000000000001".to_owned(),
    })
}

/// The argument of [`BucketHooks::start`](super::BucketHooks::start).
#[derive(Clone)]
#[non_exhaustive]
pub struct BucketStartContext {
    /// The client that the controller uses. Requests of the provisioner itself need
    /// [permissions of their own](super::BucketHooks::access_rules).
    pub client: Client,
    /// The ID of the cluster in which this provisioner runs, as in [`BucketRequest::cluster_id`].
    pub cluster_id: String,
}

impl BucketStartContext {
    /// Creates an argument, for use in tests. Its fields can be changed.
    pub fn new(client: Client) -> Self {
        Self { client, cluster_id: TEST_CLUSTER.to_owned() }
    }
}

impl fmt::Debug for BucketStartContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketStartContext").field("cluster_id", &self.cluster_id).finish_non_exhaustive()
    }
}
