//! Buckets of `aws-s3-provisioner` on SeaweedFS, which ignores the tags in requests that create users and buckets, and
//! checks all permissions.

use anyhow::{Context, anyhow, ensure};
use aws_s3_provisioner::Parameters;
use kube_provisioner::ProvisionVerdict;
use s3_client::Client;
use s3_client::iam::NewIdentity;
use serde_json::json;
use testbed::bucket_attempts::attempts_can_end_after_any_request;
use testbed::bucket_cases::BucketFixture as _;
use testbed::bucket_rights as rights;
use testbed::guard::Guard;
use testbed::s3::Account;
use testbed::s3::proxy::{Faults, ProxiedRequest, ProxyAction};
use testbed::seaweedfs::SeaweedFs;

use crate::aws_compatible::contract::{One, contract};
use crate::aws_compatible::{self, BOUNDARY, LIFECYCLE, Store, documented_policy};

type Fixture = aws_compatible::Fixture<SeaweedFs>;

const TRANSITION: &str = r#"{"Rules":[{"ID":"cold","Status":"Enabled","Filter":{"Prefix":""},"Transitions":[{"Days":30,"StorageClass":"GLACIER"}]}]}"#;
const VERSIONS: [(&str, &str); 2] = [("versioning", "true"), ("lifecycle", LIFECYCLE)];

impl Store for SeaweedFs {
    async fn start(guard: &Guard) -> anyhow::Result<Self> {
        Self::start(guard).await
    }

    fn account(&self) -> &Account {
        self.server()
    }
}

mod seaweedfs_cases {
    crate::store_cases::store_cases!(super::Fixture, "weed", &[("versioning", "true")]);
}

// Rules: Z1, Z2.
#[tokio::test]
async fn seaweedfs_kills_leave_no_leftovers_and_no_duplicates() -> anyhow::Result<()> {
    Fixture::new("weed-kill").await?.survives_kills().await
}

// Rules: W1, W2, Z8, Z9, Z16.
#[tokio::test]
async fn seaweedfs_pod_uses_only_its_own_bucket_and_keys_rotate() -> anyhow::Result<()> {
    Fixture::case("weed-use", rights::a_pod_uses_only_its_own_bucket_and_keys_rotate).await
}

// Rules: Y4.
#[tokio::test]
async fn seaweedfs_claims_get_access_to_an_existing_bucket() -> anyhow::Result<()> {
    Fixture::case("weed-grant", rights::claims_get_access_to_an_existing_bucket).await
}

#[tokio::test]
async fn seaweedfs_documented_policy_suffices() -> anyhow::Result<()> {
    let fixture = Fixture::new("weed-least").await?;
    let (iam, tags) = (fixture.account().iam()?, Default::default());
    iam.create_user(NewIdentity { name: "provisioner", path: "/", tags: &tags, permissions_boundary: None }).await?;
    // An inline policy cannot grant the permission to create buckets.
    let created = iam.sdk().create_policy().policy_name("kube-provisioner");
    let created = created.policy_document(documented_policy("seaweedfs.md")?).send().await?.policy;
    let arn = created.and_then(|policy| policy.arn).context("the policy has an ARN")?;
    iam.sdk().attach_user_policy().user_name("provisioner").policy_arn(arn).send().await?;
    let key = iam.create_access_key("provisioner").await?;
    fixture.serves_all_classes(&key, &VERSIONS).await?;
    // Only the provisioner's own user remains.
    assert_eq!(fixture.account().users().await?, ["provisioner"]);
    iam.sdk().delete_access_key().user_name("provisioner").access_key_id(key.access_key_id).send().await?;
    iam.delete_user("provisioner").await?;
    fixture.done().await
}

#[tokio::test]
async fn seaweedfs_unsupported_parameters_are_refused_by_name() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("weed-refused").await?;
    let parameters = [("blockPublicAccess", "true"), ("lifecycle", TRANSITION), ("permissionsBoundary", BOUNDARY)];
    fixture.refuses_by_name(&parameters).await?;
    fixture.class_with("keyless", &[("authentication", "ServiceAccount"), ("serviceAccount", "app")]).await?;
    fixture.claim("keyless", "keyless", json!({})).await?;
    fixture.wait_for_ready_message("keyless", "remove authentication and serviceAccount").await?;
    fixture.done_without(&["keyless"]).await
}

