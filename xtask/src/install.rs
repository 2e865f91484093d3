//! `--install-packages`

use clap::Args;
use testbed::dependency::Dependency;
use testbed::progress::SharedProgress;

#[derive(Args, Clone, Copy)]
pub(crate) struct Install {
    /// Install missing packages: Debian packages as root, Python packages into the user's cache
    #[arg(long, global = true)]
    pub(crate) install_packages: bool,
}

impl Install {
    /// Installs what a command needs, or fails with the command to run.
    pub(crate) fn prepare(
        self,
        dependency: &Dependency,
        command: &str,
        progress: &SharedProgress,
    ) -> anyhow::Result<()> {
        if self.install_packages {
            dependency.install(progress)?;
        }
        dependency.check(&format!("cargo xtask {command} --install-packages"))
    }
}
