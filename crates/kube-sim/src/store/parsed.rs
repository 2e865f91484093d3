//! A cache of parsed states, because several actors read each change in turn.

use std::cell::RefCell;
use std::sync::Arc;

use serde_json::Value;

use super::Stored;
use crate::resource::Resource;
use crate::{defaults, object};

/// Size of the cache.
const CACHE_SIZE: usize = 128;

/// The states that this thread wrote or parsed last.
struct Latest {
    states: Vec<(Arc<Stored>, Arc<Value>)>,
    /// Index of the next state to replace.
    oldest: usize,
}

thread_local! {
    static LATEST: RefCell<Latest> = const { RefCell::new(Latest { states: Vec::new(), oldest: 0 }) };
}

impl Stored {
    /// Returns the parsed JSON, like [`Stored::value`]. Subsequent calls share it while it is cached.
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

    /// Caches the value that this state was created from.
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
        if self.states.len() < CACHE_SIZE {
            self.states.push(entry);
        } else {
            self.states[self.oldest] = entry;
            self.oldest = (self.oldest + 1) % CACHE_SIZE;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Cluster;

    #[tokio::test]
    async fn parses_a_cached_state_once() {
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
        for index in 0..CACHE_SIZE {
            map(&index.to_string()).parsed();
        }
        assert!(!Arc::ptr_eq(&read, &first.parsed()));
        assert_eq!(read, first.parsed());
    }
}
