//! Tests of the binary and of partial runs: versions, filters, lost answers, restarts, interruptions.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use cosi_sanity::{Outcome, Report, Version, run};
use cosi_sim::{Driver, Fault, Method, Settings, Step};
use driver_rpc::{Code, Server};
use tokio::process::Command;
use tokio::time::sleep;

use crate::bed::{self, TestBed};

fn program(bed: &TestBed, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cosi-sanity"));
    command.arg("--endpoint").arg(bed.socket()).args(arguments).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn reports_the_result_by_exit_status_and_file() {
    for (faults, code, line, failures) in [
        (vec![], 0, "ok    v1alpha2/create/repeated\n", "failures=\"0\""),
        (vec![Fault::CreateTwice], 1, "FAIL  v1alpha2/create/repeated: one name has two buckets: ", "failures=\"1\""),
    ] {
        let bed = TestBed::new(Settings { faults: faults.into_iter().collect(), ..Settings::default() });
        let junit = bed.folder().join("junit.xml");
        let arguments = ["--focus", "create/repeated", "--skip", "v1alpha1", "--junit", junit.to_str().unwrap()];
        let output = program(&bed, &arguments).output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(line) && !text.contains("v1alpha1/"), "{text}");
        let junit = std::fs::read_to_string(junit).unwrap();
        assert!(junit.contains(failures) && junit.contains("tests=\"1\""), "{junit}");
        bed.assert_empty();
    }
}

#[tokio::test]
async fn interrupted_runs_clean_up() {
    let bed = TestBed::new(Settings { latency: Duration::from_millis(50), ..Settings::default() });
    let run = program(&bed, &["--focus", "create/given-up"]).spawn().unwrap();
    while bed.driver.buckets().is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    let pid = run.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    let output = run.wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("interrupted"), "{text}");
    bed.assert_empty();
}

#[tokio::test]
async fn lists_checks_with_their_rules() {
    let bed = TestBed::new(Settings::default());
    let output = program(&bed, &["--list", "--focus", "v1alpha2/delete/repeated"]).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "v1alpha2/delete/repeated\n      MUST return OK if the bucket has already been deleted.\n");
    assert!(bed.driver.calls().is_empty());
}

#[tokio::test]
async fn checks_only_versions_that_the_driver_serves() {
    let folder = tempfile::tempdir().unwrap();
    let driver = Driver::new(Settings::default()).unwrap();
    let served = tokio::spawn(Server::bind(&folder.path().join("cosi.sock")).unwrap().cosi_v1alpha1(driver).serve());
    let options = |arguments: &[&str]| bed::options(folder.path(), arguments);
    let report = run(&options(&[]), |_| {}, std::future::pending()).await.unwrap();
    assert!(report.is_success() && report.checks.iter().all(|ran| ran.version == Version::V1alpha1), "{report}");

    let error = run(&options(&["--versions", "v1alpha2"]), |_| {}, std::future::pending()).await.unwrap_err();
    assert!(error.to_string().starts_with("DriverGetInfo of v1alpha2: Unimplemented"), "{error}");
    served.abort();
    let _ = served.await;
    let gone = run(&options(&["--patience", "0.1"]), |_| {}, std::future::pending()).await.unwrap_err();
    assert!(gone.to_string().contains("cannot be reached"), "{gone}");
}

#[tokio::test]
async fn tolerates_lost_answers_and_transient_refusals() {
    let bed = TestBed::new(Settings::default());
    for method in [Method::CreateBucket, Method::DeleteBucket, Method::GrantBucketAccess, Method::RevokeBucketAccess] {
        let steps = [Step::LoseAnswer, Step::Refuse(Code::Unavailable), Step::LoseAnswer, Step::Refuse(Code::Internal)];
        bed.driver.script(method, steps);
    }
    let report = bed.run(&[]).await;
    assert!(report.is_success(), "{:?} {report}", bed::failed(&report));
    bed.assert_empty();
}

#[tokio::test]
async fn finds_or_reports_buckets_of_lost_calls() {
    for (refusals, left) in [(1, 0), (9, 1)] {
        let bed = TestBed::new(Settings::default());
        bed.driver.script(Method::CreateBucket, [Step::LoseAnswer]);
        bed.driver.script(Method::CreateBucket, vec![Step::Refuse(Code::AlreadyExists); refusals]);
        let report = bed.run(&["--focus", "v1alpha1/create/id"]).await;
        assert_eq!((bed::failed(&report).len(), report.left.len()), (1, left), "{report}");
        assert_eq!(bed.driver.buckets().len(), left);
        assert!(!report.is_success());
    }
}

#[tokio::test]
async fn restart_checks_fail_for_forgetful_drivers() {
    for (fault, failed) in [(None, vec![]), (Some(Fault::Forgets), vec!["restart/bucket", "restart/access"])] {
        let folder = tempfile::tempdir().unwrap();
        let report = with_restarts(folder.path(), fault).await;
        for version in Version::ALL {
            let ran = bed::failed(&report).into_iter().filter(|ran| ran.version == version);
            assert_eq!(ran.map(|ran| ran.name).collect::<Vec<_>>(), failed, "{version}");
        }
        assert_eq!(report.checks.len(), 4);
        assert!(!report.checks.iter().any(|ran| matches!(ran.outcome, Outcome::Skipped(_))));
        assert!(report.left.is_empty(), "{:?}", report.left);
    }
}

/// Runs the restart checks. The restart command creates a file and waits until the file is removed, which happens once
/// another driver with the state of the first one is running.
async fn with_restarts(folder: &Path, fault: Option<Fault>) -> Report {
    let (socket, wish) = (folder.join("cosi.sock"), folder.join("wish"));
    let command = format!("touch {0}; while [ -e {0} ]; do sleep 0.01; done", wish.display());
    let options = bed::options(folder, &["--focus", "restart/", "--restart-command", &command]);
    let mut seed = 0;
    let mut serve = || {
        seed += 1;
        let state = Some(folder.join("state"));
        let driver = Driver::new(Settings { state, seed, faults: fault.into_iter().collect(), ..Settings::default() });
        let driver = driver.unwrap();
        tokio::spawn(Server::bind(&socket).unwrap().cosi_v1alpha1(driver.clone()).cosi_v1alpha2(driver).serve())
    };
    let mut served = serve();
    let restarts = async {
        loop {
            sleep(Duration::from_millis(5)).await;
            if wish.exists() {
                served.abort();
                let _ = (&mut served).await;
                served = serve();
                std::fs::remove_file(&wish).unwrap();
            }
        }
    };
    tokio::select! {
        report = run(&options, |_| {}, std::future::pending()) => report.unwrap(),
        () = restarts => unreachable!("the loop never ends"),
    }
}
