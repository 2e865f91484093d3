//! The rules for volume provisioners.

use super::subject::Subject;
use super::suite::{Rule, rules};
use super::{calls, cancellation, names, parameters, runs, storm, unfinished};

pub(super) const RULES: &[Rule<Subject>] = rules! {
    "provision" (calls::provision): "a request creates one asset and a valid volume";
    "idempotent" (calls::idempotent): "the same request again, also by a new process, finds the same asset and volume";
    "separate" (calls::separate): "volumes of different names share nothing";
    "delete-missing" (calls::delete_gone): "deleting removes the asset; deleting an absent or incomplete asset succeeds";
    "cancel-provision" (cancellation::provision):
        "after a cancellation at any await, provisioning again creates one asset, and deleting leaves none";
    "cancel-delete" (cancellation::delete): "after a cancellation at any await, deleting again removes everything";
    "abandoned" (unfinished::abandoned):
        "after a cancellation at any await, an attempt for a deleted claim leaves nothing";
    "clean-up" (unfinished::clean_up):
        "after a cancellation at any await, cleaning up again removes everything; cleaning up nothing succeeds";
    "fencing-token" (unfinished::fencing_token):
        "whenever a process loses its fencing token, the next call continues, and no asset is created twice";
    "nothing-left" (unfinished::nothing_left): "an error that reports nothing left behind is true";
    "capacity" (calls::capacity): "a volume is at least as large as the request";
    "expand" (calls::expand): "a volume grows, also when repeated by a new process, and never shrinks";
    "foreign-volume" (calls::foreign_volume): "deleting a volume that claims to be another one does not affect the other";
    "one-name" (names::one_name): "two claims race for one name: neither receives the asset of the other";
    "manually-created" (names::manually_created):
        "an asset that an administrator created under a volume's name is neither taken over nor removed";
    "unknown-parameters" (parameters::unknown): "an unknown parameter is refused, and the claim's event names it";
    "refused-parameters" (parameters::refused):
        "bad parameters are refused once, with an event on the claim, and the backend stays untouched";
    "standby" (calls::standby): "a standby process reports ready and changes nothing";
    "restart" (runs::restart):
        "with repeated crashes, every claim is bound, no asset is created twice, and none is left";
    "two-replicas" (runs::two_replicas):
        "two processes at once, as in a rolling update, create no asset twice and leave none";
    "hundred-claims" (runs::hundred_claims): "a hundred claims at once are all bound, and all deleted";
    "storm" (storm::storms):
        "after faults of the API server and of the machine, every claim and volume reaches its final state";
};
