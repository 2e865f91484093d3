//! Builds with cargo, and reads what it built.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;
use testbed::guard::{Guard, Lifetime, Running};
use testbed::progress::{self, SharedProgress};

/// Everything that `cargo xtask test` runs.
#[derive(Default)]
pub(crate) struct Built {
    pub(crate) programs: Vec<TestProgram>,
    /// Whether the examples in the documentation are tested: the suite [`DOC_TESTS`].
    pub(crate) doc_tests: bool,
    /// The programs of [`PROVISIONERS`], each with its variable.
    pub(crate) provisioners: BTreeMap<&'static str, PathBuf>,
    /// What did not compile.
    pub(crate) failures: Vec<String>,
}

/// The unit tests of one library or program, or one file of integration tests.
pub(crate) struct TestProgram {
    pub(crate) suite: String,
    pub(crate) executable: PathBuf,
    pub(crate) directory: PathBuf,
}

impl TestProgram {
    /// Whether it has tests on a control plane that hold for every version of Kubernetes that is supported. Recordings are
    /// of one version, and so is what the simulator says.
    pub(crate) fn meets_any_version(&self) -> bool {
        const ONE_VERSION: [&str; 3] = ["e2e csi_scenarios", "e2e kubectl", "e2e scenarios"];
        self.is_end_to_end() && !ONE_VERSION.contains(&self.suite.as_str())
    }

    /// Whether it runs only if it is named. The stores of these, or the sidecar, take long to build.
    pub(crate) fn is_named_only(&self) -> bool {
        ["e2e csi_scenarios", "e2e garage", "e2e seaweedfs"].contains(&self.suite.as_str())
    }

    /// Whether it uses the control plane, a node or a standing server, which one program at a time uses.
    pub(crate) fn uses_shared_servers(&self) -> bool {
        const OWN_SERVERS: [&str; 10] = [
            "e2e buckets_gcs",
            "e2e buckets_s3",
            "e2e csi_sanity",
            "e2e garage",
            "e2e power",
            "e2e quota",
            "e2e s3",
            "e2e s3_conformance",
            "e2e seaweedfs",
            "e2e versity",
        ];
        self.is_end_to_end() && !OWN_SERVERS.contains(&self.suite.as_str())
    }

    fn is_end_to_end(&self) -> bool {
        self.suite.starts_with("e2e ") || self.suite == "xtask context"
    }
}

/// The suite of all examples in the documentation. They are run together: a package alone has other features, for which
/// its dependencies would be compiled again.
pub(crate) const DOC_TESTS: &str = "documentation";

/// Builds all tests and programs of the workspace. What does not compile is in [`Built::failures`]; the rest is there.
pub(crate) async fn tests(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Built> {
    let packages = packages(guard, progress).await?;
    let mut built = Built::default();
    // Unlike `cargo test --no-run`, this continues after what does not compile.
    let arguments = ["build", "--workspace", "--bins", "--tests", "--examples", "--keep-going"];
    let each = |artifact: &Value| built.add(&packages, artifact);
    let all_compiled = artifacts(cargo(guard), &arguments, "building", each, progress).await?;
    built.failures = packages
        .values()
        .flat_map(|package| &package.suites)
        .filter(|suite| built.programs.iter().all(|program| program.suite != **suite))
        .cloned()
        .collect();
    if !all_compiled && built.failures.is_empty() {
        // Such as an example, which has no tests.
        built.failures.push("something without tests".to_owned());
    }
    built.programs.sort_by(|a, b| a.suite.cmp(&b.suite));
    built.doc_tests = true;
    Ok(built)
}

/// How a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As quickly as possible.
    Dev,
    /// As it is delivered.
    Release,
    /// To be fast for hours.
    Sim,
}

/// Builds the program of a package, with features of it, and returns its path.
pub(crate) async fn program(
    profile: Profile,
    package: &str,
    features: &[&str],
    guard: &Guard,
    progress: &SharedProgress,
) -> anyhow::Result<PathBuf> {
    let mut found = None;
    let features = features.join(",");
    let mut arguments = vec!["build", "--package", package, "--features", &features];
    match profile {
        // Built with the features that it has beside this program, its dependencies are compiled already.
        Profile::Dev => arguments.extend(["--package", env!("CARGO_PKG_NAME"), "--bin", package]),
        Profile::Release => arguments.push("--release"),
        Profile::Sim => arguments.extend(["--profile", "sim"]),
    }
    let what = format!("building {package}");
    let each = |artifact: &Value| found = executable(artifact).or(found.take());
    if !artifacts(cargo(guard), &arguments, &what, each, progress).await? {
        bail!("{package} does not compile");
    }
    found.with_context(|| format!("package {package} has no program"))
}

/// Builds the program of a package so that it needs no file beside it, and is the same wherever its sources lie.
/// `sources` is a checkout of this project, `target` its target folder.
pub(crate) async fn static_program(
    package: &str,
    sources: &Path,
    target: &Path,
    guard: &Guard,
    progress: &SharedProgress,
) -> anyhow::Result<PathBuf> {
    // With the target named, build scripts and macros are built as always.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/kube-provisioner", sources.display()),
        format!("--remap-path-prefix={}=/cargo", cargo_home()?.display()),
    ];
    let mut cargo = cargo(guard);
    cargo.current_dir(sources).env("CARGO_TARGET_DIR", target).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let arguments = ["build", "--locked", "--release", "--target", &triple, "--package", package];
    let mut found = None;
    let each = |artifact: &Value| found = executable(artifact).or(found.take());
    if !artifacts(cargo, &arguments, &format!("building {package}, static"), each, progress).await? {
        bail!("{package} does not compile");
    }
    found.with_context(|| format!("package {package} has no program"))
}

