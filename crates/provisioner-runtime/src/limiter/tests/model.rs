//! Tests the shares against a naive model of lists that are searched linearly.

use proptest::prelude::*;

use super::*;

const GROUPS: [&str; 3] = ["a", "b", "c"];
/// The first one means no tenant.
const TENANTS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Acquire(usize),
    Release(usize),
    Cancel(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2 * GROUPS.len() * TENANTS).prop_map(Step::Acquire),
        2 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Cancel),
    ]
}

/// Returns purpose, group and tenant.
fn parts(index: usize) -> (bool, usize, usize) {
    (index >= GROUPS.len() * TENANTS, index / TENANTS, index % TENANTS)
}

fn flow(index: usize) -> Flow {
    let (removes, group, tenant) = parts(index);
    let group = GROUPS[group % GROUPS.len()];
    let flow = if removes { Flow::removing(group) } else { Flow::creating(group) };
    if tenant == 0 { flow } else { flow.of_tenant(tenant.to_string()) }
}

struct Model {
    limits: Limits,
    held: Vec<usize>,
    waiting: Vec<(usize, u64)>,
    /// The groups, and the flows, with waiters, in the order of their turns.
    groups: Vec<usize>,
    flows: Vec<usize>,
}

impl Model {
    fn may(&self, index: usize) -> bool {
        let (removes, group, tenant) = parts(index);
        let count =
            |same: &dyn Fn((bool, usize, usize)) -> bool| self.held.iter().filter(|of| same(parts(**of))).count();
        let Limits { total, per_group, one_each } = self.limits;
        let (of_group, of_purpose) = (count(&|of| of.1 == group), count(&|of| of.0 == removes));
        let may = |more: usize| {
            let (own, all) = (of_group + more, of_purpose + more);
            let fair = total == 0 || (all < total && (own == 0 || own < 4 * (total - all - 1)));
            (fair || one_each && own == 0) && (per_group == 0 || own < per_group)
        };
        let room = (0..1000).take_while(|more| may(*more)).count();
        let own = if tenant == 0 { 0 } else { count(&|of| (of.1, of.2) == (group, tenant)) };
        room > 0 && (own == 0 || own < 4 * (room - 1))
    }

    fn wait(&mut self, index: usize, ticket: u64) {
        self.waiting.push((index, ticket));
        self.line_up();
    }

    /// Moves flows that have just begun to wait to the end.
    fn line_up(&mut self) {
        let is_waiting = |flow: &usize| self.waiting.iter().any(|(of, _)| of == flow);
        self.flows.retain(is_waiting);
        let group = |flow: &usize| parts(*flow).1;
        self.groups.retain(|of| self.waiting.iter().any(|(flow, _)| group(flow) == *of));
        for (flow, _) in &self.waiting {
            if !self.flows.contains(flow) {
                self.flows.push(*flow);
            }
            if !self.groups.contains(&group(flow)) {
                self.groups.push(group(flow));
            }
        }
    }

    /// Returns the next flow and its ticket.
    fn admit(&mut self) -> Option<(usize, u64)> {
        let mut groups = self.groups.clone();
        // Creating flows come first; removing flows have their own permits.
        groups.sort_by_key(|group| *group >= GROUPS.len());
        let first = |of: &usize| self.flows.iter().copied().find(|flow| parts(*flow).1 == *of && self.may(*flow));
        let flow = groups.iter().find_map(first)?;
        let at = self.waiting.iter().position(|(of, _)| *of == flow)?;
        let admitted = self.waiting.remove(at);
        self.groups.retain(|group| *group != parts(flow).1);
        self.flows.retain(|of| *of != flow);
        self.line_up();
        self.held.push(flow);
        Some(admitted)
    }
}

proptest! {
    #[test]
    fn shares_match_the_model(
        total in 0..16_usize,
        per_group in 0..8_usize,
        one_each in any::<bool>(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let limits = Limits { total, per_group, one_each };
        let mut real = Shares::new(limits);
        let mut model = Model { limits, held: Vec::new(), waiting: Vec::new(), groups: Vec::new(), flows: Vec::new() };
        for step in steps {
            match step {
                Step::Acquire(index) => {
                    let acquired = real.try_acquire(&flow(index));
                    prop_assert_eq!(acquired, model.may(index));
                    if acquired {
                        model.held.push(index);
                    } else {
                        let ticket = real.wait(&flow(index), index);
                        model.wait(index, ticket);
                    }
                }
                Step::Release(at) if !model.held.is_empty() => {
                    real.release(&flow(model.held.remove(at % model.held.len())));
                }
                Step::Cancel(at) if !model.waiting.is_empty() => {
                    let (index, ticket) = model.waiting.remove(at % model.waiting.len());
                    model.line_up();
                    prop_assert_eq!(real.cancel(&flow(index), ticket), Some(index));
                    prop_assert_eq!(real.cancel(&flow(index), ticket), None);
                }
                Step::Release(_) | Step::Cancel(_) => {}
            }
            while let Some((index, ticket)) = model.admit() {
                prop_assert_eq!(real.admit(), Some((flow(index), index)));
                prop_assert_eq!(real.cancel(&flow(index), ticket), None);
            }
            prop_assert!(real.admit().is_none());
            let of = |part: fn(usize) -> usize| {
                let mut all: Vec<_> = model.held.iter().chain(&model.flows).map(|flow| part(*flow)).collect();
                all.sort_unstable();
                all.dedup();
                all.len()
            };
            let remembered = (of(|flow| parts(flow).1), of(|flow| flow));
            prop_assert_eq!((real.remembered(), real.waiting()), (remembered, model.waiting.len()));
        }
    }
}
