//! Volumes on a disk that loses power at every write and flush, inside user-mode Linux:
//! `crates/directory-volumes/examples/power_cut.rs` on dm-log-writes.

use anyhow::ensure;
use testbed::uml::{Guest, Machine, example};

#[tokio::test]
async fn volumes_survive_a_power_cut_on_xfs() -> anyhow::Result<()> {
    survive("xfs", "mkfs.xfs -q", ":").await
}

#[tokio::test]
async fn volumes_survive_a_power_cut_on_ext4() -> anyhow::Result<()> {
    // Without its journal, all four fsyncs of a volume would be tested.
    let has_journal = "grep -q '^[0-9]' /sys/fs/ext4/*/journal_task";
    survive("ext4", "mkfs.ext4 -q -O quota,project -E quotatype=prjquota", has_journal).await
}

async fn survive(kind: &str, mkfs: &str, look: &str) -> anyhow::Result<()> {
    let program = example("power_cut")?;
    let program = program.display();
    // Without udev, dmsetup creates the device node.
    let script = format!(
        "set -e
mount -t sysfs sysfs /sys
modprobe -a -d /run loop quota_v2 dm-mod dm-log-writes
truncate --size 300M /mnt/data /mnt/log
{mkfs} /mnt/data
cp --sparse=always /mnt/data /mnt/start
losetup /dev/loop6 /mnt/data
losetup /dev/loop7 /mnt/log
export DM_DISABLE_UDEV=1
dmsetup create power --table \"0 $(blockdev --getsz /dev/loop6) log-writes /dev/loop6 /dev/loop7\"
mkdir /mnt/disk
mount -o prjquota /dev/mapper/power /mnt/disk
{look}
'{program}' record /mnt/disk power
umount /mnt/disk
dmsetup remove power
'{program}' check /mnt/start /mnt/log {kind}"
    );
    let machine = Machine { memory: 1024, ..Machine::default() };
    let outcome = Guest::start(machine, &script).await?.ended().await?;
    ensure!(outcome.status == 0, "it ended with {}:\n{}", outcome.status, outcome.output);
    Ok(())
}
