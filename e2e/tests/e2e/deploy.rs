//! `kubectl apply -k deploy/…` on a real control plane: installation, upgrades and complete removal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use testbed::cluster::{Kubectl, TestSpace, eventually};
use testbed::manifests::{PROVISIONERS, project};
use testbed::{go_module, progress};

/// Deleting a namespace includes deleting its objects.
const LIMIT: Duration = Duration::from_secs(90);

/// The objects that kubectl reports as changed, without PodDisruptionBudgets: kubectl replaces their selector each
/// time.
fn changed(said: &str) -> Vec<&str> {
    let budget = |line: &str| line.starts_with("poddisruptionbudget");
    said.lines().filter(|line| !line.ends_with("unchanged") && !budget(line)).collect()
}

/// True for StatefulSets, which always change because the API server completes their claim templates.
fn has_templates_of_claims(line: &str) -> bool {
    line.starts_with("statefulset")
}

/// OpenShift's own CRD of SecurityContextConstraints.
async fn openshift_crd(space: &TestSpace) -> anyhow::Result<String> {
    // The version of February 2026.
    const MODULE: &str = "github.com/openshift/api@v0.0.0-20260213204242-d34f11c515b3";
    const SUM: &str = "h1:SZ8+jxtkMvpb4HDTjSAbaOyhFsw5PiWhjBog+XLY7jc=";
    const FILE: &str =
        "security/v1/zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints.crd.yaml";
    let module = go_module::download(MODULE, &space.cluster().state().guard(), &progress::silent()).await?;
    ensure!(module.sum == SUM, "unexpected checksum of {MODULE}: {}", module.sum);
    Ok(module.dir.join(FILE).display().to_string())
}

fn next_version(text: &str) -> String {
    text.replace(&format!(":{}\n", env!("CARGO_PKG_VERSION")), ":0.9.9\n")
}

#[tokio::test]
async fn manifests_are_installed_upgraded_and_removed_completely() -> anyhow::Result<()> {
    let space = TestSpace::with_own_cluster("deploy").await?;
    let kubectl = space.kubectl();
    kubectl.run(&["apply", "--server-side", "--force-conflicts", "-k", "crates/objectbucket-api/crds/standard"])?;
    let openshift = openshift_crd(&space).await?;
    kubectl.run(&["apply", "--server-side", "-f", &openshift])?;
    let scratch = tempfile::tempdir()?;
    for provisioner in &PROVISIONERS {
        for variant in provisioner.variants {
            let folder = format!("deploy/{}/{}", provisioner.folder, variant.folder);
            // A variant on top of another one does not contain a namespace.
            let alone = project().join(&folder).join("namespace.yaml").is_file();
            if !alone {
                kubectl.apply("deploy/hostpath/per-node")?;
            }
            let installed = kubectl.apply(&folder)?;
            assert!(installed.lines().all(|line| line.ends_with("created")), "{folder}: {installed}");
            let again = kubectl.apply(&folder)?;
            assert!(changed(&again).into_iter().all(has_templates_of_claims), "{folder}: {again}");
            let upgraded = upgrade(&kubectl, &folder, scratch.path())?;
            let has_pods = kubectl.run(&["kustomize", &folder])?.contains(" image: ");
            assert_eq!(changed(&upgraded).len(), usize::from(has_pods), "{folder}: {upgraded}");
            kubectl.remove(&folder).await?;
            if !alone {
                kubectl.remove("deploy/hostpath/per-node").await?;
            }
        }
    }
    // A patch of per-node.
    let folder = "deploy/hostpath/per-node-sizes";
    let installed = kubectl.apply(folder)?;
    assert!(installed.contains("hostpath-sized created"), "{installed}");
    let added = "--output=jsonpath={.items[*].spec.template.spec.containers[*].securityContext.capabilities.add}";
    let added = kubectl.run(&["get", "daemonsets", "--all-namespaces", added])?;
    assert!(added.contains("FSETID") && added.contains("SYS_ADMIN"), "{added}");
    kubectl.remove(folder).await?;
    kubectl.run(&["delete", "-f", &openshift])?;
    space.done().await
}

/// Upgrades to the next version, which uses another image.
fn upgrade(kubectl: &Kubectl<'_>, folder: &str, scratch: &Path) -> anyhow::Result<String> {
    let file: PathBuf = scratch.join("next.yaml");
    std::fs::write(&file, next_version(&kubectl.run(&["kustomize", folder])?))?;
    kubectl.run(&["apply", "--validate=strict", "-f", &file.to_string_lossy()])
}

#[tokio::test]
async fn pod_security_admits_the_pods() -> anyhow::Result<()> {
    let space = TestSpace::with_own_cluster("deploy-pods").await?;
    let kubectl = space.kubectl();
    // The namespaces cover the levels restricted, baseline and privileged.
    for (folder, namespace, count) in [
        ("deploy/ceph-rgw/default", "ceph-rgw-provisioner", 2),
        ("deploy/aws-s3/default", "aws-s3-provisioner", 2),
        ("deploy/gcs/default", "gcs-provisioner", 2),
        ("deploy/garage/default", "garage-provisioner", 2),
        ("deploy/garage/cosi", "garage-provisioner", 2),
        ("deploy/nfs/subdir", "nfs-subdir-provisioner", 2),
        ("deploy/nfs/server", "nfs-server-provisioner", 1),
        ("deploy/hostpath/single", "hostpath-provisioner", 1),
    ] {
        kubectl.apply(folder)?;
        let pods = || kubectl.run(&["get", "pods", "--namespace", namespace, "--output", "name"]);
        let made = eventually(LIMIT, async || Ok((pods()?.lines().count() == count).then_some(())));
        if made.await?.is_none() {
            anyhow::bail!("{}", kubectl.run(&["describe", "replicasets,statefulsets", "--namespace", namespace])?);
        }
        kubectl.remove(folder).await?;
    }
    space.done().await
}
