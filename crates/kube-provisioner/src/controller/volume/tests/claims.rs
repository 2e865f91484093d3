//! Decisions about creating a volume for a claim.

use super::*;
use crate::AccessMode;
use crate::controller::volume::decision::{NoAction, Refusal};

fn asked_by(annotations: Value) -> Value {
    let cleared = claim(json!({"metadata": {"annotations": null}}));
    with(cleared, json!({"metadata": {"annotations": annotations}}))
}

// Rules: G76.
#[test]
fn refuses_a_claim_with_the_annotation_of_a_complete_binding() {
    let copied = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}});
    let fixture = Fixture::new().class(class(json!({}))).claim(claim(copied));
    assert_eq!(fixture.about_claim(), Decision::Refuse(Refusal::BindCompleted));
}

// Rules: S1.
#[test]
fn provisions_a_claim_whose_annotation_names_us() {
    assert_eq!(Fixture::new().class(class(json!({}))).claim(claim(json!({}))).about_claim(), Decision::Provision);
}

// Rules: S2.
#[test]
fn provisions_a_claim_whose_annotation_has_an_additional_name() {
    let fixture = Fixture::named("csi.com/mock-csi", &[OURS, "foo.xyz/baz"]);
    assert_eq!(fixture.class(class(json!({}))).claim(claim(json!({}))).about_claim(), Decision::Provision);
}

// Rules: S3.
#[test]
fn ignores_a_claim_with_a_volume() {
    let bound = claim(json!({"spec": {"volumeName": "volume-1"}}));
    assert_eq!(Fixture::new().class(class(json!({}))).claim(bound).about_claim(), Decision::NoAction(NoAction::Bound));
}

// Rules: S4, S5, S6, S7, S8, L5, L6.
#[test]
fn ignores_a_claim_whose_annotation_does_not_name_us() {
    let beta = |name: &str| asked_by(json!({"volume.beta.kubernetes.io/storage-provisioner": name}));
    let ga = json!({"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": OTHER}}});
    let ours = || Fixture::new().class(class(json!({})));
    let cases = [
        (Fixture::new(), asked_by(json!({})), "no class and no annotation"),
        (ours(), asked_by(json!({})), "a class of ours"),
        (Fixture::new().class(class(json!({"provisioner": OTHER}))), beta(OTHER), "another provisioner"),
        (ours(), beta(OTHER), "another provisioner, and a class of ours"),
        (ours(), claim(ga), "another provisioner, and the beta annotation names us"),
    ];
    for (fixture, claim, case) in cases {
        assert_eq!(fixture.claim(claim).about_claim(), Decision::NoAction(NoAction::Unrelated), "{case}");
    }
}

// Rules: S11, S12, S13.
#[test]
fn waits_for_a_consumer_until_a_node_is_selected() {
    let (beta, ga) = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner");
    let selected = "volume.kubernetes.io/selected-node";
    for (annotations, decision) in [
        (json!({beta: OURS}), Decision::NoAction(NoAction::AwaitsNode)),
        (json!({beta: OURS, selected: ""}), Decision::NoAction(NoAction::AwaitsNode)),
        (json!({beta: OURS, selected: "node-1"}), Decision::Provision),
        (json!({ga: OURS, selected: "node-1"}), Decision::Provision),
    ] {
        let fixture = Fixture::new().class(waiting_class()).claim(asked_by(annotations.clone()));
        assert_eq!(fixture.about_claim(), decision, "{annotations}");
    }
}

// Rules: B1, B2, B3, B4, B5, B6, B7, B8, B9.
/// A provisioner either supports block volumes or does not; the unsupported case is the default here.
#[test]
fn block_volumes_need_a_capability() {
    let decision = |can: Capabilities, mode: Option<&str>| {
        let claim = claim(json!({"spec": {"volumeMode": mode}}));
        Fixture::able(can).class(class(json!({}))).claim(claim).about_claim()
    };
    assert_eq!(Capabilities::default(), Plain::capabilities());
    assert_eq!(decision(Capabilities::default(), Some("Block")), Decision::Refuse(Refusal::Block));
    assert_eq!(decision(Capabilities::default().block(), Some("Block")), Decision::Provision);
    for mode in [None, Some("Filesystem")] {
        assert_eq!(decision(Capabilities::default(), mode), Decision::Provision, "{mode:?}");
        assert_eq!(decision(Capabilities::default().block(), mode), Decision::Provision, "{mode:?}");
    }
}

