//! Administrator credentials from each source that processes on AWS can use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::Program;
use testbed::s3::proxy::{self, ProxyAction};
use testbed::s3::sources::{POD_TOKEN, Source};
use testbed::s3::sts::{self, Tokens};

use super::Fixture;

/// The provisioner requests the next keys 30 to 60 seconds before these expire.
const LIFETIME: Duration = Duration::from_secs(65);
const RENEWED: Duration = Duration::from_secs(37);

async fn role(fixture: &Fixture, name: &str) -> anyhow::Result<String> {
    let role = fixture.server().create_role(name).await?;
    fixture.server().allow_everything(name).await?;
    Ok(role)
}

fn spawn(fixture: &Fixture, variables: &[String]) -> anyhow::Result<Program> {
    fixture.spawn_with(&variables.iter().map(String::as_str).collect::<Vec<_>>(), &[])
}

/// Provisions one claim with these credentials, and one with the next ones.
async fn claims_before_and_after_renewal(fixture: &Fixture, program: &Program, source: &Source) -> anyhow::Result<()> {
    fixture.bind("photos", "class", json!({})).await?;
    let first = source.given();
    tokio::time::sleep(RENEWED).await;
    fixture.bind("videos", "class", json!({})).await?;
    ensure!(first > 0 && source.given() > first, "{first} keys and later {}", source.given());
    // One key is used for all requests until its renewal.
    ensure!(source.given() < 20, "{} keys were requested", source.given());
    let user = fixture.user("videos").await?;
    fixture.leaks_no_secrets(program, &[&user.secret, POD_TOKEN]).await?;
    fixture.delete("photos").await?;
    fixture.delete("videos").await
}

#[tokio::test]
async fn aws_credentials_come_from_the_service_accounts_role() -> anyhow::Result<()> {
    let fixture = Fixture::new("s3-role").await?;
    let role = fixture.server().create_role("provisioner").await?;
    let token = "eyJhbGciOiJSUzI1NiJ9.the-token-of-a-service-account";
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, "an.old.token")?;
    let sts = sts::start(fixture.server(), Tokens::One(token)).await?;
    let variables = [
        format!("AWS_ROLE_ARN={role}"),
        format!("AWS_WEB_IDENTITY_TOKEN_FILE={}", file.path().display()),
        format!("AWS_ENDPOINT_URL_STS={sts}"),
    ];
    let program = spawn(&fixture, &variables)?;
    fixture.claim("photos", "class", json!({})).await?;
    fixture.wait_for_ready_message("photos", "InvalidIdentityToken").await?;
    // Tokens are rewritten while the provisioner runs.
    std::fs::write(&file, token)?;
    fixture.wait_for_ready_message("photos", "the administrator needs the permission iam:GetUser").await?;
    fixture.server().allow_everything("provisioner").await?;
    fixture.bound("photos").await?;
    let user = fixture.user("photos").await?;
    ensure!(user.works().await, "the key of the claim does not work");
    fixture.leaks_no_secrets(&program, &[token, &user.secret]).await?;
    fixture.done_without(&["photos"]).await
}

#[tokio::test]
async fn aws_credentials_come_from_eks_pod_identity() -> anyhow::Result<()> {
    let fixture = Fixture::new("s3-pod").await?;
    let source = Source::start(fixture.server(), &role(&fixture, "pod").await?, LIFETIME).await?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, POD_TOKEN)?;
    let variables = [
        format!("AWS_CONTAINER_CREDENTIALS_FULL_URI={}/v1/credentials", source.endpoint),
        format!("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE={}", file.path().display()),
    ];
    let program = spawn(&fixture, &variables)?;
    claims_before_and_after_renewal(&fixture, &program, &source).await?;
    fixture.done().await
}

#[tokio::test]
async fn aws_credentials_come_from_the_nodes_role() -> anyhow::Result<()> {
    let fixture = Fixture::new("s3-node").await?;
    let source = Source::start(fixture.server(), &role(&fixture, "node").await?, LIFETIME).await?;
    let program = spawn(&fixture, &[format!("AWS_EC2_METADATA_SERVICE_ENDPOINT={}", source.endpoint)])?;
    claims_before_and_after_renewal(&fixture, &program, &source).await?;
    fixture.done().await
}

