//! The permissions that drivers' own manifests grant.

use std::ops::RangeInclusive;
use std::time::Duration;

use csi_sim::{Method, Step};
use kube_provisioner::{Coordination, Options};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{Fixture, cluster};

pub(super) const READ: [&str; 3] = ["get", "list", "watch"];

pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&[&str]]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs.concat()})
}

/// The rules of csi-driver-nfs,
/// <https://github.com/kubernetes-csi/csi-driver-nfs/blob/master/deploy/rbac-csi-nfs.yaml>.
fn of_nfs() -> Value {
    const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
    let mut secrets = rule("", &["secrets"], &[&["get"]]);
    secrets["resourceNames"] = json!(["mount-options"]);
    json!([
        rule("", &["persistentvolumes"], &[&READ, &["create", "patch", "delete"]]),
        rule("", &["persistentvolumeclaims"], &[&READ, &["update"]]),
        rule("storage.k8s.io", &["storageclasses"], &[&READ]),
        rule(SNAPSHOTS, &["volumesnapshotclasses", "volumesnapshots"], &[&READ]),
        rule(SNAPSHOTS, &["volumesnapshotcontents"], &[&READ, &["update", "patch"]]),
        rule(SNAPSHOTS, &["volumesnapshotcontents/status"], &[&["get", "update", "patch"]]),
        rule("", &["events"], &[&READ, &["create", "update", "patch"]]),
        rule("storage.k8s.io", &["csinodes"], &[&READ]),
        rule("", &["nodes"], &[&READ]),
        rule("coordination.k8s.io", &["leases"], &[&READ, &["create", "update", "patch"]]),
        secrets,
    ])
}

/// The same rules without access to Leases.
fn without_leases() -> Value {
    let rules = of_nfs().as_array().unwrap().clone();
    rules.into_iter().filter(|rule| rule["resources"] != json!(["leases"])).collect()
}

impl Fixture {
    /// Grants these rules to the processes with these numbers.
    pub(super) fn grant_role(&self, name: &str, rules: Value, numbers: RangeInclusive<u64>) {
        const GROUP: &str = "rbac.authorization.k8s.io";
        self.create(json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        }));
        let user = |number| json!({"apiGroup": GROUP, "kind": "User", "name": format!("sidecar-{number}")});
        self.create(json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": numbers.map(user).collect::<Vec<_>>(),
        }));
    }
}

/// Returns the number of remaining volumes after a process was killed during five calls and their claims were deleted.
/// The rules `late` are granted two seconds after its start.
async fn volumes_left_by_a_kill(rules: Value, late: Option<Value>, coordination: Coordination) -> usize {
    let fixture = Fixture::on(cluster().rbac().build());
    fixture.grant_role("driver", rules, 1..=2);
    let as_sidecar = |options: &mut Options| {
        options.sidecar_rbac = true;
        options.coordination = coordination;
    };
    let first = fixture.start_with(1, as_sidecar).await;
    if let Some(late) = late {
        sleep(Duration::from_secs(2)).await;
        fixture.grant_role("late", late, 1..=2);
    }
    fixture.driver.script(Method::CreateVolume, vec![Step::work().after(Duration::from_secs(5)); 5]);
    for number in 0..5 {
        fixture.claim(&format!("a{number}"), "fast", json!({}));
    }
    fixture.until("asked", || fixture.creations().len() == 5).await;
    first.abort();
    (0..5).for_each(|number| fixture.delete_claim(&format!("a{number}")));
    fixture.until("made", || fixture.driver.volumes().len() == 5).await;
    let _second = fixture.start_with(2, as_sidecar).await;
    sleep(Duration::from_secs(600)).await;
    fixture.driver.volumes().len()
}

#[tokio::test(start_paused = true)]
async fn kill_leaks_nothing_with_the_permissions_of_the_nfs_driver() {
    assert_eq!(volumes_left_by_a_kill(of_nfs(), None, Coordination::Lease).await, 0);
}

/// The volumes leak, as with external-provisioner. The first paragraph of the guide mentions it.
#[tokio::test(start_paused = true)]
async fn without_lease_permissions_attempts_are_not_recorded() {
    assert_eq!(volumes_left_by_a_kill(without_leases(), None, Coordination::None).await, 5);
}

/// A manifest may create the pod before its role.
#[tokio::test(start_paused = true)]
async fn uses_lease_permissions_granted_after_the_start() {
    assert_eq!(volumes_left_by_a_kill(without_leases(), Some(of_nfs()), Coordination::None).await, 0);
}