// Rules: G15.
#[test]
fn refuses_requests_that_the_author_does_not_support() {
    let refused = |change| match Fixture::new().class(class(json!({}))).claim(claim(change)).about_claim() {
        Decision::Refuse(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}})), Refusal::Selector);
    assert_eq!(refused(json!({"spec": {"selector": {}}})), Refusal::Selector);
    let source = json!({"apiGroup": "populator.example.com", "kind": "Backup", "name": "b"});
    let populated = Refusal::Populator { kind: "Backup.populator.example.com".into(), name: "b".into() };
    assert_eq!(refused(json!({"spec": {"dataSourceRef": source}})), populated);
    assert_eq!(refused(json!({"spec": {"dataSource": source}})), populated);
    let clone = json!({"kind": "PersistentVolumeClaim", "name": "c"});
    let from = Refusal::DataSource { kind: "PersistentVolumeClaim".into(), name: "c".into() };
    assert_eq!(refused(json!({"spec": {"dataSourceRef": clone}})), from);
    assert_eq!(refused(json!({"spec": {"volumeAttributesClassName": "g"}})), Refusal::AttributesClass("g".into()));
    assert!(matches!(refused(json!({"spec": {"resources": {"requests": {"storage": "-1"}}}})), Refusal::Request(_)));
    assert!(matches!(refused(json!({"spec": {"resources": {"requests": {"storage": "lots"}}}})), Refusal::Request(_)));
    let one = Fixture::able(Capabilities::default().access_modes([AccessMode::ReadWriteOnce]));
    let decision = one.class(class(json!({}))).claim(claim(json!({}))).about_claim();
    assert_eq!(decision, Decision::Refuse(Refusal::AccessModes(vec!["ReadWriteOnce".into()])));
}

// Rules: G15.
#[test]
fn provisions_requests_that_the_author_supports() {
    let able = Capabilities::default().selectors().data_sources(["Backup.example.com"]).volume_attributes_classes();
    let all = claim(
        json!({"spec": {"selector": {}, "dataSourceRef": {"apiGroup": "example.com", "kind": "Backup", "name": "b"},
        "volumeAttributesClassName": "gold"}}),
    );
    assert_eq!(Fixture::able(able).class(class(json!({}))).claim(all).about_claim(), Decision::Provision);
}

// Rules: G43.
#[test]
fn allowed_topologies_and_mount_options_need_a_capability() {
    let zones = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]);
    let asks = |change: Value, able: Capabilities| {
        Fixture::able(able).class(class(change)).claim(claim(json!({}))).about_claim()
    };
    let none = Capabilities::default;
    let with_zones = json!({"allowedTopologies": zones});
    assert_eq!(asks(with_zones.clone(), none()), Decision::Refuse(Refusal::AllowedTopologies));
    assert_eq!(asks(with_zones, none().allowed_topologies()), Decision::Provision);
    let with_options = json!({"mountOptions": ["ro"]});
    assert_eq!(asks(with_options.clone(), none()), Decision::Refuse(Refusal::MountOptions));
    assert_eq!(asks(with_options, none().mount_options()), Decision::Provision);
    assert_eq!(asks(json!({"mountOptions": []}), none()), Decision::Provision);
}

// Rules: G65.
#[test]
fn a_source_in_another_namespace_needs_a_capability() {
    let asks = |namespace: Value, can: Capabilities| {
        let source = json!({"kind": "PersistentVolumeClaim", "name": "c", "namespace": namespace});
        let claim = claim(json!({"spec": {"dataSourceRef": source}}));
        Fixture::able(can.data_sources(["PersistentVolumeClaim"])).class(class(json!({}))).claim(claim).about_claim()
    };
    let (plain, checks) = (Capabilities::default, || Capabilities::default().sources_of_other_namespaces());
    let refused = Refusal::SourceNamespace { namespace: "theirs".into(), name: "c".into() };
    assert_eq!(asks(json!("theirs"), plain()), Decision::Refuse(refused));
    assert_eq!(asks(json!("theirs"), checks()), Decision::Provision);
    for own in [json!("default"), json!(""), json!(null)] {
        assert_eq!(asks(own, plain()), Decision::Provision);
    }
}

