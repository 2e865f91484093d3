//! To whom a write is credited: what `metadata.managedFields` is worked out of.

mod server_set;

use std::sync::Arc;

pub(crate) use server_set::ServerSet;

use crate::request::Subresource;
use crate::resource::Resource;

/// Somebody who writes to a resource in one version. There is one of each, so they are compared by their address.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) manager: Box<str>,
    pub(crate) resource: Arc<Resource>,
    pub(crate) subresource: Option<Subresource>,
}

/// To whom a write is credited.
#[derive(Clone)]
pub(crate) enum Credit {
    /// To nobody: the server itself does it.
    Server,
    /// To a client that creates or updates, at this second; but for what the server set.
    Writer(Arc<Writer>, i64, ServerSet),
    /// The owners are known, as `metadata.managedFields` in JSON; empty for none.
    Known(Arc<str>),
}
