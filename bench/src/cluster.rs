//! Access to the cluster for measurements: a namespace, a class, thousands of claims, and cleanup.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::ControlFlow::{Break, Continue};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Endpoints, Event, Namespace, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use kube_provisioner::protocol::STORAGE_PROVISIONER;
use kube_provisioner::rbac::{Account, manifests, rules};
use kube_provisioner::{Capabilities, Options};
use serde::de::DeserializeOwned;
use serde_json::json;
use testbed::cluster::apply;
use testbed::control_plane::{State, client_from, kubeconfig_for_service_account};
use tokio::time::timeout;

use crate::wait::{until, until_rest};

pub(crate) const NAMESPACE: &str = "bench";
pub(crate) const CLASS: &str = "bench";
pub(crate) const PROVISIONER: &str = "bench.example.com/noop";
/// A class that does not exist until everything is ready.
const LATER: &str = "bench-later";
pub(crate) const GO_ACCOUNT: &str = "go-provisioner";
const FINALIZERS: &str = "go-provisioner-finalizers";
/// Concurrent requests while a measurement is prepared.
const AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(600);
/// A control plane that writes only a few times in a second is idle: Leases are still renewed occasionally.
const FEW: u64 = 5;

pub(crate) struct Cluster {
    state: State,
    client: Client,
}

impl Cluster {
    pub(crate) async fn connect() -> anyhow::Result<Self> {
        let state = State::for_tests()?;
        let client = client_from(&state.kubeconfig).await?;
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
                "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        ];
        // Every cluster has these objects for provisioners written with the Go library.
        objects.push(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": GO_ACCOUNT, "namespace": NAMESPACE}}));
        // With finalizers, the library also needs permission to remove them.
        objects.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": FINALIZERS},
            "rules": [{"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["patch", "update"]}]}));
        for (name, role) in [(GO_ACCOUNT, "system:persistent-volume-provisioner"), (FINALIZERS, FINALIZERS)] {
            objects.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "subjects": [{"kind": "ServiceAccount", "name": GO_ACCOUNT, "namespace": NAMESPACE}],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}));
        }
        let mut options = Options::new(PROVISIONER);
        options.shards = 4;
        let mut rules = rules(&options, &Capabilities::default().expansion(), &[2]);
        // Other builds are measured as well, and their objects may have other names.
        rules.iter_mut().for_each(|rule| rule.names.clear());
        objects.extend(manifests(&Account { name: "provisioner", namespace: NAMESPACE }, &rules));
        apply(&client, &objects).await?;
        Ok(Self { state, client })
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) async fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        kubeconfig_for_service_account(&self.client, &self.state, NAMESPACE, "provisioner").await
    }

    pub(crate) async fn go_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        kubeconfig_for_service_account(&self.client, &self.state, NAMESPACE, GO_ACCOUNT).await
    }

    /// Creates claims with our class.
    pub(crate) async fn create_claims(&self, count: usize) -> anyhow::Result<()> {
        self.create_claims_of(CLASS, count).await
    }

    /// Creates claims with another class.
    pub(crate) async fn create_claims_of(&self, class: &str, count: usize) -> anyhow::Result<()> {
        let api = self.claims();
        let create = async |at: usize| {
            api.create(&PostParams::default(), &testbed::cluster::claim(&format!("claim-{at}"), class)).await?;
            anyhow::Ok(())
        };
        at_once(0..count, create).await
    }

    /// Creates claims with our class, and waits until the controller-manager has annotated them.
    pub(crate) async fn create_handed_over_claims(&self, count: usize) -> anyhow::Result<Vec<PersistentVolumeClaim>> {
        self.create_claims(count).await?;
        let asks = |claim: &PersistentVolumeClaim| claim.annotations().contains_key(STORAGE_PROVISIONER);
        self.wait_claims(count, "annotated", asks).await
    }

    /// Creates one claim as the controller-manager leaves it.
    pub(crate) async fn create_annotated_claim(&self, name: &str) -> anyhow::Result<PersistentVolumeClaim> {
        let mut claim = testbed::cluster::claim(name, CLASS);
        claim.annotations_mut().insert(STORAGE_PROVISIONER.to_owned(), PROVISIONER.to_owned());
        Ok(self.claims().create(&PostParams::default(), &claim).await?)
    }

    /// Deletes a claim with its volume, and all Leases regardless of their holders. All other objects remain.
    pub(crate) async fn forget(&self, claim: &PersistentVolumeClaim) -> anyhow::Result<()> {
        delete_now(&self.claims(), &claim.name_any()).await;
        delete_now(&self.volumes(), &format!("pvc-{}", claim.uid().unwrap_or_default())).await;
        let leases = Api::<Lease>::namespaced(self.client.clone(), NAMESPACE);
        leases.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        until(PATIENCE, Duration::from_millis(200), async || {
            let left = self.claims().get_metadata_opt(&claim.name_any()).await?;
            Ok(if left.is_none() { Break(()) } else { Continue("the claim is not deleted".to_owned()) })
        })
        .await
    }

    /// Deletes the claims of [`Self::create_claims`].
    pub(crate) async fn delete_claims(&self, count: usize) -> anyhow::Result<()> {
        let api = self.claims();
        let delete = async |at: usize| {
            api.delete(&format!("claim-{at}"), &DeleteParams::default()).await?;
            anyhow::Ok(())
        };
        at_once(0..count, delete).await
    }

    /// Waits until the provisioner has deleted all volumes.
    pub(crate) async fn wait_no_volumes(&self) -> anyhow::Result<()> {
        follow(&self.volumes(), 0, "left", |_| true).await.map(drop)
    }

    /// Creates claims as the controller-manager leaves them, with a class that does not exist yet. When the class is
    /// created, all of them start at once, and only the provisioner determines the pace.
    pub(crate) async fn create_waiting_claims(&self, count: usize) -> anyhow::Result<()> {
        let api = self.claims();
        let create = async |at: usize| {
            let mut claim = testbed::cluster::claim(&format!("waiting-{at}"), LATER);
            claim.annotations_mut().insert(STORAGE_PROVISIONER.to_owned(), PROVISIONER.to_owned());
            api.create(&PostParams::default(), &claim).await?;
            anyhow::Ok(())
        };
        at_once(0..count, create).await?;
        // The provisioner emits an event on each claim, because its class does not exist.
        tokio::time::sleep(Duration::from_secs(2) + Duration::from_millis(5) * u32::try_from(count)?).await;
        Ok(())
    }

    /// Creates the class of the pending claims.
    pub(crate) async fn open_class(&self) -> anyhow::Result<()> {
        let class = testbed::cluster::class(LATER, PROVISIONER);
        self.classes().create(&PostParams::default(), &class).await?;
        Ok(())
    }

    pub(crate) async fn close_class(&self) -> anyhow::Result<()> {
        self.classes().delete(LATER, &DeleteParams::default()).await?;
        Ok(())
    }

    fn classes(&self) -> Api<StorageClass> {
        Api::all(self.client.clone())
    }

    /// Waits until this number of claims meet the condition, and returns them.
    pub(crate) async fn wait_claims(
        &self,
        count: usize,
        what: &str,
        holds: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> anyhow::Result<Vec<PersistentVolumeClaim>> {
        follow(&self.claims(), count, what, holds).await
    }

    /// Waits until the control plane is idle: the controller-manager emits an event on each pending claim every 15 s,
    /// for several seconds if there are many claims, which would affect measurements unequally.
    pub(crate) async fn wait_quiet(&self) -> anyhow::Result<()> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        until_rest("writes", FEW, async || {
            let page = namespaces.list_metadata(&ListParams::default().limit(1)).await?;
            Ok(page.metadata.resource_version.unwrap_or_default().parse()?)
        })
        .await
    }

    /// Deletes all claims and volumes of the measurement, regardless of their owner.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let (all, of_any) = (DeleteParams::default(), ListParams::default());
        // A killed process holds its Lease for a while, and the next one should not start later than others do.
        let leases = Api::<Lease>::namespaced(self.client.clone(), NAMESPACE);
        leases.delete_collection(&all, &of_any).await?;
        // Old versions of the Go library elect with Endpoints.
        let endpoints = Api::<Endpoints>::namespaced(self.client.clone(), NAMESPACE);
        endpoints.delete_collection(&all, &of_any).await?;
        // Thousands of events would make each later measurement slower than the one before.
        let events = Api::<Event>::namespaced(self.client.clone(), NAMESPACE);
        let events = async { Ok(events.delete_collection(&all, &of_any).await.map(drop)?) };
        let objects = async {
            delete_all(&self.claims()).await?;
            delete_all(&self.volumes()).await
        };
        try_join(events, objects).await.map(drop)
    }
}

