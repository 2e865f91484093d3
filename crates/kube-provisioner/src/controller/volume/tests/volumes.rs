//! Decisions about the ownership and the deletion of volumes.

use super::*;
use crate::controller::volume::decision::{Deletion, NoAction, Refusal};

const GOING: &str = "2026-01-01T00:00:00Z";

fn protected(phase: &str, policy: &str, change: Value) -> Value {
    let finalizers = json!(["kubernetes.io/pv-protection", crate::protocol::FINALIZER]);
    volume(phase, policy, with(json!({"metadata": {"finalizers": finalizers}}), change))
}

fn being_deleted() -> Value {
    json!({"metadata": {"deletionTimestamp": GOING}})
}

fn bare(volume: Value) -> Decision {
    Fixture::without_finalizer().volume(volume).about_volume()
}

fn guarded(volume: Value) -> Decision {
    Fixture::new().volume(volume).about_volume()
}

const DELETES: Decision = Decision::Delete(Deletion::Checked);
const DELETES_PROTECTED: Decision = Decision::Delete(Deletion::Protected);

// Rules: D1, D2, D3, D4, D5, D6, F4, L8.
#[test]
fn deletes_only_released_volumes_that_are_not_retained() {
    let cases = [
        ("Released", "Delete", json!({}), DELETES),
        ("Released", "Delete", json!({"metadata": {"deletionTimestamp": null}}), DELETES),
        ("Released", "Delete", being_deleted(), Decision::NoAction(NoAction::VolumeTerminating)),
        ("Released", "Retain", json!({}), Decision::NoAction(NoAction::Retained)),
        ("Failed", "Delete", json!({}), Decision::NoAction(NoAction::NotReleased)),
        ("Bound", "Delete", json!({}), Decision::NoAction(NoAction::Bound)),
    ];
    for (phase, policy, change, decision) in cases {
        assert_eq!(bare(volume(phase, policy, change.clone())), decision, "{phase}, {policy}, {change}");
    }
    assert_eq!(guarded(volume("Released", "Retain", json!({}))), Decision::NoAction(NoAction::Retained));
}

// Rules: F1, F2, F3.
#[test]
fn deletes_released_protected_volumes_even_during_deletion() {
    for change in [json!({}), being_deleted()] {
        assert_eq!(guarded(protected("Released", "Delete", change.clone())), DELETES_PROTECTED, "{change}");
    }
    assert_eq!(guarded(protected("Bound", "Delete", json!({}))), Decision::NoAction(NoAction::Bound));
}

// Rules: D7.
#[test]
fn deletes_a_volume_migrated_to_us() {
    let migrated = volume(
        "Released",
        "Delete",
        json!({"metadata": {"annotations": {"pv.kubernetes.io/migrated-to": "csi.driver"}}}),
    );
    let fixture = Fixture::with("csi.driver", &[], Capabilities::default(), false).volume(migrated);
    assert_eq!(fixture.about_volume(), DELETES);
}

// Rules: O1, O2, O3, O4, O5, O6, O7, O8, O9, O10, O11.
#[test]
fn recognizes_our_volumes_by_their_annotations_and_driver() {
    let is_ours =
        |we: &str, volume: &Value| Fixture::named(we, &[]).put_volume(volume.clone()) == [Key::of_volume("volume-1")];
    let by_us = |change| volume("Bound", "Delete", change);
    let anonymous = |change| with(by_us(json!({"metadata": {"annotations": null}})), change);
    let migrated = json!({"metadata": {"annotations": {"pv.kubernetes.io/migrated-to": OURS}}});
    let csi = json!({"spec": {"nfs": null, "csi": {"driver": OURS}}});
    let ours = [by_us(json!({})), by_us(migrated.clone()), by_us(csi.clone()), anonymous(csi), anonymous(migrated)];
    for volume in ours {
        assert!(is_ours(OURS, &volume), "{volume}");
        assert!(!is_ours("foo.bar1/baz1", &volume), "{volume}");
    }
    assert!(!is_ours(OURS, &anonymous(json!({}))));
}

#[test]
fn finalizer_is_added_and_removed_by_policy_and_option() {
    assert_eq!(guarded(volume("Bound", "Delete", json!({}))), Decision::Protect);
    assert_eq!(guarded(protected("Bound", "Retain", json!({}))), Decision::Unprotect);
    assert_eq!(guarded(protected("Bound", "Recycle", json!({}))), Decision::Unprotect);
    assert_eq!(bare(protected("Bound", "Delete", json!({}))), Decision::Unprotect);
    let going = volume("Bound", "Delete", being_deleted());
    assert_eq!(guarded(going), Decision::NoAction(NoAction::VolumeTerminating));
}

