//! S3 clients that pods use: boto3 and the AWS CLI from PyPI, and Debian's rclone.

mod work;

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use anyhow::{Context, ensure};

use crate::dependency::{self, Dependency, Python};
use crate::packages::package;

pub use self::work::{AWS, RCLONE, boto3, works};

/// Both use the same release of botocore. Since 1.36 it adds checksums by default.
const PYTHON: Python = Python { dir: "s3-clients", packages: &["boto3==1.44.3", "awscli==1.46.3"] };

/// The requirements of the clients.
pub static CLIENTS: Dependency = Dependency {
    name: "clients of S3",
    packages: &[super::VENV, package("rclone", "/usr/bin/rclone", &[])],
    python: Some(PYTHON),
    needed_by: |path| path.contains("_clients_use_"),
    ..Dependency::NOTHING
};

/// A shell in the environment of a pod that uses a claim's Secret and ConfigMap with `envFrom`: its only variables are
/// their entries, a home and a path.
pub struct Pod {
    environment: BTreeMap<String, String>,
    home: tempfile::TempDir,
}

impl Pod {
    /// A pod with these entries.
    pub fn new(environment: BTreeMap<String, String>) -> anyhow::Result<Self> {
        CLIENTS.check_use()?;
        CLIENTS.check(dependency::INSTALL)?;
        Ok(Self { environment, home: tempfile::tempdir()? })
    }

    /// The pod without some of the entries.
    pub fn without(&self, names: &[&str]) -> anyhow::Result<Self> {
        let kept = self.environment.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        Self::new(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// The value of an entry.
    pub fn entry(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }

    /// Writes a file into the home directory.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
        Ok(fs::write(self.home.path().join(name), content)?)
    }

    /// Reads a file from the home directory.
    pub fn read(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        fs::read(self.home.path().join(name)).with_context(|| format!("there is no {name}"))
    }

    /// Runs a shell script in the home directory, and returns its output. An error contains its error output.
    pub async fn run(&self, script: &str) -> anyhow::Result<String> {
        let path = format!("{}:/usr/bin:/bin", PYTHON.program("")?.display());
        let mut command = tokio::process::Command::new("/bin/sh");
        command.args(["-euc", script]).current_dir(self.home.path()).env_clear().envs(&self.environment);
        command.env("PATH", path).env("HOME", self.home.path()).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.context("cannot run a shell")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{script}\nfailed ({}): {said}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
