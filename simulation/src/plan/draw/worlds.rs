//! Outside influences: a second cluster, restored backups, unreadable objects, removal by force, and manual changes in
//! the backend.
//!
//! This module has its own dice, so that the rest of a plan does not depend on it.

use std::time::Duration;

use super::Dice;
use crate::plan::{Copying, Deed, Plan, When};

/// Adds these influences to some of the plans.
pub(super) fn meet(plan: &mut Plan) {
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
        plan.deeds.push((When::At(dice.seconds(seconds * 0.3, seconds * 0.8)), Deed::Lose(claim)));
    }
    for _ in 0..dice.number(1, 2) {
        let at = When::At(dice.seconds(seconds * 0.5, seconds * 0.95));
        plan.deeds.push((at, if dice.chance(0.4) { Deed::RestoreJournals } else { Deed::Restore(copying(dice)) }));
    }
    if dice.chance(0.4) {
        let claim = dice.index(plan.claims.len());
        plan.deeds.push((When::At(dice.seconds(seconds * 0.8, seconds)), Deed::Delete(claim)));
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
            other.deeds.push((When::At(dice.seconds(seconds * 0.75, seconds)), Deed::Delete(claim)));
        }
    }
    plan.other = Some(Box::new(other));
    back_up(plan, dice);
    for _ in 0..dice.number(1, 2) {
        let at = When::At(dice.seconds(seconds * 0.4, seconds * 0.85));
        let deed = if dice.chance(0.4) { Deed::RestoreJournalsThere } else { Deed::RestoreThere(copying(dice)) };
        plan.deeds.push((at, deed));
    }
}

/// Makes some objects unreadable for a time.
fn garble(plan: &mut Plan, dice: &mut Dice) {
    let seconds = plan.storm.as_secs_f64();
    for _ in 0..dice.number(1, 4) {
        let claim = dice.index(plan.claims.len());
        let deed = if dice.chance(0.6) { Deed::Garble(claim) } else { Deed::GarbleVolume(claim) };
        plan.deeds.push((some_time(dice, seconds * 0.8), deed));
    }
    if dice.chance(0.6) {
        plan.deeds.push((When::At(dice.seconds(seconds * 0.5, seconds)), Deed::Mend));
    }
}

/// Users remove finalizers by force.
fn lose(plan: &mut Plan, dice: &mut Dice) {
    let seconds = plan.storm.as_secs_f64();
    for _ in 0..dice.number(1, 3) {
        let claim = dice.index(plan.claims.len());
        let deed = if dice.chance(0.5) { Deed::Lose(claim) } else { Deed::Strip(claim) };
        plan.deeds.push((some_time(dice, seconds), deed));
        // An object without finalizers does not survive its deletion.
        if dice.chance(0.5) {
            let deed = dice.pick(&[Deed::Delete(claim), Deed::DeleteVolume(claim)]);
            plan.deeds.push((some_time(dice, seconds), deed));
        }
    }
}

/// An administrator changes the backend directly.
fn by_hand(plan: &mut Plan, dice: &mut Dice) {
    let seconds = plan.storm.as_secs_f64();
    for _ in 0..dice.number(1, 4) {
        let claim = dice.index(plan.claims.len());
        let deed = dice.pick(&[Deed::MakeAsset(claim), Deed::RemoveAsset(claim), Deed::TakeAsset(claim)]);
        plan.deeds.push((some_time(dice, seconds), deed));
    }
}

fn back_up(plan: &mut Plan, dice: &mut Dice) {
    let seconds = plan.storm.as_secs_f64();
    for _ in 0..dice.number(1, 3) {
        plan.deeds.push((some_time(dice, seconds * 0.6), Deed::Backup));
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