/// Runs this for each item, for a limited number of them concurrently.
pub(crate) async fn at_once<T, F: Future<Output = anyhow::Result<()>>>(
    items: impl IntoIterator<Item = T>,
    run: impl FnMut(T) -> F,
) -> anyhow::Result<()> {
    stream::iter(items).map(run).buffer_unordered(AT_ONCE).try_collect().await
}

/// Watches objects until this number of them meet the condition, and returns those. Polling would be less precise.
async fn follow<K: Resource + Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    count: usize,
    what: &str,
    holds: impl Fn(&K) -> bool,
) -> anyhow::Result<Vec<K>> {
    let mut met = HashMap::new();
    let following = async {
        loop {
            let list = api.list(&ListParams::default()).await?;
            met = list.items.into_iter().filter(&holds).map(|object| (object.uid(), object)).collect();
            let version = list.metadata.resource_version.unwrap_or_default();
            let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
            loop {
                if met.len() == count {
                    return anyhow::Ok(());
                }
                match events.try_next().await? {
                    Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) if holds(&object) => {
                        met.insert(object.uid(), object);
                    }
                    Some(WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) => {
                        met.remove(&object.uid());
                    }
                    Some(WatchEvent::Bookmark(_)) => {}
                    Some(WatchEvent::Error(_)) | None => break,
                }
            }
        }
    };
    match timeout(PATIENCE, following).await {
        Ok(followed) => followed.map(|()| met.into_values().collect()),
        Err(_) => bail!("{} instead of {count} objects are {what}: {}", met.len(), api.resource_url()),
    }
}

async fn delete_all<K: Resource + Clone + DeserializeOwned + Debug>(api: &Api<K>) -> anyhow::Result<()> {
    until(PATIENCE, Duration::from_millis(200), async || {
        let left = api.list_metadata(&ListParams::default()).await?.items;
        if left.is_empty() {
            return Ok(Break(()));
        }
        let seen = format!("{} objects are not deleted: {}", left.len(), api.resource_url());
        let delete = |object: PartialObjectMeta<K>| async move { delete_now(api, &object.name_any()).await };
        stream::iter(left).map(delete).buffer_unordered(AT_ONCE).collect::<()>().await;
        Ok(Continue(seen))
    })
    .await
}

/// Deletes an object without waiting for the owners of its finalizers.
pub(crate) async fn delete_now<K: Resource + Clone + DeserializeOwned + Debug>(api: &Api<K>, name: &str) {
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // Another client may also be deleting it.
    let _ = api.delete(name, &DeleteParams::default()).await;
    let _ = api.patch_metadata(name, &PatchParams::default(), &none).await;
}
