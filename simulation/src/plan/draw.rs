//! Draws plans: small, diverse, and with faults at the dangerous moments.

mod special;
mod topology;
mod worlds;

use std::time::Duration;

use super::{
    Api, Backend, Claim, Class, Edge, Life, Nature, Pace, Plan, ProcessFault, Settings, Sharing, Trigger, UserAction,
    When,
};
use crate::refusals::{Reason, Refusal};

impl Plan {
    /// Draws the plan of a seed. Each kind of fault occurs in some plans and not at all in others: a run with many
    /// faults of one kind finds bugs that a run with a few of each kind does not.
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice(fastrand::Rng::with_seed(seed ^ 0x0005_eed0_f51d));
        let mut plan = Self::of_all_kinds(seed, &mut dice);
        grow(&mut plan);
        lose_nodes(&mut plan);
        match dice.number(0, 99) {
            0..=2 => special::hang(&mut plan, &mut dice),
            3..=9 => special::make_again(&mut plan, &mut dice),
            11..=24 => special::grow(&mut plan, &mut dice),
            10 if dice.chance(0.2) => special::fill_journals(&mut plan, &mut dice),
            _ => {}
        }
        worlds::add_influences(&mut plan);
        // A CSI driver's name belongs to one installation, so no volume of another installation is restored among its
        // own.
        let has_sidecar = plan.has_sidecar_rbac();
        if let Some(other) = plan.other.as_deref_mut().filter(|other| other.has_sidecar_rbac() != has_sidecar) {
            (plan.foreigners, other.foreigners) = (false, false);
        }
        refuse(&mut plan);
        shorten_names(&mut plan);
        plan.sort();
        plan
    }

    /// Draws the plan of a seed for the controller with a CSI driver whose volumes are accessible only from some nodes.
    pub fn draw_with_topology(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        topology::limit(&mut plan);
        plan.sort();
        plan
    }

    fn sort(&mut self) {
        self.actions.sort_by_key(|(when, _)| match when {
            When::At(time) => (0, *time),
            When::Step(count) => (1, Duration::from_secs(u64::from(*count))),
            When::Deletion(count) => (2, Duration::from_secs(u64::from(*count))),
            When::Write(count) => (3, Duration::from_secs(u64::from(*count))),
            When::Saved(count) => (4, Duration::from_secs(u64::from(*count))),
        });
    }

    fn of_all_kinds(seed: u64, dice: &mut Dice) -> Self {
        let storm = dice.seconds(5.0, 30.0);
        let settings = settings(dice);
        let slots = slots(dice, storm);
        // A replica with a node of its own does not provision claims without a node.
        let by_node = slots[0][0].sharing == Sharing::Nodes;
        let hanging = dice.chance(0.1);
        let classes: Vec<Class> = (0..dice.number(1, 2))
            .map(|index| Class {
                waits: dice.chance(0.25) || by_node,
                retains: dice.chance(0.15),
                hangs: hanging && index == 0,
                expands: false,
            })
            .collect();
        let claims = claims(dice, classes.len());
        let actions = actions(dice, storm, &claims, classes.len(), settings.finalizer);
        let (api, pace, backend) = (api(dice), pace(dice), backend(dice));
        let (foreigners, whole_author, unhindered) = (dice.chance(0.1), dice.chance(0.5), false);
        Self {
            seed,
            storm,
            settings,
            api,
            pace,
            backend,
            classes,
            claims,
            foreigners,
            whole_author,
            unhindered,
            actions,
            slots,
            other: None,
            topology: None,
        }
    }
}

