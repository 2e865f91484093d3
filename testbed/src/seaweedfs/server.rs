//! A running cluster.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use super::SEAWEEDFS;
use crate::cluster::eventually;
use crate::control_plane::last_lines;
use crate::guard::{Guard, Lifetime, Running};
use crate::ports::free_ports;
use crate::progress;
use crate::s3::Account;

/// The limit for a start on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A cluster that ends with this process.
pub struct SeaweedFs {
    server: Account,
    // The process ends before its folder is removed.
    _process: Running,
    _sockets: Sockets,
    _dir: tempfile::TempDir,
}

/// The sockets that each of its servers creates next to its port, in a fixed folder.
struct Sockets(Vec<u16>);

impl SeaweedFs {
    /// Starts a cluster with an administrator.
    pub async fn start(guard: &Guard) -> anyhow::Result<Self> {
        let program = SEAWEEDFS.path(guard, &progress::silent()).await?;
        let dir = tempfile::tempdir()?;
        let (data, config, log) = (dir.path().join("data"), dir.path().join("s3.json"), dir.path().join("log"));
        fs::create_dir(&data)?;
        let options = ["master.port", "volume.port", "filer.port", "s3.port"];
        let options = options.into_iter().flat_map(|option| [option.to_owned(), format!("{option}.grpc")]);
        let ports: Vec<(String, u16)> = options.zip(free_ports(8)?).collect();
        let s3 = ports.iter().find(|(option, _)| option == "s3.port").context("S3 has a port")?.1;
        let s3 = format!("127.0.0.1:{s3}");
        // SeaweedFS' IAM ignores paths.
        let server = Account::new(&s3, &s3, None, "/");
        let key = json!({"accessKey": server.access_key, "secretKey": server.secret_key});
        let root = json!({"name": "root", "credentials": [key], "actions": ["Admin"]});
        fs::write(&config, json!({"identities": [root]}).to_string())?;

        let output = File::create(&log)?;
        let mut command = guard.command(Lifetime::WithOwner, &program);
        command.args(["-logtostderr", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"]);
        command.arg(format!("-dir={}", data.display())).arg(format!("-s3.config={}", config.display()));
        command.args(ports.iter().map(|(option, port)| format!("-{option}={port}")));
        command.args(["-filer", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.args(["-s3.iam.readOnly=false", "-s3.iam.selfServiceRequiresGrant"]);
        // As many small volumes as the tests' buckets need.
        command.args(["-volume.max=0", "-master.volumeSizeLimitMB=64"]);
        command.stdout(output.try_clone()?).stderr(output).current_dir(dir.path());
        let process = Running::start(command).context("cannot start SeaweedFS")?;
        let sockets = Sockets(ports.into_iter().map(|(_, port)| port).collect());
        answers(&server, &log).await?;
        Ok(Self { server, _process: process, _sockets: sockets, _dir: dir })
    }

    /// The cluster's addresses and key.
    pub fn server(&self) -> &Account {
        &self.server
    }
}

/// Waits until an object can be written: S3 answers before a writable volume exists.
async fn answers(server: &Account, log: &Path) -> anyhow::Result<()> {
    const PROBE: &str = "probe-of-the-start";
    let (admin, iam) = (server.admin()?, server.iam()?);
    let works = async || {
        let _ = admin.create_bucket(PROBE, None).await;
        Ok((admin.put_object(PROBE, "x", "x").await.is_ok() && iam.users("/").await.is_ok()).then_some(()))
    };
    let works = eventually(LIMIT, works).await?;
    works.with_context(|| format!("SeaweedFS does not answer: {}", last_lines(log, 15)))?;
    admin.empty_bucket(PROBE).await?;
    admin.delete_bucket(PROBE).await?;
    Ok(())
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let Ok(files) = fs::read_dir("/tmp") else { return };
        for file in files.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let is_own = |port: &u16| name.starts_with("seaweedfs-") && name.ends_with(&format!("-{port}.sock"));
            if self.0.iter().any(is_own) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}
