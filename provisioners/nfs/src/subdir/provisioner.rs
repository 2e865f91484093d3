//! The provisioner of the mode `subdir`, which creates a directory for each volume on the share that the class names.

use std::error::Error;

use directory_volumes::{
    CallError as _, Deletion, TrashLimits, Worker, has_retain_policy, owner_in_this_cluster, path_and_owner,
};
use kube_provisioner::k8s_openapi::api::storage::v1::StorageClass;
use kube_provisioner::{
    Capabilities, DeleteError, ExpandError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner,
    StartContext, StartError, Volume,
};

use super::parameters::Parameters;
use super::predecessor;
use super::share::{RequiredMount, Share, ShareError, ShareName};
use crate::parameters::{ANNOTATIONS_OF_CLAIMS, Policy};
use crate::source::{ANNOTATIONS, Location, on_server};

pub(crate) struct Subdir {
    /// The provisioner's own name. Additional names belong to former provisioners.
    name: String,
    shares: Vec<Share>,
}

impl Subdir {
    pub(crate) fn new(
        own_name: String,
        names: Vec<ShareName>,
        mounted: RequiredMount,
        trash: TrashLimits,
    ) -> Result<Self, String> {
        for (number, name) in names.iter().enumerate() {
            for other in names.iter().skip(number + 1) {
                let inside = |one: &ShareName, other: &ShareName| one.contains_path(&format!("{}/", other.path));
                if name.directory == other.directory
                    || name.server == other.server && (inside(name, other) || inside(other, name))
                {
                    return Err(format!("the shares {name} and {other} overlap; name one of them"));
                }
            }
        }
        let shares = names.into_iter().map(|name| Share::new(name, mounted, trash)).collect();
        Ok(Self { name: own_name, shares })
    }

    /// Creates a provisioner for an open root and classes that do not name a share.
    #[cfg(test)]
    pub(crate) fn of_root(name: ShareName, root: directory_volumes::Root) -> Self {
        Self { name: String::new(), shares: vec![Share::usable(name, root)] }
    }

    /// Returns the share that a class names.
    fn share_for_class(&self, parameters: &Parameters) -> Result<&Share, String> {
        let is_named = |share: &&Share| {
            let path = parameters.share.as_ref().map(|path| path.trim_end_matches('/'));
            parameters.server.as_ref().is_none_or(|server| *server == share.name.server)
                && path.is_none_or(|path| path == share.name.path)
        };
        let mut named = self.shares.iter().filter(is_named);
        match (named.next(), named.next()) {
            (Some(share), None) => Ok(share),
            (None, _) => {
                Err(format!("the class names a share that the provisioner does not have; it has {}", self.names()))
            }
            (Some(_), Some(_)) => {
                Err(format!("the class must select one of the shares with server and share: {}", self.names()))
            }
        }
    }

    /// Returns the share of a volume, and the volume's location on it.
    fn share_for_volume(&self, volume: &ProvisionedVolume) -> Result<(&Share, Location), String> {
        let location = Location::of(&volume.object).unwrap_or_default();
        match self.shares.iter().find(|share| share.name.contains_volume(&location)) {
            Some(share) => Ok((share, location)),
            None => {
                let Location { server, path } = location;
                let place = format!("{server}:{path}").chars().take(100).collect::<String>();
                Err(format!("the volume is at {place:?}, which is in no share here; there are {}", self.names()))
            }
        }
    }

    fn names(&self) -> String {
        self.shares.iter().map(|share| share.name.to_string()).collect::<Vec<_>>().join(", ")
    }

    async fn provision_volume(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let parameters = request.parameters.clone();
        // An earlier call may have created the directory on a share that the flags no longer name.
        let resumed = request.resumed;
        let share = self
            .share_for_class(&parameters)
            .map_err(|text| if resumed { ProvisionError::no_change(text) } else { ProvisionError::invalid(text) })?;
        let (path, owner) = path_and_owner(&request, &parameters.pattern.0)?;
        let worker: Worker = share.worker().await?;
        let (bytes, enforced) = (request.bytes, parameters.enforce_size);
        let (retain, permissions, token) =
            (has_retain_policy(&request), parameters.permissions(), request.fencing_token.clone());
        let source = on_server(&share.name.path, path.as_str());
        let made = worker.create(path, owner, retain, permissions, (bytes, enforced, None), token).await;
        let (_, size) = made.map_err(|not_created| not_created.error)?;
        let volume = Volume::nfs(&share.name.server, source);
        let advice = predecessor::class_warning(&request.class, Some(&self.name));
        let (on_delete, trash_ttl) = match &advice {
            Some(_) => Policy::Archive.on_delete(None),
            None => (parameters.on_delete, parameters.trash_ttl),
        };
        let volume = ANNOTATIONS.apply_to(volume, on_delete, trash_ttl, worker.root());
        Ok(size.apply_to(volume, advice))
    }
}

/// Returns the text for the claim's user if the error contains paths.
fn message_for_users(cause: &(dyn Error + Send + Sync + 'static)) -> Option<String> {
    let (ShareError::Unusable { name, .. } | ShareError::Hangs { name, .. }) = cause.downcast_ref()?;
    Some(format!("the share {name} cannot be used; ask the administrator"))
}

impl Provisioner for Subdir {
    type Parameters = Parameters;

    /// Opens the shares without waiting for them, so that an unusable share does not block the others.
    async fn start(&self, start: StartContext) -> Result<(), StartError> {
        self.shares.iter().for_each(|share| share.open(&start));
        Ok(())
    }

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        self.provision_volume(request).await.map_err(|error| error.for_users(message_for_users))
    }

    /// Relies on the directory's mark for the owner: users may have edited the object.
    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        let (share, location) = self.share_for_volume(&volume).map_err(DeleteError::retry)?;
        let path = location.below(&share.name.path)?;
        let worker = share.worker().await?;
        let deletion = Deletion::of(&volume, path, &ANNOTATIONS, worker.root())?;
        worker.end(deletion, volume.fencing_token.clone()).await
    }

    async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
        let resized = async {
            let (share, location) = self.share_for_volume(&volume).map_err(ExpandError::retry)?;
            let path = location.below(&share.name.path)?;
            share.worker().await?.resize(path, owner_in_this_cluster(&volume), bytes).await
        };
        resized.await.map_err(|error| error.for_users(message_for_users))
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        let place = path_and_owner(&attempt, &attempt.parameters.pattern.0);
        match (self.share_for_class(&attempt.parameters), place) {
            (Ok(share), Ok((path, owner))) => {
                let (deletion, token) = (Deletion::of_attempt(path, owner), attempt.fencing_token.clone());
                let ended = async { share.worker().await?.end(deletion, token).await };
                ended.await.map_err(|error: DeleteError| error.for_users(message_for_users))
            }
            // The pattern was refused before the attempt created anything.
            (_, Err(_)) => Ok(()),
            // The share may have been configured when the attempt began.
            (Err(error), _) => Err(DeleteError::retry(error)),
        }
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().expansion().mount_options().claim_annotations([ANNOTATIONS_OF_CLAIMS])
    }

    async fn probe(&self) -> Result<(), StartError> {
        for share in &self.shares {
            share.probe().await?;
        }
        Ok(())
    }
}

impl Hooks for Subdir {
    fn class_problems(class: &StorageClass) -> Vec<String> {
        directory_volumes::parameters::ignored_settings(class)
    }

    fn class_warning(class: &StorageClass, own_name: Option<&str>) -> Option<String> {
        predecessor::class_warning(class, own_name)
    }
}
