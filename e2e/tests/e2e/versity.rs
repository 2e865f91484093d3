//! Buckets of `aws-s3-provisioner` on the Versity S3 Gateway, which checks all permissions, and shows writes
//! immediately.

use s3_client::iam::NewIdentity;
use testbed::bucket_cases::BucketFixture as _;
use testbed::bucket_rights as rights;
use testbed::guard::Guard;
use testbed::s3::Account;
use testbed::s3::proxy::Faults;
use testbed::versity::Versity;

use crate::aws_compatible::contract::{One, contract};
use crate::aws_compatible::{self, BOUNDARY, LIFECYCLE, REGION, Store, documented_policy};

type Fixture = aws_compatible::Fixture<Versity>;

const VERSIONS: [(&str, &str); 1] = [("versioning", "true")];

impl Store for Versity {
    async fn start(guard: &Guard) -> anyhow::Result<Self> {
        Self::start(REGION, guard).await
    }

    fn account(&self) -> &Account {
        self.server()
    }
}

mod versity_cases {
    crate::store_cases::store_cases!(super::Fixture, "versity", &super::VERSIONS);
}

// Rules: Z1, Z2.
#[tokio::test]
async fn versity_kills_leave_no_leftovers_and_no_duplicates() -> anyhow::Result<()> {
    let mut fixture = Fixture::new("versity-kill").await?;
    fixture.disturb(Faults::USUAL).await?;
    fixture.survives_kills().await
}

// Rules: W1, W2, Z8, Z9, Z16.
#[tokio::test]
async fn versity_pod_uses_only_its_own_bucket_and_keys_rotate() -> anyhow::Result<()> {
    Fixture::case("versity-use", rights::a_pod_uses_only_its_own_bucket_and_keys_rotate).await
}

// Rules: Y4.
#[tokio::test]
async fn versity_claims_get_access_to_an_existing_bucket() -> anyhow::Result<()> {
    Fixture::case("versity-grant", rights::claims_get_access_to_an_existing_bucket).await
}

#[tokio::test]
async fn versity_documented_policy_suffices() -> anyhow::Result<()> {
    let fixture = Fixture::new("versity-least").await?;
    let (iam, tags) = (fixture.account().iam()?, Default::default());
    iam.create_user(NewIdentity { name: "provisioner", path: "/", tags: &tags, permissions_boundary: None }).await?;
    iam.put_user_policy("provisioner", "policy", &documented_policy("versity.md")?).await?;
    fixture.serves_all_classes(&iam.create_access_key("provisioner").await?, &VERSIONS).await?;
    // Only the provisioner's own user remains.
    assert_eq!(iam.users("/").await?, ["provisioner"]);
    fixture.done().await
}

#[tokio::test]
async fn versity_unsupported_parameters_are_refused_by_name() -> anyhow::Result<()> {
    let (fixture, _program) = Fixture::started("versity-refused").await?;
    let parameters = [
        ("blockPublicAccess", "true"),
        ("lifecycle", LIFECYCLE),
        ("kmsKeyId", "alias/k"),
        ("permissionsBoundary", BOUNDARY),
    ];
    fixture.refuses_by_name(&parameters).await?;
    fixture.done().await
}

// Rules: Z14.
#[tokio::test]
async fn versity_versions_and_locks_exist_until_the_bucket_is_deleted() -> anyhow::Result<()> {
    let case = async |fixture: &Fixture| fixture.keeps_versions_and_locks(&VERSIONS, async |_| Ok(())).await;
    Fixture::case("versity-settings", case).await
}

#[tokio::test]
async fn versity_manually_created_bucket_is_never_adopted() -> anyhow::Result<()> {
    Fixture::case("versity-by-hand", Fixture::never_adopts_manually_created_buckets).await
}

#[tokio::test]
async fn versity_the_contract_is_kept() -> anyhow::Result<()> {
    contract::<Versity>(None).await
}

#[tokio::test]
async fn versity_the_contract_is_kept_when_calls_fail() -> anyhow::Result<()> {
    contract::<Versity>(Some(Faults::USUAL)).await
}

#[tokio::test]
async fn versity_bucket_created_during_an_attempt_is_never_adopted() -> anyhow::Result<()> {
    One::<Versity>::new().await?.never_adopts_buckets_created_during_an_attempt().await
}
