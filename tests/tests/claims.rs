//! What becomes of claims, on a real control plane. The letters in front are the rows of `docs/behaviour.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::cluster::{TestSpace, eventually, is_bound, until};
use e2e::faults::{Fault, faulty};
use e2e::toy::{Answer, Call, Toy, options};
use http::Method;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_provisioner::{ProvisionError, Volume};
use serde_json::json;

const SOON: Duration = Duration::from_secs(20);

async fn class_and_claim(space: &TestSpace, claim: &str) -> anyhow::Result<StorageClass> {
    let class = space.create_class(space.class("class")).await?;
    space.create_claim(space.claim(claim, &class)).await?;
    Ok(class)
}

async fn uid(space: &TestSpace, claim: &str) -> anyhow::Result<String> {
    Ok(space.api::<PersistentVolumeClaim>().get(claim).await?.uid().unwrap_or_default())
}

#[tokio::test]
async fn c1_c17_only_our_class_is_served() -> anyhow::Result<()> {
    let space = TestSpace::new("c1").await?;
    let toy = Toy::new();
    let _controller = toy.run(&space);
    class_and_claim(&space, "ours").await?;
    let mut other = space.class("other");
    other.provisioner = format!("other-{}", space.provisioner());
    let other = space.create_class(other).await?;
    space.create_claim(space.claim("theirs", &other)).await?;
    let (claim, volume) = space.wait_bound("ours").await?;
    let by = space.api::<PersistentVolumeClaim>();
    let annotated = |claim: &PersistentVolumeClaim| {
        claim.annotations().contains_key(kube_provisioner::protocol::STORAGE_PROVISIONER)
    };
    space.wait_for(&by, "theirs", "annotated for the other provisioner", annotated).await?;
    assert_eq!(volume.name_any(), format!("pvc-{}", claim.uid().unwrap()));
    assert_eq!(space.volumes().await?.len(), 1);
    assert_eq!(toy.calls().len(), 1, "one call and nothing about the other claim");
    assert!(
        space
            .events_about("PersistentVolumeClaim", "theirs")
            .await?
            .iter()
            .all(|event| { event.reason.as_deref() != Some("ProvisioningFailed") })
    );
    space.done().await
}

#[tokio::test]
async fn c2_a_volume_that_is_there_is_not_made_again() -> anyhow::Result<()> {
    let space = TestSpace::new("c2").await?;
    let toy = Toy::new();
    let controller = toy.run(&space);
    class_and_claim(&space, "claim").await?;
    let (_, before) = space.wait_bound("claim").await?;
    controller.stop().await?;
    let again = Toy::new();
    let _controller = again.run(&space);
    let class = space.create_class(space.class("second")).await?;
    space.create_claim(space.claim("later", &class)).await?;
    space.wait_bound("later").await?;
    assert_eq!(again.provisions("claim"), 0);
    let after = space.cluster_api::<PersistentVolume>().get(&before.name_any()).await?;
    assert_eq!(after.spec, before.spec);
    space.done().await
}

#[tokio::test]
async fn c3_block_is_refused_with_an_event() -> anyhow::Result<()> {
    let space = TestSpace::new("c3").await?;
    let toy = Toy::new();
    let _controller = toy.run(&space);
    let class = space.create_class(space.class("class")).await?;
    let mut claim = space.claim("block", &class);
    claim.spec.get_or_insert_default().volume_mode = Some("Block".to_owned());
    space.create_claim(claim).await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "block", "ProvisioningFailed").await?;
    assert!(event.message.unwrap().contains("does not support block volume"));
    assert_eq!(toy.calls(), []);
    space.done().await
}

