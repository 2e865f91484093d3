//! Rules about the parameters of classes.

use std::collections::BTreeMap;

use kube_sim::{Actors, Faults};
use tokio::time::sleep;

use super::fixture::{Fixture, Plan, Sharing};
use super::spy::Calls;
use super::subject::Subject;
use super::verdict::{CheckResult, RuleVerdict, Violation};

/// A parameter name that no provisioner knows.
const UNKNOWN: &str = "kubeProvisionerConformance";

pub(super) async fn unknown(subject: &Subject) -> CheckResult {
    let mut parameters = subject.parameters.clone();
    parameters.insert(UNKNOWN.to_owned(), "x".to_owned());
    if subject.new_process().parse(&parameters).is_ok() {
        return Ok(RuleVerdict::NotApplicable("its `Parameters` take any key".to_owned()));
    }
    let warnings = refusal(subject, 0, &parameters).await?;
    if !warnings.iter().any(|warning| warning.contains(UNKNOWN)) {
        return Err(Violation(format!(
            "the claim's events do not name the parameter {UNKNOWN:?}: {}",
            warnings.join("; ")
        )));
    }
    Ok(RuleVerdict::Kept)
}

pub(super) async fn refused(subject: &Subject) -> CheckResult {
    if subject.refused.is_empty() {
        return Ok(RuleVerdict::NotApplicable("`.refuses(..)` names no bad parameters".to_owned()));
    }
    for (seed, parameters) in (1..).zip(&subject.refused) {
        let with = format!("with the parameters {parameters:?}");
        refusal(subject, seed, parameters).await.map_err(Violation::with_context(&with))?;
    }
    Ok(RuleVerdict::Kept)
}

/// Creates a claim of a class with these parameters. Returns the claim's warnings.
async fn refusal(
    subject: &Subject,
    seed: u64,
    parameters: &BTreeMap<String, String>,
) -> Result<Vec<String>, Violation> {
    const CLAIM: &str = "refused";
    let (sharing, actors) = (Sharing::Successors, Actors::all());
    let plan = Plan { seed, sharing, actors, faults: &Faults::none(seed), calls: Calls::plain() };
    let mut fixture = Fixture::new(subject, &subject.class(parameters), plan).await?;
    fixture.start();
    fixture.create_claim(CLAIM);
    fixture
        .wait_until("the claim has no event", async || {
            if !fixture.bound().is_empty() {
                return Ok(());
            }
            let has_event = !fixture.warnings(CLAIM).is_empty();
            has_event.then_some(()).ok_or_else(|| "the claim has no event of type Warning".to_owned())
        })
        .await?;
    if !fixture.bound().is_empty() {
        fixture.wait_until_all_deleted().await?;
        return Err(Violation("the claim received a volume".to_owned()));
    }
    sleep(subject.tempo.stable_period()).await;
    let calls = fixture.calls.provisions();
    if calls > 1 {
        return Err(Violation(format!(
            "`provision` was called {calls} times: refuse a request that can never succeed in `Parameters`, or with \
             ProvisionError::invalid, which is not retried"
        )));
    }
    fixture.assets(0).await.map_err(Violation)?;
    Ok(fixture.warnings(CLAIM))
}
