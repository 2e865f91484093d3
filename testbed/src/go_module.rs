//! Published Go modules and their programs, downloaded from the proxy and verified with the checks that the user's Go
//! is configured for.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::cached_program::Built;
use crate::guard::{Guard, Lifetime, Running};
use crate::progress::{self, SharedProgress};

/// A downloaded version of a module.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GoModule {
    /// The version, such as `v1.35.4`.
    #[serde(default)]
    pub version: String,
    /// The module's `go.mod` file.
    #[serde(default)]
    pub go_mod: PathBuf,
    /// The directory of its files.
    #[serde(default)]
    pub dir: PathBuf,
    /// The checksum of its files, as in a `go.sum`.
    #[serde(default)]
    pub sum: String,
    error: Option<String>,
}

/// Downloads `module`, such as `k8s.io/kubernetes@v1.35.4`, unless it is already cached.
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
    pub(crate) program: Built<'static>,
    /// The package; in [`Source::Module`], its folder.
    pub(crate) package: &'static str,
    pub(crate) source: Source,
}

/// Leaves out debug information, which is not needed and takes a tenth of the compile time.
pub(crate) const COMPILER_FLAGS: [&str; 2] = ["-trimpath", "-gcflags=all=-dwarf=false"];
/// Linker flags that leave out debug information.
pub(crate) const STRIP: &str = "-s -w";

/// The source of a program.
pub(crate) enum Source {
    /// The package's own module, selected by the package's name.
    Package,
    /// The folder of this module, because `go install` refuses a module whose `go.mod` contains replacements.
    Module(&'static str),
    /// A module of this project, a folder of `testbed` that contains or requires the package. A program `x.test` is a
    /// package's test.
    Required(&'static str),
}

impl GoProgram {
    /// The path of the program, which is built once into the user's cache.
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
                    // The build may add its own requirements to go.mod and go.sum.
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

    /// Fails if the program neither exists nor can be built.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.program.check("go")
    }
}