#[tokio::test]
async fn c4_an_additional_name_is_ours_too() -> anyhow::Result<()> {
    let space = TestSpace::new("c4").await?;
    let toy = Toy::new();
    let mut options = options(&space);
    options.additional_provisioner_names = vec![space.provisioner().to_owned(), "foo.example.com/baz".to_owned()];
    options.provisioner_name = "csi.example.com/mock".to_owned();
    let _controller = toy.run_with(options, space.client());
    class_and_claim(&space, "claim").await?;
    let (_, volume) = space.wait_bound("claim").await?;
    assert_eq!(volume.annotations()["pv.kubernetes.io/provisioned-by"], space.provisioner());
    space.done().await
}

#[tokio::test]
async fn c6_a_claim_that_names_its_volume_is_left_alone() -> anyhow::Result<()> {
    let space = TestSpace::new("c6").await?;
    let toy = Toy::new();
    let _controller = toy.run(&space);
    let class = space.class("missing");
    let mut claim = space.claim("static", &class);
    claim.spec.get_or_insert_default().volume_name = Some("nowhere".to_owned());
    claim
        .annotations_mut()
        .insert("volume.kubernetes.io/storage-provisioner".to_owned(), space.provisioner().to_owned());
    space.create_claim(claim).await?;
    let class = space.create_class(space.class("class")).await?;
    space.create_claim(space.claim("other", &class)).await?;
    space.wait_bound("other").await?;
    assert_eq!(toy.provisions("static"), 0);
    let events = space.events_about("PersistentVolumeClaim", "static").await?;
    assert!(events.iter().all(|event| event.reporting_component.as_deref() != Some(space.provisioner())));
    space.done().await
}

#[tokio::test]
async fn c7_g4_a_class_that_comes_later_continues_at_once() -> anyhow::Result<()> {
    let space = TestSpace::new("c7").await?;
    let toy = Toy::new();
    let mut options = options(&space);
    options.retry_interval_start = Duration::from_secs(600);
    options.retry_interval_max = Duration::from_secs(600);
    let _controller = toy.run_with(options, space.client());
    let mut claim = space.claim("claim", &space.class("class"));
    claim
        .annotations_mut()
        .insert("volume.kubernetes.io/storage-provisioner".to_owned(), space.provisioner().to_owned());
    space.create_claim(claim).await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "ProvisioningFailed").await?;
    assert!(event.message.unwrap().contains("not found"));
    let mut class = space.class("class");
    class.parameters = Some(BTreeMap::from([("onDelte".to_owned(), "keep".to_owned())]));
    space.create_class(class.clone()).await?;
    let found = eventually(SOON, async || {
        let events = space.events_about("PersistentVolumeClaim", "claim").await?;
        Ok(events.into_iter().find(|event| event.message.as_deref().is_some_and(|text| text.contains("onDelte"))))
    });
    assert!(found.await?.is_some(), "the wrong parameter is named");
    // Parameters cannot be changed, so a person deletes the class and creates it again.
    space.cluster_api::<StorageClass>().delete(&class.name_any(), &DeleteParams::default()).await?;
    class.parameters = None;
    space.create_class(class).await?;
    space.wait_bound("claim").await?;
    space.done().await
}

#[tokio::test]
async fn c10_c18_c21_a_failure_is_told_and_tried_again() -> anyhow::Result<()> {
    let space = TestSpace::new("c10").await?;
    let toy = Toy::new().on_provision(|_, call| match call {
        1..=3 => Answer::Failed(ProvisionError::retry("the pool is full")),
        _ => Answer::Done,
    });
    let _controller = toy.run(&space);
    class_and_claim(&space, "claim").await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "ProvisioningFailed").await?;
    assert_eq!((event.message.as_deref(), event.type_.as_deref()), (Some("the pool is full"), Some("Warning")));
    space.wait_bound("claim").await?;
    assert_eq!(toy.provisions("claim"), 4);
    space.done().await
}

