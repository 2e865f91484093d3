//! What can be decided about one key, and why.

/// What to do about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing, until something changes.
    NoAction(NoAction),
    /// Nothing, and the claim's user should know why.
    Refuse(Refusal),
    /// Call the author's `create_bucket` and `grant`.
    Attempt(Reason),
    /// Write down what another provisioner has made, or what was restored and a person gives to the claim, and continue with it.
    Adopt,
    /// Write what Secret, ConfigMap and status lack, all of which the ObjectBucket records.
    Restore,
    /// Give the user another key.
    Rotate,
    /// Remove the keys that were rotated out, when it is time.
    Retire,
    /// The claim is going or gone: remove what it had.
    Release(Ending),
    /// There is no ObjectBucket: let the claim go.
    ReleaseClaim,
}

/// Why nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAction {
    /// The bucket can be used.
    Bound,
    /// The class does not exist.
    ClassMissing,
    /// The claim's class names another provisioner.
    ClassOfAnother,
    /// There is no claim that asks us, and no ObjectBucket.
    NothingHere,
    /// The ObjectBucket is being deleted, and our finalizer does not hold it.
    ObjectGoes,
    /// The bucket was made in another cluster.
    OtherCluster,
    /// The bucket was made by another installation.
    OtherInstallation,
    /// The ObjectBucket is another provisioner's.
    OtherProvisioner,
}

/// Why the author's code is called for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no bucket yet.
    New,
    /// The claim's `additionalConfig` has changed.
    Config,
    /// The Secret is gone or was changed.
    Secret,
}

/// Why a claim gets no bucket for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The ObjectBucket of an earlier claim of this name is not gone yet.
    Former,
    /// The ObjectBucket of an earlier claim of this name is there, and nobody has seen that claim being deleted.
    Left {
        /// Its name.
        object: String,
    },
    /// The claim points at an ObjectBucket that does not name its owner.
    Unproven {
        /// Its name.
        object: String,
    },
    /// The claim of an ObjectBucket does not exist, and nobody has seen it being deleted.
    NoClaim {
        /// The ObjectBucket.
        object: String,
    },
    /// An ObjectBucket names no claim, and no claim names it.
    Unclaimed {
        /// The ObjectBucket.
        object: String,
    },
    /// The claim of an ObjectBucket does not exist, and nothing says in which cluster its bucket was made.
    NoCluster {
        /// The ObjectBucket.
        object: String,
    },
    /// The object cannot be read.
    Unreadable {
        /// Which of claim and ObjectBucket.
        kind: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The bucket was made in another cluster.
    OtherCluster {
        /// Its id.
        maker: String,
    },
    /// The bucket was made by another installation.
    OtherInstallation {
        /// Its identity.
        maker: String,
    },
    /// Neither the claim nor the class says how the bucket is to be called.
    NoName,
    /// The name cannot be a bucket's.
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The class's parameters cannot be used.
    Parameters(String),
    /// The author's code crashed while it read the class's parameters.
    ParametersCrash(String),
    /// Claims may not use these keys of `additionalConfig`.
    ConfigNotAllowed(RefusedConfig),
    /// The annotation of the ObjectBucket cannot be read.
    Record(String),
    /// The object is being deleted while the claim lives.
    ObjectDeleted,
    /// The claim asks for new keys, and has none, or the provisioner cannot make others.
    NoRotation,
    /// The Secret or the ConfigMap of the claim cannot have this name.
    BadObjectName {
        /// Which of them.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The object with the name of the claim's Secret or ConfigMap is not the claim's.
    NotOwned {
        /// Which of them.
        kind: &'static str,
    },
    /// The claim asks for the bucket of another one, and cannot have it now.
    BucketClaim {
        /// The name of the other claim.
        claim: String,
        /// Why.
        problem: BucketClaimProblem,
    },
    /// The claim was changed after its bucket was made, and nothing follows from the change.
    ChangeWithoutEffect(ChangeWithoutEffect),
    /// Other claims use the bucket that is to be removed.
    InUse {
        /// Their names, or those of their ObjectBuckets.
        by: Vec<String>,
    },
}

/// Why a claim does not get the bucket of the claim that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketClaimProblem {
    /// There is no such claim.
    Missing,
    /// It has no bucket yet.
    NotBound,
    /// It is being deleted.
    Deleting,
    /// It is the claim itself.
    Itself,
    /// The bucket was not made for it.
    NotItsOwn,
    /// It has another class.
    OtherClass {
        /// Its class.
        class: String,
    },
    /// The class names a bucket.
    OfClass,
    /// The claim gives another name to its bucket.
    OtherName {
        /// The bucket's name.
        bucket: String,
    },
}

/// Keys of `additionalConfig` that the class does not allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedConfig {
    /// Those of the claim.
    pub keys: Vec<String>,
    /// Those that the class allows.
    pub allowed: Vec<String>,
    /// Whether the provisioner may know all keys of the claim.
    pub are_known: bool,
}

/// A change of a bound claim that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeWithoutEffect {
    /// The claim asks for another bucket.
    BucketName {
        /// The bucket that it has.
        bucket: String,
    },
    /// The claim names another class.
    Class {
        /// The class whose settings its bucket has.
        class: String,
        /// The reclaim policy that counts.
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

/// How a claim's bucket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Bucket and user are removed.
    Delete,
    /// The user is removed.
    Revoke,
    /// The user is removed, since nobody knows whether the bucket was made for the claim.
    RevokeUnknown,
    /// No call has succeeded yet: what it may have left is removed.
    CleanUp,
    /// A person abandons what is in the backend.
    Abandon,
}
