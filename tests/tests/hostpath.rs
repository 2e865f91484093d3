//! The hostPath provisioner as a program, with its own service account, on a real control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use e2e::cluster::{Access, AuditEntry, Program, TestSpace, eventually, provisioner_program};
use e2e::control_plane::Signal;
use e2e::toy::{Answer, Toy};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube_provisioner::protocol::{SELECTED_NODE, STORAGE_PROVISIONER};
use kube_provisioner::rbac::{AccessRule, Account, manifests, rules};
use kube_provisioner::{Capabilities, Coordination, Options, ProvisionError};
use serde_json::{Value, json};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);

/// The account that the project's own manifests make.
async fn account(space: &TestSpace) -> anyhow::Result<Access> {
    space.apply(&account_manifests(space)).await?;
    space.access_of("provisioner").await
}

/// For one shard or two, and for a provisioner of another name.
fn account_manifests(space: &TestSpace) -> Vec<Value> {
    let of = |name: String| {
        let mut options = Options::new(name);
        options.shards = 2;
        rules(&options, &Capabilities::default(), &[])
    };
    let rules = [space.provisioner().to_owned(), other_name(space)].map(of).concat();
    manifests(&Account { name: "provisioner", namespace: space.namespace() }, &rules)
}

fn other_name(space: &TestSpace) -> String {
    format!("toy-{}", space.provisioner())
}

fn start(space: &TestSpace, access: &Access, root: &Path, more: &[&str]) -> anyhow::Result<Program> {
    let mut arguments = vec![
        "--root".to_owned(),
        root.display().to_string(),
        "--provisioner-name".to_owned(),
        space.provisioner().to_owned(),
        "--kubeconfig".to_owned(),
        access.kubeconfig.display().to_string(),
        "--namespace".to_owned(),
        space.namespace().to_owned(),
    ];
    // Who was killed is not waited for as long as usual.
    let times = ["--lease-duration", "3s", "--lease-renew-deadline", "2s", "--lease-retry-period", "500ms"];
    arguments.extend(times.map(str::to_owned));
    arguments.extend(more.iter().map(ToString::to_string));
    space.spawn("hostpath", provisioner_program()?, arguments)
}

async fn started(space: &TestSpace, access: &Access, root: &Path, more: &[&str]) -> anyhow::Result<Program> {
    let program = start(space, access, root, more)?;
    program.wait_for_output("ready", SOON).await?;
    Ok(program)
}

fn directories(root: &TempDir) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn a_claim_becomes_a_directory_and_goes_with_it() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("hostpath").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let _program = started(&space, &access, root.path(), &[]).await?;
    let class = space.create_class(space.class("class")).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    let (_, volume) = space.wait_bound("claim").await?;
    let path = volume.spec.as_ref().and_then(|spec| spec.host_path.clone()).unwrap().path;
    assert_eq!(Path::new(&path), root.path().canonicalize()?.join(volume.name_any()));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path)?.permissions()) & 0o7777;
    assert_eq!(mode, 0o777);
    std::fs::write(Path::new(&path).join("data"), "x")?;
    space.api::<PersistentVolumeClaim>().delete("claim", &DeleteParams::default()).await?;
    // The directory goes first: while the volume is there, so may be the directory, but never the other way round.
    let volumes = space.cluster_api::<PersistentVolume>();
    let gone = eventually(SOON, async || {
        let object_is_gone = volumes.get_opt(&volume.name_any()).await?.is_none();
        anyhow::ensure!(!object_is_gone || !Path::new(&path).exists(), "the volume went before its directory");
        Ok(object_is_gone.then_some(()))
    });
    assert!(gone.await?.is_some());
    assert_eq!(directories(&root), BTreeSet::new());
    space.done().await
}

