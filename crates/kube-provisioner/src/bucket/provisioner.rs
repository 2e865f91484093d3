//! The trait that bucket provisioners implement.

use serde::de::DeserializeOwned;

use super::answer::{Bucket, Granted};
use super::request::{GrantOf, GrantedAccount, ProvisionedBucket, RequestOf};
use crate::capabilities::SecretRole;
use crate::error::{DeleteError, ProvisionError};

/// Creates and deletes buckets, and accounts with access to them.
///
/// For a claim that requests a new bucket, the controller calls `create_bucket` and then `grant`; when the claim is
/// deleted, `delete_bucket` and then `revoke`. For a claim on an existing bucket, it only calls `grant` and `revoke`.
///
/// # Contract
///
/// * **Idempotent.** Every call may be repeated with the same names, also after a crash: it must find what an earlier
///   call created. Removing what no longer exists must succeed. [`Account::name`] is a name for the user in the
///   backend.
/// * **Never touch a bucket that belongs to another owner.** Refuse a bucket of the requested name that was not created
///   for this owner with [`ProvisionError::invalid`], and never delete it: `delete_bucket` is called for unfinished
///   attempts too, so it must ask the backend who owns the bucket.
/// * **Each method cleans up after its counterpart.** `delete_bucket` removes what `create_bucket` has created, and
///   `revoke` what `grant` has created, also if either failed midway. Some backends require a user that owns the
///   bucket: `create_bucket` creates it, under the name of the bucket's owner, and `grant` to that account gives the
///   same user its key. The later of the two removing calls then deletes the user.
/// * **One call at a time per claim.** Calls for different claims run concurrently.
/// * **Failed calls may leave something behind.** `?` and [`ProvisionError::retry`] mean "something may be left";
///   [`ProvisionError::nothing_left`], `invalid` and `ignored` state that the backend contains nothing that this method
///   creates.
/// * **Cancellable.** A call that exceeds its time limit is dropped at an `.await` and repeated later. As for
///   [`Provisioner`](crate::Provisioner), no method may block its thread.
/// * A panic in any method fails only the current attempt.
///
/// [`BucketHooks`](crate::bucket::BucketHooks) has the optional methods, such as key rotation.
///
/// [`Account::name`]: super::Account::name
///
/// # Example
///
/// ```
/// use kube_provisioner::bucket::{
///     Bucket, BucketHooks, BucketProvisioner, Credentials, Endpoint, GrantOf, Granted, GrantedAccount, ProvisionedBucket, RequestOf,
/// };
/// use kube_provisioner::{DeleteError, ProvisionError};
///
/// struct Store;
///
/// #[derive(serde::Deserialize)]
/// struct Parameters {
///     /// Host of the store
///     host: String,
/// }
///
/// impl BucketProvisioner for Store {
///     type Parameters = Parameters;
///     type Config = ();
///
///     async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
///         // ... create the bucket request.name for request.owner, or find it ...
///         Ok(Bucket::new(Endpoint::https(&request.parameters.host)))
///     }
///
///     async fn delete_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
///         // ... delete the bucket with its objects, if it belongs to bucket.owner ...
///         Ok(())
///     }
///
///     async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
///         // ... create the user request.account.name, or find it, and grant it access to request.bucket() ...
///         Ok(Granted::new(Endpoint::https(&request.parameters.host), Credentials::new("id", "secret")))
///     }
///
///     async fn revoke(&self, account: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
///         // ... delete the user account.account.name with its keys and permissions; leave the buckets ...
///         Ok(())
///     }
/// }
///
/// impl BucketHooks for Store {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a bucket provisioner",
    note = "implement `kube_provisioner::bucket::BucketProvisioner`: `type Parameters`, `type Config`, `create_bucket`, `delete_bucket`, `grant` and `revoke`"
)]
pub trait BucketProvisioner: Send + Sync + Sized + 'static {
    /// The class's `parameters` except the controller's: a struct with named fields, `()` if no parameters are allowed,
    /// or a `BTreeMap<String, String>` for arbitrary ones. An event on the claim names unknown and malformed keys, see
    /// [`parameters`](crate::parameters).
    type Parameters: DeserializeOwned + Send + Sync + 'static;

    /// The claim's `additionalConfig`, parsed in the same way.
    type Config: DeserializeOwned + Send + Sync + 'static;

    /// Creates a bucket, or finds what an earlier call created and updates it to match the request. It grants no access
    /// yet.
    ///
    /// The controller calls it for a new claim, when the claim's `additionalConfig` changes, and when the claim's
    /// Secret is lost.
    ///
    /// # Errors
    /// The [`ProvisionError`] determines how the controller continues: `?` means "try again later, something may be
    /// left".
    fn create_bucket(&self, request: RequestOf<Self>) -> impl Future<Output = Result<Bucket, ProvisionError>> + Send;

    /// Deletes the bucket with its contents, and everything else that [`create_bucket`](Self::create_bucket) has
    /// created. Returns `Ok` if it no longer exists. Must not remove anything that does not belong to the owner. Revoke
    /// the access of all accounts before you empty the bucket, because a client that still writes could prevent it from
    /// ever becoming empty.
    ///
    /// # Errors
    /// The [`DeleteError`] determines how the controller continues: `?` means "try again later".
    fn delete_bucket(
        &self,
        bucket: ProvisionedBucket<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// Creates an account with a key, or finds it, and grants it access to the buckets, which exist. If a bucket has an
    /// [owner](super::BucketAccess::owner), verify that it belongs to this owner. Do not change the buckets or the
    /// permissions of other accounts.
    ///
    /// The controller calls it whenever it calls [`create_bucket`](Self::create_bucket). It returns [the account's
    /// current key](super::GrantRequest::access_key_id), or a new one if the backend does not show it again. Former
    /// keys must then stay valid, because pods may use them: the controller calls
    /// [`revoke_old_keys`](crate::bucket::BucketHooks::revoke_old_keys) later. If the request has no current key, no
    /// key of the account was delivered, and all of them can be removed.
    ///
    /// # Errors
    /// Same as [`create_bucket`](Self::create_bucket).
    fn grant(&self, request: GrantOf<Self>) -> impl Future<Output = Result<Granted, ProvisionError>> + Send;

    /// Removes the account with its keys, and its permissions on these buckets, which are all that it has. Buckets,
    /// their contents and other grants are left untouched. Buckets may no longer exist.
    ///
    /// # Errors
    /// Same as [`delete_bucket`](Self::delete_bucket).
    fn revoke(&self, account: GrantedAccount<Self::Parameters>)
    -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// Declares the features that classes may use.
    fn capabilities() -> BucketCapabilities {
        BucketCapabilities::default()
    }
}

