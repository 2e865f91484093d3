//! Credential sources of processes on AWS: the node's metadata (IMDSv2), and the agent of EKS Pod Identity. Both return
//! short-lived keys of a role in moto.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use aws_sdk_sts::Client;
use aws_sdk_sts::primitives::{DateTime, DateTimeFormat};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::Server;
use super::proxy::{listen, request, response};

/// The token that the agent expects.
pub const POD_TOKEN: &str = "the-token-of-a-pod";
const NODE_TOKEN: &str = "the-token-of-a-session";
const KEYS: &str = "/latest/meta-data/iam/security-credentials/";

/// A source of keys, which ends with its runtime.
pub struct Source {
    /// The source's address.
    pub endpoint: String,
    given: Arc<AtomicU64>,
}

impl Source {
    /// Starts a source of keys of this role with this lifetime.
    pub async fn start(server: &Server, role: &str, lifetime: Duration) -> anyhow::Result<Self> {
        let (sts, given) = (server.sts()?, Arc::<AtomicU64>::default());
        let (role, count) = (role.to_owned(), given.clone());
        let endpoint = listen(move |stream| answer(stream, sts.clone(), role.clone(), lifetime, count.clone())).await?;
        Ok(Self { endpoint, given })
    }

    /// The number of keys that it has returned.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }
}

async fn answer(
    mut stream: TcpStream,
    sts: Client,
    role: String,
    lifetime: Duration,
    given: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let (head, _) = request(&mut stream).await?;
    let (head, path) = (head.to_lowercase(), head.split(' ').nth(1).unwrap_or_default().to_owned());
    let has = |header: &str, value: &str| head.contains(&format!("{header}: {value}"));
    let is_node = has("x-aws-ec2-metadata-token", NODE_TOKEN);
    let (status, body) = match path.as_str() {
        "/latest/api/token" if head.starts_with("put ") => (200, NODE_TOKEN.to_owned()),
        KEYS if is_node => (200, "node".to_owned()),
        "/latest/meta-data/iam/security-credentials/node" if is_node => {
            (200, key(&sts, &role, lifetime, &given).await?)
        }
        "/v1/credentials" if has("authorization", POD_TOKEN) => (200, key(&sts, &role, lifetime, &given).await?),
        "/v1/credentials" => (401, "the token is not known".to_owned()),
        _ => (404, String::new()),
    };
    let answer = response(status, &body)
        .replace("text/xml", if body.starts_with('{') { "application/json" } else { "text/plain" });
    let answer = answer.replacen("\r\n", "\r\nX-Aws-Ec2-Metadata-Token-Ttl-Seconds: 21600\r\n", 1);
    Ok(stream.write_all(answer.as_bytes()).await?)
}

async fn key(sts: &Client, role: &str, lifetime: Duration, given: &AtomicU64) -> anyhow::Result<String> {
    let taken = sts.assume_role().role_arn(role).role_session_name("pod").send().await?;
    let key = taken.credentials.context("moto gives no key")?;
    given.fetch_add(1, Ordering::Relaxed);
    let ends = DateTime::from(SystemTime::now() + lifetime).fmt(DateTimeFormat::DateTime)?;
    Ok(json!({
        "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key.access_key_id, "SecretAccessKey": key.secret_access_key,
        "Token": key.session_token, "Expiration": ends,
    })
    .to_string())
}
