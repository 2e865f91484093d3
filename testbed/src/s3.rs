//! S3 and IAM on loopback: [moto](https://docs.getmoto.org/en/latest/docs/iam.html), in its mode that checks all
//! signatures and permissions.

#[cfg(feature = "s3")]
mod account;
#[cfg(feature = "s3")]
pub mod aws;
pub mod clients;
pub mod proxy;
pub mod regions;
#[cfg(feature = "s3")]
pub mod sources;
#[cfg(feature = "s3")]
pub mod sts;

#[cfg(feature = "s3")]
pub use self::account::{Account, client, iam_client, policies};

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use regex::Regex;

use crate::cluster::eventually;
use crate::control_plane::{Process, cache_dir, create_private_dir};
use crate::dependency::{self, Dependency, Python, is_named};
use crate::guard::{Guard, Lifetime};
use crate::packages::{self, Package, package};
use crate::ports::free_port;
use crate::process::{self, ProcessId};

/// The user with all permissions.
const ADMIN: &str = "admin";
const EVERYTHING: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;
/// The limit for the start and the end of a server. Python is slow on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);
/// The number of requests that moto accepts without checks: more than any test sends before [`enable_auth_checks`].
const UNCHECKED: &str = "INITIAL_NO_AUTH_ACTION_COUNT=1000000";

const MOTO: Python = Python { dir: "moto", packages: &["moto[server]==5.2.5"] };

/// The requirements of a server.
pub static S3_SERVER: Dependency = Dependency {
    name: "S3 and IAM",
    packages: &[VENV],
    python: Some(MOTO),
    needed_by: |path| is_named(path, "aws_"),
    server: Some(dependency::Server {
        up: |port, guard, _| Box::pin(stand_up(port, guard)),
        down: |_| Box::pin(down()),
    }),
    ..Dependency::NOTHING
};

/// The package that creates Python environments.
const VENV: Package = package("python3-venv", "/usr/share/doc/python3-venv", &[]);

/// A server's address, and its administrator's key.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct Server {
    /// The address of S3, IAM and STS.
    pub endpoint: String,
    /// The id of the administrator's key.
    pub access_key: String,
    /// The secret of the administrator's key.
    pub secret_key: String,
    id: ProcessId,
}

/// A server that ends with this process.
pub struct S3 {
    server: Server,
    _dir: tempfile::TempDir,
}

impl S3 {
    /// Starts a server with an administrator.
    pub async fn start(guard: &Guard) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let server = start(dir.path(), None, Lifetime::WithOwner, guard).await?;
        Ok(Self { server, _dir: dir })
    }

    /// The server's address and key.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.server.id.signal(crate::control_plane::Signal::KILL);
    }
}

impl Server {
    /// Suspends the server, until [`Self::resume`].
    pub fn pause(&self) {
        self.id.signal(crate::control_plane::Signal::STOP);
    }

    /// Resumes the server.
    pub fn resume(&self) {
        self.id.signal(crate::control_plane::Signal::CONT);
    }
}

async fn start(dir: &Path, port: Option<u16>, lifetime: Lifetime, guard: &Guard) -> anyhow::Result<Server> {
    S3_SERVER.check_use()?;
    S3_SERVER.check(dependency::INSTALL)?;
    let port = port.map_or_else(free_port, Ok)?;
    let program = MOTO.program("moto_server")?;
    let arguments = [UNCHECKED, &program.to_string_lossy(), "--host", "127.0.0.1", "--port", &port.to_string()];
    let arguments = arguments.map(str::to_owned).to_vec();
    let mut process = Process::new(dir, "moto", &packages::program("env")?, arguments);
    let (_, id) = process.start(lifetime, guard)?;
    let endpoint = format!("http://127.0.0.1:{port}");
    // moto does not check credentials yet.
    let answers = eventually(LIMIT, async || Ok(unchecked(port, "CreateUser", &[("UserName", ADMIN)]).await.ok()));
    answers.await?.with_context(|| format!("moto does not answer; its log: {}", process.log.display()))?;
    let policy = [("UserName", ADMIN), ("PolicyName", "everything"), ("PolicyDocument", EVERYTHING)];
    unchecked(port, "PutUserPolicy", &policy).await?;
    let key = unchecked(port, "CreateAccessKey", &[("UserName", ADMIN)]).await?;
    let part = |name: &str| -> anyhow::Result<String> {
        let part = Regex::new(&format!("<{name}>([^<]*)</{name}>"))?;
        Ok(part.captures(&key).with_context(|| format!("moto answered no {name}"))?[1].to_owned())
    };
    enable_auth_checks(port).await?;
    Ok(Server { endpoint, access_key: part("AccessKeyId")?, secret_key: part("SecretAccessKey")?, id })
}

/// Calls IAM without a signature.
async fn unchecked(port: u16, action: &str, parameters: &[(&str, &str)]) -> anyhow::Result<String> {
    let scope =
        "AWS4-HMAC-SHA256 Credential=anybody/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0";
    let headers = format!("Content-Type: application/x-www-form-urlencoded\r\nAuthorization: {scope}");
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let parameters = parameters.iter().map(|(name, value)| format!("&{name}={}", encoded(value)));
    let form = format!("Action={action}&Version=2010-05-08{}", parameters.collect::<String>());
    let answer = crate::http::ask_with(port, "POST /", &headers, &form).await?;
    ensure!(answer.contains(" 200 "), "moto refuses {action}: {answer}");
    Ok(answer)
}

/// Makes moto check signatures and permissions.
async fn enable_auth_checks(port: u16) -> anyhow::Result<()> {
    let answer = crate::http::ask(port, "POST /moto-api/reset-auth", "0").await?;
    ensure!(answer.contains(" 200 "), "moto does not check permissions: {answer}");
    Ok(())
}

/// Starts a server that outlives this process, or finds the running one; returns `true` if it is new.
async fn up(port: Option<u16>, guard: &Guard) -> anyhow::Result<(Server, bool)> {
    let dir = standing_dir()?;
    if let Some(standing) = process::standing::<Server>(&dir).filter(|standing| standing.id.is_running()) {
        return Ok((standing, false));
    }
    let _ = fs::remove_dir_all(&dir);
    create_private_dir(&dir)?;
    let server = start(&dir, port, Lifetime::Detached, guard).await?;
    fs::write(dir.join("state.json"), serde_json::to_vec(&server)?)?;
    Ok((server, true))
}

async fn stand_up(port: Option<u16>, guard: &Guard) -> anyhow::Result<dependency::Up> {
    let (server, is_new) = up(port, guard).await?;
    let usage = vec![
        format!("endpoint:   {}", server.endpoint),
        format!("export AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={}", server.access_key, server.secret_key),
        "to stop it: cargo xtask s3 down".to_owned(),
    ];
    Ok(dependency::Up { is_new, usage })
}

/// Stops the server that [`up`] started; returns `false` if there was none.
async fn down() -> anyhow::Result<bool> {
    let dir = standing_dir()?;
    let id = process::standing::<Server>(&dir).map(|standing| standing.id);
    process::end_standing(id, LIMIT, &dir).await
}

fn standing_dir() -> anyhow::Result<PathBuf> {
    Ok(cache_dir()?.join("s3-up"))
}
