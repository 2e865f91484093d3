//! The rules for volume provisioners.

use super::subject::Subject;
use super::suite::{Rule, rule};
use super::{calls, cancellation, names, parameters, runs, storm, unfinished};

pub(super) const RULES: &[Rule<Subject>] = &[
    rule("provision", "a request makes one asset and a valid volume", |subject| Box::pin(calls::provision(subject))),
    rule("idempotent", "the same request again, also by a new process, finds the same asset and volume", |subject| {
        Box::pin(calls::idempotent(subject))
    }),
    rule("separate", "volumes of different names share nothing", |subject| Box::pin(calls::separate(subject))),
    rule("delete-gone", "deleting removes the asset; deleting an absent or incomplete asset succeeds", |subject| {
        Box::pin(calls::delete_gone(subject))
    }),
    rule(
        "cancel-provision",
        "after a cancellation at any await, provisioning again makes one asset, and deleting leaves none",
        |subject| Box::pin(cancellation::provision(subject)),
    ),
    rule("cancel-delete", "after a cancellation at any await, deleting again removes everything", |subject| {
        Box::pin(cancellation::delete(subject))
    }),
    rule("abandoned", "after a cancellation at any await, an attempt for a deleted claim leaves nothing", |subject| {
        Box::pin(unfinished::abandoned(subject))
    }),
    rule(
        "clean-up",
        "after a cancellation at any await, cleaning up again removes everything; cleaning up nothing succeeds",
        |subject| Box::pin(unfinished::clean_up(subject)),
    ),
    rule(
        "fencing-token",
        "whenever a process loses its fencing token, the next call continues, and nothing is made twice",
        |subject| Box::pin(unfinished::fencing_token(subject)),
    ),
    rule("nothing-left", "an error that reports nothing left behind is true", |subject| {
        Box::pin(unfinished::nothing_left(subject))
    }),
    rule("capacity", "a volume is at least as large as the request", |subject| Box::pin(calls::capacity(subject))),
    rule("expand", "a volume grows, also when repeated by a new process, and never shrinks", |subject| {
        Box::pin(calls::expand(subject))
    }),
    rule("foreign-volume", "deleting a volume that claims to be another one leaves the other alone", |subject| {
        Box::pin(calls::foreign_volume(subject))
    }),
    rule("one-name", "two claims race for one name: neither gets the asset of the other", |subject| {
        Box::pin(names::one_name(subject))
    }),
    rule(
        "made-by-hand",
        "an asset that a person created under a volume's name is neither taken over nor removed",
        |subject| Box::pin(names::made_by_hand(subject)),
    ),
    rule("unknown-parameters", "an unknown parameter is refused, and the claim's event names it", |subject| {
        Box::pin(parameters::unknown(subject))
    }),
    rule(
        "refused-parameters",
        "bad parameters are refused once, with an event on the claim, and the backend stays untouched",
        |subject| Box::pin(parameters::refused(subject)),
    ),
    rule("standby", "a standby process reports ready and changes nothing", |subject| Box::pin(calls::standby(subject))),
    rule(
        "restart",
        "with repeated crashes, every claim is bound, nothing is made twice, and nothing is left",
        |subject| Box::pin(runs::restart(subject)),
    ),
    rule(
        "two-replicas",
        "two processes at once, as in a rolling update, make nothing twice and leave nothing",
        |subject| Box::pin(runs::two_replicas(subject)),
    ),
    rule("hundred-claims", "a hundred claims at once are all bound, and all deleted", |subject| {
        Box::pin(runs::hundred_claims(subject))
    }),
    rule(
        "storm",
        "after faults of the API server and of the machine, every claim and volume reaches its final state",
        |subject| Box::pin(storm::storms(subject)),
    ),
];
