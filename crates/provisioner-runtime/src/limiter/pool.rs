//! The permits of one purpose: groups share them, and tenants share their group's part.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::round_robin::{Member, Place, RoundRobin};
use super::{Flow, Limits, Purpose, fair_share};

#[derive(Debug)]
pub(super) struct Pool<W> {
    purpose: Purpose,
    limits: Limits,
    groups: RoundRobin<Arc<str>, Group<W>>,
    next_sequence: u64,
}

impl<W> Pool<W> {
    pub(super) fn new(purpose: Purpose, limits: Limits) -> Self {
        Self { purpose, limits, groups: RoundRobin::new(), next_sequence: 0 }
    }

    pub(super) fn try_acquire(&mut self, flow: &Flow) -> bool {
        let group = self.groups.get(&flow.group);
        let tenant = group.and_then(|group| group.tenants.get(&flow.tenant));
        let held = (group.map_or(0, Group::held), tenant.map_or(0, |tenant| tenant.counted(&flow.tenant)));
        let may = may_take(held.1, room(self.limits, self.groups.held(), held.0));
        if may {
            self.update(flow, |tenant| tenant.held += 1);
        }
        may
    }

    pub(super) fn release(&mut self, flow: &Flow) {
        self.update(flow, |tenant| tenant.held = tenant.held.saturating_sub(1));
    }

    pub(super) fn wait(&mut self, flow: &Flow, waiter: W) -> u64 {
        let ticket = self.sequence();
        self.groups.update(&flow.group, |group| {
            if group.waiting() == 0 {
                group.sequence = ticket;
            }
            group.tenants.update(&flow.tenant, |tenant| {
                if tenant.waiting() == 0 {
                    tenant.sequence = ticket;
                }
                tenant.waiters.insert(ticket, waiter);
            });
        });
        ticket
    }

    pub(super) fn cancel(&mut self, flow: &Flow, ticket: u64) -> Option<W> {
        self.update(flow, |tenant| tenant.waiters.remove(&ticket))
    }

    pub(super) fn admit(&mut self) -> Option<(Flow, W)> {
        let (limits, held) = (self.limits, self.groups.held());
        let group = self.groups.next(|place| may_take(place.least, room(limits, held, place.held)))?;
        let sequence = self.sequence();
        let (tenant, waiter) = self.groups.update(&group, |members| {
            members.sequence = sequence;
            let room = room(limits, held, members.held());
            let tenant = members.tenants.next(|place| may_take(place.least, room))?;
            let waiter = members.tenants.update(&tenant, |tenant| {
                (tenant.held, tenant.sequence) = (tenant.held + 1, sequence);
                tenant.waiters.pop_first()
            });
            Some((tenant, waiter?.1))
        })?;
        Some((Flow { purpose: self.purpose, group, tenant }, waiter))
    }

    pub(super) fn waiting(&self) -> usize {
        self.groups.waiting()
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.groups.len(), self.groups.all().map(|group| group.tenants.len()).sum())
    }

    fn update<T>(&mut self, flow: &Flow, change: impl FnOnce(&mut Tenant<W>) -> T) -> T {
        self.groups.update(&flow.group, |group| group.tenants.update(&flow.tenant, change))
    }

    fn sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }
}

/// Returns how many permits a group that holds `held` may still take while all groups hold `all`: the largest number
/// for which [`fair_share`] holds, within the limit of a group.
fn room(limits: Limits, all: usize, held: usize) -> usize {
    let Limits { total, per_group, one_each } = limits;
    let share = match total.saturating_sub(all) {
        _ if total == 0 => usize::MAX,
        free => {
            let first = held == 0 && (free > 0 || one_each);
            (free.saturating_mul(4).saturating_sub(held) / 5).max(usize::from(first))
        }
    };
    if per_group == 0 { share } else { share.min(per_group.saturating_sub(held)) }
}

/// Returns true if a tenant that holds `held` permits may take one of the `room` permits left for its group.
fn may_take(held: usize, room: usize) -> bool {
    fair_share(held, 1, room)
}

#[derive(Debug)]
struct Group<W> {
    sequence: u64,
    tenants: RoundRobin<Option<Arc<str>>, Tenant<W>>,
}

impl<W> Default for Group<W> {
    fn default() -> Self {
        Self { sequence: 0, tenants: RoundRobin::new() }
    }
}

impl<W> Member<Arc<str>> for Group<W> {
    fn held(&self) -> usize {
        self.tenants.held()
    }

    fn waiting(&self) -> usize {
        self.tenants.waiting()
    }

    fn place(&self, _: &Arc<str>) -> Place {
        Place { held: self.held(), least: self.tenants.least(), sequence: self.sequence }
    }
}

#[derive(Debug)]
struct Tenant<W> {
    held: usize,
    sequence: u64,
    waiters: BTreeMap<u64, W>,
}

impl<W> Tenant<W> {
    /// Returns the number of permits that count against a request for one more. Permits without a tenant do not count.
    fn counted(&self, name: &Option<Arc<str>>) -> usize {
        if name.is_some() { self.held } else { 0 }
    }
}

impl<W> Default for Tenant<W> {
    fn default() -> Self {
        Self { held: 0, sequence: 0, waiters: BTreeMap::new() }
    }
}

impl<W> Member<Option<Arc<str>>> for Tenant<W> {
    fn held(&self) -> usize {
        self.held
    }

    fn waiting(&self) -> usize {
        self.waiters.len()
    }

    fn place(&self, name: &Option<Arc<str>>) -> Place {
        let held = self.counted(name);
        Place { held, least: held, sequence: self.sequence }
    }
}
