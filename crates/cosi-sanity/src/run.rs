//! A run: detects the versions that the driver serves, and runs their checks one after another.

use std::pin::pin;

use anyhow::{Context, bail};
use driver_rpc::{Client, Code, Error};
use tokio::time::Instant;

use crate::api::{Api, Info};
use crate::bed::{TestBed, error_text};
use crate::check::{Stop, Verdict};
use crate::{CheckRun, Options, Outcome, Report, Version, all};

/// Runs the checks, and cleans up after each of them. The callback receives each line of the report as soon as it is
/// known. When `stop` resolves, the run cleans up and ends early.
///
/// # Errors
///
/// Fails if the driver cannot be reached, or does not serve a requested version.
pub async fn run(
    options: &Options,
    print_line: impl Fn(String),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Report> {
    let mut stop = pin!(stop);
    let mut report = Report::default();
    for (api, info) in served(options).await? {
        let version = api.version;
        print_line(format!("The driver {:?} serves {version}.", info.name));
        let bed = TestBed::new(api, options.clone(), info.protocols);
        for check in all().iter().filter(|check| options.wants(check, version)) {
            let Some(rule) = check.rule(version) else { continue };
            let started = Instant::now();
            let outcome = tokio::select! {
                biased;
                () = &mut stop => None,
                verdict = (check.run)(&bed) => Some(outcome(verdict)),
            };
            report.left.extend(bed.clean().await);
            let Some(outcome) = outcome else {
                report.is_interrupted = true;
                return Ok(report);
            };
            let ran = CheckRun { version, name: check.name, rule, outcome, took: started.elapsed() };
            print_line(ran.to_string());
            report.checks.push(ran);
        }
    }
    Ok(report)
}

/// Returns the versions that the driver serves.
async fn served(options: &Options) -> anyhow::Result<Vec<(Api, Info)>> {
    let client = Client::new(options.endpoint.clone()).with_timeout(options.timeout);
    let mut served = Vec::new();
    for version in Version::ALL {
        let is_wanted = options.versions.contains(&version);
        if !is_wanted && !options.versions.is_empty() {
            continue;
        }
        let bed = TestBed::new(Api { client: client.clone(), version }, options.clone(), Vec::new());
        match bed.retry(|| bed.api.info()).await {
            Ok(info) => served.push((bed.api, info)),
            Err(Error::Status(status)) if status.code() == Code::Unimplemented && !is_wanted => {}
            Err(error) => bail!("DriverGetInfo of {version}: {}", error_text(&error)),
        }
    }
    served
        .first()
        .with_context(|| format!("the driver at {} does not serve a known COSI version", options.endpoint))?;
    Ok(served)
}

fn outcome(verdict: Verdict) -> Outcome {
    match verdict {
        Ok(()) => Outcome::Passed,
        Err(Stop::Fail(reason)) => Outcome::Failed(reason),
        Err(Stop::Skip(reason)) => Outcome::Skipped(reason),
    }
}
