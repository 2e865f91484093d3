//! `cargo xtask demo --context`, run as a reader of the guide would: with a kubeconfig whose current context differs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::config::Kubeconfig;
use kube::discovery::verbs::LIST;
use kube::{Api, Client, Discovery, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::cargo::BINARIES_ARE_BUILT;
use testbed::cluster::{Cluster, Program, class, provisioner_program};
use testbed::control_plane::{Settings, Signal, Simulated, State, client_from};
use testbed::guard::Guard;

/// The selected context; the current one does not work.
const CONTEXT: &str = "mine";
/// The name of the demo's namespace and its class.
const NAME: &str = "hostpath-demo";
const LIMIT: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn leaves_nothing_on_a_real_control_plane() -> anyhow::Result<()> {
    // Uses a separate cluster, in which other tests do not create or delete objects.
    let cluster = Cluster::start(&Settings::for_tests()).await?;
    let reader = Reader::of(cluster.state())?;
    let before = everything(&cluster.client()).await?;

    let mut demo = reader.demo(&[CONTEXT, "--yes"])?;
    let status = demo.ended(LIMIT).await?;
    let said = demo.output();
    assert!(status.success(), "{status}:\n{said}");
    for step in ["==> wait until it is bound\n    done", "ProvisioningSucceeded", "hello.txt", " is deleted"] {
        assert!(said.contains(step), "no {step:?} in\n{said}");
    }
    let left: Vec<_> = everything(&cluster.client()).await?.difference(&before).cloned().collect();
    assert!(left.is_empty(), "{left:?} still exist after\n{said}");
    reader.has_no_files_left()
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_nothing_without_a_terminal_and_without_yes() -> anyhow::Result<()> {
    let cluster = UserCluster::start().await?;
    let said = cluster.unchanged_by_a_refused_demo(&[CONTEXT]).await?;
    let announced =
        [format!("Namespace {NAME}"), format!("StorageClass {NAME}"), "PersistentVolumeClaim data".to_owned()];
    for words in announced.iter().map(String::as_str).chain(["no object was created", "--yes skips the confirmation"]) {
        assert!(said.contains(words), "no {words:?} in\n{said}");
    }
    cluster.server.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_and_lists_foreign_objects_with_its_names() -> anyhow::Result<()> {
    let cluster = UserCluster::start().await?;
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    let foreign = classes.create(&PostParams::default(), &class(NAME, "example.com/of-others")).await?;
    let said = cluster.unchanged_by_a_refused_demo(&[CONTEXT, "--yes"]).await?;
    assert!(said.contains(&format!("changes only its own objects: StorageClass {NAME}\n")), "{said}");
    assert_eq!(classes.get(NAME).await?, foreign);
    cluster.server.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_context_is_reported_with_the_existing_contexts() -> anyhow::Result<()> {
    let cluster = UserCluster::start().await?;
    let said = cluster.unchanged_by_a_refused_demo(&["unknown", "--yes"]).await?;
    assert_eq!(said, format!("error: the kubeconfig has no context unknown; it has nowhere, {CONTEXT}\n"));
    cluster.server.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_demo_removes_its_objects() -> anyhow::Result<()> {
    let cluster = UserCluster::start().await?;
    let before = everything(&cluster.client).await?;
    let mut demo = cluster.reader.demo(&[CONTEXT, "--yes"])?;
    demo.wait_for_output("==> create a claim", LIMIT).await?;
    assert!(everything(&cluster.client).await?.len() > before.len(), "the demo has created no object");
    demo.signal(Signal::INT);
    let status = demo.ended(LIMIT).await?;
    let said = demo.output();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted: removing the objects"), "{said}");
    assert_eq!(everything(&cluster.client).await?, before, "{said}");
    cluster.reader.has_no_files_left()?;
    cluster.server.stop()
}

/// A cluster for a single test.
struct UserCluster {
    server: Simulated,
    client: Client,
    reader: Reader,
}

impl UserCluster {
    async fn start() -> anyhow::Result<Self> {
        let server = Simulated::start(&Guard::new(provisioner_program("xtask")?)).await?;
        let client = client_from(&server.state().kubeconfig).await?;
        let reader = Reader::of(server.state())?;
        Ok(Self { server, client, reader })
    }

    /// The output of a demo, which must fail and leave the cluster unchanged.
    async fn unchanged_by_a_refused_demo(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let before = everything(&self.client).await?;
        let mut demo = self.reader.demo(arguments)?;
        let status = demo.ended(LIMIT).await?;
        let said = demo.output();
        assert_eq!(status.code(), Some(1), "{said}");
        assert_eq!(everything(&self.client).await?, before, "{said}");
        Ok(said)
    }
}

/// A user with a kubeconfig and an empty cache.
struct Reader {
    state: State,
    home: TempDir,
}

impl Reader {
    fn of(state: &State) -> anyhow::Result<Self> {
        let reader = Self { state: state.clone(), home: tempfile::tempdir()? };
        let kubeconfig = serde_json::to_value(Kubeconfig::read_from(&state.kubeconfig)?)?;
        std::fs::write(reader.kubeconfig(), with_another_current_context(kubeconfig).to_string())?;
        Ok(reader)
    }

    /// Starts the demo without a terminal.
    fn demo(&self, arguments: &[&str]) -> anyhow::Result<Program> {
        let variables = [("KUBECONFIG", self.kubeconfig()), ("XDG_CACHE_HOME", self.cache())];
        let variables = variables.map(|(name, path)| format!("{name}={}", path.display()));
        // The demo would compile the provisioner with other features than the tests have.
        let variables = variables.into_iter().chain([format!("{BINARIES_ARE_BUILT}=1")]);
        let xtask = provisioner_program("xtask")?.display().to_string();
        let program = [xtask, "demo".to_owned(), "--context".to_owned()];
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        Program::spawn(&self.state, "demo", "env", variables.chain(program).chain(arguments))
    }

    /// Fails if the demo's own directories, which contain its volumes, logs and tokens, still exist.
    fn has_no_files_left(&self) -> anyhow::Result<()> {
        let entries = std::fs::read_dir(self.cache().join("kube-provisioner/control-plane/instances"))?;
        let left: Vec<_> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        anyhow::ensure!(left.iter().all(|path: &PathBuf| path.ends_with("lock")), "{left:?} still exist");
        Ok(())
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    fn cache(&self) -> PathBuf {
        self.home.path().join("cache")
    }
}

/// Renames the kubeconfig's context to [`CONTEXT`], and adds a current one whose cluster does not answer.
fn with_another_current_context(mut kubeconfig: Value) -> Value {
    let context = kubeconfig["contexts"][0]["context"].take();
    let mut nowhere = context.clone();
    nowhere["cluster"] = json!("nowhere");
    kubeconfig["contexts"] =
        json!([{ "name": "nowhere", "context": nowhere }, { "name": CONTEXT, "context": context }]);
    let nowhere = json!({ "name": "nowhere", "cluster": { "server": "https://127.0.0.1:1" } });
    kubeconfig["clusters"].as_array_mut().expect("a kubeconfig has clusters").push(nowhere);
    kubeconfig["current-context"] = json!("nowhere");
    kubeconfig
}

/// All objects of the cluster by kind, name and uid, except those that its own components write at any time.
async fn everything(client: &Client) -> anyhow::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for group in Discovery::new(client.clone()).run().await?.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(LIST) || ["Event", "Lease"].contains(&resource.kind.as_str()) {
                continue;
            }
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let names = objects.list_metadata(&ListParams::default()).await?.items.into_iter().map(|object| {
                let namespace = object.namespace().unwrap_or_default();
                format!("{} {namespace}/{} {}", resource.kind, object.name_any(), object.uid().unwrap_or_default())
            });
            found.extend(names);
        }
    }
    Ok(found)
}
