//! Decisions about claims of buckets.

use kube_provisioner::explain::bucket::{Decision, Ending, NoAction, Reason, Refusal};

use super::{CLASS, Words, mendable, words};

/// Why the controller rests.
pub(crate) fn rest(why: NoAction) -> Words {
    match why {
        NoAction::Bound => words("bound", "The bucket can be used with the claim's Secret and ConfigMap."),
        NoAction::ClassMissing => mendable(
            "waits for its class",
            "The claim's StorageClass does not exist, so nobody knows which provisioner is asked.",
            "delete the claim and create it with another StorageClass, or let an administrator create this one",
        ),
        NoAction::ClassOfAnother => mendable(
            "its class is another provisioner's",
            "The provisioner of the claim's StorageClass is another one.",
            "administrator: look at that provisioner",
        ),
        NoAction::NothingHere => {
            words("nothing is to be done", "The claim is being deleted, and nothing of this provisioner hangs on it.")
        }
        NoAction::ObjectGoes => words(
            "its ObjectBucket is being deleted",
            "The provisioner has removed its finalizer. The object is removed with its last finalizer.",
        ),
        NoAction::OtherCluster => words(
            "made in another cluster",
            "The ObjectBucket says that the bucket was made in another cluster, which may still use it.",
        ),
        NoAction::OtherInstallation => mendable(
            "another installation looks after it",
            "The ObjectBucket says that another installation of this provisioner made the bucket.",
            "administrator: start that installation, or this one with its --identity",
        ),
        NoAction::OtherProvisioner => mendable(
            "its ObjectBucket is another provisioner's",
            "The ObjectBucket of this claim was made by another provisioner, which has to remove it.",
            "administrator: look at that provisioner",
        ),
    }
}

/// Why a claim gets no bucket for now. The provisioner's message says what to do.
pub(crate) fn refusal(refusal: &Refusal) -> Words {
    match refusal {
        Refusal::Former => words(
            "waits until the former claim's bucket is gone",
            "A claim of this name was deleted, and its bucket is not removed yet.",
        ),
        Refusal::Left { .. } => words(
            "waits for a decision about an earlier claim's bucket",
            "An ObjectBucket of this name's earlier claim is there, for instance restored from a backup, and nobody deleted that claim here.",
        ),
        Refusal::NoCluster { .. } => words(
            "its claim is missing, and its cluster is not known",
            "The ObjectBucket may be a copy from another cluster, which still uses the bucket.",
        ),
        Refusal::Unclaimed { .. } => {
            words("an ObjectBucket without a claim", "The ObjectBucket names no claim, and no claim names it.")
        }
        Refusal::Unproven { .. } => words(
            "names an ObjectBucket that does not name it",
            "Users can write any name into a claim, so an ObjectBucket counts only if it names the claim, too.",
        ),
        Refusal::NoClaim { .. } => words(
            "an ObjectBucket whose claim is missing",
            "The claim's deletion was not seen in this cluster, so the bucket is kept.",
        ),
        Refusal::Unreadable { .. } => mendable(
            "cannot be read",
            "A field of the claim or of its ObjectBucket has the wrong type.",
            "administrator: mend the object",
        ),
        Refusal::OtherCluster { .. } => words(
            "left to another cluster",
            "Two clusters may share a backend, so nobody touches what the other one has made.",
        ),
        Refusal::OtherInstallation { .. } => words(
            "left to another installation",
            "Two installations may share a backend, and another one made this bucket.",
        ),
        Refusal::NoName => words("refused: no name", "Neither the claim nor its class names a bucket."),
        Refusal::BadName { .. } => words("refused: bad name", "No bucket can have this name."),
        Refusal::Parameters(_) => {
            mendable("refused: its class cannot be used", "The class's parameters are wrong.", CLASS)
        }
        Refusal::ParametersCrash(_) => {
            words("refused: its class cannot be read", "The provisioner's code crashes on the parameters of the class.")
        }
        Refusal::ConfigNotAllowed(_) => words(
            "refused: additionalConfig",
            "The administrator allows claims fewer keys of additionalConfig than the provisioner knows.",
        ),
        Refusal::Record(_) => words(
            "its ObjectBucket cannot be read",
            "The ObjectBucket records how the bucket was made, and that record is damaged or of a newer version.",
        ),
        Refusal::ObjectDeleted => {
            words("bound, and its ObjectBucket was deleted by hand", "A bucket is deleted only with its claim.")
        }
        Refusal::NoRotation => words(
            "bound; its keys cannot be rotated",
            "This provisioner makes one key for each claim, or the claim's pods need none.",
        ),
        Refusal::BadObjectName { .. } => words(
            "refused: the name of its Secret or ConfigMap",
            "The claim or its class gives the claim's Secret or ConfigMap a name that no object can have.",
        ),
        Refusal::NotOwned { .. } => words(
            "refused: something else has the name of its Secret or ConfigMap",
            "Objects of others are never overwritten.",
        ),
        Refusal::BucketClaim { .. } => words(
            "waits for the bucket of another claim",
            "The claim asks for the bucket of another claim of its namespace, which it cannot have now.",
        ),
        Refusal::ChangeWithoutEffect(_) => mendable(
            "bound; a change of the claim has no effect",
            "The name, the class and the Secret's name of a claim are fixed once it has its bucket.",
            "restore the field",
        ),
        Refusal::InUse { .. } => words(
            "its bucket is used by other claims",
            "The bucket is removed when the last claim that uses it is gone.",
        ),
    }
}

