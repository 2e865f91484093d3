//! Decisions about expanding a claim's volume, and the target size.

use super::*;
use crate::controller::volume::decision::{NoAction, Refusal};

/// The claim from [`claim`], bound to its volume of 1Gi, and requesting 2Gi.
pub(super) fn growing(change: Value) -> Value {
    let grows = json!({
        "metadata": {"resourceVersion": "30"},
        "spec": {"resources": {"requests": {"storage": "2Gi"}}, "volumeName": "pvc-uid-1-1"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    });
    claim(with(grows, change))
}

/// The volume of the growing claim.
pub(super) fn bound_volume(change: Value) -> Value {
    let bound = json!({
        "metadata": {"name": "pvc-uid-1-1", "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"]},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": "claim-1", "uid": "uid-1-1"},
        },
    });
    volume("Bound", "Delete", with(bound, change))
}

fn decided(claim: Value, volume: Value) -> Decision {
    let able = Fixture::able(Capabilities::default().expansion());
    able.class(class(json!({}))).claim(growing(claim)).volume(bound_volume(volume)).about_claim()
}

fn expand(gi: u64) -> Decision {
    Decision::Expand { bytes: gi << 30 }
}

fn allocated(status: &str, size: &str) -> Value {
    json!({"status": {"allocatedResources": {"storage": size}, "allocatedResourceStatuses": {"storage": status}}})
}

// Rules: X1.
#[test]
fn expands_a_bound_claim_that_requests_more() {
    assert_eq!(decided(json!({}), json!({})), expand(2));
    assert_eq!(
        decided(
            json!({}),
            json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"},
        "metadata": {"finalizers": []}})
        ),
        expand(2)
    );
    assert_eq!(decided(json!({"spec": {"volumeMode": "Block"}}), json!({})), expand(2));
    let enough = json!({"spec": {"resources": {"requests": {"storage": "1024Mi"}}}});
    assert_eq!(decided(enough, json!({})), Decision::NoAction(NoAction::Bound));
}

// Rules: X2.
#[test]
fn does_not_expand_unbound_or_foreign_volumes_or_during_deletion() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let bound = Decision::NoAction(NoAction::Bound);
    assert_eq!(decided(deleting.clone(), json!({})), bound);
    assert_eq!(decided(json!({}), deleting), Decision::NoAction(NoAction::VolumeTerminating));
    assert_eq!(decided(json!({}), json!({"spec": {"claimRef": {"uid": "uid-of-former"}}})), bound);
    assert_eq!(decided(json!({"spec": {"volumeName": "another"}}), json!({})), bound);
    assert_eq!(decided(json!({"status": {"phase": "Pending"}}), json!({})), bound);
    assert_eq!(decided(json!({"status": {"capacity": null}}), json!({})), bound);
    let elsewhere = json!({"metadata": {"annotations": {"kube-provisioner/identity": "elsewhere"}}});
    assert_eq!(decided(json!({}), elsewhere), Decision::NoAction(NoAction::OtherInstallation));
}

