//! Rules about single calls, without a cluster.

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use crate::error::ExpandVerdict;

use super::subject::{Answer, CreatedVolume, DEFAULT_BYTES, Request, Subject};
use super::verdict::{CheckResult, RuleVerdict, Violation};

pub(super) async fn provision(subject: &Subject) -> CheckResult {
    let before = subject.assets_now().await;
    let backend = subject.start().await?;
    let request = Request::new(subject, &backend, &subject.new_name(), DEFAULT_BYTES);
    let made = subject.provision_request(&backend, &request).await?;
    subject.expect(&before, 1, "after `provision`").await?;
    let problem = match (backend.capabilities().attempt_end, request.has_no_end(&backend).await?) {
        (true, true) => Some("`capabilities` declares `attempt_end`, but there is no method `end_attempt`"),
        (false, false) => Some("`end_attempt` is never called, because `capabilities` does not declare `attempt_end`"),
        (true, false) | (false, true) => None,
    };
    if let Some(problem) = problem {
        return Err(Violation(problem.to_owned()));
    }
    subject.delete(&backend, &made.object).await?;
    subject.expect(&before, 0, "after `provision` and `delete`").await?;
    for mode in backend.capabilities().access_modes.into_iter().flatten().skip(1) {
        let request = Request::new(subject, &backend, &subject.new_name(), DEFAULT_BYTES).with_mode(mode);
        let of_mode = format!("for a claim with {}", mode.as_str());
        let made = subject.provision_request(&backend, &request).await.map_err(Violation::with_context(&of_mode))?;
        subject.delete(&backend, &made.object).await?;
        subject.expect(&before, 0, &format!("after `provision` and `delete` with {}", mode.as_str())).await?;
    }
    Ok(RuleVerdict::Kept)
}

pub(super) async fn idempotent(subject: &Subject) -> CheckResult {
    let (before, name) = (subject.assets_now().await, subject.new_name());
    let first = subject.start().await?;
    let made = subject.provision(&first, &name).await?;
    let again = subject.provision(&first, &name).await?;
    same(&made, &again, "the second call of `provision`")?;
    subject.expect(&before, 1, "after the second call of `provision`").await?;
    drop(first);
    let restarted = subject.start().await?;
    let again = subject.provision(&restarted, &name).await?;
    same(&made, &again, "`provision` in a new process")?;
    subject.expect(&before, 1, "after `provision` in a new process").await?;
    subject.delete(&restarted, &made.object).await?;
    subject.expect(&before, 0, "after `delete`").await?;
    Ok(RuleVerdict::Kept)
}

pub(super) async fn separate(subject: &Subject) -> CheckResult {
    let (before, backend) = (subject.assets_now().await, subject.start().await?);
    let mut names: Vec<String> = (0..8).map(|_| subject.new_name()).collect();
    // A name that begins with another name, to detect lookups such as `list --prefix`.
    names.push(format!("{}0", names[0]));
    let made = try_join_all(names.iter().map(|name| subject.provision(&backend, name))).await?;
    for (index, one) in made.iter().enumerate() {
        if let Some(other) = made[..index].iter().position(|other| other.volume.source == one.volume.source) {
            let (one, other) = (&names[index], &names[other]);
            return Err(Violation(format!("{one} and {other} have the same source: {:?}", made[index].volume.source)));
        }
    }
    let mut left = subject.expect(&before, names.len(), "after concurrent calls of `provision`").await?;
    for (index, (name, made)) in names.iter().zip(&made).enumerate() {
        subject.delete(&backend, &made.object).await?;
        let when = format!("after deleting only {name}");
        let now = subject.expect(&before, names.len() - index - 1, &when).await?;
        if !left.contains_all(&now) {
            return Err(Violation(format!("{when}, there are new assets: {}", now.without(&left))));
        }
        left = now;
    }
    Ok(RuleVerdict::Kept)
}

pub(super) async fn delete_gone(subject: &Subject) -> CheckResult {
    let (before, name) = (subject.assets_now().await, subject.new_name());
    let backend = subject.start().await?;
    let made = subject.provision(&backend, &name).await?;
    for when in ["`delete`", "`delete` of missing storage"] {
        subject.delete(&backend, &made.object).await.map_err(Violation::with_context(when))?;
        subject.expect(&before, 0, &format!("after {when}")).await?;
    }
    let restarted = subject.start().await?;
    let again = Violation::with_context("`delete` of missing storage, in a new process");
    subject.delete(&restarted, &made.object).await.map_err(again)?;

    let again = subject.provision(&restarted, &name).await?;
    subject.expect(&before, 1, "after `provision`, `delete` and `provision` again").await?;
    subject.delete(&subject.start().await?, &again.object).await?;
    subject.expect(&before, 0, "after `delete` in a process that did not provision").await?;
    Ok(RuleVerdict::Kept)
}

pub(super) async fn capacity(subject: &Subject) -> CheckResult {
    const SIZES: [u64; 5] = [1, 1 << 20, (1 << 20) + 1, 1_000_000_000, (1 << 30) + 1];
    let backend = subject.start().await?;
    for bytes in SIZES {
        let (before, name) = (subject.assets_now().await, subject.new_name());
        let request = Request::new(subject, &backend, &name, bytes);
        let made = match subject.call_provision(&backend, &request).await? {
            Answer::Done(volume) => request.save(volume),
            // The backend does not support this size.
            Answer::Rejected(error) => {
                let when = format!("after `provision` of {bytes} bytes has said {error:?}");
                subject.expect(&before, 0, &when).await?;
                continue;
            }
        };
        let made = made.map_err(Violation::with_context(&format!("asked for {bytes} bytes")))?;
        subject.delete(&backend, &made.object).await?;
        subject.expect(&before, 0, &format!("after a volume of {bytes} bytes was deleted")).await?;
    }
    Ok(RuleVerdict::Kept)
}

