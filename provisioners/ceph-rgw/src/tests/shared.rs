//! Accounts that several claims share.

use kube_provisioner::bucket::{
    Account, BucketAccess, BucketRequest, ClaimName, GrantOf, GrantRequest, GrantedAccount,
};

use super::*;

/// What an ObjectBucket records of a claim's bucket.
struct Made {
    claim: Claim,
    access: BucketAccess,
}

impl Fixture {
    async fn makes(&self, name: &str, config: &[(&str, &str)], state: &[(&str, &str)]) -> Made {
        let claim = self.request(name, config);
        let mut request = BucketRequest::new(&claim.name, Parameters::default(), Config::default());
        (request.parameters, request.config) = (claim.parameters.clone(), claim.config.clone());
        (request.owner, request.secrets) = (claim.account(), self.secrets());
        request.cluster_id.clone_from(&claim.cluster_id);
        request.state = state.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let made = self.rgw.create_bucket(request).await.unwrap();
        let mut access = BucketAccess::new(&claim.name, Some(claim.account()));
        access.state = made.state;
        Made { claim, access }
    }

    fn team(&self) -> Account {
        let uid = "00000000-0000-4000-8000-0000000000aa".to_owned();
        Account::of(ClaimName { namespace: "test".to_owned(), name: format!("{}-team", self.run), uid })
    }

    /// What the claim's grant to the team's account is asked for.
    fn to_team(&self, made: &Made) -> GrantOf<Rgw> {
        let mut request = GrantRequest::new(&made.claim.name, Parameters::default(), Config::default());
        (request.account, request.claim) = (self.team(), made.claim.claim.clone());
        (request.parameters, request.config) = (made.claim.parameters.clone(), made.claim.config.clone());
        request.buckets = vec![made.access.clone()];
        request.secrets = self.secrets();
        request.cluster_id.clone_from(&made.claim.cluster_id);
        request
    }

    fn team_in(&self, made: &Made) -> GrantedAccount<Parameters> {
        let mut account = GrantedAccount::new(&made.claim.name, self.parameters());
        (account.account, account.buckets) = (self.team(), vec![made.access.clone()]);
        account.secrets = self.secrets();
        account.cluster_id.clone_from(&made.claim.cluster_id);
        account
    }
}

#[tokio::test]
async fn a_bucket_of_a_shared_account_has_the_settings_of_its_claim() {
    let fixture = Fixture::new("shared").await;
    let (owner, _) = fixture.stranger("owner").await;
    let mut policy = Policy::default();
    policy.upsert(allow("all", "*", &["s3:GetObject"], &[&format!("arn:aws:s3:::{}-a/*", fixture.run)]));
    let policy = policy.to_string();
    let a = fixture.makes("a", &[("maxObjects", "7"), ("bucketMaxSize", "1Gi")], &[]).await;
    let b = fixture.makes("b", &[("bucketOwner", &owner)], &[]).await;
    let to_a = fixture.rgw.grant(fixture.to_team(&a)).await.unwrap();
    assert_eq!(to_a.warning, None);
    // The owner whom one claim names is nobody of the others.
    let to_b = fixture.rgw.grant(fixture.to_team(&b)).await.unwrap();
    assert_eq!((&to_b.credentials, &to_b.state), (&to_a.credentials, &to_a.state));
    let s3 = fixture.s3(&to_a);
    for made in [&a, &b] {
        s3.put_object(&made.claim.name, "x", "hello").await.unwrap();
    }
    // A policy that the claim asks for later has a place for the account.
    let state: Vec<_> = a.access.state.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    drop(fixture.makes("a", &[("bucketPolicy", &policy)], &state).await);
    s3.put_object(&a.claim.name, "y", "hello").await.unwrap();

    let mut existing = fixture.to_team(&b);
    existing.buckets = vec![BucketAccess::new(&b.claim.name, None)];
    let refused = fixture.rgw.grant(existing).await.unwrap_err().to_string();
    assert!(refused.contains("bucketOwner is not possible"), "{refused}");
    s3.put_object(&b.claim.name, "y", "hello").await.unwrap();

    for made in [&a, &b] {
        made.claim.delete(&fixture.rgw).await.unwrap();
    }
    fixture.rgw.revoke(fixture.team_in(&b)).await.unwrap();
    assert!(fixture.admin().user(&fixture.team().name).await.unwrap().is_none());
    fixture.admin().delete_user(&owner).await.unwrap();
}

#[tokio::test]
async fn a_bucket_that_is_kept_is_closed_to_the_account_that_others_have() {
    let fixture = Fixture::new("kept").await;
    let (a, b) = (fixture.makes("a", &[], &[]).await, fixture.makes("b", &[], &[]).await);
    let s3 = fixture.s3(&fixture.rgw.grant(fixture.to_team(&a)).await.unwrap());
    drop(fixture.rgw.grant(fixture.to_team(&b)).await.unwrap());
    for made in [&a, &b] {
        s3.put_object(&made.claim.name, "x", "hello").await.unwrap();
    }
    // The claim's own user has no key any more when the call comes again after a crash.
    a.claim.revoke(&fixture.rgw).await.unwrap();
    for _ in 0..2 {
        fixture.rgw.withdraw(fixture.team_in(&a)).await.unwrap();
        assert!(s3.get_object(&a.claim.name, "x").await.is_err());
        assert!(s3.get_object(&b.claim.name, "x").await.is_ok());
    }
    let owner = fixture.admin().user(&a.claim.account().name).await.unwrap().unwrap();
    assert!(owner.keys.is_empty(), "{owner:?}");
    for made in [&a, &b] {
        made.claim.delete(&fixture.rgw).await.unwrap();
        fixture.rgw.withdraw(fixture.team_in(made)).await.unwrap();
    }
    fixture.rgw.revoke(fixture.team_in(&b)).await.unwrap();
    assert!(fixture.admin().user(&fixture.team().name).await.unwrap().is_none());
}

/// Nothing is taken away unless the gateway says so.
#[tokio::test]
async fn an_owner_without_a_key_is_told_of() {
    let fixture = Fixture::new("keyless").await;
    let (owner, _) = fixture.stranger("owner").await;
    let a = fixture.makes("a", &[("bucketOwner", &owner)], &[]).await;
    let s3 = fixture.s3(&fixture.rgw.grant(fixture.to_team(&a)).await.unwrap());
    s3.put_object(&a.claim.name, "x", "hello").await.unwrap();
    let key = fixture.admin().user(&owner).await.unwrap().unwrap().key(None).unwrap();
    fixture.admin().delete_key(&owner, &key.access_key_id).await.unwrap();
    let error = fixture.rgw.withdraw(fixture.team_in(&a)).await.unwrap_err().to_string();
    assert!(error.contains("radosgw-admin key create --uid=<owner>") && !error.contains(&owner), "{error}");
    assert!(s3.get_object(&a.claim.name, "x").await.is_ok());
    fixture.admin().create_key(&owner).await.unwrap();
    fixture.rgw.withdraw(fixture.team_in(&a)).await.unwrap();
    assert!(s3.get_object(&a.claim.name, "x").await.is_err());
    fixture.rgw.revoke(fixture.team_in(&a)).await.unwrap();
    a.claim.delete(&fixture.rgw).await.unwrap();
    fixture.admin().delete_user(&owner).await.unwrap();
}
