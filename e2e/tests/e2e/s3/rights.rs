//! Features that moto lacks and a proxy adds: the documented permissions are sufficient and minimal, and reads are
//! delayed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use s3_client::Credentials;
use s3_client::iam::NewIdentity;
use serde_json::{Value, json};
use testbed::s3::aws::{self, Rules};

use super::fixture::{Fixture, PHOTOS, REGIONS, RecordedState};

const BOUNDARY: &str = "arn:aws:iam::111122223333:policy/kube-provisioner-boundary";
const EVERYTHING: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;

/// The policy for the administrator's key in `docs/book/pages/use/aws-s3.md`.
fn documented() -> anyhow::Result<Value> {
    policy_of_page(1)
}

/// The policies of that page: the administrator's, the boundary, and the administrator's for roles.
fn policy_of_page(number: usize) -> anyhow::Result<Value> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book/pages/use/aws-s3.md"))?;
    let json = page.split("```json").nth(number).and_then(|text| text.split("```").next());
    Ok(serde_json::from_str(json.context("the page has no policy")?)?)
}

/// A key, and the address of an AWS in which the policy limits the key.
async fn limited(fixture: &Fixture, policy: Value, behind: Duration) -> anyhow::Result<(Credentials, String)> {
    let (iam, tags) = (fixture.server().iam()?, Default::default());
    let limited = NewIdentity { name: "provisioner", path: "/", tags: &tags, permissions_boundary: None };
    iam.create_user(limited).await?;
    iam.put_user_policy("provisioner", "everything", EVERYTHING).await?;
    let key = iam.create_access_key("provisioner").await?;
    let rules = Rules { key: key.access_key_id.clone(), policy, behind };
    Ok((key, aws::start(fixture.server(), rules).await?))
}

