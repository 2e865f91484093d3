//! A simulated driver on a socket, and runs of the checks against it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use cosi_sanity::{CheckRun, Options, Outcome, Report, run};
use cosi_sim::{Driver, Settings};
use driver_rpc::Server;
use tokio::task::JoinHandle;

/// A latency that is long enough to cancel calls in progress.
pub(crate) const LATENCY: Duration = Duration::from_millis(12);

pub(crate) struct TestBed {
    pub(crate) driver: Driver,
    folder: tempfile::TempDir,
    served: JoinHandle<()>,
}

impl TestBed {
    pub(crate) fn new(settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let driver = Driver::new(settings).unwrap();
        let server = Server::bind(&folder.path().join("cosi.sock")).unwrap();
        let server = server.cosi_v1alpha1(driver.clone()).cosi_v1alpha2(driver.clone());
        let served = tokio::spawn(async move { match server.serve().await.unwrap() {} });
        Self { driver, folder, served }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder().join("cosi.sock")
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Report {
        run(&options(self.folder(), arguments), |_| {}, std::future::pending()).await.unwrap()
    }

    pub(crate) fn assert_empty(&self) {
        assert_eq!((self.driver.buckets(), self.driver.accounts()), (Vec::new(), Vec::new()));
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        self.served.abort();
    }
}

/// Returns the options for a driver in this folder.
pub(crate) fn options(folder: &Path, arguments: &[&str]) -> Options {
    let endpoint = folder.join("cosi.sock");
    let common = ["--other-bucket-parameters", "tier=slow", "--other-access-parameters", "tier=slow"];
    let program = ["cosi-sanity", "--endpoint", endpoint.to_str().unwrap()];
    Options::parse_from(program.iter().chain(&common).chain(arguments))
}

pub(crate) fn failed(report: &Report) -> Vec<&CheckRun> {
    report.checks.iter().filter(|ran| matches!(ran.outcome, Outcome::Failed(_))).collect()
}
