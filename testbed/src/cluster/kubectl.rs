//! kubectl, as an administrator runs it in a checkout of this project.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::{TestSpace, eventually};
use crate::manifests::project;

/// A namespace goes with all that is in it.
const LIMIT: Duration = Duration::from_secs(240);

/// The kubectl of the control plane, in this project's folder.
#[derive(Clone, Copy)]
pub struct Kubectl<'a>(&'a TestSpace);

impl TestSpace {
    /// The way to run kubectl as administrator.
    pub fn kubectl(&self) -> Kubectl<'_> {
        Kubectl(self)
    }
}

impl Kubectl<'_> {
    /// What it says; warnings are taken for errors.
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

    /// Removes what a folder has, and what is in the namespace; then nothing of it is left.
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