// Rules: Z14.
#[tokio::test]
async fn seaweedfs_versions_and_locks_exist_until_the_bucket_is_deleted() -> anyhow::Result<()> {
    let check = async |admin: &Client| {
        ensure!(!admin.bucket_lifecycle("my-photos").await?.is_empty(), "the bucket has no lifecycle");
        // Four versions of one object, and the other objects.
        assert_eq!(admin.list_object_versions("my-photos").await?.len(), 8);
        Ok(())
    };
    let case = async |fixture: &Fixture| fixture.keeps_versions_and_locks(&VERSIONS, check).await;
    Fixture::case("weed-settings", case).await
}

#[tokio::test]
async fn seaweedfs_manually_created_bucket_is_never_adopted() -> anyhow::Result<()> {
    Fixture::case("weed-by-hand", Fixture::never_adopts_manually_created_buckets).await
}

#[tokio::test]
async fn seaweedfs_the_contract_is_kept() -> anyhow::Result<()> {
    contract::<SeaweedFs>(None).await
}

#[tokio::test]
async fn seaweedfs_the_contract_is_kept_when_calls_fail() -> anyhow::Result<()> {
    contract::<SeaweedFs>(Some(Faults::USUAL)).await
}

#[tokio::test]
async fn seaweedfs_bucket_created_during_an_attempt_is_never_adopted() -> anyhow::Result<()> {
    One::<SeaweedFs>::new().await?.never_adopts_buckets_created_during_an_attempt().await
}

/// The provisioner dies between creating the bucket and tagging it.
#[tokio::test]
async fn seaweedfs_untagged_bucket_belongs_to_the_claim_that_created_it() -> anyhow::Result<()> {
    let mut one = One::<SeaweedFs>::new().await?;
    let admin = one.account().admin()?;
    let no_tags = |asked: &ProxiedRequest| {
        if asked.head.starts_with("PUT /photos") && asked.head.contains("tagging") {
            ProxyAction::Refused(500, "InternalError")
        } else {
            ProxyAction::Answered
        }
    };
    one.broken(no_tags).await?;
    ensure!(admin.bucket_tagging("photos").await?.is_empty(), "the bucket has tags");
    // In a cluster that was restored from a backup, the claim is a different one.
    one.cluster_id = "cluster-b";
    let refused = one.provision().await.err().context("another cluster adopted the bucket")?;
    ensure!(refused.to_string().contains("was not created for this claim"), "{refused}");
    one.delete().await?;
    one.cluster_id = "cluster-a";
    one.provision().await.map_err(|error| anyhow!("{error}"))?;
    ensure!(!admin.bucket_tagging("photos").await?.is_empty(), "the bucket has no tags");
    one.delete().await?;
    assert_eq!(one.account().assets().await?, [""; 0]);
    // The bucket must also be deleted if there is no further attempt before the deletion of the claim.
    one.broken(no_tags).await?;
    one.delete().await?;
    assert_eq!(one.account().assets().await?, [""; 0]);
    // The bucket must also be deleted if the claim now requests a setting that the store does not support.
    one.broken(no_tags).await?;
    let keyless = serde_json::from_value(json!({"authentication": "ServiceAccount", "serviceAccount": "app"}))?;
    let refused = one.provision_of(keyless, None).await.err().context("access without a key was accepted")?;
    ensure!(refused.verdict() == ProvisionVerdict::Retry, "{refused}");
    one.delete().await?;
    assert_eq!(one.account().assets().await?, [""; 0]);
    Ok(())
}

/// Whichever request was the last to arrive, deleting the claim removes all leftovers, and another attempt continues.
#[tokio::test]
async fn seaweedfs_attempt_interrupted_after_any_request_leaves_nothing() -> anyhow::Result<()> {
    let one = One::<SeaweedFs>::new().await?;
    let last = attempts_can_end_after_any_request(
        &one.account().endpoint,
        async |endpoint| {
            one.provision_of(Parameters::default(), Some(endpoint)).await.map_err(|error| anyhow!("{error}"))
        },
        async || one.delete().await,
        async || one.account().assets().await,
    )
    .await?;
    // Requests for the user, the bucket, its tags, the policy and the key, and the reads before them.
    ensure!(last > 8, "an attempt has only {last} requests");
    Ok(())
}

/// The class names another kind of store. SeaweedFS does not store the tags of a new user, so the claim is refused.
#[tokio::test]
async fn seaweedfs_configured_as_another_store_is_refused() -> anyhow::Result<()> {
    let one = One::<SeaweedFs>::new().await?;
    let other: Parameters = serde_json::from_value(json!({"store": "other"}))?;
    let refused = one.provision_of(other, None).await.err().context("a user without tags was accepted")?;
    ensure!(refused.to_string().contains("store: seaweedfs"), "{refused}");
    assert_eq!(one.account().assets().await?, [""; 0]);
    Ok(())
}
