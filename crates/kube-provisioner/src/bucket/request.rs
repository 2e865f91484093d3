//! The arguments of an author's methods for buckets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube::Client;
use provisioner_runtime::controller::FencingToken;

use super::account::{Account, BucketAccess, ClaimName};
use super::answer::Credentials;
use super::failure::{Misconfigured, Objection};
use super::provisioner::BucketProvisioner;
use crate::request::TEST_CLUSTER;
use crate::secrets::Secrets;

/// What [`BucketProvisioner::create_bucket`] is asked for.
///
/// One for an author's own tests:
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
    /// The bucket's name: the claim's own, or one made of its prefix and its uid.
    pub name: String,
    /// For whom the bucket is made. Where the backend wants a user to own it, that is a user of this name.
    pub owner: Account,
    /// The class's parameters, as they were when the attempt began.
    pub parameters: Arc<P>,
    /// The claim's `additionalConfig`.
    pub config: Arc<C>,
    /// The same as texts, to be written down for others to read.
    pub config_texts: BTreeMap<String, String>,
    /// What [`Bucket::state`](super::Bucket::state) and [`Granted::state`](super::Granted::state) were the last time; empty the
    /// first time. Other provisioners of the same backend may have written it.
    pub state: BTreeMap<String, String>,
    /// The Secrets that the class names, by the roles that [the author declares](super::BucketCapabilities::secret).
    pub secrets: Secrets,
    /// Every key of the claim's `additionalConfig` that may have been applied: the last time, by an attempt that failed on its
    /// way, or by another provisioner of the same backend. What it has and `config_texts` lacks is to be taken away.
    pub applied_config: BTreeMap<String, String>,
    /// The cluster in which this provisioner runs, for the tags and labels that prove ownership: a bucket whose tags name
    /// another cluster belongs to that cluster.
    pub cluster_id: String,
    /// Whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

/// The request of one author's [`create_bucket`](BucketProvisioner::create_bucket).
pub type RequestOf<B> = BucketRequest<<B as BucketProvisioner>::Parameters, <B as BucketProvisioner>::Config>;

impl<P, C> BucketRequest<P, C> {
    /// A request of the claim `test/claim` for a bucket of this name, for an author's own tests. Its fields may be changed.
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

/// What [`BucketProvisioner::grant`] is asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GrantRequest<P, C> {
    /// Who is let in.
    pub account: Account,
    /// The buckets: one, unless the author [declares more](super::BucketCapabilities::multiple_buckets).
    pub buckets: Vec<BucketAccess>,
    /// The class's parameters, as they were when the attempt began.
    pub parameters: Arc<P>,
    /// The claim's `additionalConfig`.
    pub config: Arc<C>,
    /// The same as texts, to be written down for others to read.
    pub config_texts: BTreeMap<String, String>,
    /// As [`BucketRequest::state`]: what an earlier grant to this account has answered is in it.
    pub state: BTreeMap<String, String>,
    /// The id of the key that the account has, once it was delivered. The backend may have others, which are removed later.
    pub access_key_id: Option<String>,
    /// That key as it is in the claim's Secret, where the Secret is as the controller has written it. For backends that
    /// show a key only once.
    pub credentials: Option<Credentials>,
    /// The Secrets that the class names, as [`BucketRequest::secrets`].
    pub secrets: Secrets,
    /// The cluster in which this provisioner runs, as [`BucketRequest::cluster_id`].
    pub cluster_id: String,
    /// Whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

/// The request of one author's [`grant`](BucketProvisioner::grant).
pub type GrantOf<B> = GrantRequest<<B as BucketProvisioner>::Parameters, <B as BucketProvisioner>::Config>;

impl<P, C> GrantRequest<P, C> {
    /// A request of the claim `test/claim` for its own bucket of this name, for an author's own tests. Its fields may be
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

    /// The bucket, for authors who get one.
    ///
    /// # Panics
    /// Where a test has made a request for none.
    pub fn bucket(&self) -> &BucketAccess {
        &self.buckets[0]
    }

