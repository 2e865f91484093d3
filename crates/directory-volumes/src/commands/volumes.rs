//! All volumes of the cluster, of any provisioner, and their relation to the directories of this root.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::kube::api::{ApiResource, DynamicObject, ListParams};
use kube_provisioner::kube::{Api, Client};
use serde_json::Value;

use super::{BoxError, Place};
use crate::path::VolumePath;
use crate::root::Root;

/// Page size when listing volumes.
const PAGE: u32 = 500;
/// The CSI driver whose volumes are directories in NFS shares.
const CSI_NFS: &str = "nfs.csi.k8s.io";

/// All volumes of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    /// Sorted by name.
    pub(crate) all: Vec<LocatedVolume>,
    /// The names of volumes that cannot be read, and the reasons. They exist, but their locations are unknown.
    pub(crate) unreadable: Vec<(String, String)>,
}

/// A volume and the location of its data.
#[derive(Debug)]
pub(crate) struct LocatedVolume {
    pub(crate) name: String,
    pub(crate) object: PersistentVolume,
    place: Option<Place>,
}

/// The relation of a volume's location to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Same,
    Above,
    Below,
    /// The location ends in the directory's path. It may be the same directory, because on other machines the root can
    /// have another path, or its server another name.
    SameSuffix,
}

impl Relation {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Same => "also names it",
            Self::Above => "names a directory above it",
            Self::Below => "names a directory below it",
            Self::SameSuffix => "names a path that ends in it and may be the same directory",
        }
    }
}

impl Volumes {
    pub(crate) async fn list(client: &Client) -> Result<Self, BoxError> {
        let volumes = ApiResource::erase::<PersistentVolume>(&());
        let api = Api::<DynamicObject>::all_with(client.clone(), &volumes);
        let (mut volumes, mut page) = (Self::default(), ListParams::default().limit(PAGE));
        loop {
            let list = api.list(&page).await?;
            for item in list.items {
                volumes.add(serde_json::to_value(item)?);
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(volumes.sorted()),
            }
        }
    }

    /// Reads objects as sent by the API server.
    #[cfg(test)]
    pub(crate) fn read(objects: Vec<Value>) -> Self {
        let mut volumes = Self::default();
        objects.into_iter().for_each(|object| volumes.add(object));
        volumes.sorted()
    }

    fn add(&mut self, mut object: Value) {
        // A cluster may have tens of thousands of volumes, and these fields are most of their size.
        object.pointer_mut("/metadata/managedFields").map(Value::take);
        let name = object["metadata"]["name"].as_str().unwrap_or("(without a name)").to_owned();
        let read = serde_json::from_value::<PersistentVolume>(object).map_err(|error| error.to_string());
        match read.and_then(|object| Ok((place_of(&object)?, object))) {
            Ok((place, object)) => self.all.push(LocatedVolume { name, object, place }),
            Err(why) => self.unreadable.push((name, why)),
        }
    }

    fn sorted(mut self) -> Self {
        self.all.sort_by(|one, other| one.name.cmp(&other.name));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&LocatedVolume> {
        let found = self.all.binary_search_by(|volume| volume.name.as_str().cmp(name));
        found.ok().and_then(|at| self.all.get(at))
    }

    pub(crate) fn is_unreadable(&self, name: &str) -> bool {
        self.unreadable.iter().any(|(unreadable, _)| unreadable == name)
    }

    /// Returns the volumes that refer to a directory, or to one above or below it. `places` are the locations of the
    /// root.
    pub(crate) fn overlapping<'a>(
        &'a self,
        root: &'a Root,
        places: &'a [Place],
        path: &'a VolumePath,
    ) -> impl Iterator<Item = (&'a LocatedVolume, Relation)> {
        let wanted = identity(&root.path().join(path.as_str()));
        self.all.iter().filter_map(move |volume| {
            let place = volume.place.as_ref()?;
            let same_file = || wanted.is_some() && place.on_this_machine().and_then(identity) == wanted;
            let near = places.iter().find_map(|base| relation(base, place, path));
            near.or_else(|| same_file().then_some(Relation::Same))
                .or_else(|| place.names().ends_with(&names(path.as_str())).then_some(Relation::SameSuffix))
                .map(|relation| (volume, relation))
        })
    }

