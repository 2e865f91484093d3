//! A part of the cluster that belongs to one test.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::PostParams;
use kube::core::ApiResource;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cleanup::{Leftovers, clean};
use super::objects::{self, named, random_suffix};
use super::{Cluster, Program, provisioner_program};
use crate::control_plane::{NODE, Settings, client_from, last_lines};

/// One namespace and one provisioner name for one test.
///
/// A test ends with [`TestSpace::done`]. If the space is dropped without it, the test has failed, and the logs of its
/// programs are shown. Either way all objects of the test are deleted.
pub struct TestSpace {
    cluster: Cluster,
    namespace: String,
    provisioner: String,
    /// Cluster-scoped objects to delete at the end.
    made: Mutex<Vec<(ApiResource, String)>>,
    logs: Mutex<Vec<PathBuf>>,
    is_done: bool,
}

impl TestSpace {
    /// Connects and creates a namespace. `test` is a short name of lower-case letters, digits and hyphens.
    pub async fn new(test: &str) -> anyhow::Result<Self> {
        Self::in_cluster(Cluster::connect().await?, test).await
    }

    /// Like [`TestSpace::new`], in a cluster of its own, for a test that disturbs others or is disturbed by them. For
    /// example, a thousand claims keep the controller manager from binding others for a minute.
    pub async fn with_own_cluster(test: &str) -> anyhow::Result<Self> {
        Self::in_cluster(Cluster::start(&Settings::for_tests()).await?, test).await
    }

    /// Like [`TestSpace::with_own_cluster`], with a real node.
    pub async fn with_own_node(test: &str) -> anyhow::Result<Self> {
        NODE.check_use()?;
        Self::in_cluster(Cluster::start(&Settings { node: true, audit: true, ..Settings::for_tests() }).await?, test)
            .await
    }

    /// Creates a namespace in a cluster.
    pub async fn in_cluster(cluster: Cluster, test: &str) -> anyhow::Result<Self> {
        Self::named(cluster, format!("{test}-{}", random_suffix())).await
    }

    /// Creates a space with the same namespace, class and provisioner names in another cluster.
    pub async fn counterpart_in(&self, cluster: Cluster) -> anyhow::Result<Self> {
        Self::named(cluster, self.namespace.clone()).await
    }

    async fn named(cluster: Cluster, namespace: String) -> anyhow::Result<Self> {
        let space = Self {
            provisioner: format!("{namespace}.example.com/provisioner"),
            namespace,
            cluster,
            made: Mutex::default(),
            logs: Mutex::default(),
            is_done: false,
        };
        let namespace = Namespace { metadata: named(&space.namespace), ..Namespace::default() };
        space.create_cluster_wide(&namespace).await?;
        space.create_default_service_account().await?;
        Ok(space)
    }

