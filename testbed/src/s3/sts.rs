//! STS with the behavior of AWS, as a proxy for moto: a request with a web identity token needs no signature, and the
//! token is verified. moto requires the signature, and does not verify tokens.

use anyhow::{Context as _, ensure};
use aws_sdk_sts::primitives::DateTimeFormat as Format;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::Api;
use kube::api::PostParams;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::Server;
use super::account::TRUSTS_ANYBODY;
use super::proxy::{listen, request, response};

/// The audience of service account tokens.
pub const AUDIENCE: &str = "sts.amazonaws.com";

/// The accepted tokens.
#[derive(Clone)]
pub enum Tokens {
    /// One token, for every role.
    One(&'static str),
    /// Tokens of a cluster's service accounts, for the roles that trust them.
    Cluster {
        /// A client of the cluster that issues the tokens.
        client: kube::Client,
        /// The ARN of the OIDC provider that represents the cluster in trust policies.
        provider: String,
    },
}

/// Starts the proxy and returns its address. It ends with its runtime.
pub async fn start(server: &Server, tokens: Tokens) -> anyhow::Result<String> {
    let moto = server.clone();
    listen(move |stream| answer(stream, moto.clone(), tokens.clone())).await
}

async fn answer(mut stream: TcpStream, moto: Server, tokens: Tokens) -> anyhow::Result<()> {
    let (head, form) = request(&mut stream).await?;
    ensure!(!head.to_lowercase().contains("authorization:"), "it is signed");
    let form = String::from_utf8_lossy(&form).into_owned();
    let parameter = |name: &str| {
        let pair = form.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        percent_decode_str(pair.unwrap_or_default()).decode_utf8_lossy().into_owned()
    };
    let (token, role) = (parameter("WebIdentityToken"), parameter("RoleArn"));
    let assumed = match &tokens {
        Tokens::One(known) if token == *known => Ok(role),
        Tokens::One(_) => Err(("InvalidIdentityToken", "The token is not known")),
        Tokens::Cluster { client, provider } => match user(client, &token).await? {
            None => Err(("InvalidIdentityToken", "The token is from another cluster, or for another audience")),
            Some(user) if trusts(&moto, &role, provider, &user).await? => Ok(stand_in(&moto, &role).await?),
            Some(_) => Err(("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")),
        },
    };
    let (status, body) = match assumed {
        Ok(role) => {
            let asked = moto.sts()?.assume_role().role_arn(role).role_session_name(parameter("RoleSessionName"));
            let key = asked.send().await?.credentials.context("moto gives no key")?;
            let expiration = key.expiration.fmt(Format::DateTime)?;
            let (id, secret, session) = (key.access_key_id, key.secret_access_key, key.session_token);
            (
                200,
                format!(
                    "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
                     <AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>\
                     <SessionToken>{session}</SessionToken><Expiration>{expiration}</Expiration>\
                     </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
                ),
            )
        }
        Err((code, message)) => {
            let error = format!("<Code>{code}</Code><Message>{message}</Message>");
            (400, format!("<ErrorResponse><Error><Type>Sender</Type>{error}</Error></ErrorResponse>"))
        }
    };
    Ok(stream.write_all(response(status, &body).as_bytes()).await?)
}

/// The user of a token; `None` if the token is invalid or has another audience.
async fn user(client: &kube::Client, token: &str) -> anyhow::Result<Option<String>> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![AUDIENCE.to_owned()]) };
    let review = TokenReview { spec, ..TokenReview::default() };
    let status = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?.status;
    let status = status.context("the API server reviews no tokens")?;
    Ok(status.user.and_then(|user| user.username).filter(|_| status.authenticated == Some(true)))
}

/// True if the role's trust policy allows the user to assume it. Supports only conditions on subject and audience.
async fn trusts(moto: &Server, role: &str, provider: &str, user: &str) -> anyhow::Result<bool> {
    let found = moto.iam()?.sdk().get_role().role_name(name(role)).send().await?.role;
    let document = found.and_then(|role| role.assume_role_policy_document).context("the role has no trust")?;
    let trust: Value = serde_json::from_str(&percent_decode_str(&document).decode_utf8_lossy())?;
    let (_, issuer) = provider.split_once(":oidc-provider/").context("it is no OIDC provider")?;
    let is_met = |(key, value): (&String, &Value)| {
        let known = [(format!("{issuer}:sub"), user), (format!("{issuer}:aud"), AUDIENCE)];
        known.iter().any(|(name, given)| key == name && value == given)
    };
    Ok(trust["Statement"].as_array().into_iter().flatten().any(|statement| {
        let conditions = statement["Condition"]["StringEquals"].as_object();
        statement["Effect"] == "Allow"
            && statement["Principal"]["Federated"] == provider
            && statement["Action"] == "sts:AssumeRoleWithWebIdentity"
            && conditions.is_some_and(|conditions| conditions.len() == 2 && conditions.iter().all(is_met))
    }))
}

/// Creates a role with the same policies that moto lets this proxy assume, because moto does not support trust in
/// tokens. Returns its ARN.
async fn stand_in(moto: &Server, role: &str) -> anyhow::Result<String> {
    let (iam, role) = (moto.iam()?, name(role));
    let twin = format!("stand-in.{role}");
    let made = iam.sdk().create_role().role_name(&twin).assume_role_policy_document(TRUSTS_ANYBODY).send().await;
    let exists = made
        .as_ref()
        .is_err_and(|error| error.as_service_error().is_some_and(|error| error.is_entity_already_exists_exception()));
    ensure!(made.is_ok() || exists, "{made:?}");
    for policy in iam.role_policies(role).await? {
        let document = iam.sdk().get_role_policy().role_name(role).policy_name(&policy).send().await?.policy_document;
        iam.put_role_policy(&twin, &policy, &percent_decode_str(&document).decode_utf8_lossy()).await?;
    }
    Ok(format!("arn:aws:iam::123456789012:role/{twin}"))
}

fn name(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or_default()
}