#[tokio::test]
async fn c12_c25_c26_a_volume_that_cannot_be_saved_is_kept() -> anyhow::Result<()> {
    let space = TestSpace::new("c12").await?;
    let toy = Toy::new();
    let refused = std::sync::atomic::AtomicUsize::new(0);
    let client = faulty(&space.client(), move |method, path| {
        let creates = *method == Method::POST && path == "/api/v1/persistentvolumes";
        let first = || refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 4;
        (creates && first()).then_some(Fault::Refuse(500))
    });
    let _controller = toy.run_with(options(&space), client);
    class_and_claim(&space, "claim").await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "ProvisioningFailed").await?;
    assert!(event.message.unwrap().contains("made but not saved"));
    space.wait_bound("claim").await?;
    assert_eq!((toy.provisions("claim"), toy.assets().len()), (1, 1), "saving again is not provisioning again");
    assert!(toy.calls().iter().all(|call| !matches!(call, Call::Delete { .. })));
    space.done().await
}

#[tokio::test]
async fn c26_an_answer_that_is_lost_is_not_a_second_volume() -> anyhow::Result<()> {
    let space = TestSpace::new("c26").await?;
    let toy = Toy::new();
    let lost = std::sync::atomic::AtomicBool::new(false);
    let client = faulty(&space.client(), move |method, path| {
        let creates = *method == Method::POST && path == "/api/v1/persistentvolumes";
        (creates && !lost.swap(true, std::sync::atomic::Ordering::Relaxed)).then_some(Fault::Lose(504))
    });
    let _controller = toy.run_with(options(&space), client);
    class_and_claim(&space, "claim").await?;
    space.wait_bound("claim").await?;
    assert_eq!((toy.provisions("claim"), space.volumes().await?.len()), (1, 1));
    space.done().await
}

#[tokio::test]
async fn c14_c15_a_claim_that_is_not_mine_is_left_alone() -> anyhow::Result<()> {
    let space = TestSpace::new("c14").await?;
    let toy = Toy::new().on_provision(|claim, _| match claim {
        "theirs" => Answer::Failed(ProvisionError::not_mine("another node's")),
        _ => Answer::Done,
    });
    let _controller = toy.run(&space);
    let class = class_and_claim(&space, "theirs").await?;
    space.create_claim(space.claim("mine", &class)).await?;
    space.wait_bound("mine").await?;
    until("the other claim was looked at", || toy.provisions("theirs") == 1).await?;
    let events = space.events_about("PersistentVolumeClaim", "theirs").await?;
    assert!(events.iter().all(|event| event.reason.as_deref() != Some("ProvisioningFailed")));
    space.done().await
}

#[tokio::test]
async fn c16_everything_of_the_class_is_on_the_volume() -> anyhow::Result<()> {
    let space = TestSpace::new("c16").await?;
    let toy = Toy::new();
    let _controller = toy.run(&space);
    let mut class = space.class("class");
    class.reclaim_policy = Some("Retain".to_owned());
    class.mount_options = Some(vec!["nfsvers=4.2".to_owned(), "noatime".to_owned()]);
    let class = space.create_class(class).await?;
    let mut claim = space.claim("claim", &class);
    claim.spec.get_or_insert_default().access_modes = Some(vec!["ReadWriteOnce".to_owned(), "ReadOnlyMany".to_owned()]);
    space.create_claim(claim).await?;
    let (claim, volume) = space.wait_bound("claim").await?;
    let spec = volume.spec.clone().unwrap();
    let reference = spec.claim_ref.unwrap();
    assert_eq!(spec.capacity.unwrap()["storage"].0, "1Mi");
    assert_eq!(spec.access_modes, claim.spec.clone().unwrap().access_modes);
    assert_eq!(spec.storage_class_name, Some(class.name_any()));
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    assert_eq!(spec.mount_options, class.mount_options);
    assert_eq!(spec.volume_mode.as_deref(), Some("Filesystem"));
    assert_eq!(
        (reference.uid, reference.name, reference.namespace),
        (claim.uid(), claim.metadata.name, claim.metadata.namespace)
    );
    assert_eq!(reference.kind.as_deref(), Some("PersistentVolumeClaim"));
    assert!(!volume.finalizers().iter().any(|name| name == kube_provisioner::protocol::FINALIZER));
    space.done().await
}

