//! Nodes in zones, and a CSI driver whose volumes are accessible only from some nodes.

use std::time::Duration;

use super::Dice;
use crate::plan::{Plan, Sharing, Topology, UserAction, When};
use crate::users::zone_of;

/// Limits the driver's volumes to some nodes. Nodes, labels and registrations are added, removed and changed.
pub(super) fn limit(plan: &mut Plan) {
    let dice = &mut Dice(fastrand::Rng::with_seed(plan.seed ^ 0x0070_9010_95ed));
    (plan.whole_author, plan.unhindered, plan.other) = (false, false, None);
    // A replica on each node requires a different kind of deployment.
    for life in plan.slots.iter_mut().flatten().filter(|life| life.sharing == Sharing::Nodes) {
        life.sharing = Sharing::Leases(1);
    }
    // The volume of an attempt that ended with its class may be saved late, when the class exists again and the next
    // attempt is in progress. This cannot be prevented.
    if plan.actions.iter().any(|(_, action)| matches!(action, UserAction::DropClass(_) | UserAction::MakeClass(_))) {
        plan.api.late = 0.0;
    }
    for class in &mut plan.classes {
        class.waits = dice.chance(0.7);
    }
    let topology = Topology {
        strict: dice.chance(0.5),
        immediate: dice.chance(0.7),
        // The first node is in zone 0, and no node is ever in zone 9.
        allowed: plan.classes.iter().map(|_| dice.pick(&[vec![], vec![], vec![0], vec![1, 0], vec![9, 0]])).collect(),
        keys: [(); 3].map(|()| dice.pick(&[1, 1, 2])),
    };
    let seconds = plan.storm.as_secs_f64();
    if dice.chance(0.6) {
        plan.actions.push((When::At(dice.seconds(0.0, seconds * 0.5)), UserAction::MakeNode(2)));
    }
    for (node, keys) in topology.keys.into_iter().enumerate() {
        let at = if dice.chance(0.7) { Duration::ZERO } else { dice.seconds(0.0, seconds * 0.5) };
        plan.actions.push((When::At(at), UserAction::Register(node, keys)));
        for _ in 0..dice.pick(&[0, 1, 1, 2, 3]) {
            let begin = dice.seconds(0.0, seconds);
            let when = match dice.number(0, 3) {
                0 => When::Step(dice.small(16)),
                1 => When::Write(dice.small(24)),
                _ => When::At(begin),
            };
            // The change often ends soon.
            let end = begin + if dice.chance(0.5) { dice.seconds(0.0, 1.0) } else { dice.seconds(0.0, seconds) };
            let registered = end + dice.seconds(0.0, 3.0);
            let actions = match dice.number(0, 5) {
                0 | 1 => [Some((when, UserAction::LoseNode(node))), Some((When::At(end), UserAction::MakeNode(node)))],
                2 => [Some((when, UserAction::Unregister(node))), None],
                3 => [
                    Some((when, UserAction::Label(node, None))),
                    Some((When::At(end), UserAction::Label(node, Some(zone_of(node))))),
                ],
                _ => [Some((when, UserAction::Label(node, Some(dice.index(3))))), None],
            };
            plan.actions.extend(actions.into_iter().flatten());
            plan.actions.push((When::At(registered), UserAction::Register(node, dice.pick(&[1, 2, keys]))));
        }
    }
    plan.topology = Some(topology);
}
