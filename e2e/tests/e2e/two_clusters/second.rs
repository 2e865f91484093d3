//! The second cluster's control plane.

use std::sync::{Arc, Weak};

use testbed::cluster::Cluster;
use testbed::control_plane::{ControlPlane, Settings, State};
use testbed::progress;
use tokio::sync::Mutex;

/// A control plane in addition to the shared one. It ends with the last test that uses it.
pub(crate) struct Second(Arc<ControlPlane>);

impl Second {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        static RUNNING: Mutex<Weak<ControlPlane>> = Mutex::const_new(Weak::new());

        let mut running = RUNNING.lock().await;
        if let Some(control_plane) = running.upgrade() {
            return Ok(Self(control_plane));
        }
        let guard = State::for_tests()?.guard();
        let started = Arc::new(ControlPlane::start(&Settings::for_tests(), &guard, &progress::silent()).await?);
        *running = Arc::downgrade(&started);
        Ok(Self(started))
    }

    pub(crate) async fn cluster(&self) -> anyhow::Result<Cluster> {
        Cluster::connect_to(self.0.state()).await
    }

    pub(crate) async fn end(self) -> anyhow::Result<()> {
        match Arc::into_inner(self.0) {
            Some(control_plane) => control_plane.stop().await,
            None => Ok(()),
        }
    }
}
