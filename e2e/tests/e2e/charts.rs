//! The charts on a real control plane: helm installs them as their READMEs describe, upgrades, rolls back, and
//! uninstalls them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::cluster::{Kubectl, TestSpace, eventually, provisioner_program};
use testbed::guard::Guard;
use testbed::manifests::{PROVISIONERS, Provisioner, parse, project};
use testbed::{helm, progress};

const LIMIT: Duration = Duration::from_secs(90);

/// The kinds that the NOTES list by the release's label.
const LISTED: &str = "all,clusterrole,clusterrolebinding,role,rolebinding,sa,netpol,pdb,sc";

/// Labels of every object.
const LABELS: [&str; 6] = [
    "helm.sh/chart",
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
];

/// GKE admits pods with these classes only in namespaces with a ResourceQuota for them.
const NO_CRITICAL_PODS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-critical-pods}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  validations:
    - expression: >-
        !(object.spec.?priorityClassName.orValue('') in ['system-node-critical', 'system-cluster-critical'])
      message: insufficient quota to match these scopes
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-critical-pods}
spec: {policyName: no-critical-pods, validationActions: [Deny]}
";

const CRITICAL_POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: critical, namespace: default}
spec: {priorityClassName: system-node-critical, containers: [{name: main, image: localhost/none}]}
";

/// A node for DaemonSet pods. It has no capacity, so pods are never bound to it, and are deleted at once.
const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: full, labels: {kubernetes.io/os: linux, kubernetes.io/hostname: full}}
";

/// The values of an upgrade that changes the names of all objects, and creates the optional ones.
fn changes(chart: &str) -> Vec<&'static str> {
    let mut changes = vec![
        "fullnameOverride=other",
        "networkPolicy.enabled=true",
        "podLabels.team=storage",
        "podAnnotations.note=a",
        "commonLabels.cost=1a",
        "logFormat=json",
        "logLevel=debug",
        "extraArgs={--resync-period=1h}",
        "extraEnv[0].name=PROVISION_TIMEOUT",
        "extraEnv[0].value=1m",
        "storageClass.annotations.note=a",
        "revisionHistoryLimit=3",
    ];
    changes.extend(match chart {
        "hostpath-provisioner" => &[
            "nodeCleanup.enabled=true",
            "updateStrategy.type=OnDelete",
            "hostPath.roots.fast=/mnt/ssd/fast",
            "hostPath.roots.scratch=/mnt/ssd/scratch",
        ][..],
        "nfs-server-provisioner" => &["service.annotations.note=a"],
        _ => &["replicaCount=3", "shards=2", "previousShards={3}"],
    });
    changes
}

struct Helm {
    program: PathBuf,
    /// The commands' working directory, with `deploy` and the files that the READMEs name.
    folder: TempDir,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
}

impl Helm {
    async fn new(guard: &Guard, kubeconfig: &Path, kubectl: &Path) -> anyhow::Result<Self> {
        let program = helm::helm(guard, &progress::silent()).await?;
        let folder = tempfile::tempdir()?;
        symlink(project().join("deploy").canonicalize()?, folder.path().join("deploy"))?;
        Ok(Self { program, folder, kubeconfig: kubeconfig.to_owned(), kubectl: kubectl.to_owned() })
    }

    async fn without_cluster() -> anyhow::Result<Self> {
        Self::new(&Guard::new(provisioner_program("xtask")?), Path::new("/none"), Path::new("/none")).await
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.folder.path()).env("KUBECONFIG", &self.kubeconfig);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        said(self.command(&self.program).args(arguments))
    }

    /// Runs the first block of commands in the chart's README.
    fn install(&self, chart: &Path) -> anyhow::Result<String> {
        let readme = fs::read_to_string(project().join(chart).join("README.md"))?;
        let block = readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
        let block = block.with_context(|| format!("{}: no commands", chart.display()))?;
        for file in block.split_whitespace().filter_map(|word| word.strip_prefix("--from-file=")) {
            fs::write(self.folder.path().join(file), "secret")?;
        }
        let bin = self.folder.path().join("bin");
        fs::create_dir_all(&bin)?;
        for (name, program) in [("helm", &self.program), ("kubectl", &self.kubectl)] {
            if !bin.join(name).exists() {
                symlink(program, bin.join(name))?;
            }
        }
        let path = format!("{}:/usr/bin:/bin", bin.display());
        said(self.command(Path::new("/bin/bash")).env("PATH", path).args(["-e", "-c", block]))
    }

    fn upgrade(&self, name: &str, chart: &str, values: &[&str]) -> anyhow::Result<String> {
        self.upgrade_in(name, name, chart, values)
    }

    fn upgrade_in(&self, namespace: &str, name: &str, chart: &str, values: &[&str]) -> anyhow::Result<String> {
        let values: Vec<_> = values.iter().flat_map(|value| ["--set", *value]).collect();
        self.run(&[&["upgrade", name, chart, "--namespace", namespace, "--reuse-values"], values.as_slice()].concat())
    }

    /// The objects of the release.
    fn objects(&self, name: &str) -> anyhow::Result<Vec<Value>> {
        parse(&self.run(&["get", "manifest", name, "--namespace", name])?)
    }
}

fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    let (said, complained) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr).into_owned());
    // Warnings about pods that Pod Security would refuse are failures.
    ensure!(output.status.success() && !complained.contains("would violate"), "{command:?}\n{said}{complained}");
    Ok(said)
}

/// All objects of the cluster except short-lived ones and those with a deprecated API.
fn everything(kubectl: &Kubectl<'_>) -> anyhow::Result<BTreeSet<String>> {
    const IGNORED: [&str; 5] = ["events", "leases.", "endpoints", "componentstatuses", "controllerrevisions."];
    let types = kubectl.run(&["api-resources", "--verbs=list", "--output=name"])?;
    let types: Vec<_> = types.lines().filter(|name| !IGNORED.iter().any(|ignored| name.starts_with(ignored))).collect();
    let template = "{range .items[*]}{.kind} {.metadata.namespace} {.metadata.name}{\"\\n\"}{end}";
    let output = format!("--output=jsonpath={template}");
    let listed = kubectl.run(&["get", &types.join(","), "--all-namespaces", &output])?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// The names of the objects that the NOTES list, such as `StorageClass nfs-subdir`.
fn listed(kubectl: &Kubectl<'_>, release: &str) -> anyhow::Result<BTreeSet<String>> {
    let selector = format!("--selector=app.kubernetes.io/instance={release}");
    let output = "--output=jsonpath={range .items[*]}{.kind} {.metadata.name}{\"\\n\"}{end}";
    let text = kubectl.run(&["get", LISTED, &selector, "--all-namespaces", output])?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Waits for pods of the release's workload, which the admission rules must accept, and compares the list by label with
/// the release.
async fn check_objects(helm: &Helm, kubectl: &Kubectl<'_>, name: &str, step: &str) -> anyhow::Result<()> {
    let objects = helm.objects(name)?;
    for object in &objects {
        let labels = &object["metadata"]["labels"];
        let lacks: Vec<_> = LABELS.iter().filter(|label| !labels[**label].is_string()).collect();
        ensure!(lacks.is_empty(), "{step}: {} lacks {lacks:?}", object["kind"]);
    }
    let workload =
        |object: &&Value| ["Deployment", "DaemonSet", "StatefulSet"].map(Value::from).contains(&object["kind"]);
    let workload = objects.iter().find(workload).context("no workload")?;
    let selector = workload["spec"]["selector"]["matchLabels"].as_object().context("no selector")?;
    let keys: Vec<_> = selector.keys().map(String::as_str).collect();
    ensure!(keys == ["app.kubernetes.io/instance", "app.kubernetes.io/name"], "{name}: {keys:?}");
    let count = workload["spec"]["replicas"].as_u64().unwrap_or(1);
    let prefix = format!("Pod {}-", workload["metadata"]["name"].as_str().unwrap_or_default());
    let pods = eventually(LIMIT, async || {
        let pods = listed(kubectl, name)?.into_iter().filter(|object| object.starts_with(&prefix)).count();
        Ok((pods as u64 == count).then_some(()))
    });
    if pods.await?.is_none() {
        let events = kubectl.run(&["events", "--namespace", name])?;
        anyhow::bail!("{step}: not {count} pods {prefix}\n{events}");
    }
    let found = listed(kubectl, name)?;
    // The label finds all kinds, but the NOTES list only the well-known ones.
    let known = |object: &&Value| {
        !["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"].map(Value::from).contains(&object["kind"])
    };
    for object in objects.iter().filter(known) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        ensure!(found.contains(&object), "{step}: the label does not find {object}: {found:?}");
    }
    Ok(())
}

/// Applies objects, or only checks them with a dry run on the API server.
fn apply(kubectl: &Kubectl<'_>, folder: &Path, text: &str, options: &[&str]) -> anyhow::Result<String> {
    let file = folder.join("objects.yaml");
    fs::write(&file, text)?;
    kubectl.run(&[&["apply", "--filename", &file.to_string_lossy()], options].concat())
}

async fn live(helm: &Helm, kubectl: &Kubectl<'_>, provisioner: &Provisioner) -> anyhow::Result<()> {
    let (name, chart) = (provisioner.name, provisioner.chart());
    let before = everything(kubectl)?;
    let notes = helm.install(&chart)?;
    ensure!(notes.contains("kubectl rollout status"), "{notes}");
    check_objects(helm, kubectl, name, "install").await?;
    let chart_path = chart.to_string_lossy();
    let test = ["template", name, &chart_path, "--namespace", name, "--show-only", "templates/tests/classes.yaml"];
    let test = helm.run(&[&test[..], &provisioner.required_options()].concat())?;
    apply(kubectl, helm.folder.path(), &test, &["--dry-run=server"])?;

    helm.upgrade(name, &chart_path, &changes(name))?;
    check_objects(helm, kubectl, name, "upgrade").await?;

    helm.run(&["rollback", name, "1", "--namespace", name])?;
    check_objects(helm, kubectl, name, "rollback").await?;

    // Kubernetes does not allow changes to a class's parameters.
    let refused = helm.upgrade(name, &chart_path, &["storageClass.reclaimPolicy=Retain"]).unwrap_err().to_string();
    let class = helm.objects(name)?.into_iter().find(|object| object["kind"] == "StorageClass").context("no class")?;
    let remedy = format!("kubectl delete storageclass {}`", class["metadata"]["name"].as_str().unwrap_or_default());
    ensure!(refused.contains("has another reclaimPolicy") && refused.contains(&remedy), "{refused}");
    kubectl.run(&["delete", "storageclass", "--selector", &format!("app.kubernetes.io/instance={name}")])?;
    helm.upgrade(name, &chart_path, &["storageClass.reclaimPolicy=Retain"])?;
    check_objects(helm, kubectl, name, "upgrade of the class").await?;

    helm.run(&["uninstall", name, "--namespace", name])?;
    // The disk of an NFS server outlives the release, as its README says.
    kubectl.run(&["delete", "persistentvolumeclaims", "--all", "--namespace", name])?;
    kubectl.run(&["delete", "namespace", name])?;
    let mut left = Vec::new();
    let gone = eventually(LIMIT, async || {
        left = everything(kubectl)?.difference(&before).cloned().collect();
        Ok(left.is_empty().then_some(()))
    });
    gone.await?.with_context(|| format!("uninstall leaves {left:?}"))
}

#[tokio::test]
async fn charts_are_installed_upgraded_rolled_back_and_uninstalled() -> anyhow::Result<()> {
    let space = TestSpace::with_own_cluster("charts").await?;
    let kubectl = space.kubectl();
    let state = space.cluster().state();
    let helm = Helm::new(&state.guard(), &state.kubeconfig, state.kubectl.as_ref().context("no kubectl")?).await?;
    // Helm does not delete CRDs.
    kubectl.run(&["apply", "--server-side", "-k", "crates/objectbucket-api/crds/strict"])?;
    for objects in [NODE, NO_CRITICAL_PODS] {
        apply(&kubectl, helm.folder.path(), objects, &[])?;
    }
    let refused = eventually(LIMIT, async || {
        let created = apply(&kubectl, helm.folder.path(), CRITICAL_POD, &["--dry-run=server"]);
        Ok(created.err().filter(|error| error.to_string().contains("insufficient quota")))
    });
    refused.await?.context("critical pods are still admitted")?;
    for provisioner in &PROVISIONERS {
        live(&helm, &kubectl, provisioner).await.with_context(|| provisioner.name)?;
    }
    space.done().await
}

#[tokio::test]
async fn charts_are_refused_in_namespaces_with_stricter_pod_security() -> anyhow::Result<()> {
    let space = TestSpace::with_own_cluster("charts-refused").await?;
    let (kubectl, namespace) = (space.kubectl(), space.namespace());
    let state = space.cluster().state();
    let helm = Helm::new(&state.guard(), &state.kubeconfig, state.kubectl.as_ref().context("no kubectl")?).await?;
    for (chart, enforced, needed, value) in [
        ("hostpath-provisioner", "baseline", "privileged", "hostNetwork=false"),
        ("nfs-server-provisioner", "restricted", "privileged", "hostNetwork=false"),
        ("nfs-subdir-provisioner", "restricted", "baseline", "nfs.server=nfs.example.com"),
        ("aws-s3-provisioner", "restricted", "privileged", "hostNetwork=true"),
    ] {
        let label = format!("pod-security.kubernetes.io/enforce={enforced}");
        kubectl.run(&["label", "--overwrite", "namespace", namespace, &label])?;
        let chart = format!("deploy/charts/{chart}");
        let refused = helm
            .run(&["install", "x", &chart, "--namespace", namespace, "--skip-crds", "--set", value])
            .unwrap_err()
            .to_string();
        let remedy =
            format!("kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce={needed}");
        ensure!(refused.contains(&remedy), "{refused}");
        ensure!(kubectl.run(&["get", "serviceaccounts", "--namespace", namespace])?.lines().count() == 2);
    }
    space.done().await
}

#[tokio::test]
async fn node_runs_the_chart_and_helm_test_checks_its_classes() -> anyhow::Result<()> {
    let space = TestSpace::new("charts-node").await?;
    let (kubectl, namespace) = (space.kubectl(), space.namespace());
    let state = space.cluster().state();
    let helm = Helm::new(&state.guard(), &state.kubeconfig, state.kubectl.as_ref().context("no kubectl")?).await?;
    let (image, class) = (space.hostpath_image()?, space.cluster_wide_name("hostpath"));
    let (repository, tag) = image.rsplit_once(':').context("no tag")?;
    let values = json!({
        "image": {"repository": repository, "tag": tag},
        "provisionerName": space.provisioner(),
        "hostPath": {"path": state.dir.join("volumes").join(namespace).join("root")},
        "storageClass": {"name": class, "parameters": {"mode": "0750"}},
        "logLevel": "debug",
        "logFormat": "json",
    });
    let file = helm.folder.path().join("values.yaml");
    fs::write(&file, values.to_string())?;
    let (file, chart) = (file.to_string_lossy(), "deploy/charts/hostpath-provisioner");
    helm.run(&["install", "x", chart, "--namespace", namespace, "--values", &file, "--wait", "--timeout", "2m"])?;
    helm.run(&["test", "x", "--namespace", namespace])?;

    // Another release must not ask to delete the class.
    let taken =
        helm.run(&["install", "y", chart, "--namespace", namespace, "--values", &file]).unwrap_err().to_string();
    ensure!(taken.contains("belongs to the release x"), "{taken}");

    kubectl.run(&["delete", "storageclass", &class])?;
    helm.upgrade_in(namespace, "x", chart, &["storageClass.parameters.mdoe=0750"])?;
    ensure!(helm.run(&["test", "x", "--namespace", namespace]).is_err(), "an unknown parameter passes");
    let log = kubectl.run(&["logs", "x-hostpath-provisioner-test", "--namespace", namespace])?;
    ensure!(log.contains("mdoe"), "{log}");

    kubectl.run(&["delete", "pod", "x-hostpath-provisioner-test", "--namespace", namespace])?;
    helm.run(&["uninstall", "x", "--namespace", namespace, "--wait"])?;
    space.done().await
}

#[tokio::test]
async fn charts_apply_selector_and_tolerations_to_all_pods() -> anyhow::Result<()> {
    let values =
        "nodeCleanup.enabled=true,nodeSelector.disk=ssd,tolerations[0].key=storage,tolerations[0].operator=Exists";
    let helm = Helm::without_cluster().await?;
    let rendered = helm.run(&["template", "x", "deploy/charts/hostpath-provisioner", "--set", values])?;
    for part in ["disk: ssd", "key: storage"] {
        ensure!(rendered.matches(part).count() == 3, "{part}: {rendered}");
    }
    Ok(())
}

/// `deploy/hostpath/per-node-sizes` is not rendered from the chart.
#[tokio::test]
async fn charts_enforce_sizes_like_the_manifests() -> anyhow::Result<()> {
    let helm = Helm::without_cluster().await?;
    let rendered = helm.run(&["template", "x", "deploy/charts/hostpath-provisioner", "--set", "enforceSizes=true"])?;
    ensure!(rendered.contains("- SYS_ADMIN\n"), "{rendered}");
    let class = fs::read_to_string(project().join("deploy/hostpath/per-node-sizes/storageclass.yaml"))?;
    let (class, objects) = (parse(&class)?.remove(0), parse(&rendered)?);
    let is_same =
        |object: &&Value| object["kind"] == "StorageClass" && object["metadata"]["name"] == class["metadata"]["name"];
    let of_chart = objects.iter().find(is_same).context("no class of this name")?;
    for field in ["provisioner", "reclaimPolicy", "volumeBindingMode", "allowVolumeExpansion", "parameters"] {
        ensure!(of_chart[field] == class[field], "{field}: {}", of_chart[field]);
    }
    Ok(())
}

#[tokio::test]
async fn charts_refuse_values_that_cannot_work() -> anyhow::Result<()> {
    let helm = Helm::without_cluster().await?;
    let render =
        |chart: &str, values: &str| helm.run(&["template", "x", &format!("deploy/charts/{chart}"), "--set", values]);
    for (chart, values, says) in [
        ("hostpath-provisioner", "hostPath.shared=true", "hostPath.shared needs `coordination: lease`"),
        ("hostpath-provisioner", "nodeCleanup.enabled=true,coordination=lease", "needs `coordination: per-node`"),
        ("hostpath-provisioner", "storageClass.parameters.nodeAffinityKey=rack", "needs nodeRestriction.enabled=false"),
        ("nfs-subdir-provisioner", "nfs.path=/volumes", "set nfs.server to the address of the NFS server"),
        // Time without a unit, and a Service without an address.
        ("hostpath-provisioner", "nodeCleanup.gracePeriod=60", "gracePeriod"),
        ("nfs-server-provisioner", "service.clusterIP=None", "clusterIP"),
        ("nfs-server-provisioner", "podSecurityContext.fsGroup=2000", "the files of all volumes"),
    ] {
        let refused = render(chart, values).unwrap_err().to_string();
        ensure!(refused.contains(says), "{refused}");
    }
    render("hostpath-provisioner", "hostPath.shared=true,coordination=lease").map(drop)
}

/// The rows `| `old value` | answer |` of a page of the guide.
fn answers(page: &str) -> anyhow::Result<Vec<(String, String)>> {
    let text = fs::read_to_string(project().join("docs/book/pages/from").join(page))?;
    let (_, table) =
        text.split_once("| value of the other chart | here |\n|---|---|\n").context("no table of values")?;
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let (name, answer) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        Some((name.to_owned(), answer.to_owned()))
    };
    rows.map(|line| row(line).with_context(|| line.to_owned())).collect()
}

