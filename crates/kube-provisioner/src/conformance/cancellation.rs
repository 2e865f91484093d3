//! Rules about calls that are cancelled at every await.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use super::subject::{DEFAULT_BYTES, Request, Subject};
use super::verdict::{CheckResult, RuleVerdict, Violation};

/// The highest number of polls before a call is cancelled.
pub(super) const MAX_POLLS: usize = 200;

/// Makes a check with every `step`th number of polls before a call is cancelled, by the same process and by a new one.
/// Ends once both checks return true: the call finished before it was cancelled.
pub(super) async fn at_every_await(
    step: usize,
    check: impl AsyncFn(usize, bool) -> Result<bool, Violation>,
) -> CheckResult {
    for polls in (0..=MAX_POLLS).step_by(step) {
        let mut finished = true;
        for restart in [false, true] {
            finished &= check(polls, restart).await?;
        }
        if finished {
            break;
        }
    }
    Ok(RuleVerdict::Kept)
}

pub(super) async fn provision(subject: &Subject) -> CheckResult {
    at_every_await(1, async |polls, restart| {
        let finished = provision_cut_off(subject, polls, restart).await?;
        if restart {
            delete_half_made(subject, polls).await?;
        }
        Ok(finished)
    })
    .await
}

/// Returns true if the call finished before it was cancelled.
async fn provision_cut_off(subject: &Subject, polls: usize, restart: bool) -> Result<bool, Violation> {
    let (before, name) = (subject.assets_now().await, subject.new_name());
    let mut backend = subject.start().await?;
    let request = Request::new(subject, &backend, &name, DEFAULT_BYTES);
    let finished = cut_off(request.call(&backend), polls).await.is_some();
    subject.tempo.settle().await;
    if restart {
        backend = subject.start().await?;
    }
    let who = if restart { "by a new process" } else { "by the same process" };
    let when = format!("after `provision` was dropped after {polls} polls and called again {who}");
    let made = subject.provision(&backend, &name).await.map_err(Violation::with_context(&when))?;
    subject.expect(&before, 1, &when).await?;
    subject.delete(&backend, &made.object).await?;
    subject.expect(&before, 0, &format!("{when}, and deleted")).await?;
    Ok(finished)
}

/// Checks two replicas that work on one volume. What one of them has partly recreated must be deleted with the volume.
async fn delete_half_made(subject: &Subject, polls: usize) -> Result<(), Violation> {
    let (before, name, backend) = (subject.assets_now().await, subject.new_name(), subject.start().await?);
    let made = subject.provision(&backend, &name).await?;
    subject.delete(&backend, &made.object).await?;
    let request = Request::new(subject, &backend, &name, DEFAULT_BYTES);
    cut_off(request.call(&backend), polls).await;
    subject.tempo.settle().await;
    let when = format!("after `provision` was dropped after {polls} polls and the volume deleted");
    subject.delete(&backend, &made.object).await.map_err(Violation::with_context(&when))?;
    subject.expect(&before, 0, &when).await?;
    Ok(())
}

pub(super) async fn delete(subject: &Subject) -> CheckResult {
    at_every_await(1, async |polls, restart| delete_cut_off(subject, polls, restart).await).await
}

async fn delete_cut_off(subject: &Subject, polls: usize, restart: bool) -> Result<bool, Violation> {
    let (before, name) = (subject.assets_now().await, subject.new_name());
    let mut backend = subject.start().await?;
    let made = subject.provision(&backend, &name).await?;
    let call = subject.delete_once(&backend, &made.object);
    let finished = cut_off(call, polls).await.is_some();
    subject.tempo.settle().await;
    if restart {
        backend = subject.start().await?;
    }
    let who = if restart { "by a new process" } else { "by the same process" };
    let when = format!("after `delete` was dropped after {polls} polls and called again {who}");
    subject.delete(&backend, &made.object).await.map_err(Violation::with_context(&when))?;
    subject.expect(&before, 0, &when).await?;
    Ok(finished)
}

/// Polls a call at most `polls` times and drops it; returns the answer if it came before.
pub(super) async fn cut_off<T>(call: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut call = pin!(call);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
