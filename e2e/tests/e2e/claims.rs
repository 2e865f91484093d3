//! Claims on a real control plane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use kube_provisioner::ProvisionError;
use serde_json::json;
use testbed::cluster::{TestSpace, eventually, is_bound, until};
use testbed::toy::{Answer, Toy, options};

const SOON: Duration = Duration::from_secs(20);

// Rules: C1, C17.
#[tokio::test]
async fn only_claims_of_our_class_are_provisioned() -> anyhow::Result<()> {
    let (space, toy, _controller) = Toy::serving("c1").await?;
    space.create_class_and_claim("ours").await?;
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
    assert_eq!(toy.calls().len(), 1, "one call for our claim, none for the other claim");
    // Kubernetes' own controller may report that it has not seen the class yet.
    let events = space.events_about("PersistentVolumeClaim", "theirs").await?;
    assert!(events.iter().all(|event| event.reporting_component.as_deref() != Some(space.provisioner())));
    space.done().await
}

// Rules: C2.
#[tokio::test]
async fn existing_volume_is_not_created_again() -> anyhow::Result<()> {
    let (space, _, controller) = Toy::serving("c2").await?;
    space.create_class_and_claim("claim").await?;
    let (_, before) = space.wait_bound("claim").await?;
    controller.stop().await?;
    let again = Toy::new();
    let _controller = again.run(&space);
    let class = space.create_class(space.class("second")).await?;
    space.bind(space.claim("later", &class)).await?;
    assert_eq!(again.provisions("claim"), 0);
    let after = space.cluster_api::<PersistentVolume>().get(&before.name_any()).await?;
    assert_eq!(after.spec, before.spec);
    space.done().await
}

// Rules: C3.
#[tokio::test]
async fn block_volume_is_refused_with_an_event() -> anyhow::Result<()> {
    let (space, toy, _controller) = Toy::serving("c3").await?;
    let class = space.create_class(space.class("class")).await?;
    let mut claim = space.claim("block", &class);
    claim.spec.get_or_insert_default().volume_mode = Some("Block".to_owned());
    space.create_claim(claim).await?;
    space.wait_for_message("PersistentVolumeClaim", "block", "does not support block volume").await?;
    assert_eq!(toy.calls(), []);
    space.done().await
}

// Rules: C4.
#[tokio::test]
async fn class_with_an_additional_provisioner_name_is_ours() -> anyhow::Result<()> {
    let space = TestSpace::new("c4").await?;
    let toy = Toy::new();
    let mut options = options(&space);
    options.additional_provisioner_names = vec![space.provisioner().to_owned(), "foo.example.com/baz".to_owned()];
    options.provisioner_name = "csi.example.com/mock".to_owned();
    let _controller = toy.run_with(options, space.client());
    space.create_class_and_claim("claim").await?;
    let (_, volume) = space.wait_bound("claim").await?;
    assert_eq!(volume.annotations()["pv.kubernetes.io/provisioned-by"], space.provisioner());
    space.done().await
}

// Rules: C6.
#[tokio::test]
async fn claim_with_a_volume_name_is_ignored() -> anyhow::Result<()> {
    let (space, toy, _controller) = Toy::serving("c6").await?;
    let class = space.class("missing");
    let mut claim = space.claim("static", &class);
    claim.spec.get_or_insert_default().volume_name = Some("nowhere".to_owned());
    claim
        .annotations_mut()
        .insert("volume.kubernetes.io/storage-provisioner".to_owned(), space.provisioner().to_owned());
    space.create_claim(claim).await?;
    let class = space.create_class(space.class("class")).await?;
    space.bind(space.claim("other", &class)).await?;
    assert_eq!(toy.provisions("static"), 0);
    let events = space.events_about("PersistentVolumeClaim", "static").await?;
    assert!(events.iter().all(|event| event.reporting_component.as_deref() != Some(space.provisioner())));
    space.done().await
}

