//! The facts about a write that `metadata.managedFields` is computed from.

mod server_set;

use std::sync::Arc;

pub(crate) use server_set::ServerSet;

use crate::request::Subresource;
use crate::resource::Resource;

/// A field manager that writes to a resource in one version. Each is unique, so they are compared by address.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) manager: Box<str>,
    pub(crate) resource: Arc<Resource>,
    pub(crate) subresource: Option<Subresource>,
}

/// The owner of the fields that a write changes.
#[derive(Clone)]
pub(crate) enum Credit {
    /// The server itself writes, so the fields have no owner.
    Server,
    /// The manager of a create or update at this second. The fields that the server set have no owner.
    Writer(Arc<Writer>, i64, ServerSet),
    /// Known owners: `metadata.managedFields` as JSON, empty for none.
    Known(Arc<str>),
}
