//! The safeguards of the bucket controller. Tests of the simulation disable one to verify that the simulation notices.

/// A safeguard that keeps buckets from leaking, from being created twice or from being deleted by mistake.
#[cfg_attr(not(feature = "planted-faults"), expect(unreachable_pub, reason = "of use to the simulation alone"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketSafeguard {
    /// The ObjectBucket of a failed attempt that may have left something is kept.
    FailedAttempts,
    /// An ObjectBucket is removed only after the assets that it represents.
    Order,
    /// Foreign Secrets and ConfigMaps are left alone.
    Ownership,
    /// A process that has lost its shard begins no work.
    Fencing,
    /// A new key is written to the ObjectBucket before the Secret.
    KeyRecord,
    /// The cached state was read after the term began.
    Fresh,
    /// The absence of a claim does not delete anything.
    Absence,
    /// ObjectBuckets of another cluster are left alone.
    Cluster,
    /// An object that cannot be read still exists.
    Unreadable,
    /// A bucket is kept while other claims use it.
    Shared,
    /// An ObjectBucket without a claim's uid belongs to a claim only if more than the claim's own reference proves it.
    Pointer,
    /// A write names the version of the ObjectBucket on which its decision is based.
    Version,
    /// The finalizer of a bound claim is restored.
    Finalizer,
}

pub(crate) type Safeguards = crate::controller::shared::safeguards::Safeguards<BucketSafeguard>;
