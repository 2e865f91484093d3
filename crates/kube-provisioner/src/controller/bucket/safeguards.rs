//! The safeguards of the controller of buckets. Tests of the simulation leave one out to see that the simulation notices.

/// One of the things that keep buckets from leaking, from being made twice and from being deleted by mistake.
#[cfg_attr(not(feature = "planted-faults"), expect(unreachable_pub, reason = "of use to the simulation alone"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketSafeguard {
    /// The ObjectBucket of a failed attempt that may have left something stays.
    FailedAttempts,
    /// An ObjectBucket is removed only after what it stands for.
    Order,
    /// Secrets and ConfigMaps of others are left alone.
    Ownership,
    /// A process that has lost its shard begins nothing.
    Fencing,
    /// A new key is written into the ObjectBucket before the Secret has it.
    KeyRecord,
    /// What is known was read since the term began.
    Fresh,
    /// That a claim is absent deletes nothing.
    Absence,
    /// ObjectBuckets of another cluster are left alone.
    Cluster,
    /// What cannot be read is present.
    Unreadable,
    /// A bucket stays while other claims use it.
    Shared,
    /// An ObjectBucket without a claim's uid is a claim's only if more than the claim says so.
    Pointer,
    /// A write names the version of the ObjectBucket on which it was decided.
    Version,
    /// The finalizer of a bound claim is restored.
    Finalizer,
}

/// Which of them are in place.
pub(crate) type Safeguards = crate::controller::shared::safeguards::Safeguards<BucketSafeguard>;