#[tokio::test]
async fn retain_keeps_volume_and_directory() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("retain").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let _program = started(&space, &access, root.path(), &[]).await?;
    let mut class = space.class("class");
    class.reclaim_policy = Some("Retain".to_owned());
    let class = space.create_class(class).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    let (_, volume) = space.wait_bound("claim").await?;
    let claims = space.api::<PersistentVolumeClaim>();
    claims.delete("claim", &DeleteParams::default()).await?;
    let released = |volume: &PersistentVolume| {
        volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released")
    };
    space.wait_for(&space.cluster_api(), &volume.name_any(), "released", released).await?;
    // A later claim shows that the release was seen.
    space.create_claim(space.claim("later", &class)).await?;
    let (_, later) = space.wait_bound("later").await?;
    assert_eq!(directories(&root), BTreeSet::from([volume.name_any(), later.name_any()]));
    space.done().await
}

#[tokio::test]
async fn a_class_that_waits_gets_its_volume_on_the_chosen_node() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("waits").await?, tempfile::tempdir()?);
    let mut options = Options::new(space.provisioner());
    options.coordination = Coordination::PerNode;
    let rules = rules(&options, &Capabilities::default(), &[]);
    space.apply(&manifests(&Account { name: "provisioner", namespace: space.namespace() }, &rules)).await?;
    let access = space.access_of("provisioner").await?;
    // Some clouds give a node another name in its label, which is what volumes are bound to.
    let hostname = format!("{}.internal", space.namespace());
    let node = space.create_node("node", &[("kubernetes.io/hostname", &hostname)]).await?.name_any();
    let _program = started(&space, &access, root.path(), &["--node-name", &node]).await?;
    let mut class = space.class("class");
    class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
    class.parameters = Some(parameters([("mode", "2750"), ("volumeType", "local")]));
    let class = space.create_class(class).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    space.wait_for_event("PersistentVolumeClaim", "claim", "WaitForFirstConsumer").await?;
    assert_eq!(directories(&root), BTreeSet::new());
    space.create(&space.pod("pod", "claim")).await?;
    let (claim, volume) = space.wait_bound("claim").await?;
    assert_eq!(claim.annotations()["volume.kubernetes.io/selected-node"], node);
    let spec = volume.spec.clone().unwrap();
    let affinity = serde_json::to_string(&spec.node_affinity)?;
    assert!(affinity.contains(&hostname), "{affinity}");
    let mode = std::fs::metadata(&spec.local.unwrap().path)?.permissions().mode();
    assert_eq!(mode & 0o7777, 0o2750);
    // Deleting it needs the node's name, which is not in the label.
    space.api::<Pod>().delete("pod", &DeleteParams::default().grace_period(0)).await?;
    space.api::<PersistentVolumeClaim>().delete("claim", &DeleteParams::default()).await?;
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &volume.name_any()).await?;
    assert_eq!(directories(&root), BTreeSet::new());
    space.done().await
}

#[tokio::test]
async fn a_class_can_keep_the_data_of_deleted_volumes() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("retain").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let _program = started(&space, &access, root.path(), &[]).await?;
    let mut class = space.class("class");
    class.parameters = Some(parameters([("onDelete", "retain")]));
    let class = space.create_class(class).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    let (_, volume) = space.wait_bound("claim").await?;
    // Without the class as well.
    space.cluster_api::<StorageClass>().delete(&class.name_any(), &DeleteParams::default()).await?;
    space.api::<PersistentVolumeClaim>().delete("claim", &DeleteParams::default()).await?;
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &volume.name_any()).await?;
    assert_eq!(directories(&root), BTreeSet::from([volume.name_any()]));
    space.done().await
}

#[tokio::test]
async fn wrong_parameters_are_named_all_at_once() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("wrong").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let _program = started(&space, &access, root.path(), &[]).await?;
    let mut class = space.class("class");
    class.parameters = Some(parameters([("mode", "0077"), ("onDelte", "retain")]));
    let class = space.create_class(class).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "ProvisioningFailed").await?;
    let note = event.message.unwrap_or_default();
    assert!(note.contains("the owner needs all rights") && note.contains("onDelte"), "{note}");
    assert_eq!(directories(&root), BTreeSet::new());
    space.done().await
}

