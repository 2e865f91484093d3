//! The optional methods of a bucket provisioner.

use std::error::Error;
use std::sync::Arc;

use provisioner_runtime::access::AccessRule;

use super::answer::{Bucket, Credentials};
use super::asset::{Assets, ListAssets};
use super::provisioner::BucketProvisioner;
use super::request::{BucketLookup, BucketStart, GrantedAccount};
use crate::error::{DeleteError, ProvisionError, StartError};

/// What some bucket provisioners can do beyond [`BucketProvisioner`]: rotate keys, look up buckets, list what the backend has, and say
/// whether it can be reached. Every method has a default, so `impl BucketHooks for Store {}` is enough.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which optional methods it has",
    note = "add `impl kube_provisioner::bucket::BucketHooks for {Self} {{}}`; each method has a default"
)]
pub trait BucketHooks: BucketProvisioner {
    /// Finds the bucket with this name, whoever created it; `None` if it does not exist. Called for buckets that an administrator names in
    /// the Container Object Storage Interface (COSI).
    ///
    /// # Errors
    /// As of [`create_bucket`](BucketProvisioner::create_bucket). A bucket that cannot be read is an error.
    fn find_bucket(
        &self,
        bucket: BucketLookup<Self::Parameters>,
    ) -> impl Future<Output = Result<Option<Bucket>, ProvisionError>> + Send {
        drop(bucket);
        async { Err(ProvisionError::invalid("this provisioner cannot look up buckets")) }
    }

    /// Makes another key for the account. [The key that it has](GrantedAccount::access_key_id) stays valid; all others are
    /// removed first, since an earlier call may have made one that nobody has. For authors who
    /// [declare it](super::BucketCapabilities::rotation).
    ///
    /// # Errors
    /// As of [`create_bucket`](BucketProvisioner::create_bucket).
    fn rotate(
        &self,
        account: GrantedAccount<Self::Parameters>,
    ) -> impl Future<Output = Result<Credentials, ProvisionError>> + Send {
        drop(account);
        async { Err(ProvisionError::invalid("this provisioner cannot rotate keys")) }
    }

    /// Removes all keys of the account but [the one that it has](GrantedAccount::access_key_id), some time after
    /// [`rotate`](Self::rotate).
    ///
    /// # Errors
    /// As of [`delete_bucket`](BucketProvisioner::delete_bucket).
    fn retire(
        &self,
        account: GrantedAccount<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(account);
        async { Err(DeleteError::retry("this provisioner cannot rotate keys")) }
    }

    /// Lists the ids of the account's keys that work: those that [`grant`](BucketProvisioner::grant) would return again. An account that does not
    /// exist has none. `None` if the backend cannot tell by a cheap request.
    ///
    /// The controller uses it to notice that an administrator deleted the key that it delivered.
    ///
    /// # Errors
    /// Any: nothing is concluded about the keys then.
    fn list_keys(
        &self,
        account: GrantedAccount<Self::Parameters>,
    ) -> impl Future<Output = Result<Option<Vec<String>>, Box<dyn Error + Send + Sync>>> + Send {
        drop(account);
        async { Ok(None) }
    }

    /// Lists what the backend of a class has for claims of any cluster, whether an ObjectBucket names it or not, for the command
    /// `orphans`. What it removes, it removes by [`delete_bucket`](BucketProvisioner::delete_bucket) and [`revoke`](BucketProvisioner::revoke), with the
    /// parameter `deletionPolicy` of a [`DeletionPolicy`](super::DeletionPolicy), and a user without
    /// a bucket by `revoke` with no buckets. For authors who
    /// [declare it](super::BucketCapabilities::assets).
    ///
    /// # Errors
    /// Any: nothing of the class is listed then.
    fn list_assets(
        &self,
        list: ListAssets<Self::Parameters>,
    ) -> impl Future<Output = Result<Assets, Box<dyn Error + Send + Sync>>> + Send {
        drop(list);
        async { Err("this provisioner cannot list what its backend has".into()) }
    }

    /// Whether the backend can work now, for the readiness probe. See [`Provisioner::probe`](crate::Provisioner::probe).
    /// For the backends that classes name, see [`probe_class`](Self::probe_class).
    ///
    /// # Errors
    /// Any: `/readyz` answers 503 and shows its text.
    fn probe(&self) -> impl Future<Output = Result<(), StartError>> + Send {
        async { Ok(()) }
    }

    /// Whether the backend of a StorageClass can be reached, for the readiness probe. Called for each class, without its
    /// Secrets and with a limit of three seconds. [`Endpoint::connect`](super::Endpoint::connect) is enough.
    ///
    /// # Errors
    /// Any: `/readyz` shows its text, and answers 503 if it is so for all classes.
    fn probe_class(&self, parameters: Arc<Self::Parameters>) -> impl Future<Output = Result<(), StartError>> + Send {
        drop(parameters);
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
    /// #     async fn create_bucket(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> { Err(ProvisionError::retry("")) }
    /// #     async fn delete_bucket(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> { Ok(()) }
    /// #     async fn grant(&self, _: GrantOf<Self>) -> Result<Granted, ProvisionError> { Err(ProvisionError::retry("")) }
    /// #     async fn revoke(&self, _: GrantedAccount<()>) -> Result<(), DeleteError> { Ok(()) }
    /// # }
    /// # impl BucketHooks for Store {
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

    /// Rights that the author's own calls to the API server need, for the generated manifests and the check at the start.
    fn access_rules() -> Vec<AccessRule> {
        Vec::new()
    }
}