// Rules: G44.
#[test]
fn looks_for_the_node_of_a_released_volume() {
    let of = |phase, identity: &str| {
        let made = json!({"metadata": {"annotations": {"kube-provisioner/identity": identity}}});
        Fixture::new().on_node("here").volume(volume(phase, "Delete", made)).about_volume()
    };
    assert_eq!(of("Released", "there"), Decision::CheckNode { name: "there".into() });
    assert_eq!(of("Bound", "there"), Decision::NoAction(NoAction::OtherNode));
    assert!(matches!(of("Released", "here"), Decision::Delete(_)));
}

// Rules: G44.
#[test]
fn a_per_node_replica_refuses_immediate_binding() {
    let claim = claim(json!({"spec": {"storageClassName": "at-once"}}));
    let at_once = class(json!({"metadata": {"name": "at-once"}}));
    let fixture = Fixture::new().on_node("here").class(at_once).claim(claim);
    assert_eq!(fixture.about_claim(), Decision::Refuse(Refusal::ImmediateClass));
}

#[test]
fn bids_for_a_claim_that_does_not_await_a_pod() {
    let decision = |bids, selected: Value| {
        let claim = claim(json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": selected}}}));
        Fixture::new().in_place("node-1", "zone", "a", bids).class(class(json!({}))).claim(claim).about_claim()
    };
    assert_eq!(decision(true, Value::Null), Decision::Bid);
    assert_eq!(decision(false, Value::Null), Decision::NoAction(NoAction::AwaitsNode));
    assert_eq!(decision(true, json!("node-1")), Decision::Provision);
    assert_eq!(decision(true, json!("node-2")), Decision::CheckNode { name: "node-2".into() });
}

#[test]
fn handles_volumes_in_its_place_regardless_of_their_creator() {
    let decision = |zone: &str, phase: &str| {
        let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
        let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
        let change = json!({
            "metadata": {"annotations": {"kube-provisioner/identity": "node-7"}}, "spec": {"nodeAffinity": affinity},
        });
        Fixture::new().in_place("node-1", "zone", "a", true).volume(volume(phase, "Delete", change)).about_volume()
    };
    assert!(matches!(decision("a", "Released"), Decision::Delete(_)));
    assert_eq!(decision("b", "Released"), Decision::CheckNode { name: "zone=b".into() });
    assert_eq!(decision("b", "Bound"), Decision::NoAction(NoAction::OtherNode));
}

// Rules: G16.
#[test]
fn the_refusal_names_unknown_parameters() {
    let fixture = Fixture::new().class(class(json!({"parameters": {"sever": "x", "zz": "y"}}))).claim(claim(json!({})));
    match fixture.about_claim() {
        Decision::Refuse(Refusal::Parameters(problems)) => {
            assert!(problems.contains("sever") && problems.contains("zz"), "{problems}");
        }
        other => panic!("{other:?}"),
    }
}

// Rules: G11.
#[test]
fn does_not_begin_an_attempt_for_a_terminating_claim() {
    let going = claim(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(
        Fixture::new().class(class(json!({}))).claim(going).about_claim(),
        Decision::NoAction(NoAction::ClaimTerminating)
    );
}

// Rules: L7.
#[test]
fn refuses_a_missing_class_and_finds_a_class_by_the_beta_annotation() {
    let missing = Fixture::new().claim(claim(json!({}))).about_claim();
    assert_eq!(missing, Decision::Refuse(Refusal::ClassMissing(Some("class-1".into()))));
    let none = Fixture::new().claim(claim(json!({"spec": {"storageClassName": null}}))).about_claim();
    assert_eq!(none, Decision::Refuse(Refusal::ClassMissing(None)));
    let foreign = Fixture::new().class(class(json!({"provisioner": OTHER}))).claim(claim(json!({}))).about_claim();
    assert_eq!(foreign, Decision::NoAction(NoAction::ForeignClass));
    // The claim receives an event, also from a process that has just started.
    let foreign = Fixture::new().class(class(json!({"provisioner": OTHER}))).claim(claim(json!({})));
    assert_eq!(foreign.cache.unsettled(&|_| true).len(), 1);
    let beta = claim(json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "class-1"}},
        "spec": {"storageClassName": "class-2"}}));
    assert_eq!(Fixture::new().class(class(json!({}))).claim(beta).about_claim(), Decision::Provision);
}
