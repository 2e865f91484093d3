//! A running gateway.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::VERSITY;
use crate::cluster::eventually;
use crate::control_plane::last_lines;
use crate::guard::{Guard, Lifetime, Running};
use crate::ports::free_port;
use crate::progress;
use crate::s3::Account;

/// The limit for a start on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A gateway that ends with this process.
pub struct Versity {
    server: Account,
    // The processes end before their folder is removed.
    _processes: [Running; 2],
    _dir: tempfile::TempDir,
}

impl Versity {
    /// Starts a gateway that reports this region.
    pub async fn start(region: &str, guard: &Guard) -> anyhow::Result<Self> {
        let program = VERSITY.path(guard, &progress::silent()).await?;
        let dir = tempfile::tempdir()?;
        let folder = |name: &str| -> anyhow::Result<String> {
            let path = dir.path().join(name);
            fs::create_dir(&path)?;
            Ok(path.display().to_string())
        };
        let (users, buckets, versions) = (folder("users")?, folder("buckets")?, folder("versions")?);
        // The socket between S3 and IAM. Its path is short enough for a socket.
        let socket = dir.path().join("iam").display().to_string();
        let [s3, iam] = [free_port()?, free_port()?].map(|port| format!("127.0.0.1:{port}"));
        let server = Account::new(&s3, &iam, Some(region), "/kube-provisioner/");
        let logs = ["iam.log", "s3.log"].map(|log| dir.path().join(log));
        let run = |log: &Path, arguments: &[&str]| run(&program, &server, log, arguments, guard);
        let iam = run(&logs[0], &["--port", &iam, "iam", "--dir", &users, "--private-ports", &socket])?;
        let users = server.iam()?;
        answers(&logs[0], async || users.users("/").await.is_ok()).await?;
        let standalone = ["--iam-standalone-endpoint", &socket];
        let posix = ["posix", "--versioning-dir", &versions, &buckets];
        let s3 = run(&logs[1], &[&["--port", &s3, "--region", region], &standalone[..], &posix].concat())?;
        let admin = server.admin()?;
        answers(&logs[1], async || admin.list_buckets().await.is_ok()).await?;
        Ok(Self { server, _processes: [s3, iam], _dir: dir })
    }

    /// The gateway's addresses and key.
    pub fn server(&self) -> &Account {
        &self.server
    }
}

async fn answers(log: &Path, asked: impl AsyncFn() -> bool) -> anyhow::Result<()> {
    let answers = eventually(LIMIT, async || Ok(asked().await.then_some(()))).await?;
    answers.with_context(|| format!("the gateway does not answer: {}", last_lines(log, 15)))
}

fn run(program: &Path, server: &Account, log: &Path, arguments: &[&str], guard: &Guard) -> anyhow::Result<Running> {
    let log = File::create(log)?;
    let mut command = guard.command(Lifetime::WithOwner, program);
    command.args(arguments).stdout(log.try_clone()?).stderr(log);
    command.env("ROOT_ACCESS_KEY", &server.access_key).env("ROOT_SECRET_KEY", &server.secret_key);
    Running::start(command).context("cannot start the gateway")
}
