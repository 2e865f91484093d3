//! A running cluster, with clients for its admin API and S3.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use s3_client::{Client, Credentials};
use serde_json::{Value, json};

use super::GARAGE;
use crate::cluster::eventually;
use crate::control_plane::last_lines;
use crate::guard::{Guard, Lifetime, Running};
use crate::http;
use crate::ports::free_ports;
use crate::progress;
use crate::s3::client;

/// The limit for a start on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The addresses and the admin token of a node.
#[derive(Clone)]
pub struct Server {
    /// The address of S3.
    pub endpoint: String,
    /// The address of the admin API.
    pub admin_endpoint: String,
    /// The only region.
    pub region: String,
    /// A token of the admin API with all permissions.
    pub token: String,
    admin_port: u16,
}

/// A cluster that ends with this process.
pub struct Garage {
    nodes: Vec<Server>,
    // The processes end before their folder is removed.
    _processes: Vec<Running>,
    _dir: tempfile::TempDir,
}

impl Garage {
    /// Starts a cluster with one node.
    pub async fn start(guard: &Guard) -> anyhow::Result<Self> {
        Self::of_nodes(1, guard).await
    }

    /// Starts a cluster of `count` nodes, each of which stores all data.
    pub async fn of_nodes(count: usize, guard: &Guard) -> anyhow::Result<Self> {
        let program = GARAGE.path(guard, &progress::silent()).await?;
        let dir = tempfile::tempdir()?;
        let ports = free_ports(3 * count)?;
        let (mut nodes, mut processes) = (Vec::new(), Vec::new());
        for ports in ports.chunks(3) {
            let server = Server {
                endpoint: format!("http://127.0.0.1:{}", ports[0]),
                admin_endpoint: format!("http://127.0.0.1:{}", ports[1]),
                region: "garage".to_owned(),
                token: "the-token-of-the-administrator".to_owned(),
                admin_port: ports[1],
            };
            let folder = dir.path().join(ports[0].to_string());
            fs::create_dir(&folder)?;
            let (config, log) = (folder.join("garage.toml"), folder.join("log"));
            fs::write(&config, server.config(&folder, ports, count))?;
            let output = File::create(&log)?;
            let mut command = guard.command(Lifetime::WithOwner, &program);
            command.arg("-c").arg(&config).arg("server").env("RUST_LOG", "warn");
            command.stdout(output.try_clone()?).stderr(output).current_dir(dir.path());
            processes.push(Running::start(command).context("cannot start Garage")?);
            let answers = eventually(LIMIT, async || Ok(server.ask("GetClusterStatus", None).await.ok())).await?;
            answers.with_context(|| format!("Garage does not start: {}", last_lines(&log, 15)))?;
            nodes.push(server);
        }
        lay_out(&nodes, &ports).await?;
        Ok(Self { nodes, _processes: processes, _dir: dir })
    }

    /// One of the nodes.
    pub fn node(&self, which: usize) -> &Server {
        &self.nodes[which]
    }

    /// The first node.
    pub fn server(&self) -> &Server {
        self.node(0)
    }
}

impl Server {
    /// An S3 client with these credentials.
    pub fn s3(&self, credentials: Credentials) -> anyhow::Result<Client> {
        client(&self.endpoint, Some(&self.region), credentials)
    }

    /// Calls an operation of the admin API, with its query and a body; returns `None` if the bucket or key does not
    /// exist.
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

    /// Like [`Self::find`], but fails if the bucket or key does not exist.
    pub async fn ask(&self, operation: &str, body: Option<Value>) -> anyhow::Result<Value> {
        self.find(operation, body).await?.with_context(|| format!("{operation}: there is none"))
    }

    /// A bucket by its name.
    pub async fn bucket(&self, name: &str) -> anyhow::Result<Option<Value>> {
        self.find(&format!("GetBucketInfo?globalAlias={name}"), None).await
    }

    /// Creates a bucket as an administrator; returns `false` if the name is taken.
    pub async fn make_bucket(&self, name: &str) -> anyhow::Result<bool> {
        if self.bucket(name).await?.is_some() {
            return Ok(false);
        }
        Ok(self.ask("CreateBucket", Some(json!({"globalAlias": name}))).await.is_ok())
    }

    /// Creates an administrator's key with all permissions for a bucket, and returns a client that uses it.
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

    /// All buckets, by name or else by id, and all keys except the administrator's, with the buckets that they can
    /// access.
    pub async fn assets(&self) -> anyhow::Result<Vec<String>> {
        let mut all = Vec::new();
        for bucket in list(&self.ask("ListBuckets", None).await?) {
            let name = bucket["globalAliases"][0].as_str();
            all.push(name.map_or_else(|| format!("bucket {}", bucket["id"]), str::to_owned));
            let known =
                self.find(&format!("GetBucketInfo?id={}", text(&bucket, "id")?), None).await?.unwrap_or_default();
            let limits = known["quotas"].as_object().into_iter().flatten().filter(|(_, most)| !most.is_null());
            all.extend(limits.map(|(limit, most)| format!("{limit} of {}: {most}", bucket["id"])));
        }
        for key in list(&self.ask("ListKeys", None).await?) {
            let (id, name) = (text(&key, "id")?, text(&key, "name")?);
            if name.starts_with("owner of ") {
                continue;
            }
            all.push(format!("key {id} {name}"));
            let known = self.find(&format!("GetKeyInfo?id={id}"), None).await?.unwrap_or_default();
            all.extend(
                list(&known["buckets"])
                    .iter()
                    .map(|bucket| format!("access of {id} to {}: {}", bucket["id"], bucket["permissions"])),
            );
        }
        Ok(all)
    }

    fn config(&self, dir: &Path, ports: &[u16], nodes: usize) -> String {
        let (dir, Self { region, token, .. }) = (dir.display(), self);
        let (s3, admin, rpc) = (ports[0], ports[1], ports[2]);
        let secret = "0123456789abcdef".repeat(4);
        format!(
            r#"
metadata_dir = "{dir}/meta"
data_dir = "{dir}/data"
db_engine = "lmdb"
replication_factor = {nodes}
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
}

/// Adds the nodes to the cluster's layout; nodes outside of the layout store no data.
async fn lay_out(nodes: &[Server], ports: &[u16]) -> anyhow::Result<()> {
    let (first, mut roles, mut others) = (&nodes[0], Vec::new(), Vec::new());
    for (node, ports) in nodes.iter().zip(ports.chunks(3)) {
        let status = node.ask("GetClusterStatus", None).await?;
        let id = text(&status["nodes"][0], "id")?;
        roles.push(json!({"id": id, "zone": "here", "capacity": 1_000_000_000, "tags": []}));
        others.push(format!("{id}@127.0.0.1:{}", ports[2]));
    }
    first.ask("ConnectClusterNodes", Some(json!(others[1..]))).await?;
    first.ask("UpdateClusterLayout", Some(json!({"roles": roles}))).await?;
    first.ask("ApplyClusterLayout", Some(json!({"version": 1}))).await?;
    for node in nodes {
        let healthy = async || {
            let health = node.ask("GetClusterHealth", None).await?;
            Ok((health["status"] == "healthy" && health["storageNodesUp"] == nodes.len()).then_some(()))
        };
        ensure!(eventually(LIMIT, healthy).await?.is_some(), "the cluster is not healthy");
    }
    Ok(())
}

fn list(answer: &Value) -> Vec<Value> {
    answer.as_array().cloned().unwrap_or_default()
}

fn text<'a>(answer: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    answer[name].as_str().with_context(|| format!("the answer has no {name}"))
}
