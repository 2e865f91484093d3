//! kubectl prints the same on the simulated API server as on a real one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::json;
use tempfile::TempDir;
use testbed::cluster::TestSpace;
use testbed::control_plane::{Simulated, State};

/// A kubectl for one server.
struct Kubectl {
    state: State,
    namespace: String,
    /// kubectl caches discovery in its home directory.
    home: TempDir,
}

impl Kubectl {
    fn new(state: &State, namespace: &str) -> anyhow::Result<Self> {
        Ok(Self { state: state.clone(), namespace: namespace.to_owned(), home: tempfile::tempdir()? })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let program = self.state.kubectl.as_ref().expect("tests run with a control plane that has kubectl");
        let mut command = Command::new(program);
        command.env("HOME", self.home.path()).env("KUBECONFIG", &self.state.kubeconfig);
        command.args(["--namespace", &self.namespace]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs kubectl and returns its output followed by its errors, without the parts that differ between runs.
    fn run(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn()?;
        child.stdin.take().expect("it is piped").write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok(format!("{}exit code {:?}", masked(&String::from_utf8(text)?), output.status.code()))
    }
}

/// Replaces times, ages, uids and resourceVersions, and adjusts the columns to their contents.
fn masked(text: &str) -> String {
    let masks = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
        (r#"resourceVersion: "\d+""#, "resourceVersion"),
        (r"\b(\d+[smhd]){1,2}\b", "AGE"),
        (r"(?m)^(StartTime|CreationTimestamp): .*$", "$1"),
        (r"[ \t]+", " "),
        (r"(?m) $", ""),
    ];
    let mut text = text.to_owned();
    for (pattern, mask) in masks {
        text = Regex::new(pattern).expect("the test's own pattern").replace_all(&text, mask).into_owned();
    }
    text
}

/// Runs commands on both servers.
struct BothServers {
    space: TestSpace,
    real: Kubectl,
    simulated: Kubectl,
    server: Simulated,
}

impl BothServers {
    async fn new(test: &str) -> anyhow::Result<Self> {
        let space = TestSpace::new(test).await?;
        let server = Simulated::start(&space.cluster().state().guard()).await?;
        let real = Kubectl::new(space.cluster().state(), space.namespace())?;
        let state = State { kubectl: real.state.kubectl.clone(), ..server.state().clone() };
        let simulated = Kubectl::new(&state, space.namespace())?;
        simulated.run(&["create", "namespace", space.namespace()], "")?;
        Ok(Self { space, real, simulated, server })
    }

    /// The output, which must be equal on both servers.
    fn run_on_both(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let real = self.real.run(arguments, input)?;
        let simulated = self.simulated.run(arguments, input)?;
        assert_eq!(simulated, real, "simulated and real output of kubectl {}", arguments.join(" "));
        Ok(real)
    }

    /// Runs a command line on both servers, which must succeed.
    fn done(&self, line: &str, input: &str) -> anyhow::Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let said = self.run_on_both(&words, input)?;
        assert!(said.ends_with("exit code Some(0)"), "kubectl {line}: {said}");
        Ok(said)
    }

    /// Runs a command line on both servers, which must fail.
    fn refused(&self, line: &str, input: &str) -> anyhow::Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let said = self.run_on_both(&words, input)?;
        assert!(!said.ends_with("exit code Some(0)"), "kubectl {line}: {said}");
        Ok(said)
    }

