//! Two replicas with leader election, of which the active one is stopped or killed.

use std::ops::ControlFlow::{Break, Continue};
use std::time::{Duration, Instant};

use anyhow::bail;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Endpoints;
use kube::Api;
use kube::api::{ListParams, VersionMatch, WatchEvent, WatchParams};
use serde_json::Value;
use testbed::control_plane::Signal;
use testbed::figures::Figures;

use crate::cluster::{Cluster, NAMESPACE, PROVISIONER};
use crate::process::Provisioner;
use crate::wait::until;

/// The signals that end the active replica.
pub(crate) const SIGNALS: [(Signal, &str); 2] = [(Signal::TERM, "SIGTERM"), (Signal::KILL, "SIGKILL")];
/// The defaults: the Lease's duration, and one retry period.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(15 + 2);
const ELECTION_RECORD: &str = "control-plane.alpha.kubernetes.io/leader";
const PATIENCE: Duration = Duration::from_secs(60);

/// The object that names the active replica.
#[derive(Clone, Copy)]
pub(crate) enum Election {
    Lease,
    /// An annotation of an Endpoints object, as in old versions of the Go library.
    Endpoints,
}

/// An active replica, and one on standby.
pub(crate) struct Pair {
    active: Provisioner,
    _standby: Provisioner,
    election: Election,
    holder: Holder,
}

struct Holder {
    identity: String,
    /// The resource version of the object that names it.
    version: String,
}

pub(crate) struct Takeover {
    /// From the signal to the first volume of the next replica.
    pub(crate) time: Duration,
    /// Number of volumes that the former replica has saved.
    pub(crate) before: usize,
}

impl Pair {
    /// Starts the second replica when the first one is active. `start` receives the name of a replica.
    pub(crate) async fn start(
        cluster: &Cluster,
        election: Election,
        start: impl AsyncFn(&str) -> anyhow::Result<Provisioner>,
    ) -> anyhow::Result<Self> {
        let [when_active, on_standby] = election.logs();
        let mut active = start("first").await?;
        active.wait_to_log(when_active).await?;
        let mut standby = start("second").await?;
        standby.wait_to_log(on_standby).await?;
        let holder = election.wait_for_holder(cluster, None).await?;
        Ok(Self { active, _standby: standby, election, holder })
    }

    /// Sends a signal to the active replica, and waits until the other one saves a volume.
    pub(crate) async fn take_over(&self, cluster: &Cluster, signal: Signal) -> anyhow::Result<Takeover> {
        let start = Instant::now();
        self.active.signal(signal)?;
        let next = self.election.wait_for_holder(cluster, Some(&self.holder)).await?;
        // Resource versions order the writes to all objects, so every later volume is the next replica's.
        let api = cluster.volumes();
        let events = api.watch_metadata(&WatchParams::default().timeout(60), &next.version).await?;
        let mut events = Box::pin(events);
        while let Some(event) = events.next().await {
            if let WatchEvent::Added(_) = event? {
                let time = start.elapsed();
                let former = ListParams::default().at(&next.version).matching(VersionMatch::Exact);
                let before = api.list_metadata(&former).await?.items.len();
                return Ok(Takeover { time, before });
            }
        }
        bail!("the next replica saves no volume")
    }
}

impl Election {
    /// The texts that a replica logs when it becomes active, and when it waits for another one.
    fn logs(self) -> [&'static str; 2] {
        match self {
            Self::Lease => [": ready ", ": standing by"],
            Self::Endpoints => ["Started provisioner controller", "attempting to acquire leader lease"],
        }
    }

    /// Waits until a replica other than `former` is active.
    async fn wait_for_holder(self, cluster: &Cluster, former: Option<&Holder>) -> anyhow::Result<Holder> {
        let former = former.map(|former| former.identity.as_str());
        until(PATIENCE, Duration::from_millis(10), async || {
            let holder = self.holder(cluster).await?.filter(|holder| Some(holder.identity.as_str()) != former);
            Ok(holder.map_or_else(|| Continue("no other replica is active".to_owned()), Break))
        })
        .await
    }

    async fn holder(self, cluster: &Cluster) -> anyhow::Result<Option<Holder>> {
        // Both programs derive the name of the object in this way.
        let name = PROVISIONER.replace('/', "-");
        let (identity, version) = match self {
            Self::Lease => {
                let lease = Api::<Lease>::namespaced(cluster.client(), NAMESPACE).get_opt(&name).await?;
                let lease = lease.unwrap_or_default();
                (lease.spec.and_then(|spec| spec.holder_identity), lease.metadata.resource_version)
            }
            Self::Endpoints => {
                let endpoints = Api::<Endpoints>::namespaced(cluster.client(), NAMESPACE).get_opt(&name).await?;
                let mut metadata = endpoints.unwrap_or_default().metadata;
                let record = metadata.annotations.get_or_insert_default().remove(ELECTION_RECORD).unwrap_or_default();
                let record: Value = serde_json::from_str(&record).unwrap_or_default();
                (record["holderIdentity"].as_str().map(str::to_owned), metadata.resource_version)
            }
        };
        // A replica that ends releases its Lease with an empty identity.
        let identity = identity.filter(|identity| !identity.is_empty());
        Ok(identity.zip(version).map(|(identity, version)| Holder { identity, version }))
    }
}

/// Returns true if no round took longer than the limit.
pub(crate) fn within(figures: &Figures, row: &str, quantity: &str, limit: Duration) -> bool {
    figures.summary(row, quantity).is_some_and(|all| all.most <= limit.as_secs_f64())
}
