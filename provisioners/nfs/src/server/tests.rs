//! Runs the conformance suite with a fake server that records its exports.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use directory_volumes::hostile::{contract, temp_dir};
use directory_volumes::{Root, Worker, owner_in_this_cluster};
use kube_provisioner::conformance::Conformance;
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::{
    Capabilities, DeleteError, ExpandError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner,
    StartContext, StartError, Volume,
};
use kube_sim::Cluster;
use serde_json::json;
use tokio::sync::{RwLock, RwLockReadGuard};

use super::export::Export;
use super::export_table::ExportTable;
use super::ganesha::{ExportError, Exporter};
use super::parameters::Parameters;
use super::provisioner::{Server, VolumeSettings};

#[derive(Default)]
pub(super) struct Fake {
    served: Arc<Mutex<BTreeSet<String>>>,
    gate: RwLock<()>,
}

impl Exporter for Fake {
    fn start(self: &Arc<Self>, _: &ExportTable) {}

    async fn block_restart(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().await
    }

    async fn add(&self, export: &Export) -> Result<(), ExportError> {
        self.served.lock().unwrap().insert(export.path.to_string());
        Ok(())
    }

    async fn remove(&self, export: &Export) -> Result<(), ExportError> {
        self.served.lock().unwrap().remove(export.path.as_str());
        Ok(())
    }

    async fn ready(&self) -> Result<(), ExportError> {
        Ok(())
    }
}

pub(super) fn server(root: Root, fake: Fake) -> Server<Fake> {
    Server::new(Worker::new(root), Arc::new(fake), VolumeSettings { hostname: "server".to_owned(), max_exports: None })
}

/// A server that does not start while another one removes volumes from its disk: see [`super::disk`].
struct OnDisk {
    server: Server<Fake>,
    disk: Arc<RwLock<()>>,
}

impl Provisioner for OnDisk {
    type Parameters = Parameters;

    async fn start(&self, start: StartContext) -> Result<(), StartError> {
        let _disk = self.disk.write().await;
        self.server.start(start).await
    }

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        self.server.provision(request).await
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        let _disk = self.disk.read().await;
        self.server.delete(volume).await
    }

    async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
        self.server.expand(volume, bytes).await
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        let _disk = self.disk.read().await;
        self.server.clean_up(attempt).await
    }

    fn capabilities() -> Capabilities {
        Server::<Fake>::capabilities()
    }

    async fn probe(&self) -> Result<(), StartError> {
        self.server.probe().await
    }
}

impl Hooks for OnDisk {}

#[test]
fn keeps_the_contract() {
    let folder = temp_dir();
    let (root, listed) = (folder.path().to_owned(), folder.path().to_owned());
    let disk = Arc::new(RwLock::new(()));
    // The set outlives the provisioner, like a server that restarts from the export table.
    let served = Arc::new(Mutex::new(BTreeSet::new()));
    let serves = served.clone();
    let start = move || {
        let fake = Fake { served: served.clone(), ..Fake::default() };
        OnDisk { server: server(Root::open(&root).unwrap(), fake), disk: disk.clone() }
    };
    let kit = Conformance::new(start, async move || entries(&listed, &serves.lock().unwrap()));
    contract(kit.refuses([("path", "/etc")]), folder.path());
}

/// A power cut left the mark empty, and the claim was deleted before the next attempt.
#[tokio::test]
async fn an_attempt_with_an_empty_mark_is_cleaned_up() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    root.put_marker().unwrap();
    let server = server(root, Fake::default());
    let attempt = ProvisionRequest::new(Parameters::default(), 1 << 20);
    let mark = folder.path().join(".kube-provisioner/volumes").join(&attempt.name);
    let directory = folder.path().join(&attempt.name);
    std::fs::write(&mark, "").unwrap();
    std::fs::create_dir(&directory).unwrap();
    server.clean_up(attempt).await.unwrap();
    assert!(!mark.exists() && !directory.exists());
}

