//! The kit for authors finds what is wrong with a provisioner, for the right reason.

use kube_provisioner::conformance::BucketConformance;

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
    .by_hand(
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
async fn what_is_right_passes() {
    let report = kit(&Store::with(None)).run().await;
    assert!(report.is_kept(), "{report}");
    assert_eq!(report.results().len(), 19);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_found() {
    for (fault, rule) in [
        (Fault::NewKeyEachTime, "bucket-again"),
        (Fault::KeepsUsers, "bucket-delete"),
        (Fault::TakesBucketsOver, "bucket-foreign"),
        (Fault::DeletesByName, "bucket-foreign"),
        (Fault::LooksThenMakes, "bucket-one-name"),
        (Fault::TakesBucketsOver, "bucket-one-name"),
        (Fault::LooksThenMakes, "bucket-in-between"),
        (Fault::OwnsWhatItSawAbsent, "bucket-in-between"),
        (Fault::KnowsNoCluster, "bucket-other-cluster"),
        (Fault::FailsWhereNothingIs, "bucket-nothing-there"),
        (Fault::RevokesAll, "bucket-grant"),
        (Fault::LetsInByName, "bucket-share"),
        (Fault::RevokesAll, "bucket-share"),
        (Fault::TakesBucketsOver, "bucket-halves"),
        (Fault::DeletesByName, "bucket-halves"),
        (Fault::KeepsUsers, "bucket-halves"),
        (Fault::KeepsOwners, "bucket-halves"),
        (Fault::RevokesBuckets, "bucket-halves"),
        (Fault::TakesOwnership, "bucket-halves"),
        (Fault::NeedsTheAccountToDelete, "bucket-halves"),
        (Fault::ForgetsABucket, "bucket-several"),
        (Fault::LeavesRights, "bucket-several"),
        (Fault::EndsWithARefusal, "bucket-several"),
        (Fault::NewKeyForEachBucket, "bucket-several"),
        (Fault::RevokesAll, "bucket-several"),
        (Fault::DeletesAllAccounts, "bucket-several"),
        (Fault::NeverRetires, "bucket-rotate"),
        (Fault::ListsAllKeys, "bucket-keys"),
        (Fault::ListsOneKey, "bucket-keys"),
        (Fault::NewSecretEachTime, "bucket-again"),
        (Fault::IgnoresAccessModes, "bucket-settings"),
        (Fault::IgnoresAccessModesOfGuests, "bucket-settings"),
        (Fault::IgnoresLimits, "bucket-settings"),
        (Fault::ReadyWhenItWorks, "bucket-standby"),
    ] {
        let report = kit(&Store::with(Some(fault))).only(rule).run().await;
        assert!(report.broken().any(|broken| broken == rule), "{fault:?} is not found by {rule}:\n{report}");
    }
}
