//! Who owns the fields of the objects that are kept: `metadata.managedFields`.
//!
//! Few ask for it, and to work it out for every write would cost as much as the write. So a state remembers who made it
//! out of which other state, and the owners are worked out when an apply or an answer needs them, or when the other state
//! is about to be forgotten.

mod server_set;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::Value;

pub(crate) use server_set::ServerSet;

use crate::patch::{Managers, PatchOptions};
use crate::request::Subresource;
use crate::resource::Resource;
use crate::store::Stored;
use crate::{clock, event};

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

/// The owners of a state's fields, as far as they are worked out.
pub(crate) struct Ownership(Mutex<Origin>);

enum Origin {
    Known(Arc<str>),
    /// One writer made all there is.
    Created(Arc<Writer>, i64, ServerSet),
    /// A writer made it out of another state.
    Changed(Arc<Writer>, i64, ServerSet, Arc<Stored>),
    /// As in another state.
    Same(Arc<Stored>),
}

impl Ownership {
    /// Of a new object.
    pub(crate) fn of_new(credit: Credit) -> Self {
        Self::new(match credit {
            Credit::Server => Origin::Known(Arc::default()),
            Credit::Writer(writer, at, unowned) => Origin::Created(writer, at, unowned),
            Credit::Known(owners) => Origin::Known(owners),
        })
    }

    /// Of a new state of an object.
    pub(crate) fn after(before: &Arc<Stored>, credit: Credit) -> Self {
        let (writer, at, unowned) = match credit {
            Credit::Server => return Self::same(before),
            Credit::Known(owners) => return Self::new(Origin::Known(owners)),
            Credit::Writer(writer, at, unowned) => (writer, at, unowned),
        };
        Self::new(match &*before.ownership().lock() {
            // What nobody owned before nobody owns after.
            Origin::Known(owners) if owners.is_empty() => Origin::Known(Arc::default()),
            Origin::Created(creator, _, still_unowned)
                if Arc::ptr_eq(creator, &writer) && unowned == ServerSet::NOTHING =>
            {
                Origin::Created(writer, at, *still_unowned)
            }
            _ => Origin::Changed(writer, at, unowned, Arc::clone(before)),
        })
    }

    /// The same as of another state.
    pub(crate) fn same(other: &Arc<Stored>) -> Self {
        Self::new(Origin::Same(Arc::clone(other)))
    }

    fn new(origin: Origin) -> Self {
        Self(Mutex::new(origin))
    }

    fn lock(&self) -> MutexGuard<'_, Origin> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state without which this is not known.
    fn needs(&self) -> Option<Arc<Stored>> {
        match &*self.lock() {
            Origin::Known(_) | Origin::Created(..) => None,
            Origin::Changed(.., before) | Origin::Same(before) => Some(Arc::clone(before)),
        }
    }
}

impl Stored {
    /// `metadata.managedFields` as JSON; empty where nobody owns anything.
    pub(crate) fn managed_fields(&self) -> Arc<str> {
        let mut chain = Vec::new();
        let mut next = self.ownership().needs();
        while let Some(state) = next {
            next = state.ownership().needs();
            chain.push(state);
        }
        for state in chain.iter().rev() {
            state.work_out();
        }
        self.work_out()
    }

    /// Frees the state this one was made of.
    pub(crate) fn settle_owners(&self) {
        if self.ownership().needs().is_some() {
            self.managed_fields();
        }
    }

    /// Needs the owners of the state before to be known.
    fn work_out(&self) -> Arc<str> {
        let mut origin = self.ownership().lock();
        let owners = match &*origin {
            Origin::Known(owners) => return Arc::clone(owners),
            Origin::Same(before) => before.work_out(),
            Origin::Created(writer, at, unowned) => {
                let sent = unowned.undo(&writer.resource, None, writer.value_of(self));
                Managers::of_creation(&writer.resource, &sent, &writer.options(&seconds(*at))).to_json().into()
            }
            Origin::Changed(writer, at, unowned, before) => {
                let old = writer.value_of(before);
                let sent = unowned.undo(&writer.resource, Some(&old), writer.value_of(self));
                let owners = Managers::from_json(&before.work_out());
                owners.after_change(&writer.resource, &old, &sent, &writer.options(&seconds(*at))).to_json().into()
            }
        };
        *origin = Origin::Known(Arc::clone(&owners));
        owners
    }
}

impl Writer {
    /// A state in the form of the version written to.
    fn value_of(&self, state: &Stored) -> Value {
        match self.resource.group.as_str() {
            "events.k8s.io" => event::to_events_group(&state.value()),
            _ => state.value(),
        }
    }

    fn options<'a>(&'a self, now: &'a str) -> PatchOptions<'a> {
        let subresource = self.subresource.map(Subresource::as_str);
        PatchOptions { field_manager: Some(&self.manager), subresource, now, ..PatchOptions::default() }
    }
}

fn seconds(at: i64) -> String {
    clock::seconds(Timestamp::from_second(at).unwrap_or_default())
}
