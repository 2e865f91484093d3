//! A CSI driver and its provisioner in one process, without socket and sidecar. The node service is a separate process
//! on each node.
//!
//! ```sh
//! cargo run -p csi-provisioner --example in_process
//! ```

use std::collections::BTreeSet;
use std::sync::Mutex;

use csi_provisioner::{CsiProvisioner, DriverInfo, Settings};
use driver_rpc::Error;
use driver_rpc::csi::controller_service_capability::rpc;
use driver_rpc::csi::plugin_capability::service;
use driver_rpc::csi::*;
use kube_provisioner::{Options, Program};

/// The volumes. A real driver queries its storage instead.
#[derive(Default)]
struct Pool(Mutex<BTreeSet<String>>);

impl Identity for Pool {
    async fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Error> {
        Ok(GetPluginInfoResponse { name: "pool.example.com".into(), ..Default::default() })
    }

    async fn get_plugin_capabilities(
        &self,
        _: GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Error> {
        Ok(GetPluginCapabilitiesResponse { capabilities: vec![service::Type::ControllerService.into()] })
    }
}

impl Controller for Pool {
    async fn controller_get_capabilities(
        &self,
        _: ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Error> {
        Ok(ControllerGetCapabilitiesResponse { capabilities: vec![rpc::Type::CreateDeleteVolume.into()] })
    }

    /// The name in the request is the PersistentVolume's, and the same in every attempt.
    async fn create_volume(&self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Error> {
        self.0.lock().unwrap().insert(request.name.clone());
        Ok(CreateVolumeResponse { volume: Some(Volume { volume_id: request.name, ..Default::default() }) })
    }

    async fn delete_volume(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Error> {
        // Deleting a volume that no longer exists succeeds.
        self.0.lock().unwrap().remove(&request.volume_id);
        Ok(DeleteVolumeResponse {})
    }
}

#[derive(clap::Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> std::process::ExitCode {
    Program::new(async |Args { options }: Args| {
        let driver = Pool::default();
        let info = DriverInfo::query(&driver).await?;
        Ok((CsiProvisioner::new(driver, info, Settings::default(), "pool"), options))
    })
    .run()
}
