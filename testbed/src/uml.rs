//! Programs inside user-mode Linux, a kernel that runs as an ordinary process, for features that this machine's kernel
//! lacks.
//!
//! The guest's root is this machine's, read-only, so programs find the same libraries. They run as root, whichever user
//! starts the guest. Writes are lost: the guest has file systems in memory, `/mnt` and `/run`, and a [`Disk`].
//!
//! A guest needs no privileges and no network, and shares nothing with other guests, so any number can run at a time.
//! It boots in about two seconds. A [`Guest`] with a [`Link`], which requires root, can also reach programs of this
//! machine.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::time::timeout;

use crate::cluster::eventually;
use crate::dependency::{self, Dependency};
use crate::guard::Running;
use crate::packages::{self, package};

/// The guest's mount point of its [`Disk`].
pub const MOUNT_POINT: &str = "/mnt/disk";

/// The device of the [`Disk`], which a program may mount again.
pub const DEVICE: &str = "/dev/loop0";

/// The last byte of pod addresses is at least this; guests and this machine have lower ones.
const PODS: u8 = 64;

/// The time after which a hanging guest is killed.
const LIMIT: Duration = Duration::from_secs(600);

/// Printed by the guest before the program, and after it together with the exit status.
const BEGIN: &str = "=== the program begins";
const END: &str = "=== the program ended with ";

/// The requirements of a guest and its programs.
pub static KERNEL: Dependency = Dependency {
    name: "user-mode Linux",
    packages: &[
        package("user-mode-linux", "/usr/bin/linux.uml", &[]),
        package("kmod", "/usr/sbin/modprobe", &[]),
        package("iproute2", "/usr/sbin/ip", &[]),
        package("xfsprogs", "/usr/sbin/mkfs.xfs", &[]),
        package("e2fsprogs", "/usr/sbin/mkfs.ext4", &[]),
        // For an SELinux policy.
        package("checkpolicy", "/usr/bin/checkpolicy", &[]),
        package("dmsetup", "/usr/sbin/dmsetup", &[]),
        package("nfs-common", "/usr/sbin/mount.nfs", &[]),
        package("nfs-kernel-server", "/usr/sbin/rpc.nfsd", &["nfs-server.service", "nfsdcld.service"]),
        // For kube-proxy on a node with this kernel.
        package("iptables", "/usr/sbin/xtables-legacy-multi", &[]),
    ],
    needed_by: |path| {
        const MODULES: [&str; 6] =
            ["nfs::kernel::", "nfs::quota::", "nfs::troubles::", "node_nfs::", "power::", "quota::"];
        MODULES.iter().any(|module| path.starts_with(module))
    },
    ..Dependency::NOTHING
};

/// A file system with project quotas, mounted at [`MOUNT_POINT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// XFS of the smallest size that mkfs.xfs supports.
    Xfs,
    /// ext4
    Ext4,
}

/// The result of a program inside the guest.
#[derive(Debug)]
pub struct Outcome {
    /// The output of the program, and of the guest's kernel in the meantime.
    pub output: String,
    /// The exit status. For a program that a signal ended, it is the shell's number.
    pub status: i32,
}

/// The path of a package's example, to run in a guest. cargo places examples next to the tests' folder.
pub fn example(name: &str) -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(2).context("the test has no target folder")?;
    let program = target.join("examples").join(name);
    ensure!(
        program.is_file(),
        "the program is not built; run: cargo build -p project-quota -p directory-volumes --examples"
    );
    Ok(program)
}

/// Boots a guest with this disk, and runs a program in it. The arguments must not need quoting.
pub async fn run(disk: Disk, program: &Path, arguments: &[&str]) -> anyhow::Result<Outcome> {
    let script = format!("'{}' {}", program.display(), arguments.join(" "));
    Guest::start(Machine { disk: Some(disk), ..Machine::default() }, &script).await?.ended().await
}

/// The configuration of a guest.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The guest's own disk.
    pub disk: Option<Disk>,
    /// The network link to this machine.
    pub link: Option<&'a Link>,
    /// The memory in MiB. Only used memory is allocated.
    pub memory: u32,
}

impl Default for Machine<'_> {
    fn default() -> Self {
        Self { disk: None, link: None, memory: 512 }
    }
}

