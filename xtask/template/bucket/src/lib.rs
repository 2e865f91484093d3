//! A bucket provisioner. Its store is in memory: replace it with a client of your own store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube_provisioner::bucket::*;
use kube_provisioner::{DeleteError, ProvisionError};

/// The backend: buckets by name, each with its owner.
#[derive(Clone, Default)]
pub struct Store {
    pub host: String,
    pub buckets: Arc<Mutex<BTreeMap<String, Owner>>>,
}

/// A user, and the cluster: several clusters may use one store, and a copy of a cluster has the same users.
pub type Owner = (String, String);

impl BucketProvisioner for Store {
    /// Parameters that a StorageClass may contain: none.
    type Parameters = ();
    /// Keys that a claim's `additionalConfig` may contain: none.
    type Config = ();

    /// Finds the bucket of the first call when it is called again with the same name after a crash. Refuses a bucket of
    /// another owner, and never takes it over.
    async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let owner = (request.owner.name, request.cluster_id);
        if *self.buckets().entry(request.name).or_insert_with(|| owner.clone()) != owner {
            return Err(ProvisionError::invalid("a bucket of this name has another owner; choose another name"));
        }
        Ok(Bucket::new(Endpoint::https(&self.host)))
    }

    /// Succeeds if the bucket no longer exists. A bucket of another owner is left untouched.
    async fn delete_bucket(&self, bucket: ProvisionedBucket<()>) -> Result<(), DeleteError> {
        let owner = (bucket.owner.name, bucket.cluster_id);
        self.buckets().retain(|name, known| *name != bucket.name || *known != owner);
        Ok(())
    }

    /// A real store creates a user with a key, and returns the key again when it is called again. This one grants
    /// access only to the owner of a bucket.
    async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        let user = (request.account.name.clone(), request.cluster_id.clone());
        if self.buckets().get(&request.bucket().name) != Some(&user) {
            return Err(ProvisionError::invalid(
                "the bucket has another owner; remove bucketClaimName, or use a class without bucketName",
            ));
        }
        Ok(Granted::new(Endpoint::https(&self.host), Credentials::new(user.0, "not a secret")))
    }

    /// Removes the user. This store has no separate users.
    async fn revoke(&self, _: GrantedAccount<()>) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl BucketHooks for Store {}

impl Store {
    fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, Owner>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::conformance::BucketClaim;

    use super::*;

    #[tokio::test]
    async fn provisions_the_same_bucket_again_and_deletes_it() {
        let store = Store { host: "s3.example.com".to_owned(), ..Store::default() };
        let claim = BucketClaim::new("photos", (), ());
        let granted = claim.provision(&store).await.unwrap();
        let again = claim.after(&granted).provision(&store).await.unwrap();
        assert_eq!(again.credentials, granted.credentials);
        assert_eq!(store.buckets().len(), 1);

        claim.after(&granted).delete(&store).await.unwrap();
        assert!(store.buckets().is_empty());
    }
}
