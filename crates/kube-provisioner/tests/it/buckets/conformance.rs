//! Runs the conformance kit for buckets on a correct provisioner and on faulty ones.

use kube_provisioner::bucket::{
    Bucket, BucketCapabilities, BucketHooks, BucketProvisioner, GrantOf, Granted, GrantedAccount, ProvisionedBucket,
    RequestOf,
};
use kube_provisioner::conformance::BucketConformance;
use kube_provisioner::{DeleteError, ProvisionError};

use super::store::{Fault, Store};

fn kit(store: &Store) -> BucketConformance {
    store.state().buckets.insert("existing".to_owned(), "somebody".to_owned());
    let [started, listed, made, removed] = [(); 4].map(|()| store.clone());
    BucketConformance::new(
        move || started.clone(),
        move || {
            let assets = listed.assets();
            async move { assets }
        },
    )
    .existing_bucket("existing")
    .manually_created(
        move |name| {
            let is_free = !made.state().buckets.contains_key(&name);
            if is_free {
                made.state().buckets.insert(name, "an administrator".to_owned());
            }
            async move { is_free }
        },
        move |name| {
            removed.state().buckets.remove(&name);
            async {}
        },
    )
}

#[tokio::test(start_paused = true)]
async fn correct_provisioner_passes() {
    let report = kit(&Store::with(None)).run().await;
    assert!(report.is_kept(), "{report}");
    assert_eq!(report.results().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn finds_each_fault() {
    for (fault, rule) in [
        (Fault::NewKeyEachTime, "bucket-repeat"),
        (Fault::KeepsUsers, "bucket-delete"),
        (Fault::TakesBucketsOver, "bucket-foreign"),
        (Fault::DeletesByName, "bucket-foreign"),
        (Fault::ChecksThenCreates, "bucket-one-name"),
        (Fault::TakesBucketsOver, "bucket-one-name"),
        (Fault::ChecksThenCreates, "bucket-concurrent-creation"),
        (Fault::OwnsBucketsSeenAbsent, "bucket-concurrent-creation"),
        (Fault::KnowsNoCluster, "bucket-other-cluster"),
        (Fault::RotatesKeysOfOthers, "bucket-other-cluster"),
        (Fault::FailsOnMissingBucket, "bucket-missing"),
        (Fault::RevokesAll, "bucket-grant"),
        (Fault::GrantsByName, "bucket-share"),
        (Fault::RevokesAll, "bucket-share"),
        (Fault::TakesBucketsOver, "bucket-separate-removal"),
        (Fault::DeletesByName, "bucket-separate-removal"),
        (Fault::KeepsUsers, "bucket-separate-removal"),
        (Fault::KeepsOwners, "bucket-separate-removal"),
        (Fault::RevokesBuckets, "bucket-separate-removal"),
        (Fault::TakesOwnership, "bucket-separate-removal"),
        (Fault::NeedsTheAccountToDelete, "bucket-separate-removal"),
        (Fault::ForgetsABucket, "bucket-multiple"),
        (Fault::LeavesRights, "bucket-multiple"),
        (Fault::EndsWithARefusal, "bucket-multiple"),
        (Fault::NewKeyForEachBucket, "bucket-multiple"),
        (Fault::RevokesAll, "bucket-multiple"),
        (Fault::DeletesAllAccounts, "bucket-multiple"),
        (Fault::NeverRetires, "bucket-rotate"),
        (Fault::ListsAllKeys, "bucket-keys"),
        (Fault::ListsOneKey, "bucket-keys"),
        (Fault::NewSecretEachTime, "bucket-repeat"),
        (Fault::IgnoresAccessModes, "bucket-settings"),
        (Fault::IgnoresAccessModesOfGuests, "bucket-settings"),
        (Fault::IgnoresLimits, "bucket-settings"),
        (Fault::ReadyWhenItWorks, "bucket-standby"),
    ] {
        let report = kit(&Store::with(Some(fault))).only(rule).run().await;
        assert!(report.broken().any(|broken| broken == rule), "{fault:?} is not found by {rule}:\n{report}");
    }
}

/// A provisioner that declares capabilities without implementing their methods.
struct Declared<const ASSETS: bool>(Store);

impl<const ASSETS: bool> BucketProvisioner for Declared<ASSETS> {
    type Parameters = <Store as BucketProvisioner>::Parameters;
    type Config = <Store as BucketProvisioner>::Config;

    async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        self.0.create_bucket(request).await
    }

    async fn delete_bucket(&self, bucket: ProvisionedBucket<Self::Parameters>) -> Result<(), DeleteError> {
        self.0.delete_bucket(bucket).await
    }

    async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        self.0.grant(request).await
    }

    async fn revoke(&self, account: GrantedAccount<Self::Parameters>) -> Result<(), DeleteError> {
        self.0.revoke(account).await
    }

    fn capabilities() -> BucketCapabilities {
        if ASSETS { BucketCapabilities::default().assets() } else { BucketCapabilities::default().rotation() }
    }
}

impl<const ASSETS: bool> BucketHooks for Declared<ASSETS> {}

async fn broken<const ASSETS: bool>(rule: &str) -> String {
    let store = Store::default();
    let listed = store.clone();
    let list = move || {
        let assets = listed.assets();
        async move { assets }
    };
    let report = BucketConformance::new(move || Declared::<ASSETS>(store.clone()), list).only(rule).run().await;
    assert!(!report.is_kept(), "{report}");
    report.to_string()
}

#[tokio::test(start_paused = true)]
async fn finds_declared_capabilities_without_their_method() {
    let report = broken::<true>("bucket-list-assets").await;
    assert!(report.contains("this provisioner cannot list what its backend has"), "{report}");
    let report = broken::<false>("bucket-rotate").await;
    assert!(report.contains("this provisioner cannot rotate keys"), "{report}");
}
