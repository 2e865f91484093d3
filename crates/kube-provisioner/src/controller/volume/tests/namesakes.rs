//! Claims whose volumes would have the same name.

use std::sync::Arc;

use super::*;
use crate::controller::volume::decision::{Deletion, NoAction, Refusal};
use crate::controller::volume::facts::{ClaimState, ClassState, Facts, Pending, Progress, UnsavedVolume};
use crate::controller::volume::names::VolumeNames;

/// Uses names with three characters of the uid, which are `uid` in all tests.
fn fixture() -> Fixture {
    let rules = (*Fixture::new().rules).clone();
    let rules =
        Arc::new(Rules { volume_names: VolumeNames::Chosen { prefix: "v".into(), uid_length: Some(3) }, ..rules });
    Fixture { cache: VolumeCache::new(rules.clone()), rules }.class(class(json!({})))
}

fn key() -> Key {
    Key::of_volume("v-uid")
}

/// Returns `claim-N` with `uid-N`, created in that second.
fn numbered(number: u32, second: u32) -> Value {
    claim(json!({"metadata": {
        "name": format!("claim-{number}"), "uid": format!("uid-{number}"),
        "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
    }}))
}

/// Returns the volume of `claim-N`.
fn volume_of(number: u32, phase: &str) -> Value {
    let claim = json!({"namespace": "default", "name": format!("claim-{number}"), "uid": format!("uid-{number}")});
    let finalizers = json!(["external-provisioner.volume.kubernetes.io/finalizer"]);
    let change = json!({"metadata": {"name": "v-uid", "finalizers": finalizers}, "spec": {"claimRef": claim}});
    volume(phase, "Delete", change)
}

fn name(claim: &ClaimState) -> &str {
    match claim {
        ClaimState::Waiting(claim) => &claim.facts.name,
        ClaimState::Unreadable(claim) => &claim.facts.name,
        ClaimState::Bound { .. } => "bound",
        ClaimState::Absent => "absent",
    }
}

/// Returns the claim that holds the name, and the claims that cannot have it.
fn claims(fixture: &Fixture) -> (String, Vec<String>) {
    let facts = fixture.cache.facts(&key());
    (name(&facts.claim).to_owned(), facts.namesakes.iter().map(|twin| name(&twin.claim).to_owned()).collect())
}

fn decision(fixture: &Fixture) -> Decision {
    fixture.decision("v-uid")
}

/// Returns the decisions about the claims that cannot have the name.
fn of_twins(fixture: &Fixture) -> Vec<Decision> {
    fixture.cache.facts(&key()).namesakes.iter().map(|twin| decide(twin, &fixture.rules)).collect()
}

fn refused_by(claim: &str) -> Decision {
    Decision::Refuse(Refusal::NameShared { rival: format!("\"default/{claim}\"") })
}

/// Returns an attempt for this claim.
fn attempt(number: u32) -> Arc<Pending> {
    let facts = fixture().claim(numbered(number, 0)).cache.facts(&key());
    let Facts { claim: ClaimState::Waiting(claim), class: ClassState::Ours(class), .. } = facts else {
        panic!("waiting for us");
    };
    Arc::new(Pending { claim, class, ..pending() })
}

// Rules: G70.
#[test]
fn the_oldest_claim_holds_the_name_in_any_order() {
    for order in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
        let mut fixture = fixture();
        for number in order {
            // The third claim is older than the others, which were created in the same second.
            let second = if number == 3 { 1 } else { 2 };
            assert_eq!(fixture.put_claim(numbered(number, second)), [key()]);
        }
        assert_eq!(claims(&fixture), ("claim-3".to_owned(), vec!["claim-1".to_owned(), "claim-2".to_owned()]));
        assert_eq!(decision(&fixture), Decision::Provision);
        assert_eq!(of_twins(&fixture), [refused_by("claim-3"), refused_by("claim-3")]);
        // Each deletion only removes its own claim.
        assert_eq!(fixture.cache.claim_event(Change::Deleted(sent(numbered(2, 2))), 0), [key()]);
        assert_eq!(claims(&fixture), ("claim-3".to_owned(), vec!["claim-1".to_owned()]));
        assert_eq!(fixture.cache.claim_event(Change::Deleted(sent(numbered(3, 1))), 0), [key()]);
        assert_eq!(claims(&fixture), ("claim-1".to_owned(), vec![]));
        assert_eq!(fixture.cache.claim_event(Change::Deleted(sent(numbered(1, 2))), 0), [key()]);
        assert_eq!(claims(&fixture), ("absent".to_owned(), vec![]));
    }
}

