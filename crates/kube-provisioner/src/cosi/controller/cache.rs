//! The watched objects: the Buckets and BucketAccesses of this driver, and the Secrets that the controller has written.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use provisioner_runtime::{Cache, Change, Table, fingerprint};

use super::decide::{AccessView, BucketState, BucketView, Decision, Facts, decide};
use super::objects::{AccessContent, AccessFacts, BucketFacts, WatchedObject};
use super::secrets::{SecretFacts, SecretState};
use crate::controller::shared::index::remove_entry;

/// A Bucket by its name, or a BucketAccess by its namespace and name. Formatted as the object's path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Bucket(Arc<str>),
    Access(Arc<str>),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket(name) => write!(f, "buckets/{name}"),
            Self::Access(path) => write!(f, "bucketaccesses/{path}"),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        match text.strip_prefix("bucketaccesses/") {
            Some(path) => Self::Access(path.into()),
            None => Self::Bucket(text.strip_prefix("buckets/").unwrap_or(text).into()),
        }
    }
}

#[derive(Default)]
pub(super) struct CosiCache {
    buckets: Table<Arc<str>, Arc<BucketFacts>>,
    accesses: Table<Arc<str>, Arc<AccessFacts>>,
    /// By `namespace/name`.
    secrets: Table<Arc<str>, SecretFacts>,
    /// The accesses that are not ready, with their Buckets: only these depend on changes of Buckets.
    waiting: HashMap<Arc<str>, Vec<String>>,
    /// The accesses that are not ready, by their Buckets.
    awaited: HashMap<Box<str>, BTreeSet<Arc<str>>>,
}

impl CosiCache {
    pub(super) fn bucket_event(&mut self, change: Change<Option<WatchedObject<BucketFacts>>>) -> Vec<Key> {
        let changed = apply(&mut self.buckets, change);
        let accesses = changed.iter().filter_map(|name| self.awaited.get(&**name)).flatten().cloned();
        let accesses: Vec<Key> = accesses.map(Key::Access).collect();
        changed.into_iter().map(Key::Bucket).chain(accesses).collect()
    }

    pub(super) fn access_event(&mut self, change: Change<Option<WatchedObject<AccessFacts>>>) -> Vec<Key> {
        let changed = apply(&mut self.accesses, change);
        for path in &changed {
            for bucket in self.waiting.remove(path).unwrap_or_default() {
                remove_entry(&mut self.awaited, &*bucket, path);
            }
            let waits = self.accesses.get(path).filter(|access| !access.object.is_ready());
            let targets = waits.into_iter().flat_map(|access| &access.content).flat_map(|content| &content.targets);
            let buckets: Vec<String> = targets.map(|target| target.bucket.clone()).collect();
            for bucket in &buckets {
                self.awaited.entry(bucket.as_str().into()).or_default().insert(path.clone());
            }
            if !buckets.is_empty() {
                self.waiting.insert(path.clone(), buckets);
            }
        }
        changed.into_iter().map(Key::Access).collect()
    }

    pub(super) fn secret_event(&mut self, change: Change<Option<(Arc<str>, SecretFacts)>>) -> Vec<Key> {
        let mut affected = Vec::new();
        let former = match change {
            Change::Begin => {
                self.secrets.begin_snapshot();
                None
            }
            Change::Listed(Some((path, secret))) | Change::Applied(Some((path, secret))) => {
                affected.extend(access_of(&path, &secret));
                self.secrets.insert(path.clone(), secret).map(|former| (path, former))
            }
            Change::Deleted(Some((path, _))) => self.secrets.remove(&path).map(|former| (path, former)),
            Change::Ready => {
                affected.extend(self.secrets.end_snapshot().iter().filter_map(|(path, gone)| access_of(path, gone)));
                None
            }
            _ => None,
        };
        affected.extend(former.and_then(|(path, former)| access_of(&path, &former)));
        affected
    }

