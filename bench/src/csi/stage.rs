//! The environment of one sidecar: a namespace with its account and claims, a class, and its driver.

use std::ops::ControlFlow::{Break, Continue};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{StreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use kube_provisioner::protocol::{SELECTED_NODE, STORAGE_PROVISIONER};
use serde_json::json;
use testbed::cluster::{Program, apply, class, is_bound, random_suffix};
use testbed::control_plane::{State, client_from, kubeconfig_for_service_account};
use testbed::scenario::csi_rights;

use super::driver::{Driver, Pace, ZONE};
use super::ledger::Ledger;
use super::peer::{Peer, Programs};
use crate::cluster::delete_now;
use crate::wait::until;

pub(super) const ACCOUNT: &str = "csi-provisioner";
/// The annotation of a Lease with the entries of a journal.
const JOURNAL_ENTRIES: &str = "kube-provisioner/journal-entries";
/// Longer than the driver continues a call whose caller was killed.
const STILL: Duration = Duration::from_secs(3);

pub(super) struct Stage {
    state: State,
    pub(super) client: Client,
    programs: Programs,
    /// The name of the namespace and of the class.
    pub(super) name: String,
    /// The driver's zones; empty without topology.
    zones: Vec<String>,
    pub(super) driver: Driver,
    driver_name: String,
    kubeconfig: PathBuf,
    _sockets: tempfile::TempDir,
}

/// The objects in the cluster and in the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Leftovers {
    pub(super) claims: usize,
    pub(super) volumes: usize,
    /// Number of claims and volumes with finalizers.
    pub(super) finalizers: usize,
    /// Number of volumes in the driver.
    pub(super) in_driver: usize,
    /// Volumes in the driver without a PersistentVolume.
    pub(super) leaked: Vec<String>,
}

impl Leftovers {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Describes the leftovers for progress messages.
    pub(super) fn shown(&self) -> String {
        format!(
            "{} claims, {} volumes, {} in the driver, {} of them without a volume",
            self.claims,
            self.volumes,
            self.in_driver,
            self.leaked.len()
        )
    }

    fn is_forgotten(&self) -> bool {
        self.claims + self.volumes == 0
    }
}

impl Stage {
    /// Prepares the measurement `what`, with a driver of this pace.
    pub(super) async fn set(programs: &Programs, what: &str, pace: Pace, seed: u64) -> anyhow::Result<Self> {
        Self::set_in_zones(programs, what, pace, seed, &[]).await
    }

    /// Same as [`Self::set`], with a topology-aware driver if there are zones.
    pub(super) async fn set_in_zones(
        programs: &Programs,
        what: &str,
        pace: Pace,
        seed: u64,
        zones: &[&str],
    ) -> anyhow::Result<Self> {
        let state = State::for_tests()?;
        let client = client_from(&state.kubeconfig).await?;
        let name = format!("{what}-{}", random_suffix());
        let driver_name = format!("{name}.csi.example.com");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let mut objects = vec![namespace];
        objects.extend(csi_rights(&name)?);
        apply(&client, &objects).await?;
        let classes = Api::all(client.clone());
        classes.create(&PostParams::default(), &class(&name, &driver_name)).await?;
        let mut delayed = class(&delayed(&name), &driver_name);
        delayed.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
        classes.create(&PostParams::default(), &delayed).await?;
        let kubeconfig = kubeconfig_for_service_account(&client, &state, &name, ACCOUNT).await?;
        let folder = tempfile::tempdir()?;
        let driver = Driver::new(&driver_name, folder.path(), pace, seed, zones);
        driver.serve()?;
        let (programs, zones) = (programs.clone(), zones.iter().map(ToString::to_string).collect());
        Ok(Self { state, client, programs, name, zones, driver, driver_name, kubeconfig, _sockets: folder })
    }

