//! The provisioner of the mode `server`, which creates and exports a directory for each volume.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use directory_volumes::{
    CallError as _, Deletion, DirectoryError, Reserve, VolumePath, Worker, has_retain_policy, owner_in_this_cluster,
    path_and_owner,
};
use kube_provisioner::gid::GID_ANNOTATION;
use kube_provisioner::k8s_openapi::api::storage::v1::StorageClass;
use kube_provisioner::{
    Capabilities, DeleteError, ExpandError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner,
    StartContext, StartError, Volume,
};

use super::export::Export;
use super::export_table::{ExportTable, ExportTableError};
use super::ganesha::{ExportError, Exporter};
use super::parameters::Parameters;
use super::predecessor;
use crate::parameters::ANNOTATIONS_OF_CLAIMS;
use crate::source::{ANNOTATIONS, Location, on_server};

/// The annotation of a volume with the id of its export, as information for users.
pub(crate) const EXPORT_ID: &str = "nfs-provisioner/export-id";
/// The annotation of a volume with the access of clients, for recreating the export.
pub(crate) const ROOT_SQUASH: &str = "nfs-provisioner/root-squash";

/// Settings that apply to every volume.
#[derive(Clone, Debug)]
pub(crate) struct VolumeSettings {
    /// The server's address.
    pub(crate) hostname: String,
    /// Maximum number of exports.
    pub(crate) max_exports: Option<u32>,
}

pub(crate) struct Server<E> {
    worker: Worker,
    exporter: Arc<E>,
    table: ExportTable,
    volume_settings: VolumeSettings,
}

impl<E: Exporter> Server<E> {
    pub(crate) fn new(worker: Worker, exporter: Arc<E>, volume_settings: VolumeSettings) -> Self {
        let table = ExportTable::new(worker.root().path());
        Self { worker, exporter, table, volume_settings }
    }

    fn path_of(&self, volume: &ProvisionedVolume) -> Result<VolumePath, DirectoryError> {
        Location::of(&volume.object).unwrap_or_default().below(&self.worker.root().path().to_string_lossy())
    }

    /// Reserves the ids of all volumes, including the old provisioner's volumes that are not adopted yet. Adds missing
    /// exports of adopted volumes to the table, and returns them.
    async fn reserve_all(&self, start: &StartContext) -> Result<Vec<Export>, StartError> {
        let volumes = start.volumes().await?;
        let placed = volumes.into_iter().filter_map(|volume| Some((self.path_of(&volume).ok()?, volume)));
        let (placed, table): (Vec<_>, _) = (placed.collect(), self.table.clone());
        let reserve = move |root: &directory_volumes::Root| {
            let ids = placed.iter().filter_map(|(path, volume)| Some((predecessor::id(&volume.object)?, path)));
            // A full disk must not prevent the deletion of volumes. The next start tries again.
            if let Err(error) = table.reserve_ids(ids) {
                tracing::warn!("the ids of volumes without an export are not reserved: {error}");
            }
            let known: BTreeSet<_> = table.entries()?.exports.into_iter().map(|export| export.path).collect();
            let mut added = Vec::new();
            for (path, volume) in placed.iter().filter(|(path, _)| !known.contains(path)) {
                let is_there = root.path().join(path.as_str()).is_dir();
                if !is_there {
                    continue;
                }
                match root.is_marked_for(path, &owner_in_this_cluster(volume)) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error @ DirectoryError::Damaged { .. }) => {
                        tracing::warn!("{path} is not exported: {error}");
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
                match table.reserve(path, predecessor::access(&volume.object), predecessor::id(&volume.object), None) {
                    Ok(export) => added.push(export),
                    Err(error) => tracing::warn!("{path} is not exported: {error}"),
                }
            }
            Ok::<_, StartError>(added)
        };
        self.worker.run(reserve).await
    }

    /// Adds an export of an existing directory to the table, and then to the server.
    async fn export(&self, path: VolumePath, parameters: &Parameters) -> Result<Export, ProvisionError> {
        let _held = self.exporter.block_restart().await;
        let (table, access, max_exports) = (self.table.clone(), parameters.access(), self.volume_settings.max_exports);
        let reserve = move |_: &_| Ok::<_, ProvisionError>(table.reserve(&path, access, None, max_exports)?);
        let export: Export = self.worker.run(reserve).await?;
        self.exporter.add(&export).await?;
        Ok(export)
    }

    /// Removes the export before the directory, so that no export lacks a directory.
    async fn end(&self, deletion: Deletion, token: kube_provisioner::FencingToken) -> Result<(), DeleteError> {
        // Other volumes that refer to the directory need the export.
        self.worker.check_alone(&deletion).await?;
        let is_shared = deletion.keeps() && !self.worker.others(&deletion).await?.is_empty();
        let (table, path, owner) = (self.table.clone(), deletion.path().clone(), deletion.owner().clone());
        let find = move |root: &directory_volumes::Root| {
            // The export belongs to the owner of the directory.
            let is_ours = root.is_marked_for(&path, &owner)?;
            Ok::<_, DeleteError>(table.find(&path)?.filter(|_| is_ours && !is_shared))
        };
        let held = self.exporter.block_restart().await;
        if let Some(export) = self.worker.run(find).await?
            && token.is_valid()
        {
            self.exporter.remove(&export).await?;
            let table = self.table.clone();
            self.worker.run(move |_| Ok::<_, DeleteError>(table.release(&export)?)).await?;
        }
        drop(held);
        self.worker.end(deletion, token).await
    }

