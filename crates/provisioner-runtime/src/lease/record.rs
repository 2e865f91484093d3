//! The wire format of a Lease.
//!
//! Users may write Leases manually. Times are kept as text: nothing depends on them, and an invalid time must not make
//! the Lease unreadable. Unknown fields are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::{NotUsed, Object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::watch::FromJson;

/// The label on all Leases of one fleet; its value is the fleet's name.
pub(super) const FLEET: &str = "kube-provisioner/fleet";

/// The annotation with the number of shards that the holder runs with.
pub(super) const SHARDS: &str = "kube-provisioner/shards";

/// The label of Leases whose only purpose is to show that a replica is alive.
pub(super) const MEMBER: &str = "kube-provisioner/fleet-member";

/// The upper bound for a Lease's duration, whatever the Lease says.
const LONGEST: Duration = Duration::from_secs(3600);

pub(super) type Lease = Object<Option<Spec>, NotUsed>;

impl FromJson for Lease {}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_duration_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_transitions: Option<i64>,
    #[serde(flatten)]
    pub(super) other: BTreeMap<String, Value>,
}

impl Spec {
    /// Returns the holder; empty if the Lease is not held.
    pub(super) fn holder(&self) -> &str {
        self.holder_identity.as_deref().unwrap_or_default()
    }

    /// Returns the duration for a replica whose own Leases last `own`. The longer of the two applies: a fleet may be
    /// changing its duration, and the record only has whole seconds.
    pub(super) fn duration(&self, own: Duration) -> Duration {
        let seconds = self.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        own.max(Duration::from_secs(seconds.unwrap_or(0)).min(LONGEST))
    }

    /// Returns the number of times the holder changed.
    pub(super) fn transitions(&self) -> u32 {
        let number = self.lease_transitions.unwrap_or(0).clamp(0, i32::MAX.into());
        u32::try_from(number).unwrap_or(0)
    }
}

/// Returns the number after this one; the API server limits the number to 31 bits.
pub(super) fn next_transition(number: u32) -> u32 {
    if number < i32::MAX.unsigned_abs() { number + 1 } else { 0 }
}

/// Returns the number of shards that the Lease's holder runs with. A client-go holder records none and has one.
pub(super) fn shards_of(lease: &Lease) -> u32 {
    let text = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(SHARDS));
    text.and_then(|text| text.parse().ok()).filter(|shards| *shards > 0).unwrap_or(1)
}

pub(super) fn is_member(lease: &Lease) -> bool {
    lease.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MEMBER))
}

pub(super) fn fleet_of(lease: &Lease) -> Option<&str> {
    lease.metadata.labels.as_ref()?.get(FLEET).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_manually_written_leases() {
        let own = Duration::from_secs(15);
        let read = |spec: Value| {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": spec});
            let lease: Lease = serde_json::from_value(lease).unwrap();
            let spec = lease.spec.unwrap_or_default();
            (spec.holder().to_owned(), spec.duration(own).as_secs(), spec.transitions())
        };
        assert_eq!(read(json!(null)), (String::new(), 15, 0));
        assert_eq!(read(json!({})), (String::new(), 15, 0));
        let odd = json!({"holderIdentity": "a", "renewTime": "9999-12-31T23:59:59.999999Z", "leaseTransitions": -7});
        assert_eq!(read(odd), ("a".to_owned(), 15, 0));
        let long =
            json!({"holderIdentity": "a", "leaseDurationSeconds": 2_147_483_647, "leaseTransitions": 1_u64 << 40});
        assert_eq!(read(long), ("a".to_owned(), 3600, 2_147_483_647));
        assert_eq!(read(json!({"leaseDurationSeconds": 60})).1, 60);
        assert_eq!(read(json!({"leaseDurationSeconds": 1})).1, 15);
    }

    #[test]
    fn reads_missing_spec_and_keeps_unknown_fields() {
        let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!(lease.spec, None);
        let spec = json!({"holderIdentity": "a", "strategy": "OldestEmulationVersion"});
        let read: Spec = serde_json::from_value(spec.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), spec);
    }

    #[test]
    fn transition_count_wraps_after_31_bits() {
        assert_eq!(next_transition(0), 1);
        assert_eq!(next_transition(2_147_483_647), 0);
    }
}
