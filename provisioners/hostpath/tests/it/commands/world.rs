//! A cluster, a root with directories, and the program.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use directory_volumes::{Claim, Owner, Permissions, Root, VolumePath};
use kube_provisioner::FencingToken;
use kube_sim::serve::{Server, Transport};
use kube_sim::{Actors, Cluster, Interceptor};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

pub(crate) const PROVISIONER: &str = "example.com/hostpath";
pub(crate) const RANCHER: &str = "rancher.io/local-path";
pub(crate) const HERE: &str = "cluster-1";
pub(crate) const ELSEWHERE: &str = "cluster-2";

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) root: Root,
    id: &'static str,
    folder: Arc<TempDir>,
    end: Option<oneshot::Sender<()>>,
}

impl World {
    /// Creates a cluster without controllers.
    pub(crate) fn new() -> Self {
        Self::running(Cluster::new(), Actors::none())
    }

    /// Creates a cluster with the controllers that bind and protect volumes.
    pub(crate) fn live() -> Self {
        Self::running(Cluster::new(), Actors::all())
    }

    /// Creates a cluster without controllers, with an interceptor between clients and the server. Its clock is the one
    /// that marks use.
    pub(crate) fn behind(interceptor: Arc<dyn Interceptor>) -> Self {
        let cluster = Cluster::builder().epoch(jiff::Timestamp::now()).interceptor(interceptor).build();
        Self::running(cluster, Actors::none())
    }

    fn running(cluster: Cluster, actors: Actors) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let directory = folder.path().join("root");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let root = Root::open(&directory).unwrap();
        root.put_marker().unwrap();
        Self::with(HERE, cluster, root, folder, actors)
    }

    /// Creates another cluster with the same root.
    pub(crate) fn another(&self) -> Self {
        let root = Root::open(self.root.path()).unwrap();
        Self::with(ELSEWHERE, Cluster::new(), root, self.folder.clone(), Actors::all())
    }

    fn with(id: &'static str, cluster: Cluster, root: Root, folder: Arc<TempDir>, actors: Actors) -> Self {
        let kubeconfig = folder.path().join(format!("kubeconfig-{id}"));
        let (ends, end) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        std::thread::spawn({
            let cluster = cluster.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let _actors = cluster.run(actors);
                    let server = Server::bind(cluster, ([127, 0, 0, 1], 0).into(), Transport::Http).await.unwrap();
                    server.write_kubeconfig(&kubeconfig).unwrap();
                    ready.send(()).unwrap();
                    server.run(async { drop(end.await) }).await;
                });
            }
        });
        is_ready.recv().unwrap();
        Self { cluster, root, id, folder, end: Some(ends) }
    }

    /// Creates a directory with a mark and a file.
    pub(crate) fn directory(&self, path: &str, owner: &Owner, retain: bool) {
        let permissions = Permissions { mode: 0o777, uid: None, gid: None };
        let made = self.root.create(&at(path), owner, retain, &permissions, None, &FencingToken::unlimited());
        fs::write(made.unwrap().join("data"), path).unwrap();
    }

    /// Creates a directory without a mark.
    pub(crate) fn unmarked(&self, path: &str) {
        fs::create_dir_all(self.path(path)).unwrap();
        fs::write(self.path(path).join("data"), path).unwrap();
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// Returns true if the directory's file still exists.
    pub(crate) fn is_there(&self, path: &str) -> bool {
        self.path(path).join("data").exists()
    }

    pub(crate) fn mark(&self, path: &str) -> Option<Owner> {
        self.root.mark_of(&at(path)).unwrap().map(|mark| mark.owner)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a volume with this source.
    pub(crate) fn volume(&self, name: &str, source: &Value) -> Value {
        self.volume_for(name, source, None)
    }

    /// Creates a volume whose claim has this uid.
    pub(crate) fn volume_for(&self, name: &str, source: &Value, claim: Option<&str>) -> Value {
        let mut spec = json!({"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "class"});
        let reference = |uid| {
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop",
            "name": "data", "uid": uid})
        };
        let fields = spec.as_object_mut().unwrap();
        fields.extend(source.as_object().unwrap().clone());
        fields.extend(claim.map(|uid| ("claimRef".to_owned(), reference(uid))));
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "spec": spec, "metadata": {"name": name,
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}}});
        self.cluster.create(&volume).unwrap()
    }

    /// Returns a volume source for a directory of the root.
    pub(crate) fn source(&self, path: &str) -> Value {
        json!({"hostPath": {"path": self.path(path)}})
    }

    /// Runs a command with this standard input. Returns true if it succeeded, and its output.
    pub(crate) fn run(&self, arguments: &[&str], typed: &str) -> (bool, String) {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input may have ended already.
        let _ = child.stdin.take().unwrap().write_all(typed.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    /// Starts the provisioner. It runs until the return value is dropped.
    pub(crate) fn start(&self, arguments: &[&str]) -> Program {
        let log = fs::File::create(self.folder.path().join(format!("log-{}", self.id))).unwrap();
        Program(
            self.command(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap(),
        )
    }

    /// Waits up to a minute until a condition holds for the cluster.
    pub(crate) fn eventually(&self, what: &str, holds: impl Fn(&Cluster) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds(&self.cluster) {
            assert!(Instant::now() < deadline, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the provisioner's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(format!("log-{}", self.id))).unwrap_or_default()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hostpath-provisioner"));
        command
            .args(arguments)
            .env_clear()
            .env("HOSTPATH_ROOT", self.root.path())
            .env("PROVISIONER_NAME", PROVISIONER)
            .env("POD_NAMESPACE", "default")
            .env("CLUSTER_ID", self.id)
            .env("KUBECONFIG", self.folder.path().join(format!("kubeconfig-{}", self.id)));
        command
    }
}

/// A running program, killed at the end of the test.
pub(crate) struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.end.take().map(|end| end.send(()));
    }
}

pub(crate) fn at(path: &str) -> VolumePath {
    path.to_owned().try_into().unwrap()
}

/// Returns the owner of a volume in this cluster.
pub(crate) fn owner(volume: &str) -> Owner {
    let claim = Claim { namespace: "shop".to_owned(), name: "data".to_owned(), uid: format!("uid-of-{volume}") };
    let (provisioner, cluster) = (PROVISIONER.to_owned(), Some(HERE.to_owned()));
    Owner { volume: volume.to_owned(), uid: None, claim: Some(claim), provisioner, cluster }
}

pub(crate) fn in_cluster(volume: &str, cluster: Option<&str>) -> Owner {
    Owner { cluster: cluster.map(str::to_owned), ..owner(volume) }
}

/// Returns the line of a table that contains a text.
pub(crate) fn line<'a>(text: &'a str, with: &str) -> &'a str {
    text.lines().find(|line| line.contains(with)).unwrap_or_default()
}