fn parameters<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

#[tokio::test]
async fn two_hundred_claims_at_once_are_all_bound() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("many").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let _program = started(&space, &access, root.path(), &[]).await?;
    let class = space.create_class(space.class("class")).await?;
    create_claims(&space, &class, 200).await?;
    wait_all_bound(&space, 200).await?;
    assert_eq!(directories(&root).len(), 200);
    space.done().await
}

#[tokio::test]
async fn g14_killed_and_started_again_the_rest_is_finished() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("killed").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let mut program = started(&space, &access, root.path(), &[]).await?;
    let class = space.create_class(space.class("class")).await?;
    let some = async {
        let made = eventually(SOON, async || Ok((directories(&root).len() >= 20).then_some(()))).await?;
        anyhow::ensure!(made.is_some(), "no directories were made");
        program.kill().await
    };
    tokio::try_join!(create_claims(&space, &class, 100), some)?;
    drop(program);
    let mut program = started(&space, &access, root.path(), &[]).await?;
    wait_all_bound(&space, 100).await?;
    let volumes: BTreeSet<_> = space.volumes().await?.iter().map(ResourceExt::name_any).collect();
    assert_eq!(directories(&root), volumes);
    // The same in the middle of deletions.
    space.api::<PersistentVolumeClaim>().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let gone = eventually(SOON, async || Ok((directories(&root).len() < 80).then_some(()))).await?;
    anyhow::ensure!(gone.is_some(), "no directories were removed");
    program.kill().await?;
    drop(program);
    let _program = started(&space, &access, root.path(), &[]).await?;
    let empty = eventually(2 * SOON, async || {
        Ok((space.volumes().await?.is_empty() && directories(&root).is_empty()).then_some(()))
    });
    assert!(empty.await?.is_some(), "left: {:?}", directories(&root));
    space.done().await
}