// Rules: C7, G4.
#[tokio::test]
async fn claims_continue_at_once_when_their_class_is_created() -> anyhow::Result<()> {
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
    space.wait_for_message("PersistentVolumeClaim", "claim", "not found").await?;
    let mut class = space.class("class");
    class.parameters = Some(BTreeMap::from([("onDelte".to_owned(), "keep".to_owned())]));
    space.create_class(class.clone()).await?;
    space.wait_for_message("PersistentVolumeClaim", "claim", "onDelte").await?;
    // Parameters cannot be changed, so an administrator deletes and recreates the class.
    space.cluster_api::<StorageClass>().delete(&class.name_any(), &DeleteParams::default()).await?;
    class.parameters = None;
    space.create_class(class).await?;
    space.wait_bound("claim").await?;
    space.done().await
}

// Rules: G34.
/// Parameters cannot be changed, so a class is deleted and recreated; waiting claims use the new parameters.
#[tokio::test]
async fn waiting_claims_use_the_parameters_of_a_recreated_class() -> anyhow::Result<()> {
    let space = TestSpace::new("g34").await?;
    let ready = Arc::new(AtomicBool::new(false));
    let gate = ready.clone();
    let toy = Toy::new().on_provision(move |_, _| {
        if gate.load(Ordering::Relaxed) {
            Answer::Done
        } else {
            Answer::Failed(ProvisionError::nothing_left("the backend is locked").after(Duration::from_millis(100)))
        }
    });
    let _controller = toy.run(&space);
    let of = |export: &str, policy: &str| {
        let mut class = space.class("class");
        class.parameters = Some(BTreeMap::from([("export".to_owned(), export.to_owned())]));
        class.reclaim_policy = Some(policy.to_owned());
        class
    };
    let class = space.create_class(of("/old", "Delete")).await?;
    let claims = ["a", "b", "c"];
    for claim in claims {
        space.create_claim(space.claim(claim, &class)).await?;
    }
    until("all were tried", || claims.iter().all(|claim| toy.provisions(claim) > 0)).await?;
    let classes = space.cluster_api::<StorageClass>();
    classes.delete(&class.name_any(), &DeleteParams::default()).await?;
    for claim in claims {
        space.wait_for_message("PersistentVolumeClaim", claim, "not found").await?;
    }
    ready.store(true, Ordering::Relaxed);
    // The first new class contains a mistake: every claim reports it, and none is provisioned.
    let mut wrong = of("/wrong", "Delete");
    wrong.parameters.get_or_insert_default().insert("exprot".to_owned(), "/typo".to_owned());
    space.create_class(wrong).await?;
    for claim in claims {
        space.wait_for_message("PersistentVolumeClaim", claim, "exprot").await?;
    }
    classes.delete(&class.name_any(), &DeleteParams::default()).await?;
    space.create_class(of("/new", "Retain")).await?;
    for claim in claims {
        let spec = space.wait_bound(claim).await?.1.spec.unwrap_or_default();
        assert!(spec.nfs.is_some_and(|nfs| nfs.path.starts_with("/new/")), "{claim}");
        assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"), "{claim}");
    }
    assert_eq!(space.volumes().await?.len(), claims.len());
    space.done().await
}

// Rules: G33.
/// The test has its own cluster because a default class affects the whole cluster.
#[tokio::test]
async fn claim_without_a_class_receives_the_newest_default_class() -> anyhow::Result<()> {
    let space = TestSpace::with_own_cluster("g33").await?;
    let toy = Toy::new();
    let _controller = toy.run(&space);
    let claims = space.api::<PersistentVolumeClaim>();
    let classless = async |name: &str| {
        let mut claim = space.claim(name, &space.class("none"));
        claim.spec.get_or_insert_default().storage_class_name = None;
        space.create_claim(claim).await
    };
    let default = async |suffix: &str| {
        let mut class = space.class(suffix);
        class.annotations_mut().insert("storageclass.kubernetes.io/is-default-class".to_owned(), "true".to_owned());
        space.create_class(class).await
    };
    let class_of = |claim: &PersistentVolumeClaim| claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
    assert_eq!(class_of(&classless("early").await?), None, "there is no default class yet");
    let normal = space.create_class(space.class("normal")).await?;
    space.bind(space.claim("named", &normal)).await?;
    assert_eq!(toy.provisions("early"), 0);
    // The names make the newer class win even within the same second.
    let older = default("z-older").await?.name_any();
    let bound = space.wait_for_within(3 * SOON, &claims, "early", "bound", is_bound).await?;
    assert_eq!(class_of(&bound), Some(older), "the controller-manager assigns the default class to waiting claims");
    let newer = default("a-newer").await?.name_any();
    let given = eventually(SOON, async || {
        // The API server's own cache of classes may be stale.
        let name = format!("later-{}", testbed::cluster::random_suffix());
        let claim = classless(&name).await?;
        Ok((class_of(&claim) == Some(newer.clone())).then_some(name))
    });
    let later = given.await?.context("the newer default class is never assigned")?;
    space.wait_bound(&later).await?;
    let (early, _) = space.wait_bound("early").await?;
    assert_ne!(class_of(&early), Some(newer), "a claim keeps its class");
    space.done().await
}

