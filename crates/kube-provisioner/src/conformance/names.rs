//! Rules about contested names: another claim, or an administrator who creates an asset manually.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures::future::join;
use tokio::time::sleep;

use super::cancellation::{MAX_POLLS, at_every_await, cut_off};
use super::subject::{Request, Subject};
use super::verdict::{CheckResult, RuleVerdict, Violation};
use crate::controller::volume::Backend;
use crate::error::ProvisionError;
use crate::volume::Volume;

/// The number of calls before a refusal is final: it may be temporary.
const CALLS: usize = 3;

/// Checks two claims that request one name, the second one from any moment of the first one's call on.
pub(super) async fn one_name(subject: &Subject) -> CheckResult {
    if subject.shared_names.is_none() {
        let why = "`.shares_names(..)` has no parameters with which two claims want one name";
        return Ok(RuleVerdict::NotApplicable(why.to_owned()));
    }
    // In real time a call takes many polls, and neighbouring ones are practically the same moment.
    let step = subject.tempo.choose(1, MAX_POLLS / 10);
    at_every_await(step, async |polls, restart| race_for_name(subject, polls, restart).await).await
}

/// Returns true if the first call ended before the second one began.
async fn race_for_name(subject: &Subject, polls: usize, restart: bool) -> Result<bool, Violation> {
    let (before, backend) = (subject.assets_now().await, subject.start().await?);
    let (names, claim) = ([subject.new_name(), subject.new_name()], format!("claim-of-{}", subject.new_name()));
    let requests = names.each_ref().map(|name| Request::of_shared_name(subject, &backend, name, &claim));
    let other = if restart { subject.start().await? } else { Arc::clone(&backend) };
    let when = format!("after two claims wanted one name, the second one {polls} polls after the first");

    let mut first = pin!(attempt(subject, &backend, &requests[0]));
    let mut early = None;
    for _ in 0..polls {
        let poll = poll_fn(|context| Poll::Ready(first.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = poll {
            early = Some(answer);
            break;
        }
        tokio::task::yield_now().await;
    }
    let finished = early.is_some();
    let first = async {
        match early {
            Some(answer) => answer,
            None => first.await,
        }
    };
    let answers = join(first, attempt(subject, &other, &requests[1])).await;

    let mut made = Vec::new();
    for (request, answer) in requests.iter().zip([answers.0, answers.1]) {
        match answer {
            Ok(volume) => made.push(request.save(volume)?),
            Err(_) => subject.end(&backend, request).await.map_err(Violation::with_context(&when))?,
        }
    }
    let winners = made.len();
    if winners == 0 {
        return Err(Violation(format!("{when}, neither got it")));
    }
    // A claim that has received a volume has its own asset, even after the other one is deleted.
    subject.expect(&before, winners, &format!("{when}, and {winners} of them got a volume")).await?;
    while let Some(last) = made.pop() {
        subject.delete(&backend, &last.object).await?;
        subject.expect(&before, made.len(), &format!("{when}, and one of the volumes was deleted")).await?;
    }
    Ok(finished)
}

/// Checks that an administrator can create an asset at the volume's location while the claim is pending.
pub(super) async fn manually_created(subject: &Subject) -> CheckResult {
    let Some(make) = &subject.manually_created else {
        let why = "`.manually_created(..)` creates no asset at the location of a volume's asset";
        return Ok(RuleVerdict::NotApplicable(why.to_owned()));
    };
    for polls in 0..=MAX_POLLS {
        let (name, claim) = (subject.new_name(), format!("claim-of-{}", subject.new_name()));
        let backend = subject.start().await?;
        let request = Request::of_shared_name(subject, &backend, &name, &claim);
        let finished = cut_off(request.call(&backend), polls).await.is_some();
        subject.tempo.settle().await;
        // `None` means that the provisioner was faster.
        if let Some(theirs) = make(name.clone(), claim.clone()).await {
            let backend = subject.start().await?;
            match attempt(subject, &backend, &request).await {
                Ok(volume) => subject.delete(&backend, &request.save(volume)?.object).await?,
                Err(_) => subject.end(&backend, &request).await?,
            }
            let now = subject.assets_now().await;
            if !now.0.contains(&theirs) {
                return Err(Violation(format!(
                    "an administrator created {theirs} after `provision` of {name} had been polled {polls} times; the \
                     deletion of the claim removed {theirs}"
                )));
            }
        }
        if finished {
            break;
        }
    }
    Ok(RuleVerdict::Kept)
}

/// Calls `provision` until it succeeds, or until it has refused often enough.
async fn attempt(subject: &Subject, backend: &Arc<dyn Backend>, request: &Request) -> Result<Volume, ProvisionError> {
    for _ in 1..CALLS {
        match request.call(backend).await {
            Ok(volume) => return Ok(volume),
            Err(error) => sleep(subject.tempo.retry(error.retry_after())).await,
        }
    }
    request.call(backend).await
}
