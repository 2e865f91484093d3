//! Tests that the driver `cosi-sim` passes, and that each of its faults fails the expected checks.

use std::collections::BTreeSet;

use cosi_sanity::{Outcome, Version, all};
use cosi_sim::{Fault, Protocol, Settings};
use futures::future::join_all;

use crate::bed::{self, TestBed};

#[tokio::test(start_paused = true)]
async fn compliant_drivers_pass() {
    let several = Settings { protocols: Protocol::ALL.to_vec(), ..Settings::default() };
    let slow = Settings { latency: bed::LATENCY, ..Settings::default() };
    let single = Settings { multi_bucket: false, protocols: vec![Protocol::Azure], ..Settings::default() };
    for settings in [Settings::default(), several, slow, single] {
        let protocol = settings.protocols[0].to_string();
        let bed = TestBed::new(settings);
        let report = bed.run(&["--protocol", &protocol, "--concurrency", "4"]).await;
        let failed = bed::failed(&report);
        assert!(report.is_success(), "{failed:?} {report}");
        let of = |version| report.checks.iter().filter(|ran| ran.version == version).count();
        assert_eq!((of(Version::V1alpha1), of(Version::V1alpha2)), (29, 46), "the checks of each version");
        let skipped = report.checks.iter().filter(|ran| matches!(ran.outcome, Outcome::Skipped(_))).map(|ran| ran.name);
        assert_eq!(skipped.collect::<BTreeSet<_>>(), ["restart/access", "restart/bucket"].into());
        bed.assert_empty();
    }
}

/// Returns the checks that a fault fails in both versions, and after `2:` the checks that it fails only in `v1alpha2`.
fn expected(fault: Fault) -> &'static str {
    match fault {
        Fault::InvalidName => "info/name",
        Fault::NoProtocols => "2: info/protocols",
        Fault::CreateTwice => "create/repeated create/other-parameters create/concurrent create/given-up",
        Fault::CreateRaces => "create/concurrent create/given-up",
        Fault::CreateIgnoresParameters => "create/other-parameters",
        Fault::SharedBucket => "create/other-name 2: delete/other-buckets grant/several-buckets",
        Fault::LongIds => "2: create/id grant/id",
        Fault::AcceptsMissingFields => {
            "create/without-name delete/without-id grant/without-name grant/without-bucket \
             grant/without-authentication-type revoke/without-account revoke/without-bucket \
             2: existing/without-id grant/without-protocol grant/without-service-account grant/without-access-mode"
        }
        Fault::AcceptsUnsupportedProtocols => {
            "2: create/unsupported-protocol existing/unsupported-protocol grant/unsupported-protocol"
        }
        Fault::OtherInfo => "2: create/protocols create/without-protocols existing/found",
        Fault::FindsMissing => "2: existing/missing",
        Fault::LosesExisting => "2: existing/found delete/other-buckets",
        Fault::DeleteMissingFails => "delete/repeated delete/concurrent delete/given-up",
        Fault::DeletesAll => "2: delete/other-buckets",
        Fault::GrantTwice => "grant/repeated grant/concurrent grant/given-up 2: grant/other-parameters",
        Fault::GrantRaces => "grant/concurrent grant/given-up",
        Fault::GrantIgnoresParameters => "2: grant/other-parameters",
        Fault::SharedAccount => "grant/other-name",
        Fault::OtherCredentials | Fault::EmptyCredentials => "grant/credentials",
        Fault::EmptyInfo => "2: grant/bucket-info",
        Fault::OmitsBucket => "2: grant/buckets grant/several-buckets",
        Fault::ExtraBucket => "2: grant/buckets grant/several-buckets",
        Fault::RefusesSeveral => "2: grant/several-buckets",
        Fault::RevokeMissingFails => "revoke/repeated revoke/concurrent revoke/given-up revoke/after-deletion",
        Fault::Stuck => "create/given-up delete/given-up grant/given-up revoke/given-up",
        // `program.rs` tests this with a restart.
        Fault::Forgets => "",
    }
}

#[tokio::test(start_paused = true)]
async fn each_fault_fails_the_expected_checks() {
    let found = join_all(Fault::ALL.into_iter().map(check)).await;
    let wrong: Vec<_> = found.iter().flat_map(|(_, wrong)| wrong.clone()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let fail: BTreeSet<&str> = found.iter().flat_map(|(failed, _)| failed.clone()).collect();
    let never: Vec<_> = all().iter().map(|check| check.name).filter(|name| !fail.contains(name)).collect();
    assert_eq!(never, ["restart/bucket", "restart/access"], "checks that never fail");
}

/// Returns the failed checks, and their differences from the expected ones.
async fn check(fault: Fault) -> (BTreeSet<&'static str>, Vec<String>) {
    // The latency allows concurrent calls, and calls that are cancelled in progress.
    let bed = TestBed::new(Settings { faults: [fault].into(), latency: bed::LATENCY, ..Settings::default() });
    let report = bed.run(&["--patience", "1", "--concurrency", "3"]).await;
    let (both, second) = expected(fault).split_once("2:").unwrap_or((expected(fault), ""));
    let (mut fail, mut wrong) = (BTreeSet::new(), Vec::new());
    for version in Version::ALL {
        let second = if version == Version::V1alpha2 { second } else { "" };
        let expected: BTreeSet<&str> = both.split_whitespace().chain(second.split_whitespace()).collect();
        let failed = bed::failed(&report).into_iter().filter(|ran| ran.version == version);
        let failed: BTreeSet<&str> = failed.map(|ran| ran.name).collect();
        if failed != expected {
            wrong.push(format!("{fault} in {version}: {failed:?}, not {expected:?}"));
        }
        fail.extend(failed);
    }
    match fault {
        // The IDs of buckets and accounts from a cancelled call are unknown.
        Fault::CreateTwice | Fault::GrantTwice => {}
        // The name is locked, so it cannot be cleaned up, and the report lists it.
        Fault::Stuck => assert!(!report.left.is_empty()),
        _ => {
            assert!(report.left.is_empty(), "{fault}: {:?}", report.left);
            bed.assert_empty();
        }
    }
    (fail, wrong)
}

#[test]
fn rules_quote_the_specification() {
    let specifications = [
        (Version::V1alpha1, include_str!("../../../driver-rpc/tests/spec/cosi-v1alpha1.proto")),
        (Version::V1alpha2, include_str!("../../../driver-rpc/tests/spec/cosi-v1alpha2.proto")),
    ];
    for (version, text) in specifications {
        let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "//").collect();
        let text = words.join(" ");
        for check in all() {
            if let Some(rule) = check.rule(version) {
                assert!(text.contains(rule), "{version}/{}: {rule}", check.name);
            }
        }
    }
}

#[test]
fn guide_states_the_number_of_checks() {
    let page = include_str!("../../../../docs/book/pages/write/cosi-driver.md");
    let count = |version| all().iter().filter(|check| check.rule(version).is_some()).count();
    let counts = format!("{} for v1alpha1, {} for v1alpha2", count(Version::V1alpha1), count(Version::V1alpha2));
    assert!(page.contains(&counts), "{counts}");
    for check in all() {
        let group = check.name.split_once('/').unwrap().0;
        assert!(page.contains(&format!("| `{group}/` |")), "{group}");
    }
}
