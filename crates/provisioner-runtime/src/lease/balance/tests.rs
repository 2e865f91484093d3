use proptest::prelude::*;

use super::*;

/// A fleet in which each replica sees the actual state, and replicas act in any order.
#[derive(Clone, Debug)]
struct Fleet {
    members: BTreeSet<String>,
    holders: Vec<Option<String>>,
}

impl Fleet {
    fn view<'a>(&self, me: &'a str) -> View<'a> {
        View { me, members: self.members.clone(), holders: self.holders.clone(), leaving: BTreeSet::new() }
    }

    /// Lets one replica act; returns the number of shards it released.
    fn act(&mut self, me: &str) -> usize {
        let actions = balance(&self.view(me));
        for action in &actions {
            match action {
                Action::Acquire(shard) => {
                    assert_eq!(self.holders[*shard as usize], None);
                    self.holders[*shard as usize] = Some(me.to_owned());
                }
                Action::Leave(shard) => {
                    assert_eq!(self.holders[*shard as usize].as_deref(), Some(me));
                    self.holders[*shard as usize] = None;
                }
            }
        }
        actions.iter().filter(|action| matches!(action, Action::Leave(_))).count()
    }

    fn count(&self, member: &str) -> usize {
        self.holders.iter().flatten().filter(|holder| *holder == member).count()
    }

    fn is_even(&self) -> bool {
        let (shards, members) = (self.holders.len(), self.members.len());
        let fair = |count: usize| count == shards / members || count == shards.div_ceil(members);
        self.holders.iter().all(Option::is_some) && self.members.iter().all(|member| fair(self.count(member)))
    }

    /// Returns the minimum number of shards that must move.
    fn surplus(&self) -> usize {
        let (least, rest) = (self.holders.len() / self.members.len(), self.holders.len() % self.members.len());
        let mut counts: Vec<usize> = self.members.iter().map(|member| self.count(member)).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.iter().enumerate().map(|(rank, count)| count.saturating_sub(least + usize::from(rank < rest))).sum()
    }
}

fn name(index: usize) -> String {
    format!("replica-{index}")
}

fn fleets() -> impl Strategy<Value = Fleet> {
    (1_usize..17, 1_usize..6).prop_flat_map(|(shards, members)| {
        let holders = prop::collection::vec(prop::option::of((0..members).prop_map(name)), shards);
        holders.prop_map(move |holders| Fleet { members: (0..members).map(name).collect(), holders })
    })
}

proptest! {
    #[test]
    fn balances_evenly_with_the_fewest_moves(
        mut fleet in fleets(),
        order in prop::collection::vec(0_usize..5, 0..20),
    ) {
        let needed = fleet.surplus();
        let mut released = 0;
        for index in order.into_iter().chain((0..3).flat_map(|_| 0..5)) {
            if fleet.members.contains(&name(index)) {
                released += fleet.act(&name(index));
            }
        }
        prop_assert!(fleet.is_even(), "{fleet:?}");
        prop_assert!(released <= needed, "{released} instead of {needed}");
        // The balance is then stable.
        for index in 0..5 {
            let me = name(index);
            if fleet.members.contains(&me) {
                prop_assert_eq!(balance(&fleet.view(&me)), []);
            }
        }
    }

    #[test]
    fn replicas_never_acquire_the_same_shard(fleet in fleets()) {
        let mut wanted = BTreeSet::new();
        for member in &fleet.members {
            for action in balance(&fleet.view(member)) {
                if let Action::Acquire(shard) = action {
                    prop_assert!(wanted.insert(shard));
                    prop_assert_eq!(&fleet.holders[shard as usize], &None);
                }
            }
        }
        let free = fleet.holders.iter().filter(|holder| holder.is_none()).count();
        prop_assert_eq!(wanted.len(), free, "all free shards are wanted");
    }

    #[test]
    fn does_not_leave_a_shard_twice(fleet in fleets()) {
        for member in &fleet.members {
            let mut view = fleet.view(member);
            let left = balance(&view).into_iter().filter_map(|action| match action {
                Action::Leave(shard) => Some(shard),
                Action::Acquire(_) => None,
            });
            view.leaving = left.collect();
            prop_assert!(balance(&view).iter().all(|action| matches!(action, Action::Acquire(_))));
        }
    }
}

#[test]
fn replica_with_too_many_shards_leaves_one_for_a_newcomer() {
    let holders = ["a", "a", "b", "b", "a"].map(|holder| Some(holder.to_owned())).to_vec();
    let members: BTreeSet<String> = ["a", "b", "c"].map(str::to_owned).into();
    let view = |me| View { me, members: members.clone(), holders: holders.clone(), leaving: BTreeSet::new() };
    assert_eq!(balance(&view("a")), [Action::Leave(4)]);
    assert_eq!(balance(&view("b")), []);
    assert_eq!(balance(&view("c")), []);
}

#[test]
fn shards_of_a_leaving_replica_are_not_acquired() {
    let holders = ["gone", "gone", "b", "b"].map(|holder| Some(holder.to_owned())).to_vec();
    let members: BTreeSet<String> = ["b".to_owned()].into();
    let view = View { me: "b", members, holders, leaving: BTreeSet::new() };
    assert_eq!(balance(&view), []);
}
