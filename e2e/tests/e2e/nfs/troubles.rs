//! Shares with faults, as the kernel's NFS client sees them: the provisioner, the client and the servers are inside
//! user-mode Linux.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::DeleteParams;
use testbed::cluster::{TestSpace, eventually};
use testbed::nfs::configuration;
use testbed::uml::{Guest, Link, Machine};

use super::fixture::*;

const SHARES: [&str; 6] = ["good", "readonly", "full", "squashed", "stale", "hung"];

/// Three servers: a healthy one, one that restarts with other ids, and one that is stopped.
fn script(provisioner: &str) -> String {
    let path = |share: &str| PathBuf::from("/mnt/exported").join(share);
    let config = |port: u16, shares: &[(&str, &str)]| {
        let exports: Vec<_> = shares.iter().map(|(share, said)| (path(share), *said)).collect();
        let exports: Vec<_> = exports.iter().map(|(path, said)| (path.as_path(), *said)).collect();
        configuration(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), Path::new("/mnt/recovery"), &exports)
    };
    let root = "Squash = No_Root_Squash";
    let well = [
        ("good", root),
        ("readonly", root),
        ("full", root),
        ("squashed", "Squash = Root_Squash; Attr_Expiration_Time = 0"),
    ];
    format!(
        r#"modprobe -d /run nfsv4
mkdir -p /mnt/recovery /mnt/exported /mnt/shares /run/ganesha
for share in {}; do mkdir /mnt/exported/$share /mnt/shares/$share; done
mount -t tmpfs -o size=1m tmpfs /mnt/exported/full
chmod 0777 /mnt/exported/squashed
cat > /mnt/well.conf <<'END'
{}END
cat > /mnt/stale.conf <<'END'
{}END
cat > /mnt/hung.conf <<'END'
{}END
serve() {{ ganesha.nfsd -F -L /mnt/$1.log -N NIV_EVENT -f /mnt/$1.conf -p /mnt/$1.pid & }}
for server in well stale hung; do serve $server; done
share() {{
    until mount -t nfs -o vers=4.1,hard,actimeo=1,port=$2,$3 127.0.0.1:/mnt/exported/$1 /mnt/shares/$1; do sleep 0.5; done
}}
for share in good readonly full squashed; do share $share 2001 rw; done
share stale 2002 rw
share hung 2003 rw
{provisioner}
said() {{ until [ -e $TOLD/$1 ]; do sleep 0.1; done; }}
said trouble
umount /mnt/shares/readonly
share readonly 2001 ro
dd if=/dev/zero of=/mnt/exported/full/filling bs=4k 2>/dev/null
stale=$(cat /mnt/stale.pid)
kill $stale
while kill -0 $stale 2>/dev/null; do sleep 0.1; done
sed -i 's/Export_Id = 1/Export_Id = 7/' /mnt/stale.conf
serve stale
kill -STOP $(cat /mnt/hung.pid)
echo the trouble is there
said mended
umount /mnt/shares/readonly
share readonly 2001 rw
rm /mnt/exported/full/filling
umount -f /mnt/shares/stale
share stale 2002 rw
kill -CONT $(cat /mnt/hung.pid)
said foreign
volume=$(ls -d /mnt/exported/squashed/pvc-*)
mkdir -m 0700 $volume/private
touch $volume/private/file
echo there is a file of root
said removed
find /mnt/exported/squashed -name private | xargs rm -r
said end
find /mnt/exported -name 'pvc-*' -printf 'left: %p\n'"#,
        SHARES.join(" "),
        config(2001, &well),
        config(2002, &[("stale", root)]),
        config(2003, &[("hung", root)]),
    )
}

/// An event reports each fault with its remedy, faults of one share do not block others, and waiting claims continue
/// when the fault ends.
#[tokio::test]
async fn ganesha_faulty_share_is_reported_and_does_not_block_others() -> anyhow::Result<()> {
    let (space, link) = (TestSpace::new("ganesha-troubles").await?, Link::new()?);
    let access = account(&space).await?;
    let shares = SHARES.map(|share| format!("--share=127.0.0.1:/mnt/exported/{share}=/mnt/shares/{share}"));
    let provisioner = inside(&space, &[vec!["subdir".to_owned()], shares.to_vec()].concat())?;
    let guest = Guest::start(Machine::with(&link), &script(&provisioner)).await?;
    grant_access(&guest, &link, &space, &access).await?;
    troubles(&space, &guest).await.with_context(|| format!("the guest said:\n{}", guest.text()))?;
    guest.send_file("end", "")?;
    let outcome = guest.ended().await?;
    ensure!(!outcome.output.contains("left: ") && outcome.status == 0, "left:\n{}", outcome.output);
    space.done().await
}

async fn troubles(space: &TestSpace, guest: &Guest) -> anyhow::Result<()> {
    let mut classes = Vec::new();
    for share in SHARES {
        let class = space.class_with(share, [("share", format!("/mnt/exported/{share}").as_str())]).await?;
        space.create_claim(space.claim(&format!("before-{share}"), &class)).await?;
        classes.push(class);
    }
    space.wait_all_bound(SHARES.len(), 4 * SOON).await?;

    guest.send_file("trouble", "")?;
    wait_for_output(guest, "the trouble is there").await?;
    for (share, class) in SHARES.iter().zip(&classes) {
        space.create_claim(space.claim(&format!("during-{share}"), class)).await?;
    }
    for share in ["good", "squashed"] {
        space.wait_bound(&format!("during-{share}")).await?;
    }
    for share in ["readonly", "full", "stale", "hung"] {
        let claim = format!("during-{share}");
        let event = space.wait_for_message("PersistentVolumeClaim", &claim, "ask the administrator").await?;
        let text = event.message.unwrap_or_default();
        ensure!(!text.contains("/mnt") && !text.contains("os error"), "{share}: {text}");
    }
    // A volume on a full share can still be deleted.
    space.delete_claim("before-full").await?;
    // The server maps root to an unprivileged user, who cannot change owners.
    let owned = [("share", "/mnt/exported/squashed"), ("uid", "1000")];
    let owned = space.class_with("owned", owned).await?;
    space.create_claim(space.claim("owned", &owned)).await?;
    space.wait_for_message("PersistentVolumeClaim", "owned", "the owner that the class sets").await?;
    space.api::<PersistentVolumeClaim>().delete("owned", &DeleteParams::default()).await?;

    guest.send_file("mended", "")?;
    space.wait_all_bound(2 * SHARES.len() - 1, 4 * SOON).await?;

    space.delete_claim("during-squashed").await?;
    guest.send_file("foreign", "")?;
    wait_for_output(guest, "there is a file of root").await?;
    let (_, volume) = space.wait_bound("before-squashed").await?;
    space.api::<PersistentVolumeClaim>().delete("before-squashed", &DeleteParams::default()).await?;
    let event = space.wait_for_message("PersistentVolume", &volume.name_any(), "no_root_squash").await?;
    ensure!(event.message.as_ref().is_some_and(|text| text.contains(&volume.name_any())), "{:?}", event.message);
    guest.send_file("removed", "")?;
    space.delete_claims().await?;
    let gone = eventually(4 * SOON, async || Ok(space.volumes().await?.is_empty().then_some(()))).await?;
    gone.context("volumes still exist")
}