/// Nests a value at its path in a values file.
fn nested(name: &str, value: Value) -> Value {
    name.rsplit('.').fold(value, |value, part| json!({ part: value }))
}

/// Each value of the charts of local-path and nfs-subdir either exists in ours, or is refused with the text of the
/// page.
#[tokio::test]
async fn charts_name_the_replacement_for_values_of_other_charts() -> anyhow::Result<()> {
    let helm = Helm::without_cluster().await?;
    for (page, name, count) in
        [("local-path.md", "hostpath-provisioner", 50), ("nfs-subdir.md", "nfs-subdir-provisioner", 40)]
    {
        let provisioner = PROVISIONERS.iter().find(|one| one.name == name).context("no such chart")?;
        let required = provisioner.required_options();
        let chart = format!("deploy/charts/{name}");
        let own: Value = parse(&fs::read_to_string(project().join(&chart).join("values.yaml"))?)?.remove(0);
        let rows = answers(page)?;
        ensure!(rows.len() >= count, "{page}: {}", rows.len());
        for (name, answer) in rows {
            let known = own.pointer(&format!("/{}", name.replace('.', "/")));
            let file = helm.folder.path().join("old.yaml");
            fs::write(&file, nested(&name, known.cloned().unwrap_or_else(|| "old".into())).to_string())?;
            let file = file.to_string_lossy();
            let rendered = helm.run(&[&["template", "x", &chart, "--values", &file][..], &required[..]].concat());
            match known {
                Some(_) => {
                    ensure!(answer.starts_with("same"), "{page}: {name} exists, but the page says {answer}");
                    rendered.with_context(|| name.clone())?;
                }
                None => {
                    let refused = rendered.err().with_context(|| format!("{chart} accepts {name}"))?.to_string();
                    ensure!(refused.contains(&format!("\n  {name}: {answer}\n")), "{page}: {name}: {refused}");
                }
            }
        }
    }
    Ok(())
}
