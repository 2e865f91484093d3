//! A cluster, and its S3 and IAM as Amazon's clients see them.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use s3_client::iam::Iam;
use s3_client::{Client, Credentials};
use serde_json::json;

use super::{SEAWEEDFS, program};
use crate::cluster::eventually;
use crate::control_plane::last_lines;
use crate::dependency;
use crate::guard::{Guard, Lifetime, Running};
use crate::progress;
use crate::s3::{client, iam_client};

/// For its start on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Where it is, and the key of its administrator.
#[derive(Clone)]
pub struct Server {
    /// S3 and IAM.
    pub endpoint: String,
    /// The administrator's key.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
}

/// A cluster that ends with this process.
pub struct SeaweedFs {
    server: Server,
    // It ends before its folder does.
    _process: Running,
    _sockets: Sockets,
    _dir: tempfile::TempDir,
}

/// The sockets that each of its servers makes beside its port, in a folder that cannot be chosen.
struct Sockets(Vec<u16>);

impl SeaweedFs {
    /// Starts one with an administrator.
    pub async fn start(guard: &Guard) -> anyhow::Result<Self> {
        SEAWEEDFS.check_use()?;
        SEAWEEDFS.check(dependency::INSTALL)?;
        let program = program(guard, &progress::silent()).await?;
        let dir = tempfile::tempdir()?;
        let (data, config, log) = (dir.path().join("data"), dir.path().join("s3.json"), dir.path().join("log"));
        fs::create_dir(&data)?;
        let options = ["master.port", "volume.port", "filer.port", "s3.port"];
        let options = options.into_iter().flat_map(|option| [option.to_owned(), format!("{option}.grpc")]);
        // All at a time, so that no two are the same.
        let taken = options.map(|option| Ok((option, TcpListener::bind(("127.0.0.1", 0))?)));
        let taken = taken.collect::<anyhow::Result<Vec<_>>>()?.into_iter();
        let ports = taken.map(|(option, listener)| Ok((option, listener.local_addr()?.port())));
        let ports = ports.collect::<anyhow::Result<Vec<_>>>()?;
        let s3 = ports.iter().find(|(option, _)| option == "s3.port").context("S3 has a port")?.1;
        let server = Server {
            endpoint: format!("http://127.0.0.1:{s3}"),
            access_key: "root".to_owned(),
            secret_key: "the-secret-of-root".to_owned(),
        };
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
        server.answers(&log).await?;
        Ok(Self { server, _process: process, _sockets: sockets, _dir: dir })
    }

    /// Where it is.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl Server {
    /// S3 with a key.
    pub fn s3(&self, credentials: Credentials) -> anyhow::Result<Client> {
        client(&self.endpoint, None, credentials)
    }

    /// S3 with the administrator's key.
    pub fn admin(&self) -> anyhow::Result<Client> {
        self.s3(self.root())
    }

    /// IAM with the administrator's key.
    pub fn iam(&self) -> anyhow::Result<Iam> {
        iam_client(&self.endpoint, self.root())
    }

    /// The names of all users but the administrator. IAM ignores paths there.
    pub async fn users(&self) -> anyhow::Result<Vec<String>> {
        let mut users = self.iam()?.users("/").await?;
        users.retain(|user| user != "root");
        Ok(users)
    }

    fn root(&self) -> Credentials {
        Credentials::new(&self.access_key, &self.secret_key)
    }

    /// S3 answers before there is a volume to write to.
    async fn answers(&self, log: &Path) -> anyhow::Result<()> {
        const PROBE: &str = "probe-of-the-start";
        let (admin, iam) = (self.admin()?, self.iam()?);
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
