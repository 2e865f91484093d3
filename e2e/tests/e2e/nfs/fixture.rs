//! Helpers to start the provisioner in both of its modes.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume};
use kube_provisioner::rbac::rules;
use kube_provisioner::{Capabilities, Options};
use tempfile::TempDir;
use testbed::cluster::{Access, Program, TestSpace, eventually, provisioner_program};
use testbed::nfs::Client;
use testbed::process::ProcessId;
use testbed::uml::{Guest, Link};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) const SOON: Duration = Duration::from_secs(60);
pub(crate) const SERVER: &str = "nfs.example.com";
pub(crate) const SHARE: &str = "/exports/data";

pub(crate) async fn account(space: &TestSpace) -> anyhow::Result<Access> {
    let of = |name: &str| rules(&Options::new(name), &Capabilities::default().expansion(), &[]);
    let rules = [of(space.provisioner()), of(&former(space))].concat();
    space.account("provisioner", &rules).await
}

/// The name of the previous provisioner.
pub(crate) fn former(space: &TestSpace) -> String {
    format!("former-{}", space.provisioner())
}

fn common(space: &TestSpace, kubeconfig: &str, more: &[&str]) -> Vec<String> {
    let mut arguments = vec![
        "--provisioner-name".to_owned(),
        space.provisioner().to_owned(),
        "--kubeconfig".to_owned(),
        kubeconfig.to_owned(),
        "--namespace".to_owned(),
        space.namespace().to_owned(),
    ];
    if !more.contains(&"--lease-duration") {
        // A short lease, so that another process soon takes over from a killed one.
        let times = ["--lease-duration", "6s", "--lease-renew-deadline", "4s", "--lease-retry-period", "500ms"];
        arguments.extend(times.map(str::to_owned));
    }
    arguments.extend(more.iter().map(ToString::to_string));
    arguments
}

/// Starts `nfs-provisioner subdir`, with local directories as shares.
pub(crate) fn subdir(space: &TestSpace, access: &Access, shares: &[String], more: &[&str]) -> anyhow::Result<Program> {
    let mut arguments = vec!["subdir".to_owned(), "--allow-local-directory".to_owned()];
    arguments.extend(shares.iter().map(|share| format!("--share={share}")));
    arguments.extend(common(space, &access.kubeconfig.to_string_lossy(), more));
    space.spawn("nfs-subdir", provisioner_program("nfs-provisioner")?, arguments)
}

pub(crate) fn share(root: &Path) -> String {
    format!("{SERVER}:{SHARE}={}", root.display())
}

/// The shell command that runs the provisioner inside a guest, after a call of [`grant_access`].
pub(crate) fn inside(space: &TestSpace, arguments: &[String]) -> anyhow::Result<String> {
    let program = provisioner_program("nfs-provisioner")?;
    let arguments = [arguments.to_vec(), common(space, "$TOLD/kubeconfig", &[])].concat().join(" ");
    Ok(format!("until [ -e $TOLD/kubeconfig ]; do sleep 0.1; done\n{} {arguments} &", program.display()))
}

/// Lets a guest reach the API server, which may listen only on this machine's loopback.
pub(crate) async fn grant_access(guest: &Guest, link: &Link, space: &TestSpace, access: &Access) -> anyhow::Result<()> {
    let gate = Gate::at(link.host_address(), space, access).await?;
    guest.send_file("kubeconfig", &std::fs::read_to_string(&gate.access.kubeconfig)?)
}

/// A proxy for the API server that can be closed.
pub(crate) struct Gate {
    pub(crate) access: Access,
    open: watch::Sender<bool>,
    _dir: TempDir,
}

impl Gate {
    pub(crate) async fn at(address: Ipv4Addr, space: &TestSpace, access: &Access) -> anyhow::Result<Self> {
        let server = &space.cluster().state().server;
        let place = server.trim_start_matches("https://").to_owned();
        let (host, _) = place.rsplit_once(':').context("the API server has no port")?;
        let listener = TcpListener::bind((address, 0)).await?;
        let here = format!("https://{}\", \"tls-server-name\": \"{host}", listener.local_addr()?);
        let dir = tempfile::tempdir()?;
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, std::fs::read_to_string(&access.kubeconfig)?.replace(server.as_str(), &here))?;
        let (open, is_open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (place, mut is_open) = (place.clone(), is_open.clone());
                if !*is_open.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(place).await?;
                    tokio::select! {
                        done = copy_bidirectional(&mut client, &mut server) => done.map(drop),
                        Ok(_) = is_open.wait_for(|open| !open) => Ok(()),
                    }
                });
            }
        });
        Ok(Self { access: Access { kubeconfig, ..access.clone() }, open, _dir: dir })
    }

    /// Opens or closes the proxy; closing ends all connections.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

/// Waits until the script inside a guest prints a text.
pub(crate) async fn wait_for_output(guest: &Guest, text: &str) -> anyhow::Result<()> {
    let said = eventually(2 * SOON, async || Ok(guest.text().contains(text).then_some(()))).await?;
    said.with_context(|| format!("the guest does not say {text:?}:\n{}", guest.text()))
}

