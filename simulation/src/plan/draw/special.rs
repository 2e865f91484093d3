//! Plans for situations that chance creates too rarely.

use std::time::Duration;

use super::Dice;
use crate::plan::{
    Api, Backend, Claim, Class, Edge, Nature, Pace, Plan, ProcessFault, Sharing, Trigger, UserAction, When,
};

/// One class hangs for minutes, without any other fault: claims of other classes must not be affected.
pub(super) fn hang(plan: &mut Plan, dice: &mut Dice) {
    plan.storm = Duration::from_secs(300);
    plan.unhindered = true;
    plan.api = Api {
        storm: false,
        latency: Duration::from_millis(dice.pick(&[0, 5, 50])),
        hangs: 0.0,
        late: 0.0,
        refusals: Vec::new(),
    };
    plan.pace = dice.pick(&[Pace::Prompt, Pace::Usual]);
    plan.backend = Backend { step: Duration::from_millis(dice.pick(&[20, 500])), ..Backend::default() };
    plan.settings.concurrency = dice.pick(&[1, 2, 3]);
    plan.foreigners = false;
    for (index, class) in plan.classes.iter_mut().enumerate() {
        class.hangs = index == 0;
    }
    if plan.classes.len() < 2 {
        plan.classes.push(Class { hangs: false, ..plan.classes[0] });
    }
    plan.claims = (0..dice.number(3, 12))
        .map(|index| {
            let class = if index == 0 { 0 } else { dice.index(plan.classes.len()) };
            Claim { class, nature: Nature::Good, large: false }
        })
        .collect();
    plan.actions =
        (0..plan.claims.len()).map(|claim| (When::At(dice.seconds(0.0, 60.0)), UserAction::Create(claim))).collect();
    for lives in &mut plan.slots {
        lives.truncate(1);
        lives[0].faults.clear();
        lives[0].after = Duration::ZERO;
    }
}

/// A volume is deleted before its claim is bound to it. Its asset is recreated, and the process that does so dies
/// before another process has observed any of this.
pub(super) fn make_again(plan: &mut Plan, dice: &mut Dice) {
    plan.settings.finalizer = true;
    plan.storm = Duration::from_secs(60);
    plan.api.hangs = 0.0;
    plan.pace = Pace::Late;
    plan.backend = Backend { step: Duration::from_millis(dice.pick(&[20, 500])), ..Backend::default() };
    for class in &mut plan.classes {
        (class.waits, class.retains, class.hangs) = (false, false, false);
    }
    plan.claims.truncate(2);
    plan.claims.iter_mut().for_each(|claim| claim.nature = Nature::Good);
    plan.actions = (0..plan.claims.len()).map(|claim| (When::At(Duration::ZERO), UserAction::Create(claim))).collect();
    plan.actions.push((When::Saved(dice.number(1, 2)), UserAction::DeleteSaved));
    if dice.chance(0.3) {
        plan.actions.push((When::At(dice.seconds(5.0, 40.0)), UserAction::Delete(0)));
    }
    let shards = dice.pick(&[1, 1, 2]);
    let mut first = plan.slots[0][0].clone();
    first.sharing = Sharing::Leases(shards);
    first.faults.clear();
    let mut second = first.clone();
    second.lag = dice.seconds(5.0, 60.0);
    let mut again = first.clone();
    first.faults = vec![(Trigger::Edge(Edge::Step, dice.number(8, 32)), ProcessFault::Crash)];
    // In the meantime, the other process must continue the work of the first one.
    again.after = Duration::from_secs(60);
    plan.slots = vec![vec![first, again], vec![second]];
}

/// Claims are bound early and expanded repeatedly.
pub(super) fn grow(plan: &mut Plan, dice: &mut Dice) {
    plan.whole_author = true;
    plan.storm = Duration::from_secs(dice.pick(&[60, 180]));
    plan.pace = dice.pick(&[Pace::Prompt, Pace::Usual]);
    plan.classes.iter_mut().for_each(|class| (class.expands, class.hangs) = (true, false));
    plan.claims.iter_mut().for_each(|claim| claim.nature = Nature::Good);
    let seconds = plan.storm.as_secs_f64();
    plan.actions
        .retain(|(_, action)| !matches!(action, UserAction::Create(_) | UserAction::Delete(_)) && dice.chance(0.3));
    for claim in 0..plan.claims.len() {
        plan.actions.push((When::At(Duration::ZERO), UserAction::Create(claim)));
        for _ in 0..dice.number(1, 5) {
            let when = match dice.number(0, 2) {
                0 => When::Step(4 + dice.small(24)),
                _ => When::At(dice.seconds(seconds * 0.1, seconds)),
            };
            plan.actions.push((when, UserAction::Grow(claim, dice.number(2, 6))));
        }
    }
    if dice.chance(0.3) {
        plan.actions.push((When::At(dice.seconds(seconds * 0.3, seconds)), UserAction::Delete(0)));
    }
}

/// Creates enough claims with enough labels to fill a journal.
pub(super) fn fill_journals(plan: &mut Plan, dice: &mut Dice) {
    plan.claims =
        (0..36).map(|_| Claim { class: dice.index(plan.classes.len()), nature: Nature::Good, large: true }).collect();
    let seconds = plan.storm.as_secs_f64();
    plan.actions = (0..plan.claims.len()).map(|claim| (When::At(Duration::ZERO), UserAction::Create(claim))).collect();
    for claim in 0..plan.claims.len() {
        if dice.chance(0.3) {
            plan.actions.push((When::At(dice.seconds(0.0, seconds)), UserAction::Delete(claim)));
        }
    }
    plan.settings.concurrency = 0;
    plan.backend.step = Duration::from_secs(3);
    plan.backend.breaks = 0.5;
    plan.foreigners = false;
}
