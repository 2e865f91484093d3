//! Outside influences: a second cluster, restored backups, unreadable objects, removal by force, and manual changes in
//! the backend.
//!
//! This module has its own dice, so that the rest of a plan does not depend on it.

use std::time::Duration;

use super::Dice;
use crate::plan::{Copying, Plan, UserAction, When};

/// Adds these influences to some of the plans.
pub(super) fn add_influences(plan: &mut Plan) {
    let dice = &mut Dice(fastrand::Rng::with_seed(plan.seed ^ 0x00c0_1d5e_ed0e));
    // Such plans must not have other faults.
    if plan.unhindered {
        return;
    }
    match dice.number(0, 99) {
        0..=7 => restore(plan, dice),
        8..=13 => another_cluster(plan, dice),
        14..=19 => garble(plan, dice),
        20..=24 => lose(plan, dice),
        25..=29 => by_hand(plan, dice),
        _ => {}
    }
}

/// Volumes are lost, and a backup is restored into the same cluster.
fn restore(plan: &mut Plan, dice: &mut Dice) {
    plan.storm = plan.storm.max(Duration::from_secs(30));
    let seconds = plan.storm.as_secs_f64();
    back_up(plan, dice);
    for _ in 0..dice.number(1, 3) {
        let claim = dice.index(plan.claims.len());
        plan.actions.push((When::At(dice.seconds(seconds * 0.3, seconds * 0.8)), UserAction::ForceDelete(claim)));
    }
    for _ in 0..dice.number(1, 2) {
        let at = When::At(dice.seconds(seconds * 0.5, seconds * 0.95));
        plan.actions.push((
            at,
            if dice.chance(0.4) { UserAction::RestoreJournals } else { UserAction::Restore(copying(dice)) },
        ));
    }
    if dice.chance(0.4) {
        let claim = dice.index(plan.claims.len());
        plan.actions.push((When::At(dice.seconds(seconds * 0.8, seconds)), UserAction::Delete(claim)));
    }
}

/// Another installation of the same provisioner uses the same backend, and receives a backup of this one.
fn another_cluster(plan: &mut Plan, dice: &mut Dice) {
    plan.storm = plan.storm.max(Duration::from_secs(20));
    let seconds = plan.storm.as_secs_f64();
    let mut other = Plan::of_all_kinds(plan.seed ^ 0x00b0_0b5e_ed0e, dice);
    other.storm = plan.storm;
    // Claims that were restored in the other cluster may be deleted there.
    for claim in 0..plan.claims.len() {
        if dice.chance(0.5) {
            other.actions.push((When::At(dice.seconds(seconds * 0.75, seconds)), UserAction::Delete(claim)));
        }
    }
    plan.other = Some(Box::new(other));
    back_up(plan, dice);
    for _ in 0..dice.number(1, 2) {
        let at = When::At(dice.seconds(seconds * 0.4, seconds * 0.85));
        let action = if dice.chance(0.4) {
            UserAction::RestoreJournalsIntoOther
        } else {
            UserAction::RestoreIntoOther(copying(dice))
        };
        plan.actions.push((at, action));
    }
}

/// Makes some objects unreadable for a time.
fn garble(plan: &mut Plan, dice: &mut Dice) {
    let seconds = plan.storm.as_secs_f64();
    for _ in 0..dice.number(1, 4) {
        let claim = dice.index(plan.claims.len());
        let action = if dice.chance(0.6) { UserAction::Garble(claim) } else { UserAction::GarbleVolume(claim) };
        plan.actions.push((some_time(dice, seconds * 0.8), action));
    }
    if dice.chance(0.6) {
        plan.actions.push((When::At(dice.seconds(seconds * 0.5, seconds)), UserAction::Mend));
    }
}

/// Users remove finalizers by force.
fn lose(plan: &mut Plan, dice: &mut Dice) {
    let seconds = plan.storm.as_secs_f64();
    for _ in 0..dice.number(1, 3) {
        let claim = dice.index(plan.claims.len());
        let action = if dice.chance(0.5) { UserAction::ForceDelete(claim) } else { UserAction::Strip(claim) };
        plan.actions.push((some_time(dice, seconds), action));
        // An object without finalizers does not survive its deletion.
        if dice.chance(0.5) {
            let action = dice.pick(&[UserAction::Delete(claim), UserAction::DeleteVolume(claim)]);
            plan.actions.push((some_time(dice, seconds), action));
        }
    }
}

/// An administrator changes the backend directly.
fn by_hand(plan: &mut Plan, dice: &mut Dice) {
    let seconds = plan.storm.as_secs_f64();
    for _ in 0..dice.number(1, 4) {
        let claim = dice.index(plan.claims.len());
        let action =
            dice.pick(&[UserAction::MakeAsset(claim), UserAction::RemoveAsset(claim), UserAction::TakeAsset(claim)]);
        plan.actions.push((some_time(dice, seconds), action));
    }
}

fn back_up(plan: &mut Plan, dice: &mut Dice) {
    let seconds = plan.storm.as_secs_f64();
    for _ in 0..dice.number(1, 3) {
        plan.actions.push((some_time(dice, seconds * 0.6), UserAction::Backup));
    }
}

fn some_time(dice: &mut Dice, seconds: f64) -> When {
    match dice.number(0, 3) {
        0 => When::Step(dice.small(16)),
        1 => When::Write(dice.small(16)),
        _ => When::At(dice.seconds(0.0, seconds)),
    }
}

fn copying(dice: &mut Dice) -> Copying {
    dice.pick(&[Copying::Plain, Copying::Plain, Copying::Unbound, Copying::Velero, Copying::Thorough])
}
