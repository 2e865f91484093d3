//! Maps an outcome to the text for users, its name in metrics, and the time of the next run.

use std::time::Duration;

use driver_rpc::{Code, Status};
use provisioner_runtime::{JournalError, Next};

use super::decide::Refusal;
use super::objects::{CLEANUP_FINISHED, S3};
use super::outcome::{Done, Operation, Outcome, Stopped};
use crate::controller::shared::limits::{MAX_PAUSE_WITHOUT_CALL, REMIND, Thresholds, after_call, is_last};
use crate::controller::shared::metrics::aborted_label;
use crate::controller::shared::texts::{call_failed_text, gave_up_deletion_text, limited, no_answer_text, sentence};

/// The pause before a call that continues the former one.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) is_warning: bool,
    pub(super) reason: &'static str,
    pub(super) text: String,
    /// True if the object's status also contains the message.
    pub(super) in_status: bool,
}

pub(super) fn message(operation: Operation, outcome: &Outcome, gave_up: Option<u32>) -> Option<Message> {
    let good =
        |reason, text: String| Some(Message { is_warning: false, reason, text: limited(text), in_status: false });
    let bad = |in_status, text: String| {
        let text = match gave_up {
            Some(attempts) if operation.removes() => gave_up_deletion_text(&text, attempts),
            // Changes of the BucketClaim or the class do not reach the object.
            Some(attempts) => format!(
                "{text} (gave up after {attempts} attempts; delete the BucketClaim or BucketAccess and create it again)"
            ),
            None => text,
        };
        Some(Message { is_warning: true, reason: operation.failed(), text: limited(text), in_status })
    };
    match outcome {
        Ok(Done::NoAction) | Err(Stopped::AwaitsPermit(_)) | Err(Stopped::Changed) => None,
        Err(Stopped::NotFenced(JournalError::Call(error))) if !error.is_transient() => {
            bad(false, call_failed_text("checking that no other replica works", error))
        }
        // Another replica continues.
        Err(Stopped::NotFenced(_)) => None,
        Err(Stopped::CallFailed { error, .. }) if error.is_transient() => None,
        Err(Stopped::Refused(refusal)) => bad(true, refusal_text(operation, refusal)),
        Ok(Done::Provisioned { bucket }) => good("Provisioned", format!("Created bucket {bucket}")),
        Ok(Done::AlreadyExists { bucket }) => good("Provisioned", format!("Found bucket {bucket}")),
        Ok(Done::Deleted { bucket }) => good("Deleted", format!("Deleted bucket {bucket}")),
        Ok(Done::Released) => good("Released", "The bucket in the object store is kept".to_owned()),
        Ok(Done::Granted) => good("AccessGranted", "The Secrets have the account's key".to_owned()),
        Ok(Done::Restored) => good("SecretsRestored", "The Secrets were written again".to_owned()),
        Ok(Done::Revoked) => good("AccessRevoked", "The account and its key are removed".to_owned()),
        Err(Stopped::Failed(status)) if is_in_progress(status) => good("InProgress", sentence(status.message())),
        Err(Stopped::Failed(status)) => bad(true, with_abandon_hint(operation, sentence(status.message()))),
        Err(Stopped::Aborted(aborted)) => {
            bad(true, with_abandon_hint(operation, no_answer_text(aborted, operation.label())))
        }
        Err(Stopped::CallFailed { doing, error }) => bad(true, call_failed_text(doing, error)),
    }
}

/// Adds how to abandon a removal, which is otherwise repeated until it succeeds: the backend may no longer exist.
fn with_abandon_hint(operation: Operation, text: String) -> String {
    match operation {
        Operation::Delete => {
            format!(
                "{text}; to delete the Bucket without the bucket in the store, set its spec.deletionPolicy to Retain"
            )
        }
        Operation::Revoke => format!(
            "{text}; to delete the BucketAccess without the account, whose key may stay valid, set its annotation \
             {CLEANUP_FINISHED}"
        ),
        Operation::Provision | Operation::Grant => text,
    }
}

fn refusal_text(operation: Operation, refusal: &Refusal) -> String {
    match refusal {
        Refusal::Unreadable(problem) => {
            format!(
                "The controller cannot read the object, so it does not change it: {problem}; check the version of the CRD"
            )
        }
        Refusal::Protocol(protocol) => format!("The protocol {protocol} is not supported: use {S3}"),
        Refusal::Unbound => {
            "spec.bucketClaimRef has no uid: a Bucket that an administrator creates needs existingBucketID".to_owned()
        }
        Refusal::OtherId { has, wanted } => {
            let remedy = match operation {
                // A Bucket that is deleted and created again may lose its bucket.
                Operation::Provision | Operation::Delete => "correct status.bucketID",
                Operation::Grant | Operation::Revoke => "delete the object and create it again",
            };
            format!("The status has the id {has:?}, which is not {wanted:?}: {remedy}")
        }
        Refusal::ClaimRemains => "The Bucket is kept until its BucketClaim is deleted: delete that".to_owned(),
        Refusal::Authentication(kind) => {
            format!("authenticationType {kind} is not supported: use a BucketAccessClass with Key")
        }
        Refusal::SameSecret(name) => {
            format!("Two of spec.bucketClaims have the same accessSecretName {name:?}: give each a different name")
        }
        Refusal::SameBucket(id) => format!("Two of spec.bucketClaims have the same bucket {id}: name it once"),
        Refusal::BucketAbsent(name) => format!("Bucket {name} does not exist: delete the BucketAccess"),
        Refusal::BucketForeign(name) => {
            format!("Bucket {name} belongs to another driver: use a BucketAccessClass of that driver")
        }
        Refusal::BucketDeleting(name) => {
            format!("Bucket {name} or its BucketClaim is being deleted: delete the BucketAccess")
        }
        Refusal::BucketNotReady(name) => format!("Waiting for Bucket {name} to be ready"),
        Refusal::SecretForeign(name) => format!(
            "Secret {name} exists and does not belong to this BucketAccess: delete the Secret, or create a BucketAccess with \
             another accessSecretName"
        ),
        Refusal::SecretDeleting(name) => {
            format!("Waiting for the deletion of Secret {name}: one of its finalizers blocks it")
        }
    }
}

