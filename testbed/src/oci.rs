//! Container images as files: an OCI image layout in a tar archive, with one uncompressed layer.
//!
//! `ctr images import`, `docker load`, `podman load` and `skopeo copy oci-archive:FILE` accept it. Equal input results
//! in equal bytes: all entries are sorted, and contain no times.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

mod debian;

/// The content of an image.
///
/// ```
/// use testbed::oci::Image;
///
/// let image = Image::new("localhost/hello:1").file("hello", 0o755, "…").entrypoint(["/hello"]).user("65532:65532");
/// # let folder = tempfile::tempdir()?;
/// # let output = folder.path().join("hello.tar");
/// let digest = image.write(&output)?.digest;
/// # anyhow::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    /// Entries by their path, without a leading `/`.
    entries: BTreeMap<PathBuf, Entry>,
    entrypoint: Vec<String>,
    user: String,
    env: Vec<String>,
    labels: BTreeMap<String, String>,
}

/// The result of [`Image::write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The digest of the image's manifest, such as `sha256:…`, which registries and container engines use for the
    /// image.
    pub digest: String,
    /// The size of the archive in bytes.
    pub size: u64,
}

impl Image {
    /// An empty image with a complete name, such as `localhost/pause:1`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            entries: BTreeMap::new(),
            entrypoint: Vec::new(),
            user: String::new(),
            env: Vec::new(),
            labels: BTreeMap::new(),
        }
    }

    /// Adds a file with this content. Creates missing parent directories with the mode 0755.
    pub fn file(self, path: impl AsRef<Path>, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        self.entry(path, mode, Content::Bytes(bytes.into()))
    }

    /// Adds a copy of a file, which is read when the image is written.
    pub fn copy(self, path: impl AsRef<Path>, mode: u32, source: impl Into<PathBuf>) -> Self {
        self.entry(path, mode, Content::Source(source.into()))
    }

    /// Adds a program of this machine, with the shared libraries that it needs. Use it only for tests, because the
    /// result depends on the machine.
    pub fn host_program(mut self, path: impl AsRef<Path>, program: &Path) -> anyhow::Result<Self> {
        let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
        for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
            self = self.copy(library, 0o755, library);
        }
        Ok(self.copy(path, 0o755, program))
    }

    /// Adds a symbolic link.
    pub fn link(self, path: impl AsRef<Path>, target: impl Into<PathBuf>) -> Self {
        self.entry(path, 0o777, Content::Link(target.into()))
    }

    /// Adds a directory.
    pub fn directory(self, path: impl AsRef<Path>, mode: u32) -> Self {
        self.entry(path, mode, Content::Directory)
    }

    /// The program that containers run, with its first arguments.
    pub fn entrypoint<S: Into<String>>(mut self, program: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = program.into_iter().map(Into::into).collect();
        self
    }

    /// The user that runs the program, such as `65532:65532`. The default is root.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push(format!("{name}={value}"));
        self
    }

    /// Adds a label, such as `org.opencontainers.image.licenses`, which becomes an annotation of the image as well.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Writes the archive for this machine's architecture, and replaces an existing file.
    pub fn write(&self, output: &Path) -> anyhow::Result<Written> {
        let archive = self.archive().with_context(|| format!("cannot create the image {}", self.name))?;
        fs::write(output, &archive.bytes).with_context(|| format!("cannot write {}", output.display()))?;
        Ok(Written { digest: archive.digest, size: archive.bytes.len() as u64 })
    }

    fn entry(mut self, path: impl AsRef<Path>, mode: u32, content: Content) -> Self {
        let path = path.as_ref();
        let path = path.strip_prefix("/").unwrap_or(path);
        self.entries.insert(path.to_owned(), Entry { mode, content });
        self
    }

    fn archive(&self) -> anyhow::Result<Archive> {
        ensure!(self.name.contains([':', '@']), "its name has no tag; write it like localhost/name:tag");
        let mut blobs = BTreeMap::new();
        let layer = blob(&mut blobs, "application/vnd.oci.image.layer.v1.tar", self.layer()?);
        let config = blob(&mut blobs, "application/vnd.oci.image.config.v1+json", json_bytes(&self.config(&layer))?);
        const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": self.labels,
        });
        let mut manifest = blob(&mut blobs, MANIFEST, json_bytes(&manifest)?);
        let digest = text(&manifest["digest"]);
        manifest["platform"] = json!({"architecture": architecture(), "os": "linux"});
        // containerd and Docker use the first annotation, all other tools the second.
        manifest["annotations"] =
            json!({"io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": self.name});
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest],
        });
        // Docker before version 25 supports only this format.
        let docker = json!([{
            "Config": blob_path(&text(&config["digest"])),
            "Layers": [blob_path(&text(&layer["digest"]))],
            "RepoTags": [self.name],
        }]);
        let mut builder = Builder::new(Vec::new());
        append(&mut builder, "oci-layout", 0o644, &json_bytes(&json!({"imageLayoutVersion": "1.0.0"}))?)?;
        append(&mut builder, "index.json", 0o644, &json_bytes(&index)?)?;
        append(&mut builder, "manifest.json", 0o644, &json_bytes(&docker)?)?;
        for (path, bytes) in &blobs {
            append(&mut builder, path, 0o644, bytes)?;
        }
        Ok(Archive { bytes: builder.into_inner()?, digest })
    }

    fn config(&self, layer: &Value) -> Value {
        json!({
            "created": "1970-01-01T00:00:00Z",
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint, "User": self.user, "Env": self.env, "Labels": self.labels,
                "WorkingDir": "/",
            },
            // The diff id of an uncompressed layer is its digest.
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        })
    }

    fn layer(&self) -> anyhow::Result<Vec<u8>> {
        let mut entries = self.entries.clone();
        let above: BTreeSet<_> = self.entries.keys().flat_map(|path| path.ancestors().skip(1)).collect();
        for path in above.into_iter().filter(|path| *path != Path::new("")) {
            entries.entry(path.to_owned()).or_insert(Entry { mode: 0o755, content: Content::Directory });
        }
        let mut layer = Builder::new(Vec::new());
        for (path, Entry { mode, content }) in &entries {
            let added = match content {
                Content::Bytes(bytes) => append(&mut layer, path, *mode, bytes),
                Content::Source(source) => {
                    let bytes = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
                    append(&mut layer, path, *mode, &bytes)
                }
                Content::Link(target) => layer.append_link(&mut header(EntryType::Symlink, *mode, 0), path, target),
                Content::Directory => {
                    layer.append_data(&mut header(EntryType::Directory, *mode, 0), path, std::io::empty())
                }
            };
            added.with_context(|| format!("cannot add {}", path.display()))?;
        }
        Ok(layer.into_inner()?)
    }
}