/// A guarded command in the workspace.
pub(crate) fn command(guard: &Guard, program: impl AsRef<OsStr>) -> Command {
    let mut command = guard.command(Lifetime::WithOwner, program);
    command.current_dir(workspace_root());
    command
}

/// A guarded cargo in the workspace, as a user starts it.
pub(crate) fn cargo(guard: &Guard) -> Command {
    without_package(command(guard, cargo_program()))
}

/// Cargo as a user starts it.
pub(crate) fn plain_cargo() -> Command {
    without_package(Command::new(cargo_program()))
}

/// The cargo that started this program.
fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Cargo describes this package in variables, and would build all again whose build scripts read them.
fn without_package(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Where cargo keeps the sources of dependencies.
fn cargo_home() -> anyhow::Result<PathBuf> {
    let home = || std::env::home_dir().map(|home| home.join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("neither CARGO_HOME nor HOME is set")
}

/// The directory of the workspace.
pub(crate) fn workspace_root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

impl Built {
    /// The names of everything that can be run.
    pub(crate) fn suites(&self) -> impl Iterator<Item = &str> {
        let docs = self.doc_tests.then_some(DOC_TESTS);
        self.programs.iter().map(|program| program.suite.as_str()).chain(docs)
    }

    fn add(&mut self, packages: &BTreeMap<String, Package>, artifact: &Value) {
        let known = PROVISIONERS.iter().find(|(package, _)| artifact["target"]["name"] == *package);
        if let (Some((_, variable)), Some(executable)) = (known, executable(artifact)) {
            self.provisioners.insert(variable, executable);
        }
        let (true, Some(executable), Some(package)) = (
            artifact["profile"]["test"] == true,
            artifact["executable"].as_str(),
            artifact["package_id"].as_str().and_then(|id| packages.get(id)),
        ) else {
            return;
        };
        self.programs.push(TestProgram {
            suite: suite_name(&package.name, &artifact["target"]),
            executable: executable.into(),
            directory: package.directory.clone(),
        });
    }
}

/// The programs that tests start, and the variables that hold their paths.
const PROVISIONERS: [(&str, &str); 7] = [
    ("hostpath-provisioner", "HOSTPATH_PROVISIONER"),
    ("ceph-rgw-provisioner", "CEPH_RGW_PROVISIONER"),
    ("aws-s3-provisioner", "AWS_S3_PROVISIONER"),
    ("gcs-provisioner", "GCS_PROVISIONER"),
    ("garage-provisioner", "GARAGE_PROVISIONER"),
    ("nfs-provisioner", "NFS_PROVISIONER"),
    ("csi-sim", "CSI_SIM"),
];

struct Package {
    name: String,
    directory: PathBuf,
    /// What `cargo test` runs of it.
    suites: Vec<String>,
}

/// The workspace's packages by their id.
async fn packages(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<BTreeMap<String, Package>> {
    let mut metadata = Value::Null;
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let each = |line| metadata = line;
    if !lines(cargo(guard), &arguments, "asking cargo for the packages", each, progress).await? {
        bail!("cargo metadata failed");
    }
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    Ok(packages.iter().filter_map(package).collect())
}

fn package(package: &Value) -> Option<(String, Package)> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    let targets = package["targets"].as_array()?;
    let name = package["name"].as_str()?;
    let tested = targets.iter().filter(|target| target["test"] == true);
    Some((
        package["id"].as_str()?.to_owned(),
        Package {
            name: name.to_owned(),
            directory: manifest.parent()?.to_owned(),
            suites: tested.map(|target| suite_name(name, target)).collect(),
        },
    ))
}

fn suite_name(package: &str, target: &Value) -> String {
    let name = target["name"].as_str().unwrap_or_default();
    match target["kind"][0].as_str() {
        Some("test") => format!("{package} {name}"),
        Some("bin") => format!("{package} (program)"),
        Some("example") => format!("{package} (example {name})"),
        _ => format!("{package} (library)"),
    }
}

/// The path of a program that is not a test.
fn executable(artifact: &Value) -> Option<PathBuf> {
    if artifact["profile"]["test"] == true {
        return None;
    }
    artifact["executable"].as_str().map(PathBuf::from)
}

/// Runs cargo and shows it what it compiled; `false` if something did not compile. People see cargo's own messages.
async fn artifacts(
    cargo: Command,
    arguments: &[&str],
    what: &str,
    mut each: impl FnMut(&Value),
    progress: &SharedProgress,
) -> anyhow::Result<bool> {
    let arguments: Vec<_> = arguments.iter().copied().chain(["--message-format", "json-render-diagnostics"]).collect();
    let each = |line: Value| {
        if line["reason"] == "compiler-artifact" {
            each(&line);
        }
    };
    lines(cargo, &arguments, what, each, progress).await
}

/// Runs cargo and hands over its standard output as JSON, line by line.
async fn lines(
    mut cargo: Command,
    arguments: &[&str],
    what: &str,
    mut each: impl FnMut(Value),
    progress: &SharedProgress,
) -> anyhow::Result<bool> {
    cargo.args(arguments).stdout(Stdio::piped());
    let mut cargo = Running::start(cargo).context("cannot start cargo")?;
    let output = cargo.take_stdout().context("cargo has no output")?;
    let reader = std::thread::spawn(|| std::io::read_to_string(output));
    // On a terminal cargo draws a bar; elsewhere it is silent while a program is linked.
    let progress = if std::io::stderr().is_terminal() { &progress::silent() } else { progress };
    let status = progress::during(progress, what, cargo.ended()).await?;
    let text = reader.join().ok().context("cargo's output was lost")??;
    for line in text.lines() {
        if let Ok(value) = serde_json::from_str(line) {
            each(value);
        }
    }
    Ok(status.success())
}
