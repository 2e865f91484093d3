//! Permits, waiters, and the choice of the next waiter. Uses no clock and no tasks.

use super::pool::Pool;
use super::{Flow, Limits, Purpose};

/// Permits that flows share. A flow that neither holds nor waits for a permit is not remembered.
///
/// After [`release`](Self::release) and [`wait`](Self::wait) the caller calls [`admit`](Self::admit) until it returns
/// `None`. At that point no waiter may have a permit, so later requests never overtake a waiter.
#[derive(Debug)]
pub(crate) struct Shares<W> {
    creating: Pool<W>,
    removing: Pool<W>,
}

impl<W> Shares<W> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { creating: Pool::new(Purpose::Create, limits), removing: Pool::new(Purpose::Remove, limits) }
    }

    /// Takes a permit if the flow may have one.
    pub(crate) fn try_acquire(&mut self, flow: &Flow) -> bool {
        self.pool(flow).try_acquire(flow)
    }

    /// Returns a permit.
    pub(crate) fn release(&mut self, flow: &Flow) {
        self.pool(flow).release(flow);
    }

    /// Adds `waiter` to the waiters of the flow; pass the returned ticket to [`cancel`](Self::cancel).
    pub(crate) fn wait(&mut self, flow: &Flow, waiter: W) -> u64 {
        self.pool(flow).wait(flow, waiter)
    }

    /// Removes a waiter; returns `None` if it has already been admitted.
    pub(crate) fn cancel(&mut self, flow: &Flow, ticket: u64) -> Option<W> {
        self.pool(flow).cancel(flow, ticket)
    }

    /// Gives a permit to the next waiter, if any waiter may have one.
    pub(crate) fn admit(&mut self) -> Option<(Flow, W)> {
        self.creating.admit().or_else(|| self.removing.admit())
    }

    /// Returns the number of waiters.
    pub(crate) fn waiting(&self) -> usize {
        self.creating.waiting() + self.removing.waiting()
    }

    /// Returns the numbers of groups and tenants that are remembered.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> (usize, usize) {
        let (creating, removing) = (self.creating.remembered(), self.removing.remembered());
        (creating.0 + removing.0, creating.1 + removing.1)
    }

    fn pool(&mut self, flow: &Flow) -> &mut Pool<W> {
        match flow.purpose {
            Purpose::Create => &mut self.creating,
            Purpose::Remove => &mut self.removing,
        }
    }
}