// Rules: G70.
#[test]
fn a_list_removes_only_the_claims_that_it_lacks() {
    let mut fixture = fixture().claim(numbered(1, 1)).claim(numbered(2, 2));
    assert_eq!(fixture.cache.claim_event(Change::Begin, 0), []);
    assert_eq!(fixture.cache.claim_event(Change::Listed(sent(numbered(2, 2))), 0), [key()]);
    assert_eq!(claims(&fixture).0, "claim-1", "until the list is complete");
    assert_eq!(fixture.cache.claim_event(Change::Ready, 0), [key()]);
    assert_eq!(claims(&fixture), ("claim-2".to_owned(), vec![]));
}

// Rules: G70.
#[test]
fn the_claim_of_a_recorded_attempt_holds_the_name() {
    let mut fixture = fixture().claim(numbered(1, 1)).claim(numbered(2, 2));
    let begun = Arc::into_inner(attempt(2)).unwrap();
    fixture.cache.adopt(&key(), begun);
    assert_eq!(claims(&fixture), ("claim-2".to_owned(), vec!["claim-1".to_owned()]));
    assert_eq!((decision(&fixture), of_twins(&fixture)), (Decision::Provision, vec![refused_by("claim-2")]));
    // The attempt is cleaned up after its claim was deleted, although another claim requests the same name.
    fixture.cache.claim_event(Change::Deleted(sent(numbered(2, 2))), 0);
    assert_eq!((decision(&fixture), of_twins(&fixture)), (Decision::CleanUp, vec![refused_by("claim-2")]));
    fixture.cache.set_progress(&key(), Progress::None);
    assert_eq!((claims(&fixture).0, decision(&fixture)), ("claim-1".to_owned(), Decision::Provision));
}

// Rules: G70.
#[test]
fn an_attempt_that_awaits_adoption_blocks_all_claims() {
    let mut fixture = fixture().claim(numbered(1, 1)).claim(numbered(2, 2));
    fixture.cache.await_adoption(&[key()]);
    let waits = Decision::NoAction(NoAction::AwaitsAdoption);
    assert_eq!((decision(&fixture), of_twins(&fixture)), (waits.clone(), vec![waits]));
}

// Rules: G70.
#[test]
fn the_volume_of_one_claim_is_never_mistaken_for_the_others() {
    let mut fixture = fixture().claim(numbered(1, 1)).claim(numbered(2, 2)).volume(volume_of(2, "Available"));
    assert_eq!(claims(&fixture), ("claim-2".to_owned(), vec!["claim-1".to_owned()]));
    assert_eq!(decision(&fixture), Decision::NoAction(NoAction::Provisioned));
    assert_eq!(of_twins(&fixture), [refused_by("claim-2")]);
    assert_eq!(fixture.cache.unsettled(&|_| true), [key()], "the other claim must receive an event");
    // The claim is bound, and then deleted.
    let bound = with(numbered(2, 2), json!({"spec": {"volumeName": "v-uid"}, "status": {"phase": "Bound"}}));
    fixture.put_claim(bound.clone());
    fixture.put_volume(volume_of(2, "Bound"));
    assert_eq!(decision(&fixture), Decision::NoAction(NoAction::Bound));
    assert_eq!(of_twins(&fixture), [refused_by("claim-2")]);
    fixture.put_volume(volume_of(2, "Released"));
    assert_eq!(decision(&fixture), Decision::NoAction(NoAction::ClaimStillExists));
    fixture.cache.claim_event(Change::Deleted(sent(bound)), 0);
    assert_eq!(claims(&fixture), ("absent".to_owned(), vec!["claim-1".to_owned()]));
    assert_eq!(decision(&fixture), Decision::Delete(Deletion::Protected));
    assert_eq!(of_twins(&fixture), [refused_by("claim-2")]);
    assert_eq!(fixture.cache.volume_event(Change::Deleted(sent(volume_of(2, "Released"))), 0), [key()]);
    assert_eq!((claims(&fixture).0, of_twins(&fixture)), ("claim-1".to_owned(), vec![]));
    assert!(matches!(decision(&fixture), Decision::Confirm | Decision::Provision));
}

