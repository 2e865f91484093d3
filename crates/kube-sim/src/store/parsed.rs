//! The latest states that were read, so that who reads the same state does not read it anew: one change is looked at by
//! several actors, one after the other.

use std::cell::RefCell;
use std::sync::Arc;

use serde_json::Value;

use super::Stored;

/// As many are kept; the memory they take is bounded by it.
const KEPT: usize = 64;

/// The latest states that were read by this thread.
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
            let entry = (Arc::clone(self), Arc::clone(&value));
            if latest.states.len() < KEPT {
                latest.states.push(entry);
            } else {
                latest.states[latest.oldest] = entry;
                latest.oldest = (latest.oldest + 1) % KEPT;
            }
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Cluster, Resource};

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