impl<'a> Machine<'a> {
    /// A guest that this machine's programs can reach.
    pub fn with(link: &'a Link) -> Self {
        Self { link: Some(link), ..Self::default() }
    }
}

/// A guest that runs a shell script in the background. It ends with this value.
pub struct Guest {
    machine: Running,
    directory: Directory,
    _watchdog: Running,
}

impl Guest {
    /// Boots a guest. The script finds the files that [`Guest::send_file`] sends in the directory `$TOLD`.
    pub async fn start(machine: Machine<'_>, script: &str) -> anyhow::Result<Self> {
        KERNEL.check_use()?;
        KERNEL.check(dependency::INSTALL)?;
        let directory = Directory::create()?;
        let command = command(&directory.0, machine, &init(machine, &directory.0, script))?;
        let running = Running::start(command).context("cannot start user-mode Linux")?;
        let _watchdog = Running::start(watchdog(running.pid())).context("cannot start a shell")?;
        let guest = Self { machine: running, directory, _watchdog };
        if let Some(link) = machine.link {
            // The guest creates the device.
            let up = eventually(Duration::from_secs(30), async || Ok(link.up().then_some(()))).await?;
            up.with_context(|| format!("the guest has no network; it printed:\n{}", guest.text()))?;
        }
        Ok(guest)
    }

    /// Sends a file to the script.
    pub fn send_file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let half = self.directory.0.join("half");
        std::fs::write(&half, text)?;
        Ok(std::fs::rename(half, self.directory.0.join(name))?)
    }

    /// The output so far, including the output of the guest's kernel.
    pub fn text(&self) -> String {
        let printed = std::fs::read(self.directory.0.join("output")).unwrap_or_default();
        // Terminals end lines with an additional carriage return.
        String::from_utf8_lossy(&printed).replace('\r', "")
    }

    /// True if the script has ended.
    pub fn has_ended(&self) -> bool {
        parse(&self.text()).is_some()
    }

    /// Waits for the script's end.
    pub async fn ended(mut self) -> anyhow::Result<Outcome> {
        let what = match timeout(LIMIT, self.machine.ended()).await {
            Ok(_) => "did not run to its end".to_owned(),
            Err(_) => format!("did not end within {} s", LIMIT.as_secs()),
        };
        let text = self.text();
        let (output, status) =
            parse(&text).with_context(|| format!("the program {what}; the guest printed:\n{text}"))?;
        Ok(Outcome { output, status })
    }
}

/// A network between this machine and one guest. Its device is removed with the guest.
#[derive(Debug)]
pub struct Link {
    device: String,
    subnet: [u8; 3],
    host: u8,
}

impl Link {
    /// Chooses addresses that no other test on this machine uses.
    pub fn new() -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        ensure!(rustix::process::geteuid().is_root(), "only root can give a guest a network");
        let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let [_, _, high, low] = pid.to_be_bytes();
        let host = u8::try_from(4 * count).ok().filter(|host| 4 * u32::from(*host) < 256 - u32::from(PODS));
        let host = host.context("too many guests")?;
        Ok(Self { device: format!("uml{pid}-{count}"), subnet: [10, 192 | high, low], host })
    }

    /// This machine's address.
    pub fn host_address(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// The guest's address.
    pub fn guest_address(&self) -> Ipv4Addr {
        self.address(2)
    }

    /// The pod addresses inside the guest, which this machine can reach after [`Link::route`].
    pub fn pods(&self) -> String {
        let [a, b, c] = self.subnet;
        format!("{a}.{b}.{c}.{}/28", PODS + 4 * self.host)
    }

    /// Routes the pod addresses to the guest.
    pub(crate) fn route(&self) -> anyhow::Result<()> {
        let (pods, guest) = (self.pods(), self.guest_address().to_string());
        ensure!(ip(&["route", "replace", &pods, "via", &guest, "dev", &self.device]), "no way leads to {pods}");
        Ok(())
    }

    fn address(&self, number: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, self.host + number)
    }

    /// Configures the device; returns `false` until the guest has created it.
    fn up(&self) -> bool {
        ip(&["address", "replace", &format!("{}/30", self.host_address()), "dev", &self.device])
            && ip(&["link", "set", &self.device, "up"])
    }
}

