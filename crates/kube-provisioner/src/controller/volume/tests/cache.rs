//! The contents of the cache, and the keys that a change wakes.

use std::sync::Arc;

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::controller::volume::decision::{NoAction, Refusal};
use crate::controller::volume::facts::{ClaimState, ClassState, Pending, Progress, UnsavedVolume, VolumeState};
use crate::object_watch::Trigger;

fn key() -> Key {
    Key::of_claim("uid-1-1")
}

fn delete_claim(fixture: &mut Fixture, claim: Value) -> Vec<Key> {
    fixture.cache.claim_event(Change::Deleted(sent(claim)), 0)
}

fn delete_volume(fixture: &mut Fixture, volume: Value) -> Vec<Key> {
    fixture.cache.volume_event(Change::Deleted(sent(volume)), 0)
}

/// Begins the work that the claim requests.
fn begin(fixture: &mut Fixture) {
    let facts = fixture.cache.facts(&key());
    let (ClaimState::Waiting(claim), ClassState::Ours(class)) = (facts.claim, facts.class) else {
        panic!("waiting for us");
    };
    fixture
        .cache
        .set_progress(&key(), Progress::Background(Arc::new(Pending { claim, class, token: "t".into(), ..pending() })));
}

/// Begins the work that the claim requests, and creates its asset.
fn begin_saving(fixture: &mut Fixture) -> UnsavedVolume {
    begin(fixture);
    let Progress::Background(pending) = fixture.cache.facts(&key()).progress else { panic!("begun") };
    let unsaved = UnsavedVolume { name: key().to_string(), pending, body: Vec::new(), warning: None, after: None };
    fixture.cache.set_progress(&key(), Progress::Unsaved(Arc::new(unsaved.clone())));
    unsaved
}

fn saved() -> Value {
    volume("Pending", "Delete", json!({"metadata": {"name": "pvc-uid-1-1"}, "spec": {"claimRef": {"uid": "uid-1-1"}}}))
}

// Rules: G4.
#[test]
fn class_changes_wake_the_claims_that_name_the_class() {
    let mut fixture = Fixture::new().claim(claim(json!({})));
    let wakes = |fixture: &mut Fixture, event| fixture.class_event(event);
    assert_eq!(wakes(&mut fixture, Change::Applied(sent(class(json!({}))))), [key()]);
    assert_eq!(fixture.about_claim(), Decision::Provision);
    let before = fixture.cache.inputs(&key());
    let other = class(json!({"metadata": {"uid": "second", "resourceVersion": "2"}}));
    assert_eq!(wakes(&mut fixture, Change::Applied(sent(other.clone()))), [key()]);
    assert_ne!(fixture.cache.inputs(&key()), before, "a change of class cuts a pause short");
    assert_eq!(wakes(&mut fixture, Change::Deleted(sent(other))), [key()]);
    delete_claim(&mut fixture, claim(json!({})));
    assert_eq!(wakes(&mut fixture, Change::Applied(sent(class(json!({}))))), []);
}

// Rules: G4.
#[test]
fn relist_without_a_class_wakes_its_claims() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    assert_eq!(fixture.class_event(Change::Begin), []);
    assert_eq!(fixture.class_event(Change::Ready), [key()]);
    assert!(matches!(fixture.about_claim(), Decision::Refuse(_)));
}

// Rules: G3, N3.
#[test]
fn only_relevant_changes_alter_the_inputs() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    let before = fixture.cache.inputs(&key());
    let touched =
        claim(json!({"metadata": {"resourceVersion": "11", "labels": {"x": "y"}, "annotations": {"other": "1"}},
        "status": {"conditions": [{"type": "Unused"}]}}));
    fixture.put_claim(touched);
    assert_eq!(fixture.cache.inputs(&key()), before);
    let moved = claim(
        json!({"metadata": {"resourceVersion": "12", "annotations": {"volume.kubernetes.io/selected-node": "n"}}}),
    );
    fixture.put_claim(moved);
    assert_ne!(fixture.cache.inputs(&key()), before);
}

