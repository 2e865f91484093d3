//! Checks that `docs/book/pages/reference/bucket-events.md` has a row for each message that users can see, and no
//! others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use provisioner_runtime::watch::FromJson as _;
use provisioner_runtime::{Flow, JournalError};
use serde_json::json;

use super::decision::{BucketClaimProblem, ChangeWithoutEffect, Refusal, RefusedConfig, ReleaseMode};
use super::delivered_names::DeliveredNames;
use super::facts::{ClaimFacts, ClassState, Delivered, Facts};
use super::messages::{
    Severity, UserMessage, has_unused_prefix, pinned_text, provisioned_with_warning, provisioner_paused,
    removed_unknown_keys, still_provisioning, user_message,
};
use super::outcome::{Done, NotServed, Stopped};
use super::partial::{WatchedBucket, bucket_facts};
use crate::controller::shared::event_table::{
    MESSAGE, NUMBER, Row, all_aborted, call_error, compare_with_page, delete_verdicts, every, verdicts, with_capitals,
};
use crate::error::{DeleteVerdict, ProvisionVerdict, with_log_hint};

every!(refusals -> Refusal {
    Refusal::FormerBucket => [Refusal::FormerBucket],
    Refusal::OrphanedBucket { .. } => [Refusal::OrphanedBucket { object: "OBJECT".to_owned() }],
    Refusal::UnprovenOwner { .. } => [Refusal::UnprovenOwner { object: "OBJECT".to_owned() }],
    Refusal::NoClaim { .. } => [Refusal::NoClaim { object: "OBJECT".to_owned() }],
    Refusal::Unclaimed { .. } => [Refusal::Unclaimed { object: "OBJECT".to_owned() }],
    Refusal::NoCluster { .. } => [Refusal::NoCluster { object: "OBJECT".to_owned() }],
    Refusal::Unreadable { .. } => [Refusal::Unreadable { kind: "KIND", problem: "PROBLEM".to_owned() }],
    Refusal::OtherCluster { .. } => [Refusal::OtherCluster { creator: "CLUSTER".to_owned() }],
    Refusal::OtherInstallation { .. } => [Refusal::OtherInstallation { creator: "IDENTITY".to_owned() }],
    Refusal::NoName => [Refusal::NoName],
    Refusal::BadName { .. } => [Refusal::BadName { name: "NAME".to_owned(), problem: "PROBLEM" }],
    Refusal::Parameters(_) => [Refusal::Parameters("PROBLEMS".to_owned())],
    Refusal::ParametersCrash(_) => [Refusal::ParametersCrash("PANIC".to_owned())],
    Refusal::ConfigNotAllowed(_) => [
        (["OTHER"], Some("KEYS"), true), (["OTHER"], Some("KEYS"), false), (["KEYS"], None, true), (["KEYZ"], Some("KEYS"), false),
    ].map(|(keys, allowed, are_known)| Refusal::ConfigNotAllowed(RefusedConfig {
        keys: keys.map(str::to_owned).to_vec(), allowed: allowed.into_iter().map(str::to_owned).collect(), are_known
    })),
    Refusal::Record(_) => [Refusal::Record("PROBLEM".to_owned())],
    Refusal::ObjectDeleted => [Refusal::ObjectDeleted],
    Refusal::NoRotation => [Refusal::NoRotation],
    Refusal::BadObjectName { .. } => {
        ["Secret", "ConfigMap"].map(|kind| Refusal::BadObjectName { kind, name: "NAME".to_owned() })
    },
    Refusal::NotOwned { .. } => ["Secret", "ConfigMap"].map(|kind| Refusal::NotOwned { kind }),
    Refusal::BucketClaim { .. } => problems().into_iter().map(|problem| Refusal::BucketClaim {
        claim: "OTHER".to_owned(), problem
    }),
    Refusal::ChangeWithoutEffect(_) => changes().into_iter().map(Refusal::ChangeWithoutEffect),
    Refusal::InUse { .. } => [Refusal::InUse { by: vec!["CLAIMS".to_owned()] }],
});

every!(problems -> BucketClaimProblem {
    BucketClaimProblem::Missing => [BucketClaimProblem::Missing],
    BucketClaimProblem::NotBound => [BucketClaimProblem::NotBound],
    BucketClaimProblem::Deleting => [BucketClaimProblem::Deleting],
    BucketClaimProblem::SameClaim => [BucketClaimProblem::SameClaim],
    BucketClaimProblem::NotBucketOwner => [BucketClaimProblem::NotBucketOwner],
    BucketClaimProblem::OtherClass { .. } => [BucketClaimProblem::OtherClass { class: "CLASS".to_owned() }],
    BucketClaimProblem::ClassNamesBucket => [BucketClaimProblem::ClassNamesBucket],
    BucketClaimProblem::OtherName { .. } => [BucketClaimProblem::OtherName { bucket: "BUCKET".to_owned() }],
});