#[tokio::test]
async fn g8_the_api_server_goes_and_comes_back() -> anyhow::Result<()> {
    let (mut space, root) = (TestSpace::new_alone("restart").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let program = started(&space, &access, root.path(), &[]).await?;
    let class = space.create_class(space.class("class")).await?;
    space.create_claim(space.claim("before", &class)).await?;
    let (_, before) = space.wait_bound("before").await?;
    let volumes = space.cluster_api::<PersistentVolume>();
    for (name, signal) in [("after-kill", Signal::KILL), ("after-term", Signal::TERM)] {
        space.cluster_mut().restart("kube-apiserver", signal).await?;
        let mut claim = space.claim(name, &class);
        // The controller-manager takes its time after a restart; this is about us.
        claim.annotations_mut().insert(STORAGE_PROVISIONER.to_owned(), space.provisioner().to_owned());
        let claim = space.create_claim(claim).await?;
        let volume = format!("pvc-{}", claim.uid().unwrap_or_default());
        space.wait_for_within(2 * SOON, &volumes, &volume, "made", |_| true).await?;
    }
    space.api::<PersistentVolumeClaim>().delete("before", &DeleteParams::default()).await?;
    let gone = eventually(4 * SOON, async || Ok(volumes.get_opt(&before.name_any()).await?.is_none().then_some(())));
    assert!(gone.await?.is_some(), "the deletion goes on");
    assert!(program.is_running(), "the same process all along");
    space.done().await
}

/// Calls are counted by the API server itself, in its audit log.
#[tokio::test]
async fn a_volume_costs_two_calls_to_make_and_two_to_delete() -> anyhow::Result<()> {
    const COUNT: usize = 20;
    let (space, root) = (TestSpace::new("calls").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let audit = space.cluster().audit_log()?;
    let _program = started(&space, &access, root.path(), &[]).await?;
    let class = space.create_class(space.class("class")).await?;
    let delete_all = async || -> anyhow::Result<()> {
        let claims = space.api::<PersistentVolumeClaim>();
        claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let empty = eventually(2 * SOON, async || Ok(space.volumes().await?.is_empty().then_some(()))).await?;
        empty.ok_or_else(|| anyhow::anyhow!("volumes are left"))
    };
    // Until a volume was deleted it is not known that the provisioner has no `should_delete`, which would be shown the volume.
    create_claims(&space, &class, 1).await?;
    wait_all_bound(&space, 1).await?;
    delete_all().await?;
    create_claims(&space, &class, COUNT).await?;
    wait_all_bound(&space, COUNT).await?;
    // The journal's calls serve many volumes each.
    let calls = async |what: &str, expected: &[(&str, usize)], most_shared: usize| -> anyhow::Result<()> {
        let (mut seen, mut shared) = (BTreeMap::new(), 0);
        let as_expected = eventually(SOON, async || {
            seen.clear();
            let entries = audit.entries_of(&access.user)?;
            // Where somebody else's write came in between, the call is made again, after a look.
            let contested: BTreeSet<&str> =
                entries.iter().filter(|entry| entry.code == 409).map(|entry| entry.name.as_str()).collect();
            let repeated = |entry: &&AuditEntry| {
                entry.code == 409 || (entry.verb == "get" && contested.contains(entry.name.as_str()))
            };
            for entry in entries.iter().filter(|entry| !entry.resource.is_empty() && !repeated(entry)) {
                *seen.entry(e2e::rights::used(entry)).or_insert(0) += 1;
            }
            seen.retain(|call: &String, _| {
                let of_the_fleet = call.contains("authorization") || call.contains("leases");
                !call.starts_with("list") && !call.starts_with("watch") && !of_the_fleet
            });
            let journal: Vec<String> = seen.keys().filter(|call| call.contains("configmaps")).cloned().collect();
            shared = journal.iter().filter_map(|call| seen.remove(call)).sum();
            Ok(expected.iter().all(|(call, count)| seen.get(*call) == Some(count)).then_some(()))
        });
        let as_expected = as_expected.await?.is_some() && seen.len() == expected.len();
        anyhow::ensure!(as_expected, "{what}: expected {expected:?}, saw {seen:?}");
        anyhow::ensure!(
            shared <= most_shared,
            "{what}: {shared} calls for the journal, expected {most_shared} at most"
        );
        Ok(())
    };
    let provision =
        [("create persistentvolumes", COUNT + 1), ("create events", COUNT + 1), ("get persistentvolumes", 1)];
    let delete = |count| [("delete persistentvolumes", count), ("patch persistentvolumes", count)];
    calls("provision", &[&provision[..], &delete(1)].concat(), COUNT).await?;
    delete_all().await?;
    calls("provision and delete", &[&provision[..], &delete(COUNT + 1)].concat(), COUNT * 2).await?;
    space.done().await
}

/// What is granted is what is used: the roles are compared with what the API server was asked.
#[tokio::test]
async fn the_rights_are_the_smallest_set() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("rights").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let audit = space.cluster().audit_log()?;
    let mut program = started(&space, &access, root.path(), &[]).await?;
    let class = space.create_class(space.class("class")).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    let (_, volume) = space.wait_bound("claim").await?;
    // A volume that somebody deletes first needs a look at the live object.
    let volumes = space.cluster_api::<PersistentVolume>();
    volumes.delete(&volume.name_any(), &DeleteParams::default()).await?;
    space.api::<PersistentVolumeClaim>().delete("claim", &DeleteParams::default()).await?;
    space.wait_gone(&volumes, &volume.name_any()).await?;
    space.create_claim(space.claim("second", &class)).await?;
    let (_, second) = space.wait_bound("second").await?;
    space.api::<PersistentVolumeClaim>().delete("second", &DeleteParams::default()).await?;
    space.wait_gone(&volumes, &second.name_any()).await?;
    repeated_failure(&space, &root).await?;
    taken_back(&space, &access).await?;
    // Another number of shards: the journal of before is emptied, and the fleet's own Lease is removed at the end.
    assert!(program.terminate(SOON).await?.success());
    let mut sharded = started(&space, &access, root.path(), &["--shards", "2"]).await?;
    space.create_claim(space.claim("third", &class)).await?;
    space.wait_bound("third").await?;
    assert!(sharded.terminate(SOON).await?.success());
    let granted = e2e::rights::granted(&account_manifests(&space));
    let mut used = BTreeSet::new();
    let found = eventually(SOON, async || {
        let entries = audit.entries_of(&access.user)?;
        used = entries
            .iter()
            .filter(|entry| !entry.resource.is_empty())
            .map(e2e::rights::used)
            .filter(|right| !right.contains("authorization.k8s.io"))
            .collect();
        Ok(granted.difference(&used).all(|right| NEEDED_IN_RARE_CASES.contains(&right.as_str())).then_some(()))
    });
    found.await?;
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(
        unused.iter().all(|right| NEEDED_IN_RARE_CASES.contains(&right.as_str())),
        "granted and not used: {unused:?}"
    );
    assert!(used.is_subset(&granted), "used and not granted: {:?}", used.difference(&granted).collect::<Vec<_>>());
    space.done().await
}

/// Only a claim that looks unbound after its volume went needs this; `worlds.rs` in the library shows when.
const NEEDED_IN_RARE_CASES: [&str; 1] = ["get persistentvolumeclaims"];

/// The same event twice is one event with a count.
async fn repeated_failure(space: &TestSpace, root: &TempDir) -> anyhow::Result<()> {
    let mut class = space.class("waits");
    class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
    let class = space.create_class(class).await?;
    let claim = space.create_claim(space.claim("blocked", &class)).await?;
    let in_the_way = root.path().join(format!("pvc-{}", claim.uid().unwrap_or_default()));
    std::fs::write(&in_the_way, "")?;
    let annotations = json!({STORAGE_PROVISIONER: space.provisioner(), SELECTED_NODE: "any"});
    let chosen = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    space.api::<PersistentVolumeClaim>().patch("blocked", &PatchParams::default(), &chosen).await?;
    space.wait_for_event("PersistentVolumeClaim", "blocked", "ProvisioningFailed").await?;
    let counted = eventually(SOON, async || {
        let events = space.events_about("PersistentVolumeClaim", "blocked").await?;
        Ok(events.iter().any(|event| event.series.is_some()).then_some(()))
    });
    anyhow::ensure!(counted.await?.is_some(), "repeated events are not counted");
    std::fs::remove_file(&in_the_way)?;
    space.wait_bound("blocked").await?;
    Ok(())
}

/// A provisioner that wants another node, with the same account.
async fn taken_back(space: &TestSpace, access: &Access) -> anyhow::Result<()> {
    let toy = Toy::new().on_provision(|_, _| Answer::Failed(ProvisionError::reschedule("no room")));
    let mut options = e2e::toy::options(space);
    options.provisioner_name = other_name(space);
    let name = options.provisioner_name.clone();
    let _controller = toy.run_with(options, access.client().await?);
    let mut class = space.class("toy");
    class.provisioner = name.clone();
    class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
    let class = space.create_class(class).await?;
    let mut claim = space.claim("moved", &class);
    let annotations = [(STORAGE_PROVISIONER, name), (SELECTED_NODE, "any".to_owned())];
    claim.annotations_mut().extend(annotations.map(|(key, value)| (key.to_owned(), value)));
    space.create_claim(claim).await?;
    let taken = |claim: &PersistentVolumeClaim| !claim.annotations().contains_key(SELECTED_NODE);
    space.wait_for(&space.api(), "moved", "without a node", taken).await?;
    Ok(())
}

#[tokio::test]
async fn a_missing_right_is_named() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("forbidden").await?, tempfile::tempdir()?);
    let rule = |rule: &AccessRule, without: &str| PolicyRule {
        api_groups: Some(vec![rule.group.to_owned()]),
        resources: Some(vec![rule.resource.to_owned()]),
        resource_names: (!rule.names.is_empty()).then(|| rule.names.clone()),
        verbs: rule
            .verbs
            .iter()
            .filter(|verb| format!("{verb} {}", rule.resource) != without)
            .map(ToString::to_string)
            .collect(),
        ..PolicyRule::default()
    };
    for (at, missing) in
        ["create persistentvolumes", "watch storageclasses", "patch persistentvolumeclaims", "update configmaps"]
            .into_iter()
            .enumerate()
    {
        let (of_namespace, of_cluster): (Vec<_>, Vec<_>) =
            rules(&Options::new(space.provisioner()), &Capabilities::default(), &[])
                .into_iter()
                .partition(|rule| rule.namespaced);
        let without = |rules: Vec<AccessRule>| rules.iter().map(|one| rule(one, missing)).collect::<Vec<_>>();
        let (of_cluster, of_namespace) = (without(of_cluster), without(of_namespace));
        let access = space.client_as(&format!("account-{at}"), &of_cluster, &of_namespace).await?;
        let mut program = start(&space, &access, root.path(), &[])?;
        assert!(!program.ended(SOON).await?.success());
        let (verb, resource) = missing.split_once(' ').unwrap();
        let last = program.output().lines().last().unwrap_or_default().to_owned();
        assert!(last.contains(verb) && last.contains(resource), "{missing}: {last}");
    }
    space.done().await
}