#[test]
fn foreign_objects_are_not_kept() {
    let mut fixture = Fixture::new();
    let foreign = claim(json!({"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": OTHER}}}));
    assert_eq!(fixture.put_claim(foreign.clone()), []);
    assert!(matches!(fixture.cache.facts(&key()).claim, ClaimState::Absent));
    fixture.put_claim(claim(json!({})));
    assert_eq!(fixture.put_claim(foreign), [key()], "wakes a claim that now names another provisioner");
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::Unrelated));
}

#[test]
fn stale_answers_do_not_undo_newer_ones() {
    let mut fixture =
        Fixture::new().class(class(json!({}))).claim(claim(json!({"metadata": {"resourceVersion": "12"}})));
    let older = claim(
        json!({"metadata": {"resourceVersion": "9", "annotations": {"volume.kubernetes.io/selected-node": "n"}}}),
    );
    assert_eq!(fixture.put_claim(older), []);
    fixture.put_volume(with(saved(), json!({"metadata": {"resourceVersion": "30"}, "status": {"phase": "Bound"}})));
    assert_eq!(fixture.put_volume(with(saved(), json!({"metadata": {"resourceVersion": "29"}}))), []);
}

// Rules: G1.
#[test]
fn an_answer_newer_than_the_watch_is_kept() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    fixture.put_claim(claim(json!({"metadata": {"resourceVersion": "12"}, "spec": {"volumeName": "other"}})));
    assert_eq!(fixture.put_claim(claim(json!({"metadata": {"resourceVersion": "11"}}))), []);
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::Bound));
}

// Rules: G1.
/// The watch shows that the volume was created and deleted before our own request is answered.
#[test]
fn a_late_answer_does_not_revive_a_deleted_volume() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    fixture.put_volume(saved());
    delete_volume(&mut fixture, saved());
    fixture.cache.apply_saved(&key(), sent(saved()));
    assert_eq!(fixture.about_claim(), Decision::Confirm);
}

// Rules: G1.
/// The same late answer, while the provisioner has not yet released the resources of the attempt.
#[test]
fn a_late_answer_does_not_revive_a_volume_whose_attempt_has_not_ended() {
    let able = Fixture::able(Capabilities::default().attempt_end());
    let mut fixture = able.class(class(json!({}))).claim(claim(json!({})));
    begin_saving(&mut fixture);
    fixture.put_volume(saved());
    delete_volume(&mut fixture, saved());
    fixture.cache.apply_saved(&key(), sent(saved()));
    assert_eq!(fixture.about_claim(), Decision::Provision);
}

// Rules: G1.
/// A read of an object is answered after the watch has shown its deletion.
#[test]
fn an_old_read_does_not_revive_a_deleted_object() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({}))).volume(saved());
    fixture.cache.observe_volume(sent(with(saved(), json!({"metadata": {"resourceVersion": "7"}}))));
    fixture.cache.observe_claim(sent(claim(json!({"metadata": {"resourceVersion": "12"}}))));
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::Provisioned));
    delete_claim(&mut fixture, claim(json!({})));
    delete_volume(&mut fixture, saved());
    fixture.cache.observe_volume(sent(saved()));
    fixture.cache.observe_claim(sent(claim(json!({}))));
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::Unrelated));
}

// Rules: G1.
#[test]
fn a_stale_claim_is_read_before_it_receives_another_volume() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({}))).volume(saved());
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::Provisioned));
    assert_eq!(delete_volume(&mut fixture, saved()), [key()]);
    assert_eq!(fixture.about_claim(), Decision::Confirm);
    fixture.put_claim(claim(json!({"metadata": {"resourceVersion": "11"}, "spec": {"volumeName": "pvc-uid-1-1"}})));
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::Bound));
    assert!(matches!(fixture.cache.facts(&key()).progress, Progress::None));
}

// Rules: G1.
/// A read of the claim is in progress while an entry for it is adopted.
#[test]
fn reading_a_claim_keeps_an_attempt_that_is_adopted_at_the_same_time() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    fixture.cache.confirm_first(&key());
    assert_eq!(fixture.about_claim(), Decision::Confirm);
    begin(&mut fixture);
    fixture.cache.confirmed(&key());
    assert!(fixture.cache.unfinished(&key()));
}