/// Disabling the option must not lose the asset of a volume that was deleted before its claim.
#[test]
fn deletes_a_protected_volume_with_the_finalizer_disabled() {
    let going = protected("Released", "Delete", being_deleted());
    assert_eq!(bare(going), DELETES_PROTECTED);
}

// Rules: G13.
#[test]
fn keeps_a_released_volume_while_its_claim_exists() {
    let mine = json!({"metadata": {"name": "pvc-uid-1-1"}, "spec": {"claimRef": {"uid": "uid-1-1"}}});
    let released = || volume("Released", "Delete", mine.clone());
    let bound = |going: Value| claim(with(json!({"spec": {"volumeName": "pvc-uid-1-1"}}), going));
    let alive = Fixture::new().claim(bound(json!({}))).volume(released());
    assert_eq!(alive.about_claim(), Decision::NoAction(NoAction::ClaimStillExists));
    let waiting = Fixture::new().claim(claim(json!({}))).volume(released());
    assert_eq!(waiting.about_claim(), Decision::NoAction(NoAction::ClaimStillExists));
    let going = Fixture::new().claim(bound(being_deleted())).volume(released());
    assert_eq!(going.about_claim(), Decision::NoAction(NoAction::ClaimStillExists), "it may still be used");
    let elsewhere = Fixture::new().claim(claim(json!({"spec": {"volumeName": "static"}}))).volume(released());
    assert_eq!(elsewhere.about_claim(), DELETES, "the claim took another volume, ours is surplus");
}

// Rules: G7.
#[test]
fn a_foreign_volume_of_our_name_is_not_touched() {
    let name = json!({"metadata": {"name": "pvc-uid-1-1"}});
    for phase in ["Bound", "Released", "Available"] {
        let ours_for_another = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
        let fixture = ours_for_another.volume(volume(phase, "Delete", name.clone()));
        assert_eq!(fixture.about_claim(), Decision::Refuse(Refusal::NameTaken), "{phase}");
    }
    let of_another = with(volume("Bound", "Delete", name), json!({"metadata": {"annotations": null}}));
    let fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({}))).volume(of_another);
    assert_eq!(fixture.about_claim(), Decision::Refuse(Refusal::NameTaken));
}

// Rules: C2.
#[test]
fn a_provisioned_volume_waits_for_its_binding() {
    let saved = volume(
        "Available",
        "Delete",
        json!({"metadata": {"name": "pvc-uid-1-1"}, "spec": {"claimRef": {"uid": "uid-1-1"}}}),
    );
    let fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({}))).volume(saved);
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::Provisioned));
}

// Rules: G36.
#[test]
fn a_volume_deleted_before_it_is_bound_is_replaced() {
    let going = |phase: &str, claim_uid: &str| {
        let change = json!({
            "metadata": {
                "name": "pvc-uid-1-1", "deletionTimestamp": GOING, "finalizers": [crate::protocol::FINALIZER],
            },
            "spec": {"claimRef": {"namespace": "default", "name": "claim-1", "uid": claim_uid}},
        });
        volume(phase, "Delete", change)
    };
    let decision =
        |claim: Value, volume: Value| Fixture::new().class(class(json!({}))).claim(claim).volume(volume).about_claim();
    let waiting = || claim(json!({}));
    for phase in ["Pending", "Available"] {
        assert_eq!(decision(waiting(), going(phase, "uid-1-1")), Decision::Delete(Deletion::NeverBound), "{phase}");
    }
    let bound = claim(json!({"spec": {"volumeName": "pvc-uid-1-1"}}));
    assert_eq!(decision(bound, going("Available", "uid-1-1")), Decision::NoAction(NoAction::VolumeTerminating));
    assert_eq!(decision(waiting(), going("Bound", "uid-1-1")), Decision::NoAction(NoAction::VolumeTerminating));
}

// Rules: G74.
#[test]
fn reports_a_deleted_volume_whose_claim_ref_was_removed() {
    let unclaimed =
        |phase: &str, change: Value| with(protected(phase, "Delete", change), json!({"spec": {"claimRef": null}}));
    let deleted = |change: Value| with(being_deleted(), change);
    let going = |change: Value| guarded(unclaimed("Available", deleted(change)));
    let kept = Decision::Refuse(Refusal::Unreleased { uid: "volume-uid".to_owned() });
    assert_eq!(going(json!({})), kept);
    let prebound = protected("Available", "Delete", deleted(json!({"spec": {"claimRef": {"uid": ""}}})));
    assert_eq!(guarded(prebound), kept, "only the UID was removed");
    let confirmed = |uid: &str| going(json!({"metadata": {"annotations": {"kube-provisioner/release": uid}}}));
    assert_eq!((confirmed("volume-uid"), confirmed("other")), (DELETES_PROTECTED, kept));
    assert_eq!(going(json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})), Decision::Unprotect);
    // A claim may still use the volume while it is not being deleted.
    assert_eq!(guarded(unclaimed("Available", json!({}))), Decision::NoAction(NoAction::NotReleased));
    // The replicas of other nodes report that its node does not exist.
    let identity = json!({"metadata": {"annotations": {"kube-provisioner/identity": "node-2"}}});
    let elsewhere = unclaimed("Available", deleted(identity));
    let decision = Fixture::new().on_node("node-1").volume(elsewhere).about_volume();
    assert_eq!(decision, Decision::CheckNode { name: "node-2".into() });
}