// Rules: G70.
#[test]
fn a_bound_claim_holds_the_name_before_its_volume_appears() {
    let bound = with(numbered(2, 2), json!({"spec": {"volumeName": "v-uid"}, "status": {"phase": "Bound"}}));
    let mut fixture = fixture().claim(numbered(1, 1)).claim(bound);
    assert_eq!((claims(&fixture).0, decision(&fixture)), ("bound".to_owned(), Decision::NoAction(NoAction::Bound)));
    assert!(matches!(&of_twins(&fixture)[..], [Decision::Refuse(Refusal::NameShared { .. })]));
    // A claim with another volume needs no name.
    let elsewhere =
        with(numbered(2, 2), json!({"metadata": {"resourceVersion": "11"}, "spec": {"volumeName": "other"}}));
    fixture.put_claim(elsewhere);
    assert_eq!((claims(&fixture), decision(&fixture)), (("claim-1".to_owned(), vec![]), Decision::Provision));
}

// Rules: G70.
#[test]
fn an_attempt_waits_while_another_claims_volume_has_its_name() {
    let mut fixture = fixture().claim(numbered(1, 1)).claim(numbered(2, 2));
    let begun = attempt(1);
    let (name, body) = ("v-uid".to_owned(), Vec::new());
    let unsaved = UnsavedVolume { name, pending: begun, body, warning: None, after: None };
    fixture.cache.set_progress(&key(), Progress::Unsaved(Arc::new(unsaved)));
    assert_eq!(decision(&fixture), Decision::Save);
    // Another process has created it. The asset created for the first claim may be the same one.
    fixture.put_volume(volume_of(2, "Released"));
    assert_eq!(decision(&fixture), Decision::NoAction(NoAction::ClaimStillExists));
    fixture.cache.claim_event(Change::Deleted(sent(numbered(2, 2))), 0);
    assert_eq!(decision(&fixture), Decision::Delete(Deletion::Protected));
    fixture.cache.backend_deleted(&key(), "volume-uid", true);
    assert!(fixture.cache.unfinished(&key()), "the entry is kept");
    fixture.cache.volume_event(Change::Deleted(sent(volume_of(2, "Released"))), 0);
    // The provisioner is called again, so that an asset that was deleted in between is not saved.
    assert_eq!((claims(&fixture).0, decision(&fixture)), ("claim-1".to_owned(), Decision::Provision));
    assert!(fixture.cache.facts(&key()).attempt().is_some());
}

// Rules: G70.
#[test]
fn only_the_claims_own_volume_ends_its_attempt_with_usual_names() {
    let mut fixture = Fixture::new().class(class(json!({}))).claim(numbered(1, 1));
    let usual = Key::of_claim("uid-1");
    let begun = attempt(1);
    fixture.cache.set_progress(&usual, Progress::Background(begun));
    let named = json!({"metadata": {"name": "pvc-uid-1"}});
    fixture.put_volume(with(volume_of(2, "Bound"), named.clone()));
    assert_eq!(fixture.decision("pvc-uid-1"), Decision::Refuse(Refusal::NameTaken));
    assert!(fixture.cache.unfinished(&usual));
    fixture.put_volume(with(volume_of(1, "Bound"), with(named, json!({"metadata": {"resourceVersion": "21"}}))));
    assert!(!fixture.cache.unfinished(&usual));
}

// Rules: G70.
#[test]
fn reports_the_other_claims_own_problem_first() {
    let waits = with(numbered(2, 2), json!({"spec": {"storageClassName": "waits"}}));
    let later = class(json!({"metadata": {"name": "waits"}, "volumeBindingMode": "WaitForFirstConsumer"}));
    let block = with(numbered(3, 3), json!({"spec": {"volumeMode": "Block"}}));
    let mut fixture = fixture().class(later).claim(numbered(1, 1)).claim(waits.clone()).claim(block);
    assert_eq!(of_twins(&fixture), [Decision::NoAction(NoAction::AwaitsNode), Decision::Refuse(Refusal::Block)]);
    let before = fixture.cache.inputs(&key());
    let chosen =
        json!({"metadata": {"resourceVersion": "11", "annotations": {"volume.kubernetes.io/selected-node": "n"}}});
    fixture.put_claim(with(waits, chosen));
    assert_eq!(of_twins(&fixture)[0], refused_by("claim-1"));
    assert_ne!(fixture.cache.inputs(&key()), before, "no pause delays the event");
    // A change of a class wakes all claims that name it, and one deletion removes one of them.
    assert_eq!(fixture.class_event(Change::Applied(sent(class(json!({}))))), [key(), key()]);
    fixture.cache.claim_event(Change::Deleted(sent(numbered(1, 1))), 0);
    assert_eq!(fixture.class_event(Change::Applied(sent(class(json!({}))))), [key()]);
}