// Rules: G1.
/// The previous replica may have created, bound and deleted the claim's volume unseen.
#[test]
fn a_claim_from_before_the_shard_was_acquired_is_read_first() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    fixture.cache.claims_stale_before(20);
    fixture.cache.revalidate_claims(20, 0, |_| true);
    assert_eq!(fixture.about_claim(), Decision::Provision, "the watch has reached that version");
    fixture.cache.volumes_stale_before(15);
    fixture.cache.revalidate_claims(20, 14, |_| true);
    assert_eq!(fixture.about_claim(), Decision::Confirm, "the watch of volumes is behind");
    fixture.cache.set_progress(&key(), Progress::None);
    fixture.cache.revalidate_claims(19, 0, |_| false);
    assert_eq!(fixture.about_claim(), Decision::Provision, "the claim is in another shard");
    fixture.cache.revalidate_claims(19, 0, |_| true);
    assert_eq!(fixture.about_claim(), Decision::Confirm);
    fixture.cache.set_progress(&key(), Progress::None);
    let at = |version: u64| claim(json!({"metadata": {"resourceVersion": version.to_string()}}));
    fixture.cache.claim_event_at(19, Change::Applied(sent(at(19))), 0);
    assert_eq!(fixture.about_claim(), Decision::Confirm, "the watch is behind");
    fixture.cache.set_progress(&key(), Progress::None);
    fixture.cache.claim_event_at(21, Change::Applied(sent(at(21))), 0);
    assert_eq!(fixture.about_claim(), Decision::Provision);
}

// Rules: C24.
#[test]
fn background_work_is_cleaned_up_when_its_claim_is_deleted() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    begin(&mut fixture);
    assert_eq!(fixture.about_claim(), Decision::Provision);
    assert_eq!(delete_claim(&mut fixture, claim(json!({}))), [key()]);
    assert_eq!(fixture.about_claim(), Decision::CleanUp);
    assert_eq!(fixture.cache.unsettled(&|_| true), [key()]);
    fixture.put_volume(saved());
    assert!(matches!(fixture.cache.facts(&key()).progress, Progress::None));
}

// Rules: G2.
#[test]
fn a_deleted_asset_is_remembered_until_its_volume_is_deleted() {
    let released = || volume("Released", "Delete", json!({}));
    let mut fixture = Fixture::new().volume(released());
    let key = Key::of_volume("volume-1");
    fixture.cache.backend_deleted(&key, "volume-uid", false);
    assert_eq!(fixture.about_volume(), Decision::FinishDelete);
    fixture.cache.backend_deleted(&key, "volume-uid", true);
    assert_eq!(fixture.about_volume(), Decision::NoAction(NoAction::VolumeTerminating));
    delete_volume(&mut fixture, released());
    assert!(matches!(fixture.cache.facts(&key).progress, Progress::None));
    // Another volume with the same name.
    fixture.put_volume(with(released(), json!({"metadata": {"uid": "second", "resourceVersion": "40"}})));
    assert!(matches!(fixture.about_volume(), Decision::Delete(_)));
    fixture.cache.backend_deleted(&key, "volume-uid", true);
    assert!(
        matches!(fixture.about_volume(), Decision::Delete(_)),
        "an answer about the first volume does not affect the second"
    );
}

// Rules: G17.
#[test]
fn malformed_objects_change_nothing_and_block_no_claim() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    for broken in [
        json!({}),
        json!({"metadata": null}),
        json!({"metadata": {"name": "claim-2", "annotations": {"volume.kubernetes.io/storage-provisioner": OURS}}}),
        claim(json!({"metadata": {"uid": null}})),
    ] {
        assert_eq!(fixture.put_claim(broken.clone()), [], "{broken}");
    }
    // An object with a uid is present, and its state must be reported.
    for broken in [json!("text"), json!({"accessModes": {"a": 1}})] {
        let broken = claim(json!({"metadata": {"uid": "uid-2"}, "spec": broken}));
        assert_eq!(fixture.put_claim(broken.clone()), [Key::of_claim("uid-2")], "{broken}");
        assert!(is_unreadable(&fixture.decision("pvc-uid-2")));
    }
    for broken in [
        json!({}),
        json!({"metadata": {"name": "v"}, "spec": 7}),
        volume("Released", "Delete", json!({"metadata": {"uid": null}})),
    ] {
        fixture.put_volume(broken);
    }
    assert_eq!(fixture.about_volume(), Decision::NoAction(NoAction::Unrelated));
    assert_eq!(fixture.about_claim(), Decision::Provision);
    let bare = claim(json!({"metadata": {"uid": "uid-3"}, "spec": null}));
    fixture.put_claim(bare);
    assert!(matches!(fixture.decision("pvc-uid-3"), Decision::Refuse(_)));
}