/// Adds expansions of claims. It has its own dice, so that the rest of a plan does not depend on it.
fn grow(plan: &mut Plan) {
    let dice = &mut Dice(fastrand::Rng::with_seed(plan.seed ^ 0x0009_0777_51ce));
    if dice.chance(0.3) {
        return;
    }
    plan.classes.iter_mut().for_each(|class| class.expands = dice.chance(0.9));
    let seconds = plan.storm.as_secs_f64();
    for claim in 0..plan.claims.len() {
        for _ in 0..dice.pick(&[0, 1, 1, 2, 3]) {
            let when = match dice.number(0, 3) {
                0 => When::Step(4 + dice.small(24)),
                1 => When::Write(8 + dice.small(40)),
                _ => When::At(dice.seconds(seconds * 0.2, seconds)),
            };
            plan.actions.push((when, UserAction::Grow(claim, dice.number(2, 6))));
        }
    }
}

/// Adds nodes that are deleted, and some that are recreated. It has its own dice, like [`grow`].
fn lose_nodes(plan: &mut Plan) {
    let dice = &mut Dice(fastrand::Rng::with_seed(plan.seed ^ 0x000d_ea11_0de5));
    if !plan.classes.iter().any(|class| class.waits) || dice.chance(0.5) {
        return;
    }
    let seconds = plan.storm.as_secs_f64();
    if plan.slots[0][0].sharing == Sharing::Nodes && dice.chance(0.5) {
        plan.actions.push((When::At(Duration::ZERO), UserAction::MakeNode(2)));
    }
    for node in 0..2 {
        for _ in 0..dice.pick(&[0, 1, 1, 2]) {
            let gone =
                if dice.chance(0.5) { When::Write(4 + dice.small(40)) } else { When::At(dice.seconds(0.0, seconds)) };
            plan.actions.push((gone, UserAction::LoseNode(node)));
            plan.actions.push((When::At(dice.seconds(0.0, seconds)), UserAction::MakeNode(node)));
        }
    }
}

/// Adds requests that are refused for a time, writes that arrive late, and claims replaced with their manifests. It has
/// its own dice, like [`grow`].
fn refuse(plan: &mut Plan) {
    let dice = &mut Dice(fastrand::Rng::with_seed(plan.seed ^ 0x0f0_4b1d));
    // A volume that is saved late exists again after a user has removed it manually, and looks like any other.
    let by_hand = |action: &UserAction| {
        matches!(
            action,
            UserAction::ForceDelete(_)
                | UserAction::DeleteVolume(_)
                | UserAction::DeleteSaved
                | UserAction::Replace(_)
                | UserAction::Block(_)
        )
    };
    let is_by_hand = plan.restores() || plan.actions.iter().any(|(_, action)| by_hand(action));
    if dice.chance(0.15) && !is_by_hand && !plan.unhindered {
        plan.api.late = dice.pick(&[0.02, 0.1, 0.3]);
    }
    // Another node may be selected afterwards, and begins its own attempt.
    let by_node = plan.slots.iter().flatten().any(|life| life.sharing == Sharing::Nodes);
    if dice.chance(0.15) && !by_node {
        let claim = dice.index(plan.claims.len());
        plan.actions.push((When::Write(dice.small(20)), UserAction::ReplaceWithManifest(claim)));
    }
    if plan.unhindered || dice.chance(0.75) {
        return;
    }
    let journals = if plan.has_sidecar_rbac() { "leases" } else { "configmaps" };
    for _ in 0..dice.number(1, 3) {
        let kind = dice.pick(&[
            "persistentvolumes",
            "persistentvolumes",
            "persistentvolumeclaims",
            "leases",
            journals,
            "events",
        ]);
        let is_namespaced = kind != "persistentvolumes";
        let creates = kind != "persistentvolumeclaims" && dice.chance(0.6);
        let reason = Reason::of(dice.number(0, 3), creates && is_namespaced);
        let from = dice.seconds(0.0, plan.storm.as_secs_f64());
        let length = dice.seconds(1.0, plan.storm.as_secs_f64());
        plan.api.refusals.push(Refusal { kind, creates, reason, time: from..from + length });
    }
}