#[tokio::test]
async fn bad_input_is_one_clear_line() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("input").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let file = root.path().join("file");
    std::fs::write(&file, "")?;
    let bad_token = root.path().join("kubeconfig");
    let text = std::fs::read_to_string(&access.kubeconfig)?;
    let without_token: String =
        text.lines().filter(|line| !line.contains("token")).map(|line| format!("{line}\n")).collect();
    std::fs::write(&bad_token, without_token)?;
    let nobody = root.path().join("nobody");
    std::fs::write(&nobody, text.replace(&space.cluster().state().server, "https://127.0.0.1:1"))?;
    let case = |root: &Path, kubeconfig: &Path| {
        let access = Access { user: String::new(), kubeconfig: kubeconfig.to_owned() };
        start(&space, &access, root, &[])
    };
    let mut seen = 0;
    for (root, kubeconfig, says) in [
        (Path::new("/no/such/directory"), &access.kubeconfig, "--root"),
        (&file, &access.kubeconfig, "not a directory"),
        (Path::new("/proc"), &access.kubeconfig, "not writable"),
        (root.path(), &root.path().join("missing"), "kubeconfig"),
        (root.path(), &file, "kubeconfig"),
        (root.path(), &nobody, "127.0.0.1:1"),
        (root.path(), &bad_token, "credentials"),
    ] {
        let mut program = case(root, kubeconfig)?;
        let status = program.ended(SOON).await?;
        let output = program.output();
        let lines: Vec<_> = output.lines().skip(seen).collect();
        seen += lines.len();
        assert!(!status.success() && lines.len() == 1, "{says}: {lines:#?}");
        assert!(lines[0].contains(says), "{says}: {}", lines[0]);
    }
    space.done().await
}

async fn create_claims(
    space: &TestSpace,
    class: &k8s_openapi::api::storage::v1::StorageClass,
    count: usize,
) -> anyhow::Result<()> {
    for batch in (0..count).collect::<Vec<_>>().chunks(20) {
        let claims = batch.iter().map(|at| space.create_claim(space.claim(&format!("claim-{at}"), class)));
        futures::future::try_join_all(claims).await?;
    }
    Ok(())
}

async fn wait_all_bound(space: &TestSpace, count: usize) -> anyhow::Result<()> {
    let claims = space.api::<PersistentVolumeClaim>();
    let mut bound = 0;
    let all = eventually(4 * SOON, async || {
        bound = claims.list(&ListParams::default()).await?.iter().filter(|claim| e2e::cluster::is_bound(claim)).count();
        Ok((bound == count).then_some(()))
    });
    anyhow::ensure!(all.await?.is_some(), "only {bound} of {count} claims are bound");
    Ok(())
}
