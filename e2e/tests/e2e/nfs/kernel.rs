//! The kernel's NFS client, which nodes use, inside user-mode Linux.

mod data;

use std::time::{Duration, Instant};

use anyhow::Context;
use testbed::cluster::{TestSpace, eventually};
use testbed::control_plane::Signal;
use testbed::uml::{Guest, Link, Machine};

use super::fixture::*;

/// Long enough for a client whose connection was refused, which retries with increasing delays.
const PATIENCE: Duration = Duration::from_secs(120);

/// Writes numbers to a file that stays open and locked, each synchronously. At the end, all of them must exist.
fn writer(port: u16) -> String {
    format!(
        "modprobe -d /run nfsv4
mkdir /mnt/volume
until [ -e $TOLD/volume ]; do sleep 0.1; done
mount -t nfs -o vers=4.1,hard,sync,port={port} $(cat $TOLD/volume) /mnt/volume || exit 1
exec 3>>/mnt/volume/file
flock -n 3 || exit 2
count=0
until [ -e $TOLD/end ]; do
    count=$((count + 1))
    echo $count >&3 || exit 3
    echo wrote $count
    sleep 0.05
done
exec 3>&-
seq 1 $count | cmp - /mnt/volume/file && echo all of $count"
    )
}

/// The last number that the writer wrote.
fn written(guest: &Guest) -> u32 {
    let numbers = guest.text();
    numbers.lines().filter_map(|line| line.strip_prefix("wrote ")?.parse().ok()).next_back().unwrap_or(0)
}

#[expect(clippy::print_stdout, reason = "figures")]
async fn keeps_writing(guest: &Guest, what: &str) -> anyhow::Result<()> {
    let (start, before) = (Instant::now(), written(guest));
    let more = eventually(PATIENCE, async || Ok((written(guest) > before + 20).then_some(()))).await?;
    more.with_context(|| format!("{what}: the client does not continue; its output:\n{}", guest.text()))?;
    println!("{what}: 20 more writes after {:.1?}", start.elapsed());
    Ok(())
}

/// The file stays open while the server restarts, while the server and the provisioner are killed, separately and
/// together, and while another replica takes over at the end.
#[tokio::test]
async fn ganesha_kernel_client_continues_with_an_open_file() -> anyhow::Result<()> {
    let (space, link) = (TestSpace::new("ganesha-kernel").await?, Link::new()?);
    let (access, server) = (account(&space).await?, Server::at(link.host_address())?);
    let guest = Guest::start(Machine::with(&link), &writer(server.client.port)).await?;
    let mut program = server.started(&space, &access).await?;
    space.create_class_and_claim("claim").await?;
    let (_, volume) = space.wait_bound("claim").await?;
    guest.send_file("volume", &place(&volume))?;
    keeps_writing(&guest, "mounted").await?;

    let killed = server.ganesha()?;
    killed.signal(Signal::KILL);
    server.ready(Some(killed)).await?;
    keeps_writing(&guest, "the server was killed").await?;

    program.terminate(SOON).await?;
    drop(program);
    let mut program = server.started(&space, &access).await?;
    keeps_writing(&guest, "the provisioner was restarted").await?;

    program.kill().await?;
    keeps_writing(&guest, "the provisioner is killed").await?;
    drop(program);
    let mut program = server.started(&space, &access).await?;
    keeps_writing(&guest, "another provisioner has taken over").await?;

    program.kill().await?;
    server.ganesha()?.signal(Signal::KILL);
    drop(program);
    let mut program = server.started(&space, &access).await?;
    keeps_writing(&guest, "both were killed").await?;

    let other = server.standby()?;
    let standby = other.start(&space, &access, &[])?;
    standby.wait_for_output("this one waits", SOON).await?;
    program.kill().await?;
    server.ganesha()?.signal(Signal::KILL);
    other.ready(None).await?;
    keeps_writing(&guest, "another replica has taken over the disk").await?;

    guest.send_file("end", "")?;
    let outcome = guest.ended().await?;
    anyhow::ensure!(outcome.status == 0, "it ended with {}:\n{}", outcome.status, outcome.output);
    space.done().await
}

