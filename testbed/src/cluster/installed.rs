//! The hostPath provisioner as a pod on the real node, installed from its own manifests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::Value;

use super::{TestSpace, eventually, images};
use crate::control_plane::Signal;
use crate::process::ProcessId;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

/// The manifests in `deploy/hostpath`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// A DaemonSet.
    PerNode,
    /// A Deployment.
    Single,
}

/// A provisioner that [`TestSpace::install`] installed.
pub struct Installed<'a> {
    space: &'a TestSpace,
    root: PathBuf,
}

impl TestSpace {
    /// Imports an image with the hostPath provisioner of these tests into the node, and returns its name.
    pub fn hostpath_image(&self) -> anyhow::Result<String> {
        images::provisioner(self.cluster().state())
    }

    /// Installs the provisioner with names and a root directory of this test, so that tests can run concurrently.
    /// Everything else equals the manifests. See [`Installed::class`] for its classes.
    pub async fn install(&self, variant: Variant) -> anyhow::Result<Installed<'_>> {
        // The kubelet creates the directory. Its contents are deleted with the control plane's directory.
        let root = self.cluster().state().dir.join("volumes").join(self.namespace()).join("root");
        let installed = Installed { space: self, root };
        let manifests = manifests(self, variant, &installed.root)?;
        self.apply(&manifests).await?;
        Ok(installed)
    }
}

impl Installed<'_> {
    /// The node's directory that contains the volumes.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The name that a class of the manifests, such as `hostpath-local`, has in this test.
    pub fn class(&self, name: &str) -> String {
        self.space.cluster_wide_name(name)
    }

    /// The names in the root directory, sorted, without the provisioner's own files.
    pub fn directories(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.root).into_iter().flatten();
        let names = entries.map_while(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// The running pods of the provisioner.
    pub async fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        let ours = ListParams::default().labels("app.kubernetes.io/name=hostpath-provisioner");
        let mut pods = self.space.api::<Pod>().list(&ours).await?.items;
        pods.retain(|pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running")));
        Ok(pods)
    }

    /// Waits until this number of provisioners run, and returns their processes.
    pub async fn processes(&self, count: usize) -> anyhow::Result<Vec<ProcessId>> {
        let running = eventually(LIMIT, async || Ok(Some(self.processes_now()).filter(|found| found.len() == count)));
        running.await?.with_context(|| format!("not {count} provisioners but {}", self.processes_now().len()))
    }

    /// Kills the provisioner to simulate a crash, and deletes its pod so that another pod starts at once: the kubelet
    /// restarts a crashed container with increasing delays.
    pub async fn kill(&self) -> anyhow::Result<()> {
        for id in self.processes_now() {
            id.signal(Signal::KILL);
        }
        for pod in self.pods().await? {
            let at_once = DeleteParams::default().grace_period(0);
            self.space.api::<Pod>().delete(&pod.name_any(), &at_once).await?;
        }
        Ok(())
    }

    /// Deletes a claim, and waits until its volume and directory no longer exist.
    pub async fn delete_claim(&self, claim: &str) -> anyhow::Result<()> {
        let name = self.space.wait_bound(claim).await?.1.name_any();
        self.space.delete_claim(claim).await?;
        anyhow::ensure!(!self.root.join(&name).exists(), "volume {name} was deleted, but its directory still exists");
        Ok(())
    }

    fn processes_now(&self) -> Vec<ProcessId> {
        let variable = format!("HOSTPATH_ROOT={}", self.root.display());
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = ids.filter(|id| {
            let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            // Other programs, such as container runtimes, may have the variable in their environment.
            line.starts_with("/hostpath-provisioner\0")
                && environment.split(|byte| *byte == 0).any(|word| word == variable.as_bytes())
        });
        ours.filter_map(|id| ProcessId::of(id).ok()).collect()
    }
}

fn manifests(space: &TestSpace, variant: Variant, root: &Path) -> anyhow::Result<Vec<Value>> {
    let (folder, files) = match variant {
        Variant::PerNode => ("per-node", &["daemonset.yaml", "admissionpolicy.yaml"][..]),
        Variant::Single => ("single", &["deployment.yaml"][..]),
    };
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/hostpath");
    let image = format!("image: {}", images::provisioner(space.cluster().state())?);
    let namespace = space.namespace();
    let changes = [
        // Replace longer names first.
        ("hostpath-provisioner-hostpath-provisioner", &space.cluster_wide_name("hostpath-provisioner")),
        ("namespace: hostpath-provisioner", &format!("namespace: {namespace}")),
        ("metadata.name: hostpath-provisioner", &format!("metadata.name: {namespace}")),
        (":serviceaccount:hostpath-provisioner:", &format!(":serviceaccount:{namespace}:")),
        ("kube-provisioner/hostpath", &space.provisioner().to_owned()),
        ("kube-provisioner-hostpath", &space.provisioner().replace('/', "-")),
        ("/var/lib/hostpath-provisioner", &root.display().to_string()),
        (concat!("image: localhost/hostpath-provisioner:", env!("CARGO_PKG_VERSION")), &image),
        ("name: hostpath\n", &format!("name: {}\n", space.cluster_wide_name("hostpath"))),
        ("name: hostpath-local\n", &format!("name: {}\n", space.cluster_wide_name("hostpath-local"))),
    ];
    let mut manifests = Vec::new();
    for file in ["rbac.yaml", "storageclasses.yaml"].iter().chain(files) {
        let path = deploy.join(folder).join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = changes.iter().fold(text, |text, (from, to)| text.replace(from, to));
        manifests.extend(serde_saphyr::from_multiple::<Value>(&text)?);
    }
    Ok(manifests)
}