#[tokio::test]
async fn c19_c22_work_in_progress_is_asked_for_again() -> anyhow::Result<()> {
    let space = TestSpace::new("c19").await?;
    let toy = Toy::new().on_provision(|_, call| match call {
        1..=3 => Answer::Failed(ProvisionError::in_progress("still formatting").after(Duration::from_millis(50))),
        _ => Answer::Done,
    });
    let _controller = toy.run(&space);
    class_and_claim(&space, "claim").await?;
    space.wait_bound("claim").await?;
    assert_eq!(toy.provisions("claim"), 4);
    let events = space.events_about("PersistentVolumeClaim", "claim").await?;
    assert!(events.iter().all(|event| event.reason.as_deref() != Some("ProvisioningFailed")), "progress is no failure");
    space.done().await
}

#[tokio::test]
async fn c24_a_claim_deleted_meanwhile_leaves_nothing_behind() -> anyhow::Result<()> {
    let space = TestSpace::new("c24").await?;
    let go = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let gate = go.clone();
    let toy = Toy::new().on_provision(move |_, _| match gate.load(std::sync::atomic::Ordering::Relaxed) {
        false => Answer::Failed(ProvisionError::in_progress("still formatting").after(Duration::from_millis(50))),
        true => Answer::Done,
    });
    let _controller = toy.run(&space);
    class_and_claim(&space, "claim").await?;
    until("the work began", || toy.provisions("claim") > 0).await?;
    let volume = format!("pvc-{}", uid(&space, "claim").await?);
    let claims = space.api::<PersistentVolumeClaim>();
    claims.delete("claim", &DeleteParams::default()).await?;
    space.wait_gone(&claims, "claim").await?;
    go.store(true, std::sync::atomic::Ordering::Relaxed);
    until("the asset is deleted again", || toy.deletes(&volume) > 0).await?;
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &volume).await?;
    assert!(toy.assets().is_empty());
    assert_eq!(toy.deletes(&volume), 1);
    space.done().await
}

async fn selected(
    space: &TestSpace,
    toy: &Toy,
    error: fn() -> ProvisionError,
) -> anyhow::Result<PersistentVolumeClaim> {
    let toy = toy.clone().on_provision(move |_, _| Answer::Failed(error()));
    let _controller = toy.run(space);
    let mut class = space.class("class");
    class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
    let class = space.create_class(class).await?;
    let mut claim = space.claim("claim", &class);
    let annotations = [
        ("volume.kubernetes.io/storage-provisioner", space.provisioner()),
        ("volume.kubernetes.io/selected-node", "node-1"),
        ("keep", "me"),
    ];
    claim.annotations_mut().extend(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())));
    space.create_claim(claim).await?;
    until("provision was called twice or the node was taken back", || toy.provisions("claim") > 0).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(space.api::<PersistentVolumeClaim>().get("claim").await?)
}

#[tokio::test]
async fn c27_reschedule_takes_the_node_back_and_nothing_else() -> anyhow::Result<()> {
    let space = TestSpace::new("c27").await?;
    let toy = Toy::new();
    let claim = selected(&space, &toy, || ProvisionError::reschedule("no room on this node")).await?;
    assert!(!claim.annotations().contains_key("volume.kubernetes.io/selected-node"));
    assert_eq!(claim.annotations()["keep"], "me");
    assert_eq!(toy.provisions("claim"), 1);
    space.done().await
}

