//! A gateway, and its two services as Amazon's clients see them.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use s3_client::iam::Iam;
use s3_client::{Client, Credentials};

use super::{VERSITY, program};
use crate::cluster::eventually;
use crate::control_plane::last_lines;
use crate::dependency;
use crate::guard::{Guard, Lifetime, Running};
use crate::nfs::free_port;
use crate::progress;
use crate::s3::{client, iam_client};

/// For its start on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Where it is, and the key of its root user.
#[derive(Clone)]
pub struct Server {
    /// S3.
    pub endpoint: String,
    /// IAM and STS.
    pub iam_endpoint: String,
    /// The one region that it has.
    pub region: String,
    /// The root user's key.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
}

/// A gateway that ends with this process.
pub struct Versity {
    server: Server,
    // They end before their folder does.
    _processes: [Running; 2],
    _dir: tempfile::TempDir,
}

impl Versity {
    /// Starts one that says to be in this region.
    pub async fn start(region: &str, guard: &Guard) -> anyhow::Result<Self> {
        VERSITY.check_use()?;
        VERSITY.check(dependency::INSTALL)?;
        let program = program(guard, &progress::silent()).await?;
        let dir = tempfile::tempdir()?;
        let folder = |name: &str| -> anyhow::Result<String> {
            let path = dir.path().join(name);
            fs::create_dir(&path)?;
            Ok(path.display().to_string())
        };
        let (users, buckets, versions) = (folder("users")?, folder("buckets")?, folder("versions")?);
        // S3 asks IAM there. It is no longer than a socket's path may be.
        let socket = dir.path().join("iam").display().to_string();
        let [s3, iam] = [free_port()?, free_port()?].map(|port| format!("127.0.0.1:{port}"));
        let server = Server {
            endpoint: format!("http://{s3}"),
            iam_endpoint: format!("http://{iam}"),
            region: region.to_owned(),
            access_key: "root".to_owned(),
            secret_key: "the-secret-of-root".to_owned(),
        };
        let run = |log: &str, arguments: &[&str]| run(&program, &server, &dir.path().join(log), arguments, guard);
        let iam = run("iam.log", &["--port", &iam, "iam", "--dir", &users, "--private-ports", &socket])?;
        let users = server.iam()?;
        server.answers("iam.log", dir.path(), async || users.users("/").await.is_ok()).await?;
        let standalone = ["--iam-standalone-endpoint", &socket];
        let posix = ["posix", "--versioning-dir", &versions, &buckets];
        let s3 = run("s3.log", &[&["--port", &s3, "--region", region], &standalone[..], &posix].concat())?;
        let admin = server.admin()?;
        server.answers("s3.log", dir.path(), async || admin.list_buckets().await.is_ok()).await?;
        Ok(Self { server, _processes: [s3, iam], _dir: dir })
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

    /// S3 with the root user's key.
    pub fn admin(&self) -> anyhow::Result<Client> {
        self.s3(self.root())
    }

    /// IAM with the root user's key.
    pub fn iam(&self) -> anyhow::Result<Iam> {
        // It is signed for the first region of AWS, whatever that of S3 is.
        iam_client(&self.iam_endpoint, self.root())
    }

    fn root(&self) -> Credentials {
        Credentials::new(&self.access_key, &self.secret_key)
    }

    async fn answers(&self, log: &str, dir: &Path, asked: impl AsyncFn() -> bool) -> anyhow::Result<()> {
        let answers = eventually(LIMIT, async || Ok(asked().await.then_some(()))).await?;
        answers.with_context(|| format!("the gateway does not answer: {}", last_lines(&dir.join(log), 15)))
    }
}

fn run(program: &Path, server: &Server, log: &Path, arguments: &[&str], guard: &Guard) -> anyhow::Result<Running> {
    let log = File::create(log)?;
    let mut command = guard.command(Lifetime::WithOwner, program);
    command.args(arguments).stdout(log.try_clone()?).stderr(log);
    command.env("ROOT_ACCESS_KEY", &server.access_key).env("ROOT_SECRET_KEY", &server.secret_key);
    Running::start(command).context("cannot start the gateway")
}