/// A class for AWS, with the tests' address.
fn class(parameters: &[(&str, &str)]) -> BTreeMap<String, String> {
    [&[("store", "aws")], parameters]
        .concat()
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn aws_documented_policy_suffices_for_all_class_parameters() -> anyhow::Result<()> {
    let rule = r#"{"Rules":[{"ID":"old","Status":"Enabled","Filter":{"Prefix":""},"Expiration":{"Days":30}}]}"#;
    let settings: [&[(&str, &str)]; 3] = [
        &[],
        &[("versioning", "true"), ("lifecycle", rule), ("kmsKeyId", "alias/k"), ("blockPublicAccess", "false")],
        &[("objectLock", "governance:1d")],
    ];
    for region in REGIONS {
        let fixture = Fixture::new(region).await?;
        let (key, endpoint) = limited(&fixture, documented()?, Duration::ZERO).await?;
        for more in settings {
            let process =
                fixture.process_of(&key, &endpoint, class(&[&[("permissionsBoundary", BOUNDARY)], more].concat()));
            let state = process.settle(PHOTOS).await.map_err(|error| anyhow!("{region}, {more:?}: {error}"))?;
            let admin = fixture.admin()?;
            let blocks = admin.sdk().get_public_access_block().bucket("photos").send().await;
            assert_eq!(
                blocks.is_ok(),
                !more.contains(&("blockPublicAccess", "false")),
                "{region}, {more:?}: {blocks:?}"
            );
            fixture.admin()?.put_object("photos", "a\u{1}b", "miaow").await.or_else(|error| match more {
                // moto requires a checksum for this request.
                [("objectLock", _)] => Ok(()),
                _ => Err(error),
            })?;
            process.delete(PHOTOS, state).await.with_context(|| format!("{region}, {more:?}"))?;
            let left = fixture.assets().await?;
            ensure!(left.is_empty(), "{region}, {more:?}: {left:?} remain");
        }
    }
    Ok(())
}

/// The parameters of a class that grants roles instead of keys.
const WITHOUT_KEY: [(&str, &str); 4] = [
    ("permissionsBoundary", BOUNDARY),
    ("authentication", "ServiceAccount"),
    ("serviceAccount", "web"),
    ("oidcProviderArn", "arn:aws:iam::123456789012:oidc-provider/kubernetes.example.com"),
];

/// The documented policy, with the permissions for roles.
fn documented_for_roles() -> anyhow::Result<Value> {
    let (mut policy, roles) = (documented()?, policy_of_page(3)?);
    let of_roles = roles["Statement"].as_array().context("the policy has no statements")?;
    policy["Statement"].as_array_mut().context("the policy has no statements")?.extend(of_roles.iter().cloned());
    Ok(policy)
}

#[tokio::test]
async fn aws_documented_policy_suffices_for_roles() -> anyhow::Result<()> {
    let fixture = Fixture::new(REGIONS[1]).await?;
    let (key, endpoint) = limited(&fixture, documented_for_roles()?, Duration::ZERO).await?;
    let process = fixture.process_of(&key, &endpoint, class(&WITHOUT_KEY));
    let state = process.settle(PHOTOS).await.map_err(|error| anyhow!("{error}"))?;
    ensure!(state["RoleARN"].contains(":role/kube-provisioner/obc.photos"), "{state:?}");
    fixture.server().iam()?.role("obc.photos").await?.context("there is no role")?;
    process.delete(PHOTOS, state).await?;
    ensure!(fixture.assets().await?.is_empty(), "assets remain");
    ensure!(fixture.server().iam()?.role("obc.photos").await?.is_none(), "the role still exists");
    Ok(())
}

/// Without permission to read users that do not exist, a claim is provisioned, and the same process can delete it.
#[tokio::test]
async fn aws_unreadable_missing_user_does_not_block_a_claim() -> anyhow::Result<()> {
    let fixture = Fixture::new(REGIONS[1]).await?;
    let mut policy = documented()?;
    let statements = policy["Statement"].as_array_mut().context("the policy has no statements")?;
    let before = statements.len();
    statements.retain(|statement| statement["Resource"] != "arn:aws:iam::*:user/obc*");
    assert_eq!(statements.len(), before - 1);
    let (key, endpoint) = limited(&fixture, policy, Duration::ZERO).await?;
    let process = fixture.process_of(&key, &endpoint, class(&[("permissionsBoundary", BOUNDARY)]));
    let state = process.provision(PHOTOS).await.map_err(|error| anyhow!("the first claim: {error}"))?;
    process.delete(PHOTOS, state).await?;
    ensure!(fixture.assets().await?.is_empty(), "assets remain");
    // Another process cannot know whether the user exists, and its message names the missing permission.
    let process = fixture.process_of(&key, &endpoint, class(&[("permissionsBoundary", BOUNDARY)]));
    let unknown =
        process.delete(PHOTOS, RecordedState::new()).await.err().context("an unreadable user is treated as absent")?;
    ensure!(unknown.to_string().contains("iam:GetUser, for arn:aws:iam::*:user/obc*"), "{unknown}");
    Ok(())
}

/// The provisioner's key can create keys, but only for users within the boundary.
#[tokio::test]
async fn aws_provisioner_key_cannot_create_administrators() -> anyhow::Result<()> {
    let fixture = Fixture::new(REGIONS[1]).await?;
    let (key, endpoint) = limited(&fixture, documented()?, Duration::ZERO).await?;
    let process = fixture.process_of(&key, &endpoint, class(&[]));
    let refused = process.provision(PHOTOS).await.err().context("a user is created without the boundary")?;
    ensure!(refused.to_string().contains("permissionsBoundary"), "{refused}");

    let (iam, tags) = (fixture.server().iam_at(&endpoint, key)?, Default::default());
    let user = NewIdentity { name: "admin2", path: "/kube-provisioner/", tags: &tags, permissions_boundary: None };
    let others = Some("arn:aws:iam::aws:policy/AdministratorAccess");
    let within = NewIdentity { permissions_boundary: Some(BOUNDARY), ..user };
    for user in [user, NewIdentity { permissions_boundary: others, ..user }, NewIdentity { path: "/", ..within }] {
        assert_eq!(iam.create_user(user).await.unwrap_err().code(), "AccessDenied", "{user:?}");
    }
    // A user that was created manually, without a boundary.
    fixture.server().iam()?.create_user(user).await?;
    assert_eq!(iam.put_user_policy("admin2", "all", EVERYTHING).await.unwrap_err().code(), "AccessDenied");
    assert_eq!(iam.create_access_key("admin").await.unwrap_err().code(), "AccessDenied");
    assert_eq!(iam.put_user_policy("admin", "all", "{}").await.unwrap_err().code(), "AccessDenied");
    Ok(())
}

/// IAM does not show new users immediately. The claim is deleted at once, with and without a bucket.
#[tokio::test]
async fn aws_user_that_iam_does_not_show_yet_is_deleted() -> anyhow::Result<()> {
    for may_create in [true, false] {
        let (fixture, mut policy) = (Fixture::new(REGIONS[0]).await?, documented()?);
        let actions = policy["Statement"][0]["Action"].as_array_mut().context("the statement has no actions")?;
        actions.retain(|action| may_create || *action != json!("s3:CreateBucket"));
        let (key, endpoint) = limited(&fixture, policy, Duration::from_secs(1)).await?;
        let process = fixture.process_of(&key, &endpoint, class(&[("permissionsBoundary", BOUNDARY)]));
        let state = match process.provision(PHOTOS).await {
            Ok(state) if may_create => state,
            Err(refused) if !may_create && refused.to_string().contains("s3:CreateBucket") => RecordedState::new(),
            other => return Err(anyhow!("{other:?}")),
        };
        process.delete(PHOTOS, state).await?;
        let left = fixture.assets().await?;
        ensure!(left.is_empty(), "{left:?} remain");
    }
    Ok(())
}

/// IAM does not show new roles immediately, and the process that created one ends.
#[tokio::test]
async fn aws_role_that_iam_does_not_show_yet_is_deleted() -> anyhow::Result<()> {
    let (fixture, hidden) = (Fixture::new(REGIONS[1]).await?, Duration::from_secs(1));
    let (key, endpoint) = limited(&fixture, documented_for_roles()?, hidden).await?;
    let mut process = fixture.process_of(&key, &endpoint, class(&[("permissionsBoundary", BOUNDARY)]));
    let state = process.settle(PHOTOS).await.map_err(|error| anyhow!("{error}"))?;
    tokio::time::sleep(hidden).await;
    process.class = class(&WITHOUT_KEY);
    let made = process.provision_with(PHOTOS, |claim| claim.state.clone_from(&state)).await;
    let error = made.err().context("IAM shows the role immediately")?;
    ensure!(error.to_string().contains("does not show the newly created IAM role"), "{error}");
    let another = fixture.process_of(&key, &endpoint, class(&WITHOUT_KEY));
    another.delete(PHOTOS, state).await?;
    ensure!(fixture.server().iam()?.role("obc.photos").await?.is_none(), "the role still exists");
    Ok(())
}
