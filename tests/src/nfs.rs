//! What tests of NFS need of this machine: NFS-Ganesha, which the provisioner runs itself, and clients that need no kernel.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use tokio::process::Command;

use crate::cluster::eventually;
use crate::control_plane::{Process, cache_dir, create_private_dir, spawn};
use crate::guard::{Guard, Lifetime};
use crate::packages::{self, Package};
use crate::process::ProcessId;
use crate::progress::SharedProgress;

/// For the start and the end of a server.
const LIMIT: Duration = Duration::from_secs(20);

/// Debian's packages.
const PACKAGES: [Package; 5] = [
    package("nfs-ganesha", "/usr/bin/ganesha.nfsd", &["nfs-ganesha.service", "nfs-ganesha-lock.service"]),
    package("nfs-ganesha-vfs", "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so", &[]),
    // Ganesha's package wants nfs-common, and that rpcbind; neither has to run.
    package("rpcbind", "/usr/sbin/rpcbind", &["rpcbind.service", "rpcbind.socket", "nfs-client.target"]),
    package("libnfs-utils", "/usr/bin/nfs-cp", &[]),
    package("dbus-bin", "/usr/bin/dbus-send", &[]),
];

/// What tests of the kernel's client need beside them.
const KERNEL_PACKAGES: [Package; 6] = [
    package("user-mode-linux", "/usr/bin/linux.uml", &[]),
    package("kmod", "/usr/sbin/modprobe", &[]),
    package("iproute2", "/usr/sbin/ip", &[]),
    package("xfsprogs", "/usr/sbin/mkfs.xfs", &[]),
    package("nfs-common", "/usr/sbin/mount.nfs", &[]),
    // For kube-proxy on a node of that kernel.
    package("iptables", "/usr/sbin/xtables-legacy-multi", &[]),
];

const fn package(name: &'static str, file: &'static str, services: &'static [&'static str]) -> Package {
    Package { name, file, services }
}

/// The Debian packages that the image of the provisioner's mode `server` has, and those that it does without.
pub const IMAGE_PACKAGES: (&[&str], &[&str]) = (
    &["nfs-ganesha", "nfs-ganesha-vfs", "dbus-daemon", "dbus-bin"],
    // Of what Ganesha depends on, version 3 alone needs rpcbind. The others set services up, or are the scripts' tools.
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

/// Why this machine can have no NFS server now, and what to do about it.
pub fn obstacle() -> Option<anyhow::Error> {
    let missing = packages::missing(&PACKAGES).join(" ");
    (!missing.is_empty()).then(|| {
        anyhow!(
            "an NFS server needs Debian's packages {missing}: add --install-nfs-packages, or run `apt-get install \
             --no-install-recommends {missing}`"
        )
    })
}

/// Installs the packages that are missing. Needs root.
pub fn install_packages(progress: &SharedProgress) -> anyhow::Result<()> {
    packages::install(&[&PACKAGES[..], &KERNEL_PACKAGES].concat(), progress)
}

/// A port that is free now.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A client of libnfs, of a server on this machine.
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

    /// The content of a file.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        self.run("nfs-cat", &[&self.url(path)]).await
    }

    /// The listing of a directory.
    pub async fn list(&self, path: &str) -> anyhow::Result<String> {
        self.run("nfs-ls", &[&self.url(path)]).await
    }

    fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1{path}?version=4&nfsport={}", self.port)
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(program).args(arguments).kill_on_drop(true).output().await?;
        let (said, text) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        // Some of them end well when they could not mount.
        ensure!(output.status.success() && said.trim().is_empty(), "{program} {}: {said}{text}", arguments.join(" "));
        Ok(text.into_owned())
    }
}

/// The configuration of NFS-Ganesha at an address of this machine, with directories under their own paths, and what is said
/// of each.
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

/// The arguments with which NFS-Ganesha exports one directory and squashes nobody; its own files go into `dir`.
pub fn serving(dir: &Path, address: SocketAddrV4, share: &Path) -> anyhow::Result<Vec<String>> {
    create_private_dir(&dir.join("recovery"))?;
    let config = configuration(address, &dir.join("recovery"), &[(share, "Squash = No_Root_Squash")]);
    fs::write(dir.join("ganesha.conf"), config)?;
    let of = |name: &str| dir.join(name).display().to_string();
    let arguments = ["-F", "-L", "STDERR", "-N", "NIV_EVENT", "-f", &of("ganesha.conf"), "-p", &of("ganesha.pid")];
    Ok(arguments.map(str::to_owned).to_vec())
}

/// An NFS server that exports one directory, kept by [`up`] until [`down`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Standing {
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// The directory that it exports, under the same path.
    pub share: PathBuf,
    id: ProcessId,
}

/// Starts a server that outlives this process, or finds the one that is up; `true` if it is new.
pub async fn up(port: Option<u16>, guard: &Guard) -> anyhow::Result<(Standing, bool)> {
    if let Some(obstacle) = obstacle() {
        return Err(obstacle);
    }
    let (dir, program) = (standing_dir()?, packages::program("ganesha.nfsd")?);
    if let Some(standing) = standing(&dir).filter(|standing| standing.id.is_running()) {
        return Ok((standing, false));
    }
    let port = port.map_or_else(free_port, Ok)?;
    let share = dir.join("share");
    create_private_dir(&share)?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let process = Process {
        name: "ganesha.nfsd".to_owned(),
        id: None,
        program,
        arguments: serving(&dir, address, &share)?,
        log: dir.join("ganesha.log"),
        health: None,
    };
    let (_, id) = spawn(&process, Lifetime::Detached, guard)?;
    let standing = Standing { port, share: share.clone(), id };
    fs::write(dir.join("state.json"), serde_json::to_vec(&standing)?)?;
    let client = Client { port };
    let answers = eventually(LIMIT, async || Ok(client.list(&share.to_string_lossy()).await.ok()));
    answers.await?.with_context(|| format!("the NFS server does not answer; its log: {}", process.log.display()))?;
    Ok((standing, true))
}

/// Ends the server of [`up`] and removes what it stored; `false` if there was none.
pub async fn down() -> anyhow::Result<bool> {
    let dir = standing_dir()?;
    let standing = standing(&dir);
    if let Some(standing) = &standing {
        standing.id.stop(LIMIT).await;
    }
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(standing.is_some()),
    }
}

fn standing(dir: &Path) -> Option<Standing> {
    serde_json::from_slice(&fs::read(dir.join("state.json")).ok()?).ok()
}

fn standing_dir() -> anyhow::Result<PathBuf> {
    Ok(cache_dir()?.join("nfs-up"))
}
