//! API servers that refuse some writes, lose the responses to deletions or to a change, or delay a list.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_sim::{After, Before, Cluster, Interceptor, Request, Status, Stored, Verb, WatchInterceptor, WatchStep};
use tokio::time::sleep;

use super::fixture::{BUCKETS, Fixture};
use super::ownership::ROOK;

struct Refusing {
    left: Arc<AtomicU32>,
    which: fn(&Request) -> bool,
}

/// Creates a fixture with Rook's definitions, on an API server that refuses the given number of these writes.
pub(crate) fn refusing(which: fn(&Request) -> bool) -> (Arc<AtomicU32>, Fixture) {
    let left = Arc::new(AtomicU32::new(0));
    let interceptor = Arc::new(Refusing { left: left.clone(), which });
    let cluster = Cluster::builder().hide_managed_fields().interceptor(interceptor).build();
    cluster.create_yaml(ROOK).unwrap();
    (left, Fixture::on(cluster))
}

impl Interceptor for Refusing {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let is_write = matches!(request.verb, Verb::Create | Verb::Patch | Verb::Delete);
        let next = || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let refused = is_write && (self.which)(request) && next().is_ok();
        let status = || match request.verb {
            // The object was changed concurrently.
            Verb::Delete => Status::conflict(&request.resource, &request.name, "the object has been modified"),
            _ => Status::internal("the disk is full"),
        };
        let answer = if refused { Before::Refuse(status()) } else { Before::Handle };
        Box::pin(async move { answer })
    }
}

/// Breaks the connection before the answer to a deletion, and delays watch events about it.
pub(crate) struct LosesDeletions;

impl Interceptor for LosesDeletions {
    fn after<'a>(&'a self, request: &'a Request, _: u16) -> BoxFuture<'a, After> {
        let answer = if request.verb == Verb::Delete { After::Break } else { After::Deliver };
        Box::pin(async move { answer })
    }

    fn watch(&self, _: &Request) -> Option<Box<dyn WatchInterceptor>> {
        Some(Box::new(Self))
    }
}

impl WatchInterceptor for LosesDeletions {
    fn event(&mut self, kind: &'static str, _: &Stored) -> WatchStep {
        if kind == "DELETED" { WatchStep::Delay(Duration::from_secs(60)) } else { WatchStep::Deliver }
    }
}

/// Loses the answer to the first change of an ObjectBucket, and hides such changes from watches.
#[derive(Clone, Default)]
pub(crate) struct LosesWrite(Arc<AtomicBool>);

impl LosesWrite {
    pub(crate) fn has_lost_write(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Interceptor for LosesWrite {
    fn after<'a>(&'a self, request: &'a Request, _: u16) -> BoxFuture<'a, After> {
        let is_change = request.resource.plural == BUCKETS && request.verb == Verb::Patch;
        let is_lost = is_change && !self.0.swap(true, Ordering::Relaxed);
        Box::pin(async move { if is_lost { After::Break } else { After::Deliver } })
    }

    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        (request.resource.plural == BUCKETS).then(|| Box::new(self.clone()) as _)
    }
}

impl WatchInterceptor for LosesWrite {
    fn event(&mut self, kind: &'static str, _: &Stored) -> WatchStep {
        if kind == "MODIFIED" { WatchStep::Silence } else { WatchStep::Deliver }
    }
}

/// Once it is armed, the watch of ObjectBuckets expires at the next event, the answer to the following list is late,
/// and watches do not show changes that the list lacks.
#[derive(Clone, Default)]
pub(crate) struct LateList(Arc<AtomicBool>);

impl LateList {
    pub(crate) const DELAY: Duration = Duration::from_secs(20);

    pub(crate) fn arm(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_armed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Interceptor for LateList {
    fn after<'a>(&'a self, request: &'a Request, _: u16) -> BoxFuture<'a, After> {
        let is_late = self.is_armed() && request.resource.plural == BUCKETS && request.verb == Verb::List;
        Box::pin(async move {
            if is_late {
                sleep(Self::DELAY).await;
            }
            After::Deliver
        })
    }

    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        let once_armed = if self.is_armed() {
            WatchStep::Silence
        } else {
            WatchStep::Refuse(Status::expired("too old resource version"))
        };
        (request.resource.plural == BUCKETS).then(|| Box::new(LateListWatch { list: self.clone(), once_armed }) as _)
    }
}

struct LateListWatch {
    list: LateList,
    once_armed: WatchStep,
}

impl WatchInterceptor for LateListWatch {
    fn event(&mut self, _: &'static str, _: &Stored) -> WatchStep {
        if self.list.is_armed() { self.once_armed.clone() } else { WatchStep::Deliver }
    }
}
