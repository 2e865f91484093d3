//! Topology requirements for CreateVolume, and the node affinity from the driver's answer.
//!
//! A requirement has the same content and order as external-provisioner v6.4.0's:
//! <https://github.com/kubernetes-csi/external-provisioner/blob/v6.4.0/pkg/controller/topology.go>.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use driver_rpc::csi::{Topology, TopologyRequirement};
use kube_provisioner::ProvisionRequest;
use kube_provisioner::k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, TopologySelectorLabelRequirement, TopologySelectorTerm,
};
use thiserror::Error;

use crate::parameters::Texts;
use crate::request::Settings;

/// The labels of a place, sorted by key.
pub(crate) type Segment = Vec<(String, String)>;
type Segments = BTreeMap<String, String>;

/// Maximum number of combinations of allowed values. A request with more combinations would exceed gRPC's limit.
const MAX_COMBINATIONS: usize = 10_000;
/// Maximum size in bytes of a list of places that is recorded whole.
const WHOLE: usize = 10_000;
/// Maximum size in bytes of each part of a longer list.
const PART: usize = 2_000;

/// Some labels of a node, in a compact form: a cluster may have thousands of nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels(Arc<str>);

impl Labels {
    pub(crate) fn new<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        // Keys and values cannot contain these separators.
        Self(labels.into_iter().map(|(key, value)| format!("{key}={value}\n")).collect::<String>().into())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns the values of these keys, or the first key without a label.
    pub(crate) fn segment(&self, keys: &[String]) -> Result<Segment, String> {
        let pair = |key: &String| self.get(key).map(|value| (key.clone(), value.to_owned())).ok_or_else(|| key.clone());
        let mut term = keys.iter().map(pair).collect::<Result<Segment, _>>()?;
        term.sort();
        Ok(term)
    }
}

/// A node on which the driver has registered topology keys.
#[derive(Clone, Copy)]
pub(crate) struct RegisteredNode<'a> {
    pub(crate) keys: &'a [String],
    pub(crate) labels: &'a Labels,
}

/// The inputs of a requirement, in addition to the nodes.
pub(crate) struct RequirementInputs<'a> {
    pub(crate) claim: &'a str,
    pub(crate) allowed: &'a [TopologySelectorTerm],
    /// The place of the selected node.
    pub(crate) selected: Option<Segment>,
    pub(crate) strict: bool,
    pub(crate) immediate: bool,
    /// True if `allowed` filters the places of the nodes, false if `allowed` itself is sent.
    pub(crate) filters: bool,
    /// Selects the part of a list that is too long. It differs between attempts: if these places are full, a later
    /// attempt tries others.
    pub(crate) turn: usize,
}

/// The places where a volume may be, in order of preference.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    places: Vec<Segments>,
    /// Index of the preferred place. The order of preference continues to the end, and then from the beginning.
    pub(crate) first: usize,
}

/// Reasons why there is no requirement.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum NoRequirement {
    #[error("no node has the labels of the topology keys that the CSI driver registers on nodes")]
    NoPlaces,
    #[error("the selected node has the topology {0}, which the allowedTopologies of the class exclude")]
    NotAllowed(String),
    #[error(
        "the allowedTopologies of the class have {0} combinations of values, more than {MAX_COMBINATIONS}; use fewer labels or values"
    )]
    TooMany(usize),
}

impl<'a> RequirementInputs<'a> {
    /// Returns the inputs of a claim whose selected node has this place.
    pub(crate) fn of(request: &'a ProvisionRequest<Texts>, settings: &Settings, selected: Option<Segment>) -> Self {
        Self {
            claim: request.claim.metadata.name.as_deref().unwrap_or_default(),
            allowed: request.allowed_topologies(),
            selected,
            strict: settings.strict_topology,
            immediate: settings.immediate_topology,
            filters: settings.filter_allowed_topologies,
            turn: fnv1(&request.idempotency_token) as usize,
        }
    }

    /// Returns true if the requirement depends on all nodes.
    pub(crate) fn needs_nodes(&self) -> bool {
        (self.allowed.is_empty() || self.filters) && if self.selected.is_some() { !self.strict } else { self.immediate }
    }

