//! The source of a PersistentVolume, which must have exactly one. hostPath, local, nfs and csi are checked in full,
//! iscsi, rbd, cephfs, flexVolume and fc in part. The others only have to be present.

use serde_json::{Value, json};

use super::metadata::invalid;
use super::{items, names, text};
use crate::status::Cause;

/// All sources in the order of the server's checks, each with the field that its errors name.
const SOURCES: [(&str, &str); 22] = [
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephFS"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
];
const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Checks the source in a volume's spec.
pub(super) fn check(spec: &Value, has_affinity: bool, causes: &mut Vec<Cause>) {
    let mut sources = 0;
    for (field, shown) in SOURCES {
        let Some(source) = spec.get(field) else { continue };
        // The server checks a FlexVolume even after another source.
        if sources > 0 && field != "flexVolume" {
            causes.push(Cause::forbidden(format!("spec.{shown}"), "may not specify more than 1 volume type"));
            continue;
        }
        sources += 1;
        match field {
            "hostPath" => host_path(source, causes),
            "nfs" => nfs(source, causes),
            "csi" => csi(source, causes),
            "iscsi" => iscsi(source, causes),
            "rbd" => {
                given(source, "spec.rbd", "monitors", causes);
                given(source, "spec.rbd", "image", causes);
            }
            "cephfs" => given(source, "spec.cephfs", "monitors", causes),
            "flexVolume" => given(source, "spec.flexVolume", "driver", causes),
            "fc" => fibre_channel(source, causes),
            "local" => {
                no_backsteps(text(source, "path"), "spec.local.path", causes);
                if !has_affinity {
                    let detail = "Local volume requires node affinity";
                    causes.push(Cause::required("spec.nodeAffinity", detail));
                }
            }
            _ => {}
        }
    }
    if sources == 0 {
        causes.push(Cause::required("spec", "must specify a volume type"));
    }
}

fn host_path(source: &Value, causes: &mut Vec<Cause>) {
    if !no_backsteps(text(source, "path"), "spec.hostPath.path", causes) {
        return;
    }
    if let Some(kind) = source.get("type").filter(|kind| !HOST_PATH_TYPES.iter().any(|known| *kind == known)) {
        causes.push(Cause::not_supported("spec.hostPath.type", kind, &HOST_PATH_TYPES));
    }
}

/// Checks that a path does not contain `..`. Returns whether there is a path.
fn no_backsteps(path: &str, field: &str, causes: &mut Vec<Cause>) -> bool {
    if path.is_empty() {
        causes.push(Cause::required(field, ""));
        return false;
    }
    if path.split('/').any(|part| part == "..") {
        causes.push(Cause::invalid(field, &json!(path), "must not contain '..'"));
    }
    true
}

fn nfs(source: &Value, causes: &mut Vec<Cause>) {
    if text(source, "server").is_empty() {
        causes.push(Cause::required("spec.nfs.server", ""));
    }
    let path = text(source, "path");
    if path.is_empty() {
        causes.push(Cause::required("spec.nfs.path", ""));
    }
    if !path.starts_with('/') {
        causes.push(Cause::invalid("spec.nfs.path", &json!(path), "must be an absolute path"));
    }
}

/// Requires a nonempty text or list.
fn given(source: &Value, path: &str, field: &str, causes: &mut Vec<Cause>) {
    if text(source, field).is_empty() && items(source, field).next().is_none() {
        causes.push(Cause::required(format!("{path}.{field}"), ""));
    }
}

fn iscsi(source: &Value, causes: &mut Vec<Cause>) {
    given(source, "spec.iscsi", "targetPortal", causes);
    given(source, "spec.iscsi", "iqn", causes);
    let name = text(source, "iqn");
    if !name.is_empty() && !["iqn", "eui", "naa"].iter().any(|prefix| name.starts_with(prefix)) {
        causes.push(Cause::invalid("spec.iscsi.iqn", &json!(name), "must be valid format"));
    }
    lun(source, "spec.iscsi.lun", causes);
    let truth = |field: &str| source.get(field) == Some(&json!(true));
    let secret = source.get("secretRef");
    if secret.is_none() && (truth("chapAuthDiscovery") || truth("chapAuthSession")) {
        causes.push(Cause::required("spec.iscsi.secretRef", ""));
    }
    if let Some(secret) = secret {
        given(secret, "spec.iscsi.secretRef", "name", causes);
    }
}

fn fibre_channel(source: &Value, causes: &mut Vec<Cause>) {
    let has = |field: &str| items(source, field).next().is_some();
    let field = "spec.fc.targetWWNs";
    match (has("targetWWNs"), has("wwids")) {
        (false, false) => causes.push(Cause::required(field, "must specify either targetWWNs or wwids, but not both")),
        (true, true) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            causes.push(Cause::invalid(field, &source["targetWWNs"], detail));
        }
        _ => {}
    }
    if has("targetWWNs") {
        match source.get("lun") {
            None => causes.push(Cause::required("spec.fc.lun", "lun is required if targetWWNs is specified")),
            Some(_) => lun(source, "spec.fc.lun", causes),
        }
    }
}

fn lun(source: &Value, path: &str, causes: &mut Vec<Cause>) {
    let lun = source.get("lun").and_then(Value::as_i64).unwrap_or(0);
    if !(0..=255).contains(&lun) {
        causes.push(Cause::invalid(path, &json!(lun), "must be between 0 and 255, inclusive"));
    }
}

fn csi(source: &Value, causes: &mut Vec<Cause>) {
    let driver = text(source, "driver");
    if driver.is_empty() {
        causes.push(Cause::required("spec.csi.driver", ""));
    } else {
        if driver.len() > 63 {
            causes.push(Cause::too_long("spec.csi.driver", 63));
        }
        invalid("spec.csi.driver", driver, names::dns_subdomain(&driver.to_lowercase()), causes);
    }
    if text(source, "volumeHandle").is_empty() {
        causes.push(Cause::required("spec.csi.volumeHandle", ""));
    }
    for field in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let Some(secret) = source.get(field) else { continue };
        let path = format!("spec.csi.{field}");
        for (part, rule) in [("name", names::dns_subdomain as fn(&str) -> Vec<String>), ("namespace", names::dns_label)]
        {
            let path = format!("{path}.{part}");
            match text(secret, part) {
                "" => causes.push(Cause::required(path, "")),
                text => invalid(&path, text, rule(text), causes),
            }
        }
    }
}
