//! Random faults.

use std::collections::BTreeSet;
use std::time::Duration;

use driver_rpc::Code;
use fastrand::Rng;

use crate::{Capability, Step};

/// Number of calls out of 1000 that have each fault.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The call is never answered, although its work may be done.
    pub hang: u32,
    /// The connection breaks, before or after the work.
    pub lost: u32,
    /// The call fails with any code. If the code leaves the result open, the work may be done.
    pub refused: u32,
    /// The call takes [`Self::slow_by`] longer.
    pub slow: u32,
    /// The driver restarts, and all calls on it are lost.
    pub restart: u32,
    /// Additional duration of a slow call.
    pub slow_by: Duration,
    /// The capabilities that each restart removes or restores.
    pub changed_by_restart: BTreeSet<Capability>,
}

/// Codes after which the work may be done or still in progress.
const AMBIGUOUS_CODES: [Code; 4] = [Code::Cancelled, Code::DeadlineExceeded, Code::Aborted, Code::Unavailable];

impl Faults {
    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<Step> {
        let mut roll = rng.u32(..1000);
        let mut hits = |chance: u32| {
            let is_hit = roll < chance;
            roll = if is_hit { u32::MAX } else { roll - chance };
            is_hit
        };
        let step = if hits(self.hang) {
            maybe_working(Step::hang(), rng)
        } else if hits(self.lost) {
            maybe_working(Step::break_connection(), rng)
        } else if hits(self.refused) {
            let code = Code::from_i32(rng.i32(1..=16));
            let step = Step::refuse(code, "a fault");
            if AMBIGUOUS_CODES.contains(&code) { maybe_working(step, rng) } else { step }
        } else if hits(self.slow) {
            Step::work().after(self.slow_by)
        } else if hits(self.restart) {
            maybe_working(Step::restart(), rng)
        } else {
            return None;
        };
        Some(step)
    }
}

fn maybe_working(step: Step, rng: &mut Rng) -> Step {
    if rng.bool() { step.working() } else { step }
}
