//! Hostile objects and lost responses, as far as a real API server permits them.

use std::collections::BTreeMap;

use http::Method;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use kube_provisioner::quantity::parse_bytes;
use serde_json::json;
use testbed::cluster::TestSpace;
use testbed::faults::{Fault, failing};
use testbed::toy::{Toy, options};

const VOLUMES: &str = "/api/v1/persistentvolumes";

// Rules: G29.
/// All annotations of an object together are limited to 256 KiB; labels and finalizers have no such limit.
/// See <https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/>.
#[tokio::test]
async fn handles_the_largest_objects_that_the_server_accepts() -> anyhow::Result<()> {
    const LARGEST: usize = 256 * 1024;
    let (space, toy, _controller) = Toy::serving("g29").await?;
    let class = space.create_class(space.class("class")).await?;
    let labels = |count: usize| (0..count).map(|at| (format!("label-{at}"), "x".repeat(63)));
    let large = |size: usize| {
        let mut claim = space.claim("large", &class);
        claim.annotations_mut().insert("note".to_owned(), "x".repeat(size));
        // Labels do not count towards the limit, so the claim becomes even larger.
        claim.labels_mut().extend(labels(100));
        claim
    };
    // The record of a claim in an attempt has a size limit.
    let mut labelled = space.claim("labelled", &class);
    labelled.labels_mut().extend(labels(5000));
    space.create_claim(labelled).await?;
    // Room for the annotations that the control plane adds during binding.
    let room = 1024;
    assert!(space.create_claim(large(LARGEST)).await.is_err(), "the server accepts annotations above its limit");
    space.create_claim(large(LARGEST - room)).await?;
    space.bind(space.claim("small", &class)).await?;
    let (_, volume) = space.wait_bound("large").await?;
    let volumes = space.cluster_api::<PersistentVolume>();
    let size = LARGEST - room - volume.annotations().iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    let note = json!({"metadata": {"annotations": {"note": "x".repeat(size)}}});
    volumes.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(note)).await?;
    space.delete_claim("large").await?;
    assert_eq!((toy.provisions("large"), toy.deletes(&volume.name_any())), (1, 1));
    space.wait_for_message("PersistentVolumeClaim", "labelled", "create it with fewer or shorter labels").await?;
    assert_eq!(toy.provisions("labelled"), 0);
    space.done().await
}

// Rules: G30.
#[tokio::test]
async fn parses_every_quantity_that_the_server_accepts() -> anyhow::Result<()> {
    let (space, _, _controller) = Toy::serving("g30").await?;
    let class = space.create_class(space.class("class")).await?;
    let asks = |name: &str, text: &str| {
        let mut claim = space.claim(name, &class);
        let requests = BTreeMap::from([("storage".to_owned(), Quantity(text.to_owned()))]);
        let resources = &mut claim.spec.get_or_insert_default().resources;
        resources.get_or_insert_default().requests = Some(requests);
        claim
    };
    for (at, text) in ["-1", "0", "", "9X", "1.5.5"].into_iter().enumerate() {
        let refused = space.create_claim(asks(&format!("refused-{at}"), text)).await;
        assert!(refused.is_err(), "the server accepts {text:?}");
    }
    let sizes = [("1e3", 1000), ("1.5Gi", 1536 << 20), ("9E", 9_000_000_000_000_000_000), ("100m", 1), ("0.5", 1)];
    for (at, (text, _)) in sizes.into_iter().enumerate() {
        space.create_claim(asks(&format!("size-{at}"), text)).await?;
    }
    for (at, (text, bytes)) in sizes.into_iter().enumerate() {
        let (_, volume) = space.wait_bound(&format!("size-{at}")).await?;
        let capacity = volume.spec.and_then(|spec| spec.capacity).unwrap_or_default();
        assert_eq!(parse_bytes(&capacity["storage"].0), Ok(bytes), "{text}");
    }
    space.done().await
}

// Rules: G28.
/// The server has executed the requests whose responses are lost. The controller must not repeat their effects.
#[tokio::test]
async fn lost_responses_do_not_repeat_backend_calls() -> anyhow::Result<()> {
    for (method, path) in [(Method::POST, VOLUMES), (Method::DELETE, VOLUMES), (Method::PATCH, VOLUMES)] {
        let space = TestSpace::new("g28").await?;
        let toy = Toy::new();
        let client = failing(&space.client(), method.clone(), path, &[Fault::Lose(504), Fault::Lose(500)]);
        let _controller = toy.run_with(options(&space), client);
        space.create_class_and_claim("claim").await?;
        let (_, volume) = space.wait_bound("claim").await?;
        space.delete_claim("claim").await?;
        let class = space.create_class(space.class("later")).await?;
        space.bind(space.claim("later", &class)).await?;
        assert_eq!(toy.provisions("claim"), 1, "{method}");
        assert_eq!(toy.deletes(&volume.name_any()), 1, "{method}");
        assert_eq!((space.volumes().await?.len(), toy.assets().len()), (1, 1), "{method}");
        space.done().await?;
    }
    Ok(())
}

// Rules: G28.
#[tokio::test]
async fn event_is_not_written_twice_after_a_lost_response() -> anyhow::Result<()> {
    let space = TestSpace::new("g28").await?;
    let toy = Toy::new();
    let client = failing(&space.client(), Method::POST, "/apis/events.k8s.io/", &[Fault::Lose(504)]);
    let controller = toy.run_with(options(&space), client);
    space.create_class_and_claim("claim").await?;
    let told = space.wait_for_event("PersistentVolumeClaim", "claim", "ProvisioningSucceeded").await?;
    // Stopping sends all queued events, so a repeated event would exist afterwards.
    controller.stop().await?;
    let events = space.api::<k8s_openapi::api::events::v1::Event>().list(&ListParams::default()).await?;
    let ours = events.items.iter().filter(|event| event.reason.as_deref() == Some("ProvisioningSucceeded"));
    assert_eq!(ours.map(ResourceExt::name_any).collect::<Vec<_>>(), [told.name_any()]);
    space.done().await
}

// Rules: G26, G27.
/// The in-process tests cover every write and its delays; here, the faults are mixed with real responses.
#[tokio::test]
async fn failed_requests_are_retried_without_repeating_backend_calls() -> anyhow::Result<()> {
    let faults = [Fault::Busy(1), Fault::Refuse(409), Fault::Refuse(500)];
    for method in [Method::POST, Method::DELETE, Method::PATCH] {
        let space = TestSpace::new("g27").await?;
        let toy = Toy::new();
        let client = failing(&space.client(), method.clone(), VOLUMES, &faults);
        let _controller = toy.run_with(options(&space), client);
        space.create_class_and_claim("claim").await?;
        let (_, volume) = space.wait_bound("claim").await?;
        space.delete_claim("claim").await?;
        assert_eq!((toy.provisions("claim"), toy.deletes(&volume.name_any())), (1, 1), "{method}");
        assert!(toy.assets().is_empty(), "{method}");
        space.done().await?;
    }
    Ok(())
}
