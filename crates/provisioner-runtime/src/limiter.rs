//! Bounded concurrency that groups, and the tenants of each group, share fairly.
//!
//! A *group* is anything that may hang independently, such as one backend. All groups together hold at most
//! [`Limits::total`] permits, and a group takes no more than its [`fair_share`]: a single group gets 4 of 5 permits,
//! two groups get 44 of 100 each. So a group whose calls hang never keeps the others from work.
//!
//! A *tenant* is the party the work is done for, such as a namespace. The tenants of a group share the group's permits
//! by the same rule: a single tenant gets 64 of 100 permits, and 16 stay free for other tenants of its group. Work
//! without a tenant may take whatever its group may take.
//!
//! Groups take turns, tenants within a group take turns, and a tenant gets permits in the order of its requests.
//!
//! Work that creates and work that removes share nothing: each [`Purpose`] has its own full set of [`Limits`].
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
mod round_robin;
mod shares;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

pub use flow::{Flow, Purpose};
pub(crate) use shares::Shares;

/// The number of permits for each [`Purpose`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Permits for all groups together; 0 is unbounded.
    pub total: usize,
    /// Permits for each group; 0 is unbounded.
    pub per_group: usize,
    /// Allows a group that holds no permit to get one, even beyond the total, so that it can work no matter how many
    /// other groups hang.
    pub one_each: bool,
}

/// Returns true if a group, or a tenant within its group, that holds `held` may take `more` of `free`.
///
/// It may if it then holds at most 4 times the number of permits that stay free. This is the dynamic threshold of
/// switches with shared memory (Choudhury and Hahne, 1998). A group that holds nothing may take everything that is
/// free. So a single group takes 4/5, and only a group that holds nothing takes the last permit.
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
    /// Creates a limiter whose permits are all free.
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
            // If this future is dropped, a permit in the channel is returned when it is dropped.
            let _waiting = WaitGuard { limiter: self, flow, ticket };
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
            // If the receiver was dropped, the permit is dropped here, which returns it.
            drop(waiter.send(LimiterPermit { limiter: self.clone(), flow }));
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}

/// A permit of a [`Limiter`], returned on drop.
#[must_use = "the permit is returned when it is dropped"]
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

/// A waiter; dropping it cancels the wait.
struct WaitGuard<'a> {
    limiter: &'a Limiter,
    flow: &'a Flow,
    ticket: u64,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        crate::sync::lock(&self.limiter.shares).cancel(self.flow, self.ticket);
    }
}