/// Shortens the UID in names, so that some claims share a name. It has its own dice, like [`grow`].
fn shorten_names(plan: &mut Plan) {
    let dice = &mut Dice(fastrand::Rng::with_seed(plan.seed ^ 0x005a_ed0f_4a3e));
    // Each of these has its own rules for actions on a name, regardless of the claim.
    let by_force = |action: &UserAction| {
        matches!(
            action,
            UserAction::Backup
                | UserAction::ForceDelete(_)
                | UserAction::Strip(_)
                | UserAction::MakeAsset(_)
                | UserAction::RemoveAsset(_)
                | UserAction::TakeAsset(_)
        )
    };
    let by_node = plan.slots.iter().flatten().any(|life| life.sharing == Sharing::Nodes);
    if by_node || plan.unhindered || plan.actions.iter().any(|(_, action)| by_force(action)) || dice.chance(0.85) {
        return;
    }
    plan.settings.uid_length = Some(dice.pick(&[1, 1, 1, 2]));
    // There are sixteen names with one character.
    let (known, seconds) = (plan.claims.len(), plan.storm.as_secs_f64());
    for claim in known..(known + 6).min(known.max(10)) {
        plan.claims.push(Claim { large: false, ..plan.claims[claim % known] });
        let created = dice.seconds(0.0, seconds * 0.6);
        plan.actions.push((When::At(created), UserAction::Create(claim)));
        for _ in 0..dice.pick(&[0, 1, 1, 2]) {
            let deleted = match dice.number(0, 3) {
                0 => When::Step(dice.small(40)),
                1 => When::Write(dice.small(60)),
                _ => When::At(dice.seconds(created.as_secs_f64(), seconds)),
            };
            plan.actions.push((deleted, UserAction::Delete(claim)));
            if dice.chance(0.5) {
                plan.actions.push((When::At(dice.seconds(seconds * 0.5, seconds)), UserAction::Create(claim)));
            }
        }
    }
}

fn settings(dice: &mut Dice) -> Settings {
    Settings {
        call_limit: Duration::from_secs(dice.pick(&[5, 20])),
        retry: dice.pick(&[
            (Duration::from_secs(1), Duration::from_secs(10)),
            (Duration::from_millis(200), Duration::from_secs(5)),
        ]),
        finalizer: dice.chance(0.85),
        concurrency: dice.pick(&[0, 0, 0, 1, 2]),
        class_concurrency: dice.pick(&[0, 0, 1]),
        workers: dice.pick(&[1, 4, 16]),
        resync: Duration::from_secs(dice.pick(&[900, 900, 30])),
        lease: dice.lease(),
        grace: Duration::from_secs(dice.pick(&[1, 20])),
        uid_length: None,
    }
}

fn claims(dice: &mut Dice, classes: usize) -> Vec<Claim> {
    let odd = dice.chance(0.3);
    let claim = |dice: &mut Dice| Claim {
        class: dice.index(classes),
        nature: match dice.number(0, 5) {
            0 if odd => Nature::Invalid,
            1 if odd => Nature::Ignored,
            2 if odd => Nature::Fickle,
            _ => Nature::Good,
        },
        large: false,
    };
    (0..dice.pick(&[1, 2, 2, 3, 3, 4, 5])).map(|_| claim(dice)).collect()
}