#[tokio::test]
async fn aws_credentials_come_from_a_process_in_a_profile() -> anyhow::Result<()> {
    let fixture = Fixture::new("s3-profile").await?;
    let dir = tempfile::tempdir()?;
    let server = fixture.server();
    let key = json!({"Version": 1, "AccessKeyId": server.access_key, "SecretAccessKey": server.secret_key});
    std::fs::write(dir.path().join("key.json"), key.to_string())?;
    let config = format!("[profile storage]\ncredential_process = cat {}/key.json\n", dir.path().display());
    std::fs::write(dir.path().join("config"), config)?;
    let file = dir.path().join("config");
    let program = spawn(&fixture, &["AWS_PROFILE=storage".to_owned(), format!("AWS_CONFIG_FILE={}", file.display())])?;
    fixture.bind("photos", "class", json!({})).await?;
    fixture.leaks_no_secrets(&program, &[&server.secret_key]).await?;
    fixture.done_without(&["photos"]).await
}

/// Each class may use a separate account.
#[tokio::test]
async fn aws_administrator_assumes_the_role_of_the_class() -> anyhow::Result<()> {
    let fixture = Fixture::new("s3-assume").await?;
    let role = fixture.server().create_role("storage").await?;
    let sts = format!("AWS_ENDPOINT_URL_STS={}", fixture.server().endpoint);
    let server = fixture.server();
    let key = server.variables();
    let program = spawn(&fixture, &[sts, key[0].clone(), key[1].clone()])?;
    fixture
        .class("account", &[("adminRoleArn", &role), ("externalId", "cluster-7"), ("region", "eu-central-1")])
        .await?;
    fixture.claim("photos", "account", json!({})).await?;
    fixture.wait_for_ready_message("photos", "the administrator needs the permission iam:GetUser").await?;
    fixture.server().allow_everything("storage").await?;
    fixture.bound("photos").await?;
    let user = fixture.user("photos").await?;
    ensure!(user.works().await, "the key of the claim does not work");
    fixture.leaks_no_secrets(&program, &[&user.secret, &server.secret_key]).await?;
    fixture.done_without(&["photos"]).await
}

#[tokio::test]
async fn aws_event_explains_how_to_set_missing_credentials() -> anyhow::Result<()> {
    let fixture = Fixture::new("s3-none").await?;
    let program = spawn(&fixture, &["AWS_EC2_METADATA_DISABLED=true".to_owned()])?;
    fixture.claim("photos", "class", json!({})).await?;
    fixture.wait_for_ready_message("photos", "set adminSecretName and adminSecretNamespace").await?;
    drop(program);
    let _program = fixture.start().await?;
    fixture.bound("photos").await?;
    fixture.done_without(&["photos"]).await
}

/// The node's metadata is never requested through a proxy.
#[tokio::test]
async fn aws_requests_use_the_proxy_from_the_environment() -> anyhow::Result<()> {
    let fixture = Fixture::new("s3-proxy").await?;
    let server = fixture.server();
    let requests = Arc::<AtomicU64>::default();
    let seen = requests.clone();
    let proxy = proxy::start_with(server, Duration::ZERO, move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        ProxyAction::Answered
    });
    let proxy = format!("HTTP_PROXY={}", proxy.await?);
    let key = server.variables();
    let program = spawn(&fixture, &[proxy.clone(), key[0].clone(), key[1].clone()])?;
    fixture.bind("photos", "class", json!({})).await?;
    let through = requests.load(Ordering::Relaxed);
    ensure!(through >= 6, "only {through} requests used the proxy");
    drop(program);

    let _program = spawn(&fixture, &[proxy, "NO_PROXY=127.0.0.1".to_owned(), key[0].clone(), key[1].clone()])?;
    fixture.bind("videos", "class", json!({})).await?;
    ensure!(requests.load(Ordering::Relaxed) == through, "NO_PROXY is ignored");
    fixture.done_without(&["photos", "videos"]).await
}
