//! Quotas of users and of buckets.

use std::collections::BTreeMap;

use kube_provisioner::bucket::Limit;
use serde::Deserialize;

/// A quota as the gateway returns it. A negative number means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Quota {
    pub(crate) enabled: bool,
    pub(crate) max_size: i64,
    pub(crate) max_objects: i64,
}

impl Quota {
    #[cfg(test)]
    pub(crate) const NONE: Self = Self { enabled: false, max_size: -1, max_objects: -1 };

    /// Returns the quota with the claim's limits for objects and size, each with its key. Limits that the claim has
    /// never set come from an administrator or from the gateway's configuration, and are kept.
    pub(crate) fn of(limits: [(&str, Option<Limit>); 2], applied: &BTreeMap<String, String>, live: Self) -> Self {
        let number = |(key, limit): (&str, Option<Limit>), live_number: i64| match limit {
            Some(limit) => limit.get(),
            None if live.enabled && !applied.contains_key(key) => live_number.max(-1),
            None => -1,
        };
        let (max_objects, max_size) = (number(limits[0], live.max_objects), number(limits[1], live.max_size));
        Self { enabled: max_objects >= 0 || max_size >= 0, max_size, max_objects }
    }

    /// Returns whether the live quota has the same effect as this one.
    pub(crate) fn is_met_by(self, live: Self) -> bool {
        let limits = |quota: Self| quota.enabled && (quota.max_size >= 0 || quota.max_objects >= 0);
        if !limits(self) {
            return !live.enabled;
        }
        let same = |wanted: i64, live: i64| wanted == live || (wanted < 0 && live < 0);
        // Older gateways store whole kibibytes.
        let same_size = same(self.max_size, live.max_size) || same(self.kibibytes() * 1024, live.max_size);
        live.enabled && same_size && same(self.max_objects, live.max_objects)
    }

    /// Returns the arguments that set the quota. Older gateways ignore `max-size` for buckets and would use 0 without
    /// `max-size-kb`; newer gateways support both.
    pub(crate) fn arguments(self) -> [(&'static str, String); 4] {
        [
            ("enabled", self.enabled.to_string()),
            ("max-size", self.max_size.to_string()),
            ("max-size-kb", self.kibibytes().to_string()),
            ("max-objects", self.max_objects.to_string()),
        ]
    }

    fn kibibytes(self) -> i64 {
        if self.max_size < 0 { -1 } else { (self.max_size + 1023) / 1024 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(enabled: bool, max_size: i64, max_objects: i64) -> Quota {
        Quota { enabled, max_size, max_objects }
    }

    fn limit(text: &str) -> Option<Limit> {
        Limit::try_from(text.to_owned()).ok()
    }

    fn of(objects: Option<Limit>, size: Option<Limit>) -> Quota {
        Quota::of([("objects", objects), ("size", size)], &BTreeMap::new(), live(false, -1, -1))
    }

    #[test]
    fn removes_only_limits_that_the_claim_set() {
        let applied = |key: &str| BTreeMap::from([(key.to_owned(), "1".to_owned())]);
        let quota = |applied, live| Quota::of([("objects", limit("7")), ("size", None)], &applied, live);
        assert_eq!(quota(BTreeMap::new(), live(true, 1024, 9)), live(true, 1024, 7));
        assert_eq!(quota(applied("size"), live(true, 1024, 9)), live(true, -1, 7));
        assert_eq!(quota(BTreeMap::new(), live(false, 1024, 9)), live(true, -1, 7));
        let without = |applied| Quota::of([("objects", None), ("size", None)], &applied, live(true, 1024, 9));
        assert!(without(BTreeMap::new()).is_met_by(live(true, 1024, 9)));
        assert_eq!(without(applied("objects")), live(true, 1024, -1));
    }

    #[test]
    fn compares_quotas_by_their_effect() {
        let none = of(None, None);
        assert_eq!(none, live(false, -1, -1));
        assert!(none.is_met_by(live(false, -1, -1)));
        assert!(none.is_met_by(live(false, 0, 7)));
        assert!(!none.is_met_by(live(true, -1, 7)));
        let objects = of(limit("7"), None);
        assert_eq!(objects, live(true, -1, 7));
        assert!(objects.is_met_by(live(true, -1024, 7)));
        assert!(!objects.is_met_by(live(true, 0, 7)));
        assert!(!objects.is_met_by(live(false, -1, 7)));
        assert!(!objects.is_met_by(live(true, -1, 8)));
        let both = of(limit("7"), limit("1025"));
        assert!(both.is_met_by(live(true, 1025, 7)));
        assert!(both.is_met_by(live(true, 2048, 7)));
        assert!(!both.is_met_by(live(true, 1024, 7)));
        assert!(!both.is_met_by(live(true, 2048, -1)));
    }

    #[test]
    fn sends_sizes_in_bytes_and_kibibytes() {
        let arguments = |quota: Quota| quota.arguments().map(|(_, value)| value);
        assert_eq!(arguments(of(None, limit("1025"))), ["true", "1025", "2", "-1"]);
        assert_eq!(arguments(of(None, None)), ["false", "-1", "-1", "-1"]);
    }
}
