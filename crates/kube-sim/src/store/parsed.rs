//! The latest states that were written or read, so that nobody reads them anew: one change is looked at by several actors,
//! one after the other.

use std::cell::RefCell;
use std::sync::Arc;

use serde_json::Value;

use super::Stored;
use crate::resource::Resource;
use crate::{defaults, object};

/// As many are kept; the memory they take is bounded by it.
const KEPT: usize = 128;

/// The latest states that were written or read by this thread.
struct Latest {
    states: Vec<(Arc<Stored>, Arc<Value>)>,
    /// Which is given up next.
    oldest: usize,
}

thread_local! {
    static LATEST: RefCell<Latest> = const { RefCell::new(Latest { states: Vec::new(), oldest: 0 }) };
}

impl Stored {
    /// The JSON, read, as [`Stored::value`]; shared by those who ask for it in a short time.
    pub fn parsed(self: &Arc<Self>) -> Arc<Value> {
        LATEST.with_borrow_mut(|latest| {
            if let Some((_, value)) = latest.states.iter().rev().find(|(state, _)| Arc::ptr_eq(state, self)) {
                return Arc::clone(value);
            }
            let value = Arc::new(self.value());
            latest.keep(self, Arc::clone(&value));
            value
        })
    }

    /// Tells [`Stored::parsed`] of what value this state of a resource was made.
    pub(crate) fn remember(self: &Arc<Self>, resource: &Resource, mut value: Value) {
        defaults::name_type(resource, &mut value);
        let metadata = object::metadata_mut(&mut value);
        metadata.insert("resourceVersion".to_owned(), self.resource_version().to_string().into());
        debug_assert_eq!(value, self.value(), "as it would be read");
        LATEST.with_borrow_mut(|latest| latest.keep(self, Arc::new(value)));
    }
}

impl Latest {
    fn keep(&mut self, state: &Arc<Stored>, value: Arc<Value>) {
        let entry = (Arc::clone(state), value);
        if self.states.len() < KEPT {
            self.states.push(entry);
        } else {
            self.states[self.oldest] = entry;
            self.oldest = (self.oldest + 1) % KEPT;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Cluster;

    #[tokio::test]
    async fn a_state_is_read_once() {
        let cluster = Cluster::new();
        let map = |name: &str| {
            let name = format!("map-{name}");
            let metadata = json!({"name": name, "namespace": "default"});
            cluster.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap();
            let resource = Resource::builtin("", "configmaps");
            cluster.get_stored(&resource.group, &resource.plural, "default", &name).unwrap()
        };
        let first = map("first");
        let read = first.parsed();
        assert_eq!(*read, first.value());
        assert!(Arc::ptr_eq(&read, &first.parsed()));
        for index in 0..KEPT {
            map(&index.to_string()).parsed();
        }
        assert!(!Arc::ptr_eq(&read, &first.parsed()));
        assert_eq!(read, first.parsed());
    }
}
