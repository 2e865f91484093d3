//! The conformance kit, on a provisioner that is right and on some that are wrong.

use kube_provisioner::conformance::{Conformance, Judgement, Report};

use crate::toy::{Flaw, Shelf, Toy};

fn check(flaw: Flaw) -> Conformance {
    let shelf = Shelf::default();
    let assets = shelf.clone();
    Conformance::new(move || Toy::new(shelf.clone(), flaw), async move || assets.ids())
        .parameters([("tier", "fast")])
        .refuses([("tier", "faster")])
        .refuses([("tier", "fast"), ("colour", "red")])
}

/// The rule that is broken first, and what was seen.
fn first_broken(report: &Report) -> Option<(&'static str, &str)> {
    report.results().iter().find_map(|result| match result.judgement() {
        Judgement::Broken(seen) => Some((result.rule(), seen.as_str())),
        _ => None,
    })
}

#[test]
fn what_is_right_passes() {
    check(Flaw::Nothing).seeds(0..20).check();
}

#[test]
fn what_is_wrong_is_found_for_the_right_reason() {
    let cases = [
        (Flaw::RandomNames, "idempotent", "the second call of `provision` returned another volume"),
        (Flaw::OnePlace, "separate", "have the same source"),
        (Flaw::DeletesByPrefix, "separate", "after deleting pvc-"),
        (Flaw::MissesWhatIsGone, "delete-gone", "`delete` failed 60 times in a row"),
        (Flaw::RemembersInProcess, "delete-gone", "in a process that did not provision"),
        (Flaw::LeavesHalfMade, "cancel-provision", ".part-"),
        (Flaw::LabelsLate, "cancel-provision", "2 new assets"),
        (Flaw::ForgetsTrash, "cancel-delete", "trash-"),
        (Flaw::TooSmall, "capacity", "the claim asks for 1"),
        (Flaw::DeletesByPath, "foreign-volume", "assets that were there before are gone"),
        (Flaw::RetriesBadParameters, "refused-parameters", "can never succeed"),
        (Flaw::LooksThenMakes, "two-replicas", "not every claim has one volume and one asset"),
        (Flaw::Panics, "provision", "panicked: no way to delete"),
    ];
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md")).unwrap();
    let rules: Vec<String> = page.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    for (flaw, rule, text) in cases {
        // Whatever else is broken by it comes later.
        let simpler = rules.iter().map(String::as_str).take_while(|known| *known != rule).chain([rule]);
        let check = simpler.fold(check(flaw), |check, rule| check.only(rule));
        let report = runtime().block_on(check.run());
        let (first, seen) = first_broken(&report).unwrap_or_else(|| panic!("{flaw:?} was not found"));
        assert_eq!(first, rule, "{flaw:?}: {seen}");
        assert!(seen.contains(text), "{flaw:?}: {seen}");
        assert!(!report.is_kept());
    }
}

#[test]
#[should_panic(expected = ".only(\"storm\").seeds([")]
fn a_storm_that_fails_says_how_to_repeat_it() {
    check(Flaw::LabelsLate).only("storm").seeds(0..20).check();
}

#[test]
#[should_panic(expected = "see docs/conformance.md#capacity")]
fn who_fails_reads_where_to_read_on() {
    check(Flaw::TooSmall).only("capacity").check();
}

#[test]
#[should_panic(expected = "there is no rule \"idempotence\"")]
fn a_rule_is_known_by_its_name() {
    drop(check(Flaw::Nothing).only("idempotence"));
}

#[test]
fn rules_that_cannot_be_checked_say_why() {
    let shelf = Shelf::default();
    let assets = shelf.clone();
    let check = Conformance::new(move || Toy::new(shelf.clone(), Flaw::Nothing), async move || assets.ids());
    let report = runtime().block_on(check.only("refused-parameters").run());
    let why = "`.refuses(..)` names no bad parameters".to_owned();
    assert_eq!(report.results()[0].judgement(), &Judgement::NotApplicable(why));
}

#[test]
fn a_backend_may_need_real_time() {
    check(Flaw::Nothing).real_time().seeds(0..2).check();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}