    pub(super) fn bucket(&self, name: &str) -> Option<Arc<BucketFacts>> {
        self.buckets.get(name).cloned()
    }

    /// Returns true if another Bucket represents the same bucket in the backend.
    pub(super) fn has_duplicate(&self, bucket: &BucketFacts) -> bool {
        self.buckets.iter().any(|(_, other)| bucket.is_duplicate(other))
    }

    fn view(&self, access: &Arc<AccessFacts>) -> AccessView {
        let targets = || access.content.iter().flat_map(|content| &content.targets);
        let bucket = |name: &str| self.bucket(name).map_or(BucketState::Absent, BucketState::Ours);
        let secret = |name: &str| {
            let known = self.secrets.get(format!("{}/{name}", access.object.namespace).as_str());
            known.map_or(SecretState::Absent, |secret| secret.state(access))
        };
        AccessView {
            access: access.clone(),
            buckets: targets().map(|target| bucket(&target.bucket)).collect(),
            secrets: targets().map(|target| secret(&target.secret)).collect(),
        }
    }
}

impl Cache for CosiCache {
    type Key = Key;
    type Facts = Facts;

    fn facts(&self, key: &Key) -> Facts {
        match key {
            // The duplicate is looked up when the Bucket is deleted.
            Key::Bucket(name) => {
                self.bucket(name).map_or(Facts::None, |bucket| Facts::Bucket(BucketView { bucket, duplicate: None }))
            }
            Key::Access(path) => self.accesses.get(path).map_or(Facts::None, |access| Facts::Access(self.view(access))),
        }
    }

    /// Returns a fingerprint without the fields that a failed attempt writes, which must not end its own back-off.
    fn inputs(&self, key: &Key) -> u64 {
        match self.facts(key) {
            Facts::Bucket(BucketView { bucket, .. }) => fingerprint(&bucket.inputs()),
            Facts::Access(AccessView { access, buckets, secrets }) => {
                let AccessFacts { object, cleanup_finished, overridden, content } = &*access;
                let content = content.clone().map(|content| AccessContent { account: None, ..content });
                let buckets: Vec<_> = buckets.iter().map(BucketState::inputs).collect();
                let secrets: Vec<_> = secrets.iter().map(|state| *state == SecretState::Intact).collect();
                fingerprint(&(object.inputs(), cleanup_finished, overridden, content, buckets, secrets))
            }
            Facts::None => 0,
        }
    }

    fn unsettled(&self, among: &dyn Fn(&Key) -> bool) -> Vec<Key> {
        let buckets = self.buckets.iter().map(|(name, _)| Key::Bucket(name.clone()));
        let accesses = self.accesses.iter().map(|(path, _)| Key::Access(path.clone()));
        let mut keys: Vec<Key> = buckets.chain(accesses).filter(|key| among(key)).collect();
        keys.retain(|key| decide(&self.facts(key)) != Decision::NoAction);
        keys.sort_unstable();
        keys
    }
}

impl BucketState {
    fn inputs(&self) -> Option<impl Hash> {
        match self {
            Self::Ours(bucket) => Some(bucket.inputs()),
            Self::Absent | Self::Foreign => None,
        }
    }
}

/// Returns the access that a Secret belongs to.
fn access_of(path: &str, secret: &SecretFacts) -> Option<Key> {
    let (namespace, _) = path.split_once('/')?;
    secret.owner.as_ref().map(|(name, _)| Key::Access(format!("{namespace}/{name}").into()))
}

/// Returns the names of the changed objects.
fn apply<T>(table: &mut Table<Arc<str>, Arc<T>>, change: Change<Option<WatchedObject<T>>>) -> BTreeSet<Arc<str>> {
    // An object without a name is not in the table.
    let change = change.map(|seen| seen.map_or_else(|| ("".into(), None), |seen| (seen.path, seen.ours)));
    table.apply(change).into_iter().collect()
}