/// On a full disk, for example, the file with the ids of volumes cannot be written.
#[tokio::test]
async fn starts_even_if_ids_cannot_be_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    root.put_marker().unwrap();
    let exports = folder.path().join(".kube-provisioner/exports");
    std::fs::create_dir(&exports).unwrap();
    std::fs::write(exports.join("kept"), "{").unwrap();
    let server = server(root, Fake::default());
    server.start(StartContext::new(Cluster::new().client("nfs"), Vec::new())).await.unwrap();
}

/// A claim's annotation can name such a directory, and so can a volume that an administrator has created.
#[tokio::test]
async fn a_directory_above_volumes_prevents_neither_a_start_nor_a_clean_up() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    root.put_marker().unwrap();
    let above = root.path().join("shop");
    std::fs::create_dir_all(above.join("data")).unwrap();
    let volume = json!({"metadata": {"name": "pv-1"}, "spec": {"nfs": {"server": "server", "path": above}}});
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    let owner = owner_in_this_cluster(&ProvisionedVolume::new(volume.clone()));
    root.adopt(&"shop/data".to_owned().try_into().unwrap(), &owner, false).unwrap();
    let server = server(root, Fake::default());
    server.start(StartContext::new(Cluster::new().client("nfs"), vec![volume])).await.unwrap();
    let parameters = serde_json::from_value(json!({"pathPattern": "${.PVC.annotations.nfs.io/path}"})).unwrap();
    let mut attempt = ProvisionRequest::<Parameters>::new(parameters, 1 << 20);
    let claim = Arc::make_mut(&mut attempt.claim);
    claim.metadata.annotations = Some([("nfs.io/path".to_owned(), "shop".to_owned())].into());
    server.clean_up(attempt).await.unwrap();
    assert!(folder.path().join("shop/data").is_dir());
}

/// Another volume names the directory, so its data is not removed, and pods still use it.
#[tokio::test]
async fn a_shared_directory_stays_exported() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    root.put_marker().unwrap();
    let (cluster, path) = (Cluster::new(), root.path().join("shared"));
    std::fs::create_dir(&path).unwrap();
    let [volume, _] = ["pv-1", "pv-2"].map(|name| {
        let spec = json!({"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteMany"],
            "nfs": {"server": "server", "path": path}});
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec});
        cluster.create(&volume).unwrap()
    });
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    let adopted = ProvisionedVolume::new(volume.clone());
    let mut kept = volume.clone();
    kept.metadata.annotations = Some([("nfs-provisioner/on-delete".to_owned(), "retain".to_owned())].into());
    root.adopt(&"shared".to_owned().try_into().unwrap(), &owner_in_this_cluster(&adopted), false).unwrap();
    let served = Arc::new(Mutex::new(BTreeSet::new()));
    let server = server(root, Fake { served: served.clone(), ..Fake::default() });
    server.start(StartContext::new(cluster.client("nfs"), vec![volume])).await.unwrap();
    let error = server.delete(adopted).await.unwrap_err().to_string();
    assert!(error.contains("the volume pv-2 also names it"), "{error}");
    assert!(served.lock().unwrap().contains("shared"));
    server.delete(ProvisionedVolume::new(kept)).await.unwrap();
    assert!(served.lock().unwrap().contains("shared"));
}

/// Lists the volumes, their exports, and the data that is being removed.
fn entries(root: &Path, served: &BTreeSet<String>) -> Vec<String> {
    let own = root.join(".kube-provisioner");
    let places = [root.to_owned(), own.join("volumes"), own.join("deleting"), own.join("exports")];
    let names = places.iter().filter_map(|place| place.read_dir().ok()).flatten();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| ![".kube-provisioner", "next", "lock", "tmp", "kept"].contains(&name.as_str()));
    let names = names.map(|name| name.split_once('@').map_or(name.clone(), |(_, path)| path.to_owned()));
    let all: BTreeSet<String> = names.chain(served.iter().cloned()).collect();
    all.into_iter().collect()
}
