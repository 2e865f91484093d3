//! Tests of the binary itself, connected to the simulated cluster's port.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io;
use std::iter;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use csi_sim::{Capability, Method, Step};
use driver_rpc::Server;
use kube_sim::serve::{self, Transport};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::fixture::{Fixture, cluster};
use super::topology::{on_node, two_zones};

const ROUNDS: usize = 3;
/// Duration of a `CreateVolume` call, longer than it takes to observe it and to kill the program.
const LATENCY: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(120);

struct Program(Child);

impl Program {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_csi-provisioner"));
        command.arg(format!("--csi-address={}", folder.join("csi.sock").display()));
        command.arg(format!("--kubeconfig={}", folder.join("kubeconfig").display()));
        command.args(["--strict-topology", "--leader-election-namespace=default"]).env_clear();
        let log = File::create(folder.join("log")).unwrap();
        Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Fixture {
    fn serve_driver(&self, folder: &Path) -> JoinHandle<io::Result<Infallible>> {
        let server = Server::bind(&folder.join("csi.sock")).unwrap();
        tokio::spawn(server.csi(self.driver.clone()).serve())
    }

    async fn serve_cluster(&self, folder: &Path) {
        let address = ([127, 0, 0, 1], 0).into();
        let server = serve::Server::bind(self.cluster.clone(), address, Transport::Http).await.unwrap();
        server.write_kubeconfig(&folder.join("kubeconfig")).unwrap();
        tokio::spawn(server.run(std::future::pending()));
    }

    fn is_called_for(&self, volume: &str) -> bool {
        self.creations().iter().any(|call| call.name == volume)
    }
}

/// The first process of a container only receives signals that it listens for.
#[test]
fn can_be_stopped_while_waiting_for_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixListener::bind(folder.path().join("csi.sock")).unwrap();
    let mut program = Program::start(folder.path());
    // The driver accepts the connection and answers nothing.
    let _connection = socket.accept().unwrap();
    assert!(Command::new("kill").arg(program.0.id().to_string()).status().unwrap().success());
    assert!(program.0.wait().unwrap().success());
}

/// The kubelet starts the program again, and it queries the new capabilities.
#[tokio::test]
async fn exits_when_the_driver_gains_or_loses_a_capability() {
    for has_topology in [false, true] {
        let fixture = two_zones(cluster().build());
        let set_topology = |is_on: bool| {
            fixture.driver.configure(|settings| {
                settings.capabilities = Capability::without_topology();
                settings.capabilities.extend(Capability::TOPOLOGY.into_iter().filter(|_| is_on));
            });
        };
        set_topology(has_topology);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let driver = fixture.serve_driver(folder);
        fixture.serve_cluster(folder).await;
        let mut program = Program::start(folder);
        fixture.claim("before", "late", on_node("node-a"));
        timeout(LIMIT, fixture.until("bound", || fixture.is_bound("before"))).await.unwrap();
        driver.abort();
        let _ = driver.await;
        set_topology(!has_topology);
        fixture.serve_driver(folder);
        // The next call connects to the driver again.
        fixture.claim("after", "late", on_node("node-a"));
        let ended = async {
            loop {
                match program.0.try_wait().unwrap() {
                    Some(status) => return status,
                    None => sleep(Duration::from_millis(50)).await,
                }
            }
        };
        assert!(!timeout(LIMIT, ended).await.unwrap().success());
        let log = fs::read_to_string(folder.join("log")).unwrap();
        assert!(log.contains("has other capabilities now than at the start"), "{log}");
    }
}

#[tokio::test]
async fn killed_process_repeats_its_requirement_and_leaves_no_volume() {
    let fixture = two_zones(cluster().build());
    let step = || Step::work().after(LATENCY);
    fixture.driver.script(Method::CreateVolume, iter::repeat_with(step).take(100));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fixture.serve_driver(folder);
    fixture.serve_cluster(folder).await;
    let until = async |what: &str, so: &dyn Fn() -> bool| timeout(LIMIT, fixture.until(what, so)).await.expect(what);

    let mut program = Program::start(folder);
    let mut volumes = Vec::new();
    for round in 0..ROUNDS {
        let (claim, node) = (format!("claim-{round}"), format!("node-{round}"));
        fixture.add_node(&node, json!({"zone": "a"}));
        let volume = fixture.claim(&claim, "late", on_node(&node));
        until("called", &|| fixture.is_called_for(&volume)).await;
        fixture.delete_node(&node);
        drop(program);
        assert!(fixture.volume(&volume).is_none());
        match round % 3 {
            0 => {}
            1 => fixture.add_node(&node, json!({"zone": "b"})),
            _ => fixture.delete_claim(&claim),
        }
        program = Program::start(folder);
        volumes.push(volume);
    }
    until("bound", &|| {
        (0..ROUNDS).filter(|round| round % 3 < 2).all(|round| fixture.is_bound(&format!("claim-{round}")))
    })
    .await;
    let mut calls = BTreeMap::<_, Vec<_>>::new();
    for call in fixture.creations() {
        calls.entry(call.name).or_default().push(call.accessibility_requirements);
    }
    for volume in &volumes {
        let calls = &calls[volume];
        assert!(calls.len() > 1 && calls.iter().all(|call| call.is_some() && *call == calls[0]), "{calls:?}");
    }
    (0..ROUNDS).filter(|round| round % 3 < 2).for_each(|round| fixture.delete_claim(&format!("claim-{round}")));
    until("empty", &|| {
        fixture.driver.volumes().is_empty() && volumes.iter().all(|name| fixture.volume(name).is_none())
    })
    .await;
    // A call that is still in progress would create its volume by then.
    sleep(2 * LATENCY).await;
    assert_eq!(fixture.driver.volumes(), []);
}
