//! Decides which shards this replica acquires and which it releases.
//!
//! With R live members, each has a quota of N/R shards, rounded down. The first N mod R members get one more; members
//! that already hold the most come first, so that a shard moves only when a replica has too few. All replicas with the
//! same view reach the same decision.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Take this free shard.
    Acquire(u32),
    /// Finish the work on this shard and release it: another replica has too few.
    Leave(u32),
}

pub(super) struct View<'a> {
    pub(super) me: &'a str,
    /// The live replicas, this one included.
    pub(super) members: BTreeSet<String>,
    /// The holder of each shard.
    pub(super) holders: Vec<Option<String>>,
    /// The shards of this replica that it is already leaving.
    pub(super) leaving: BTreeSet<u32>,
}

/// Returns the actions that this replica has to take.
pub(super) fn balance(view: &View<'_>) -> Vec<Action> {
    let mut held: BTreeMap<&str, usize> = view.members.iter().map(|member| (member.as_str(), 0)).collect();
    for holder in view.holders.iter().flatten() {
        // A holder that is not a member is about to leave.
        if let Some(count) = held.get_mut(holder.as_str()) {
            *count += 1;
        }
    }
    let quotas = quotas(&held, view.holders.len());
    let missing =
        |member: &str| quotas.get(member).zip(held.get(member)).map_or(0, |(quota, held)| quota.saturating_sub(*held));

    let before: usize = view.members.iter().take_while(|member| *member != view.me).map(|member| missing(member)).sum();
    let free = shards(view, |holder| holder.is_none()).skip(before).take(missing(view.me));

    let mine = || shards(view, |holder| holder.as_deref() == Some(view.me));
    let quota = quotas.get(view.me).copied().unwrap_or(0);
    let excess = mine().count().saturating_sub(quota).saturating_sub(view.leaving.len());
    let given_up = mine().rev().filter(|shard| !view.leaving.contains(shard)).take(excess);

    free.map(Action::Acquire).chain(given_up.map(Action::Leave)).collect()
}

fn quotas<'a>(held: &BTreeMap<&'a str, usize>, shards: usize) -> BTreeMap<&'a str, usize> {
    let (least, rest) = (shards / held.len().max(1), shards % held.len().max(1));
    let mut ranked: Vec<(&'a str, usize)> = held.iter().map(|(member, held)| (*member, *held)).collect();
    // The sort is stable: members with equally many shards stay ordered by name.
    ranked.sort_by_key(|(_, held)| Reverse(*held));
    ranked.into_iter().enumerate().map(|(rank, (member, _))| (member, least + usize::from(rank < rest))).collect()
}

fn shards(view: &View<'_>, which: impl Fn(&Option<String>) -> bool) -> impl DoubleEndedIterator<Item = u32> {
    let matching = |(shard, holder): (u32, &Option<String>)| which(holder).then_some(shard);
    (0..).zip(&view.holders).filter_map(matching).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests;
