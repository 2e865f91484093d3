//! Waits for states of the cluster; failures show the last state that was seen.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TestSpace;
use super::objects::is_bound;

/// The default limit of a wait, far longer than any operation takes, because machines can be busy.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two polls. It grows with the time waited, because every request costs CPU time.
fn pause(waited: Duration) -> Duration {
    (waited / 10).clamp(Duration::from_millis(20), Duration::from_millis(300))
}

/// Polls until there is a result; returns `None` if there is none within `limit`.
pub async fn eventually<T>(
    limit: Duration,
    mut ask: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<T>> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(Some(answer));
        }
        let waited = start.elapsed();
        if waited > limit {
            return Ok(None);
        }
        tokio::time::sleep(pause(waited)).await;
    }
}

/// Waits for a condition within this process.
pub async fn until(what: &str, holds: impl Fn() -> bool) -> anyhow::Result<()> {
    let found = eventually(DEFAULT_LIMIT, async || Ok(holds().then_some(()))).await?;
    found.with_context(|| format!("not within {} s: {what}", DEFAULT_LIMIT.as_secs()))
}

impl TestSpace {
    /// Waits until an object exists and fulfills a condition. A failure names `what`, and shows the object's last
    /// state, the namespace's events and the logs of the test's programs.
    pub async fn wait_for<K>(
        &self,
        api: &Api<K>,
        name: &str,
        what: &str,
        holds: impl Fn(&K) -> bool,
    ) -> anyhow::Result<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.wait_for_within(DEFAULT_LIMIT, api, name, what, holds).await
    }

    /// [`TestSpace::wait_for`] with a custom limit.
    pub async fn wait_for_within<K>(
        &self,
        limit: Duration,
        api: &Api<K>,
        name: &str,
        what: &str,
        holds: impl Fn(&K) -> bool,
    ) -> anyhow::Result<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let mut last = None;
        let found = eventually(limit, async || {
            last = api.get_opt(name).await?;
            Ok(last.clone().filter(&holds))
        })
        .await?;
        match found {
            Some(object) => Ok(object),
            None => bail!(self.failure::<K>(name, what, limit, last.as_ref()).await),
        }
    }

    /// Waits until an object no longer exists.
    pub async fn wait_gone<K>(&self, api: &Api<K>, name: &str) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let mut last = None;
        let gone = eventually(DEFAULT_LIMIT, async || {
            last = api.get_opt(name).await?;
            Ok(last.is_none().then_some(()))
        })
        .await?;
        match gone {
            Some(()) => Ok(()),
            None => bail!(self.failure::<K>(name, "gone", DEFAULT_LIMIT, last.as_ref()).await),
        }
    }

    /// Waits until a claim is bound, and returns it with its volume.
    pub async fn wait_bound(&self, claim: &str) -> anyhow::Result<(PersistentVolumeClaim, PersistentVolume)> {
        let claims = self.api::<PersistentVolumeClaim>();
        let claim = self.wait_for(&claims, claim, "bound", is_bound).await?;
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let volume = volume.context("a bound claim names no volume")?;
        let volume = self.cluster_api::<PersistentVolume>().get(volume).await?;
        Ok((claim, volume))
    }

    /// Creates a claim, and returns it with its volume once it is bound.
    pub async fn bind(
        &self,
        claim: PersistentVolumeClaim,
    ) -> anyhow::Result<(PersistentVolumeClaim, PersistentVolume)> {
        let claim = self.create_claim(claim).await?;
        self.wait_bound(&claim.name_any()).await
    }

    /// The events about an object, oldest first. Events about cluster-scoped objects are in the namespace `default`.
    pub async fn events_about(&self, kind: &str, name: &str) -> anyhow::Result<Vec<Event>> {
        let selector = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let is_cluster_wide = ["Node", "ObjectBucket", "PersistentVolume"].contains(&kind);
        // The API server does not cache events, so a list across namespaces would read the events of all tests from
        // etcd.
        let namespace = if is_cluster_wide { "default" } else { self.namespace() };
        let events: Api<Event> = Api::namespaced(self.client(), namespace);
        let mut events = events.list(&ListParams::default().fields(&selector)).await?.items;
        events.sort_by_key(|event| event.metadata.creation_timestamp.clone());
        Ok(events)
    }

    /// Waits for an event with a reason about an object.
    pub async fn wait_for_event(&self, kind: &str, name: &str, reason: &str) -> anyhow::Result<Event> {
        let found = eventually(DEFAULT_LIMIT, async || {
            let events = self.events_about(kind, name).await?;
            Ok(events.into_iter().find(|event| event.reason.as_deref() == Some(reason)))
        })
        .await?;
        match found {
            Some(event) => Ok(event),
            None => bail!(
                "no event {reason} about {kind} {name} after {} s\n{}",
                DEFAULT_LIMIT.as_secs(),
                self.circumstances().await
            ),
        }
    }

    /// Waits for an event whose message contains this text. Other events may precede it, for instance while a backend
    /// starts.
    pub async fn wait_for_message(&self, kind: &str, name: &str, part: &str) -> anyhow::Result<Event> {
        let mut last = Vec::new();
        let found = eventually(DEFAULT_LIMIT, async || {
            let events = self.events_about(kind, name).await?;
            let says = |event: &Event| event.message.as_ref().is_some_and(|text| text.contains(part));
            last = events.iter().filter_map(|event| event.message.clone()).collect();
            Ok(events.into_iter().find(says))
        })
        .await?;
        found.with_context(|| format!("no event about {kind} {name} contains {part:?}; the last events: {last:#?}"))
    }

    async fn failure<K>(&self, name: &str, what: &str, limit: Duration, last: Option<&K>) -> String
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let kind = K::kind(&());
        let state = match last {
            Some(object) => serde_json::to_string_pretty(object).unwrap_or_else(|error| error.to_string()),
            None => "it does not exist".to_owned(),
        };
        let seconds = limit.as_secs_f64();
        format!("{kind} {name}: not {what} after {seconds} s\nlast state: {state}\n{}", self.circumstances().await)
    }

    /// The namespace's events and the programs' logs, for a failure message.
    async fn circumstances(&self) -> String {
        let events = match self.api::<Event>().list(&ListParams::default()).await {
            Ok(events) => events.iter().map(describe).collect::<Vec<_>>().join("\n"),
            Err(error) => format!("cannot be read: {error}"),
        };
        format!("events in {}:\n{events}\nprograms:\n{}", self.namespace(), self.program_logs())
    }
}

fn describe(event: &Event) -> String {
    let object = &event.involved_object;
    format!(
        "  {} {} {} {}/{}: {}",
        event.creation_timestamp().map(|time| time.0.to_string()).unwrap_or_default(),
        event.type_.as_deref().unwrap_or_default(),
        event.reason.as_deref().unwrap_or_default(),
        object.kind.as_deref().unwrap_or_default(),
        object.name.as_deref().unwrap_or_default(),
        event.message.as_deref().unwrap_or_default(),
    )
}
