//! The trait that an author of a bucket provisioner implements.

use serde::de::DeserializeOwned;

use super::answer::{Bucket, Granted};
use super::request::{GrantOf, GrantedAccount, ProvisionedBucket, RequestOf};
use crate::capabilities::SecretRole;
use crate::error::{DeleteError, ProvisionError};

/// Makes and removes buckets, and accounts that may use them.
///
/// A claim for a new bucket is `create_bucket` and then `grant`; its end is `delete_bucket` and then `revoke`. A claim on a
/// bucket that exists is `grant` and `revoke` alone.
///
/// # Contract
///
/// * **Idempotent.** Every call may come again, after a crash too, with the same names: it must find what an earlier call
///   made. Removing what is already gone is success. [`Account::name`] is a name for the user in the backend.
/// * **Nothing that is not ours.** A bucket of the wanted name that was not made for this owner is refused with
///   [`ProvisionError::invalid`], and never deleted: `delete_bucket` is called for unfinished attempts too, so it asks the
///   backend whose the bucket is.
/// * **Each method cleans up after its counterpart.** `delete_bucket` removes what `create_bucket` has made, and `revoke` what
///   `grant` has made, also where either has failed on its way. Some backends want a user to own a bucket: `create_bucket` makes it, under
///   the name of the bucket's owner, and `grant` to that account gives the same user its key. Then the call that comes later
///   removes it.
/// * **One call at a time per claim.** Calls for different claims run at the same time.
/// * **Something may be left.** `?` and [`ProvisionError::retry`] mean "something may be there";
///   [`ProvisionError::nothing_left`], `invalid` and `ignored` say that nothing is that this method makes.
/// * **Cancellable.** A call that takes longer than its time limit is dropped at an `.await` and comes again.
/// * A panic costs the attempt and nothing else, in every method.
///
/// Rotation of keys and other abilities are in [`BucketHooks`](crate::bucket::BucketHooks).
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
///         // ... make the bucket request.name for request.owner, or find it ...
///         Ok(Bucket::new(Endpoint::https(&request.parameters.host)))
///     }
///
///     async fn delete_bucket(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
///         // ... remove the bucket with its objects, if it was made for bucket.owner ...
///         Ok(())
///     }
///
///     async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
///         // ... make the user request.account.name, or find it, and let it into request.bucket() ...
///         Ok(Granted::new(Endpoint::https(&request.parameters.host), Credentials::new("id", "secret")))
///     }
///
///     async fn revoke(&self, account: GrantedAccount<Parameters>) -> Result<(), DeleteError> {
///         // ... remove the user account.account.name, its keys and its rights; leave the buckets ...
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
    /// The class's `parameters` without those of the controller: a struct with named fields, `()` where none are allowed,
    /// or a `BTreeMap<String, String>` for anything. An event of the claim names unknown and malformed keys, see
    /// [`parameters`](crate::parameters).
    type Parameters: DeserializeOwned + Send + Sync + 'static;

    /// The claim's `additionalConfig`, read in the same way.
    type Config: DeserializeOwned + Send + Sync + 'static;

    /// Makes a bucket, or finds what an earlier call made and brings it in line with the request. Nobody may use it yet.
    ///
    /// It is called for a new claim, when the claim's `additionalConfig` changes, and when the claim's Secret is lost.
    ///
    /// # Errors
    /// [`ProvisionError`] says what the failure means: `?` is "try again later, something may be left".
    fn create_bucket(&self, request: RequestOf<Self>) -> impl Future<Output = Result<Bucket, ProvisionError>> + Send;

    /// Removes the bucket with what is in it, and what else [`create_bucket`](Self::create_bucket) has made. What is gone already
    /// is success. What is not the owner's stays. Take away the rights of all accounts before you empty the bucket, because a
    /// client that still writes could keep it from ever becoming empty.
    ///
    /// # Errors
    /// [`DeleteError`] says what the failure means: `?` is "try again later".
    fn delete_bucket(
        &self,
        bucket: ProvisionedBucket<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// Makes an account with a key, or finds it, and lets it into the buckets, which exist. A bucket that has an
    /// [owner](super::BucketAccess::owner) must be found to be the owner's. The buckets and the rights of others stay as they are.
    ///
    /// It is called when [`create_bucket`](Self::create_bucket) is, and answers with the key [that the account
    /// has](super::GrantRequest::access_key_id), or with a new one if the backend does not show it. The former keys stay valid then,
    /// because pods may use them: the controller calls [`retire`](crate::bucket::BucketHooks::retire) later. If the account has no such key, no key of it was
    /// delivered, and all of them can be removed.
    ///
    /// # Errors
    /// As of [`create_bucket`](Self::create_bucket).
    fn grant(&self, request: GrantOf<Self>) -> impl Future<Output = Result<Granted, ProvisionError>> + Send;

    /// Removes the account with its keys, and its rights in these buckets, which are all that it has. The buckets stay, with what
    /// is in them and who else may use them; they may also be gone.
    ///
    /// # Errors
    /// As of [`delete_bucket`](Self::delete_bucket).
    fn revoke(&self, account: GrantedAccount<Self::Parameters>)
    -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// What classes may ask for.
    fn capabilities() -> BucketCapabilities {
        BucketCapabilities::default()
    }
}

/// What a bucket provisioner can do beyond making and removing buckets.
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
    /// Keys can be rotated: the author implements [`rotate`](crate::bucket::BucketHooks::rotate) and
    /// [`retire`](crate::bucket::BucketHooks::retire).
    pub fn rotation(mut self) -> Self {
        self.rotation = true;
        self
    }

    /// One call of [`grant`](BucketProvisioner::grant) may let an account into several buckets, as a BucketAccess of the Container
    /// Object Storage Interface (COSI) asks for. Without this call all lists contain one bucket, as they do for ObjectBucketClaims.
    pub fn multiple_buckets(mut self) -> Self {
        self.multiple_buckets = true;
        self
    }

    /// The program has the command `orphans`: the author implements [`list_assets`](crate::bucket::BucketHooks::list_assets), and classes have
    /// the parameter `deletionPolicy`.
    pub fn assets(mut self) -> Self {
        self.assets = true;
        self
    }

    /// The keys of `additionalConfig` that are settings of the bucket. COSI has no `additionalConfig`, so there they are parameters of a
    /// BucketClass.
    pub fn bucket_settings<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.bucket_settings.extend(keys.into_iter().map(Into::into));
        self
    }

    /// A Secret that every class names by two parameters, as [`Capabilities::secret`](crate::Capabilities::secret) of volumes;
    /// `${pvc.name}` and `${pvc.namespace}` stand for the claim's name and namespace. The account needs the right to get these
    /// Secrets.
    pub fn secret(self, role: impl Into<String>) -> Self {
        self.with_secret(role.into(), true)
    }

    /// As [`secret`](Self::secret), but a class need not name it.
    pub fn optional_secret(self, role: impl Into<String>) -> Self {
        self.with_secret(role.into(), false)
    }

    fn with_secret(mut self, role: String, required: bool) -> Self {
        self.secrets.push(SecretRole { role, required });
        self
    }
}
