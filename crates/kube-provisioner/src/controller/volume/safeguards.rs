//! The safeguards. Tests of the simulation leave one out to see that the simulation notices.

/// One of the things that keep storage from leaking, from being made twice and from being deleted by mistake.
#[cfg_attr(not(feature = "planted-faults"), expect(unreachable_pub, reason = "of use to the simulation alone"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safeguard {
    /// An attempt is recorded before it begins.
    Journal,
    /// A process that has lost the journal begins nothing.
    Fencing,
    /// A volume that exists already is compared with the one that was to be saved.
    ReadBack,
    /// Only volumes of this provisioner are deleted.
    Ownership,
    /// Deletions have the uid as their precondition, so another object of the same name is not deleted.
    UidPrecondition,
    /// A failed attempt that may have left something stays recorded.
    FailedAttempts,
    /// Only volumes of this installation are deleted.
    Identity,
    /// Only volumes of this cluster are deleted.
    Cluster,
    /// A volume that was restored from a backup is not deleted because its claim is absent.
    Copies,
    /// What a restored journal says is not done.
    Journals,
    /// What cannot be read is present.
    Unreadable,
    /// An entry is dropped only for a volume that was read since the term began.
    FreshVolumes,
    /// A volume says its new size only after its asset has it.
    ExpandFirst,
}

/// Which of them are in place.
pub(crate) type Safeguards = crate::controller::shared::safeguards::Safeguards<Safeguard>;