fn ip(arguments: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The script of the guest's first process.
fn init(machine: Machine<'_>, directory: &Path, script: &str) -> String {
    let disk = machine.disk.map_or_else(
        || ":".to_owned(),
        |disk| {
            let (size, make) = match disk {
                Disk::Xfs => ("300M", "mkfs.xfs -q"),
                Disk::Ext4 => ("128M", "mkfs.ext4 -q -O quota,project -E quotatype=prjquota"),
            };
            format!(
                "modprobe -a -d /run loop quota_v2 &&
truncate --size {size} /mnt/image && {make} /mnt/image && losetup {DEVICE} /mnt/image &&
mkdir {MOUNT_POINT} && mount -o prjquota {DEVICE} {MOUNT_POINT}"
            )
        },
    );
    let link = machine.link.map_or_else(String::new, |link| {
        format!("ip link set lo up\nip address add {}/30 dev vec0\nip link set vec0 up\n", link.guest_address())
    });
    format!(
        "#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/mnt TMPDIR=/mnt RUST_BACKTRACE=1 NO_COLOR=1
export TOLD={}
mount -t proc proc /proc
mount -t tmpfs -o size=80% tmpfs /mnt
mount -t tmpfs tmpfs /run
mkdir -p /run/lib/modules && ln -s /usr/lib/uml/modules/$(uname -r) /run/lib/modules/
{link}{disk} && {{
    echo '{BEGIN}'
    (
{script}
    ) 2>&1
    echo \"{END}$?\"
}}
echo o > /proc/sysrq-trigger
sleep 60
",
        directory.display()
    )
}

/// The command that runs a guest until it powers off.
fn command(directory: &Path, machine: Machine<'_>, init: &str) -> anyhow::Result<Command> {
    let script = directory.join("init");
    std::fs::write(&script, init)?;
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
    let mut command = Command::new(packages::program("linux.uml")?);
    command.arg(format!("mem={}M", machine.memory));
    command.args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"]);
    command.args(["con=null", "con0=null,fd:1"]);
    command.arg(format!("uml_dir={}", directory.display()));
    command.arg(format!("init={}", script.display()));
    command.args(machine.link.map(|link| format!("vec0:transport=tap,ifname={},depth=64,gro=1", link.device)));
    let output = File::create(directory.join("output"))?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    // User-mode Linux writes to the home directory, which not every user has.
    command.env("HOME", directory).process_group(0);
    if std::fs::read_to_string("/proc/cpuinfo")?.contains(" amx_tile") {
        command.env("LD_PRELOAD", whole_xstate(directory)?);
    }
    Ok(command)
}

/// The library that user-mode Linux needs on CPUs with AMX.
fn whole_xstate(directory: &Path) -> anyhow::Result<PathBuf> {
    let (source, library) = (directory.join("xstate.c"), directory.join("xstate.so"));
    std::fs::write(&source, include_str!("uml/xstate.c"))?;
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).status();
    ensure!(built.context("cannot start cc")?.success(), "cc does not build {}", source.display());
    Ok(library)
}

/// Kills a guest whose owner was killed, which closes the owner's end of the pipe. The guest's processes do not notice
/// the owner's end.
fn watchdog(machine: u32) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("read -r _; kill -s KILL -- -{machine}"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command
}

/// The program's output and its exit status. `None` if the program did not finish.
fn parse(text: &str) -> Option<(String, i32)> {
    let (_, text) = text.split_once(BEGIN)?;
    let (output, end) = text.rsplit_once(END)?;
    let status = end.lines().next()?.trim().parse().ok()?;
    Some((output.trim_start().to_owned(), status))
}

/// The directory of a guest, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn create() -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("uml-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_output_and_exit_status_between_marks() {
        let text = format!("kernel\n{BEGIN}\none\ntwo\n{END}101\nsysrq: Power Off\n");
        assert_eq!(parse(&text), Some(("one\ntwo\n".to_owned(), 101)));
    }

    #[test]
    fn unfinished_program_has_no_exit_status() {
        assert_eq!(parse(&format!("{BEGIN}\none\n")), None);
        assert_eq!(parse("kernel panic"), None);
    }
}
