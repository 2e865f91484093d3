//! `cargo xtask new NAME`: scaffolds a new provisioner from a template.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, ensure};
use kube_provisioner::bucket::BucketCapabilities;
use kube_provisioner::{Capabilities, Options, rbac};

/// The name of the provisioner in the templates.
const EXAMPLE: &str = "example-provisioner";
/// Placeholder for the folder of the library's crates.
const LIBRARY: &str = "LIBRARY";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the package and of its folder, such as nfs-provisioner
    name: String,

    /// Scaffold a bucket provisioner instead of a volume provisioner
    #[arg(long)]
    bucket: bool,

    /// Folder in which the new folder is created
    #[arg(long, value_name = "DIR", default_value = ".")]
    into: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let folder = arguments.into.join(&arguments.name);
    create(&arguments.name, arguments.bucket, &folder)?;
    println!("Created {0}. Try it: cd {0} && cargo test", folder.display());
    Ok(())
}

/// Writes the template's files, and the permissions of the controller. The lock file is copied from this project, so
/// that the versions are tested ones.
fn create(name: &str, bucket: bool, folder: &Path) -> anyhow::Result<()> {
    ensure!(
        is_name(name),
        "invalid name {name:?}: use lowercase letters, digits and `-`, and begin with a letter; to choose the folder, use `--into \
         DIR`, such as `cargo xtask new nfs-provisioner --into ..`"
    );
    ensure!(!folder.exists(), "{} already exists; choose another name", folder.display());
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no folder above xtask")?;
    let template = project.join("xtask/template").join(if bucket { "bucket" } else { "volume" });
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let library = relative(&folder.canonicalize()?, &project.join("crates").canonicalize()?).display().to_string();
    copy(&template, folder, &|text| {
        text.replace(LIBRARY, &library).replace(EXAMPLE, name).replace(&snake(EXAMPLE), &snake(name))
    })?;
    let options = Options::new(format!("example.com/{name}"));
    let rules = if bucket {
        rbac::bucket_rules(&options, &BucketCapabilities::default(), &[])
    } else {
        rbac::rules(&options, &Capabilities::default(), &[])
    };
    let manifests = rbac::manifests(&rbac::Account { name, namespace: name }, &rules);
    fs::write(folder.join("deploy/rbac.yaml"), serde_saphyr::to_string_multiple(&manifests)?)
        .context("cannot write deploy/rbac.yaml")?;
    fs::copy(project.join("Cargo.lock"), folder.join("Cargo.lock")).context("cannot copy Cargo.lock")?;
    Ok(())
}

fn copy(from: &Path, to: &Path, adapt: &dyn Fn(&str) -> String) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let from = entry?.path();
        let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Cargo would treat the template as a package if its manifest had the usual name.
        let to = to.join(name.strip_suffix(".in").unwrap_or(&name));
        if from.is_dir() {
            copy(&from, &to, adapt)?;
        } else {
            let text = fs::read_to_string(&from).with_context(|| format!("cannot read {}", from.display()))?;
            fs::write(&to, adapt(&text)).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(())
}

/// The path of one folder relative to another, so that both can be moved or cloned together. Both are absolute.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let common = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

/// Returns true if the name is valid for a package, a namespace and an image.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.len() <= 40
        && !name.ends_with('-')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn snake(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests;
