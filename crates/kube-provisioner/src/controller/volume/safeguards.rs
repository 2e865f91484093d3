//! What keeps the promises. Each can be left out, to see that the simulation would notice.

/// One of the things that keep storage from leaking, from being made twice and from being deleted by mistake.
#[cfg_attr(not(feature = "planted-faults"), expect(unreachable_pub, reason = "of use to the simulation alone"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safeguard {
    /// An attempt is recorded before it begins.
    Journal,
    /// Who has lost the journal begins nothing any more.
    Fencing,
    /// A volume that exists already is compared with the one that was to be saved.
    ReadBack,
    /// Only volumes of this provisioner are deleted.
    Ownership,
    /// Only the object that was looked at is deleted, not another one of its name.
    UidPrecondition,
    /// What `provision` may have left when it failed stays recorded.
    FailedAttempts,
    /// Only volumes of this installation are deleted.
    Identity,
    /// An entry is dropped only for a volume that was seen since the term began.
    FreshVolumes,
}

/// Which safeguards are in place: all of them, outside tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Safeguards {
    #[cfg(feature = "planted-faults")]
    missing: Option<Safeguard>,
}

impl Safeguards {
    #[cfg(feature = "planted-faults")]
    pub(crate) fn without(missing: Safeguard) -> Self {
        Self { missing: Some(missing) }
    }

    pub(crate) fn include(self, safeguard: Safeguard) -> bool {
        #[cfg(feature = "planted-faults")]
        return self.missing != Some(safeguard);
        #[cfg(not(feature = "planted-faults"))]
        {
            let _ = safeguard;
            true
        }
    }
}
