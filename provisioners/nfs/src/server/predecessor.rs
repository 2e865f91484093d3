//! Reads a volume's export from its annotations, in the format of this provisioner or
//! nfs-ganesha-server-and-external-provisioner.

use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;

use super::export::Access;
use super::provisioner::{EXPORT_ID, ROOT_SQUASH};

/// The old provisioner's annotation with the id of the export.
const FORMER_ID: &str = "Export_Id";
/// The old provisioner's annotation with the configuration of the export, for NFS-Ganesha or the kernel's server.
const FORMER_BLOCK: &str = "EXPORT_block";

/// Returns the id of the export, which is in clients' file handles.
pub(super) fn id(volume: &PersistentVolume) -> Option<u16> {
    let id = annotation(volume, EXPORT_ID).or_else(|| annotation(volume, FORMER_ID))?;
    id.parse().ok().filter(|id| *id > 0)
}

/// Returns the access of clients.
pub(super) fn access(volume: &PersistentVolume) -> Access {
    let root_squash = match annotation(volume, ROOT_SQUASH) {
        Some(squash) => squash == "true",
        None => annotation(volume, FORMER_BLOCK).is_some_and(squashes_root),
    };
    Access { root_squash }
}

fn squashes_root(block: &str) -> bool {
    let mut words = block.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.any(|word| ["root_id_squash", "root_squash", "all_squash"].contains(&word.to_ascii_lowercase().as_str()))
}

fn annotation<'a>(volume: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    volume.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(annotations: &[(&str, &str)]) -> PersistentVolume {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut volume = PersistentVolume::default();
        volume.metadata.annotations = Some(annotations.collect());
        volume
    }

    #[test]
    fn reads_id_and_squash_from_the_old_provisioners_annotations() {
        let block = |squash: &str| {
            format!(
                "\nEXPORT\n{{\n\tExport_Id = 7;\n\tPath = /export/pvc-1;\n\tPseudo = /export/pvc-1;\n\tAccess_Type = RW;\n\t\
                 Squash = {squash};\n\tSecType = sys;\n\tFilesystem_id = 7.7;\n\tFSAL {{\n\t\tName = VFS;\n\t}}\n}}\n"
            )
        };
        let kernel = |squash: &str| format!("\n/export/pvc-1 *(rw,insecure,{squash},fsid=7)\n");
        for (block, squashes) in [
            (block("root_id_squash"), true),
            (block("no_root_squash"), false),
            (kernel("root_squash"), true),
            (kernel("no_root_squash"), false),
        ] {
            let former = volume(&[("Export_Id", "7"), ("EXPORT_block", &block)]);
            assert_eq!((id(&former), access(&former).root_squash), (Some(7), squashes), "{block}");
        }
    }

    #[test]
    fn own_annotations_take_precedence() {
        let adopted = [(EXPORT_ID, "9"), (ROOT_SQUASH, "false"), ("Export_Id", "7"), ("EXPORT_block", "root_squash")];
        assert_eq!((id(&volume(&adopted)), access(&volume(&adopted)).root_squash), (Some(9), false));
        assert_eq!(id(&volume(&[("Export_Id", "0")])), None);
        assert_eq!((id(&volume(&[])), access(&volume(&[])).root_squash), (None, false));
    }
}
