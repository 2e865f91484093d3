//! The trait that an author of a bucket provisioner implements.

use provisioner_runtime::access::AccessRule;
use serde::de::DeserializeOwned;

use super::request::{Bucket, BucketStart, Credentials, ProvisionedBucket, RequestOf, Source};
use crate::capabilities::SecretRole;
use crate::error::{DeleteError, ProvisionError, StartError};

/// Makes and removes buckets, and users for them.
///
/// # Contract
///
/// * **Idempotent.** Every call may come again, after a crash too, with the same names: it must find what an earlier call
///   made. Deleting what is already gone is success. [`ClaimName::user`] is a name for the claim's user.
/// * **Nothing that is not ours.** A bucket of the wanted name that was not made for this claim is refused with
///   [`ProvisionError::invalid`], and never deleted: `delete` is called for unfinished attempts too, so it asks the backend
///   whose the bucket is.
/// * **One call at a time per claim.** Calls for different claims run at the same time.
/// * **Something may be left.** `?` and [`ProvisionError::retry`] mean "something may be there";
///   [`ProvisionError::nothing_left`], `invalid` and `ignored` say that nothing is.
/// * **Cancellable.** A call that takes longer than its time limit is dropped at an `.await` and comes again.
/// * A panic costs the attempt and nothing else, in every method.
///
/// [`ClaimName::user`]: super::ClaimName::user
///
/// # Example
///
/// ```
/// use kube_provisioner::bucket::{Bucket, BucketProvisioner, Credentials, Endpoint, ProvisionedBucket, RequestOf};
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
///     async fn provision(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
///         // ... make the user request.claim.user() and the bucket request.name, or find them ...
///         let endpoint = Endpoint::https(&request.parameters.host);
///         Ok(Bucket::new(endpoint, Credentials::new("id", "secret")).state("user", request.claim.user()))
///     }
///
///     async fn grant(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
///         // ... the bucket request.name must exist; make the user and let it in ...
/// #       self.provision(request).await
///     }
///
///     async fn delete(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
///         // ... remove the bucket with its objects, then the user ...
///         Ok(())
///     }
///
///     async fn revoke(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
///         // ... remove the user; leave the bucket ...
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a bucket provisioner",
    note = "implement `kube_provisioner::bucket::BucketProvisioner`: `type Parameters`, `type Config`, `provision`, `grant`, `delete` and `revoke`"
)]
pub trait BucketProvisioner: Send + Sync + Sized + 'static {
    /// The class's `parameters` without those of the controller: a struct with named fields, `()` where none are allowed,
    /// or a `BTreeMap<String, String>` for anything. An event of the claim names unknown and malformed keys, see
    /// [`parameters`](crate::parameters).
    type Parameters: DeserializeOwned + Send + Sync + 'static;

    /// The claim's `additionalConfig`, read in the same way.
    type Config: DeserializeOwned + Send + Sync + 'static;

    /// Makes a bucket and its user, or finds what an earlier call made and brings it in line with the request.
    ///
    /// It is called for a new claim, when the claim's `additionalConfig` changes, and when the claim's Secret is lost: then
    /// it answers with the key [that the user has](super::BucketRequest::access_key_id), or with a new one if the backend
    /// does not show it.
    ///
    /// # Errors
    /// [`ProvisionError`] says what the failure means: `?` is "try again later, something may be left".
    fn provision(&self, request: RequestOf<Self>) -> impl Future<Output = Result<Bucket, ProvisionError>> + Send;

    /// Makes a user for a bucket that exists. The class names it, or it was made for
    /// [another claim of the namespace](super::BucketRequest::made_for), which must be found true. The bucket and the rights of
    /// others stay as they are. Called when [`provision`](Self::provision) is.
    ///
    /// # Errors
    /// As of [`provision`](Self::provision).
    fn grant(&self, request: RequestOf<Self>) -> impl Future<Output = Result<Bucket, ProvisionError>> + Send;

    /// Removes the bucket with what is in it, and the user. What is gone already is success. What is not the claim's stays.
    ///
    /// # Errors
    /// [`DeleteError`] says what the failure means: `?` is "try again later".
    fn delete(
        &self,
        bucket: ProvisionedBucket<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// Removes the user, its keys and its rights. The bucket stays with what is in it: it was not made for the claim, or its class
    /// wants it kept.
    ///
    /// # Errors
    /// As of [`delete`](Self::delete).
    fn revoke(
        &self,
        bucket: ProvisionedBucket<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// Removes what an unfinished attempt may have left, for a claim that is gone. Without this method it is
    /// [`delete`](Self::delete) or [`revoke`](Self::revoke), by where the bucket comes from.
    ///
    /// # Errors
    /// As of [`delete`](Self::delete).
    fn clean_up(
        &self,
        attempt: ProvisionedBucket<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send {
        async move {
            match attempt.source {
                Source::Provisioned => self.delete(attempt).await,
                Source::Granted => self.revoke(attempt).await,
            }
        }
    }

    /// Makes another key for the user. [The key that it has](ProvisionedBucket::access_key_id) stays valid; all others are
    /// removed first, since an earlier call may have made one that nobody has. For authors who
    /// [declare it](BucketCapabilities::rotation).
    ///
    /// # Errors
    /// As of [`provision`](Self::provision).
    fn rotate(
        &self,
        bucket: ProvisionedBucket<Self::Parameters>,
    ) -> impl Future<Output = Result<Credentials, ProvisionError>> + Send {
        drop(bucket);
        async { Err(ProvisionError::invalid("this provisioner cannot rotate keys")) }
    }

    /// Removes all keys of the user but [the one that it has](ProvisionedBucket::access_key_id), some time after
    /// [`rotate`](Self::rotate).
    ///
    /// # Errors
    /// As of [`delete`](Self::delete).
    fn retire(
        &self,
        bucket: ProvisionedBucket<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(bucket);
        async { Err(DeleteError::retry("this provisioner cannot rotate keys")) }
    }

    /// Whether the backend can work now, for the readiness probe. See [`Provisioner::probe`](crate::Provisioner::probe).
    ///
    /// # Errors
    /// Any: `/readyz` answers 503 and shows its text.
    fn probe(&self) -> impl Future<Output = Result<(), StartError>> + Send {
        async { Ok(()) }
    }

    /// Called before the first other call whenever this process gets work that another one may have done until then.
    ///
    /// ```
    /// # use kube_provisioner::bucket::*;
    /// # use kube_provisioner::*;
    /// # struct Store { cluster: std::sync::OnceLock<String> }
    /// # impl BucketProvisioner for Store {
    /// #     type Parameters = ();
    /// #     type Config = ();
    /// #     async fn provision(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> { Err(ProvisionError::retry("")) }
    /// #     async fn grant(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> { Err(ProvisionError::retry("")) }
    /// #     async fn delete(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> { Ok(()) }
    /// #     async fn revoke(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> { Ok(()) }
    /// async fn start(&self, start: BucketStart) -> Result<(), StartError> {
    ///     self.cluster.get_or_init(|| start.cluster_id);
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Any: nothing is begun before it succeeds. It is called again, and readiness and events say why.
    fn start(&self, start: BucketStart) -> impl Future<Output = Result<(), StartError>> + Send {
        drop(start);
        async { Ok(()) }
    }

    /// What classes may ask for.
    fn capabilities() -> BucketCapabilities {
        BucketCapabilities::default()
    }

    /// Rights that the author's own calls to the API server need, for the generated manifests and the check at the start.
    fn access_rules() -> Vec<AccessRule> {
        Vec::new()
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
    pub(crate) secrets: Vec<SecretRole>,
}

impl BucketCapabilities {
    /// Keys can be rotated: the author implements [`rotate`](BucketProvisioner::rotate) and
    /// [`retire`](BucketProvisioner::retire).
    pub fn rotation(mut self) -> Self {
        self.rotation = true;
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
