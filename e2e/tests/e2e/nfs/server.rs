//! Exports of the provisioner's own server.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Instant;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube_provisioner::protocol::PROVISIONED_BY;
use serde_json::json;
use testbed::cluster::{TestSpace, eventually};
use testbed::control_plane::Signal;

use super::fixture::*;

#[tokio::test]
async fn ganesha_two_clients_see_each_others_file() -> anyhow::Result<()> {
    let (space, server, _access, _program) = Server::serving("ganesha-g1").await?;
    let class = space.class_with("class", [("mountOptions", "vers=4.1,hard")]).await?;
    let (claim, volume) = space.bind(space.claim("claim", &class)).await?;
    let spec = volume.spec.clone().unwrap();
    assert_eq!(spec.mount_options, Some(vec!["vers=4.1".to_owned(), "hard".to_owned()]));
    assert_eq!(spec.persistent_volume_reclaim_policy, class.reclaim_policy);
    assert_eq!(spec.access_modes, claim.spec.as_ref().and_then(|spec| spec.access_modes.clone()));
    assert_eq!(spec.claim_ref.and_then(|reference| reference.uid), claim.uid());
    let path = source(&volume).path;
    assert_eq!(source(&volume).server, "127.0.0.1");
    let file = server.runtime.path().join("hello");
    std::fs::write(&file, "hello")?;
    server.client.put(&file, &format!("{path}/hello")).await?;
    assert_eq!(server.client.get(&format!("{path}/hello")).await?, "hello");
    assert!(server.client.list(&path).await?.contains("hello"));
    // As in the old provisioner's own tests, selectors and existing directories are refused.
    let mut selects = space.claim("selects", &class);
    selects.spec.get_or_insert_default().selector = Some(LabelSelector::default());
    space.create_claim(selects).await?;
    space.wait_for_message("PersistentVolumeClaim", "selects", "selector").await?;
    let named = [("pathPattern", "${.PVC.namespace}_${.PVC.name}"), ("rootSquash", "true")];
    let named = space.class_with("named", named).await?;
    let there = server.root.path().join(format!("{}_there", space.namespace()));
    std::fs::create_dir(&there)?;
    space.create_claim(space.claim("there", &named)).await?;
    space.wait_for_message("PersistentVolumeClaim", "there", "no ownership mark").await?;
    std::fs::remove_dir(&there)?;
    let (_, volume) = space.wait_bound("there").await?;
    server.client.put(&file, &format!("{}/hello", source(&volume).path)).await?;
    assert_ne!(std::fs::metadata(there.join("hello"))?.uid(), 0, "the client's root user is not squashed");
    space.delete_claim("there").await?;
    let start = Instant::now();
    space.delete_claim("claim").await?;
    assert!(start.elapsed().as_secs() < 60);
    assert_eq!((server.exports(), names(server.root.path())), (vec![], vec![]));
    assert!(server.client.list(&path).await.is_err(), "the path is still exported");
    space.done().await
}

/// The server is stopped and killed, with and without the provisioner. After each restart, ids and data are unchanged.
#[tokio::test]
async fn ganesha_restarts_keep_ids_and_data() -> anyhow::Result<()> {
    let (space, server, access, mut program) = Server::serving("ganesha-g5").await?;
    let class = space.class_with("class", []).await?;
    space.create_claims(&class, 3).await?;
    space.wait_all_bound(3, 4 * SOON).await?;
    let exports = server.exports();
    let (_, volume) = space.wait_bound("claim-0").await?;
    let path = source(&volume).path;
    let file = server.runtime.path().join("hello");
    std::fs::write(&file, "hello")?;
    server.client.put(&file, &format!("{path}/hello")).await?;
    // Only the server is killed; the provisioner restarts it.
    let killed = server.ganesha()?;
    killed.signal(Signal::KILL);
    server.ready(Some(killed)).await?;
    assert_eq!(server.gets(&format!("{path}/hello")).await?, "hello");
    // The provisioner is terminated, and ends its server.
    program.terminate(SOON).await?;
    drop(program);
    let mut program = server.started(&space, &access).await?;
    assert_eq!(server.gets(&format!("{path}/hello")).await?, "hello");
    // Both are killed; processes that the provisioner left running do not block its successor.
    program.kill().await?;
    drop(program);
    let _program = server.started(&space, &access).await?;
    assert_eq!(server.gets(&format!("{path}/hello")).await?, "hello");
    assert_eq!(server.exports(), exports);
    // New exports never reuse the ids of deleted ones.
    space.delete_claim("claim-2").await?;
    space.bind(space.claim("later", &class)).await?;
    let last = exports.iter().map(|(id, _)| *id).max().unwrap();
    assert!(server.exports().iter().any(|(id, _)| *id > last));
    space.done().await
}