fn actions(
    dice: &mut Dice,
    storm: Duration,
    claims: &[Claim],
    classes: usize,
    finalizer: bool,
) -> Vec<(When, UserAction)> {
    let mut actions = Vec::new();
    let seconds = storm.as_secs_f64();
    let together = dice.chance(0.3);
    let deletes = dice.pick(&[0.0, 0.4, 0.9]);
    for claim in 0..claims.len() {
        let created = if together { Duration::ZERO } else { dice.seconds(0.0, seconds * 0.5) };
        actions.push((When::At(created), UserAction::Create(claim)));
        if dice.chance(deletes) {
            // Often during provisioning.
            let when = match dice.number(0, 3) {
                0 => When::Step(dice.small(12)),
                1 => When::Write(dice.small(12)),
                2 => When::At(created + dice.seconds(0.0, 3.0)),
                _ => When::At(created + dice.seconds(0.0, seconds * 0.7)),
            };
            actions.push((when, UserAction::Delete(claim)));
            if dice.chance(0.2) {
                actions.push((When::At(dice.seconds(seconds * 0.5, seconds)), UserAction::Create(claim)));
            }
        }
    }
    let mut some = |chance: f64, most: u32, action: &mut dyn FnMut(&mut Dice) -> UserAction| {
        if dice.chance(chance) {
            for _ in 0..dice.number(1, most) {
                let when = match dice.number(0, 3) {
                    0 => When::Step(dice.small(16)),
                    1 => When::Write(dice.small(16)),
                    _ => When::At(dice.seconds(0.0, seconds)),
                };
                let action = action(dice);
                actions.push((when, action));
            }
        }
    };
    let count = claims.len();
    if finalizer {
        some(0.15, 2, &mut |dice| UserAction::DeleteVolume(dice.index(count)));
    }
    some(0.15, 2, &mut |dice| UserAction::HoldClaim(dice.index(count)));
    some(0.15, 2, &mut |dice| UserAction::HoldVolume(dice.index(count)));
    some(0.3, 4, &mut |dice| UserAction::Touch(dice.index(count)));
    some(0.2, 3, &mut |dice| UserAction::Retain(dice.index(count), dice.chance(0.5)));
    some(0.1, 1, &mut |dice| UserAction::Block(dice.index(count)));
    some(0.15, 2, &mut |dice| UserAction::DropClass(dice.index(classes)));
    some(0.2, 2, &mut |dice| UserAction::MakeClass(dice.index(classes)));
    some(0.15, 2, &mut |_| UserAction::TouchJournal);
    some(0.1, 1, &mut |_| UserAction::CorruptJournal);
    some(0.04, 1, &mut |_| UserAction::DropJournal);
    some(0.15, 2, &mut |_| UserAction::Compact);
    // Without a finalizer, only careful checks keep the volume that now has the name from being deleted.
    if dice.chance(if finalizer { 0.08 } else { 0.6 }) {
        let claim = dice.index(count);
        actions.push((When::Deletion(dice.number(1, 2)), UserAction::Replace(claim)));
    }
    actions
}

fn slots(dice: &mut Dice, storm: Duration) -> Vec<Vec<Life>> {
    let crashes = dice.pick(&[0.0, 0.5, 0.9, 1.0]);
    let freezes = dice.pick(&[0.0, 0.0, 0.5, 0.9]);
    let skewed = dice.chance(0.3);
    let (count, sharing) = match dice.number(0, 19) {
        0 | 1 => (1, Sharing::Alone),
        2 | 3 => (2, Sharing::Nodes),
        4..=6 => (dice.pick(&[1, 2, 3]), Sharing::Leases(dice.number(2, 3))),
        _ => (dice.pick(&[1, 1, 2, 2, 2, 3]), Sharing::Leases(1)),
    };
    // Options may change between two processes; a replica that does not share work must be the only one.
    let changing = matches!(sharing, Sharing::Leases(_) | Sharing::Alone) && dice.chance(0.15);
    let mut lives = |slot: usize| -> Vec<Life> {
        let number = if crashes > 0.0 { dice.number(1, 5) } else { dice.pick(&[1, 2]) };
        let life = |dice: &mut Dice, index: u32| {
            let after = match (slot, index) {
                (0, 0) => Duration::ZERO,
                (_, 0) => dice.seconds(0.0, storm.as_secs_f64() * 0.3),
                _ if dice.chance(0.6) => dice.seconds(0.0, 0.5),
                _ => dice.seconds(0.0, 8.0),
            };
            let mut faults = Vec::new();
            if index + 1 < number {
                let fault = if dice.chance(crashes) { ProcessFault::Crash } else { ProcessFault::Stop };
                faults.push((trigger(dice, storm), fault));
                if dice.chance(0.5) {
                    // This applies if the edge is never reached.
                    faults.push((Trigger::At(dice.seconds(0.0, storm.as_secs_f64())), fault));
                }
            }
            while dice.chance(freezes) && faults.len() < 3 {
                let length = match dice.number(0, 2) {
                    0 => dice.seconds(0.0, 2.0),
                    1 => dice.seconds(1.0, 20.0),
                    _ => dice.seconds(10.0, 60.0),
                };
                faults.push((trigger(dice, storm), ProcessFault::Freeze(length)));
            }
            let skew = if skewed { dice.pick(&[0, -4, 7, -3600, 86_400]) } else { 0 };
            let sharing = match changing {
                true if count == 1 && dice.chance(0.3) => Sharing::Alone,
                true => Sharing::Leases(dice.number(1, 3)),
                false => sharing,
            };
            Life { after, skew, sharing, lag: Duration::ZERO, faults }
        };
        (0..number).map(|index| life(dice, index)).collect()
    };
    (0..count).map(&mut lives).collect()
}

