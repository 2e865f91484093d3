//! API calls for Leases. The cache observes their results.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::try_join;
use k8s_openapi::api::coordination;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::ApiResource;
use kube::{Api, Client};
use tokio::time::Instant;

use super::cache::LeaseCache;
use super::options::LeaseOptions;
use super::record::{self, FLEET, Lease, MEMBER, SHARDS, Spec};
use crate::call::{CallError, WriteResponse, call, create_request, invalid_request, replace_request};
use crate::environment::Environment;
use crate::name::label_value;

pub(super) struct LeaseStore {
    pub(super) api: Api<Lease>,
    resource: ApiResource,
    /// The value of the fleet's label.
    pub(super) fleet: String,
    labels: BTreeMap<String, String>,
    /// The only Lease that may lack the label: client-go sets none.
    single: String,
    shards: u32,
    environment: Environment,
}

/// The content to write into a Lease.
pub(super) struct Draft<'a> {
    pub(super) holder: &'a str,
    pub(super) duration: Duration,
    /// The result of [`LeaseStore::now`].
    pub(super) now: String,
    /// `None` means now.
    pub(super) acquired: Option<String>,
    pub(super) transitions: u32,
    pub(super) member: bool,
}

impl LeaseStore {
    pub(super) fn new(client: Client, options: &LeaseOptions) -> Self {
        let resource = ApiResource::erase::<coordination::v1::Lease>(&());
        Self {
            api: Api::namespaced_with(client, &options.namespace, &resource),
            resource,
            fleet: label_value(&options.fleet),
            labels: options.labels.clone(),
            single: options.name.clone(),
            shards: options.shards,
            environment: options.environment,
        }
    }

    /// Writes a Lease: changes `base`, or creates it if there is none. Returns its `acquireTime`.
    pub(super) async fn write(
        &self,
        cache: &LeaseCache,
        name: &str,
        base: Option<&Lease>,
        draft: Draft<'_>,
        limit: Duration,
    ) -> Result<Option<String>, CallError> {
        let mut lease = base.cloned().unwrap_or_else(|| Lease::new(name, &self.resource, None));
        lease.types = Lease::new(name, &self.resource, None).types;
        let metadata = &mut lease.metadata;
        // The server keeps the managed fields if they are omitted.
        metadata.managed_fields = None;
        let labels = metadata.labels.get_or_insert_default();
        labels.extend(self.labels.clone());
        labels.insert(FLEET.to_owned(), self.fleet.clone());
        if draft.member {
            labels.insert(MEMBER.to_owned(), "true".to_owned());
        }
        metadata.annotations.get_or_insert_default().insert(SHARDS.to_owned(), self.shards.to_string());
        lease.spec = Some(spec(draft, lease.spec.take()));
        let body = serde_json::to_vec(&lease).map_err(invalid_request)?;
        let request = match base {
            Some(_) => replace_request(self.api.resource_url(), name, body)?,
            None => create_request(self.api.resource_url(), body)?,
        };
        let client = self.api.clone().into_client();
        let WriteResponse { metadata } = call(limit, client.request(request)).await?;
        // Everything else is as it was sent.
        (lease.metadata.uid, lease.metadata.resource_version) = (metadata.uid, metadata.resource_version);
        let acquired = lease.spec.as_ref().and_then(|spec| spec.acquire_time.clone());
        cache.observe(lease);
        Ok(acquired)
    }

    pub(super) async fn get(&self, cache: &LeaseCache, name: &str, limit: Duration) -> Result<(), CallError> {
        let known = cache.version(name);
        match call(limit, self.api.get(name)).await {
            Ok(lease) => cache.observe_answer(lease, known),
            Err(CallError::NotFound) => cache.observe_deleted(name, None),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Lists all Leases of the fleet in their current state, not from a server's cache; returns the version of the
    /// list.
    pub(super) async fn list(&self, cache: &LeaseCache, limit: Duration) -> Result<String, CallError> {
        let (start, newest) = (Instant::now(), cache.newest());
        let params = ListParams::default().labels(&self.selector());
        let list = call(limit, self.api.list(&params));
        let is_single = |lease: &Lease| lease.metadata.name.as_ref() == Some(&self.single);
        // A Lease written by client-go has no label. Request it concurrently if it may exist.
        let has_label = |lease: &Lease| record::fleet_of(lease) == Some(&self.fleet);
        let expected = cache.known(&self.single).and_then(|known| known.lease).is_some_and(|lease| has_label(&lease));
        let list = if expected {
            let list = list.await?;
            if !list.items.iter().any(is_single) {
                self.get(cache, &self.single, limit.saturating_sub(start.elapsed())).await?;
            }
            list
        } else {
            try_join(list, self.get(cache, &self.single, limit)).await?.0
        };
        let version = list.metadata.resource_version.unwrap_or_default();
        cache.observe_list(&self.fleet, list.items, version.parse().ok(), newest);
        Ok(version)
    }

    /// Deletes a Lease if it did not change since it was observed.
    pub(super) async fn delete(&self, lease: &Lease, limit: Duration) -> Result<(), CallError> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Preconditions {
            uid: lease.metadata.uid.clone(),
            resource_version: lease.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        call(limit, self.api.delete(name, &params)).await.map(|_| ())
    }

    pub(super) fn selector(&self) -> String {
        format!("{FLEET}={}", self.fleet)
    }

    /// Returns the current time in the format of the API's `MicroTime`.
    pub(super) fn now(&self) -> String {
        format!("{:.6}", self.environment.now())
    }
}

/// Builds the record of `draft`, keeping unknown fields of the previous one.
fn spec(draft: Draft<'_>, before: Option<Spec>) -> Spec {
    Spec {
        holder_identity: Some(draft.holder.to_owned()),
        // The field only has whole seconds: round up.
        lease_duration_seconds: i64::try_from(draft.duration.as_millis().div_ceil(1000)).ok(),
        acquire_time: Some(draft.acquired.unwrap_or_else(|| draft.now.clone())),
        renew_time: Some(draft.now),
        lease_transitions: Some(draft.transitions.into()),
        other: before.unwrap_or_default().other,
    }
}
