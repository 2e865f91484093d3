//! Kubeconfig files, readable by their owner only.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// Returns a kubeconfig in JSON, which is also valid YAML.
pub(super) fn text(server: &str, ca_pem: Option<&str>, user: &str, token: &str) -> String {
    let name = "kube-sim";
    let mut cluster = json!({"server": server});
    if let Some(pem) = ca_pem {
        cluster["certificate-authority-data"] = STANDARD.encode(pem).into();
    }
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}],
        "current-context": name,
    });
    format!("{config:#}\n")
}

/// Writes the file atomically.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}
