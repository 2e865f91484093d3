//! The server's configuration. Each start generates it again from validated parts, because the server would drop every
//! export after a syntax error.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Bus, Settings};
use crate::server::export::{Export, ExportOptions, Version};
use crate::server::export_table::{ExportTable, ExportTableError};

pub(crate) const CONFIG: &str = "ganesha.conf";
pub(crate) const BUS_CONFIG: &str = "bus.conf";
pub(crate) const GANESHA_PID: &str = "ganesha.pid";
pub(crate) const BUS_PID: &str = "bus.pid";
const EXPORTS: &str = "exports";
/// The directory below the root with the server's records of its clients. The next server needs them for its grace
/// period, on this node or another.
const RECOVERY: &str = ".kube-provisioner/ganesha";
/// Maximum time in seconds within which clients renew their leases.
const MAX_LEASE: u16 = 60;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot write the configuration below {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    ExportTable(#[from] ExportTableError),
}

/// The exports in the table when the configuration was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) exports: Vec<Export>,
    /// The reasons why other exports are left out.
    pub(super) left_out: Vec<String>,
}

/// Writes the whole configuration.
pub(super) fn write(settings: &Settings, bus: &Bus, table: &ExportTable) -> Result<Written, ConfigError> {
    let Settings { runtime, root, .. } = settings;
    let entries = table.entries()?;
    let (mut exports, mut left_out) = (Vec::new(), entries.damaged);
    let written = fs::create_dir_all(runtime.join(EXPORTS)).and_then(|()| {
        fs::set_permissions(runtime, fs::Permissions::from_mode(0o700))?;
        fs::create_dir_all(recovery(settings))?;
        fs::write(runtime.join(BUS_CONFIG), bus_config(bus))?;
        let mut config = server_config(settings);
        for export in entries.exports {
            if has_directory(root, &export) {
                config.push_str(&export.block(root, &settings.export_options));
                exports.push(export);
            } else {
                left_out.push(format!("the directory {} of the export {} does not exist", export.path, export.id));
            }
        }
        fs::write(runtime.join(CONFIG), config)
    });
    written.map_err(|source| ConfigError::Io { path: runtime.clone(), source })?;
    Ok(Written { exports, left_out })
}

/// Returns true if the server can serve an export. It would ignore a missing directory silently. A kept volume has no
/// directory until it is restored.
pub(super) fn has_directory(root: &Path, export: &Export) -> bool {
    root.join(export.path.as_str()).is_dir()
}

/// Returns the directory for the server's records of its clients.
pub(super) fn recovery(settings: &Settings) -> PathBuf {
    settings.root.join(RECOVERY)
}

/// Writes the configuration file of one export, for a running server.
pub(super) fn write_export(
    runtime: &Path,
    root: &Path,
    export_options: &ExportOptions,
    export: &Export,
) -> io::Result<PathBuf> {
    let file = runtime.join(EXPORTS).join(format!("{}.conf", export.id));
    fs::write(&file, export.block(root, export_options))?;
    Ok(file)
}

/// Generates the server's configuration. The additional ports are the same as in the Service of
/// nfs-ganesha-server-and-external-provisioner.
fn server_config(settings: &Settings) -> String {
    let Settings { port, address, grace_period, .. } = settings;
    let grace = match *grace_period {
        0 => "Graceless = true;".to_owned(),
        seconds => format!("Grace_Period = {seconds}; Lease_Lifetime = {};", seconds.min(MAX_LEASE)),
    };
    // Without an address, the server listens on all addresses, including IPv6.
    let bind = if address.is_unspecified() { String::new() } else { format!("Bind_addr = {address}; ") };
    let locks_of_v3 = settings.export_options.has_version(Version::V3);
    format!(
        "NFS_CORE_PARAM {{ Protocols = {}; NFS_Port = {port}; {bind}MNT_Port = 20048; NLM_Port = 32803; \
         Enable_NLM = {locks_of_v3}; Enable_RQUOTA = false; Rquota_Port = 0; Enable_UDP = false; }}\n\
         NFSv4 {{ {grace} RecoveryBackend = fs; RecoveryRoot = \"{}\"; Minor_Versions = 0, 1, 2; Only_Numeric_Owners = true; \
         UseGetpwnam = true; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n",
        settings.export_options.protocols(),
        recovery(settings).display(),
    )
}

/// Generates the bus's configuration. It allows every user, because only this process's user can enter the socket's
/// directory.
fn bus_config(bus: &Bus) -> String {
    let socket: &Path = bus.socket();
    format!(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\" \
         \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n<busconfig>\n<type>system</type>\n\
         <listen>unix:path={}</listen>\n<auth>EXTERNAL</auth>\n<policy context=\"default\"><allow user=\"*\"/>\
         <allow own=\"*\"/><allow send_type=\"method_call\"/><allow send_destination=\"*\"/><allow receive_sender=\"*\"/>\
         </policy>\n</busconfig>\n",
        socket.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::export::Access;

    #[test]
    fn initial_exports_are_only_in_the_main_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let (root, runtime) = (folder.path().join("root"), folder.path().join("runtime"));
        fs::create_dir_all(root.join("pvc-1")).unwrap();
        let (table, path) = (ExportTable::new(&root), "pvc-1".to_owned().try_into().unwrap());
        let export = table.reserve(&path, Access::default(), None, None).unwrap();
        let settings = Settings {
            program: PathBuf::new(),
            runtime: runtime.clone(),
            root,
            port: 2049,
            address: [0, 0, 0, 0].into(),
            grace_period: 90,
            export_options: ExportOptions {
                export_subnet: "*".parse().unwrap(),
                export_privileged_port: true,
                nfs_versions: vec![Version::V4],
            },
        };
        let written = write(&settings, &Bus::new(&runtime), &table).unwrap();
        assert_eq!((written.left_out.len(), &written.exports[..]), (0, &[export.clone()][..]));
        let config = fs::read_to_string(runtime.join(CONFIG)).unwrap();
        assert!(config.contains(&format!("Export_Id = {};", export.id)), "{config}");
        assert_eq!(runtime.join(EXPORTS).read_dir().unwrap().count(), 0);
    }
}
