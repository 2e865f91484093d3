//! Debian packages in an image, without Debian's tools: the image contains their files, but none of their scripts has
//! run.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use tar::{Archive, EntryType};

use super::{Content, Entry, Image};
use crate::process::output;

/// Documentation below `usr/share`, which users of an image read elsewhere.
const LEFT_OUT: [&str; 7] = ["doc", "man", "info", "locale", "lintian", "bug", "doc-base"];

/// Directories that are symlinks to the directories of the same name below `usr`.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

impl Image {
    /// Adds packages with all their dependencies, for this machine's release and with the versions in its package lists
    /// (`apt-get update`). Leaves out the packages in `without` and their exclusive dependencies, most of which only
    /// serve scripts, and all documentation except licenses. `/var/lib/dpkg/status.d`, where scanners look, lists each
    /// package.
    pub fn debian(mut self, packages: &[&str], without: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        for archive in download(packages, without, folder.path())? {
            self = self.package(&archive).with_context(|| format!("cannot take {}", archive.display()))?;
        }
        for name in MERGED {
            let usr = Path::new("usr").join(name);
            if self.entries.keys().any(|path| path.starts_with(&usr)) {
                self = self.link(name, usr);
            }
        }
        // The release of the packages.
        self = self.copy("etc/os-release", 0o644, "/etc/os-release");
        // A booted system has this symlink, and programs read the mounts from it.
        self = self.link("etc/mtab", "/proc/self/mounts");
        let accounts = "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n";
        Ok(self.file("etc/passwd", 0o644, accounts).file("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n"))
    }

    fn package(mut self, archive: &Path) -> anyhow::Result<Self> {
        let fields = output(Command::new("dpkg-deb").arg("--field").arg(archive))?;
        let name = field(&fields, "Package").context("it has no name")?.to_owned();
        let files = output(Command::new("dpkg-deb").arg("--fsys-tarfile").arg(archive))?;
        for entry in Archive::new(files.as_slice()).entries()? {
            let mut entry = entry?;
            let (kind, mode) = (entry.header().entry_type(), entry.header().mode()? & 0o7777);
            let path = merged(&entry.path()?)?;
            if path.as_os_str().is_empty() || !is_wanted(&path) {
                continue;
            }
            let target = entry.link_name()?.map(PathBuf::from);
            let content = match (kind, target) {
                (EntryType::Regular, _) => {
                    let mut bytes = Vec::new();
                    entry.read_to_end(&mut bytes)?;
                    Content::Bytes(bytes)
                }
                (EntryType::Directory, _) => Content::Directory,
                (EntryType::Symlink, Some(target)) => Content::Link(target),
                (EntryType::Link, Some(target)) => {
                    let other = self.entries.get(&merged(&target)?);
                    other.with_context(|| format!("{} is not there", target.display()))?.content.clone()
                }
                _ => bail!("{} is neither a file, a directory nor a link", path.display()),
            };
            self.entries.insert(path, Entry { mode, content });
        }
        Ok(self.file(Path::new("var/lib/dpkg/status.d").join(name), 0o644, fields))
    }
}

/// Downloads packages as for a machine that contains only the packages in `without`; returns their archives, sorted.
fn download(packages: &[&str], without: &[&str], folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (status, archives) = (folder.join("status"), folder.join("archives"));
    let installed = without.iter().map(|name| {
        format!(
            "Package: {name}\nStatus: install ok installed\nVersion: 999:0\nArchitecture: all\nMulti-Arch: foreign\n\
             Maintainer: nobody\nDescription: taken to be there\n\n"
        )
    });
    fs::write(&status, installed.collect::<String>())?;
    fs::create_dir_all(archives.join("partial"))?;
    let mut apt = Command::new("apt-get");
    for (name, path) in [("State::status", &status), ("Cache::archives", &archives)] {
        apt.arg("-o").arg(format!("Dir::{name}={}", path.display()));
    }
    // apt changes none of this machine's own files, so it needs no lock.
    apt.args(["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "Debug::NoLocking=true"]);
    // apt would switch to a user that cannot write here.
    apt.args(["-o", "APT::Sandbox::User=root", "--yes", "--download-only", "--no-install-recommends", "install"]);
    output(apt.args(packages)).context("the packages are not available; run `apt-get update` first")?;
    let files = fs::read_dir(&archives)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let mut files: Vec<_> = files.into_iter().filter(|path| path.extension() == Some(OsStr::new("deb"))).collect();
    ensure!(!files.is_empty(), "apt-get has downloaded nothing");
    files.sort();
    Ok(files)
}

/// The path in the image, below `usr` if its directory is merged.
fn merged(path: &Path) -> anyhow::Result<PathBuf> {
    let mut merged = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => merged.push(name),
            _ => bail!("{} leads out of the image", path.display()),
        }
    }
    let is_merged = MERGED.iter().any(|name| merged.starts_with(name));
    Ok(if is_merged { Path::new("usr").join(merged) } else { merged })
}

fn is_wanted(path: &Path) -> bool {
    let for_people = LEFT_OUT.iter().any(|name| path.starts_with(Path::new("usr/share").join(name)));
    !for_people || path.file_name() == Some(OsStr::new("copyright"))
}

/// The value of a single-line field.
fn field<'a>(control: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = std::str::from_utf8(control).ok()?.lines();
    lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_merged_directories_below_usr() -> anyhow::Result<()> {
        assert_eq!(merged(Path::new("./lib/ld.so"))?, Path::new("usr/lib/ld.so"));
        assert_eq!(merged(Path::new("./usr/lib/libc.so"))?, Path::new("usr/lib/libc.so"));
        assert_eq!(merged(Path::new("./library"))?, Path::new("library"));
        assert_eq!(merged(Path::new("./"))?, Path::new(""));
        assert!(merged(Path::new("../etc/passwd")).is_err());
        Ok(())
    }

    #[test]
    fn keeps_only_licenses_of_documentation() {
        assert!(is_wanted(Path::new("usr/share/doc/libc6/copyright")));
        assert!(!is_wanted(Path::new("usr/share/doc/libc6/changelog.gz")));
        assert!(is_wanted(Path::new("usr/share/dbus-1/session.conf")));
    }

    #[test]
    fn finds_fields_by_their_complete_name() {
        let control = b"Package: libc6\nVersion: 2\nDescription: a\n Package: no\n";
        assert_eq!(field(control, "Package"), Some("libc6"));
        assert_eq!(field(control, "Pack"), None);
    }
}