    /// Returns the requirement for the volume. `None` leaves the choice to the driver.
    pub(crate) fn requirement(&self, nodes: &[RegisteredNode<'_>]) -> Result<Option<Requirement>, NoRequirement> {
        let mut places = match &self.selected {
            Some(selected) if self.strict => {
                if !self.allowed.is_empty() {
                    self.first_with(&combinations(self.allowed)?, selected)?;
                }
                vec![selected.clone()]
            }
            _ if !self.allowed.is_empty() && !self.filters => combinations(self.allowed)?,
            Some(selected) => {
                let keys: Vec<String> = selected.iter().map(|(key, _)| key.clone()).collect();
                // The watch may lag behind the objects of the selected node.
                [places_of(&keys, nodes), vec![selected.clone()]].concat()
            }
            None if self.immediate => {
                let sets: BTreeSet<Vec<&String>> = nodes.iter().map(|node| sorted(node.keys)).collect();
                sets.into_iter()
                    .flat_map(|keys| places_of(&keys.into_iter().cloned().collect::<Vec<_>>(), nodes))
                    .collect()
            }
            None => return Ok(None),
        };
        if self.filters {
            places.retain(|place| self.allows(place));
        }
        if places.is_empty() {
            if let Some(selected) = self.selected.as_ref().filter(|_| self.filters) {
                return Err(NoRequirement::NotAllowed(described(selected)));
            }
            return if self.allowed.is_empty() || self.filters { Err(NoRequirement::NoPlaces) } else { Ok(None) };
        }
        places.sort_by(|one, other| one.len().cmp(&other.len()).then_with(|| one.cmp(other)));
        places.dedup();
        let first = match &self.selected {
            Some(_) if self.strict => 0,
            Some(selected) => self.first_with(&places, selected)?,
            // This spreads the claims of a StatefulSet over the places.
            None => spread(self.claim) as usize % places.len(),
        };
        let places = places.into_iter().map(Segments::from_iter).collect();
        let turn = if self.selected.is_none() { self.turn } else { 0 };
        Ok(Some(Requirement { places, first }.bounded(turn)))
    }

    /// Returns true if the class's `allowedTopologies` match a place.
    fn allows(&self, place: &Segment) -> bool {
        allows(self.allowed, |requirement| {
            place.iter().any(|(key, value)| *key == requirement.key && requirement.values.contains(value))
        })
    }

    fn first_with(&self, places: &[Segment], selected: &Segment) -> Result<usize, NoRequirement> {
        let place = places.iter().position(|place| is_within(place, selected));
        place.ok_or_else(|| NoRequirement::NotAllowed(described(selected)))
    }
}

impl Requirement {
    /// Shortens a list that is too long for the record of an attempt to one part: `turn` parts after the part with the
    /// first place. The boundaries of the parts are fixed, so many records can share the same part.
    fn bounded(mut self, turn: usize) -> Self {
        let size = |place: &Segments| place.iter().map(|(key, value)| key.len() + value.len() + 6).sum::<usize>() + 3;
        if self.places.iter().map(size).sum::<usize>() <= WHOLE {
            return self;
        }
        let (mut starts, mut start, mut bytes) = (vec![0], 0, 0);
        for (at, place) in self.places.iter().enumerate() {
            bytes += size(place);
            if bytes > PART && at > start {
                (start, bytes) = (at, size(place));
                starts.push(start);
            }
        }
        let own = starts.partition_point(|start| *start <= self.first) - 1;
        let chosen = (own + turn) % starts.len();
        let (start, end) = (starts[chosen], starts.get(chosen + 1).copied().unwrap_or(self.places.len()));
        let first = (self.first - starts[own]) % (end - start);
        Self { places: self.places.drain(start..end).collect(), first }
    }

    /// Serializes the places as one line of text.
    pub(crate) fn places(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.places)
    }

    /// Parses the text returned by [`places`](Self::places).
    pub(crate) fn read(places: &str, first: usize) -> serde_json::Result<Self> {
        Ok(Self { places: serde_json::from_str(places)?, first })
    }

    /// Converts the requirement for a request to the driver.
    pub(crate) fn into_request(self) -> TopologyRequirement {
        let requisite: Vec<_> = self.places.into_iter().map(|segments| Topology { segments }).collect();
        let mut preferred = requisite.clone();
        preferred.rotate_left(self.first.min(requisite.len()));
        TopologyRequirement { requisite, preferred }
    }
}

