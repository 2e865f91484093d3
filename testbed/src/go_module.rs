//! Go modules as they were published, and their programs, from the place and with the checks that the user's Go has for them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::built::Built;
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
    pub(crate) program: Built,
    /// In [`Source::Module`] its folder.
    pub(crate) package: &'static str,
    pub(crate) source: Source,
}

/// Nobody debugs what is built: a tenth of the compiler's time goes to what debuggers read.
pub(crate) const COMPILER_FLAGS: [&str; 2] = ["-trimpath", "-gcflags=all=-dwarf=false"];
/// What the linker leaves out for the same reason.
pub(crate) const STRIP: &str = "-s -w";

/// How a program is built.
pub(crate) enum Source {
    /// By its package's name.
    Package,
    /// In the module's own folder: Go installs no program by its name whose `go.mod` replaces a module.
    Module(&'static str),
    /// In a module of this project, which is a folder of `testbed`, and has the package or requires it. A program `x.test` is a package's test.
    Required(&'static str),
}

impl GoProgram {
    /// The program's path. It is built once, into the user's cache.
    pub(crate) async fn path(&self, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
        let Self { program, package, source } = self;
        let build = async |folder: &Path| {
            let mut command = guard.command(Lifetime::WithOwner, "go");
            let how = [COMPILER_FLAGS.as_slice(), &["-ldflags", STRIP]].concat();
            match source {
                Source::Package => {
                    command.arg("install").args(&how).arg(format!("{package}@v{}", program.version));
                    command.env("GOBIN", folder);
                }
                Source::Module(module) => {
                    let module = download(&format!("{module}@v{}", program.version), guard, progress).await?;
                    command.arg("build").args(&how).arg("-o").arg(folder.join(program.name));
                    command.arg(format!("./{package}")).current_dir(module.dir);
                }
                Source::Required(name) => {
                    // The build may add what only it needs to go.mod and go.sum.
                    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(name))? {
                        let file = file?;
                        fs::copy(file.path(), folder.join(file.file_name()))?;
                    }
                    let subcommand: &[&str] =
                        if program.name.ends_with(".test") { &["test", "-c"] } else { &["build"] };
                    command.args(subcommand).arg("-mod=mod").args(&how).arg("-o").arg(folder.join(program.name));
                    command.arg(package).current_dir(folder);
                }
            }
            command.env("CGO_ENABLED", "0").env("GOWORK", "off");
            Ok(command)
        };
        program.path(progress, build).await
    }

    /// Whether it is built, or can be.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.program.check("go")
    }
}
