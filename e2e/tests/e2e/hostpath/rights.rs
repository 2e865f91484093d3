//! The provisioner's requests to the API server, and its permissions.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube_provisioner::protocol::{SELECTED_NODE, STORAGE_PROVISIONER};
use kube_provisioner::rbac::{Account, manifests, rules};
use kube_provisioner::{Options, ProvisionError};
use serde_json::json;
use tempfile::TempDir;
use testbed::cluster::{Access, AuditEntry, TestSpace, eventually};
use testbed::toy::{Answer, Toy};

use super::fixture::*;
use crate::expansion::{ask_for, has};

/// The API server itself counts the calls, in its audit log.
#[tokio::test]
async fn creating_and_deleting_a_volume_take_two_calls_each() -> anyhow::Result<()> {
    const COUNT: usize = 20;
    let (space, root) = (TestSpace::new("calls").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let audit = space.cluster().audit_log()?;
    let _program = started(&space, &access, root.path(), &[]).await?;
    // A class that explicitly does not enforce sizes causes no event about it.
    let class = space.class_with("class", [("enforceSize", "false")]).await?;
    let delete_all = async || -> anyhow::Result<()> {
        space.delete_claims().await?;
        let empty = eventually(2 * SOON, async || Ok(space.volumes().await?.is_empty().then_some(()))).await?;
        empty.ok_or_else(|| anyhow::anyhow!("volumes still exist"))
    };
    // Before the first deletion, the controller does not know that the provisioner has no `should_delete`, and reads
    // the volume for it.
    space.create_claims(&class, 1).await?;
    space.wait_all_bound(1, 4 * SOON).await?;
    delete_all().await?;
    space.create_claims(&class, COUNT).await?;
    space.wait_all_bound(COUNT, 4 * SOON).await?;
    // Each call for the journal covers many volumes.
    let calls = async |what: &str, expected: &[(&str, usize)], most_shared: usize| -> anyhow::Result<()> {
        let (mut seen, mut shared) = (BTreeMap::new(), 0);
        let as_expected = eventually(SOON, async || {
            seen.clear();
            let entries = audit.entries_of(&access.user)?;
            // If another client writes in the meantime, the provisioner reads the object and repeats the call.
            let contested: BTreeSet<&str> =
                entries.iter().filter(|entry| entry.code == 409).map(|entry| entry.name.as_str()).collect();
            let repeated = |entry: &&AuditEntry| {
                entry.code == 409 || (entry.verb == "get" && contested.contains(entry.name.as_str()))
            };
            for entry in entries.iter().filter(|entry| !entry.resource.is_empty() && !repeated(entry)) {
                *seen.entry(testbed::rights::used(entry)).or_insert(0) += 1;
            }
            seen.retain(|call: &String, _| {
                // The provisioner reads the cluster's id only once.
                let of_the_fleet = ["authorization", "leases", "namespaces"].iter().any(|part| call.contains(part));
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

/// Compares the permissions in the roles with the requests in the API server's audit log, which must be equal.
#[tokio::test]
async fn granted_permissions_are_minimal() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("rights").await?, tempfile::tempdir()?);
    let access = account(&space).await?;
    let audit = space.cluster().audit_log()?;
    let mut program = started(&space, &access, root.path(), &[]).await?;
    let class = space.create_class(space.class("class")).await?;
    let (_, volume) = space.bind(space.claim("claim", &class)).await?;
    // A volume that a user deletes first requires a read of the live object.
    let volumes = space.cluster_api::<PersistentVolume>();
    volumes.delete(&volume.name_any(), &DeleteParams::default()).await?;
    space.delete_claim("claim").await?;
    space.bind(space.claim("second", &class)).await?;
    space.delete_claim("second").await?;
    repeated_failure(&space, &root).await?;
    grown(&space).await?;
    taken_back(&space, &access).await?;
    // After a change of the number of shards, the previous journal is emptied, and the fleet's own Lease is removed at
    // the end.
    assert!(program.terminate(SOON).await?.success());
    let mut sharded = started(&space, &access, root.path(), &["--shards", "2"]).await?;
    space.bind(space.claim("third", &class)).await?;
    assert!(sharded.terminate(SOON).await?.success());
    let account = Account { name: ACCOUNT, namespace: space.namespace() };
    let granted = testbed::rights::granted(&manifests(&account, &account_rules(&space)));
    let mut used = BTreeSet::new();
    let found = eventually(SOON, async || {
        let entries = audit.entries_of(&access.user)?;
        used = entries
            .iter()
            .filter(|entry| !entry.resource.is_empty())
            .map(testbed::rights::used)
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

/// Needed only for a claim that looks unbound after its volume was deleted; see `still_unbound` in the library.
const NEEDED_IN_RARE_CASES: [&str; 1] = ["get persistentvolumeclaims"];

/// Expands a claim.
async fn grown(space: &TestSpace) -> anyhow::Result<()> {
    let mut class = space.class("growing");
    class.allow_volume_expansion = Some(true);
    let class = space.create_class(class).await?;
    space.bind(space.claim("growing", &class)).await?;
    ask_for(space, "growing", "2Mi").await?;
    space.wait_for(&space.api(), "growing", "grown", |claim| has(claim, "2Mi")).await.map(drop)
}

/// Causes a repeated event, which becomes one event with a count.
async fn repeated_failure(space: &TestSpace, root: &TempDir) -> anyhow::Result<()> {
    let class = space.waiting_class_with("waits", []).await?;
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

/// Runs a provisioner with the same account that requests another node for its claim.
async fn taken_back(space: &TestSpace, access: &Access) -> anyhow::Result<()> {
    let toy = Toy::new().on_provision(|_, _| Answer::Failed(ProvisionError::reschedule("no room")));
    let mut options = testbed::toy::options(space);
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
async fn missing_permission_is_reported_by_name() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("forbidden").await?, tempfile::tempdir()?);
    for (at, missing) in
        ["create persistentvolumes", "watch storageclasses", "patch persistentvolumeclaims", "update configmaps"]
            .into_iter()
            .enumerate()
    {
        let (verb, resource) = missing.split_once(' ').unwrap();
        let name = format!("account-{at}");
        let rules = rules(&Options::new(space.provisioner()), &capabilities(), &[]);
        let mut objects = manifests(&Account { name: &name, namespace: space.namespace() }, &rules);
        let all_rules = objects.iter_mut().filter_map(|object| object.get_mut("rules")?.as_array_mut()).flatten();
        for rule in all_rules.filter(|rule| rule["resources"][0] == resource) {
            rule["verbs"].as_array_mut().unwrap().retain(|granted| granted != verb);
        }
        space.apply(&objects).await?;
        let access = space.access_of(&name).await?;
        let mut program = start(&space, &access, root.path(), &[])?;
        assert!(!program.ended(SOON).await?.success());
        let last = program.output().lines().last().unwrap_or_default().to_owned();
        assert!(last.contains(verb) && last.contains(resource), "{missing}: {last}");
    }
    space.done().await
}