/// What the controller does. `None` where it rests or refuses.
pub(crate) fn action(decision: &Decision) -> Option<Words> {
    Some(match decision {
        Decision::NoAction(_) | Decision::Refuse(_) => return None,
        Decision::Attempt(Reason::New) => words(
            "the provisioner is asked to make its bucket",
            "Nothing stands in the way on Kubernetes' side. The provisioner makes the bucket now, or tries again after a failure.",
        ),
        Decision::Attempt(Reason::Config) => words(
            "its changed additionalConfig is being applied",
            "The claim asks for something else than what was applied last.",
        ),
        Decision::Attempt(Reason::Secret) => words(
            "its Secret is being written again",
            "The Secret is gone, and the provisioner gives the user's key once more.",
        ),
        Decision::Adopt => words(
            "is being taken over",
            "The bucket was made by another provisioner, or was restored and is given to this claim.",
        ),
        Decision::Restore => words(
            "its ConfigMap or status is being written again",
            "The claim's namespace lacks something that the ObjectBucket records.",
        ),
        Decision::Rotate => words("gets new keys", "The claim's annotation asks for another key."),
        Decision::Retire => words(
            "bound; its former keys are removed later",
            "The keys were rotated, and the class lets the former ones live for some time.",
        ),
        Decision::Release(Ending::Delete) => words("is being deleted, with bucket and user", "The claim is going."),
        Decision::Release(Ending::Revoke) => words(
            "is being deleted; the bucket is kept",
            "The class keeps the bucket, or it existed before. The user is removed.",
        ),
        Decision::Release(Ending::RevokeUnknown) => mendable(
            "is being deleted; the bucket is kept",
            "Nobody knows any more whether the bucket was made for this claim. The user is removed.",
            "administrator: delete the bucket in the backend if nobody needs it",
        ),
        Decision::Release(Ending::CleanUp) => {
            words("is being deleted before it had a bucket", "What was begun for it is removed.")
        }
        Decision::Release(Ending::Abandon) => mendable(
            "is being given up",
            "A person has asked for it, whatever is left in the backend.",
            "administrator: remove by hand what the backend may still have",
        ),
        Decision::ReleaseClaim => {
            words("is being deleted", "Nothing was made for it. The provisioner takes its finalizer off.")
        }
    })
}