// Rules: X11.
/// The volume was adopted, restored, or created by a populator: its claim may name no provisioner.
#[test]
fn expands_a_volume_that_is_not_named_after_its_claim() {
    let of_claim = json!({
        "spec": {"capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": "claim-1", "uid": "uid-1-1"}},
        "metadata": {"finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"]},
    });
    let bound = |change: Value| growing(with(json!({"spec": {"volumeName": "volume-1"}}), change));
    let able =
        || Fixture::able(Capabilities::default().expansion()).volume(volume("Bound", "Delete", of_claim.clone()));
    for asks in [
        json!({}),
        json!({"metadata": {"annotations": null}}),
        json!({"metadata": {"annotations": {
        "volume.beta.kubernetes.io/storage-provisioner": OTHER}}}),
    ] {
        let mut fixture = able();
        assert_eq!(fixture.about_volume(), Decision::NoAction(NoAction::Bound));
        assert!(fixture.put_claim(bound(asks.clone())).contains(&Key::of_volume("volume-1")));
        assert_eq!(fixture.about_volume(), expand(2));
        // Echoes of our own writes, and changes to a foreign claim.
        let marked =
            with(allocated("ControllerResizeInProgress", "2Gi"), json!({"metadata": {"resourceVersion": "31"}}));
        fixture.cache.observe_claim(sent(bound(with(asks.clone(), marked))));
        let facts = fixture.cache.facts(&Key::of_volume("volume-1"));
        assert_eq!(facts.growing().map(|growing| &*growing.resource_version), Some("31"));
        fixture.put_claim(bound(json!({"metadata": {"uid": "uid-2", "name": "pending", "resourceVersion": "32"},
            "status": {"phase": "Pending"}})));
        assert_eq!(fixture.about_volume(), expand(2));
        let has = json!({"metadata": {"resourceVersion": "33"}, "status": {"capacity": {"storage": "2Gi"}}});
        assert!(fixture.put_claim(bound(with(asks.clone(), has))).contains(&Key::of_volume("volume-1")));
        assert_eq!(fixture.about_volume(), Decision::NoAction(NoAction::Bound));
    }
    let mut fixture = able().claim(bound(json!({})));
    fixture.cache.claim_event(Change::Deleted(sent(bound(json!({})))), 0);
    assert_eq!(fixture.about_volume(), Decision::NoAction(NoAction::Bound));
    let mut fixture = able().claim(bound(json!({})));
    fixture.cache.claim_event(Change::Begin, 0);
    assert!(fixture.cache.claim_event(Change::Ready, 0).contains(&Key::of_volume("volume-1")));
    assert_eq!(fixture.about_volume(), Decision::NoAction(NoAction::Bound));
    let of_another = json!({"spec": {"claimRef": {"uid": "uid-of-former"}}});
    let fixture = able().volume(volume("Bound", "Delete", with(of_claim.clone(), of_another))).claim(bound(json!({})));
    assert_eq!(fixture.about_volume(), Decision::NoAction(NoAction::Bound));
    // The replica of each node treats the volume as foreign.
    let fixture = Fixture::able(Capabilities::default().expansion()).on_node("node-1");
    let fixture = fixture.volume(volume("Bound", "Delete", of_claim.clone())).claim(bound(json!({})));
    assert_eq!(fixture.about_volume(), Decision::Refuse(Refusal::Unadopted));
}

// Rules: X3.
#[test]
fn refuses_expansion_that_the_author_does_not_declare() {
    let decided = |capabilities: Capabilities| {
        Fixture::able(capabilities).claim(growing(json!({}))).volume(bound_volume(json!({}))).about_claim()
    };
    assert_eq!(decided(Capabilities::default()), Decision::Refuse(Refusal::Expansion));
    assert_eq!(decided(Capabilities::default().expanded_elsewhere()), Decision::NoAction(NoAction::Bound));
}

// Rules: X4.
#[test]
fn finishes_an_expansion_before_it_reads_the_next_request() {
    let less = |status: &str| {
        let request = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        decided(with(request, allocated(status, "5Gi")), json!({}))
    };
    assert_eq!(less("ControllerResizeInProgress"), expand(5));
    assert_eq!(less("ControllerResizeInfeasible"), expand(2));
    let more = json!({"spec": {"resources": {"requests": {"storage": "9Gi"}}}});
    assert_eq!(decided(with(more, allocated("ControllerResizeInProgress", "5Gi")), json!({})), expand(5));
}

// Rules: X5.
#[test]
fn a_volume_never_shrinks() {
    assert_eq!(decided(json!({}), json!({"spec": {"capacity": {"storage": "3Gi"}}})), expand(3));
}

// Rules: X6.
#[test]
fn compares_sizes_by_value_and_keeps_the_claims_notation() {
    let claim = with(growing(json!({})), allocated("ControllerResizeInProgress", "1536Mi"));
    let fixture = Fixture::new().claim(claim).volume(bound_volume(json!({})));
    let facts = fixture.cache.facts(&Key::of_claim("uid-1-1"));
    let growing = facts.growing().unwrap();
    let texts = [1536 << 20, 2 << 30, 3 << 30].map(|bytes| growing.text(bytes));
    assert_eq!(texts, ["1536Mi", "2Gi", "3Gi"]);
}

// Rules: X7.
#[test]
fn our_own_writes_do_not_end_a_back_off() {
    let mut fixture = Fixture::new().claim(growing(json!({}))).volume(bound_volume(json!({})));
    let key = Key::of_claim("uid-1-1");
    let before = fixture.cache.inputs(&key);
    let marked = allocated("ControllerResizeInProgress", "2Gi");
    fixture.put_claim(growing(with(marked, json!({"metadata": {"resourceVersion": "31"}}))));
    assert_eq!(fixture.cache.inputs(&key), before);
    let more = json!({"metadata": {"resourceVersion": "32"}, "spec": {"resources": {"requests": {"storage": "3Gi"}}}});
    fixture.put_claim(growing(more));
    assert_ne!(fixture.cache.inputs(&key), before);
}
