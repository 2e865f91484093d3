//! A provisioner that creates a directory for every claim. Replace the directories with your backend.

use std::io::ErrorKind;
use std::path::PathBuf;

use kube_provisioner::{DeleteError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Volume};
use serde::Deserialize;

/// The backend: a folder.
pub struct Directories {
    pub root: PathBuf,
}

/// Parameters that a StorageClass may contain. All others are rejected with an event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parameters {
    /// Keep the data when the claim is deleted. Set `keepData: "true"` in the class.
    #[serde(default)]
    pub keep_data: bool,
}

impl Provisioner for Directories {
    type Parameters = Parameters;

    /// Finds the directory of the first call when it is called again with the same name after a crash.
    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let path = self.root.join(&request.name);
        tokio::fs::create_dir_all(&path).await?; // any error: tried again later
        let keep = request.parameters.keep_data.to_string();
        Ok(Volume::host_path(path.to_string_lossy()).annotation("example.com/keep-data", keep))
    }

    /// Succeeds if the directory no longer exists.
    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        if volume.annotation("example.com/keep-data") == Some("true") {
            return Ok(());
        }
        self.remove(&volume.name).await
    }

    /// Removes leftovers of a claim that was deleted before its volume was created.
    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        self.remove(&attempt.name).await
    }
}

impl Hooks for Directories {}

impl Directories {
    async fn remove(&self, name: &str) -> Result<(), DeleteError> {
        match tokio::fs::remove_dir_all(self.root.join(name)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;

    use super::*;

    #[tokio::test]
    async fn provisions_the_same_directory_again_and_deletes_it() {
        let root = tempfile::tempdir().unwrap();
        let directories = Directories { root: root.path().to_owned() };
        let request = || ProvisionRequest::new(Parameters { keep_data: false }, 1 << 30);
        let volume = directories.provision(request()).await.unwrap();
        assert_eq!(directories.provision(request()).await.unwrap(), volume);
        let path = root.path().join(request().name);
        assert!(path.is_dir());

        let mut object = PersistentVolume::default();
        object.metadata.name = Some(request().name);
        directories.delete(ProvisionedVolume::new(object)).await.unwrap();
        assert!(!path.exists());
    }
}
