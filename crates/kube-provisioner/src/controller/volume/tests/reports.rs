//! The events of outcomes, and when a key is processed again.

use std::time::Duration;

use provisioner_runtime::call::CallError;
use provisioner_runtime::queue::Next;

use super::*;
use crate::controller::shared::limits::{REMIND, Thresholds};
use crate::controller::volume::decision::{NoAction, Refusal};
use crate::controller::volume::facts::Progress;
use crate::controller::volume::outcome::{Done, MissingInput, Outcome, Stopped};
use crate::controller::volume::report::{Case, EventObject, OutcomeReport, report};
use crate::{DeleteVerdict, ProvisionVerdict};
use provisioner_runtime::controller::CallAborted;

fn reported(outcome: Outcome, attempt: u32, thresholds: Thresholds) -> OutcomeReport {
    let fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    let facts = fixture.cache.facts(&Key::of_claim("uid-1-1"));
    let (provisioner, volume) = (OURS, "pvc-uid-1-1");
    report(outcome, &Case { provisioner, volume, facts: &facts, attempt, repeats: 0, waits: 0, thresholds })
}

fn first(outcome: Outcome) -> OutcomeReport {
    reported(outcome, 1, Thresholds::default())
}

fn failure(verdict: ProvisionVerdict, retry_after: Option<Duration>, rescheduled: bool) -> Outcome {
    Err(Stopped::NotProvisioned { verdict, message: "no".into(), retry_after, rescheduled })
}

// Rules: N1, N2, C20, C23.
#[test]
fn each_verdict_has_its_pause_and_its_event() {
    let retry = first(failure(ProvisionVerdict::Retry, None, false));
    assert!(matches!(retry.next, Next::Retry) && retry.event.unwrap().warning);
    let pause = Duration::from_secs(7);
    assert!(
        matches!(first(failure(ProvisionVerdict::Retry, Some(pause), false)).next, Next::RetryAfter(after) if after == pause)
    );
    let background = first(failure(ProvisionVerdict::InProgress, None, false));
    let event = background.event.unwrap();
    assert!(!event.warning && event.reason == "Provisioning" && matches!(background.next, Next::Wait(None)));
    let invalid = first(failure(ProvisionVerdict::Invalid, None, false));
    assert!(invalid.next == REMIND && invalid.event.is_some());
    let foreign = first(failure(ProvisionVerdict::Ignored, None, false));
    assert!(matches!(foreign.next, Next::AwaitChange) && foreign.event.is_none());
    // No watch shows when the backend can be reached, or a permission is granted.
    let not_asked = first(failure(ProvisionVerdict::NoChange, None, false));
    assert_eq!(not_asked.next, Next::RetryWithin(Duration::from_secs(60)));
    assert_eq!(first(failure(ProvisionVerdict::NoChange, Some(pause), false)).next, Next::RetryAfter(pause));
    assert!(matches!(first(failure(ProvisionVerdict::Reschedule, None, true)).next, Next::Done));
    assert!(matches!(first(failure(ProvisionVerdict::Reschedule, None, false)).next, Next::Retry));
}

// Rules: G21.
#[test]
fn attempts_end_at_the_threshold_with_an_event() {
    let two = Thresholds { provision: 2, delete: 2 };
    assert!(matches!(reported(failure(ProvisionVerdict::Retry, None, false), 2, two).next, Next::Retry));
    let last = reported(failure(ProvisionVerdict::Retry, None, false), 3, two);
    assert!(matches!(last.next, Next::AwaitChange));
    assert!(last.event.unwrap().text.contains("gave up after 3 attempts"));
    assert!(matches!(reported(failure(ProvisionVerdict::InProgress, None, false), 99, two).next, Next::Wait(None)));
    assert_eq!(reported(failure(ProvisionVerdict::NoChange, None, false), 3, two).next, Next::AwaitChange);
    let not_saved = reported(Err(Stopped::NotSaved(CallError::Conflict)), 99, two);
    assert!(matches!(not_saved.next, Next::Retry), "an asset without a volume is never abandoned");
    let kept = Err(Stopped::NotDeleted { verdict: DeleteVerdict::Retry, message: "no".into(), retry_after: None });
    assert!(matches!(reported(kept, 3, two).next, Next::AwaitChange));
}

// Rules: G18, G19.
#[test]
fn panics_and_timeouts_are_reported_and_retried() {
    let panicked = first(Err(Stopped::ProvisionAborted {
        method: "provision",
        aborted: CallAborted::Panicked("index out of bounds".into()),
    }));
    assert!(matches!(panicked.next, Next::Retry));
    let text = panicked.event.unwrap().text;
    assert!(text.contains("crashed in") && !text.contains("index out of bounds"), "{text}");
    let slow =
        first(Err(Stopped::DeleteAborted { method: "delete", aborted: CallAborted::TimedOut(Duration::from_secs(5)) }));
    let event = slow.event.unwrap();
    assert_eq!((event.object, event.reason), (EventObject::Volume, "VolumeFailedDelete"));
    assert!(event.text.contains("within 5 s"));
}