/// Returns the places of all nodes on which the driver has registered these keys.
fn places_of(keys: &[String], nodes: &[RegisteredNode<'_>]) -> Vec<Segment> {
    let nodes = nodes.iter().filter(|node| keys.iter().all(|key| node.keys.contains(key)));
    nodes.filter_map(|node| node.labels.segment(keys).ok()).collect()
}

fn sorted(keys: &[String]) -> Vec<&String> {
    let mut keys: Vec<_> = keys.iter().collect();
    keys.sort();
    keys
}

/// Returns true if `holds` is true for each requirement of one of these terms, or if there are no terms.
pub(crate) fn allows(
    allowed: &[TopologySelectorTerm],
    holds: impl Fn(&TopologySelectorLabelRequirement) -> bool,
) -> bool {
    allowed.is_empty() || allowed.iter().any(|term| term.match_label_expressions.iter().flatten().all(&holds))
}

/// Formats a segment as text, such as `rack=7,zone=a`.
pub(crate) fn described(segment: &Segment) -> String {
    segment.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Returns all combinations of the values of each term.
fn combinations(allowed: &[TopologySelectorTerm]) -> Result<Vec<Segment>, NoRequirement> {
    let mut all = Vec::new();
    for term in allowed {
        let mut places: Vec<Segment> = Vec::new();
        for TopologySelectorLabelRequirement { key, values } in term.match_label_expressions.iter().flatten() {
            let count = places.len().max(1).saturating_mul(values.len());
            if count > MAX_COMBINATIONS {
                return Err(NoRequirement::TooMany(count));
            }
            let before = if places.is_empty() { vec![Segment::new()] } else { places };
            let with = |value: &String, place: &Segment| [&**place, &[(key.clone(), value.clone())]].concat();
            places = values.iter().flat_map(|value| before.iter().map(move |place| with(value, place))).collect();
        }
        all.extend(places);
    }
    all.iter_mut().for_each(|place| place.sort());
    Ok(all)
}

/// Returns true if `other` has all labels of `place`.
pub(crate) fn is_within(place: &Segment, other: &Segment) -> bool {
    place.iter().all(|pair| other.contains(pair))
}

/// Returns a number that differs by one between neighbours in a StatefulSet, whose claims are named CLAIM-SET-NUMBER.
fn spread(claim: &str) -> u32 {
    let numbered = claim.rsplit_once('-').and_then(|(name, number)| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        Some((name, number.parse::<u32>().ok().filter(|_| is_number)?))
    });
    let Some((name, number)) = numbered else { return fnv1(claim) };
    let set = name.rsplit_once('-').map_or(name, |(_, set)| set);
    fnv1(set).wrapping_add(number)
}

/// FNV-1 with 32 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn fnv1(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte))
}

/// Converts the driver's answer to a node affinity. `None` means every node: a term without segments matches all nodes.
pub(crate) fn affinity(accessible: &[Topology]) -> Option<NodeSelector> {
    let term = |place: &Topology| {
        let requirement = |(key, value): (&String, &String)| NodeSelectorRequirement {
            key: key.clone(),
            operator: "In".to_owned(),
            values: Some(vec![value.clone()]),
        };
        NodeSelectorTerm {
            match_expressions: Some(place.segments.iter().map(requirement).collect()),
            ..NodeSelectorTerm::default()
        }
    };
    let mut places: Vec<_> = accessible.iter().filter(|place| !place.segments.is_empty()).collect();
    places.sort_by(|one, other| one.segments.cmp(&other.segments));
    places.dedup();
    (!places.is_empty()).then(|| NodeSelector { node_selector_terms: places.into_iter().map(term).collect() })
}

/// Returns the topology segments in a volume's affinity. Ignores terms that [`affinity`] would not create.
pub(crate) fn segments(affinity: &NodeSelector) -> Vec<Segment> {
    let segment = |term: &NodeSelectorTerm| {
        let mut segment = Segment::new();
        for one in term.match_expressions.iter().flatten() {
            let [value] = one.values.as_deref().filter(|_| one.operator == "In")? else { return None };
            segment.push((one.key.clone(), value.clone()));
        }
        segment.sort();
        Some(segment)
    };
    affinity.node_selector_terms.iter().filter_map(segment).collect()
}

#[cfg(test)]
mod tests;