// Rules: G75.
#[test]
fn adopting_a_volume_retries_failed_work_on_it() {
    use crate::controller::volume::facts::VolumeState;
    let fingerprint = |adopted: &str| {
        let adopted = json!({"metadata": {"annotations": {"kube-provisioner/adopted": adopted}}});
        let fixture = Fixture::new().volume(protected("Released", "Delete", adopted));
        let VolumeState::Ours(volume) = fixture.cache.facts(&Key::of_volume("volume-1")).volume else { panic!() };
        volume.facts.fingerprint()
    };
    assert_eq!(fingerprint("2026-01-01T00:00:00Z"), fingerprint("2026-01-01T00:00:00Z"));
    assert_ne!(fingerprint("2026-01-01T00:00:00Z"), fingerprint("2026-01-02T00:00:00Z"));
}

#[test]
fn does_not_delete_a_volume_of_another_cluster() {
    let made_in = |phase: &str, cluster: Value| {
        let annotations = json!({"metadata": {"annotations": {"kube-provisioner/cluster-id": cluster}}});
        protected(phase, "Delete", annotations)
    };
    let decision = |volume: Value| Fixture::new().volume(volume).about_volume();
    let creator = "other".to_owned();
    assert_eq!(decision(made_in("Released", json!("other"))), Decision::Refuse(Refusal::OtherCluster { creator }));
    assert_eq!(decision(made_in("Bound", json!("other"))), Decision::NoAction(NoAction::OtherCluster));
    for ours in [json!("this"), json!(null)] {
        assert_eq!(decision(made_in("Released", ours)), Decision::Delete(Deletion::Protected));
    }
}

/// Returns the record of the object's creator and the time of creation.
fn created_by(manager: &str, time: &str) -> Value {
    let owned = json!({
        "f:metadata": {"f:annotations": {"f:pv.kubernetes.io/provisioned-by": {}}},
        "f:spec": {"f:claimRef": {"f:uid": {}}},
    });
    json!({"metadata": {
        "annotations": {"kube-provisioner/cluster-id": "this"}, "creationTimestamp": "2026-01-02T00:00:00Z",
        "managedFields": [{"manager": manager, "operation": "Update", "time": time, "fieldsV1": owned}],
    }})
}

// Rules: G59.
#[test]
fn does_not_delete_a_restored_volume_without_its_claim() {
    let decision = |change: Value| Fixture::new().volume(protected("Released", "Delete", change)).about_volume();
    let (ours, now, before) = (crate::protocol::CREATOR, "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z");
    let kept = Decision::Refuse(Refusal::Copy { uid: "volume-uid".to_owned() });
    assert_eq!(decision(created_by(ours, now)), DELETES_PROTECTED);
    assert_eq!(decision(created_by("kubectl-create", now)), kept);
    assert_eq!(decision(created_by("some-backup", now)), kept);
    assert_eq!(decision(created_by(ours, before)), kept, "the record was restored as well");
    // An administrator confirms it, only for this object.
    let says = |uid: &str| {
        let says = json!({"metadata": {"annotations": {"kube-provisioner/release": uid}}});
        decision(with(created_by("kubectl-create", now), says))
    };
    assert_eq!(says("volume-uid"), DELETES_PROTECTED);
    assert_eq!(says("uid-of-the-lost-volume"), kept);
    // A volume that is in use, or to be retained, is treated like any other.
    let bound = Fixture::new().volume(protected("Bound", "Delete", created_by("kubectl-create", now))).about_volume();
    assert_eq!(bound, Decision::NoAction(NoAction::Bound));
}

// Rules: G40.
#[test]
fn does_not_delete_a_volume_of_another_installation() {
    let made_by = |phase: &str, identity: Value| {
        let annotations = json!({"metadata": {"annotations": {"kube-provisioner/identity": identity}}});
        protected(phase, "Delete", annotations)
    };
    let decision = |volume: Value| Fixture::new().volume(volume).about_volume();
    let creator = "there".to_owned();
    assert_eq!(decision(made_by("Released", json!("there"))), Decision::Refuse(Refusal::OtherInstallation { creator }));
    assert_eq!(decision(made_by("Bound", json!("there"))), Decision::NoAction(NoAction::OtherInstallation));
    for ours in [json!("here"), json!(null)] {
        assert_eq!(decision(made_by("Released", ours)), Decision::Delete(Deletion::Protected));
    }
}

