//! Rules about attempts that do not end with a volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::sleep;

use super::cancellation::{MAX_POLLS, at_every_await, cut_off};
use super::subject::{DEFAULT_BYTES, Request, Subject};
use super::verdict::{CheckResult, RuleVerdict, Violation};

/// Checks that the claim of an attempt can be deleted at any moment.
pub(super) async fn abandoned(subject: &Subject) -> CheckResult {
    at_every_await(1, async |polls, restart| {
        let (before, mut backend) = (subject.assets_now().await, subject.start().await?);
        let mut request = Request::new(subject, &backend, &subject.new_name(), DEFAULT_BYTES);
        let finished = cut_off(request.call(&backend), polls).await.is_some();
        subject.tempo.settle().await;
        if restart {
            backend = subject.start().await?;
            request.lose_node();
        }
        let whose = if restart && subject.node.is_some() { "claim, with its node," } else { "claim" };
        let when = format!("after `provision` was dropped after {polls} polls and its {whose} was deleted");
        subject.end(&backend, &request).await.map_err(Violation::with_context(&when))?;
        subject.expect(&before, 0, &when).await?;
        Ok(finished)
    })
    .await
}

pub(super) async fn clean_up(subject: &Subject) -> CheckResult {
    let (before, backend) = (subject.assets_now().await, subject.start().await?);
    let nothing = Request::new(subject, &backend, &subject.new_name(), DEFAULT_BYTES);
    let of_nothing = subject.clean_up(&backend, &nothing).await;
    if !of_nothing.map_err(Violation::with_context("`clean_up` of an attempt that never began"))? {
        return Ok(RuleVerdict::NotApplicable("it has no `clean_up`: its attempts are driven to their end".to_owned()));
    }
    subject.expect(&before, 0, "after `clean_up` of an attempt that never began").await?;
    at_every_await(1, async |polls, restart| clean_up_cut_off(subject, polls, restart).await).await
}

/// Returns true if the call finished before it was cancelled.
async fn clean_up_cut_off(subject: &Subject, polls: usize, restart: bool) -> Result<bool, Violation> {
    let (before, mut backend, name) = (subject.assets_now().await, subject.start().await?, subject.new_name());
    let request = Request::new(subject, &backend, &name, DEFAULT_BYTES);
    subject.provision(&backend, &name).await?;
    let finished = cut_off(request.clean_up(&backend), polls).await.is_some();
    subject.tempo.settle().await;
    if restart {
        backend = subject.start().await?;
    }
    let when = format!("after `clean_up` was dropped after {polls} polls and called again");
    for again in [&*when, "after `clean_up` of missing storage"] {
        subject.clean_up(&backend, &request).await.map_err(Violation::with_context(again))?;
        subject.expect(&before, 0, again).await?;
    }
    let made = subject.provision(&backend, &name).await?;
    subject.expect(&before, 1, "after `clean_up` and `provision` again").await?;
    subject.delete(&backend, &made.object).await?;
    subject.expect(&before, 0, "after `clean_up`, `provision` and `delete`").await?;
    Ok(finished)
}

/// Invalidates the fencing token at one check, as for a thread that cannot be dropped.
pub(super) async fn fencing_token(subject: &Subject) -> CheckResult {
    let mut asked = 0;
    for question in 1..=MAX_POLLS {
        let provisioned = provision_revoked(subject, question).await?;
        let deleted = delete_revoked(subject, question).await?;
        asked += provisioned + deleted;
        if provisioned.max(deleted) < question {
            break;
        }
    }
    match asked {
        0 => Ok(RuleVerdict::NotApplicable(
            "it never checks its fencing token, so it must not have blocking work".to_owned(),
        )),
        _ => Ok(RuleVerdict::Kept),
    }
}

/// Returns a validity that lasts until the check with this number, and the counter of checks.
fn until(question: usize) -> (Arc<AtomicUsize>, impl Fn() -> bool + Send + Sync + 'static) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    (asked, move || count.fetch_add(1, Ordering::Relaxed) + 1 < question)
}

