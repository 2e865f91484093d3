//! Programs that are built once, into the user's cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::control_plane::{cache_dir, last_lines, wait_for_lock};
use crate::guard::Running;
use crate::progress::{self, SharedProgress};

/// One version of a program.
pub(crate) struct Built<'a> {
    pub(crate) name: &'static str,
    /// The version without a leading `v`.
    pub(crate) version: &'a str,
    /// The duration of the build, in words.
    pub(crate) time: &'static str,
}

impl Built<'_> {
    /// Returns the program's path. If necessary, `command` builds it in the given folder, and places it there or below
    /// `bin`.
    pub(crate) async fn path(
        &self,
        progress: &SharedProgress,
        command: impl AsyncFnOnce(&Path) -> anyhow::Result<Command>,
    ) -> anyhow::Result<PathBuf> {
        let Self { name, version, time } = self;
        let folder = self.folder()?;
        let program = folder.join(name);
        fs::create_dir_all(&folder)?;
        let _lock = wait_for_lock(&folder.join("lock"), "waiting for another build", progress).await?;
        if program.is_file() {
            return Ok(program);
        }
        progress.line(&format!("building {name} {version} into {} (once, some {time} on two cores)", folder.display()));
        let unfinished = folder.join("unfinished");
        fs::create_dir_all(&unfinished)?;
        let log = folder.join("build.log");
        let output = File::create(&log)?;
        let mut command = command(&unfinished).await?;
        command.stdout(output.try_clone()?).stderr(output);
        let mut build = Running::start(command).with_context(|| format!("cannot build {name}"))?;
        let status = progress::during(progress, &format!("building {name}"), build.ended()).await?;
        ensure!(status.success(), "cannot build {name}: {status}\n{}", last_lines(&log, 15));
        let made = ["", "bin"].map(|folder| unfinished.join(folder).join(name)).into_iter().find(|made| made.is_file());
        fs::rename(made.with_context(|| format!("the build has created no {name}"))?, &program)?;
        // The other files of the build are no longer needed.
        fs::remove_dir_all(&unfinished)?;
        Ok(program)
    }

    /// Fails if the program is not built yet and `builder`, such as `go`, is not installed.
    pub(crate) fn check(&self, builder: &str) -> anyhow::Result<()> {
        let is_built = self.folder()?.join(self.name).is_file();
        ensure!(
            is_built || crate::packages::program(builder).is_ok(),
            "there is no {builder} to build {} with",
            self.name
        );
        Ok(())
    }

    fn folder(&self) -> anyhow::Result<PathBuf> {
        Ok(cache_dir()?.join(format!("{}-{}", self.name, self.version)))
    }
}