/// Returns when the key runs again.
pub(super) fn next(operation: Operation, outcome: &Outcome, attempt: u32, thresholds: Thresholds) -> Next {
    if gives_up(operation, outcome, attempt, thresholds) {
        return Next::AwaitChange;
    }
    match outcome {
        Err(Stopped::AwaitsPermit(flow)) => Next::AwaitPermit(flow.clone()),
        Err(Stopped::Changed) => Next::Again,
        // Foreign Secrets are not watched.
        Err(Stopped::Refused(Refusal::SecretForeign(_) | Refusal::SecretDeleting(_))) => Next::Retry,
        Err(Stopped::Refused(_)) => REMIND,
        Ok(_) => Next::Done,
        // A creation that can only fail waits for a change. A deletion is always retried.
        Err(Stopped::Failed(status)) if is_final(status.code()) && !operation.removes() => REMIND,
        Err(Stopped::Failed(status)) if is_precondition(status) => Next::RetryWithin(MAX_PAUSE_WITHOUT_CALL),
        Err(Stopped::Failed(status)) if is_in_progress(status) => Next::Wait(Some(PAUSE)),
        Err(Stopped::Failed(_)) | Err(Stopped::NotFenced(_)) | Err(Stopped::Aborted(_)) => Next::Retry,
        Err(Stopped::CallFailed { error, .. }) => after_call(error, attempt),
    }
}

/// Returns true if a sidecar would not retry after this code.
fn is_final(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::AlreadyExists | Code::Unimplemented | Code::OutOfRange)
}

/// Returns true if this was the last attempt until something changes. A precondition is not counted: no watch shows
/// when a Secret of the class appears, or a bucket is no longer in use. Progress is not counted either.
pub(super) fn gives_up(operation: Operation, outcome: &Outcome, attempt: u32, thresholds: Thresholds) -> bool {
    let threshold = if operation.removes() { thresholds.delete } else { thresholds.provision };
    let counts = |status| !is_precondition(status) && !is_in_progress(status);
    matches!(outcome, Err(Stopped::Failed(status)) if counts(status)) && is_last(attempt, threshold)
}

/// Returns true if the driver needs another call, for example to delete more objects.
fn is_in_progress(status: &Status) -> bool {
    status.code() == Code::Aborted
}

/// Returns true if a user has to act first.
fn is_precondition(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition
}

/// Returns the outcome's name in metrics and logs; `None` if nothing was done.
pub(super) fn label(outcome: &Outcome) -> Option<&'static str> {
    Some(match outcome {
        Ok(Done::NoAction) | Err(Stopped::AwaitsPermit(_)) | Err(Stopped::Changed) => return None,
        Err(Stopped::Refused(_)) => "refused",
        Ok(_) => "success",
        Err(Stopped::NotFenced(_)) => "lost",
        Err(Stopped::Failed(_)) => "failed",
        Err(Stopped::Aborted(aborted)) => aborted_label(aborted),
        Err(Stopped::CallFailed { .. }) => "api_error",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_a_failed_precondition_within_a_minute() {
        let thresholds = Thresholds { provision: 1, delete: 1 };
        let next = |code| next(Operation::Delete, &Err(Stopped::Failed(Status::new(code, "text"))), 9, thresholds);
        assert_eq!(next(Code::FailedPrecondition), Next::RetryWithin(MAX_PAUSE_WITHOUT_CALL));
        assert_eq!(next(Code::Unavailable), Next::AwaitChange);
        // A large bucket is deleted in many calls.
        assert_eq!(next(Code::Aborted), Next::Wait(Some(PAUSE)));
    }

    #[test]
    fn remedies_of_a_bucket_do_not_delete_it() {
        let other = Refusal::OtherId { has: "other".to_owned(), wanted: "bc-1".to_owned() };
        let text = |operation| message(operation, &Err(Stopped::Refused(other.clone())), None).unwrap().text;
        assert!(text(Operation::Provision).ends_with("is not \"bc-1\": correct status.bucketID"));
        assert!(text(Operation::Grant).ends_with("is not \"bc-1\": delete the object and create it again"));
    }

    #[test]
    fn remedy_after_the_last_attempt_reaches_the_object() {
        let failed = Err(Stopped::Failed(Status::new(Code::Unavailable, "the store is down")));
        let text = message(Operation::Provision, &failed, Some(2)).unwrap().text;
        assert!(
            text.contains("(gave up after 2 attempts; delete the BucketClaim or BucketAccess and create it again)")
        );
    }
}
