//! kubectl, as an administrator runs it in a checkout of this project.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::{TestSpace, eventually};
use crate::manifests::project;

/// Deleting a namespace includes deleting its objects.
const LIMIT: Duration = Duration::from_secs(240);

/// The control plane's kubectl, in this project's folder.
#[derive(Clone, Copy)]
pub struct Kubectl<'a>(&'a TestSpace);

impl TestSpace {
    /// Returns a kubectl that runs as administrator.
    pub fn kubectl(&self) -> Kubectl<'_> {
        Kubectl(self)
    }
}

impl Kubectl<'_> {
    /// Runs kubectl and returns its output. Treats warnings as errors.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let state = self.0.cluster().state();
        let mut command = Command::new(state.kubectl.as_ref().context("the control plane has no kubectl")?);
        command.arg("--kubeconfig").arg(&state.kubeconfig).args(arguments).current_dir(project());
        command.env("HOME", &state.dir);
        let output = command.stdin(Stdio::null()).output()?;
        let (said, complained) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        ensure!(
            output.status.success() && !complained.contains("Warning"),
            "kubectl {arguments:?}: {said}{complained}"
        );
        Ok(said)
    }

    /// Applies a folder with a kustomization.
    pub fn apply(&self, folder: &str) -> anyhow::Result<String> {
        self.run(&["apply", "--validate=strict", "-k", folder])
    }

    /// Removes the objects of a folder and all objects in its namespace, and waits until none of them remain.
    pub async fn remove(&self, folder: &str) -> anyhow::Result<()> {
        self.run(&["delete", "--wait=false", "-k", folder])?;
        let mut left = String::new();
        let gone = eventually(LIMIT, async || {
            left = self.run(&["get", "--ignore-not-found", "--output", "name", "-k", folder])?;
            Ok(left.is_empty().then_some(()))
        });
        gone.await?.with_context(|| format!("{folder} leaves\n{left}"))
    }
}
