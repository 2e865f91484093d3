//! `--install-packages`

use clap::Args;
use testbed::dependency::Dependency;
use testbed::progress::SharedProgress;

#[derive(Args, Clone, Copy)]
pub(crate) struct Install {
    /// Install the packages that are missing: Debian's as root, those of Python into the user's cache
    #[arg(long, global = true)]
    pub(crate) install_packages: bool,
}

impl Install {
    /// Installs what a command needs, or fails and names the command that does.
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