/// Probes as a rolling update does: the new process has no Lease yet, so `start` has not been called.
pub(super) async fn standby(subject: &Subject) -> CheckResult {
    let before = subject.assets_now().await;
    let working = subject.start().await?;
    let made = subject.provision(&working, &subject.new_name()).await?;
    for (process, what) in [(&subject.new_process(), "before `start`"), (&working, "after it")] {
        let ready = process.probe().await;
        ready.map_err(|error| Violation(format!("`probe` {what}: {error}")))?;
    }
    subject.expect(&before, 1, "after `probe`").await?;
    subject.delete(&working, &made.object).await?;
    Ok(RuleVerdict::Kept)
}

pub(super) async fn expand(subject: &Subject) -> CheckResult {
    let (before, first) = (subject.assets_now().await, subject.start().await?);
    if !first.capabilities().expansion {
        return Ok(RuleVerdict::NotApplicable("`capabilities` does not declare `expansion`".to_owned()));
    }
    let made = subject.provision(&first, &subject.new_name()).await?;
    let restarted = subject.start().await?;
    let steps = [
        (&first, 2, "`expand`"),
        (&first, 2, "`expand` to the same size"),
        (&restarted, 2, "`expand` to the same size in a new process"),
        (&restarted, 3, "`expand` of a volume that an earlier process created"),
        (&first, 2, "`expand` to less than the volume has"),
    ];
    for (backend, times, when) in steps {
        match subject
            .expand(backend, &made.object, times * DEFAULT_BYTES)
            .await
            .map_err(Violation::with_context(when))?
        {
            Answer::Rejected(error) if error.verdict() == ExpandVerdict::Unsupported => {
                return Err(Violation(
                    "`capabilities` declares `expansion`, but there is no method `expand`".to_owned(),
                ));
            }
            Answer::Done(()) => subject.expect(&before, 1, &format!("after {when}")).await?,
            // The backend does not support this size.
            Answer::Rejected(_) => break,
        };
    }
    subject.delete(&restarted, &made.object).await?;
    subject.expect(&before, 0, "after `expand` and `delete`").await?;
    Ok(RuleVerdict::Kept)
}

pub(super) async fn foreign_volume(subject: &Subject) -> CheckResult {
    let (before, backend) = (subject.assets_now().await, subject.start().await?);
    let (mine, other) = (subject.new_name(), subject.new_name());
    let mine_made = subject.provision(&backend, &mine).await?;
    let with_mine = subject.expect(&before, 1, "after `provision`").await?;
    let short = &mine[..mine.len() - 1];
    let forged = [
        (format!("{mine}-copy"), "a name that only begins like the other's"),
        (short.to_owned(), "a name that the other's begins with"),
        (subject.new_name(), "a name of its own"),
    ];
    for (name, what) in forged {
        let volume = disguised(&mine_made.object, &name)?;
        // Any answer is acceptable: refusing is as good as finding nothing.
        let _ = subject.delete_once(&backend, &volume).await;
        let when = format!("after `delete` of a volume with {what} ({name}) and the source and annotations of {mine}");
        subject.expect(&with_mine, 0, &when).await?;
    }
    let other_made = subject.provision(&backend, &other).await?;
    subject.expect(&before, 2, "after a second `provision`").await?;
    for detour in [false, true] {
        let mut volume = disguised(&mine_made.object, &other)?;
        if detour && !with_detour(&mut volume, &other)? {
            continue;
        }
        let _ = subject.delete_once(&backend, &volume).await;
        let now = subject.assets_now().await;
        if !now.contains_all(&with_mine) {
            return Err(Violation(format!(
                "after `delete` of the volume {other}, whose source and annotations were replaced by those of {mine}, \
                 the asset of {mine} is missing: {}",
                with_mine.without(&now)
            )));
        }
    }
    subject.delete(&backend, &other_made.object).await?;
    subject.delete(&backend, &mine_made.object).await?;
    subject.expect(&before, 0, "after `delete` of the true volumes").await?;
    Ok(RuleVerdict::Kept)
}

/// Returns the volume with another name and another uid.
fn disguised(volume: &PersistentVolume, name: &str) -> Result<PersistentVolume, Violation> {
    let mut value = encoded(volume)?;
    value["metadata"]["name"] = json!(name);
    value["metadata"]["uid"] = json!(format!("uid-of-{name}"));
    decoded(value)
}

/// Inserts `/NAME/..` before the last part of the path; returns false if the source has no path. The changed path still
/// leads to the same asset, so a provisioner that deletes by path affects only the asset of this check.
fn with_detour(volume: &mut PersistentVolume, name: &str) -> Result<bool, Violation> {
    let mut value = encoded(volume)?;
    for source in ["hostPath", "local", "nfs"] {
        let Some((folder, last)) = value["spec"][source]["path"].as_str().and_then(|path| path.rsplit_once('/')) else {
            continue;
        };
        value["spec"][source]["path"] = json!(format!("{folder}/{name}/../{last}"));
        *volume = decoded(value)?;
        return Ok(true);
    }
    Ok(false)
}

fn encoded(volume: &PersistentVolume) -> Result<Value, Violation> {
    serde_json::to_value(volume).map_err(|error| Violation(error.to_string()))
}

fn decoded(value: Value) -> Result<PersistentVolume, Violation> {
    serde_json::from_value(value).map_err(|error| Violation(error.to_string()))
}

fn same(first: &CreatedVolume, second: &CreatedVolume, what: &str) -> Result<(), Violation> {
    if first.volume == second.volume {
        return Ok(());
    }
    Err(Violation(format!("{what} returned another volume:\n  first {:?}\n  then  {:?}", first.volume, second.volume)))
}
