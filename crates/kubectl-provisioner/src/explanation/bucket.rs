//! Decisions about bucket claims.

use kube_provisioner::explain::bucket::{Decision, NoAction, Reason, Refusal, ReleaseMode};

use super::{Explanation, state_only, with_remedy, without_remedy};

/// Explains why the controller does nothing.
pub(crate) fn no_action(why: NoAction) -> Explanation {
    match why {
        NoAction::Bound => without_remedy("bound", "The bucket can be used with the claim's Secret and ConfigMap."),
        NoAction::ClassMissing => with_remedy(
            "waits for its class",
            "The claim's StorageClass does not exist, so the provisioner is unknown.",
            "delete the claim and create it with another StorageClass, or let an administrator create this one",
        ),
        NoAction::ForeignClass => with_remedy(
            "its class is another provisioner's",
            "The claim's StorageClass names another provisioner.",
            "administrator: check that provisioner",
        ),
        NoAction::Unrelated => without_remedy(
            "no action is needed",
            "The claim is being deleted, and this provisioner has nothing to remove for it.",
        ),
        NoAction::ObjectBeingDeleted => without_remedy(
            "its ObjectBucket is being deleted",
            "The provisioner has removed its finalizer. The object is removed with its last finalizer.",
        ),
        NoAction::OtherCluster => without_remedy(
            "created in another cluster",
            "The ObjectBucket records that the bucket was created in another cluster, which may still use it.",
        ),
        NoAction::OtherInstallation => with_remedy(
            "managed by another installation",
            "The ObjectBucket records that another installation of this provisioner created the bucket.",
            "administrator: start that installation, or this one with its --identity",
        ),
        NoAction::OtherProvisioner => with_remedy(
            "its ObjectBucket is another provisioner's",
            "The ObjectBucket of this claim was created by another provisioner, which has to remove it.",
            "administrator: check that provisioner",
        ),
    }
}

/// Explains why a claim gets no bucket for now. The provisioner's message contains the remedy.
pub(crate) fn refusal(refusal: &Refusal) -> Explanation {
    state_only(match refusal {
        Refusal::FormerBucket => "waits until the former claim's bucket is deleted",
        Refusal::OrphanedBucket { .. } => "waits for a decision about an earlier claim's bucket",
        Refusal::NoCluster { .. } => "its claim is missing, and its cluster is unknown",
        Refusal::Unclaimed { .. } => "an ObjectBucket without a claim",
        Refusal::UnprovenOwner { .. } => "names an ObjectBucket that does not name it",
        Refusal::NoClaim { .. } => "an ObjectBucket whose claim is missing",
        Refusal::Unreadable { .. } => "cannot be read",
        Refusal::OtherCluster { .. } => "managed by another cluster",
        Refusal::OtherInstallation { .. } => "managed by another installation",
        Refusal::NoName => "refused: no name",
        Refusal::BadName { .. } => "refused: bad name",
        Refusal::Parameters(_) => "refused: its class cannot be used",
        Refusal::ParametersCrash(_) => "refused: its class cannot be read",
        Refusal::ConfigNotAllowed(_) => "refused: additionalConfig",
        Refusal::Record(_) => "its ObjectBucket cannot be read",
        Refusal::ObjectDeleted => "bound, and its ObjectBucket was deleted manually",
        Refusal::NoRotation => "bound; its keys cannot be rotated",
        Refusal::BadObjectName { .. } => "refused: the name of its Secret or ConfigMap",
        Refusal::NotOwned { .. } => "refused: the name of its Secret or ConfigMap is taken",
        Refusal::BucketClaim { .. } => "waits for the bucket of another claim",
        Refusal::ChangeWithoutEffect(_) => "bound; a change of the claim has no effect",
        Refusal::InUse { .. } => "its bucket is used by other claims",
    })
}

/// Explains what the controller does. Returns `None` if it does nothing or refuses.
pub(crate) fn action(decision: &Decision) -> Option<Explanation> {
    Some(match decision {
        Decision::NoAction(_) | Decision::Refuse(_) => return None,
        Decision::Attempt(Reason::New) => without_remedy(
            "waits for the provisioner to create its bucket",
            "Kubernetes is not blocking this claim. The provisioner is creating the bucket, or retries after a failure.",
        ),
        Decision::Attempt(Reason::Config) => without_remedy(
            "its changed additionalConfig is being applied",
            "The claim differs from the configuration that was applied last.",
        ),
        Decision::Attempt(Reason::Secret) => without_remedy(
            "its Secret is being written again",
            "The Secret does not exist, and the provisioner writes the user's key again.",
        ),
        Decision::Adopt => without_remedy(
            "is being adopted",
            "The bucket was created by another provisioner, or was restored and assigned to this claim.",
        ),
        Decision::Restore => without_remedy(
            "its ConfigMap or status is being written again",
            "The claim's namespace lacks something that the ObjectBucket records.",
        ),
        Decision::Rotate => without_remedy("receives new keys", "The claim's annotation requests another key."),
        Decision::Retire => without_remedy(
            "bound; its former keys are removed later",
            "The keys were rotated, and the class keeps the former keys for some time.",
        ),
        Decision::Release(ReleaseMode::Delete) => {
            without_remedy("is being deleted, with bucket and user", "The claim is being deleted.")
        }
        Decision::Release(ReleaseMode::Revoke) => without_remedy(
            "is being deleted; the bucket is kept",
            "The class keeps the bucket, or it existed before. The user is removed.",
        ),
        Decision::Release(ReleaseMode::RevokeUnknown) => with_remedy(
            "is being deleted; the bucket is kept",
            "The records do not show whether the bucket was created for this claim. The user is removed.",
            "administrator: delete the bucket in the backend if it is not needed",
        ),
        Decision::Release(ReleaseMode::CleanUp) => without_remedy(
            "is being deleted without ever having had a bucket",
            "The leftovers of its attempt are removed.",
        ),
        Decision::Release(ReleaseMode::Abandon) => with_remedy(
            "is being abandoned",
            "An administrator requested it. The backend may keep the bucket.",
            "administrator: remove the leftovers in the backend manually",
        ),
        Decision::ReleaseClaim => without_remedy(
            "is being deleted",
            "The provisioner created no bucket for it, and removes its own finalizer.",
        ),
    })
}
