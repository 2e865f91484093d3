//! The active safeguards of a controller. Tests of the simulation disable one to verify that the simulation notices.

/// The active safeguards, which are all of them outside tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Safeguards<S> {
    #[cfg(feature = "planted-faults")]
    missing: Option<S>,
    #[cfg(not(feature = "planted-faults"))]
    kind: std::marker::PhantomData<S>,
}

impl<S> Default for Safeguards<S> {
    fn default() -> Self {
        Self {
            #[cfg(feature = "planted-faults")]
            missing: None,
            #[cfg(not(feature = "planted-faults"))]
            kind: std::marker::PhantomData,
        }
    }
}

impl<S: Copy + PartialEq> Safeguards<S> {
    #[cfg(feature = "planted-faults")]
    pub(crate) fn without(missing: S) -> Self {
        Self { missing: Some(missing) }
    }

    pub(crate) fn include(self, safeguard: S) -> bool {
        #[cfg(feature = "planted-faults")]
        return self.missing != Some(safeguard);
        #[cfg(not(feature = "planted-faults"))]
        {
            let _ = safeguard;
            true
        }
    }
}
