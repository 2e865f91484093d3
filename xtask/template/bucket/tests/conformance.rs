use example_provisioner::Store;
use kube_provisioner::conformance::BucketConformance;

/// The whole contract: crashes, repeated calls, buckets of other owners, an API server that fails.
#[test]
fn keeps_the_contract() {
    let store = Store { host: "s3.example.com".into(), ..Store::default() };
    let listed = store.clone();
    let assets = move || {
        let names: Vec<String> = listed.buckets.lock().unwrap().keys().cloned().collect();
        async move { names }
    };
    BucketConformance::new(move || store.clone(), assets).check();
}