// Rules: G41.
#[test]
fn a_per_node_replica_handles_only_its_own_objects() {
    let fixture = || Fixture::new().class(waiting_class()).on_node("node-1");
    let selects =
        |node: &str| claim(json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}}));
    assert_eq!(fixture().claim(selects("node-1")).about_claim(), Decision::Provision);
    let of_another = Decision::CheckNode { name: "node-2".into() };
    assert_eq!(fixture().claim(selects("node-2")).about_claim(), of_another);
    let made_by = |identity: Value| {
        protected("Released", "Delete", json!({"metadata": {"annotations": {"kube-provisioner/identity": identity}}}))
    };
    assert_eq!(fixture().volume(made_by(json!("node-1"))).about_volume(), Decision::Delete(Deletion::Protected));
    assert_eq!(fixture().volume(made_by(json!("node-2"))).about_volume(), of_another);
}

// Rules: G61.
#[test]
fn a_per_node_replica_reports_a_released_unowned_volume() {
    let fixture = |phase: &str, policy: &str| Fixture::new().on_node("node-1").volume(volume(phase, policy, json!({})));
    assert_eq!(fixture("Released", "Delete").about_volume(), Decision::Refuse(Refusal::Unowned));
    assert_eq!(fixture("Bound", "Delete").about_volume(), Decision::NoAction(NoAction::OtherNode));
    assert_eq!(fixture("Released", "Retain").about_volume(), Decision::NoAction(NoAction::OtherNode));
}

// Rules: G13.
/// Volumes that are not named after their claim: static ones, migrated ones, and those bound to another claim since.
#[test]
fn an_existing_claim_is_found_by_its_uid() {
    let of_claim = json!({"spec": {"claimRef": {"namespace": "default", "name": "claim-1", "uid": "uid-1-1"}}});
    let mut fixture = Fixture::new()
        .claim(claim(json!({"spec": {"volumeName": "volume-1"}})))
        .volume(volume("Released", "Delete", of_claim));
    assert_eq!(fixture.about_volume(), Decision::NoAction(NoAction::ClaimStillExists));
    let woken = fixture.cache.claim_event(Change::Deleted(sent(claim(json!({})))), 0);
    assert!(woken.contains(&Key::of_volume("volume-1")), "{woken:?}");
    assert_eq!(fixture.about_volume(), DELETES);
    // The claim waits, and then takes the volume that is named after it.
    let woken = fixture.put_claim(claim(json!({})));
    assert!(woken.contains(&Key::of_volume("volume-1")), "{woken:?}");
    assert_eq!(fixture.about_volume(), Decision::NoAction(NoAction::ClaimStillExists));
    let woken = fixture.put_claim(claim(json!({"spec": {"volumeName": "pvc-uid-1-1"}})));
    assert!(woken.contains(&Key::of_volume("volume-1")), "{woken:?}");
    assert_eq!(fixture.about_volume(), DELETES);
}

// Rules: G47.
#[test]
fn keeps_the_object_if_retain_is_set_during_deletion() {
    let going = protected("Released", "Retain", being_deleted());
    assert_eq!(guarded(going), Decision::Refuse(Refusal::RetainedTooLate));
    let released = protected("Released", "Retain", json!({}));
    assert_eq!(guarded(released), Decision::Unprotect);
    // It was deleted manually while in use: the object should be deleted and the data kept.
    let in_use = protected("Bound", "Retain", being_deleted());
    assert_eq!(guarded(in_use), Decision::Unprotect);
}

// Rules: G47, G48.
#[test]
fn repeats_an_interrupted_deletion_unless_data_is_retained() {
    assert_eq!(bare(volume("Released", "Delete", json!({}))), DELETES);
    assert_eq!(bare(volume("Released", "Retain", json!({}))), Decision::NoAction(NoAction::Retained));
}

// Rules: G3.
/// Otherwise there would be two first attempts without a pause between them.
#[test]
fn deletion_writes_do_not_end_a_back_off() {
    let mut fixture = Fixture::new().volume(protected("Released", "Delete", json!({})));
    let before = fixture.cache.inputs(&Key::of_volume("volume-1"));
    let deleted = with(being_deleted(), json!({"metadata": {"resourceVersion": "21"}}));
    fixture.put_volume(protected("Released", "Delete", deleted));
    assert_eq!(fixture.cache.inputs(&Key::of_volume("volume-1")), before);
    let kept = json!({"metadata": {"resourceVersion": "22"}});
    fixture.put_volume(protected("Released", "Retain", kept));
    assert_ne!(fixture.cache.inputs(&Key::of_volume("volume-1")), before);
}