// Rules: C14, C15.
#[tokio::test]
async fn ignored_claim_receives_no_failure_event() -> anyhow::Result<()> {
    let space = TestSpace::new("c14").await?;
    let toy = Toy::new().on_provision(|claim, _| match claim {
        "theirs" => Answer::Failed(ProvisionError::ignored("another node's")),
        _ => Answer::Done,
    });
    let _controller = toy.run(&space);
    let class = space.create_class_and_claim("theirs").await?;
    space.bind(space.claim("mine", &class)).await?;
    until("the other claim was attempted", || toy.provisions("theirs") == 1).await?;
    let events = space.events_about("PersistentVolumeClaim", "theirs").await?;
    assert!(events.iter().all(|event| event.reason.as_deref() != Some("ProvisioningFailed")));
    space.done().await
}

// Rules: C16.
#[tokio::test]
async fn volume_has_all_settings_of_its_class() -> anyhow::Result<()> {
    let (space, _, _controller) = Toy::serving("c16").await?;
    let mut class = space.class("class");
    class.reclaim_policy = Some("Retain".to_owned());
    class.mount_options = Some(vec!["nfsvers=4.2".to_owned(), "noatime".to_owned()]);
    let class = space.create_class(class).await?;
    let mut claim = space.claim("claim", &class);
    claim.spec.get_or_insert_default().access_modes = Some(vec!["ReadWriteOnce".to_owned(), "ReadOnlyMany".to_owned()]);
    let (claim, volume) = space.bind(claim).await?;
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

// Rules: G7.
#[tokio::test]
async fn foreign_volume_with_the_same_name_is_not_touched() -> anyhow::Result<()> {
    let space = TestSpace::new("g7").await?;
    let toy = Toy::new();
    let class = space.create_class_and_claim("claim").await?;
    let claim = space.api::<PersistentVolumeClaim>().get("claim").await?;
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let foreign: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": space.provisioner()}},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class.name_any(),
            "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "theirs", "path": "/theirs"},
            "claimRef": {"namespace": "elsewhere", "name": "theirs", "uid": "00000000-0000-0000-0000-000000000001"}},
    }))?;
    space.cluster_api::<PersistentVolume>().create(&PostParams::default(), &foreign).await?;
    let _controller = toy.run(&space);
    space.wait_for_message("PersistentVolumeClaim", "claim", &name).await?;
    assert_eq!(toy.calls(), []);
    let after = space.cluster_api::<PersistentVolume>().get(&name).await?;
    assert_eq!(after.spec.unwrap().nfs.unwrap().path, "/theirs");
    // After its deletion, the claim is provisioned.
    space.cluster_api::<PersistentVolume>().delete(&name, &DeleteParams::default()).await?;
    space.wait_bound("claim").await?;
    space.done().await
}

// Rules: G10, I1.
#[tokio::test]
async fn two_controllers_work_in_one_process() -> anyhow::Result<()> {
    let space = TestSpace::new("g10").await?;
    let (one, two) = (Toy::new(), Toy::new());
    let _first = one.run(&space);
    let mut second = options(&space);
    second.provisioner_name = format!("second-{}", space.provisioner());
    let second_name = second.provisioner_name.clone();
    let _second = two.run_with(second, space.client());
    space.create_class_and_claim("first").await?;
    let mut class = space.class("second");
    class.provisioner = second_name;
    let class = space.create_class(class).await?;
    space.create_claim(space.claim("second", &class)).await?;
    space.wait_bound("first").await?;
    space.wait_bound("second").await?;
    assert_eq!((one.calls().len(), two.calls().len()), (1, 1));
    space.delete_claim("second").await?;
    assert_eq!((one.calls().len(), two.calls().len()), (1, 2));
    space.done().await
}