    /// Creates the account that pods need: its controller is slow while many namespaces are created and deleted.
    async fn create_default_service_account(&self) -> anyhow::Result<()> {
        let account = ServiceAccount { metadata: named("default"), ..ServiceAccount::default() };
        match self.api().create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => created.map(drop).context("cannot create the default service account"),
        }
    }

    /// The cluster of this space.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Mutable access to the cluster, for restarting a component.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// The administrator's client.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// This test's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// This test's provisioner name.
    pub fn provisioner(&self) -> &str {
        &self.provisioner
    }

    /// A name for a cluster-scoped object of this test.
    pub fn cluster_wide_name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.namespace)
    }

    /// An API for objects in this test's namespace, as administrator.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// An API for cluster-scoped objects, as administrator.
    pub fn cluster_api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client())
    }

    /// A class of this test's provisioner with reclaim policy `Delete` and immediate binding, as a template.
    pub fn class(&self, suffix: &str) -> StorageClass {
        objects::class(&self.cluster_wide_name(suffix), &self.provisioner)
    }

    /// A claim of a class for 1 MiB, as a template.
    pub fn claim(&self, name: &str, class: &StorageClass) -> PersistentVolumeClaim {
        objects::claim(name, &class.name_any())
    }

    /// Creates a class.
    pub async fn create_class(&self, class: StorageClass) -> anyhow::Result<StorageClass> {
        self.create_cluster_wide(&class).await
    }

    /// Creates a class and a claim of it.
    pub async fn create_class_and_claim(&self, claim: &str) -> anyhow::Result<StorageClass> {
        let class = self.create_class(self.class("class")).await?;
        self.create_claim(self.claim(claim, &class)).await?;
        Ok(class)
    }

    /// Creates a claim.
    pub async fn create_claim(&self, claim: PersistentVolumeClaim) -> anyhow::Result<PersistentVolumeClaim> {
        self.create(&claim).await
    }

    /// Creates an object in this test's namespace.
    pub async fn create<K>(&self, object: &K) -> anyhow::Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let created = self.api::<K>().create(&PostParams::default(), object).await;
        created.with_context(|| format!("cannot create {} {}", K::kind(&()), object.name_any()))
    }

    /// Creates a cluster-scoped object, which is deleted at the end.
    pub async fn create_cluster_wide<K>(&self, object: &K) -> anyhow::Result<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.delete_at_end(ApiResource::erase::<K>(&()), object.name_any());
        let created = self.cluster_api::<K>().create(&PostParams::default(), object).await;
        created.with_context(|| format!("cannot create {} {}", K::kind(&()), object.name_any()))
    }

    /// The volumes that this test's provisioner created.
    pub async fn volumes(&self) -> anyhow::Result<Vec<PersistentVolume>> {
        let volumes = self.cluster_api::<PersistentVolume>().list(&Default::default()).await?;
        Ok(volumes.into_iter().filter(|volume| self.leftovers().owns(volume)).collect())
    }

    /// Starts a program that ends with this test at the latest. Its log is shown if the test fails.
    pub fn spawn<A: AsRef<std::ffi::OsStr>>(
        &self,
        name: &str,
        program: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Program> {
        let started = Program::spawn(self.cluster.state(), &format!("{}-{name}", self.namespace), program, arguments)?;
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        // A restarted program appends to its log.
        if !logs.iter().any(|log| log == started.log()) {
            logs.push(started.log().to_owned());
        }
        drop(logs);
        Ok(started)
    }

    /// Runs a command of a package's program to completion, as administrator. `complete` adds its arguments. Returns
    /// true if it succeeded, and its output.
    pub fn command(
        &self,
        package: &str,
        complete: impl FnOnce(&mut Command) -> &mut Command,
    ) -> anyhow::Result<(bool, String)> {
        let mut command = Command::new(provisioner_program(package)?);
        command.env("PROVISIONER_NAME", &self.provisioner).env("POD_NAMESPACE", &self.namespace);
        command.env("KUBECONFIG", &self.cluster.state().kubeconfig);
        let output = complete(&mut command).output()?;
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((output.status.success(), text.concat()))
    }

    /// The last lines of the logs of all programs of this test.
    pub fn program_logs(&self) -> String {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.iter().map(|log| format!("--- {}\n{}\n", log.display(), last_lines(log, 60))).collect()
    }

    /// Ends a successful test and deletes its objects.
    pub async fn done(mut self) -> anyhow::Result<()> {
        self.is_done = true;
        let client = client_from(&self.cluster.state().kubeconfig).await?;
        clean(client, &self.leftovers()).await;
        self.cluster.end().await
    }

    pub(super) fn delete_at_end(&self, resource: ApiResource, name: String) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push((resource, name));
    }

    fn leftovers(&self) -> Leftovers {
        Leftovers {
            namespace: self.namespace.clone(),
            provisioner: self.provisioner.clone(),
            made: self.made.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Drop for TestSpace {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let logs = self.program_logs();
        if !logs.is_empty() {
            crate::progress::terminal()
                .line(&format!("{} ended without success; its programs:\n{logs}", self.namespace));
        }
        let kubeconfig = self.cluster.state().kubeconfig.clone();
        let leftovers = self.leftovers();
        // The test's runtime may be ending, so the cleanup needs its own.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                clean(client_from(&kubeconfig).await?, &leftovers).await;
                anyhow::Ok(())
            })
        });
        // A failed cleanup must not hide the reason for the test's failure.
        let _ = thread.join();
    }
}
