//! The options of a replica, and their validation.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::environment::Environment;
use crate::name::{is_dns_subdomain, with_suffix};

/// `JitterFactor` of client-go's leader election.
pub(super) const JITTER: f64 = 1.2;

/// The options of a replica in its fleet.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The namespace of the Leases.
    pub namespace: String,
    /// The name of the fleet, see [`lease_name`](super::lease_name). With one shard it is the Lease's name, otherwise
    /// the Leases are `{name}-0`, `{name}-1` and so on.
    pub name: String,
    /// The value of the fleet label on all Leases of the fleet; defaults to the name.
    pub fleet: String,
    /// Additional labels of the Leases.
    pub labels: BTreeMap<String, String>,
    /// The number of Leases; at least 1, and the same in all replicas. Replicas with different numbers wait for each
    /// other.
    pub shards: u32,
    /// This process's identity. It must be unique, and this process must not reuse it after a restart.
    pub identity: String,
    /// The time for which a Lease that is not renewed belongs to its holder; 15 seconds in client-go.
    pub duration: Duration,
    /// The time after the last renewal at which a holder abandons its term; 10 seconds in client-go.
    pub renew_deadline: Duration,
    /// The time between renewals, and between attempts; 2 seconds in client-go.
    pub retry_period: Duration,
    /// The source of randomness and of the times in the Leases.
    pub environment: Environment,
}

impl LeaseOptions {
    /// Creates options for one shard with client-go's times.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            namespace: namespace.into(),
            fleet: name.clone(),
            name,
            labels: BTreeMap::new(),
            shards: 1,
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            environment: Environment::default(),
        }
    }

    /// Validates the options. The rules for the times are the same as in client-go.
    ///
    /// # Errors
    ///
    /// Returns the first option that is not valid.
    pub fn check(&self) -> Result<(), LeaseOptionsError> {
        let Self { name, identity, shards, duration, renew_deadline, retry_period, .. } = self;
        let least = retry_period.mul_f64(JITTER);
        let problem = if !is_dns_subdomain(name) {
            format!("The name {name:?} is not valid for a Lease: it must be a DNS subdomain of at most 253 characters.")
        } else if identity.is_empty() {
            "The identity must not be empty.".to_owned()
        } else if *shards == 0 {
            "The number of shards must be at least 1.".to_owned()
        } else if retry_period.is_zero() {
            "The retry period must be greater than zero.".to_owned()
        } else if *renew_deadline <= least {
            format!(
                "The renew deadline ({renew_deadline:?}) must be greater than {JITTER} times the retry period ({least:?})."
            )
        } else if duration <= renew_deadline {
            format!("The lease duration ({duration:?}) must be greater than the renew deadline ({renew_deadline:?}).")
        } else {
            return Ok(());
        };
        Err(LeaseOptionsError(problem))
    }

    /// Returns the name of a shard's Lease.
    pub(super) fn shard_name(&self, shard: u32) -> String {
        match self.shards {
            1 => self.name.clone(),
            _ => with_suffix(&self.name, &format!("-{shard}")),
        }
    }

    /// Returns the time limit of one API call: three calls fit into the renew deadline.
    pub(super) fn call_limit(&self) -> Duration {
        self.renew_deadline / 3
    }

    /// Returns the time between attempts of operations that cannot wait a full retry period.
    pub(super) fn short_pause(&self) -> Duration {
        self.retry_period / 4
    }

    /// Returns the time that the work of a lost term has to return before it is aborted.
    pub(super) fn abort_grace(&self) -> Duration {
        ((self.duration - self.renew_deadline) / 2).min(Duration::from_secs(1))
    }
}

/// The error for an option that is not valid: a complete sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LeaseOptionsError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_options_are_valid() {
        let options = LeaseOptions::new("default", "example.com-hostpath", "me");
        assert_eq!(options.check(), Ok(()));
        assert_eq!(options.shard_name(0), "example.com-hostpath");
        assert_eq!(LeaseOptions { shards: 3, ..options }.shard_name(2), "example.com-hostpath-2");
    }

    #[test]
    fn error_describes_the_invalid_option() {
        let good = LeaseOptions::new("default", "name", "me");
        let seconds = Duration::from_secs;
        let cases = [
            (LeaseOptions { name: "a/b".into(), ..good.clone() }, "The name \"a/b\" is not valid for a Lease"),
            (LeaseOptions { identity: String::new(), ..good.clone() }, "The identity must not be empty."),
            (LeaseOptions { shards: 0, ..good.clone() }, "The number of shards must be at least 1."),
            (LeaseOptions { retry_period: seconds(0), ..good.clone() }, "The retry period must be greater than zero."),
            (
                LeaseOptions { renew_deadline: seconds(6), retry_period: seconds(5), ..good.clone() },
                "The renew deadline (6s) must be greater than 1.2 times the retry period (6s).",
            ),
            (
                LeaseOptions { duration: seconds(10), ..good },
                "The lease duration (10s) must be greater than the renew deadline (10s).",
            ),
        ];
        for (options, text) in cases {
            let error = options.check().expect_err(text).to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