    async fn end(self) -> anyhow::Result<()> {
        self.server.stop()?;
        self.space.done().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_life_cycle_prints_the_same() -> anyhow::Result<()> {
    let both = BothServers::new("kubectl-claim").await?;
    let class = both.space.cluster_wide_name("class");
    let volume = both.space.cluster_wide_name("volume");
    let objects = format!(
        "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: {class}}}
provisioner: {}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data, labels: {{app: a}}}}
spec: {{accessModes: [ReadWriteOnce], storageClassName: {class}, resources: {{requests: {{storage: 1024Mi}}}}}}
",
        both.space.provisioner()
    );
    both.done("apply -f -", &objects)?;
    both.done("apply -f -", &objects)?;
    both.done("apply -f -", &objects.replace("app: a", "app: b, tier: c"))?;
    let asked = format!(
        "wait --for=jsonpath={{.metadata.annotations.volume\\.kubernetes\\.io/storage-provisioner}}={} pvc/data --timeout=20s",
        both.space.provisioner()
    );
    both.done(&asked, "")?;
    both.done("get pvc", "")?;
    both.done("get pvc -o wide --show-labels", "")?;
    both.done("get pvc data -o yaml", "")?;
    both.done("describe pvc data --show-events=false", "")?;
    both.done(&format!("get sc {class}"), "")?;
    both.done(&format!("describe sc {class} --show-events=false"), "")?;
    let bound = format!(
        "apiVersion: v1
kind: PersistentVolume
metadata: {{name: {volume}}}
spec:
  accessModes: [ReadWriteOnce, ReadOnlyMany]
  capacity: {{storage: 1Gi}}
  storageClassName: {class}
  claimRef: {{namespace: {}, name: data}}
  hostPath: {{path: /nonexistent}}
",
        both.space.namespace()
    );
    both.done("create -f -", &bound)?;
    both.refused("create -f -", &bound)?;
    both.done("wait --for=jsonpath={.status.phase}=Bound pvc/data --timeout=20s", "")?;
    both.done("get pvc data", "")?;
    both.done("get pvc data -o jsonpath={.spec.volumeName}:{.status.capacity.storage}", "")?;
    both.done(&format!("get pv {volume} -o wide"), "")?;
    both.done(&format!("get pv {volume} -o yaml"), "")?;
    both.done(&format!("describe pv {volume} --show-events=false"), "")?;
    both.done("delete pvc data", "")?;
    both.done("wait --for=delete pvc/data --timeout=20s", "")?;
    both.done(&format!("wait --for=jsonpath={{.status.phase}}=Released pv/{volume} --timeout=20s"), "")?;
    both.done(&format!("get pv {volume}"), "")?;
    both.done(&format!("delete pv/{volume} sc/{class}"), "")?;
    both.refused(&format!("get pv {volume}"), "")?;
    both.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn object_changes_print_the_same() -> anyhow::Result<()> {
    let both = BothServers::new("kubectl-changes").await?;
    both.done("create configmap one --from-literal=a=1", "")?;
    both.done("label configmap one x=y", "")?;
    both.done("annotate configmap one note=n", "")?;
    both.done(r#"patch configmap one -p {"data":{"b":"2"}}"#, "")?;
    both.done(r#"patch configmap one --type=merge -p {"data":{"a":null}}"#, "")?;
    both.done(r#"patch configmap one --type=json -p [{"op":"add","path":"/data/c","value":"3"}]"#, "")?;
    both.refused(r#"patch configmap one --type=json -p [{"op":"remove","path":"/data/z"}]"#, "")?;
    both.done("get configmap one -o yaml", "")?;
    both.done("get configmap -l x=y", "")?;
    both.done("get configmap -l x=z", "")?;
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: three}, data: {c: '4', d: '5'}}";
    both.done("apply --server-side --field-manager=me -f -", map)?;
    both.done("apply --server-side --field-manager=me -f -", map)?;
    let other = &map.replace("'4'", "'6'");
    both.refused("apply --server-side --field-manager=you -f -", other)?;
    both.done("apply --server-side --field-manager=you --force-conflicts -f -", other)?;
    both.done("get configmap three -o jsonpath={.data}", "")?;
    both.done("replace -f -", map)?;
    both.done("create secret generic two --from-literal=k=v", "")?;
    both.done("get secret two", "")?;
    both.done("get secret two -o yaml", "")?;
    both.done("delete configmap/one configmap/three secret/two", "")?;
    both.refused("get configmap one", "")?;
    both.refused("delete configmap one", "")?;
    both.done("delete configmap one --ignore-not-found", "")?;
    both.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_print_the_same() -> anyhow::Result<()> {
    let both = BothServers::new("kubectl-refusals").await?;
    let claim = |rest: &str| {
        format!("{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: data}}, spec: {{{rest}}}}}")
    };
    both.refused("apply -f -", &claim("accessModes: [ReadWriteOnce]"))?;
    both.refused("apply -f -", &claim("accessModes: [Often], resources: {requests: {storage: 1Gi}}"))?;
    both.refused("apply -f -", &claim("accessModes: [ReadWriteOnce], resources: {requests: {storage: x}}"))?;
    both.refused(
        "apply -f -",
        &claim("accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, colour: red"),
    )?;
    let good = claim("storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}");
    both.done("apply -f -", &good)?;
    both.refused("apply -f -", &good.replace("none", "other"))?;
    both.refused("create -f -", &good)?;
    both.refused("get nothing", "")?;
    both.refused("get pvc missing", "")?;
    both.refused("create -f -", "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}}")?;
    both.refused("get pods --namespace=none --field-selector=spec.colour=red", "")?;
    both.done("delete pvc data", "")?;
    both.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_print_the_same() -> anyhow::Result<()> {
    let both = BothServers::new("kubectl-custom").await?;
    let group = format!("{}.example.com", both.space.namespace());
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "description": "A thing",
                    "properties": {"spec": {
                        "type": "object", "description": "What it is",
                        "properties": {
                            "color": {"type": "string", "description": "Its colour", "enum": ["red", "blue"]},
                            "size": {"type": "integer", "default": 7},
                        },
                    }},
                }},
                "additionalPrinterColumns": [
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
    .to_string();
    let name = format!("things.{group}");
    both.done("apply -f -", &definition)?;
    both.done(&format!("wait --for=condition=established crd/{name} --timeout=20s"), "")?;
    let thing = |color: &str| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "a"}, "spec": {"color": color},
        })
        .to_string()
    };
    both.done("apply -f -", &thing("red"))?;
    both.done(&format!("get {name}"), "")?;
    both.done(&format!("get {name} -o wide"), "")?;
    both.done(&format!("get {name} a -o yaml"), "")?;
    both.done("apply -f -", &thing("blue"))?;
    both.refused("apply -f -", &thing("green"))?;
    both.done(&format!("api-resources --api-group={group}"), "")?;
    // The real server publishes new schemas with a delay.
    let said = both.simulated.run(&["explain", &format!("{name}.spec")], "")?;
    for expected in
        ["FIELD: spec <Object>", "What it is", "color <string>", "enum: red, blue", "Its colour", "size <integer>"]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    both.done(&format!("delete {name}/a"), "")?;
    both.done(&format!("delete crd {name}"), "")?;
    both.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_permissions_print_the_same() -> anyhow::Result<()> {
    let both = BothServers::new("kubectl-around").await?;
    both.done("api-resources --api-group=rbac.authorization.k8s.io", "")?;
    both.done("api-resources --api-group=storage.k8s.io --namespaced", "")?;
    both.done("auth can-i create persistentvolumeclaims", "")?;
    both.refused("auth can-i create persistentvolumeclaims --as=joe", "")?;
    both.refused("get pvc --as=joe", "")?;
    both.done("get namespace default", "")?;
    // The real server may have a node.
    both.done("get nodes --selector=is=none", "")?;
    both.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_print_the_same() -> anyhow::Result<()> {
    let both = BothServers::new("kubectl-watch").await?;
    let mut seen = Vec::new();
    for kubectl in [&both.real, &both.simulated] {
        kubectl.run(&["create", "configmap", "watched", "--from-literal=a=1"], "")?;
        let mut child =
            kubectl.command(&["get", "configmap", "watched", "--watch", "--output-watch-events"]).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut rows = Vec::new();
        for _ in 0..2 {
            rows.push(masked(&lines.next().expect("the watch has ended")?));
        }
        kubectl.run(&["patch", "configmap", "watched", "-p", r#"{"data":{"b":"2"}}"#], "")?;
        rows.push(masked(&lines.next().expect("the watch has ended")?));
        kubectl.run(&["delete", "configmap", "watched"], "")?;
        rows.push(masked(&lines.next().expect("the watch has ended")?));
        child.kill()?;
        child.wait()?;
        seen.push(rows);
    }
    assert_eq!(seen[1], seen[0]);
    assert_eq!(
        seen[1],
        ["EVENT NAME DATA AGE", "ADDED watched 1 AGE", "MODIFIED watched 2 AGE", "DELETED watched 2 AGE"]
    );
    both.end().await
}
