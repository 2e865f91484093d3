//! Tests of claims without keys: the bucket's policy names a Kubernetes service account.

use super::*;

const POOL: &str = "projects/1/locations/global/workloadIdentityPools/shop-project.svc.id.goog";

fn keyless(fixture: &Fixture, claim: &str, account: &str) -> Claim {
    let mut request = fixture.request(claim, &[("workloadIdentityPool", POOL)]);
    let config = [("authentication", "ServiceAccount"), ("serviceAccount", account)];
    let config = config.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    request.config = Arc::new(parameters::from_map(&config).unwrap());
    request
}

fn principal(account: &str) -> String {
    format!("principal://iam.googleapis.com/{POOL}/subject/ns/test/sa/{account}")
}

/// Returns the roles of a principal.
fn roles(fixture: &Fixture, bucket: &str, principal: &str) -> Vec<String> {
    let model = fixture.google.model();
    let bindings = model.buckets[bucket].policy["bindings"].as_array().cloned().unwrap_or_default();
    let has =
        |binding: &&serde_json::Value| binding["members"].as_array().is_some_and(|all| all.contains(&json!(principal)));
    bindings.iter().filter(has).map(|binding| binding["role"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn grants_one_service_account_access_without_a_key() {
    let fixture = Fixture::new().await;
    let mut request = keyless(&fixture, "photos", "web");
    // An empty text is the same as none.
    Arc::make_mut(&mut request.parameters).service_account = Some(String::new());
    let bucket = request.provision(&fixture.gcs).await.unwrap();
    assert_eq!(bucket.credentials, None);
    assert_eq!(roles(&fixture, "photos", &principal("web")), ["roles/storage.objectUser"]);
    assert!(fixture.google.model().accounts.is_empty(), "access without a key needs no account");
    let policy = fixture.google.model().buckets["photos"].policy.clone();
    let bucket = request.after(&bucket).provision(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.model().buckets["photos"].policy, policy);
    // Another service account replaces the first.
    let mut moved = keyless(&fixture, "photos", "other").after(&bucket);
    moved.parameters = request.parameters.clone();
    let bucket = moved.provision(&fixture.gcs).await.unwrap();
    assert_eq!(roles(&fixture, "photos", &principal("web")), Vec::<String>::new());
    assert_eq!(roles(&fixture, "photos", &principal("other")), ["roles/storage.objectUser"]);
    request.after(&bucket).delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn claims_can_switch_between_key_and_service_account() {
    let fixture = Fixture::new().await;
    let (with_key, without) =
        (fixture.request("photos", &[("workloadIdentityPool", POOL)]), keyless(&fixture, "photos", "web"));
    let first = with_key.provision(&fixture.gcs).await.unwrap();
    let second = without.after(&first).provision(&fixture.gcs).await.unwrap();
    assert!(fixture.s3(&first.credentials).get("photos", "x").await.is_err());
    assert!(fixture.google.assets().iter().all(|asset| asset.starts_with("bucket ")));
    assert_eq!(roles(&fixture, "photos", &principal("web")).len(), 1);
    let third = with_key.after(&second).provision(&fixture.gcs).await.unwrap();
    assert_eq!(roles(&fixture, "photos", &principal("web")).len(), 0);
    let s3 = fixture.s3(&third.credentials);
    s3.put("photos", "x", "miaow").await.unwrap();
    with_key.after(&third).delete(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn waits_for_the_account_of_an_attempt_that_failed_midway() {
    let fixture = Fixture::new().await;
    let (with_key, without) =
        (fixture.request("photos", &[("workloadIdentityPool", POOL)]), keyless(&fixture, "photos", "web"));
    let bucket = without.provision(&fixture.gcs).await.unwrap();
    // The process ends before it records the service account, which is shown later.
    fixture.google.model().faults.hiding = u32::MAX;
    drop(with_key.after(&bucket).provision(&fixture.gcs).await.unwrap());
    let restarted = Gcs::new(Defaults::of(&fixture.google), Proxies::default());
    let record = without.after(&bucket);
    tokio::join!(async { record.delete(&restarted).await.unwrap() }, fixture.show_accounts_after_lookup());
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn grants_and_revokes_keyless_access_per_claim() {
    let fixture = Fixture::new().await;
    fixture.own_bucket("shared");
    let before = fixture.google.model().buckets["shared"].policy.clone();
    let [a, b] = ["a", "b"].map(|claim| {
        let mut request = keyless(&fixture, claim, "web").with_existing_bucket();
        request.name = "shared".to_owned();
        request
    });
    let (of_a, of_b) = (a.provision(&fixture.gcs).await.unwrap(), b.provision(&fixture.gcs).await.unwrap());
    assert_eq!(roles(&fixture, "shared", &principal("web")).len(), 2, "each claim has its own binding");
    a.after(&of_a).revoke(&fixture.gcs).await.unwrap();
    assert_eq!(roles(&fixture, "shared", &principal("web")).len(), 1);
    drop(of_b);
    // The response was lost, and the claim is deleted.
    b.revoke(&fixture.gcs).await.unwrap();
    assert_eq!(fixture.google.model().buckets["shared"].policy["bindings"], before["bindings"]);
}

#[tokio::test]
async fn reports_missing_requirements_of_keyless_access() {
    let fixture = Fixture::new().await;
    for (class, part) in [
        (vec![], "--workload-identity-pool"),
        (vec![("workloadIdentityPool", POOL), ("uniformBucketLevelAccess", "false")], "uniformBucketLevelAccess"),
        (vec![("workloadIdentityPool", POOL), ("serviceAccount", "a@b")], "remove serviceAccount"),
    ] {
        let mut request = keyless(&fixture, "photos", "web");
        request.parameters = fixture.request("photos", &class).parameters;
        let error = request.provision(&fixture.gcs).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}
