//! Requirements of NFS tests: NFS-Ganesha, which the provisioner runs itself, and user-space clients.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::process::Command;

use crate::cluster::eventually;
use crate::control_plane::{Process, cache_dir, create_private_dir};
use crate::dependency::{self, Dependency, is_named};
use crate::guard::{Guard, Lifetime};
use crate::packages::{self, package};
use crate::ports::free_port;
use crate::process::{self, ProcessId};

/// The limit for the start and the end of a server.
const LIMIT: Duration = Duration::from_secs(20);

/// The requirements of a server and its clients.
pub static GANESHA: Dependency = Dependency {
    name: "an NFS server",
    packages: &[
        package("nfs-ganesha", "/usr/bin/ganesha.nfsd", &["nfs-ganesha.service", "nfs-ganesha-lock.service"]),
        package("nfs-ganesha-vfs", "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so", &[]),
        // Ganesha's package depends on nfs-common, which depends on rpcbind. Neither has to run.
        package("rpcbind", "/usr/sbin/rpcbind", &["rpcbind.service", "rpcbind.socket", "nfs-client.target"]),
        package("libnfs-utils", "/usr/bin/nfs-cp", &[]),
    ],
    needed_by: |path| is_named(path, "ganesha_"),
    server: Some(dependency::Server {
        up: |port, guard, _| Box::pin(stand_up(port, guard)),
        down: |_| Box::pin(down()),
    }),
    ..Dependency::NOTHING
};

/// The Debian packages in the image of the provisioner's mode `server`, and their dependencies that it leaves out.
pub const IMAGE_PACKAGES: (&[&str], &[&str]) = (
    &["nfs-ganesha", "nfs-ganesha-vfs", "dbus-daemon"],
    // Of Ganesha's dependencies, only NFSv3 needs rpcbind. The others configure services, or provide tools for scripts.
    &[
        "adduser",
        "dbus",
        "debconf",
        "dpkg",
        "init-system-helpers",
        "libpam-runtime",
        "nfs-common",
        "passwd",
        "perl",
        "python3",
        "rpcbind",
        "sysvinit-utils",
    ],
);

/// A libnfs client of a server on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The server's port.
    pub port: u16,
}

impl Client {
    /// Copies a file of this machine to the server.
    pub async fn put(&self, file: &Path, path: &str) -> anyhow::Result<()> {
        self.run("nfs-cp", &[&file.to_string_lossy(), &self.url(path)]).await.map(drop)
    }

    /// Returns the content of a file.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        self.run("nfs-cat", &[&self.url(path)]).await
    }

    /// Lists a directory.
    pub async fn list(&self, path: &str) -> anyhow::Result<String> {
        self.run("nfs-ls", &[&self.url(path)]).await
    }

    /// Like [`Self::list`], as a user who cannot use privileged ports.
    pub async fn list_from_unprivileged_port(&self, path: &str) -> anyhow::Result<String> {
        self.run("setpriv", &["--reuid=65534", "--clear-groups", "nfs-ls", &self.url(path)]).await
    }

    fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1{path}?version=4&nfsport={}", self.port)
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        GANESHA.check_use()?;
        let output = Command::new(program).args(arguments).kill_on_drop(true).output().await?;
        let (said, text) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        // Some of the programs exit with 0 although they could not mount.
        ensure!(output.status.success() && said.trim().is_empty(), "{program} {}: {said}{text}", arguments.join(" "));
        Ok(text.into_owned())
    }
}

/// The configuration of NFS-Ganesha at an address of this machine, which exports directories under their own paths,
/// with further settings for each.
pub fn configuration(address: SocketAddrV4, recovery: &Path, exports: &[(&Path, &str)]) -> String {
    let (port, address) = (address.port(), address.ip());
    let mut text = format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = {address}; Enable_NLM = false; Enable_RQUOTA = false; \
         Rquota_Port = 0; Enable_UDP = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{}\"; Only_Numeric_Owners = true; \
         UseGetpwnam = true; }}\nNFS_KRB5 {{ Active_krb5 = false; }}\n",
        recovery.display()
    );
    for (id, (path, said)) in (1..).zip(exports) {
        let path = path.display();
        text.push_str(&format!(
            "EXPORT {{ Export_Id = {id}; Path = \"{path}\"; Pseudo = \"{path}\"; Protocols = 4; Transports = TCP; \
             Access_Type = RW; SecType = sys; FSAL {{ Name = VFS; }} {said}; }}\n"
        ));
    }
    text
}

/// The arguments with which NFS-Ganesha exports one directory without squashing users. Its own files are in `dir`.
pub fn serving(dir: &Path, address: SocketAddrV4, share: &Path) -> anyhow::Result<Vec<String>> {
    create_private_dir(&dir.join("recovery"))?;
    let config = configuration(address, &dir.join("recovery"), &[(share, "Squash = No_Root_Squash")]);
    fs::write(dir.join("ganesha.conf"), config)?;
    let of = |name: &str| dir.join(name).display().to_string();
    let arguments = ["-F", "-L", "STDERR", "-N", "NIV_EVENT", "-f", &of("ganesha.conf"), "-p", &of("ganesha.pid")];
    Ok(arguments.map(str::to_owned).to_vec())
}

/// An NFS server that exports one directory, from [`up`] until [`down`].
#[derive(serde::Serialize, serde::Deserialize)]
struct Standing {
    port: u16,
    /// The exported directory, with the same path in the export.
    share: PathBuf,
    id: ProcessId,
}

/// Starts a server that outlives this process, or finds the running one; returns `true` if it is new.
async fn up(port: Option<u16>, guard: &Guard) -> anyhow::Result<(Standing, bool)> {
    GANESHA.check(dependency::INSTALL)?;
    let (dir, program) = (standing_dir()?, packages::program("ganesha.nfsd")?);
    if let Some(standing) = process::standing::<Standing>(&dir).filter(|standing| standing.id.is_running()) {
        return Ok((standing, false));
    }
    let port = port.map_or_else(free_port, Ok)?;
    let share = dir.join("share");
    create_private_dir(&share)?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let mut process = Process::new(&dir, "ganesha", &program, serving(&dir, address, &share)?);
    let (_, id) = process.start(Lifetime::Detached, guard)?;
    let standing = Standing { port, share: share.clone(), id };
    fs::write(dir.join("state.json"), serde_json::to_vec(&standing)?)?;
    let client = Client { port };
    let answers = eventually(LIMIT, async || Ok(client.list(&share.to_string_lossy()).await.ok()));
    answers.await?.with_context(|| format!("the NFS server does not answer; its log: {}", process.log.display()))?;
    Ok((standing, true))
}

async fn stand_up(port: Option<u16>, guard: &Guard) -> anyhow::Result<dependency::Up> {
    let (server, is_new) = up(port, guard).await?;
    let (share, port) = (server.share.display(), server.port);
    let usage = vec![
        format!("share:      127.0.0.1:{share}, port {port}, NFSv4"),
        format!("to look:    nfs-ls 'nfs://127.0.0.1{share}?version=4&nfsport={port}'"),
        "to stop it: cargo xtask nfs down".to_owned(),
    ];
    Ok(dependency::Up { is_new, usage })
}

/// Stops the server that [`up`] started, and removes its data; returns `false` if there was none.
async fn down() -> anyhow::Result<bool> {
    let dir = standing_dir()?;
    let id = process::standing::<Standing>(&dir).map(|standing| standing.id);
    process::end_standing(id, LIMIT, &dir).await
}

fn standing_dir() -> anyhow::Result<PathBuf> {
    Ok(cache_dir()?.join("nfs-up"))
}