/// Returns how often the call has checked its token.
async fn provision_revoked(subject: &Subject, question: usize) -> Result<usize, Violation> {
    let mut asked = 0;
    for end in [false, true] {
        let (before, backend, name) = (subject.assets_now().await, subject.start().await?, subject.new_name());
        let request = Request::new(subject, &backend, &name, DEFAULT_BYTES);
        let (count, valid) = until(question);
        // Any answer is acceptable: no caller waits for it.
        let _ = request.call_while(&backend, valid).await;
        subject.tempo.settle().await;
        asked = count.load(Ordering::Relaxed);
        let (when, backend) =
            (format!("after the fencing token of `provision` had expired at check {question}"), subject.start().await?);
        if end {
            subject.end(&backend, &request).await.map_err(Violation::with_context(&when))?;
        } else {
            let made = subject.provision(&backend, &name).await.map_err(Violation::with_context(&when))?;
            subject.expect(&before, 1, &format!("{when}, and another process had called it")).await?;
            subject.delete(&backend, &made.object).await.map_err(Violation::with_context(&when))?;
        }
        subject.expect(&before, 0, &format!("{when}, and everything was removed")).await?;
    }
    Ok(asked)
}

async fn delete_revoked(subject: &Subject, question: usize) -> Result<usize, Violation> {
    let (before, backend, name) = (subject.assets_now().await, subject.start().await?, subject.new_name());
    let made = subject.provision(&backend, &name).await?;
    let (count, valid) = until(question);
    // Any answer is acceptable, as for `provision`.
    let _ = subject.delete_while(&backend, &made.object, valid).await;
    subject.tempo.settle().await;
    let when = format!("after the fencing token of `delete` had expired at check {question}, and it was called again");
    subject.delete(&subject.start().await?, &made.object).await.map_err(Violation::with_context(&when))?;
    subject.expect(&before, 0, &when).await?;
    Ok(count.load(Ordering::Relaxed))
}

/// Checks that an error which states that nothing is left is correct.
pub(super) async fn nothing_left(subject: &Subject) -> CheckResult {
    /// Sizes that a backend may not support.
    const SIZES: [u64; 3] = [0, 1 << 50, 1 << 60];
    let good = SIZES.iter().map(|bytes| (*bytes, &subject.parameters));
    let bad = subject.refused.iter().map(|parameters| (DEFAULT_BYTES, parameters));
    let mut seen = false;
    for (bytes, parameters) in good.chain(bad) {
        seen |= refusal(subject, bytes, parameters).await?;
    }
    if seen { Ok(RuleVerdict::Kept) } else { Ok(RuleVerdict::NotApplicable("it has refused nothing".to_owned())) }
}

/// Returns true if the answer means that nothing is left.
async fn refusal(
    subject: &Subject,
    bytes: u64,
    parameters: &std::collections::BTreeMap<String, String>,
) -> Result<bool, Violation> {
    const CALLS: usize = 3;
    let (before, backend) = (subject.assets_now().await, subject.start().await?);
    let request = Request::with_parameters(subject, &backend, &subject.new_name(), bytes, parameters);
    if !request.is_accepted(&backend) {
        return Ok(false);
    }
    for _ in 0..CALLS {
        match request.call(&backend).await {
            Ok(volume) => {
                if let Ok(made) = request.save(volume) {
                    subject.delete(&backend, &made.object).await?;
                }
                return Ok(false);
            }
            Err(error) if error.verdict().may_be_left() => {
                sleep(subject.tempo.retry(error.retry_after())).await;
            }
            Err(error) => {
                let when = format!("after `provision` of {bytes} bytes has said {error:?}");
                subject.expect(&before, 0, &when).await?;
                return Ok(true);
            }
        }
    }
    // Without `clean_up`, an attempt that never succeeds cannot be ended.
    subject.clean_up(&backend, &request).await?;
    Ok(false)
}