#[tokio::test]
async fn ganesha_limits_and_parameters_are_enforced() -> anyhow::Result<()> {
    let (space, server) = (TestSpace::new("ganesha-limits").await?, Server::new()?);
    let access = account(&space).await?;
    let _program = server.start(&space, &access, &["--max-exports=1"])?;
    server.ready(None).await?;
    let class = space.class_with("class", [("gid", "1234"), ("rootSquash", "true")]).await?;
    let bad = space.class_with("bad", [("gid", "users")]).await?;
    let mut large = space.claim("large", &class);
    let requests =
        [("storage".to_owned(), k8s_openapi::apimachinery::pkg::api::resource::Quantity("900Pi".to_owned()))];
    large.spec.get_or_insert_default().resources.get_or_insert_default().requests = Some(requests.into());
    space.create_claim(large).await?;
    space.wait_for_message("PersistentVolumeClaim", "large", "has no room").await?;
    let (_, volume) = space.bind(space.claim("first", &class)).await?;
    assert_eq!(volume.annotations()["pv.beta.kubernetes.io/gid"], "1234");
    let stat = std::fs::metadata(server.root.path().join(volume.name_any()))?;
    assert_eq!((stat.gid(), stat.mode() & 0o7777), (1234, 0o2770));
    space.create_claim(space.claim("second", &class)).await?;
    space.wait_for_message("PersistentVolumeClaim", "second", "maximum number of exports").await?;
    space.create_claim(space.claim("bad", &bad)).await?;
    space.wait_for_message("PersistentVolumeClaim", "bad", "gid").await?;
    space.done().await
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "figures")]
async fn ganesha_many_exports_are_restored_after_a_restart() -> anyhow::Result<()> {
    // Set `E2E_CLAIMS` for longer runs.
    let count = testbed::count("E2E_CLAIMS", 60)?;
    let (space, server, access, program) = Server::serving("ganesha-500").await?;
    let class = space.class_with("class", [("enforceSize", "false")]).await?;
    let start = Instant::now();
    space.create_claims(&class, count).await?;
    space.wait_all_bound(count, 4 * SOON).await?;
    println!("{count} claims bound and exported after {:.1?}", start.elapsed());
    let exports = server.exports();
    assert_eq!(exports.len(), count);
    drop(program);
    let start = Instant::now();
    let _program = server.started(&space, &access).await?;
    println!("{count} exports are served again {:.1?} after a start", start.elapsed());
    for (_, path) in exports.iter().step_by(20) {
        server.client.list(&format!("{}/{path}", server.root.path().display())).await?;
    }
    assert_eq!(server.exports(), exports);
    let start = Instant::now();
    space.delete_claims().await?;
    let empty = eventually(4 * SOON, async || {
        Ok((names(server.root.path()).is_empty() && server.exports().is_empty()).then_some(()))
    });
    assert!(empty.await?.is_some(), "left: {} exports", server.exports().len());
    println!("{count} exports removed after {:.1?}", start.elapsed());
    space.done().await
}

/// Only one replica uses the disk at a time. Its server keeps the disk while it runs, even if the provisioner has
/// ended.
#[tokio::test]
async fn ganesha_standby_replica_takes_over_the_disk() -> anyhow::Result<()> {
    let (space, server) = (TestSpace::new("ganesha-k13").await?, Server::new()?);
    let (access, other) = (account(&space).await?, server.standby()?);
    let mut program = server.started(&space, &access).await?;
    let class = space.create_class_and_claim("first").await?;
    let (_, volume) = space.wait_bound("first").await?;
    let (path, file) = (format!("{}/hello", source(&volume).path), server.runtime.path().join("hello"));
    std::fs::write(&file, "hello")?;
    server.client.put(&file, &path).await?;

    let standby = other.start(&space, &access, &[])?;
    standby.wait_for_output("this one waits", SOON).await?;
    space.bind(space.claim("second", &class)).await?;

    program.kill().await?;
    let left = server.ganesha()?;
    space.create_claim(space.claim("third", &class)).await?;
    space.wait_for_message("PersistentVolumeClaim", "third", "the NFS server cannot export the volume").await?;
    assert!(left.is_running() && other.ganesha().is_err(), "two servers run at the same time");
    assert_eq!(server.client.get(&path).await?, "hello");

    let exports = server.exports();
    left.signal(Signal::KILL);
    other.ready(None).await?;
    space.wait_bound("third").await?;
    assert_eq!(other.gets(&path).await?, "hello");
    assert!(exports.iter().all(|export| other.exports().contains(export)), "the ids of the exports have changed");
    space.done().await
}

#[tokio::test]
async fn ganesha_exports_a_claim_with_the_longest_name() -> anyhow::Result<()> {
    let (space, server, access, program) = Server::serving("ganesha-d3").await?;
    let class = space.class_with("class", [("pathPattern", "${.PVC.namespace}/${.PVC.name}")]).await?;
    let name = "c".repeat(253);
    let (_, volume) = space.bind(space.claim(&name, &class)).await?;
    let path = source(&volume).path;
    assert!(path.ends_with(&format!("{}/{name}", space.namespace())), "{path}");
    let file = server.runtime.path().join("hello");
    std::fs::write(&file, "hello")?;
    server.client.put(&file, &format!("{path}/hello")).await?;
    let exports = server.exports();
    drop(program);
    let _program = server.started(&space, &access).await?;
    assert_eq!(server.gets(&format!("{path}/hello")).await?, "hello");
    assert_eq!(server.exports(), exports);
    space.delete_claim(&name).await?;
    assert_eq!(server.exports(), []);
    space.done().await
}

