//! The optional methods of a bucket provisioner.

use std::error::Error;
use std::sync::Arc;

use provisioner_runtime::access::AccessRule;

use super::answer::{Bucket, Credentials};
use super::asset::{Assets, ListAssets};
use super::provisioner::BucketProvisioner;
use super::request::{BucketLookup, BucketStartContext, GrantedAccount};
use crate::error::{DeleteError, ProvisionError, StartError};

/// Optional methods of a bucket provisioner: rotate keys, look up buckets, list the backend's assets, and probe the
/// backend. Every method has a default, so `impl BucketHooks for Store {}` is enough.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which optional methods it has",
    note = "add `impl kube_provisioner::bucket::BucketHooks for {Self} {{}}`; each method has a default"
)]
pub trait BucketHooks: BucketProvisioner {
    /// Finds the bucket with this name, regardless of its creator; returns `None` if it does not exist. Called for
    /// buckets that an administrator names in the Container Object Storage Interface (COSI).
    ///
    /// # Errors
    /// Same as [`create_bucket`](BucketProvisioner::create_bucket). A bucket that cannot be read is an error.
    fn find_bucket(
        &self,
        bucket: BucketLookup<Self::Parameters>,
    ) -> impl Future<Output = Result<Option<Bucket>, ProvisionError>> + Send {
        drop(bucket);
        async { Err(ProvisionError::invalid("this provisioner cannot look up buckets")) }
    }

    /// Creates another key for the account. [The current key](GrantedAccount::access_key_id) stays valid; all others
    /// are removed first, since an earlier call may have created a key that was never delivered. Only called if the
    /// provisioner [declares it](super::BucketCapabilities::rotation).
    ///
    /// # Errors
    /// Same as [`create_bucket`](BucketProvisioner::create_bucket).
    fn rotate(
        &self,
        account: GrantedAccount<Self::Parameters>,
    ) -> impl Future<Output = Result<Credentials, ProvisionError>> + Send {
        drop(account);
        async { Err(ProvisionError::invalid("this provisioner cannot rotate keys")) }
    }

    /// Removes all keys of the account except [the current one](GrantedAccount::access_key_id). Called some time after
    /// [`rotate`](Self::rotate).
    ///
    /// # Errors
    /// Same as [`delete_bucket`](BucketProvisioner::delete_bucket).
    fn revoke_old_keys(
        &self,
        account: GrantedAccount<Self::Parameters>,
    ) -> impl Future<Output = Result<(), DeleteError>> + Send {
        drop(account);
        async { Err(DeleteError::retry("this provisioner cannot rotate keys")) }
    }

    /// Lists the IDs of the account's working keys: those that [`grant`](BucketProvisioner::grant) would return again.
    /// Returns an empty list for an account that does not exist, and `None` if the backend cannot list keys with a
    /// cheap request.
    ///
    /// The controller uses it to notice that an administrator deleted the key that it delivered.
    ///
    /// # Errors
    /// On any error, the controller draws no conclusions about the keys.
    fn list_keys(
        &self,
        account: GrantedAccount<Self::Parameters>,
    ) -> impl Future<Output = Result<Option<Vec<String>>, Box<dyn Error + Send + Sync>>> + Send {
        drop(account);
        async { Ok(None) }
    }

    /// Lists the assets that the backend of a class contains for claims of any cluster, with or without an
    /// ObjectBucket. Used by the command `orphans`, which removes assets by
    /// [`delete_bucket`](BucketProvisioner::delete_bucket) and [`revoke`](BucketProvisioner::revoke), with the
    /// parameter `deletionPolicy` set to a [`DeletionPolicy`](super::DeletionPolicy), and a user without a bucket by
    /// `revoke` without buckets. Only called if the provisioner [declares it](super::BucketCapabilities::assets).
    ///
    /// # Errors
    /// On any error, the command lists no assets of the class.
    fn list_assets(
        &self,
        list: ListAssets<Self::Parameters>,
    ) -> impl Future<Output = Result<Assets, Box<dyn Error + Send + Sync>>> + Send {
        drop(list);
        async { Err("this provisioner cannot list what its backend has".into()) }
    }

    /// Reports to the readiness probe that the backend can work now. See
    /// [`Provisioner::probe`](crate::Provisioner::probe). For the backends that classes name, see
    /// [`probe_class`](Self::probe_class).
    ///
    /// # Errors
    /// On any error, `/readyz` answers 500 and shows the error's message.
    fn probe(&self) -> impl Future<Output = Result<(), StartError>> + Send {
        async { Ok(()) }
    }

    /// Reports to the readiness probe that the backend of a StorageClass can be reached. Called for each class, without
    /// its Secrets and with a limit of three seconds. [`Endpoint::connect`](super::Endpoint::connect) is enough.
    ///
    /// # Errors
    /// On any error, `/readyz` shows the error's message. It answers 500 if all classes fail.
    fn probe_class(&self, parameters: Arc<Self::Parameters>) -> impl Future<Output = Result<(), StartError>> + Send {
        drop(parameters);
        async { Ok(()) }
    }

    /// Called before any other call whenever this process takes over work from another one.
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
    /// async fn start(&self, start: BucketStartContext) -> Result<(), StartError> {
    ///     self.cluster.get_or_init(|| start.cluster_id);
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// On any error, the controller calls it again and begins no work before it succeeds. Readiness and events give the
    /// reason.
    fn start(&self, start: BucketStartContext) -> impl Future<Output = Result<(), StartError>> + Send {
        drop(start);
        async { Ok(()) }
    }

    /// Returns the permissions that the provisioner's own calls to the API server need, for the generated manifests and
    /// the check at startup.
    fn access_rules() -> Vec<AccessRule> {
        Vec::new()
    }
}
