//! The purpose, group and tenant of a permit.

use std::sync::Arc;

/// The use of a permit: work of one purpose, in one group, for one tenant. The term comes from Kubernetes' API Priority
/// and Fairness, which distinguishes requests of one level by user or namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The purpose of the work.
    pub purpose: Purpose,
    /// The unit that may hang independently.
    pub group: Arc<str>,
    /// The tenant the work is done for; `None` if there is no particular tenant.
    pub tenant: Option<Arc<str>>,
}

/// The kind of work. Work of one purpose never takes permits of the other: removing many objects may take long, and
/// users who need something created must not wait for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Work that creates or changes something.
    Create,
    /// Work that removes something.
    Remove,
}

impl Flow {
    /// Creates a flow for work that creates or changes something in this group.
    pub fn creating(group: impl Into<Arc<str>>) -> Self {
        Self { purpose: Purpose::Create, group: group.into(), tenant: None }
    }

    /// Creates a flow for work that removes something in this group.
    pub fn removing(group: impl Into<Arc<str>>) -> Self {
        Self { purpose: Purpose::Remove, ..Self::creating(group) }
    }

    /// Returns the same flow for this tenant.
    #[must_use]
    pub fn of_tenant(self, tenant: impl Into<Arc<str>>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }
}
