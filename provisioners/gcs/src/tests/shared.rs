//! Accounts that several claims share.

use kube_provisioner::bucket::{Account as Shared, BucketAccess, ClaimName, GrantOf, GrantRequest, GrantedAccount};

use super::keyless::keyless;
use super::*;

fn team() -> Shared {
    Shared::of(ClaimName { namespace: "test".into(), name: "team".into(), uid: "uid-of-team".into() })
}

/// What the claim's grant to the team's account is asked for. The claim has its bucket already.
fn to_team(claim: &Claim) -> GrantOf<Gcs> {
    let mut request = GrantRequest::new(&claim.name, Parameters::default(), Config::default());
    (request.parameters, request.config) = (claim.parameters.clone(), claim.config.clone());
    (request.account, request.claim) = (team(), claim.claim.clone());
    request.buckets = vec![BucketAccess::new(&claim.name, Some(claim.account()))];
    request.secrets = claim.secrets.clone();
    request.cluster_id.clone_from(&claim.cluster_id);
    request
}

fn team_in(claim: &Claim, state: &BTreeMap<String, String>) -> GrantedAccount<Parameters> {
    let mut account = GrantedAccount::new(&claim.name, Parameters::default());
    account.account = team();
    account.buckets = vec![BucketAccess::new(&claim.name, Some(claim.account()))];
    (account.state, account.secrets) = (state.clone(), claim.secrets.clone());
    account.cluster_id.clone_from(&claim.cluster_id);
    account
}

#[tokio::test]
async fn a_claim_ends_and_the_account_stays_with_its_key() {
    let fixture = Fixture::new().await;
    let (photos, films) = (fixture.request("photos", &[]), fixture.request("films", &[]));
    for claim in [&photos, &films] {
        drop(claim.provision(&fixture.gcs).await.unwrap());
    }
    let mut key = None;
    let mut state = BTreeMap::new();
    for claim in [&photos, &films] {
        let mut request = to_team(claim);
        request.credentials.clone_from(&key);
        request.access_key_id = key.as_ref().map(|key: &Credentials| key.access_key_id.clone());
        request.state.clone_from(&state);
        let granted = fixture.gcs.grant(request).await.unwrap();
        assert!(key.is_none() || key == granted.credentials);
        (key, state) = (granted.credentials, granted.state);
    }
    let s3 = fixture.s3(&key);
    for claim in [&photos, &films] {
        s3.put(&claim.name, "x", "hello").await.unwrap();
    }
    for _ in 0..2 {
        fixture.gcs.withdraw(team_in(&photos, &state)).await.unwrap();
        assert!(s3.get("photos", "x").await.is_err());
        assert!(s3.get("films", "x").await.unwrap().is_some());
    }
    for claim in [&photos, &films] {
        claim.delete(&fixture.gcs).await.unwrap();
        fixture.gcs.withdraw(team_in(claim, &state)).await.unwrap();
    }
    fixture.gcs.revoke(team_in(&films, &state)).await.unwrap();
    assert_eq!(fixture.google.assets(), Vec::<String>::new());
}

#[tokio::test]
async fn claims_of_one_account_have_all_a_key_or_none() {
    let fixture = Fixture::new().await;
    let with_key = fixture.request("photos", &[]);
    let without = keyless(&fixture, "films", "web");
    let of_class = fixture.request("songs", &[("serviceAccount", "x@example.com")]);
    for claim in [&with_key, &without] {
        drop(claim.provision(&fixture.gcs).await.unwrap());
    }
    let granted = fixture.gcs.grant(to_team(&with_key)).await.unwrap();
    let mut second = to_team(&without);
    second.access_key_id = granted.credentials.as_ref().map(|key| key.access_key_id.clone());
    second.state.clone_from(&granted.state);
    let before = fixture.google.assets();
    let refused = fixture.gcs.grant(second).await.unwrap_err().to_string();
    assert!(refused.contains("the other claims of this account have a key"), "{refused}");
    assert_eq!(fixture.google.assets(), before, "the key is that of others");

    let mut first = to_team(&with_key);
    first.state = [("principal".to_owned(), "principal://web".to_owned())].into();
    let refused = fixture.gcs.grant(first).await.unwrap_err().to_string();
    assert!(refused.contains("the other claims of this account have no key"), "{refused}");
    let refused = fixture.gcs.grant(to_team(&of_class)).await.unwrap_err().to_string();
    assert!(refused.contains("leave account out of additionalConfig"), "{refused}");
    let with_acls = fixture.request("photos", &[("uniformBucketLevelAccess", "false")]);
    let refused = fixture.gcs.grant(to_team(&with_acls)).await.unwrap_err().to_string();
    assert!(refused.contains("needs uniformBucketLevelAccess"), "{refused}");
}
