//! The safeguards. Tests of the simulation disable one to verify that the simulation notices.

/// A safeguard that keeps storage from leaking, from being created twice and from being deleted by mistake.
#[cfg_attr(not(feature = "planted-faults"), expect(unreachable_pub, reason = "of use to the simulation alone"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safeguard {
    /// An attempt is recorded before it begins.
    Journal,
    /// A process that has lost the journal begins no work.
    Fencing,
    /// An existing volume is compared with the one to save.
    ReadBack,
    /// Only volumes of this provisioner are deleted.
    Ownership,
    /// Deletions have the uid as their precondition, so another object of the same name is not deleted.
    UidPrecondition,
    /// A failed attempt that may have left something behind stays recorded.
    FailedAttempts,
    /// Only volumes of this installation are deleted.
    Identity,
    /// Only volumes of this cluster are deleted.
    Cluster,
    /// A volume that was restored from a backup is not deleted because its claim is absent.
    Copies,
    /// The entries of a restored journal are not executed.
    Journals,
    /// An object that cannot be read still exists.
    Unreadable,
    /// An entry is dropped only for a volume that was read since the term began.
    FreshVolumes,
    /// A volume shows its new size only after its asset has it.
    ExpandFirst,
}

pub(crate) type Safeguards = crate::controller::shared::safeguards::Safeguards<Safeguard>;
