//! For what a permit is.

use std::sync::Arc;

/// What a permit is for: work of one purpose, in one group, for one tenant. The word is that of Kubernetes' API Priority and
/// Fairness, which distinguishes requests of one level by user or namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// What the work does.
    pub purpose: Purpose,
    /// What may hang on its own.
    pub group: Arc<str>,
    /// For whom the work is; `None` if it is for nobody in particular.
    pub tenant: Option<Arc<str>>,
}

/// What work does. The permits of one purpose are never taken by the other: removing much may take long, and nobody who needs
/// something waits for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// It makes or changes something.
    Create,
    /// It removes something.
    Remove,
}

impl Flow {
    /// Work that makes or changes something in this group.
    pub fn creating(group: impl Into<Arc<str>>) -> Self {
        Self { purpose: Purpose::Create, group: group.into(), tenant: None }
    }

    /// Work that removes something in this group.
    pub fn removing(group: impl Into<Arc<str>>) -> Self {
        Self { purpose: Purpose::Remove, ..Self::creating(group) }
    }

    /// The same for this tenant.
    #[must_use]
    pub fn of_tenant(self, tenant: impl Into<Arc<str>>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }
}