/// The features that a bucket provisioner supports in addition to creating and deleting buckets.
///
/// ```
/// use kube_provisioner::bucket::BucketCapabilities;
///
/// let capabilities = BucketCapabilities::default().rotation().secret("admin");
/// # let _ = capabilities;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct BucketCapabilities {
    pub(crate) rotation: bool,
    pub(crate) multiple_buckets: bool,
    pub(crate) assets: bool,
    pub(crate) bucket_settings: Vec<String>,
    pub(crate) secrets: Vec<SecretRole>,
}

impl BucketCapabilities {
    /// Supports key rotation: the provisioner implements [`rotate`](crate::bucket::BucketHooks::rotate) and
    /// [`revoke_old_keys`](crate::bucket::BucketHooks::revoke_old_keys).
    pub fn rotation(self) -> Self {
        Self { rotation: true, ..self }
    }

    /// Supports several buckets in one call of [`grant`](BucketProvisioner::grant), as a BucketAccess of the Container
    /// Object Storage Interface (COSI) requests. Without this call all lists contain one bucket, as they do for
    /// ObjectBucketClaims.
    pub fn multiple_buckets(self) -> Self {
        Self { multiple_buckets: true, ..self }
    }

    /// Enables the command `orphans`: the provisioner implements
    /// [`list_assets`](crate::bucket::BucketHooks::list_assets), and classes have the parameter `deletionPolicy`.
    pub fn assets(self) -> Self {
        Self { assets: true, ..self }
    }

    /// Names the keys of `additionalConfig` that are settings of the bucket. COSI has no `additionalConfig`, so there
    /// they are parameters of a BucketClass.
    pub fn bucket_settings<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.bucket_settings.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Requires every class to name a Secret by two parameters, like
    /// [`Capabilities::secret`](crate::Capabilities::secret) for volumes; `${pvc.name}` and `${pvc.namespace}` are
    /// replaced by the claim's name and namespace. The account needs the permission to get these Secrets.
    pub fn secret(mut self, role: impl Into<String>) -> Self {
        self.secrets.push(SecretRole { role: role.into(), required: true });
        self
    }

    /// Allows classes to name a Secret, like [`secret`](Self::secret), but does not require it.
    pub fn optional_secret(mut self, role: impl Into<String>) -> Self {
        self.secrets.push(SecretRole { role: role.into(), required: false });
        self
    }
}