#[tokio::test]
async fn c28_c29_c30_other_failures_keep_the_node() -> anyhow::Result<()> {
    let space = TestSpace::new("c28").await?;
    for (at, error) in
        [|| ProvisionError::retry("no"), || ProvisionError::in_progress("not yet")].into_iter().enumerate()
    {
        let claim = selected(&space, &Toy::new(), error).await?;
        assert_eq!(claim.annotations()["volume.kubernetes.io/selected-node"], "node-1", "{at}");
        let claims = space.api::<PersistentVolumeClaim>();
        claims.delete("claim", &DeleteParams::default()).await?;
        space.wait_gone(&claims, "claim").await?;
        space.cluster_api::<StorageClass>().delete(&space.cluster_wide_name("class"), &DeleteParams::default()).await?;
    }
    space.done().await
}

#[tokio::test]
async fn t1_t2_t3_t4_topology_and_node_are_handed_on() -> anyhow::Result<()> {
    let space = TestSpace::new("t1").await?;
    let toy = Toy::new();
    let _controller = toy.run(&space);
    let zones = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["zone1"]}]}]);
    for (name, zoned, waits) in [("t1", false, false), ("t2", true, false), ("t3", false, true), ("t4", true, true)] {
        let mut class = space.class(name);
        class.allowed_topologies = zoned.then(|| serde_json::from_value(zones.clone())).transpose()?;
        class.volume_binding_mode = waits.then(|| "WaitForFirstConsumer".to_owned());
        let class = space.create_class(class).await?;
        let mut claim = space.claim(name, &class);
        if waits {
            let node = [
                ("volume.kubernetes.io/storage-provisioner", space.provisioner()),
                ("volume.kubernetes.io/selected-node", "node-1"),
            ];
            claim.annotations_mut().extend(node.map(|(key, value)| (key.to_owned(), value.to_owned())));
        }
        space.create_claim(claim).await?;
        until(name, || toy.provisions(name) == 1).await?;
        let seen = toy.calls().into_iter().find_map(|call| match call {
            Call::Provision { claim, node, zones, .. } if claim == name => Some((node, zones)),
            _ => None,
        });
        let zones = if zoned { vec!["zone1".to_owned()] } else { Vec::new() };
        assert_eq!(seen, Some((waits.then(|| "node-1".to_owned()), zones)), "{name}");
    }
    space.done().await
}

#[tokio::test]
async fn g7_a_foreign_volume_of_our_name_is_not_touched() -> anyhow::Result<()> {
    let space = TestSpace::new("g7").await?;
    let toy = Toy::new();
    let class = class_and_claim(&space, "claim").await?;
    let name = format!("pvc-{}", uid(&space, "claim").await?);
    let foreign: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": space.provisioner()}},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class.name_any(),
            "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "theirs", "path": "/theirs"},
            "claimRef": {"namespace": "elsewhere", "name": "theirs", "uid": "00000000-0000-0000-0000-000000000001"}},
    }))?;
    space.cluster_api::<PersistentVolume>().create(&PostParams::default(), &foreign).await?;
    let _controller = toy.run(&space);
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "ProvisioningFailed").await?;
    assert!(event.message.unwrap().contains(&name));
    assert_eq!(toy.calls(), []);
    let after = space.cluster_api::<PersistentVolume>().get(&name).await?;
    assert_eq!(after.spec.unwrap().nfs.unwrap().path, "/theirs");
    // When it is gone, the claim gets its volume.
    space.cluster_api::<PersistentVolume>().delete(&name, &DeleteParams::default()).await?;
    space.wait_bound("claim").await?;
    space.done().await
}

#[tokio::test]
async fn g10_i1_two_controllers_in_one_process() -> anyhow::Result<()> {
    let space = TestSpace::new("g10").await?;
    let (one, two) = (Toy::new(), Toy::new());
    let _first = one.run(&space);
    let mut second = options(&space);
    second.provisioner_name = format!("second-{}", space.provisioner());
    let second_name = second.provisioner_name.clone();
    let _second = two.run_with(second, space.client());
    class_and_claim(&space, "first").await?;
    let mut class = space.class("second");
    class.provisioner = second_name;
    let class = space.create_class(class).await?;
    space.create_claim(space.claim("second", &class)).await?;
    space.wait_bound("first").await?;
    let (_, volume) = space.wait_bound("second").await?;
    assert_eq!((one.calls().len(), two.calls().len()), (1, 1));
    let claims = space.api::<PersistentVolumeClaim>();
    claims.delete("second", &DeleteParams::default()).await?;
    space.wait_gone(&space.cluster_api::<PersistentVolume>(), &volume.name_any()).await?;
    assert_eq!((one.calls().len(), two.calls().len()), (1, 2));
    space.done().await
}