    /// Refuses to turn a directory into a volume if other volumes refer to it.
    pub(crate) fn check_alone(
        &self,
        root: &Root,
        places: &[Place],
        path: &VolumePath,
        is_other: impl Fn(&PersistentVolume) -> bool,
    ) -> Result<(), BoxError> {
        let others = self.others(root, places, path, is_other);
        if others.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "the directory {path} does not belong to one volume only, and its deletion would remove the data of \
                 others: {}; copy the data of each volume to a separate directory",
                others.join(", ")
            )
            .into())
        }
    }

    /// Describes the other volumes that refer to a directory.
    fn others(
        &self,
        root: &Root,
        places: &[Place],
        path: &VolumePath,
        is_other: impl Fn(&PersistentVolume) -> bool,
    ) -> Vec<String> {
        let overlapping = self.overlapping(root, places, path).filter(|(volume, relation)| {
            let is_here = |volume: &LocatedVolume| !places.iter().any(|base| volume.is_on_another_server(base));
            *relation != Relation::SameSuffix && is_other(&volume.object) && is_here(volume)
        });
        overlapping.map(|(volume, relation)| format!("the volume {} {}", volume.name, relation.text())).collect()
    }

    /// Describes the other volumes that refer to the directory of a volume, and unreadable volumes that may do so. The
    /// directory must not be removed while there are any. `path` is its path below the root.
    pub(crate) fn other_users(&self, root: &Root, volume: &PersistentVolume, path: &VolumePath) -> Vec<String> {
        let place = place_of(volume).ok().flatten().and_then(|place| place.above(path));
        let places: Vec<Place> = place.into_iter().chain([Place::Directory(root.path().to_owned())]).collect();
        let nodes = nodes(volume);
        let is_other = |other: &PersistentVolume| {
            let there = self::nodes(other);
            let is_elsewhere = !nodes.is_empty() && !there.is_empty() && !there.iter().any(|node| nodes.contains(node));
            other.metadata.name != volume.metadata.name && !is_elsewhere
        };
        let mut others = self.others(root, &places, path, is_other);
        others.extend(self.unreadable.iter().map(|(name, why)| format!("the volume {name} cannot be read: {why}")));
        others
    }
}

impl LocatedVolume {
    /// Returns true if this volume and `base` certainly belong to two different servers.
    fn is_on_another_server(&self, base: &Place) -> bool {
        match (base, &self.place) {
            (Place::Export { server: here, .. }, Some(Place::Export { server: there, .. })) => {
                are_different_servers(here, there)
            }
            _ => false,
        }
    }
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Export { path, .. } => path,
        }
    }

    fn names(&self) -> Vec<String> {
        names(&self.path().to_string_lossy())
    }

    /// Returns the root in which a volume at this location has this path.
    fn above(&self, path: &VolumePath) -> Option<Self> {
        let (all, below) = (self.names(), names(path.as_str()));
        let above = PathBuf::from(format!("/{}", all.strip_suffix(&below[..])?.join("/")));
        Some(match self {
            Self::Directory(_) => Self::Directory(above),
            Self::Export { server, .. } => Self::Export { server: server.clone(), path: above },
        })
    }

    fn on_this_machine(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Export { .. } => None,
        }
    }

    /// Returns its path as written, and with resolved symlinks if it is on this machine.
    fn paths(&self) -> impl Iterator<Item = Vec<String>> {
        let real = self.on_this_machine().and_then(|path| path.canonicalize().ok());
        [Some(self.names()), real.map(|path| names(&path.to_string_lossy()))].into_iter().flatten()
    }
}

/// Returns the location recorded in a volume, if it can be a directory of a root.
fn place_of(volume: &PersistentVolume) -> Result<Option<Place>, String> {
    let spec = volume.spec.as_ref().ok_or("it has no spec")?;
    let host_path = spec.host_path.as_ref().map(|source| source.path.as_str());
    if let Some(path) = host_path.or(spec.local.as_ref().map(|source| source.path.as_str())) {
        return Ok(Some(Place::Directory(PathBuf::from(path))));
    }
    if let Some(nfs) = &spec.nfs {
        return Ok(Some(Place::Export { server: nfs.server.clone(), path: PathBuf::from(&nfs.path) }));
    }
    let Some(csi) = &spec.csi else { return Ok(None) };
    // The driver ignores the case of attribute names.
    let attribute = |key: &str| {
        let mut all = csi.volume_attributes.iter().flatten();
        all.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
    };
    match (attribute("server"), attribute("share"), attribute("subdir").unwrap_or_default()) {
        (_, Some(_), below) if below.contains("${") => Err("its subdir has placeholders".to_owned()),
        (Some(server), Some(share), below) => {
            Ok(Some(Place::Export { server: server.to_owned(), path: PathBuf::from(format!("{share}/{below}")) }))
        }
        _ if csi.driver == CSI_NFS => Err("its volumeAttributes have no server and share".to_owned()),
        _ => Ok(None),
    }
}

/// Returns all values in the node affinity of a volume, whatever their labels.
fn nodes(volume: &PersistentVolume) -> Vec<&String> {
    let required = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
    let expressions = terms.flat_map(|term| term.match_expressions.iter().chain(&term.match_fields).flatten());
    expressions.flat_map(|one| one.values.iter().flatten()).collect()
}

