//! An export and its block in the server's configuration.

use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use clap::Args;
use directory_volumes::VolumePath;
use serde::{Deserialize, Serialize};

/// An export. File handles of clients contain its id, so the id never changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Export {
    pub(crate) id: u16,
    pub(crate) path: VolumePath,
    pub(crate) access: Access,
}

/// Access of clients to an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Access {
    /// If true, a client's root user is mapped to an unprivileged user.
    pub(crate) root_squash: bool,
}

/// Options that apply to all exports.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExportOptions {
    /// Clients that may mount the exports: addresses and subnets such as 10.0.0.0/8, or * for all
    #[arg(
        long,
        visible_alias = "export-clients",
        env = "NFS_EXPORT_SUBNET",
        value_name = "SUBNETS",
        default_value = "*"
    )]
    pub(crate) export_subnet: Clients,

    /// Refuse clients on source ports above 1023, which every user of a machine can open
    #[arg(
        long,
        env = "NFS_EXPORT_PRIVILEGED_PORT",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    pub(crate) export_privileged_port: bool,

    /// NFS versions, separated by commas; version 3 needs rpcbind on the same machine
    #[arg(long, env = "NFS_VERSIONS", value_name = "VERSIONS", default_value = "4", value_delimiter = ',')]
    pub(crate) nfs_versions: Vec<Version>,
}

impl ExportOptions {
    pub(crate) fn has_version(&self, version: Version) -> bool {
        self.nfs_versions.contains(&version)
    }

    /// Returns the versions in the format of the server's configuration.
    pub(crate) fn protocols(&self) -> String {
        let versions = [(Version::V3, "3"), (Version::V4, "4")].into_iter();
        versions.filter(|(version, _)| self.has_version(*version)).map(|(_, name)| name).collect::<Vec<_>>().join(", ")
    }
}

/// A version of NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V3,
    V4,
}

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "3" => Ok(Self::V3),
            "4" => Ok(Self::V4),
            _ => Err("expected 3 or 4"),
        }
    }
}

impl Export {
    /// Returns the configuration block. It contains only validated texts, so quoting is not necessary.
    pub(crate) fn block(&self, root: &Path, export_options: &ExportOptions) -> String {
        let Self { id, path, access } = self;
        let (clients, protocols) = (export_options.export_subnet.0.join(", "), export_options.protocols());
        let privileged = export_options.export_privileged_port;
        let path = format!("{}/{path}", root.display());
        let squash = if access.root_squash { "Root_Squash" } else { "No_Root_Squash" };
        format!(
            "EXPORT {{\n  Export_Id = {id};\n  Path = \"{path}\";\n  Pseudo = \"{path}\";\n  Protocols = {protocols};\n  \
             Transports = TCP;\n  SecType = sys;\n  PrivilegedPort = {privileged};\n  Access_Type = None;\n  \
             Squash = {squash};\n  CLIENT {{\n    Clients = {clients};\n    PrivilegedPort = {privileged};\n    \
             Access_Type = RW;\n    Squash = {squash};\n  }}\n  FSAL {{\n    Name = VFS;\n  }}\n}}\n"
        )
    }
}

/// Addresses and subnets, or `*` for all clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clients(Vec<String>);

impl FromStr for Clients {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let clients: Vec<_> = text.split(',').map(|client| client.trim().to_owned()).collect();
        match clients.iter().find(|client| !is_client(client)) {
            None => Ok(Self(clients)),
            Some(client) => Err(format!("{client:?} is not an address, a subnet such as 10.0.0.0/8, or *")),
        }
    }
}

fn is_client(text: &str) -> bool {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let bits = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return text == "*",
    };
    length.is_none_or(|length| length.parse::<u8>().is_ok_and(|length| length <= bits))
}

/// Validates the server's name or address for volumes. Kubernetes does not expand an undefined variable in the pod's
/// arguments, so its name would be part of every volume.
pub(crate) fn hostname(text: &str) -> Result<String, String> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | ':' | '[' | ']');
    if !text.is_empty() && text.chars().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not a name or an address; check that the Service exists whose variable it contains"))
    }
}

/// Returns true if a path can be part of the configuration without quoting.
pub(crate) fn is_plain(path: &Path) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-');
    path.to_str().is_some_and(|path| path.starts_with('/') && path.chars().all(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validates_names_of_the_server() {
        for good in ["10.96.0.20", "nfs.storage.svc", "fd00::1", "[fd00::1]"] {
            assert_eq!(hostname(good).as_deref(), Ok(good));
        }
        for bad in ["", "$(NFS_SERVICE_HOST)", "a b", "server:/path"] {
            assert!(hostname(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn export_block_contains_clients_and_access() {
        let path = "shop/data".to_owned().try_into().unwrap();
        let export = Export { id: 7, path, access: Access { root_squash: true } };
        let export_options = |privileged| ExportOptions {
            export_subnet: "10.0.0.0/8, fd00::1".parse().unwrap(),
            export_privileged_port: privileged,
            nfs_versions: vec![Version::V4],
        };
        let block = export.block(Path::new("/export"), &export_options(true));
        assert!(!export.block(Path::new("/export"), &export_options(false)).contains("PrivilegedPort = true"));
        for line in [
            "Export_Id = 7;",
            "Path = \"/export/shop/data\";",
            "Pseudo = \"/export/shop/data\";",
            "Clients = 10.0.0.0/8, fd00::1;",
            "Squash = Root_Squash;",
            "PrivilegedPort = true;",
            "Protocols = 4;",
        ] {
            assert!(block.contains(line), "{line} is not in {block}");
        }
    }

    #[test]
    fn refuses_texts_that_could_break_the_configuration() {
        for text in
            ["", "10.0.0.0/33", "fd00::/129", "*; }", "10.0.0.1\n10.0.0.2", "host", "**", "10.0.0.0/8,", "10.0.0.0/ 8"]
        {
            assert!(text.parse::<Clients>().is_err(), "{text:?}");
        }
        for text in ["*", "10.0.0.0/8", "::/0", "192.168.1.1,10.0.0.0/8"] {
            assert!(text.parse::<Clients>().is_ok(), "{text:?}");
        }
        for path in ["relative", "/a\"b", "/a b", "/a;b", "/a\nb", "/a{b", "/a#b"] {
            assert!(!is_plain(Path::new(path)), "{path:?}");
        }
    }
}