fn trigger(dice: &mut Dice, storm: Duration) -> Trigger {
    match dice.number(0, 9) {
        0..=3 => Trigger::Edge(Edge::Step, dice.small(12)),
        4 | 5 => Trigger::Edge(Edge::Journal, dice.small(8)),
        6 => Trigger::Edge(Edge::Write, dice.small(8)),
        7 => Trigger::Edge(Edge::Answer, dice.small(60)),
        8 => Trigger::Edge(Edge::Request, dice.small(60)),
        _ => Trigger::At(dice.seconds(0.0, storm.as_secs_f64() * 0.7)),
    }
}

fn api(dice: &mut Dice) -> Api {
    Api {
        storm: dice.chance(0.4),
        latency: Duration::from_millis(dice.pick(&[0, 5, 50, 500])),
        hangs: if dice.chance(0.12) { 0.01 } else { 0.0 },
        late: 0.0,
        refusals: Vec::new(),
    }
}

fn pace(dice: &mut Dice) -> Pace {
    dice.pick(&[Pace::Prompt, Pace::Usual, Pace::Drawn])
}

fn backend(dice: &mut Dice) -> Backend {
    let mut some = |chance: f64, most: f64| if dice.chance(chance) { dice.0.f64() * most } else { 0.0 };
    let (slow, fails, reschedules) = (some(0.3, 0.2), some(0.4, 0.2), some(0.15, 0.2));
    let (leaves, breaks, background) = (some(0.3, 0.2), some(0.3, 0.3), some(0.3, 0.3));
    let (panics, overruns) = (some(0.25, 0.15), some(0.25, 0.15));
    let (parse_panics, start_fails) = (some(0.05, 0.5), some(0.1, 0.7));
    let step = Duration::from_millis(dice.pick(&[0, 20, 500, 3000]));
    Backend { step, slow, fails, breaks, reschedules, leaves, background, panics, parse_panics, start_fails, overruns }
}

struct Dice(fastrand::Rng);

impl Dice {
    fn lease(&mut self) -> (Duration, Duration, Duration) {
        let (duration, deadline, period) = self.pick(&[(15, 10, 4), (6, 4, 2), (3, 2, 1)]);
        (Duration::from_secs(duration), Duration::from_secs(deadline), Duration::from_secs(period))
    }

    fn chance(&mut self, chance: f64) -> bool {
        self.0.f64() < chance
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())].clone()
    }

    fn index(&mut self, below: usize) -> usize {
        self.0.usize(..below)
    }

    fn number(&mut self, from: u32, to: u32) -> u32 {
        self.0.u32(from..=to)
    }

    /// Draws a number from 1, small numbers more often than large ones.
    fn small(&mut self, most: u32) -> u32 {
        1 + (f64::from(most) * self.0.f64().powi(2)) as u32
    }

    fn seconds(&mut self, from: f64, to: f64) -> Duration {
        // Durations are rounded to milliseconds, so that plans are readable.
        Duration::from_millis(((from + (to - from) * self.0.f64()) * 1000.0) as u64)
    }
}