// Rules: G16.
#[test]
fn class_parameters_are_parsed_once_per_version() {
    static PARSED: AtomicUsize = AtomicUsize::new(0);

    struct Counted(());

    impl<'de> serde::Deserialize<'de> for Counted {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            PARSED.fetch_add(1, Ordering::Relaxed);
            <()>::deserialize(deserializer).map(Self)
        }
    }

    struct Counting;

    impl Provisioner for Counting {
        type Parameters = Counted;
        async fn provision(&self, request: ProvisionRequest<Counted>) -> Result<Volume, ProvisionError> {
            let Counted(()) = *request.parameters;
            Ok(Volume::nfs("server", request.name))
        }
        async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
            Ok(())
        }
    }

    impl Hooks for Counting {}

    let mut fixture = Fixture::new();
    let event = read_class(Change::Applied(sent(class(json!({})))), &fixture.rules, &Counting);
    fixture.cache.class_event(event);
    for uid in ["a", "b", "c"] {
        fixture.put_claim(claim(json!({"metadata": {"uid": uid}})));
        fixture.cache.facts(&Key::of_claim(uid));
    }
    assert_eq!(PARSED.load(Ordering::Relaxed), 1);
}

// Rules: L2, L3, L4.
#[test]
fn class_changes_alter_the_inputs_but_locks_do_not() {
    let lock = |holder: &str| {
        let record = json!({ "holderIdentity": holder, "leaseDurationSeconds": 15 }).to_string();
        json!({"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": record}}})
    };
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    let unlocked = fixture.cache.inputs(&key());
    fixture.put_claim(claim(lock("they")));
    assert_eq!(fixture.cache.inputs(&key()), unlocked, "l2: only the lock changed");
    assert_eq!(fixture.cache.unsettled(&|_| true), [key()], "l3: a resync still processes it");
    let fixture = fixture.class(class(json!({"metadata": {"resourceVersion": "99"}})));
    assert_ne!(fixture.cache.inputs(&key()), unlocked, "l4: the class changed");
}

// Rules: G42.
#[test]
fn reports_an_attempt_whose_name_a_foreign_volume_has() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    begin(&mut fixture);
    fixture.put_volume(with(saved(), json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": OTHER}}})));
    assert_eq!(fixture.about_claim(), Decision::Refuse(Refusal::NameTaken));
    delete_claim(&mut fixture, claim(json!({})));
    assert_eq!(fixture.about_claim(), Decision::Refuse(Refusal::NameTaken));
    fixture.cache.set_progress(&key(), Progress::None);
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::Unrelated));
}

// Rules: G49.
#[test]
fn an_attempt_whose_class_was_recreated_is_cleaned_up() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    begin(&mut fixture);
    let touched = class(json!({"metadata": {"resourceVersion": "2", "labels": {"a": "b"}}}));
    let fixture = fixture.class(touched);
    assert_eq!(fixture.about_claim(), Decision::Provision, "the same class");
    let mut fixture = fixture.class(class(json!({"metadata": {"uid": "anew", "resourceVersion": "9"}})));
    assert_eq!(fixture.about_claim(), Decision::CleanUp);
    fixture.class_event(Change::Deleted(sent(class(json!({})))));
    assert_eq!(fixture.about_claim(), Decision::Provision, "a deleted class may be recreated");
    let fixture =
        fixture.class(class(json!({"provisioner": OTHER, "metadata": {"uid": "other", "resourceVersion": "11"}})));
    assert_eq!(fixture.about_claim(), Decision::CleanUp);
}

