//! Claims without keys, whose pods assume a role with a service account token.

use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::eventually;
use testbed::s3::sts::{self, AUDIENCE, Tokens};

use super::{Fixture, SOON};

const PROVIDER: &str = "arn:aws:iam::123456789012:oidc-provider/kubernetes.example.com";
const USE: &str = r#"
cat > use.py <<'END'
import boto3, os
s3, bucket = boto3.client("s3"), os.environ["BUCKET_NAME"]
s3.put_object(Bucket=bucket, Key="cat", Body=b"miaow")
assert s3.get_object(Bucket=bucket, Key="cat")["Body"].read() == b"miaow"
END
python3 use.py
"#;

struct Keyless {
    fixture: Fixture,
    /// The address of an STS that verifies the cluster's tokens.
    sts: String,
}

impl Keyless {
    async fn new(test: &str) -> anyhow::Result<Self> {
        let fixture = Fixture::new(test).await?;
        let client = fixture.space.client().clone();
        let sts = sts::start(fixture.server(), Tokens::Cluster { client, provider: PROVIDER.to_owned() }).await?;
        fixture.class_with("keyless", &[("oidcProviderArn", PROVIDER)]).await?;
        Ok(Self { fixture, sts })
    }

    /// A token like the one that the kubelet requests for a pod.
    async fn token(&self, account: &str, audience: &str) -> anyhow::Result<String> {
        let accounts: Api<ServiceAccount> = self.fixture.space.api();
        if accounts.get_opt(account).await?.is_none() {
            let metadata = serde_json::from_value(json!({"name": account}))?;
            self.fixture.space.create(&ServiceAccount { metadata, ..ServiceAccount::default() }).await?;
        }
        let spec = TokenRequestSpec { audiences: vec![audience.to_owned()], ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let given = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        Ok(given.status.context("there is no token")?.token)
    }

    /// Uses boto3 like a pod with the claim's entries and this token, and returns the output.
    async fn uses(&self, claim: &str, token: &str) -> anyhow::Result<String> {
        let more = [("AWS_ENDPOINT_URL_STS", self.sts.as_str()), ("AWS_WEB_IDENTITY_TOKEN_FILE", "token")];
        let pod = self.fixture.pod(claim, &more).await?;
        pod.write("token", token)?;
        pod.run(USE).await
    }

    async fn refuses(&self, claim: &str, token: &str, why: &str) -> anyhow::Result<()> {
        let refused =
            self.uses(claim, token).await.err().with_context(|| format!("the token works, expected {why}"))?;
        ensure!(refused.to_string().contains(why), "{refused}");
        Ok(())
    }

    async fn ask(&self, claim: &str, config: serde_json::Value) -> anyhow::Result<()> {
        self.fixture.patch(claim, json!({"spec": {"additionalConfig": config}})).await
    }

    async fn key(&self, claim: &str) -> anyhow::Result<Option<String>> {
        let data = self.fixture.space.api::<Secret>().get(claim).await?.data.unwrap_or_default();
        Ok(data.get("AWS_ACCESS_KEY_ID").map(|id| String::from_utf8_lossy(&id.0).into_owned()))
    }
}

#[tokio::test]
async fn aws_clients_use_a_bucket_with_a_service_account_token() -> anyhow::Result<()> {
    let keyless = Keyless::new("s3-keyless").await?;
    let fixture = &keyless.fixture;
    let _program = fixture.start().await?;
    let config = json!({"authentication": "ServiceAccount", "serviceAccount": "web"});
    fixture.claim("photos", "keyless", json!({"additionalConfig": config})).await?;
    fixture.claim("videos", "keyless", json!({"additionalConfig": {"authentication": "ServiceAccount"}})).await?;
    fixture.wait_for_ready_message("videos", "no service account is named").await?;
    fixture.bound("photos").await?;
    assert_eq!(keyless.key("photos").await?, None);
    let entries = fixture.space.api::<ConfigMap>().get("photos").await?.data.unwrap_or_default();
    assert_eq!(entries["AWS_WEB_IDENTITY_TOKEN_FILE"], "/var/run/secrets/eks.amazonaws.com/serviceaccount/token");

    keyless.uses("photos", &keyless.token("web", AUDIENCE).await?).await?;
    keyless.refuses("photos", &keyless.token("web", "somebody-else").await?, "InvalidIdentityToken").await?;
    keyless.refuses("photos", &keyless.token("another", AUDIENCE).await?, "AccessDenied").await?;
    // A service account in another namespace.
    let twin = Keyless { fixture: Fixture::with("s3-keyless-twin", fixture.aws.clone()).await?, sts: String::new() };
    keyless.refuses("photos", &twin.token("web", AUDIENCE).await?, "AccessDenied").await?;

    // With another service account, the first one loses its access.
    keyless.ask("photos", json!({"serviceAccount": "another"})).await?;
    let token = keyless.token("another", AUDIENCE).await?;
    let moved = eventually(SOON, async || Ok(keyless.uses("photos", &token).await.ok())).await?;
    ensure!(moved.is_some(), "the other service account has no access");
    keyless.refuses("photos", &keyless.token("web", AUDIENCE).await?, "AccessDenied").await?;

    fixture.request_key_rotation("photos", "now").await?;
    fixture.space.wait_for_message("ObjectBucketClaim", "photos", "has no keys").await?;
    for claim in ["photos", "videos"] {
        fixture.delete(claim).await?;
    }
    twin.fixture.done().await?;
    keyless.fixture.done().await
}

#[tokio::test]
async fn aws_clients_use_a_bucket_after_switching_between_key_and_role() -> anyhow::Result<()> {
    let keyless = Keyless::new("s3-switch").await?;
    let fixture = &keyless.fixture;
    let _program = fixture.start().await?;
    let user = fixture.new_user("photos", "keyless", json!({})).await?;
    user.put("cat", "miaow").await?;
    keyless.ask("photos", json!({"authentication": "ServiceAccount", "serviceAccount": "web"})).await?;
    let gone = eventually(SOON, async || Ok(keyless.key("photos").await?.is_none().then_some(()))).await?;
    ensure!(gone.is_some() && !user.works().await, "the key still exists or works");
    keyless.uses("photos", &keyless.token("web", AUDIENCE).await?).await?;

    keyless.ask("photos", json!({"authentication": null, "serviceAccount": null})).await?;
    let back = eventually(SOON, async || Ok(keyless.key("photos").await?)).await?;
    ensure!(back.is_some() && fixture.user("photos").await?.works().await, "the new key does not work");
    let role_is_gone = async || Ok(fixture.assets().await?.iter().all(|name| !name.starts_with("role ")).then_some(()));
    ensure!(eventually(SOON, role_is_gone).await?.is_some(), "{:?}", fixture.assets().await?);
    fixture.delete("photos").await?;
    keyless.fixture.done().await
}

// Rules: Z1.
/// The process is killed while it replaces a key with a role, and the claim then asks for a key again.
#[tokio::test]
async fn aws_kills_leave_no_role_next_to_a_key() -> anyhow::Result<()> {
    let keyless = Keyless::new("s3-switch-kill").await?;
    let fixture = &keyless.fixture;
    let mut program = fixture.start().await?;
    fixture.bind("photos", "keyless", json!({})).await?;
    for kill in 1..8 {
        keyless.ask("photos", json!({"authentication": "ServiceAccount", "serviceAccount": "web"})).await?;
        tokio::time::sleep(Duration::from_millis(25 * kill)).await;
        program.kill().await?;
        keyless.ask("photos", json!({"authentication": null, "serviceAccount": null})).await?;
        program = fixture.start().await?;
        let settled = async || {
            let has_role = fixture.assets().await?.iter().any(|name| name.starts_with("role "));
            Ok((!has_role && keyless.key("photos").await?.is_some()).then_some(()))
        };
        ensure!(eventually(SOON, settled).await?.is_some(), "{kill}: {:?}", fixture.assets().await?);
    }
    fixture.delete("photos").await?;
    keyless.fixture.done().await
}

#[tokio::test]
async fn aws_unsupported_or_forbidden_authentication_is_refused() -> anyhow::Result<()> {
    let keyless = Keyless::new("s3-refused").await?;
    let fixture = &keyless.fixture;
    let _program = fixture.start().await?;
    let without_key = json!({"authentication": "ServiceAccount", "serviceAccount": "web"});
    fixture.claim("photos", "class", json!({"additionalConfig": without_key})).await?;
    fixture.wait_for_ready_message("photos", "oidcProviderArn").await?;
    fixture.class_with("only", &[("oidcProviderArn", PROVIDER), ("authentication", "ServiceAccount")]).await?;
    fixture.claim("videos", "only", json!({"additionalConfig": {"authentication": "Key"}})).await?;
    fixture.wait_for_ready_message("videos", "the class issues none").await?;
    fixture.claim("songs", "class", json!({"additionalConfig": {"serviceAccount": "web"}})).await?;
    fixture.wait_for_ready_message("songs", "has no effect without authentication").await?;
    fixture.claim("films", "only", json!({"additionalConfig": {"serviceAccount": "system:masters"}})).await?;
    fixture.wait_for_ready_message("films", "is not the name of a service account").await?;
    for claim in ["photos", "videos", "songs", "films"] {
        fixture.delete(claim).await?;
    }
    keyless.fixture.done().await
}

// Rules: Z1, Z2.
/// A role is created, trusted and given its policy in separate steps, and the process is killed between any two of
/// them.
#[tokio::test]
async fn aws_kills_leave_no_roles_of_deleted_claims() -> anyhow::Result<()> {
    let keyless = Keyless::new("s3-keyless-kill").await?;
    let fixture = &keyless.fixture;
    let config = json!({"authentication": "ServiceAccount", "serviceAccount": "web"});
    for kill in 0..12 {
        let mut program = fixture.start().await?;
        fixture.claim(&format!("claim-{kill}"), "keyless", json!({"additionalConfig": config})).await?;
        tokio::time::sleep(Duration::from_millis(25 * kill)).await;
        // Every other claim is deleted while no provisioner runs.
        program.kill().await?;
        if kill % 2 == 0 {
            let claims = fixture.space.api::<objectbucket_api::ObjectBucketClaim>();
            claims.delete(&format!("claim-{kill}"), &Default::default()).await?;
        }
    }
    let _program = fixture.start().await?;
    for kill in (1..12).step_by(2) {
        fixture.bound(&format!("claim-{kill}")).await?;
    }
    let settled = async || Ok((fixture.assets().await?.len() == 3 * 6).then_some(()));
    ensure!(eventually(SOON, settled).await?.is_some(), "{:?}", fixture.assets().await?);
    for kill in (1..12).step_by(2) {
        fixture.delete(&format!("claim-{kill}")).await?;
    }
    keyless.fixture.done().await
}