every!(changes -> ChangeWithoutEffect {
    ChangeWithoutEffect::BucketName { .. } => [ChangeWithoutEffect::BucketName { bucket: "BUCKET".to_owned() }],
    ChangeWithoutEffect::Class { .. } => [ChangeWithoutEffect::Class {
        class: "FORMER".to_owned(), policy: "Delete", object: "OBJECT".to_owned()
    }],
    ChangeWithoutEffect::Config { .. } => [ChangeWithoutEffect::Config { key: "KEY" }],
});

every!(endings -> ReleaseMode {
    ReleaseMode::Delete => [ReleaseMode::Delete],
    ReleaseMode::Revoke => [ReleaseMode::Revoke],
    ReleaseMode::RevokeUnknown => [ReleaseMode::RevokeUnknown],
    ReleaseMode::CleanUp => [ReleaseMode::CleanUp],
    ReleaseMode::Abandon => [ReleaseMode::Abandon],
});

every!(all_done -> Done {
    Done::Nothing => [Done::Nothing],
    Done::Provisioned { .. } => [Done::Provisioned { bucket: "BUCKET".to_owned() }],
    Done::Configured => [Done::Configured],
    Done::Restored => [Done::Restored],
    Done::KeyReplaced => [Done::KeyReplaced],
    Done::Adopted => [Done::Adopted],
    Done::Rotated => [Done::Rotated],
    Done::Retired => [Done::Retired],
    Done::CheckAgain { .. } => [Done::CheckAgain { after: Duration::ZERO }],
    Done::Released { .. } => endings().into_iter().map(|release_mode| {
        Done::Released { release_mode, bucket: "BUCKET".to_owned() }
    }),
    Done::ClaimReleased => [Done::ClaimReleased],
});

every!(all_stopped -> Stopped {
    Stopped::ClaimGone => [Stopped::ClaimGone],
    Stopped::Refused(_) => refusals().into_iter().map(Stopped::Refused),
    Stopped::NotServed(_) => [NotServed::NoClass, NotServed::ForeignClass].map(Stopped::NotServed),
    Stopped::BadConfig { .. } => [Vec::new(), vec!["KEYS".to_owned()]].map(|known| {
        Stopped::BadConfig { problem: "PROBLEMS".to_owned(), known }
    }),
    Stopped::BadRecord(_) => [Stopped::BadRecord("PROBLEMS".to_owned())],
    Stopped::ClassGone => [Stopped::ClassGone],
    Stopped::AwaitsPermit(_) => [Stopped::AwaitsPermit(Flow::creating("CLASS"))],
    Stopped::Changed => [Stopped::Changed],
    // The type belongs to another crate, which may extend it. Buckets have no journal, so no other variant occurs.
    Stopped::NotFenced(_) => [
        Stopped::NotFenced(JournalError::Lost("another".to_owned())),
        Stopped::NotFenced(JournalError::Call(Arc::new(call_error()))),
    ],
    Stopped::SecretMissing { .. } => [
        Stopped::SecretMissing { namespace: "NAMESPACE".to_owned(), name: "NAME".to_owned() },
    ],
    Stopped::SecretName(_) => [Stopped::SecretName("PROBLEM".to_owned())],
    Stopped::NotProvisioned { .. } => verdicts().into_iter().map(not_provisioned),
    Stopped::NotRotated { .. } => [Stopped::NotRotated { message: MESSAGE.to_owned(), retry_after: None }],
    Stopped::NotRetired { .. } => [Stopped::NotRetired { message: MESSAGE.to_owned(), retry_after: None }],
    Stopped::RotationAborted { .. } => all_aborted().into_iter().map(|aborted| {
        Stopped::RotationAborted { method: "METHOD", aborted }
    }),
    Stopped::ProvisionAborted { .. } => all_aborted().into_iter().map(|aborted| Stopped::ProvisionAborted { method: "METHOD", aborted }),
    Stopped::NotOwned { .. } => ["Secret", "ConfigMap"].map(|kind| Stopped::NotOwned { kind, name: "NAME".to_owned() }),
    Stopped::NotReleased { .. } => delete_verdicts().into_iter().map(not_released),
    Stopped::ReleaseAborted { .. } => all_aborted().into_iter().map(|aborted| {
        Stopped::ReleaseAborted { method: "METHOD", aborted }
    }),
    Stopped::CallFailed { .. } => [Stopped::CallFailed { doing: "DOING", error: call_error() }],
});

fn not_provisioned(verdict: ProvisionVerdict) -> Stopped {
    Stopped::NotProvisioned { verdict, message: MESSAGE.to_owned(), retry_after: None }
}

fn not_released(verdict: DeleteVerdict) -> Stopped {
    Stopped::NotReleased { verdict, message: MESSAGE.to_owned(), retry_after: None }
}