// Rules: G17.
#[test]
fn an_unreadable_class_does_not_end_an_attempt() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    begin(&mut fixture);
    for damage in [json!({"mountOptions": 7}), json!({"provisioner": 7})] {
        fixture = fixture.class(class(damage.clone()));
        assert_eq!(fixture.about_claim(), Decision::Provision, "{damage}");
    }
}

// Rules: G49.
#[test]
fn an_attempt_whose_claim_is_being_deleted_is_cleaned_up() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    begin(&mut fixture);
    fixture
        .put_claim(claim(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "11"}})));
    assert_eq!(fixture.about_claim(), Decision::CleanUp);
}

// Rules: G50.
#[test]
fn a_possibly_stale_volume_does_not_end_an_attempt() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    fixture.cache.volumes_stale_before(20);
    begin(&mut fixture);
    fixture.put_volume(saved());
    assert_eq!(fixture.about_claim(), Decision::ConfirmVolume, "the volume has version 20");
    fixture.cache.remove_volume(&key());
    assert_eq!(fixture.about_claim(), Decision::Provision);
    fixture.put_volume(with(saved(), json!({"metadata": {"resourceVersion": "21"}})));
    assert!(matches!(fixture.cache.facts(&key()).progress, Progress::None));
}

// Rules: G50.
#[test]
fn a_terminating_volume_does_not_end_an_unsaved_attempt() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    let unsaved = begin_saving(&mut fixture);
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "21"}});
    fixture.put_volume(with(saved(), deleted));
    assert_eq!(fixture.about_claim(), Decision::Save, "saving compares the two assets");
    let after = saved()["metadata"]["uid"].as_str().map(Arc::from);
    fixture.cache.set_progress(&key(), Progress::Unsaved(Arc::new(UnsavedVolume { after, ..unsaved })));
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::VolumeTerminating), "waits for the deletion");
    fixture.cache.remove_volume(&key());
    assert_eq!(fixture.about_claim(), Decision::Provision, "with the prepared value");
}

// Rules: G50.
#[test]
fn ignores_an_answer_that_is_older_than_a_list() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    fixture.put_volume(saved());
    fixture.cache.claim_event(Change::Begin, 0);
    fixture.cache.volume_event(Change::Begin, 0);
    fixture.cache.observe_claim(sent(claim(json!({"metadata": {"resourceVersion": "12"}}))));
    fixture.cache.observe_volume(sent(with(saved(), json!({"metadata": {"resourceVersion": "29"}}))));
    assert!(matches!(fixture.cache.facts(&key()).claim, ClaimState::Waiting(_)));
    fixture.cache.claim_event(Change::Ready, 30);
    fixture.cache.volume_event(Change::Ready, 30);
    let facts = fixture.cache.facts(&key());
    assert!(matches!(facts.volume, VolumeState::Absent), "{facts:?}");
    assert!(facts.claim_at_work().is_none(), "{facts:?}");
}

// Rules: G50.
#[test]
fn a_saved_volume_exists_unless_a_newer_list_lacks_it() {
    for (listing, exists) in [(19, true), (20, false), (u64::MAX, false)] {
        let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
        begin_saving(&mut fixture);
        fixture.cache.volume_event(Change::Begin, 0);
        fixture.cache.apply_saved(&key(), sent(saved()));
        assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::Provisioned));
        fixture.cache.volume_event(Change::Ready, listing);
        let decision = if exists { Decision::NoAction(NoAction::Provisioned) } else { Decision::Confirm };
        assert_eq!(fixture.about_claim(), decision, "{listing}");
    }
}