// Rules: G22.
#[test]
fn in_use_is_reported_as_a_normal_event() {
    let busy = Err(Stopped::NotDeleted { verdict: DeleteVerdict::InUse, message: "mounted".into(), retry_after: None });
    let report = first(busy);
    let event = report.event.unwrap();
    assert!(!event.warning && event.reason == "VolumeDelete" && matches!(report.next, Next::Retry));
}

// Rules: G45.
#[test]
fn waiting_is_not_a_failure() {
    let busy = || CallError::TooManyRequests { retry_after: Some(Duration::from_secs(3)), message: "busy".into() };
    assert_eq!(first(Err(Stopped::NotSaved(busy()))).next, Next::Wait(Some(Duration::from_secs(3))));
    let call = Err(Stopped::CallFailed { doing: "reading the volume", error: busy() });
    assert_eq!(first(call).next, Next::Wait(Some(Duration::from_secs(3))));
    let deleting =
        Err(Stopped::NotDeleted { verdict: DeleteVerdict::InProgress, message: "at it".into(), retry_after: None });
    assert_eq!(first(deleting).next, Next::Wait(None));
}

// Rules: G46.
#[test]
fn a_rejected_write_is_reported_the_second_time() {
    let rejected =
        || Err(Stopped::Rejected { doing: "setting the volume's finalizer", error: CallError::Invalid("no".into()) });
    let quiet = first(rejected());
    assert!(quiet.event.is_none() && quiet.next == Next::Again);
    let fixture = Fixture::new().class(class(json!({}))).claim(claim(json!({})));
    let facts = fixture.cache.facts(&Key::of_claim("uid-1-1"));
    let (provisioner, volume, thresholds) = (OURS, "pvc-uid-1-1", Thresholds::default());
    let again = Case { provisioner, volume, facts: &facts, attempt: 1, repeats: 1, waits: 0, thresholds };
    let loud = report(rejected(), &again);
    assert!(loud.event.unwrap().text.contains("no") && matches!(loud.next, Next::RetryAfter(_)));
}

#[test]
fn notices_a_late_secret_within_a_minute() {
    for attempt in [1, 7, 100] {
        let missing = MissingInput::Secret { namespace: "default".into(), name: "key".into() };
        let report = reported(Err(Stopped::NotReady(missing)), attempt, Thresholds { provision: 6, delete: 6 });
        // At most 30 seconds.
        assert_eq!(report.next, Next::Wait(None));
        assert!(!report.event.unwrap().text.contains("gave up"));
    }
}

// Rules: C7.
#[test]
fn a_missing_class_is_first_awaited_without_an_event() {
    let report = first(Err(Stopped::Refused(Refusal::ClassMissing(Some("fast".into())))));
    assert!(report.event.is_none() && matches!(report.next, Next::RetryAfter(_)), "{:?}", report.event);
}

// Rules: G15.
#[test]
fn refusals_say_what_to_do() {
    for refusal in [
        Refusal::AccessModes(vec!["ReadWriteOnce".into()]),
        Refusal::AllowedTopologies,
        Refusal::ImmediateClass,
        Refusal::MountOptions,
        Refusal::AttributesClass("gold".into()),
        Refusal::Block,
        Refusal::ClassMissing(Some("fast".into())),
        Refusal::ClassMissing(None),
        Refusal::DataSource { kind: "Backup".into(), name: "b".into() },
        Refusal::NameTaken,
        Refusal::Parameters("unknown parameter \"x\"".into()),
        Refusal::Request("\"lots\" is no quantity".into()),
        Refusal::Selector,
    ] {
        let report = reported(Err(Stopped::Refused(refusal.clone())), 2, Thresholds::default());
        let event = report.event.unwrap();
        assert!(event.warning && event.reason == "ProvisioningFailed", "{refusal:?}");
        assert_eq!(report.next, REMIND, "{refusal:?}");
        assert!(event.text.len() > 30, "{}", event.text);
    }
}

// Rules: G60.
#[test]
fn does_not_suggest_dropping_an_unreadable_claims_attempt() {
    let (mut fixture, key) = (Fixture::new(), Key::of_claim("uid-1-1"));
    fixture.put_claim(claim(json!({"spec": {"accessModes": 7}})));
    fixture.cache.set_progress(&key, Progress::Background(Arc::new(pending())));
    let (facts, provisioner, thresholds) = (fixture.cache.facts(&key), OURS, Thresholds::default());
    let Decision::Refuse(refusal) = decide(&facts, &fixture.rules) else { panic!("{facts:?}") };
    let case = Case { provisioner, volume: "pvc-uid-1-1", facts: &facts, attempt: 2, repeats: 0, waits: 0, thresholds };
    let text = report(Err(Stopped::Refused(refusal)), &case).event.unwrap().text;
    assert!(text.contains("cannot read this claim") && !text.contains("journal drop"), "{text}");
}

#[test]
fn quiet_outcomes_have_no_event() {
    for quiet in [
        Err(Stopped::NoAction(NoAction::Bound)),
        Err(Stopped::Changed),
        Ok(Done::ProtectionSet),
        Ok(Done::Deleted { took: Duration::ZERO }),
    ] {
        assert!(first(quiet).event.is_none());
    }
}
