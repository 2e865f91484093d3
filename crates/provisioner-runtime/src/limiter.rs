//! Bounded concurrency that groups share fairly, and the tenants of each group.
//!
//! A *group* is whatever may hang on its own, such as one backend. All groups together hold at most
//! [`Limits::total`] permits, and a group takes no more than [`fair_share`] leaves it: alone it gets 4 of 5
//! permits, two groups get 44 of 100 each. So a group whose calls hang never keeps the others from work.
//!
//! A *tenant* is for whom the work is, such as a namespace. The tenants of a group share what the group may take by the same
//! rule: alone a tenant gets 64 of 100 permits, and 16 stay free for other tenants of its group. Work without a tenant takes
//! what its group may take.
//!
//! The groups take turns, so do the tenants within a group, and a tenant gets permits in the order in which it asked for them.
//!
//! Work that creates and work that removes share nothing: each [`Purpose`] has all [`Limits`] for itself.
//!
//! ```
//! # use provisioner_runtime::{Flow, Limiter, Limits};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let limiter = Limiter::new(Limits { total: 100, per_group: 0, one_each: true });
//! let permit = limiter.acquire(&Flow::creating("gold").of_tenant("team-a")).await;
//! // One call of the backend of "gold".
//! drop(permit);
//! # }
//! ```

mod flow;
mod pool;
mod shares;
#[cfg(test)]
mod tests;
mod turns;

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

pub use flow::{Flow, Purpose};
pub(crate) use shares::Shares;

/// How many permits there are for each [`Purpose`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// For all groups together; 0 is unbounded.
    pub total: usize,
    /// For each group; 0 is unbounded.
    pub per_group: usize,
    /// A group that holds none gets one, even beyond the total. So groups that hang never stop another, however many hang.
    pub one_each: bool,
}

/// Whether a group, or a tenant within its group, that holds `held` may take `more` of `free`.
///
/// It may if it then holds at most 4 times what stays free. This is the dynamic threshold of switches with shared
/// memory (Choudhury and Hahne, 1998). A group that holds nothing may take all that is free. So a single group
/// takes 4/5, and only a group that holds nothing takes the last permit.
pub fn fair_share(held: usize, more: usize, free: usize) -> bool {
    let Some(rest) = free.checked_sub(more) else { return false };
    held == 0 || held.saturating_add(more) <= rest.saturating_mul(4)
}

/// Hands out permits; clones share them.
#[derive(Clone)]
pub struct Limiter {
    shares: Arc<Mutex<Shares<Waiter>>>,
}

type Waiter = oneshot::Sender<LimiterPermit>;

impl Limiter {
    /// All permits are free.
    pub fn new(limits: Limits) -> Self {
        Self { shares: Arc::new(Mutex::new(Shares::new(limits))) }
    }

    /// Waits for a permit of this flow. Dropping the future loses no permit.
    pub async fn acquire(&self, flow: &Flow) -> LimiterPermit {
        loop {
            let (waiter, permit) = oneshot::channel();
            let ticket = {
                let mut shares = crate::sync::lock(&self.shares);
                if shares.try_acquire(flow) {
                    return LimiterPermit { limiter: self.clone(), flow: flow.clone() };
                }
                shares.wait(flow, waiter)
            };
            // A permit that is in the channel when this future is dropped is given back by its own drop.
            let _waiting = Waiting { limiter: self, flow, ticket };
            if let Ok(permit) = permit.await {
                return permit;
            }
        }
    }

    fn release(&self, flow: &Flow) {
        let mut shares = crate::sync::lock(&self.shares);
        shares.release(flow);
        let admitted: Vec<_> = std::iter::from_fn(|| shares.admit()).collect();
        drop(shares);
        for (flow, waiter) in admitted {
            // If the receiver is gone, the permit is dropped here, which gives it back.
            drop(waiter.send(LimiterPermit { limiter: self.clone(), flow }));
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}

/// A permit of a [`Limiter`], given back on drop.
#[must_use = "the permit is given back when it is dropped"]
pub struct LimiterPermit {
    limiter: Limiter,
    flow: Flow,
}

impl Drop for LimiterPermit {
    fn drop(&mut self) {
        self.limiter.release(&self.flow);
    }
}

impl fmt::Debug for LimiterPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterPermit").field("flow", &self.flow).finish_non_exhaustive()
    }
}

/// A waiter; dropping it takes it out of the wait.
struct Waiting<'a> {
    limiter: &'a Limiter,
    flow: &'a Flow,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        crate::sync::lock(&self.limiter.shares).cancel(self.flow, self.ticket);
    }
}
