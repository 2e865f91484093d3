//! The kit for authors finds what is wrong with a provisioner, for the right reason.

use kube_provisioner::conformance::BucketConformance;

use super::store::{Fault, Store};

fn kit(store: &Store) -> BucketConformance {
    store.state().buckets.insert("existing".to_owned(), "somebody".to_owned());
    let (started, listed) = (store.clone(), store.clone());
    BucketConformance::new(
        move || started.clone(),
        move || {
            let assets = listed.assets();
            async move { assets }
        },
    )
    .existing_bucket("existing")
}

#[tokio::test(start_paused = true)]
async fn what_is_right_passes() {
    let report = kit(&Store::with(None)).run().await;
    assert!(report.is_kept(), "{report}");
    assert_eq!(report.results().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_found() {
    for (fault, rule) in [
        (Fault::NewKeyEachTime, "bucket-again"),
        (Fault::KeepsUsers, "bucket-delete"),
        (Fault::TakesBucketsOver, "bucket-foreign"),
        (Fault::DeletesByName, "bucket-foreign"),
        (Fault::FailsWhereNothingIs, "bucket-nothing-there"),
        (Fault::RevokesAll, "bucket-grant"),
        (Fault::NeverRetires, "bucket-rotate"),
        (Fault::ReadyWhenItWorks, "bucket-standby"),
    ] {
        let report = kit(&Store::with(Some(fault))).only(rule).run().await;
        assert!(report.broken().any(|broken| broken == rule), "{fault:?} is not found by {rule}:\n{report}");
    }
}
