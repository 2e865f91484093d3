//! Faults of watches.

use std::time::Duration;

use super::{DrawnFault, Fault, Faults, time_in};
use crate::intercept::{WatchInterceptor, WatchStep};
use crate::status::Status;
use crate::store::Stored;

/// The faults of one watch.
pub(super) struct WatchFaults(Faults);

impl WatchFaults {
    pub(super) fn new(faults: Faults) -> Self {
        Self(faults)
    }
}

impl WatchInterceptor for WatchFaults {
    fn event(&mut self, _: &'static str, object: &Stored) -> WatchStep {
        let DrawnFault { fault, mut detail, .. } = self.0.draw(&Fault::WATCH, |_| true);
        match fault {
            Some(Fault::WatchEnd) => WatchStep::End,
            Some(Fault::WatchBreak) => WatchStep::Break,
            Some(Fault::WatchExpired) => {
                let version = object.resource_version();
                let message = format!("too old resource version: {} ({version})", version.saturating_sub(1));
                WatchStep::Refuse(Status::expired(message))
            }
            Some(Fault::WatchStall) => {
                WatchStep::Stall(time_in(&mut detail, &(Duration::from_secs(30)..=Duration::from_secs(300))))
            }
            Some(Fault::WatchSilence) => WatchStep::Silence,
            Some(Fault::WatchDelay) => WatchStep::Delay(time_in(&mut detail, &self.0.delay)),
            _ => WatchStep::Deliver,
        }
    }
}