fn facts(deleting: bool) -> Facts {
    let claim = ClaimFacts {
        namespace: "NAMESPACE".into(),
        name: "CLAIM".into(),
        uid: "uid".into(),
        resource_version: 1,
        created: None,
        deleting,
        finalizers: Vec::new(),
        label: None,
        class: Some("CLASS".into()),
        bucket_name: None,
        prefix: None,
        object_bucket: None,
        config: Default::default(),
        rotation: None,
        status: Default::default(),
        unreadable: None,
    };
    Facts {
        claim: Some(Arc::new(claim)),
        bucket: None,
        obstacle: None,
        owner: Default::default(),
        users: Vec::new(),
        class: ClassState::Missing,
        names: DeliveredNames::of("NAME"),
        secret: Delivered::Absent,
        config_map: Delivered::Absent,
    }
}

/// Returns where a message is shown: in an event, in the condition `Ready`, or in both.
fn rows_of(message: &UserMessage) -> Vec<Row> {
    let kind = match message.severity {
        Severity::Silent => None,
        Severity::Normal => Some("Normal"),
        Severity::Warning => Some("Warning"),
    };
    let event = kind.map(|kind| (kind, message.reason, message.text.as_str()));
    let status = message.state.map(|_| message.ready());
    let row = |reason, place: &str, text| (format!("`{reason}` ({place})"), with_capitals(text));
    match (event, status) {
        (Some((kind, reason, text)), Some(status)) if status == (reason, text) => {
            vec![row(reason, &format!("{kind}, event and status"), text)]
        }
        (event, status) => {
            let event = event.map(|(kind, reason, text)| row(reason, &format!("{kind}, event only"), text));
            let status = status.map(|(reason, text)| row(reason, "status only", text));
            event.into_iter().chain(status).collect()
        }
    }
}

fn rows_of_outcomes() -> BTreeSet<Row> {
    let facts = [facts(false), facts(true)];
    let of_outcomes = all_done().into_iter().map(Ok).chain(all_stopped().into_iter().map(Err)).flat_map(|outcome| {
        let each = facts.each_ref().map(|facts| user_message(&outcome, facts, "PROVISIONER", None));
        each.into_iter().flatten()
    });
    let others = [
        provisioner_paused(false),
        provisioner_paused(true),
        still_provisioning("PROVISIONER", "NAMESPACE/CLAIM"),
        provisioned_with_warning(MESSAGE),
        has_unused_prefix("BUCKET"),
        removed_unknown_keys(&["KEYS".to_owned()]),
    ];
    let others = others.into_iter().chain(messages_of_special_claims());
    of_outcomes.chain(others).flat_map(|message| rows_of(&message)).collect()
}

/// Returns the messages that differ for a claim without a class, and for a claim that has a bucket.
fn messages_of_special_claims() -> impl Iterator<Item = UserMessage> {
    let mut without_class = facts(false);
    without_class.claim = without_class.claim.map(|claim| Arc::new(ClaimFacts { class: None, ..(*claim).clone() }));
    let bucket = json!({
        "metadata": {"name": "OBJECT", "uid": "uid"}, "spec": {"endpoint": {"bucketName": "BUCKET"}},
        "status": {"phase": "Bound"},
    });
    let bucket = WatchedBucket::from_json(&bucket.to_string()).unwrap();
    let served = Facts { bucket: bucket_facts(&bucket).map(Arc::new), ..facts(false) };
    let not_served = user_message(&Err(Stopped::NotServed(NotServed::NoClass)), &without_class, "PROVISIONER", None);
    let not_owned = ["Secret", "ConfigMap"].map(|kind| {
        user_message(&Err(Stopped::NotOwned { kind, name: "NAME".to_owned() }), &served, "PROVISIONER", None)
    });
    not_owned.into_iter().chain([not_served]).flatten()
}

/// Returns the additions to the message of the last attempt.
fn rows_of_additions() -> BTreeSet<Row> {
    let last =
        [(not_provisioned(ProvisionVerdict::Retry), facts(false)), (not_released(DeleteVerdict::Retry), facts(true))];
    let addition = |(stopped, facts): (Stopped, Facts)| {
        let message = user_message(&Err(stopped), &facts, "PROVISIONER", Some(NUMBER)).unwrap();
        let text = with_capitals(&message.text);
        ("Additions".to_owned(), text.strip_prefix("MESSAGE ").unwrap_or_else(|| panic!("{text}")).to_owned())
    };
    let others = [pinned_text(MESSAGE, "OBJECT"), with_log_hint(MESSAGE)];
    let others = others.map(|text| ("Additions".to_owned(), with_capitals(&text).replacen("MESSAGE ", "", 1)));
    last.into_iter().map(addition).chain(others).collect()
}

#[test]
fn the_page_has_a_row_for_each_message() {
    compare_with_page("bucket-events.md", rows_of_outcomes().into_iter().chain(rows_of_additions()).collect());
}