#[tokio::test]
async fn g18_a_panic_costs_one_attempt() -> anyhow::Result<()> {
    let space = TestSpace::new("g18").await?;
    let toy = Toy::new().on_provision(|_, call| if call == 1 { Answer::Panics } else { Answer::Done });
    let _controller = toy.run(&space);
    class_and_claim(&space, "claim").await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "ProvisioningFailed").await?;
    assert!(event.message.unwrap().contains("the toy is broken"));
    space.wait_bound("claim").await?;
    assert_eq!(toy.provisions("claim"), 2);
    space.done().await
}

#[tokio::test]
async fn g19_a_call_that_hangs_is_cut_off_and_others_go_on() -> anyhow::Result<()> {
    let space = TestSpace::new("g19").await?;
    let toy = Toy::new().on_provision(|claim, call| match (claim, call) {
        ("slow", 1) => Answer::After(Duration::from_secs(3600)),
        _ => Answer::Done,
    });
    let mut options = options(&space);
    options.provision_timeout = Duration::from_secs(1);
    let _controller = toy.run_with(options, space.client());
    let class = class_and_claim(&space, "slow").await?;
    until("the slow call began", || toy.provisions("slow") == 1).await?;
    space.create_claim(space.claim("quick", &class)).await?;
    space.wait_bound("quick").await?;
    space.wait_bound("slow").await?;
    assert_eq!(toy.provisions("slow"), 2);
    space.done().await
}

#[tokio::test]
async fn g20_a_template_that_cannot_be_a_volume_is_not_saved() -> anyhow::Result<()> {
    let space = TestSpace::new("g20").await?;
    let toy = Toy::new().on_provision(|_, call| match call {
        1 => Answer::Made(Box::new(Volume::nfs("server", "/small").capacity(1))),
        _ => Answer::Done,
    });
    let _controller = toy.run(&space);
    class_and_claim(&space, "claim").await?;
    let event = space.wait_for_event("PersistentVolumeClaim", "claim", "ProvisioningFailed").await?;
    assert!(event.message.unwrap().contains("1 bytes"));
    space.wait_bound("claim").await?;
    space.done().await
}

#[tokio::test]
async fn g3_an_unrelated_update_does_not_cut_a_pause_short() -> anyhow::Result<()> {
    let space = TestSpace::new("g3").await?;
    let toy = Toy::new().on_provision(|_, _| Answer::Failed(ProvisionError::retry("no")));
    let mut options = options(&space);
    options.retry_interval_start = Duration::from_secs(600);
    options.retry_interval_max = Duration::from_secs(600);
    let _controller = toy.run_with(options, space.client());
    let class = class_and_claim(&space, "claim").await?;
    until("the first attempt", || toy.provisions("claim") == 1).await?;
    let claims = space.api::<PersistentVolumeClaim>();
    for round in 0..5 {
        let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
        claims.patch("claim", &PatchParams::default(), &Patch::Merge(label)).await?;
    }
    // The order of the watch: this claim is seen after all those updates.
    space.create_claim(space.claim("after", &class)).await?;
    until("the later claim was seen", || toy.provisions("after") == 1).await?;
    assert_eq!(toy.provisions("claim"), 1);
    let node = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}});
    claims.patch("claim", &PatchParams::default(), &Patch::Merge(node)).await?;
    until("a change that matters", || toy.provisions("claim") == 2).await?;
    assert!(!is_bound(&claims.get("claim").await?));
    space.done().await
}