/// `nfs-provisioner server`, with the folders of its data and its sockets.
pub(crate) struct Server {
    pub(crate) root: Arc<TempDir>,
    pub(crate) runtime: TempDir,
    pub(crate) client: Client,
    pub(crate) address: IpAddr,
}

impl Server {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::at(Ipv4Addr::LOCALHOST)
    }

    /// A server that listens on another address of this machine.
    pub(crate) fn at(address: Ipv4Addr) -> anyhow::Result<Self> {
        let client = Client { port: testbed::ports::free_port()? };
        let root = Arc::new(tempfile::tempdir()?);
        Ok(Self { root, runtime: tempfile::tempdir()?, client, address: address.into() })
    }

    /// Another replica with the same disk and the same address.
    pub(crate) fn standby(&self) -> anyhow::Result<Self> {
        Ok(Self { root: self.root.clone(), runtime: tempfile::tempdir()?, ..*self })
    }

    pub(crate) fn start(&self, space: &TestSpace, access: &Access, more: &[&str]) -> anyhow::Result<Program> {
        let mut arguments = vec![
            "server".to_owned(),
            format!("--export-directory={}", self.root.path().display()),
            format!("--runtime-directory={}", self.runtime.path().display()),
            format!("--nfs-port={}", self.client.port),
            format!("--server-hostname={}", self.address),
            format!("--bind-address={}", self.address),
            "--nfs-grace-period=5s".to_owned(),
        ];
        arguments.extend(common(space, &access.kubeconfig.to_string_lossy(), more));
        space.spawn("nfs-server", provisioner_program("nfs-provisioner")?, arguments)
    }

    /// Starts the provisioner and waits until the server answers.
    pub(crate) async fn started(&self, space: &TestSpace, access: &Access) -> anyhow::Result<Program> {
        let before = self.ganesha().ok();
        let program = self.start(space, access, &[])?;
        self.ready(before).await?;
        Ok(program)
    }

    /// A namespace with a server that answers.
    pub(crate) async fn serving(test: &str) -> anyhow::Result<(TestSpace, Self, Access, Program)> {
        let (space, server) = (TestSpace::new(test).await?, Self::new()?);
        let access = account(&space).await?;
        let program = server.started(&space, &access).await?;
        Ok((space, server, access, program))
    }

    /// Waits until a server other than `before` answers.
    pub(crate) async fn ready(&self, before: Option<ProcessId>) -> anyhow::Result<()> {
        let answers = || std::net::TcpStream::connect((self.address, self.client.port)).is_ok();
        let is_new = || self.ganesha().is_ok_and(|id| Some(id) != before && id.is_running());
        let ready = eventually(2 * SOON, async || Ok((is_new() && answers()).then_some(()))).await?;
        anyhow::ensure!(ready.is_some(), "the NFS server is not ready");
        Ok(())
    }

    /// Waits until the server returns the content of a file.
    pub(crate) async fn gets(&self, path: &str) -> anyhow::Result<String> {
        let mut last = Ok(String::new());
        let got = eventually(SOON, async || {
            last = self.client.get(path).await;
            Ok(last.is_ok().then_some(()))
        });
        got.await?;
        last
    }

    /// The ids and paths of the recorded exports.
    pub(crate) fn exports(&self) -> Vec<(u16, String)> {
        let listed = std::fs::read_dir(self.root.path().join(".kube-provisioner/exports")).into_iter().flatten();
        let names = listed.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        let pair = |name: String| name.split_once('@').map(|(id, path)| (id.parse().unwrap(), path.to_owned()));
        let mut exports: Vec<_> = names.filter_map(pair).collect();
        exports.sort();
        exports
    }

    /// The process of NFS-Ganesha.
    pub(crate) fn ganesha(&self) -> anyhow::Result<ProcessId> {
        let text = std::fs::read_to_string(self.runtime.path().join("ganesha.pid"))?;
        Ok(ProcessId::of(text.trim().parse()?)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A provisioner that was killed leaves its server running.
        if let Ok(id) = self.ganesha() {
            id.signal(testbed::control_plane::Signal::KILL);
        }
        let bus = std::fs::read_to_string(self.runtime.path().join("bus.pid")).unwrap_or_default();
        if let Some(id) = bus.trim().parse().ok().and_then(|id| ProcessId::of(id).ok()) {
            id.signal(testbed::control_plane::Signal::KILL);
        }
    }
}

pub(crate) fn names(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| name != ".kube-provisioner").collect();
    names.sort();
    names
}

/// The source that a client mounts.
pub(crate) fn place(volume: &PersistentVolume) -> String {
    let source = source(volume);
    format!("{}:{}", source.server, source.path)
}

pub(crate) fn source(volume: &PersistentVolume) -> NFSVolumeSource {
    volume.spec.as_ref().unwrap().nfs.clone().unwrap()
}

/// Runs one of the provisioner's commands as an administrator; returns true if it succeeded, and its output.
pub(crate) fn command(space: &TestSpace, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
    space.command("nfs-provisioner", |command| command.args(arguments))
}
