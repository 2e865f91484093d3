//! `metadata.managedFields`, computed on demand.
//!
//! Few requests need the owners, and computing them at every write would cost as much as the write itself. So a state
//! only records its writer and the previous state. The owners are computed when an apply or an answer needs them, or
//! when the previous state leaves the history.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::stored::{Origin, Stored};
use crate::ownership::Writer;
use crate::patch::{Managers, PatchOptions};
use crate::request::Subresource;
use crate::{clock, event};

impl Stored {
    /// Returns `metadata.managedFields` as JSON, empty without owners.
    pub(crate) fn managed_fields(&self) -> Arc<str> {
        let mut chain = Vec::new();
        let mut next = self.ownership().needs();
        while let Some(state) = next {
            next = state.ownership().needs();
            chain.push(state);
        }
        for state in chain.iter().rev() {
            state.compute_owners();
        }
        self.compute_owners()
    }

    /// Computes the owners, so that the previous state can be freed.
    pub(crate) fn settle_owners(&self) {
        if self.ownership().needs().is_some() {
            self.managed_fields();
        }
    }

    /// Computes the owners. The owners of the previous state must be known.
    fn compute_owners(&self) -> Arc<str> {
        let mut origin = self.ownership().lock();
        let owners = match &*origin {
            Origin::Known(owners) => return Arc::clone(owners),
            Origin::Same(before) => before.compute_owners(),
            Origin::Created(writer, at, unowned) => {
                let sent = unowned.undo(&writer.resource, None, writer.value_of(self));
                Managers::of_creation(&writer.resource, &sent, &writer.options(&seconds(*at))).to_json().into()
            }
            Origin::Changed(writer, at, unowned, before) => {
                let old = writer.value_of(before);
                let sent = unowned.undo(&writer.resource, Some(&old), writer.value_of(self));
                let owners = Managers::from_json(&before.compute_owners());
                owners.after_change(&writer.resource, &old, &sent, &writer.options(&seconds(*at))).to_json().into()
            }
        };
        *origin = Origin::Known(Arc::clone(&owners));
        owners
    }
}

impl Writer {
    /// Returns a state in the version that was written to.
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