/// With default settings; `docs/performance.md` has larger numbers.
#[tokio::test]
async fn g5_in_a_burst_every_claim_is_told_of_its_volume_once() -> anyhow::Result<()> {
    const COUNT: usize = 300;
    let space = TestSpace::new("g5").await?;
    let toy = Toy::new();
    let _controller = toy.run_with(kube_provisioner::Options::new(space.provisioner()), space.client());
    let class = space.create_class(space.class("class")).await?;
    for batch in (0..COUNT).collect::<Vec<_>>().chunks(30) {
        let claims = batch.iter().map(|at| space.create_claim(space.claim(&format!("claim-{at}"), &class)));
        futures::future::try_join_all(claims).await?;
    }
    let events = space.api::<k8s_openapi::api::events::v1::Event>();
    let mut told = BTreeMap::new();
    let all = eventually(3 * SOON, async || {
        told.clear();
        for event in events.list(&ListParams::default()).await?.items {
            if event.reason.as_deref() == Some("ProvisioningSucceeded") {
                let claim = event.regarding.and_then(|claim| claim.name).unwrap_or_default();
                *told.entry(claim).or_insert(0) += event.series.map_or(1, |series| series.count);
            }
        }
        Ok((told.len() == COUNT).then_some(()))
    });
    assert!(all.await?.is_some(), "only {} of {COUNT} claims have their event", told.len());
    assert!(told.values().all(|count| *count == 1));
    assert_eq!(toy.calls().len(), COUNT);
    space.done().await
}

#[tokio::test]
async fn g23_outcomes_are_counted_and_readiness_says_why_not() -> anyhow::Result<()> {
    let space = TestSpace::new("g23").await?;
    let toy = Toy::new().on_provision(|_, call| match call {
        1 => Answer::Failed(ProvisionError::retry("no")),
        _ => Answer::Done,
    });
    let mut options = options(&space);
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    options.admin_address = Some(([127, 0, 0, 1], port).into());
    let blind = faulty(&space.client(), |_, path| path.ends_with("/storageclasses").then_some(Fault::Refuse(403)));
    let controller = toy.run_with(options.clone(), blind);
    let ask = async |path: &str| -> anyhow::Result<String> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    let asked = async |path: &str, holds: &dyn Fn(&str) -> bool| {
        let answer = eventually(SOON, async || Ok(ask(path).await.ok().filter(|text| holds(text)))).await?;
        answer.ok_or_else(|| anyhow::anyhow!("{path} never answered as it should"))
    };
    asked("/readyz", &|text| text.starts_with("HTTP/1.1 503") && text.contains("storageclasses")).await?;
    asked("/livez", &|text| text.starts_with("HTTP/1.1 200")).await?;
    drop(controller);
    until("the port is free", || std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()).await?;
    let _controller = toy.run_with(options, space.client());
    asked("/readyz", &|text| text.starts_with("HTTP/1.1 200")).await?;
    let class = class_and_claim(&space, "claim").await?;
    space.wait_bound("claim").await?;
    let labels = format!("{{class=\"{}\",source=\"\"}} 1", class.name_any());
    let metrics =
        asked("/metrics", &|text| text.contains(&format!("controller_persistentvolumeclaim_provision_total{labels}")))
            .await?;
    for line in [
        format!("controller_persistentvolumeclaim_provision_failed_total{labels}"),
        format!("controller_persistentvolumeclaim_provision_duration_seconds_count{labels}"),
        "provisioner_claims_waiting".to_owned(),
        "provisioner_oldest_waiting_claim_seconds".to_owned(),
        "provisioner_queue_keys{queue=\"volumes\",state=\"ready\"}".to_owned(),
        "outcome=\"success\"".to_owned(),
        "outcome=\"failed\"".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    space.done().await
}
