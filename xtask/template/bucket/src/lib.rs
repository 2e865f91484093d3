//! A provisioner of buckets. Its store is in memory: put the client of your own in its place.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube_provisioner::bucket::{Bucket, BucketProvisioner, Credentials, Endpoint, ProvisionedBucket, RequestOf};
use kube_provisioner::{DeleteError, ProvisionError};

/// The backend: buckets by name, each with its owner.
#[derive(Clone, Default)]
pub struct Store {
    pub host: String,
    pub buckets: Arc<Mutex<BTreeMap<String, Owner>>>,
}

/// The claim's user, and the cluster of the claim: several clusters may use one store, and a copy of a cluster has the
/// same claims with the same uids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub user: String,
    pub cluster_id: String,
}

impl BucketProvisioner for Store {
    /// What a StorageClass may say in `parameters`: nothing.
    type Parameters = ();
    /// What a claim may say in `additionalConfig`: nothing.
    type Config = ();

    /// Called again with the same name after a crash: it finds what the first call made. A bucket of somebody else is
    /// refused, never taken over.
    async fn provision(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let user = request.claim.user();
        let owner = Owner { user: user.clone(), cluster_id: request.cluster_id };
        match self.buckets().entry(request.name) {
            Entry::Occupied(bucket) if *bucket.get() != owner => {
                return Err(ProvisionError::invalid("a bucket of this name is somebody else's; choose another name"));
            }
            bucket => bucket.or_insert(owner),
        };
        Ok(self.bucket(user))
    }

    async fn grant(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        Err(ProvisionError::invalid("this provisioner lets nobody into buckets that exist; remove bucketClaimName, or use a class without bucketName"))
    }

    /// Already gone is success, and what is not the claim's stays.
    async fn delete(&self, bucket: ProvisionedBucket<()>) -> Result<(), DeleteError> {
        let owner = Owner { user: bucket.claim.user(), cluster_id: bucket.cluster_id };
        self.buckets().retain(|name, known| *name != bucket.name || *known != owner);
        Ok(())
    }

    /// Removes the user. This store has none beside the bucket.
    async fn revoke(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl Store {
    fn bucket(&self, user: String) -> Bucket {
        let endpoint = Endpoint::https(&self.host);
        // A real store makes the key, and tells it again when it is asked again.
        Bucket::new(endpoint, Credentials::new(user, "not a secret"))
    }

    fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, Owner>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
