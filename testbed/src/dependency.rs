//! Requirements of some tests and demos in addition to a control plane: one [`Dependency`] each, next to the code that
//! uses it.

use std::path::PathBuf;
use std::process::Command;
use std::{fmt, fs};

use anyhow::{Context, bail, ensure};
use futures::future::LocalBoxFuture;

use crate::control_plane::cache_dir;
use crate::guard::Guard;
use crate::packages::{self, Package};
use crate::process::output;
use crate::progress::SharedProgress;

/// The command that installs all requirements and runs the tests.
pub const INSTALL: &str = "cargo xtask test --install-packages";

/// A requirement that a machine may lack.
pub struct Dependency {
    /// The name, such as `a Ceph cluster`.
    pub name: &'static str,
    /// Debian packages.
    pub(crate) packages: &'static [Package],
    /// Python packages, which are installed into the user's cache.
    pub(crate) python: Option<Python>,
    /// Fails if the machine is unsuitable and no package can change that.
    pub(crate) suits: fn() -> anyhow::Result<()>,
    /// Returns true if an end-to-end test needs the dependency. The argument is the test's path, such as
    /// `buckets::claims::ceph_quotas_hold`.
    pub(crate) needed_by: fn(&str) -> bool,
    /// Builds the program into the user's cache, unless it already exists.
    pub program: Option<BuildProgram>,
    /// The long-running server; `None` if each user starts a server.
    pub server: Option<Server>,
}

/// Builds a program and returns its path.
pub type BuildProgram = for<'a> fn(&'a Guard, &'a SharedProgress) -> LocalBoxFuture<'a, anyhow::Result<PathBuf>>;

/// Functions that start and stop a server that outlives its caller.
pub struct Server {
    /// Starts a server on a port, or finds the one that already runs.
    pub up: for<'a> fn(Option<u16>, &'a Guard, &'a SharedProgress) -> LocalBoxFuture<'a, anyhow::Result<Up>>,
    /// Stops the server; returns `false` if there was none.
    pub down: for<'a> fn(&'a SharedProgress) -> LocalBoxFuture<'a, anyhow::Result<bool>>,
}

/// A running server.
pub struct Up {
    /// True if it has just been started.
    pub is_new: bool,
    /// Instructions for its use, line by line.
    pub usage: Vec<String>,
}

/// A virtual environment of Python.
pub(crate) struct Python {
    /// The directory in the cache.
    pub(crate) dir: &'static str,
    pub(crate) packages: &'static [&'static str],
}

/// The reason why a machine lacks a dependency.
#[derive(Debug)]
pub enum Obstacle {
    /// `--install-packages` installs the missing packages.
    Missing(String),
    /// No package can help.
    Machine(anyhow::Error),
}

impl Dependency {
    /// A dependency that requires nothing and that no test needs, as a base for others.
    pub(crate) const NOTHING: Self = Self {
        name: "",
        packages: &[],
        python: None,
        suits: || Ok(()),
        needed_by: |_| false,
        program: None,
        server: None,
    };

    /// The reason why this machine lacks the dependency, if it does.
    pub fn obstacle(&self) -> Option<Obstacle> {
        if let Err(error) = (self.suits)() {
            return Some(Obstacle::Machine(error));
        }
        let python = self.python.iter().filter(|python| !python.is_complete()).flat_map(|python| python.packages);
        let missing: Vec<&str> = packages::missing(self.packages).into_iter().chain(python.copied()).collect();
        (!missing.is_empty()).then(|| Obstacle::Missing(missing.join(" ")))
    }

    /// Fails if the machine lacks the dependency; the error contains the command that installs it.
    pub fn check(&self, install: &str) -> anyhow::Result<()> {
        match self.obstacle() {
            None => Ok(()),
            Some(missing @ Obstacle::Missing(_)) => bail!("{} needs {missing}: run `{install}`", self.name),
            Some(Obstacle::Machine(error)) => Err(error.context(format!("this machine cannot run {}", self.name))),
        }
    }

    /// Installs missing packages. Debian packages require root.
    pub fn install(&self, progress: &SharedProgress) -> anyhow::Result<()> {
        packages::install(self.packages, progress)?;
        self.python.as_ref().map_or(Ok(()), |python| python.install(progress))
    }

    /// The path of the program, which is built once into the user's cache.
    pub async fn path(&self, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
        self.check_use()?;
        self.check(INSTALL)?;
        self.program.context("it has no program")?(guard, progress).await
    }

    /// Fails in a test that [`Self::is_needed_by`] does not list: on machines without the dependency, that test would
    /// fail instead of being left out.
    pub(crate) fn check_use(&self) -> anyhow::Result<()> {
        let thread = std::thread::current();
        // A test's thread has the name of the test.
        let is_test = |name: &&str| *name != "main" && !name.starts_with("tokio-");
        let Some(path) = thread.name().filter(is_test) else {
            return Ok(());
        };
        ensure!(self.is_needed_by(path), "the test {path} uses {}, but `needed_by` does not list it", self.name);
        Ok(())
    }

    /// Returns true if the test with this path needs the dependency.
    pub fn is_needed_by(&self, path: &str) -> bool {
        (self.needed_by)(path)
    }
}

/// Returns true if the name of a test, or of a module that contains it, begins with `start`.
pub(crate) fn is_named(path: &str, start: &str) -> bool {
    path.split("::").any(|name| name.starts_with(start))
}

impl Python {
    /// The path of a program in the environment.
    pub(crate) fn program(&self, name: &str) -> anyhow::Result<PathBuf> {
        Ok(self.dir()?.join("bin").join(name))
    }

    fn dir(&self) -> anyhow::Result<PathBuf> {
        Ok(cache_dir()?.join(self.dir))
    }

    fn is_complete(&self) -> bool {
        let read = self.dir().and_then(|dir| Ok(fs::read_to_string(dir.join("complete"))?));
        read.is_ok_and(|text| text == self.packages.join(" "))
    }

    fn install(&self, progress: &SharedProgress) -> anyhow::Result<()> {
        if self.is_complete() {
            return Ok(());
        }
        progress.line(&format!("installing {}", self.packages.join(" ")));
        let dir = self.dir()?;
        let _ = fs::remove_dir_all(&dir);
        output(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
        let mut pip = Command::new(self.program("pip")?);
        output(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(self.packages))?;
        Ok(fs::write(dir.join("complete"), self.packages.join(" "))?)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(packages) => write!(f, "{packages}"),
            Self::Machine(error) => write!(f, "{error:#}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ceph;

    #[test]
    fn check_use_fails_in_an_undeclared_test() {
        let error = ceph::CEPH.check_use().unwrap_err().to_string();
        assert!(error.contains("check_use_fails_in_an_undeclared_test uses a Ceph cluster"), "{error}");
    }
}
