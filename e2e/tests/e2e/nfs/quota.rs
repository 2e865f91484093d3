//! Sizes of exports on disks with project quotas. The server, the disk and the kernel's client are inside user-mode
//! Linux.

use anyhow::Context;
use testbed::cluster::TestSpace;
use testbed::uml::{Disk, Guest, Link, MOUNT_POINT, Machine};

use super::fixture::*;
use crate::expansion::{ask_for, has};

/// A client that fills a volume before and after its expansion, and another volume in the meantime.
fn script(provisioner: &str) -> String {
    format!(
        "modprobe -d /run nfsv4
mkdir -m 0700 {MOUNT_POINT}/volumes
mkdir -p /run/ganesha /mnt/first /mnt/second
{provisioner}
said() {{ until [ -e $TOLD/$1 ]; do sleep 0.1; done; }}
fill() {{
    dd if=/dev/zero of=/mnt/$1/file bs=64k count=$2 conv=fsync
    echo filled $1 with $2: $?
}}
for volume in first second; do
    said $volume
    mount -t nfs -o vers=4.2,hard $(cat $TOLD/$volume) /mnt/$volume || exit 1
done
fill first 128
fill first 160
fill second 128
said grown
fill first 160
fill first 224
said end"
    )
}

#[tokio::test]
async fn ganesha_sizes_are_enforced_on_xfs() -> anyhow::Result<()> {
    sizes_hold("ganesha-xfs", Disk::Xfs).await
}

#[tokio::test]
async fn ganesha_sizes_are_enforced_on_ext4() -> anyhow::Result<()> {
    sizes_hold("ganesha-ext4", Disk::Ext4).await
}

async fn sizes_hold(test: &str, disk: Disk) -> anyhow::Result<()> {
    let (space, link) = (TestSpace::new(test).await?, Link::new()?);
    let access = account(&space).await?;
    let arguments = ["server".to_owned(), format!("--export-directory={MOUNT_POINT}/volumes")];
    let server =
        [&arguments[..], &["--server-hostname=127.0.0.1", "--nfs-grace-period=0s"].map(str::to_owned)].concat();
    let guest =
        Guest::start(Machine { disk: Some(disk), ..Machine::with(&link) }, &script(&inside(&space, &server)?)).await?;
    grant_access(&guest, &link, &space, &access).await?;
    fills(&space, &guest).await.with_context(|| format!("the guest said:\n{}", guest.text()))?;
    guest.send_file("end", "")?;
    guest.ended().await?;
    space.done().await
}

async fn fills(space: &TestSpace, guest: &Guest) -> anyhow::Result<()> {
    let mut class = space.class("class");
    class.allow_volume_expansion = Some(true);
    class.parameters = Some([("enforceSize".to_owned(), "true".to_owned())].into());
    let class = space.create_class(class).await?;
    for name in ["first", "second"] {
        let mut claim = serde_json::to_value(space.claim(name, &class))?;
        claim["spec"]["resources"]["requests"]["storage"] = "9Mi".into();
        let (_, volume) = space.bind(serde_json::from_value(claim)?).await?;
        guest.send_file(name, &place(&volume))?;
    }
    for told in ["first with 128: 0", "first with 160: 1", "second with 128: 0"] {
        wait_for_output(guest, &format!("filled {told}")).await?;
    }
    ask_for(space, "first", "12Mi").await?;
    space.wait_for(&space.api(), "first", "larger", |claim| has(claim, "12Mi")).await?;
    guest.send_file("grown", "")?;
    for told in ["first with 160: 0", "first with 224: 1"] {
        wait_for_output(guest, &format!("filled {told}")).await?;
    }
    Ok(())
}
