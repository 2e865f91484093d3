//! Clients of S3 as pods use them: boto3 and the AWS CLI from PyPI, and Debian's rclone.

mod work;

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use anyhow::{Context, ensure};

use crate::dependency::{self, Dependency, Python};
use crate::packages::package;

pub use self::work::{AWS, RCLONE, boto3, works};

/// Of one release of botocore. Since 1.36 it adds checksums where it is not told otherwise.
const PYTHON: Python = Python { dir: "s3-clients", packages: &["boto3==1.44.3", "awscli==1.46.3"] };

/// What the clients need.
pub static CLIENTS: Dependency = Dependency {
    name: "clients of S3",
    packages: &[super::VENV, package("rclone", "/usr/bin/rclone", &[])],
    python: Some(PYTHON),
    needed_by: |path| path.contains("_clients_use_"),
    ..Dependency::NOTHING
};

/// A shell as in a pod that takes a claim's Secret and ConfigMap by `envFrom`: it has their entries as its environment, and
/// nothing else but a home and a path.
pub struct Pod {
    environment: BTreeMap<String, String>,
    home: tempfile::TempDir,
}

impl Pod {
    /// One with these entries.
    pub fn new(environment: BTreeMap<String, String>) -> anyhow::Result<Self> {
        CLIENTS.check_use()?;
        CLIENTS.check(dependency::INSTALL)?;
        Ok(Self { environment, home: tempfile::tempdir()? })
    }

    /// The same pod without some of the entries.
    pub fn without(&self, names: &[&str]) -> anyhow::Result<Self> {
        let kept = self.environment.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        Self::new(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// An entry.
    pub fn entry(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }

    /// Writes a file into the home.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
        Ok(fs::write(self.home.path().join(name), content)?)
    }

    /// Reads a file of the home.
    pub fn read(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        fs::read(self.home.path().join(name)).with_context(|| format!("there is no {name}"))
    }

    /// Runs a script of the shell in the home; returns what it has printed. The error has what it said.
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