    /// Refuses a grant whose claim sets one of these keys of `additionalConfig`, which are [settings of the bucket], though the
    /// bucket was not made for it.
    ///
    /// [settings of the bucket]: super::BucketCapabilities::bucket_settings
    ///
    /// # Errors
    /// [`Objection::Refused`].
    pub fn check_settings(&self, bucket: &BucketAccess, settings: &[&str]) -> Result<(), Objection> {
        match settings.iter().find(|key| self.config_texts.contains_key(**key)) {
            Some(key) if !bucket.belongs_to(&self.account) => Err(Objection::Refused(format!(
                "{key} is not possible for a bucket that was not made for this claim: remove it from additionalConfig"
            ))),
            _ => Ok(()),
        }
    }
}

/// The bucket that is to be deleted, as its ObjectBucket records it.
///
/// One for an author's own tests:
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
    /// For whom it was made. The claim may be gone; its uid is empty if an object of another provisioner does not have it.
    pub owner: Account,
    /// The class's parameters as they were when the bucket was made. `None` for a bucket of another provisioner whose class
    /// is gone.
    pub parameters: Option<Arc<P>>,
    /// As [`BucketRequest::state`]. Empty where no attempt has come to its end yet.
    pub state: BTreeMap<String, String>,
    /// The claim's `additionalConfig`, as it was applied the last time.
    pub config_texts: BTreeMap<String, String>,
    /// The Secrets that the class named, as they are now.
    pub secrets: Secrets,
    /// The cluster in which this provisioner runs, as [`BucketRequest::cluster_id`].
    pub cluster_id: String,
    /// Whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

impl<P> ProvisionedBucket<P> {
    /// A bucket of the claim `test/claim`, for an author's own tests. Its fields may be changed.
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
}

impl<P> ProvisionedBucket<P> {
    /// What is recorded, if that is enough to find the backend.
    ///
    /// # Errors
    /// When the class is gone.
    pub fn record(&self) -> Result<Record<'_, P>, Misconfigured> {
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

/// What an ObjectBucket records, in a [`ProvisionedBucket`] as in a [`GrantedAccount`]. The fields are theirs.
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

fn class_is_gone() -> Misconfigured {
    Misconfigured::new("the StorageClass is gone, and only it says where the bucket is: make it again")
}

/// A bucket that may exist.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BucketLookup<P> {
    /// The bucket's name.
    pub name: String,
    /// The class's parameters.
    pub parameters: Arc<P>,
    /// The Secrets that the class names, as [`BucketRequest::secrets`].
    pub secrets: Secrets,
}

impl<P> BucketLookup<P> {
    /// For an author's own tests. Its fields may be changed.
    pub fn new(name: impl Into<String>, parameters: P) -> Self {
        Self { name: name.into(), parameters: Arc::new(parameters), secrets: Secrets::default() }
    }
}

/// An account that was let into buckets, and whose keys are to be changed, or which is to go.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GrantedAccount<P> {
    /// The account. Its claim may be gone, as [`ProvisionedBucket::owner`].
    pub account: Account,
    /// All buckets that it was let into. They may be gone.
    pub buckets: Vec<BucketAccess>,
    /// The class's parameters, as [`ProvisionedBucket::parameters`].
    pub parameters: Option<Arc<P>>,
    /// As [`GrantRequest::state`]. Empty where no attempt has come to its end yet.
    pub state: BTreeMap<String, String>,
    /// The claim's `additionalConfig`, as it was applied the last time.
    pub config_texts: BTreeMap<String, String>,
    /// The id of the key that the account has, if it is known.
    pub access_key_id: Option<String>,
    /// The Secrets that the class named, as they are now.
    pub secrets: Secrets,
    /// The cluster in which this provisioner runs, as [`BucketRequest::cluster_id`].
    pub cluster_id: String,
    /// Whether this call may still act, for threads that cannot be dropped.
    pub fencing_token: FencingToken,
}

impl<P> GrantedAccount<P> {
    /// The account of the claim `test/claim` with its own bucket of this name, for an author's own tests. Its fields may be
    /// changed.
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

    /// What is recorded, as [`ProvisionedBucket::record`].
    ///
    /// # Errors
    /// When the class is gone.
    pub fn record(&self) -> Result<Record<'_, P>, Misconfigured> {
        Ok(Record {
            account: &self.account,
            parameters: self.parameters.as_ref().ok_or_else(class_is_gone)?,
            state: &self.state,
            config_texts: &self.config_texts,
            secrets: &self.secrets,
            cluster_id: &self.cluster_id,
        })
    }

    /// The bucket, as [`GrantRequest::bucket`].
    ///
    /// # Panics
    /// Where a test has made one without.
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

/// What [`BucketHooks::start`](super::BucketHooks::start) is given.
#[derive(Clone)]
#[non_exhaustive]
pub struct BucketStart {
    /// The client that the controller uses. What the author does with it needs
    /// [rights of its own](super::BucketHooks::access_rules).
    pub client: Client,
    /// The cluster in which this provisioner runs, as [`BucketRequest::cluster_id`].
    pub cluster_id: String,
}

impl BucketStart {
    /// For an author's own tests. Its fields may be changed.
    pub fn new(client: Client) -> Self {
        Self { client, cluster_id: TEST_CLUSTER.to_owned() }
    }
}

impl fmt::Debug for BucketStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketStart").field("cluster_id", &self.cluster_id).finish_non_exhaustive()
    }
}