fn relation(base: &Place, place: &Place, path: &VolumePath) -> Option<Relation> {
    let wanted = names(path.as_str());
    base.paths().find_map(|base| {
        place.paths().find_map(|there| {
            let below = there.strip_prefix(&base[..]).filter(|below| !below.is_empty())?;
            match () {
                () if below == wanted => Some(Relation::Same),
                () if wanted.starts_with(below) => Some(Relation::Above),
                () if below.starts_with(&wanted) => Some(Relation::Below),
                () => None,
            }
        })
    })
}

/// Returns the names of a path, without `.` and `..`.
fn names(path: &str) -> Vec<String> {
    path.split('/').fold(Vec::new(), |mut names, name| {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name.to_owned()),
        }
        names
    })
}

/// Returns the kernel's identity of a directory, which is the same wherever else it is mounted.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Returns true if two names certainly belong to two different servers.
fn are_different_servers(one: &str, other: &str) -> bool {
    let plain = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
    let addresses = |name: &str| -> Vec<std::net::IpAddr> {
        let found = (name, 2049).to_socket_addrs();
        found.map(|all| all.map(|address: SocketAddr| address.ip()).collect()).unwrap_or_default()
    };
    if plain(one) == plain(other) {
        return false;
    }
    let (one, other) = (addresses(one), addresses(other));
    !one.is_empty() && !other.is_empty() && !one.iter().any(|address| other.contains(address))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volumes(specs: &[Value]) -> Volumes {
        let object = |(number, spec)| json!({"metadata": {"name": format!("pv-{number}")}, "spec": spec});
        Volumes::read(specs.iter().enumerate().map(object).collect())
    }

    #[test]
    fn finds_every_volume_that_refers_to_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let (top, elsewhere) = (root.path().display().to_string(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(root.path().join("shop/data")).unwrap();
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(root.path(), &link).unwrap();
        let places = [
            Place::Directory(root.path().to_owned()),
            Place::Export { server: "nfs.example.com".to_owned(), path: "/exports".into() },
        ];
        let csi = |attributes: Value| {
            json!({"csi": {"driver": CSI_NFS, "volumeHandle": "h",
            "volumeAttributes": attributes}})
        };
        let volumes = volumes(&[
            json!({"hostPath": {"path": format!("{top}/shop/data")}}),
            json!({"local": {"path": format!("{top}//shop/./data/")}}),
            json!({"hostPath": {"path": link.join("shop/data")}}),
            json!({"hostPath": {"path": format!("{top}/shop")}}),
            json!({"nfs": {"server": "nfs.example.com", "path": "/exports/shop/data/inner"}}),
            csi(json!({"Server": "10.0.0.1", "share": "/exports/", "subDir": "shop/data"})),
            csi(json!({"server": "nfs.example.com", "share": "/exports/shop/data"})),
            json!({"nfs": {"server": "nfs.example.com", "path": "/shop/data"}}),
            // These are elsewhere, or the root itself.
            json!({"nfs": {"server": "nfs.example.com", "path": "/exports"}}),
            json!({"hostPath": {"path": "/"}}),
            json!({"hostPath": {"path": format!("{top}/shop/database")}}),
            json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "h"}}),
        ]);
        assert!(volumes.unreadable.is_empty(), "{:?}", volumes.unreadable);
        let path = VolumePath::try_from("shop/data".to_owned()).unwrap();
        let found = volumes.overlapping(&root, &places, &path).map(|(volume, relation)| (&*volume.name, relation));
        let expected = [
            ("pv-0", Relation::Same),
            ("pv-1", Relation::Same),
            ("pv-2", Relation::Same),
            ("pv-3", Relation::Above),
            ("pv-4", Relation::Below),
            ("pv-5", Relation::Same),
            ("pv-6", Relation::Same),
            ("pv-7", Relation::SameSuffix),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let refused = volumes.check_alone(&root, &places, &path, |_| true).unwrap_err().to_string();
        assert!(
            refused.contains("the volume pv-3 names a directory above it") && !refused.contains("pv-7"),
            "{refused}"
        );
    }

    #[test]
    fn lists_volumes_that_fail_to_parse_as_unreadable() {
        let volumes = volumes(&[
            json!({"hostPath": {"path": 7}}),
            Value::Null,
            json!({"csi": {"driver": CSI_NFS, "volumeHandle": "h"}}),
            json!({"csi": {"driver": CSI_NFS, "volumeHandle": "h",
                "volumeAttributes": {"server": "s", "share": "/e", "subdir": "${pvc.metadata.name}"}}}),
        ]);
        let names: Vec<_> = volumes.unreadable.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, volumes.all.len()), (vec!["pv-0", "pv-1", "pv-2", "pv-3"], 0));
    }
}