#[tokio::test]
async fn ganesha_client_needs_a_privileged_port_and_an_allowed_network() -> anyhow::Result<()> {
    let (space, server, access, mut program) = Server::serving("ganesha-d4").await?;
    space.create_class_and_claim("claim").await?;
    let path = source(&space.wait_bound("claim").await?.1).path;
    server.client.list(&path).await?;
    assert!(server.client.list_from_unprivileged_port(&path).await.is_err(), "unprivileged users can mount the export");
    // At the next start, recorded exports follow the new flags.
    for (flag, root, anybody) in
        [("--export-privileged-port=false", true, true), ("--export-clients=192.0.2.0/24,::1", false, false)]
    {
        program.terminate(SOON).await?;
        program = server.start(&space, &access, &[flag])?;
        server.ready(None).await?;
        assert_eq!(server.client.list(&path).await.is_ok(), root, "{flag}");
        assert_eq!(server.client.list_from_unprivileged_port(&path).await.is_ok(), anybody, "{flag}");
    }
    drop(program);
    space.done().await
}

/// Clients' file handles contain export ids. Therefore ids are never reused, and the old provisioner's records of
/// exports remain valid.
#[tokio::test]
async fn ganesha_volumes_of_the_old_provisioner_keep_their_exports() -> anyhow::Result<()> {
    let (space, server) = (TestSpace::new("ganesha-k14").await?, Server::new()?);
    let (access, former) = (account(&space).await?, former(&space));
    let root = server.root.path().display().to_string();
    for (directory, id, squash) in
        [("pvc-a", 1, "root_id_squash"), ("pvc-b", 2, "no_root_squash"), ("pvc-c", 1, "no_root_squash")]
    {
        std::fs::create_dir(server.root.path().join(directory))?;
        std::fs::set_permissions(server.root.path().join(directory), Permissions::from_mode(0o777))?;
        let path = format!("{root}/{directory}");
        let block = format!(
            "\nEXPORT\n{{\n\tExport_Id = {id};\n\tPath = {path};\n\tPseudo = {path};\n\tAccess_Type = RW;\n\tSquash = {squash};\n\t\
             SecType = sys;\n\tFilesystem_id = {id}.{id};\n\tFSAL {{\n\t\tName = VFS;\n\t}}\n}}\n"
        );
        let annotations = json!({(PROVISIONED_BY): former, "Export_Id": id.to_string(), "EXPORT_block": block,
            "Project_Id": "0", "Project_block": "", "kubernetes.io/createdby": "nfs-dynamic-provisioner"});
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": space.cluster_wide_name(directory), "annotations": annotations},
            "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "former",
                "nfs": {"server": "127.0.0.1", "path": path}},
        }))?;
        space.create_cluster_wide(&volume).await?;
    }
    let names = ["--additional-provisioner-names", &former];
    let mut program = server.start(&space, &access, &names)?;
    server.ready(None).await?;
    space.create_class_and_claim("claim").await?;
    let new = space.wait_bound("claim").await?.1.name_any();
    assert_eq!(server.exports(), [(3, new.clone())], "ids of volumes that are not adopted yet are kept");

    let adopt = |directory: &str| {
        let volume = space.cluster_wide_name(directory);
        let site =
            [format!("--export-directory={root}"), format!("--runtime-directory={}", server.runtime.path().display())];
        command(&space, &["server", "adopt", "--volume", &volume, &site[0], &site[1], "--server-hostname=127.0.0.1"])
    };
    for (directory, says) in [
        ("pvc-a", "belongs to this installation"),
        ("pvc-b", "belongs to this installation"),
        ("pvc-c", "mount it again"),
    ] {
        let (ok, text) = adopt(directory)?;
        assert!(ok && text.contains(says), "{text}");
    }
    let exports = server.exports();
    let expected = [(1, "pvc-a"), (2, "pvc-b"), (3, &new), (4, "pvc-c")];
    assert_eq!(exports, expected.map(|(id, path)| (id, path.to_owned())));
    let file = server.runtime.path().join("hello");
    std::fs::write(&file, "hello")?;
    for (directory, is_root) in [("pvc-a", false), ("pvc-b", true), ("pvc-c", true)] {
        server.client.put(&file, &format!("{root}/{directory}/hello")).await?;
        let owner = std::fs::metadata(server.root.path().join(directory).join("hello"))?.uid();
        assert_eq!(owner == 0, is_root, "{directory}: {owner}");
    }
    // The record of an adopted volume is lost, but the volume contains all of it.
    program.terminate(SOON).await?;
    std::fs::remove_file(server.root.path().join(".kube-provisioner/exports/1@pvc-a"))?;
    drop(program);
    let _program = server.start(&space, &access, &names)?;
    assert_eq!(server.gets(&format!("{root}/pvc-a/hello")).await?, "hello");
    assert_eq!(server.exports(), exports);
    space.done().await
}
