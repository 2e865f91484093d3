//! Go modules as they were published, and their programs, from the place and with the checks that the user's Go has for them.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::control_plane::{cache_dir, last_lines, wait_for_lock};
use crate::guard::{Guard, Lifetime, Running};
use crate::progress::{self, SharedProgress};

/// One version of a module, on this machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GoModule {
    /// Such as `v1.35.4`.
    #[serde(default)]
    pub version: String,
    /// The file that names what it needs.
    #[serde(default)]
    pub go_mod: PathBuf,
    /// Its files.
    #[serde(default)]
    pub dir: PathBuf,
    /// The checksum of its files, as in a `go.sum`.
    #[serde(default)]
    pub sum: String,
    error: Option<String>,
}

/// Downloads `module`, such as `k8s.io/kubernetes@v1.35.4`, unless it is there.
pub async fn download(module: &str, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<GoModule> {
    let answer = tempfile::NamedTempFile::new()?;
    let mut command = guard.command(Lifetime::WithOwner, "go");
    command.args(["mod", "download", "-json", module]).current_dir(std::env::temp_dir()).env("GOWORK", "off");
    command.stdout(File::create(answer.path())?);
    let mut go = Running::start(command).context("cannot start go")?;
    progress::during(progress, &format!("downloading {module}"), go.ended()).await?;
    let found: GoModule = serde_json::from_slice(&fs::read(answer.path())?)
        .with_context(|| format!("go does not say where {module} is"))?;
    match found.error {
        Some(error) => bail!("cannot download {module}: {error}"),
        None => Ok(found),
    }
}

/// A program of a module.
pub(crate) struct GoProgram {
    pub(crate) name: &'static str,
    /// In [`Source::Module`] its folder.
    pub(crate) package: &'static str,
    pub(crate) source: Source,
    /// Without the `v`.
    pub(crate) version: &'static str,
    /// How long it takes to build it, in words.
    pub(crate) time: &'static str,
}

/// How a program is built.
pub(crate) enum Source {
    /// By its package's name.
    Package,
    /// In the module's own folder: Go installs no program by its name whose `go.mod` replaces a module.
    Module(&'static str),
}

impl GoProgram {
    /// The program's path. It is built once, into the user's cache.
    pub(crate) async fn path(&self, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
        let Self { name, package, version, time, .. } = self;
        let folder = self.folder()?;
        let program = folder.join(name);
        fs::create_dir_all(&folder)?;
        let _lock = wait_for_lock(&folder.join("lock"), "waiting for another build", progress).await?;
        if program.is_file() {
            return Ok(program);
        }
        progress.line(&format!("building {name} {version} into {} (once, some {time} on two cores)", folder.display()));
        let unfinished = folder.join("unfinished");
        let log = folder.join("build.log");
        let output = File::create(&log)?;
        let mut command = guard.command(Lifetime::WithOwner, "go");
        let how = ["-trimpath", "-ldflags", "-s -w"];
        match self.source {
            Source::Package => {
                command.arg("install").args(how).arg(format!("{package}@v{version}")).env("GOBIN", &unfinished);
            }
            Source::Module(module) => {
                let module = download(&format!("{module}@v{version}"), guard, progress).await?;
                fs::create_dir_all(&unfinished)?;
                command.arg("build").args(how).arg("-o").arg(unfinished.join(name)).arg(format!("./{package}"));
                command.current_dir(module.dir);
            }
        }
        command.env("CGO_ENABLED", "0").env("GOWORK", "off");
        command.stdout(output.try_clone()?).stderr(output);
        let mut go = Running::start(command).context("cannot start go")?;
        let status = progress::during(progress, &format!("building {name}"), go.ended()).await?;
        ensure!(status.success(), "cannot build {name}: {status}\n{}", last_lines(&log, 15));
        fs::rename(unfinished.join(name), &program)?;
        Ok(program)
    }

    /// Whether it is built, or can be.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let is_built = self.folder()?.join(self.name).is_file();
        ensure!(is_built || crate::packages::program("go").is_ok(), "there is no Go to build {} with", self.name);
        Ok(())
    }

    fn folder(&self) -> anyhow::Result<PathBuf> {
        Ok(cache_dir()?.join(format!("{}-{}", self.name, self.version)))
    }
}
