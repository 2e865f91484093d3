//! A CSI driver and its provisioner in one process: no socket, no sidecar. The node service is a process of its own on each node.
//!
//! ```sh
//! cargo run -p csi-provisioner --example in_process
//! ```

use std::path::PathBuf;

use csi::messages::controller_service_capability::{Rpc, Type as Kind, rpc};
use csi::messages::plugin_capability::{Service, Type, service};
use csi::messages::*;
use csi::{Controller, Error, Identity, Status};
use csi_provisioner::{CsiProvisioner, DriverInfo, Settings};
use kube_provisioner::{Options, Program};

/// Volumes are directories of a file system that every node mounts.
struct Directories(PathBuf);

impl Identity for Directories {
    async fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Error> {
        Ok(GetPluginInfoResponse { name: "directories.example.com".into(), ..Default::default() })
    }

    async fn get_plugin_capabilities(
        &self,
        _: GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Error> {
        let service = Type::Service(Service { r#type: service::Type::ControllerService.into() });
        Ok(GetPluginCapabilitiesResponse { capabilities: vec![PluginCapability { r#type: Some(service) }] })
    }
}

impl Controller for Directories {
    async fn controller_get_capabilities(
        &self,
        _: ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Error> {
        let rpc = Kind::Rpc(Rpc { r#type: rpc::Type::CreateDeleteVolume.into() });
        Ok(ControllerGetCapabilitiesResponse { capabilities: vec![ControllerServiceCapability { r#type: Some(rpc) }] })
    }

    /// The name is that of the PersistentVolume, in every attempt.
    async fn create_volume(&self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Error> {
        let made = tokio::fs::create_dir_all(self.0.join(&request.name)).await;
        made.map_err(|error| Status::internal(error.to_string()))?;
        Ok(CreateVolumeResponse { volume: Some(Volume { volume_id: request.name, ..Default::default() }) })
    }

    async fn delete_volume(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Error> {
        if request.volume_id.contains(['/', '.']) {
            return Err(Status::invalid_argument("this is no id of a volume").into());
        }
        match tokio::fs::remove_dir_all(self.0.join(&request.volume_id)).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Status::internal(error.to_string()).into())
            }
            _ => Ok(DeleteVolumeResponse {}),
        }
    }
}

#[derive(clap::Parser)]
struct Args {
    /// The file system
    #[arg(long, default_value = "/mnt/volumes")]
    root: PathBuf,
    #[command(flatten)]
    options: Options,
}

fn main() -> std::process::ExitCode {
    Program::new(async |Args { root, options }: Args| {
        let driver = Directories(root);
        let info = DriverInfo::ask(&driver).await?;
        Ok((CsiProvisioner::new(driver, info, Settings::default(), "directories"), options))
    })
    .run()
}
