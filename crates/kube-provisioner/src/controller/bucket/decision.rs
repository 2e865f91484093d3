//! Decisions about one key, and their reasons.

/// The action for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do nothing until something changes.
    NoAction(NoAction),
    /// Do nothing, and report the reason on the claim.
    Refuse(Refusal),
    /// Call the provisioner's `create_bucket` and `grant`.
    Attempt(Reason),
    /// Record a bucket that another provisioner created, or a restored one that an administrator assigns to the claim,
    /// and continue with it.
    Adopt,
    /// Restore the parts of Secret, ConfigMap and status that the ObjectBucket records.
    Restore,
    /// Rotate the user's key.
    Rotate,
    /// Remove the keys that were rotated out, once the overlap is over.
    Retire,
    /// The claim is being deleted or no longer exists: remove its bucket and account.
    Release(ReleaseMode),
    /// There is no ObjectBucket, or it was let go: remove our finalizer from the claim.
    ReleaseClaim,
}

/// The reason why no action is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAction {
    /// The bucket can be used.
    Bound,
    /// The class does not exist.
    ClassMissing,
    /// The claim's class names another provisioner.
    ForeignClass,
    /// No claim names us, and there is no ObjectBucket.
    Unrelated,
    /// The ObjectBucket is being deleted and does not have our finalizer.
    ObjectBeingDeleted,
    /// The bucket was created in another cluster.
    OtherCluster,
    /// The bucket was created by another installation.
    OtherInstallation,
    /// The ObjectBucket belongs to another provisioner.
    OtherProvisioner,
}

/// The reason why the provisioner is called for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no bucket yet.
    New,
    /// The claim's `additionalConfig` has changed.
    Config,
    /// The Secret was deleted or changed.
    Secret,
}

/// The reason why a claim receives no bucket for now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The ObjectBucket of an earlier claim of this name still exists.
    FormerBucket,
    /// The ObjectBucket of an earlier claim of this name exists, and that claim's deletion was not observed.
    OrphanedBucket {
        /// The name of the ObjectBucket.
        object: String,
    },
    /// The claim points at an ObjectBucket that does not name its owner.
    UnprovenOwner {
        /// The name of the ObjectBucket.
        object: String,
    },
    /// The claim of an ObjectBucket does not exist, and its deletion was not observed.
    NoClaim {
        /// The ObjectBucket.
        object: String,
    },
    /// An ObjectBucket and no claim name each other.
    Unclaimed {
        /// The ObjectBucket.
        object: String,
    },
    /// The claim of an ObjectBucket does not exist, and the cluster in which its bucket was created is unknown.
    NoCluster {
        /// The ObjectBucket.
        object: String,
    },
    /// The object cannot be read.
    Unreadable {
        /// The kind of the object: claim or ObjectBucket.
        kind: &'static str,
        /// The problem with the object.
        problem: String,
    },
    /// The bucket was created in another cluster.
    OtherCluster {
        /// The ID of the other cluster.
        creator: String,
    },
    /// The bucket was created by another installation.
    OtherInstallation {
        /// The identity of the other installation.
        creator: String,
    },
    /// Neither the claim nor the class names the bucket.
    NoName,
    /// The name is not valid for a bucket.
    BadName {
        /// The name.
        name: String,
        /// The problem with the name.
        problem: &'static str,
    },
    /// The class's parameters are invalid.
    Parameters(String),
    /// The provisioner's code panicked while it read the class's parameters.
    ParametersCrash(String),
    /// Claims may not use these keys of `additionalConfig`.
    ConfigNotAllowed(RefusedConfig),
    /// The annotation of the ObjectBucket cannot be read.
    Record(String),
    /// The object is being deleted while the claim still exists.
    ObjectDeleted,
    /// The claim requests new keys, but has none, or the provisioner cannot rotate keys.
    NoRotation,
    /// The Secret or the ConfigMap of the claim cannot have this name.
    BadObjectName {
        /// The kind of the object.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The object with the name of the claim's Secret or ConfigMap does not belong to the claim.
    NotOwned {
        /// The kind of the object.
        kind: &'static str,
    },
    /// The claim requests the bucket of another claim, but cannot use it now.
    BucketClaim {
        /// The name of the other claim.
        claim: String,
        /// The reason.
        problem: BucketClaimProblem,
    },
    /// The claim was changed after its bucket was created, and the change has no effect.
    ChangeWithoutEffect(ChangeWithoutEffect),
    /// Other claims use the bucket to be removed.
    InUse {
        /// The names of these claims, or of their ObjectBuckets.
        by: Vec<String>,
    },
}

/// The reason why a claim does not receive the bucket of the claim that it names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BucketClaimProblem {
    /// The other claim does not exist.
    Missing,
    /// The other claim has no bucket yet.
    NotBound,
    /// The other claim is being deleted.
    Deleting,
    /// The claim names itself.
    SameClaim,
    /// The bucket was not created for the other claim.
    NotBucketOwner,
    /// The other claim has another class.
    OtherClass {
        /// The class of the other claim.
        class: String,
    },
    /// The class names a bucket.
    ClassNamesBucket,
    /// The claim specifies another name for its bucket.
    OtherName {
        /// The bucket's name.
        bucket: String,
    },
}

/// Keys of `additionalConfig` that the class does not allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RefusedConfig {
    /// The claim's keys that are not allowed.
    pub keys: Vec<String>,
    /// The keys that the class allows.
    pub allowed: Vec<String>,
    /// True if the provisioner may know all keys of the claim.
    pub are_known: bool,
}

/// A change of a bound claim that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChangeWithoutEffect {
    /// The claim requests another bucket.
    BucketName {
        /// The current bucket.
        bucket: String,
    },
    /// The claim names another class.
    Class {
        /// The class whose settings the bucket has.
        class: String,
        /// The reclaim policy in effect.
        policy: &'static str,
        /// The ObjectBucket, which records the reclaim policy.
        object: String,
    },
    /// A key of the claim's `additionalConfig`.
    Config {
        /// The key.
        key: &'static str,
    },
}

/// The way in which a claim's bucket is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseMode {
    /// Remove the bucket and the user.
    Delete,
    /// Remove the user.
    Revoke,
    /// Remove the user, since it is unknown whether the bucket was created for the claim.
    RevokeUnknown,
    /// No call has succeeded yet: remove possible leftovers.
    CleanUp,
    /// An administrator abandons the assets in the backend.
    Abandon,
}
