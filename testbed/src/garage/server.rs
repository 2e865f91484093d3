//! A cluster of one node, its admin API, and its S3 as Amazon's clients see it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use s3_client::{Client, Credentials};
use serde_json::{Value, json};

use super::{GARAGE, program};
use crate::cluster::eventually;
use crate::control_plane::last_lines;
use crate::dependency;
use crate::guard::{Guard, Lifetime, Running};
use crate::http;
use crate::progress;
use crate::s3::client;

/// For its start on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Where it is, and how it is administered.
#[derive(Clone)]
pub struct Server {
    /// S3.
    pub endpoint: String,
    /// The admin API.
    pub admin_endpoint: String,
    /// The one region that it has.
    pub region: String,
    /// The token of the admin API that may do everything.
    pub token: String,
    admin_port: u16,
}

/// A cluster that ends with this process.
pub struct Garage {
    server: Server,
    // It ends before its folder does.
    _process: Running,
    _dir: tempfile::TempDir,
}

impl Garage {
    /// Starts one.
    pub async fn start(guard: &Guard) -> anyhow::Result<Self> {
        GARAGE.check_use()?;
        GARAGE.check(dependency::INSTALL)?;
        let program = program(guard, &progress::silent()).await?;
        let dir = tempfile::tempdir()?;
        let (config, log) = (dir.path().join("garage.toml"), dir.path().join("log"));
        // All at a time, so that no two are the same.
        let taken = [(); 3].map(|()| TcpListener::bind(("127.0.0.1", 0)));
        let mut ports = [0; 3];
        for (port, taken) in ports.iter_mut().zip(&taken) {
            *port = taken.as_ref().map_err(|error| anyhow!("no port is free: {error}"))?.local_addr()?.port();
        }
        let [s3, admin, rpc] = ports;
        let server = Server {
            endpoint: format!("http://127.0.0.1:{s3}"),
            admin_endpoint: format!("http://127.0.0.1:{admin}"),
            region: "garage".to_owned(),
            token: "the-token-of-the-administrator".to_owned(),
            admin_port: admin,
        };
        fs::write(&config, server.config(dir.path(), [s3, admin, rpc]))?;
        let output = File::create(&log)?;
        let mut command = guard.command(Lifetime::WithOwner, &program);
        command.arg("-c").arg(&config).arg("server").env("RUST_LOG", "warn");
        command.stdout(output.try_clone()?).stderr(output).current_dir(dir.path());
        drop(taken);
        let process = Running::start(command).context("cannot start Garage")?;
        server.lay_out().await.with_context(|| format!("Garage does not start: {}", last_lines(&log, 15)))?;
        Ok(Self { server, _process: process, _dir: dir })
    }

    /// Where it is.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl Server {
    /// S3 with a key.
    pub fn s3(&self, credentials: Credentials) -> anyhow::Result<Client> {
        client(&self.endpoint, Some(&self.region), credentials)
    }

    /// Asks the admin API, by an operation with its query and a body; `None` where there is no such bucket or key.
    pub async fn find(&self, operation: &str, body: Option<Value>) -> anyhow::Result<Option<Value>> {
        let method = if body.is_some() { "POST" } else { "GET" };
        let headers = format!("Authorization: Bearer {}\r\nContent-Type: application/json", self.token);
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let answer = http::ask_with(self.admin_port, &format!("{method} /v2/{operation}"), &headers, &body).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        match status {
            "200" if body.is_empty() => Ok(Some(Value::Null)),
            "200" => Ok(Some(serde_json::from_str(body)?)),
            "404" => Ok(None),
            _ => bail!("{operation}: {status} {body}"),
        }
    }

    /// The same where it is there.
    pub async fn ask(&self, operation: &str, body: Option<Value>) -> anyhow::Result<Value> {
        self.find(operation, body).await?.with_context(|| format!("{operation}: there is none"))
    }

    /// A bucket by its name.
    pub async fn bucket(&self, name: &str) -> anyhow::Result<Option<Value>> {
        self.find(&format!("GetBucketInfo?globalAlias={name}"), None).await
    }