#[derive(Clone, Debug)]
struct Entry {
    mode: u32,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Bytes(Vec<u8>),
    Source(PathBuf),
    Link(PathBuf),
    Directory,
}

struct Archive {
    bytes: Vec<u8>,
    digest: String,
}

/// The files that ldd lists. There are none for a static program.
fn libraries(ldd: &str) -> impl Iterator<Item = &str> {
    ldd.split_whitespace().filter(|word| word.starts_with('/'))
}

/// Stores a blob under its path, and returns its descriptor.
fn blob(blobs: &mut BTreeMap<String, Vec<u8>>, media_type: &str, bytes: Vec<u8>) -> Value {
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = format!("sha256:{digest}");
    let descriptor = json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
    blobs.insert(blob_path(&digest), bytes);
    descriptor
}

fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn append(builder: &mut Builder<Vec<u8>>, path: impl AsRef<Path>, mode: u32, bytes: &[u8]) -> std::io::Result<()> {
    builder.append_data(&mut header(EntryType::Regular, mode, bytes.len() as u64), path, bytes)
}

/// A header with root as owner, and without a time.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

fn json_bytes(value: &Value) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The architecture's name in Go.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn image() -> Image {
        Image::new("localhost/hello:1")
            .link("bin/greet", "hello")
            .file("/bin/hello", 0o755, "#!")
            .directory("tmp", 0o1777)
            .entrypoint(["/bin/hello", "-v"])
            .user("65532:65532")
            .env("HOME", "/")
            .label("org.opencontainers.image.title", "hello")
    }

    /// The path, type, mode, link target and content of an entry.
    type Listed = (String, EntryType, u32, Option<String>, Vec<u8>);

    /// The entries of a tar archive.
    fn listed(archive: &[u8]) -> Vec<Listed> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            let link = header.link_name().unwrap().map(|link| link.display().to_string());
            let path = entry.path().unwrap().display().to_string().trim_end_matches('/').to_owned();
            (path, header.entry_type(), header.mode().unwrap(), link, bytes)
        });
        entries.collect()
    }

    fn json_of(archive: &[u8], path: &str) -> Value {
        let found = listed(archive).into_iter().find(|entry| entry.0 == path);
        serde_json::from_slice(&found.unwrap_or_else(|| panic!("no {path}")).4).unwrap()
    }

    #[test]
    fn archive_does_not_depend_on_insertion_order() {
        let other = Image::new("localhost/hello:1")
            .directory("/tmp", 0o1777)
            .file("bin/hello", 0o755, "#!")
            .link("/bin/greet", "hello")
            .label("org.opencontainers.image.title", "hello")
            .env("HOME", "/")
            .user("65532:65532")
            .entrypoint(["/bin/hello", "-v"]);
        assert_eq!(image().archive().unwrap().bytes, other.archive().unwrap().bytes);
        assert_ne!(image().archive().unwrap().digest, other.user("0:0").archive().unwrap().digest);
    }

    #[test]
    fn descriptors_match_their_blobs() {
        let archive = image().archive().unwrap();
        let check = |descriptor: &Value| {
            let path = blob_path(descriptor["digest"].as_str().unwrap());
            let (.., bytes) = listed(&archive.bytes).into_iter().find(|entry| entry.0 == path).unwrap();
            assert_eq!(descriptor["size"], bytes.len());
            assert_eq!(blob(&mut BTreeMap::new(), "", bytes.clone())["digest"], descriptor["digest"]);
            bytes
        };
        let index = json_of(&archive.bytes, "index.json");
        let found = &index["manifests"][0];
        assert_eq!(found["digest"], archive.digest);
        assert_eq!(found["annotations"]["io.containerd.image.name"], "localhost/hello:1");
        assert_eq!(found["annotations"]["org.opencontainers.image.ref.name"], "localhost/hello:1");
        let manifest: Value = serde_json::from_slice(&check(found)).unwrap();
        let config: Value = serde_json::from_slice(&check(&manifest["config"])).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        assert_eq!(config["config"]["Entrypoint"], json!(["/bin/hello", "-v"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        let layer = listed(&check(&manifest["layers"][0]));
        let expected = [
            ("bin", EntryType::Directory, 0o755, None, ""),
            ("bin/greet", EntryType::Symlink, 0o777, Some("hello"), ""),
            ("bin/hello", EntryType::Regular, 0o755, None, "#!"),
            ("tmp", EntryType::Directory, 0o1777, None, ""),
        ];
        let expected = expected.map(|(path, kind, mode, link, bytes)| {
            (path.to_owned(), kind, mode, link.map(str::to_owned), bytes.as_bytes().to_vec())
        });
        assert_eq!(layer, expected);
        // Docker before version 25 reads this file.
        let docker = json_of(&archive.bytes, "manifest.json");
        assert_eq!(docker[0]["Config"], blob_path(manifest["config"]["digest"].as_str().unwrap()));
    }

    #[test]
    fn lists_libraries_that_ldd_resolves_to_paths() {
        let output = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld-linux.so.2 (0x3)\n";
        assert_eq!(libraries(output).collect::<Vec<_>>(), ["/lib/libc.so.6", "/lib64/ld-linux.so.2"]);
        assert_eq!(libraries("\tstatically linked\n").count(), 0);
    }

    #[test]
    fn error_names_a_missing_source_file() {
        let image = Image::new("localhost/hello:1").copy("hello", 0o755, "/nowhere/hello");
        let error = image.write(Path::new("/dev/null")).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/hello"), "{error:#}");
    }
}