    async fn provision_volume(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let parameters = request.parameters.clone();
        let (path, owner) = path_and_owner(&request, &parameters.path_pattern.0)?;
        // Without a server, provisioning would fail after the directory was created.
        self.exporter.ready().await.map_err(ProvisionError::retry)?;
        let (bytes, enforced, table) = (request.bytes, parameters.enforce_size, self.table.clone());
        let (max_exports, wanted) = (self.volume_settings.max_exports, path.clone());
        let look = move |_: &directory_volumes::Root| {
            if table.find(&wanted)?.is_none() {
                let count = table.count()?;
                if max_exports.is_some_and(|max_exports| count >= max_exports as usize) {
                    return Err(ProvisionError::retry(ExportTableError::Full(count)));
                }
            }
            Ok(())
        };
        self.worker.run(look).await?;
        let (retain, permissions, token) =
            (has_retain_policy(&request), parameters.permissions(), request.fencing_token.clone());
        // All volumes share the disk, so none may be larger than its free space, whether sizes are enforced or not.
        let size = (bytes, enforced, Some(Reserve::default()));
        let made = self.worker.create(path.clone(), owner, retain, permissions, size, token).await;
        let (_, size) = made.map_err(|not_created| not_created.error)?;
        let export = self.export(path.clone(), &parameters).await?;
        let source = on_server(&self.worker.root().path().to_string_lossy(), path.as_str());
        let mut volume = Volume::nfs(&self.volume_settings.hostname, source)
            .annotation(EXPORT_ID, export.id.to_string())
            .annotation(ROOT_SQUASH, export.access.root_squash.to_string());
        if let Some(gid) = parameters.gid {
            volume = volume.annotation(GID_ANNOTATION, gid.to_string());
        }
        if request.mount_options().is_empty() && !parameters.mount_options.is_empty() {
            volume = volume.mount_options(parameters.mount_options.iter().cloned());
        }
        let (on_delete, trash_ttl) = parameters.on_delete();
        Ok(size.apply_to(ANNOTATIONS.apply_to(volume, on_delete, trash_ttl, self.worker.root()), None))
    }
}

/// Returns the text for the claim's user if the error contains paths or internals of the server.
fn message_for_users(cause: &(dyn Error + Send + Sync + 'static)) -> Option<String> {
    let is_full = matches!(cause.downcast_ref(), Some(ExportTableError::Full(_)));
    let is_own = cause.is::<ExportTableError>() || cause.is::<ExportError>();
    (is_own && !is_full).then(|| "the NFS server cannot export the volume; ask the administrator".to_owned())
}

impl<E: Exporter> Provisioner for Server<E> {
    type Parameters = Parameters;

    async fn start(&self, start: StartContext) -> Result<(), StartError> {
        self.worker.begin(&ANNOTATIONS, &start, |_| true).await?;
        let added = self.reserve_all(&start).await?;
        self.exporter.start(&self.table);
        // The server may be running already. Otherwise it reads the export table when it starts.
        let _held = self.exporter.block_restart().await;
        for export in added {
            if let Err(error) = self.exporter.add(&export).await {
                tracing::warn!("{} is not exported yet: {error}", export.path);
            }
        }
        Ok(())
    }

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        self.provision_volume(request).await.map_err(|error| error.for_users(message_for_users))
    }

    /// Relies on the directory's mark for the owner: users may have edited the object.
    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        let path = self.path_of(&volume)?;
        let deletion = Deletion::of(&volume, path, &ANNOTATIONS, self.worker.root())?;
        self.end(deletion, volume.fencing_token.clone()).await
    }

    async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
        let resized = async { self.worker.resize(self.path_of(&volume)?, owner_in_this_cluster(&volume), bytes).await };
        resized.await.map_err(|error: ExpandError| error.for_users(message_for_users))
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        match path_and_owner(&attempt, &attempt.parameters.path_pattern.0) {
            Ok((path, owner)) => {
                let ended = self.end(Deletion::of_attempt(path, owner), attempt.fencing_token.clone()).await;
                ended.map_err(|error| error.for_users(message_for_users))
            }
            // The attempt was refused before it created anything.
            Err(_) => Ok(()),
        }
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().expansion().mount_options().claim_annotations([ANNOTATIONS_OF_CLAIMS])
    }

    async fn probe(&self) -> Result<(), StartError> {
        self.worker.probe().await?;
        let table = self.table.clone();
        let damaged: Vec<String> = self.worker.run(move |_| Ok::<_, StartError>(table.entries()?.damaged)).await?;
        if let Some(damaged) = damaged.first() {
            return Err(ExportTableError::Damaged(damaged.clone()).into());
        }
        Ok(self.exporter.ready().await?)
    }
}

impl<E: Exporter> Hooks for Server<E> {
    fn class_problems(class: &StorageClass) -> Vec<String> {
        directory_volumes::parameters::ignored_settings(class)
    }
}