/// NFSv3 needs rpcbind next to the server, so both the server and the client run inside the guest.
#[tokio::test]
async fn ganesha_serves_the_kernels_nfsv3_client() -> anyhow::Result<()> {
    let (space, link) = (TestSpace::new("ganesha-v3").await?, Link::new()?);
    let access = account(&space).await?;
    let server = ["server", "--export-directory=/mnt/export", "--server-hostname=127.0.0.1", "--nfs-versions=3,4"];
    let server = inside(&space, &server.map(str::to_owned))?;
    let script = format!(
        "modprobe -d /run nfsv3
mkdir -m 0700 /mnt/export
mkdir -p /run/ganesha /mnt/volume
rpcbind -w
{server}
until [ -e $TOLD/volume ]; do sleep 0.1; done
for turn in write read; do
    mount -t nfs -o vers=3,proto=tcp,mountproto=tcp,nolock $(cat $TOLD/volume) /mnt/volume || exit 1
    [ $turn = write ] && echo hello > /mnt/volume/file
    cat /mnt/volume/file && umount /mnt/volume || exit 2
done"
    );
    let guest = Guest::start(Machine::with(&link), &script).await?;
    grant_access(&guest, &link, &space, &access).await?;
    space.create_class_and_claim("claim").await?;
    let bound = space.wait_bound("claim").await.with_context(|| format!("the guest said:\n{}", guest.text()));
    guest.send_file("volume", &place(&bound?.1))?;
    let outcome = guest.ended().await?;
    anyhow::ensure!(outcome.status == 0, "it ended with {}:\n{}", outcome.status, outcome.output);
    assert_eq!(outcome.output.matches("hello\n").count(), 2, "{}", outcome.output);
    space.done().await
}

/// An external server, here the guest's kernel. It exports one directory, and the client mounts the source of the
/// volume.
#[tokio::test]
async fn nfs_uses_a_share_of_the_kernels_server() -> anyhow::Result<()> {
    let (space, link) = (TestSpace::new("nfs-s8").await?, Link::new()?);
    let access = account(&space).await?;
    let provisioner = inside(&space, &["subdir", "--share=127.0.0.1:/volumes=/mnt/share"].map(str::to_owned))?;
    let script = format!(
        "modprobe -d /run -a nfsv4 nfsd
mount -t nfsd nfsd /proc/fs/nfsd
mount -t tmpfs tmpfs /var/lib/nfs
mkdir -p /var/lib/nfs/v4recovery /mnt/exported /mnt/share /mnt/volume
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t tmpfs tmpfs /mnt/exported
mkdir /mnt/exported/volumes
exportfs -o rw,sync,fsid=0,no_subtree_check,no_root_squash,secure 127.0.0.1:/mnt/exported || exit 1
rpc.mountd -N 3 -F &
rpc.nfsd -N 3 -G 10 -L 10 2 || exit 2
until mount -t nfs -o vers=4.2 127.0.0.1:/volumes /mnt/share; do sleep 0.5; done
{provisioner}
until [ -e $TOLD/volume ]; do sleep 0.1; done
mount -t nfs -o vers=4.2 $(cat $TOLD/volume) /mnt/volume || exit 3
echo hello > /mnt/volume/file
umount /mnt/volume
echo the server has $(cat /mnt/exported/volumes/pvc-*/file)
until [ -e $TOLD/end ]; do sleep 0.1; done
echo left: $(ls /mnt/exported/volumes)."
    );
    let guest = Guest::start(Machine::with(&link), &script).await?;
    grant_access(&guest, &link, &space, &access).await?;
    space.create_class_and_claim("claim").await?;
    let bound = space.wait_bound("claim").await.with_context(|| format!("the guest said:\n{}", guest.text()));
    guest.send_file("volume", &place(&bound?.1))?;
    wait_for_output(&guest, "the server has hello").await?;
    space.delete_claim("claim").await?;
    guest.send_file("end", "")?;
    let outcome = guest.ended().await?;
    anyhow::ensure!(outcome.status == 0, "it ended with {}:\n{}", outcome.status, outcome.output);
    assert!(outcome.output.contains("left: ."), "{}", outcome.output);
    space.done().await
}