    /// Makes a bucket as an administrator does; `false` where the name is taken.
    pub async fn make_bucket(&self, name: &str) -> anyhow::Result<bool> {
        if self.bucket(name).await?.is_some() {
            return Ok(false);
        }
        Ok(self.ask("CreateBucket", Some(json!({"globalAlias": name}))).await.is_ok())
    }

    /// A key of the administrator's for a bucket, with all rights.
    pub async fn owner_of(&self, name: &str) -> anyhow::Result<Client> {
        let key = self.ask("CreateKey", Some(json!({"name": format!("owner of {name}")}))).await?;
        let (id, secret) = (text(&key, "accessKeyId")?, text(&key, "secretAccessKey")?);
        let bucket = self.bucket(name).await?.context("there is no such bucket")?;
        let all = json!({"read": true, "write": true, "owner": true});
        let body = json!({"bucketId": text(&bucket, "id")?, "accessKeyId": id, "permissions": all});
        self.ask("AllowBucketKey", Some(body)).await?;
        self.s3(Credentials::new(id, secret))
    }

    /// Removes an empty bucket.
    pub async fn remove_bucket(&self, name: &str) -> anyhow::Result<()> {
        let bucket = self.bucket(name).await?.context("there is no such bucket")?;
        self.ask(&format!("DeleteBucket?id={}", text(&bucket, "id")?), Some(json!({}))).await.map(drop)
    }

    /// Every bucket by its name, or else by its id, and every key that is no administrator's.
    pub async fn assets(&self) -> anyhow::Result<Vec<String>> {
        let mut all = Vec::new();
        for bucket in list(&self.ask("ListBuckets", None).await?) {
            let name = bucket["globalAliases"][0].as_str();
            all.push(name.map_or_else(|| format!("bucket {}", bucket["id"]), str::to_owned));
        }
        for key in list(&self.ask("ListKeys", None).await?) {
            let (id, name) = (text(&key, "id")?, text(&key, "name")?);
            if !name.starts_with("owner of ") {
                all.push(format!("key {id} {name}"));
            }
        }
        Ok(all)
    }

    fn config(&self, dir: &Path, [s3, admin, rpc]: [u16; 3]) -> String {
        let (dir, Self { region, token, .. }) = (dir.display(), self);
        let secret = "0123456789abcdef".repeat(4);
        format!(
            r#"
metadata_dir = "{dir}/meta"
data_dir = "{dir}/data"
db_engine = "lmdb"
replication_factor = 1
rpc_bind_addr = "127.0.0.1:{rpc}"
rpc_public_addr = "127.0.0.1:{rpc}"
rpc_secret = "{secret}"
[s3_api]
s3_region = "{region}"
api_bind_addr = "127.0.0.1:{s3}"
[admin]
api_bind_addr = "127.0.0.1:{admin}"
admin_token = "{token}"
"#
        )
    }

    /// A new node stores nothing before it has a place in the cluster.
    async fn lay_out(&self) -> anyhow::Result<()> {
        let status = eventually(LIMIT, async || Ok(self.ask("GetClusterStatus", None).await.ok())).await?;
        let node = status.as_ref().map(|status| status["nodes"][0]["id"].clone()).context("there is no answer")?;
        let role = json!({"id": node, "zone": "here", "capacity": 1_000_000_000, "tags": []});
        self.ask("UpdateClusterLayout", Some(json!({"roles": [role]}))).await?;
        self.ask("ApplyClusterLayout", Some(json!({"version": 1}))).await?;
        let healthy = async || {
            let health = self.ask("GetClusterHealth", None).await?;
            Ok((health["status"] == "healthy").then_some(()))
        };
        ensure!(eventually(LIMIT, healthy).await?.is_some(), "the cluster is not healthy");
        Ok(())
    }
}

fn list(answer: &Value) -> Vec<Value> {
    answer.as_array().cloned().unwrap_or_default()
}

fn text<'a>(answer: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    answer[name].as_str().with_context(|| format!("the answer has no {name}"))
}
