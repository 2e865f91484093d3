//! The topology that volumes must have, and the topology that they have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use driver_rpc::csi::{Topology as Place, TopologyRequirement};

use super::{Invariant, Judge};
use crate::backend::Asset;
use crate::plan::Topology;
use crate::users::{HOSTNAME, ZONE};

/// The labels of a place.
pub(super) type Segments = BTreeMap<String, String>;

#[derive(Default)]
pub(super) struct Places {
    /// By name, the first requirement sent to the driver, until the attempt has ended without a volume or its volume is
    /// deleted.
    required: BTreeMap<String, Option<TopologyRequirement>>,
    /// By asset number, the topology that the driver returned.
    answered: BTreeMap<u64, BTreeSet<Segments>>,
}

impl Judge {
    /// Records that the driver is called for a volume.
    pub(crate) fn require(
        &mut self,
        at: Duration,
        who: &str,
        name: &str,
        claim: &str,
        required: Option<&TopologyRequirement>,
        plan: &Topology,
    ) {
        self.process_changes(at);
        let Some(first) = self.places.required.get(name) else {
            if let Some(problem) = self.unfit(claim, required, plan) {
                let seen = format!("{who} calls the driver for {name} with {required:?}: {problem}");
                self.report_violation(at, Invariant::Placed, seen);
            }
            self.places.required.insert(name.to_owned(), required.cloned());
            return;
        };
        // The asset of a volume that lost its finalizers stays, and its claim receives a new volume.
        let excused = self.was_changed_by_users(name) || self.stripped.contains(name);
        if first.as_ref() != required && !excused {
            let seen = format!("{who} calls the driver for {name} with {required:?}, and at first it was {first:?}");
            self.report_violation(at, Invariant::Again, seen);
        }
    }

    /// Returns the problem with the first requirement of an attempt.
    fn unfit(&self, claim: &str, required: Option<&TopologyRequirement>, plan: &Topology) -> Option<&'static str> {
        // An attempt that is cleaned up may have lost its claim.
        let claim = self.view.claims.get(claim)?;
        let Some(TopologyRequirement { requisite, preferred }) = required else {
            return (!claim.selected.is_empty()).then_some("there is a selected node");
        };
        if claim.selected.is_empty() {
            let class = claim.class.strip_prefix("class-").and_then(|number| number.parse::<usize>().ok());
            let is_free = !plan.immediate && class.is_some_and(|class| plan.allowed[class].is_empty());
            return is_free.then_some("the choice is the driver's");
        }
        if plan.strict && requisite.len() != 1 {
            return Some("there is one selected node");
        }
        let first = &preferred.first()?.segments;
        let is_there = |(node, since): &(String, u64)| self.was_in(node, *since, first);
        (!claim.selected.iter().any(is_there)).then_some("the selected node was never there while it was selected")
    }

    /// Returns true if a node was in a place at any time since a version of the cluster.
    fn was_in(&self, node: &str, since: u64, place: &Segments) -> bool {
        let Some(zones) = self.view.zones.get(node) else { return false };
        let ends = zones.iter().skip(1).map(|(version, _)| *version).chain([u64::MAX]);
        let mut zones = zones.iter().zip(ends).filter(|(_, end)| *end > since).map(|((_, zone), _)| zone);
        zones.any(|zone| {
            place.iter().all(|(key, value)| match key.as_str() {
                ZONE => zone.as_ref() == Some(value),
                HOSTNAME => value == node,
                _ => false,
            })
        })
    }

    /// Records that the attempt has ended, or that the driver reported no leftovers. An existing asset keeps its
    /// requirement, unless it belongs to another owner.
    pub(crate) fn requirement_ends(&mut self, name: &str) {
        if self.assets.get(name).is_none_or(Asset::is_foreign) {
            self.places.required.remove(name);
        }
    }

    /// Records the topology that the driver returned for a volume.
    pub(crate) fn place(&mut self, number: u64, places: &[Place]) {
        let places = places.iter().filter(|place| !place.segments.is_empty()).map(|place| place.segments.clone());
        self.places.answered.insert(number, places.collect());
    }

    /// Accuses the controller if a volume is saved with other places than the driver has returned.
    pub(super) fn check_places(&mut self, at: Duration, name: &str) {
        let Some(volume) = self.view.volumes.get(name) else { return };
        let answered = volume.asset.parse().ok().and_then(|number: u64| self.places.answered.get(&number));
        if answered.is_some_and(|answered| *answered != volume.places) {
            let seen = format!("{name} is saved with {:?}, and the driver has said {answered:?}", volume.places);
            self.report_violation(at, Invariant::Placed, seen);
        }
    }
}