// Rules: G50.
/// The server's data was restored from a backup, in which the claim was waiting and the volume was bound.
#[test]
fn restored_objects_replace_newer_states_when_they_are_listed() {
    for (listing, restored) in [(39, false), (41, true), (u64::MAX, true)] {
        let mut fixture = Fixture::new().class(class(json!({})));
        fixture.put_claim(claim(json!({"metadata": {"resourceVersion": "40"}, "spec": {"volumeName": "pvc-uid-1-1"}})));
        fixture.put_volume(volume("Released", "Delete", json!({"metadata": {"resourceVersion": "41"}})));
        let bound = || sent(volume("Bound", "Delete", json!({})));
        fixture.cache.observe_volume(bound());
        assert!(!fixture.cache.shows_volume(&Key::of_volume("volume-1"), "20"), "ignored until it is listed");
        fixture.cache.claim_event(Change::Begin, 0);
        fixture.cache.volume_event(Change::Begin, 0);
        fixture.cache.claim_event(Change::Listed(sent(claim(json!({})))), listing);
        fixture.cache.volume_event(Change::Listed(bound()), listing);
        fixture.cache.claim_event(Change::Ready, 0);
        fixture.cache.volume_event(Change::Ready, 0);
        assert_eq!(fixture.cache.shows_volume(&Key::of_volume("volume-1"), "20"), restored, "{listing}");
        assert_eq!(fixture.about_volume() == Decision::Protect, restored, "{listing}");
        assert_eq!(fixture.about_claim() == Decision::Provision, restored, "{listing}");
    }
}

fn garbled(claim: Value) -> Value {
    with(claim, json!({"spec": {"accessModes": 7}}))
}

fn is_unreadable(decision: &Decision) -> bool {
    matches!(decision, Decision::Refuse(Refusal::Unreadable { problem }) if problem.contains("invalid type"))
}

// Rules: G60.
#[test]
fn an_unreadable_claim_is_present() {
    // The cache did not contain the claim before.
    let mut fixture = Fixture::new().class(class(json!({}))).claim(garbled(claim(json!({}))));
    assert!(is_unreadable(&fixture.about_claim()), "{:?}", fixture.about_claim());
    // The cache contained the claim, and a new list contains an unreadable version.
    fixture.put_claim(claim(json!({"metadata": {"resourceVersion": "11"}})));
    begin(&mut fixture);
    fixture.cache.claim_event(Change::Begin, 0);
    let listed = garbled(claim(json!({"metadata": {"resourceVersion": "12"}})));
    fixture.cache.claim_event(Change::Listed(sent(listed.clone())), 0);
    fixture.cache.claim_event(Change::Ready, 0);
    assert!(is_unreadable(&fixture.about_claim()), "its attempt is not cleaned up: {:?}", fixture.about_claim());
    // The claim is processed as soon as it is repaired.
    assert_eq!(fixture.put_claim(claim(json!({"metadata": {"resourceVersion": "13"}}))), [key()]);
    assert_eq!(fixture.about_claim(), Decision::Provision);
    // The start of its deletion is readable.
    let goes = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "14"}});
    fixture.put_claim(with(listed.clone(), goes));
    assert_eq!(fixture.about_claim(), Decision::CleanUp);
    assert_eq!(delete_claim(&mut fixture, with(listed, json!({"metadata": {"resourceVersion": "15"}}))), [key()]);
    assert!(matches!(fixture.cache.facts(&key()).claim, ClaimState::Absent));
}

// Rules: G60.
#[test]
fn the_volume_of_an_unreadable_claim_is_not_deleted() {
    let released = with(saved(), json!({"status": {"phase": "Released"}}));
    let fixture = Fixture::new().class(class(json!({}))).claim(garbled(claim(json!({})))).volume(released);
    assert_eq!(fixture.about_claim(), Decision::NoAction(NoAction::ClaimStillExists));
}

// Rules: G60.
#[test]
fn an_unreadable_volume_is_present() {
    let damaged = with(saved(), json!({"spec": {"capacity": 7}}));
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    begin(&mut fixture);
    assert_eq!(fixture.put_volume(damaged.clone()), [key()]);
    let decision = fixture.about_claim();
    assert!(matches!(&decision, Decision::Refuse(Refusal::UnreadableVolume { .. })), "{decision:?}");
    assert_eq!(fixture.cache.unsettled(&|_| true), [key()]);
    assert_eq!(delete_volume(&mut fixture, damaged), [key()]);
    assert_eq!(fixture.about_claim(), Decision::Provision);
}

