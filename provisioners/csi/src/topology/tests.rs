use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

/// A situation in `requirements.jsonl`, which `testbed/csi-topology/record.sh` records from external-provisioner.
#[derive(Deserialize)]
struct Situation {
    claim: String,
    #[serde(default)]
    allowed: Option<Vec<TopologySelectorTerm>>,
    nodes: Vec<Node>,
    results: Vec<Recorded>,
}

/// A Node if it has labels, and a CSINode if it has keys.
#[derive(Deserialize)]
struct Node {
    name: String,
    labels: Option<BTreeMap<String, String>>,
    keys: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Recorded {
    /// Each item is SELECTED NODE,strict,immediate.
    when: Vec<String>,
    #[serde(default)]
    requisite: Vec<Segments>,
    first: usize,
    error: Option<String>,
    #[serde(default)]
    none: bool,
}

impl Situation {
    /// Returns `None` for an error.
    fn choose(&self, selected: &str, strict: bool, immediate: bool) -> Option<Option<Requirement>> {
        let labels: Vec<_> = self.nodes.iter().map(|node| node.labels.as_ref().map(Labels::new)).collect();
        let nodes = || self.nodes.iter().zip(&labels);
        let selected = match selected {
            "" => None,
            name => {
                let (node, labels) = nodes().find(|(node, _)| node.name == name)?;
                let keys = node.keys.as_ref().filter(|keys| !keys.is_empty())?;
                Some(labels.as_ref()?.segment(keys).ok()?)
            }
        };
        let registered: Vec<_> = nodes()
            .filter_map(|(node, labels)| Some(RegisteredNode { keys: node.keys.as_deref()?, labels: labels.as_ref()? }))
            .filter(|node| !node.keys.is_empty())
            .collect();
        let allowed = self.allowed.as_deref().unwrap_or_default();
        let inputs =
            RequirementInputs { claim: &self.claim, allowed, selected, strict, immediate, filters: false, turn: 0 };
        let nodes: &[_] = if inputs.needs_nodes() { &registered } else { &[] };
        inputs.requirement(nodes).ok()
    }
}

#[test]
fn requirements_match_external_provisioner() {
    let mut count = 0;
    for line in include_str!("requirements.jsonl").lines() {
        let situation: Situation = serde_json::from_str(line).unwrap();
        for recorded in &situation.results {
            for when in &recorded.when {
                let [selected, strict, immediate] = when.split(',').collect::<Vec<_>>()[..] else { panic!("{when}") };
                let places = recorded.requisite.clone();
                let expected = match (&recorded.error, recorded.none) {
                    (Some(_), _) => None,
                    (None, true) => Some(None),
                    (None, false) => Some(Some(Requirement { places, first: recorded.first })),
                };
                let chosen = situation.choose(selected, strict == "true", immediate == "true");
                assert_eq!(chosen, expected, "{when}: {:?}: {line}", recorded.error);
                count += 1;
            }
        }
    }
    assert!(count >= 1500, "{count}");
}

/// Returns the requirement in a cluster where each node is a place.
fn hosts(count: usize, first: usize) -> Requirement {
    let place = |number: usize| Segments::from([("example.com/host".to_owned(), format!("node-{number:05}"))]);
    Requirement { places: (0..count).map(place).collect(), first }.bounded(0)
}

#[test]
fn long_lists_are_split_into_shared_parts() {
    assert_eq!(hosts(200, 0).places.len(), 200);
    let mut parts = BTreeSet::new();
    for first in (0..5000).step_by(17) {
        let requirement = hosts(5000, first);
        let text = requirement.places().unwrap();
        assert!(text.len() <= PART, "{}", text.len());
        let request = Requirement::read(&text, requirement.first).unwrap().into_request();
        assert_eq!(request.preferred[0].segments["example.com/host"], format!("node-{first:05}"));
        assert_eq!(request.preferred.len(), request.requisite.len());
        parts.insert(text);
    }
    assert_eq!(parts.iter().map(|text| serde_json::from_str::<Vec<Value>>(text).unwrap().len()).sum::<usize>(), 5000);
}

#[test]
fn place_larger_than_a_part_is_not_lost() {
    let place = |number: u32| Segments::from([("key".to_owned(), format!("{number}{}", "x".repeat(PART)))]);
    for first in 0..10 {
        let requirement = Requirement { places: (0..10).map(place).collect(), first: first as usize }.bounded(0);
        assert_eq!((&requirement.places[..], requirement.first), (&[place(first)][..], 0));
    }
}

#[test]
fn each_attempt_tries_another_part_of_the_places() {
    let place = |number: usize| Segments::from([("zone".to_owned(), format!("zone-{number:03}"))]);
    let part = |turn| Requirement { places: (0..1000).map(place).collect(), first: 999 }.bounded(turn);
    let places: BTreeSet<Segments> = (0..30).flat_map(|turn| part(turn).places).collect();
    assert_eq!(places.len(), 1000);
    assert!((0..30).map(part).all(|part| part.first < part.places.len()));
}

#[test]
fn too_many_allowed_combinations_are_shortened_or_refused() {
    let choose = |keys: &[&str], count: usize| {
        let values: Vec<_> = (0..count).map(|number| format!("{number:063}")).collect();
        let requirements: Vec<_> = keys.iter().map(|key| json!({"key": key, "values": values})).collect();
        let term = json!([{"matchLabelExpressions": requirements}]);
        let allowed: Vec<TopologySelectorTerm> = serde_json::from_value(term).unwrap();
        let inputs = RequirementInputs {
            claim: "data",
            allowed: &allowed,
            selected: None,
            strict: false,
            immediate: true,
            filters: false,
            turn: 0,
        };
        inputs.requirement(&[]).map(Option::unwrap)
    };
    assert_eq!(choose(&["a", "b", "c"], 50), Err(NoRequirement::TooMany(125_000)));
    // A request with all of these would exceed gRPC's limit of 4 MiB.
    let most = choose(&["a", "b"], 100).unwrap();
    assert!(most.places.len() > 1 && most.places().unwrap().len() <= PART);
}

/// <https://github.com/kubernetes-csi/external-provisioner/issues/1568>
#[test]
fn allowed_topologies_can_filter_whole_places() {
    let keys = ["rack".to_owned(), "zone".to_owned()];
    let place = |rack: &str, zone: &str| Segment::from([("rack".into(), rack.into()), ("zone".into(), zone.into())]);
    let labels =
        [("1", "a"), ("2", "a"), ("3", "b")].map(|(rack, zone)| Labels::new(&BTreeMap::from_iter(place(rack, zone))));
    let nodes: Vec<_> = labels.iter().map(|labels| RegisteredNode { keys: &keys, labels }).collect();
    let allowed: Vec<TopologySelectorTerm> =
        serde_json::from_value(json!([{"matchLabelExpressions": [{"key": "zone", "values": ["a", "c"]}]}])).unwrap();
    let chosen = |selected, filters| {
        let inputs = RequirementInputs {
            claim: "data",
            allowed: &allowed,
            selected,
            strict: false,
            immediate: true,
            filters,
            turn: 0,
        };
        assert_eq!(inputs.needs_nodes(), filters);
        inputs.requirement(&nodes).map(|requirement| {
            let requirement = requirement.unwrap().into_request();
            (requirement.requisite.len(), requirement.preferred[0].segments.clone())
        })
    };
    // Without the filter, the driver does not learn the selected node's rack.
    assert_eq!(chosen(Some(place("2", "a")), false), Ok((2, [("zone".to_owned(), "a".to_owned())].into())));
    assert_eq!(chosen(Some(place("2", "a")), true), Ok((2, BTreeMap::from_iter(place("2", "a")))));
    assert_eq!(chosen(Some(place("3", "b")), true), Err(NoRequirement::NotAllowed("rack=3,zone=b".to_owned())));
    assert_eq!(chosen(None, true).unwrap().0, 2);
}

fn terms(places: &[&[(&str, &str)]]) -> Value {
    let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let place = |pairs: &&[(&str, &str)]| Topology { segments: pairs.iter().map(text).collect() };
    let places: Vec<_> = places.iter().map(place).collect();
    json!(affinity(&places).map(|selector| selector.node_selector_terms))
}

#[test]
fn affinity_lists_the_places_in_the_answer() {
    assert_eq!(terms(&[]), Value::Null);
    // The API server rejects a selector without terms.
    assert_eq!(terms(&[&[]]), Value::Null);
    assert_eq!(terms(&[&[], &[]]), Value::Null);
    let term = |pairs: &[(&str, &str)]| {
        let one = |(key, value): &(&str, &str)| json!({"key": key, "operator": "In", "values": [value]});
        json!({"matchExpressions": pairs.iter().map(one).collect::<Vec<_>>()})
    };
    let [a, b] = [[("rack", "1"), ("zone", "a")], [("rack", "2"), ("zone", "b")]];
    assert_eq!(terms(&[&b, &a, &[], &b]), json!([term(&a), term(&b)]));
}
