//! Times and pauses, under a paused clock and under the machine's clock.

use std::time::Duration;

use tokio::time::sleep;

use crate::options::Options;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tempo {
    /// Tokio's paused clock: waiting takes no real time.
    Virtual,
    /// The machine's clock: waiting is kept short.
    Real,
}

impl Tempo {
    /// Creates a runtime with one thread and this clock.
    pub(super) fn runtime(self) -> tokio::runtime::Runtime {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(self == Self::Virtual);
        runtime.build().expect("a thread without a runtime can have one")
    }

    pub(super) fn choose<T>(self, paused: T, real: T) -> T {
        match self {
            Self::Virtual => paused,
            Self::Real => real,
        }
    }

    /// Returns the limit for all work to end.
    pub(super) fn limit(self) -> Duration {
        self.choose(Duration::from_secs(2400), Duration::from_secs(60))
    }

    /// Returns the limit for a backend to show a change: longer than the longest pause between two attempts.
    pub(super) fn appearance(self) -> Duration {
        self.choose(Duration::from_secs(300), Duration::from_secs(60))
    }

    /// Returns the pause between two checks.
    pub(super) fn step(self) -> Duration {
        self.choose(Duration::from_millis(500), Duration::from_millis(20))
    }

    /// Returns the time for which the final state must last: longer than any pause between two attempts.
    pub(super) fn stable_period(self) -> Duration {
        self.choose(Duration::from_secs(300), Duration::from_millis(500))
    }

    /// Returns the time in which a disturbed run creates and deletes its claims.
    pub(super) fn storm(self) -> Duration {
        self.choose(Duration::from_secs(90), Duration::from_secs(2))
    }

    /// Returns the pause before a call to the provisioner is repeated.
    pub(super) fn retry(self, wanted: Option<Duration>) -> Duration {
        self.choose(wanted.unwrap_or(Duration::from_secs(1)), Duration::from_millis(50))
    }

    /// Waits until dropped work has ended. Under a paused clock this sleep ends only when all tasks are idle
    /// and all blocking threads are done.
    pub(super) async fn settle(self) {
        sleep(self.choose(Duration::from_millis(1), Duration::from_millis(20))).await;
    }

    /// Returns controller options with suitable pauses.
    pub(super) fn options(self, provisioner: &str) -> Options {
        let mut options = Options::new(provisioner);
        options.retry_interval_max = Duration::from_secs(60);
        if self == Self::Virtual {
            // Under the paused clock, more frequent renewals would take most of the CPU time.
            options.lease_duration = Duration::from_secs(60);
            options.lease_renew_deadline = Duration::from_secs(45);
            options.lease_retry_period = Duration::from_secs(15);
        } else {
            options.retry_interval_start = Duration::from_millis(50);
            options.retry_interval_max = Duration::from_secs(1);
            options.lease_duration = Duration::from_secs(3);
            options.lease_renew_deadline = Duration::from_secs(2);
            options.lease_retry_period = Duration::from_millis(200);
        }
        options
    }
}