// Rules: G71.
/// A provisioner's watch ends only the back-off of work that waits for the object.
#[test]
fn an_authors_watch_changes_only_the_inputs_of_waiting_work() {
    let source = json!({
        "metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}},
        "spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "source"}},
    });
    let namespace = claim(json!({}))["metadata"]["namespace"].as_str().unwrap().to_owned();
    let released = volume("Released", "Delete", json!({"metadata": {"name": "released"}}));
    let bound = volume("Bound", "Delete", json!({"metadata": {"name": "bound"}}));
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim(source)).volume(released).volume(bound);
    let wake_claims = |name: &str| Trigger::DataSource { namespace: namespace.clone(), name: name.to_owned() };
    let wake_volume = |name: &str| Trigger::Volume(name.to_owned());
    for (wake, keys) in [
        (wake_claims("source"), vec![key()]),
        (wake_claims("other"), vec![]),
        (Trigger::DataSource { namespace: "elsewhere".to_owned(), name: "source".to_owned() }, vec![]),
        (Trigger::SourceNamespace(namespace.clone()), vec![]),
        (Trigger::SelectedNode("node-1".to_owned()), vec![key()]),
        (Trigger::SelectedNode("node-2".to_owned()), vec![]),
        (Trigger::Claims, vec![key()]),
        (wake_volume("released"), vec![Key::of_volume("released")]),
        (wake_volume("bound"), vec![]),
        (wake_volume("unknown"), vec![]),
    ] {
        let all = [key(), Key::of_volume("released"), Key::of_volume("bound")];
        let before = all.each_ref().map(|key| fixture.cache.inputs(key));
        assert_eq!(fixture.cache.wake(&wake), keys, "{wake:?}");
        for (key, before) in all.iter().zip(before) {
            assert_eq!(fixture.cache.inputs(key) != before, keys.contains(key), "{wake:?} {key}");
        }
    }
}

// Rules: G71.
#[test]
fn forgets_the_wakes_of_a_deleted_claim() {
    let mut fixture = Fixture::new().class(class(json!({})));
    let before = fixture.cache.inputs(&key());
    fixture.put_claim(claim(json!({})));
    assert_eq!(fixture.cache.wake(&Trigger::Claims), [key()]);
    delete_claim(&mut fixture, claim(json!({})));
    assert_eq!(fixture.cache.inputs(&key()), before);
    // The attempt of a deleted claim is woken, and then ends or is continued by another process.
    let ends: [fn(&mut VolumeCache); 2] =
        [|cache| cache.set_progress(&key(), Progress::None), |cache| cache.forget(&|_| true)];
    for end in ends {
        fixture.put_claim(claim(json!({})));
        begin(&mut fixture);
        delete_claim(&mut fixture, claim(json!({})));
        assert_eq!(fixture.cache.wake(&Trigger::Claims), [key()]);
        end(&mut fixture.cache);
        assert_eq!(fixture.cache.inputs(&key()), before);
    }
}

// Rules: G71.
#[test]
fn wakes_a_claim_for_its_source_and_its_grant() {
    let source = json!({"kind": "PersistentVolumeClaim", "name": "source", "namespace": "theirs"});
    let claim = claim(json!({"spec": {"dataSourceRef": source}}));
    let own = claim["metadata"]["namespace"].as_str().unwrap().to_owned();
    let mut fixture = Fixture::new().class(class(json!({}))).claim(claim.clone());
    let of_source =
        |namespace: &str| Trigger::DataSource { namespace: namespace.to_owned(), name: "source".to_owned() };
    for (wake, keys) in [
        (of_source("theirs"), vec![key()]),
        // Another object of that name.
        (of_source(&own), vec![]),
        (Trigger::SourceNamespace("theirs".to_owned()), vec![key()]),
        (Trigger::SourceNamespace(own.clone()), vec![]),
    ] {
        assert_eq!(fixture.cache.wake(&wake), keys, "{wake:?}");
    }
    // Work that was begun for a deleted claim also waits.
    begin(&mut fixture);
    delete_claim(&mut fixture, claim);
    assert_eq!(fixture.cache.wake(&Trigger::SourceNamespace("theirs".to_owned())), [key()]);
    assert!(fixture.cache.wake(&Trigger::SourceNamespace(own)).is_empty());
}