    /// Starts a sidecar with a host name of its own: both sidecars write the name into the election's Lease.
    pub(super) fn start(&self, peer: Peer, host: &str, more: &[&str]) -> anyhow::Result<Program> {
        let mut arguments =
            ["--uts", "sh", "-c", r#"hostname "$0" && HOSTNAME="$0" exec "$@""#, host].map(str::to_owned).to_vec();
        arguments.extend(["env".to_owned(), format!("NAMESPACE={}", self.name)]);
        arguments.push(self.programs.path(peer).display().to_string());
        arguments.push(format!("--csi-address={}", self.driver.socket(peer).display()));
        arguments.push(format!("--kubeconfig={}", self.kubeconfig.display()));
        arguments.push(format!("--leader-election-namespace={}", self.name));
        arguments.extend(more.iter().map(ToString::to_string));
        let program = Program::spawn(&self.state, &format!("{}-{host}", self.name), "unshare", &arguments)?;
        self.driver.ledger().process_starts();
        Ok(program)
    }

    pub(super) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// The holder of the election's Lease.
    pub(super) async fn holder(&self) -> anyhow::Result<Option<String>> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.name);
        let lease = leases.get_opt(&self.driver_name.replace('.', "-")).await?;
        Ok(lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty()))
    }

    /// Waits until a process on one of these hosts holds the Lease, and returns the host.
    pub(super) async fn wait_for_holder<'a>(&self, hosts: &[&'a str], patience: Duration) -> anyhow::Result<&'a str> {
        until(patience, Duration::from_millis(50), async || {
            let holder = self.holder().await?;
            let is_its = |host: &&&str| holder.as_ref().is_some_and(|holder| holder.starts_with(**host));
            Ok(match hosts.iter().find(is_its) {
                Some(host) => Break(*host),
                None => Continue(format!("{holder:?} holds the Lease of {}, and none of {hosts:?}", self.name)),
            })
        })
        .await
    }

    /// Waits until the driver's ledger contains a CreateVolume call, and returns its time.
    pub(super) async fn called(
        &self,
        patience: Duration,
        call: impl Fn(&Ledger) -> Option<Instant>,
    ) -> anyhow::Result<Instant> {
        until(patience, Duration::from_millis(5), async || {
            let seen = || format!("CreateVolume is not called in {}", self.name);
            Ok(call(&self.driver.ledger()).map_or_else(|| Continue(seen()), Break))
        })
        .await
    }

    /// The user name in the API server's audit log.
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.name)
    }

    /// Creates a claim, and returns the name of its future volume.
    pub(super) async fn create_claim(&self, name: &str) -> anyhow::Result<String> {
        self.create(testbed::cluster::claim(name, &self.name)).await
    }

    /// Creates a claim as the controller-manager leaves it.
    pub(super) async fn create_waiting_claim(&self, name: &str) -> anyhow::Result<String> {
        let mut claim = testbed::cluster::claim(name, &self.name);
        claim.annotations_mut().insert(STORAGE_PROVISIONER.to_owned(), self.driver_name.clone());
        self.create(claim).await
    }

    /// Creates a claim that waits for a pod, as the scheduler leaves it. Returns the name of its future volume.
    pub(super) async fn create_delayed_claim(&self, name: &str, node: &str) -> anyhow::Result<String> {
        let mut claim = testbed::cluster::claim(name, &delayed(&self.name));
        claim.annotations_mut().insert(STORAGE_PROVISIONER.to_owned(), self.driver_name.clone());
        claim.annotations_mut().insert(SELECTED_NODE.to_owned(), node.to_owned());
        self.create(claim).await
    }

    pub(super) fn zones(&self) -> &[String] {
        &self.zones
    }

    /// Creates a node that has only a name, with the driver registered on it.
    pub(super) async fn create_node(&self, name: &str, zone: &str) -> anyhow::Result<()> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        self.create_node_from(Node { metadata, ..Node::default() }, zone).await
    }

    /// Creates this node, with the driver registered on it.
    pub(super) async fn create_node_from(&self, mut node: Node, zone: &str) -> anyhow::Result<()> {
        node.labels_mut().insert(ZONE.to_owned(), zone.to_owned());
        let created = Api::<Node>::all(self.client.clone()).create(&PostParams::default(), &node).await?;
        let registered = json!([{"name": self.driver_name, "nodeID": created.name_any(), "topologyKeys": [ZONE]}]);
        let object: CSINode = serde_json::from_value(json!({
            "metadata": {
                "name": created.name_any(), "labels": created.labels(), "ownerReferences": [created.owner_ref(&())],
            },
            "spec": {"drivers": registered},
        }))?;
        Api::<CSINode>::all(self.client.clone()).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Deletes a node and its driver registrations.
    pub(super) async fn delete_node(&self, name: &str) -> anyhow::Result<()> {
        Api::<Node>::all(self.client.clone()).delete(name, &DeleteParams::default()).await?;
        // The garbage collector may be faster.
        let _ = Api::<CSINode>::all(self.client.clone()).delete(name, &DeleteParams::default()).await;
        Ok(())
    }

    async fn create(&self, claim: PersistentVolumeClaim) -> anyhow::Result<String> {
        let claim = self.claims().create(&PostParams::default(), &claim).await?;
        Ok(format!("pvc-{}", claim.uid().context("a claim without a uid")?))
    }

    /// The volumes of the driver.
    pub(super) async fn volumes(&self) -> anyhow::Result<Vec<PersistentVolume>> {
        // The list comes from the API server's cache, so that it does not slow down the measured requests.
        let mut volumes =
            Api::<PersistentVolume>::all(self.client.clone()).list(&ListParams::default().match_any()).await?.items;
        volumes.retain(|volume| handle(volume).is_some_and(|(driver, _)| driver == self.driver_name));
        Ok(volumes)
    }

    /// Deletes all claims, and waits until there are no leftovers, or the leftovers have not changed for a while.
    pub(super) async fn settle(&self, patience: Duration, quiet: Duration) -> anyhow::Result<(Leftovers, Duration)> {
        self.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let begun = Instant::now();
        let (mut before, mut since) = (None, begun);
        loop {
            let left = self.left().await?;
            let now = (left.clone(), self.driver.ledger().progress());
            if before.as_ref() != Some(&now) {
                (before, since) = (Some(now), Instant::now());
            }
            let is_done = since.elapsed() > STILL && left.is_nothing() && self.journal().await?.is_empty();
            if is_done || since.elapsed() > quiet || begun.elapsed() > patience {
                return Ok((left, begun.elapsed()));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Removes claims and volumes without the sidecar.
    pub(super) async fn forget_all(&self) -> anyhow::Result<()> {
        self.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let api = Api::<PersistentVolume>::all(self.client.clone());
        let forget = |volume: PersistentVolume| {
            let api = &api;
            async move { delete_now(api, &volume.name_any()).await }
        };
        while !self.left().await?.is_forgotten() {
            stream::iter(self.volumes().await?).map(forget).buffer_unordered(32).collect::<()>().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    /// Number of pending claims, once there are none or the time limit has passed.
    pub(super) async fn unbound(&self, patience: Duration) -> anyhow::Result<usize> {
        let begun = Instant::now();
        loop {
            let claims = self.claims().list(&ListParams::default()).await?.items;
            let stays = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
            let unbound = stays.filter(|claim| !is_bound(claim)).count();
            if unbound == 0 || begun.elapsed() > patience {
                return Ok(unbound);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Counts the current objects.
    pub(super) async fn left(&self) -> anyhow::Result<Leftovers> {
        let in_driver = self.driver.volumes();
        let claims = self.claims().list(&ListParams::default()).await?.items;
        let volumes = self.volumes().await?;
        let handles: Vec<_> = volumes.iter().filter_map(handle).map(|(_, id)| id).collect();
        let finalizers = claims.iter().filter(|claim| !claim.finalizers().is_empty()).count()
            + volumes.iter().filter(|volume| !volume.finalizers().is_empty()).count();
        Ok(Leftovers {
            claims: claims.len(),
            volumes: volumes.len(),
            finalizers,
            in_driver: in_driver.len(),
            leaked: in_driver.into_iter().filter(|id| !handles.contains(&id.as_str())).collect(),
        })
    }

    /// The attempts in the journal of csi-provisioner.
    pub(super) async fn journal(&self) -> anyhow::Result<Vec<String>> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.name).list(&ListParams::default()).await?;
        let entries = leases.items.into_iter().filter_map(|mut lease| lease.annotations_mut().remove(JOURNAL_ENTRIES));
        Ok(entries.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect())
    }
}

/// The class of claims that wait for a pod.
fn delayed(stage: &str) -> String {
    format!("{stage}-delayed")
}

/// The driver and the id of a volume.
fn handle(volume: &PersistentVolume) -> Option<(&str, &str)> {
    let source = volume.spec.as_ref()?.csi.as_ref()?;
    Some((&source.driver, &source.volume_handle))
}
