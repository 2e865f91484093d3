//! Tests of the parts of the contract that `csi-sanity` does not cover.

use std::collections::BTreeMap;

use csi_sim::{Capability, Driver, Machine, NodeSettings, Pool, Settings};
use driver_rpc::Code;
use driver_rpc::csi::*;

const GI: i64 = 1 << 30;

fn zone(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("zone".to_owned(), name.to_owned())])
}

fn term(name: &str) -> Topology {
    Topology { segments: zone(name) }
}

/// Returns a driver with pools of 10 GiB in two zones.
fn two_zones() -> Driver {
    let pool = |name: &str| Pool { name: name.to_owned(), segments: zone(name), size: 10 * GI };
    let node = |id: &str| NodeSettings { id: id.to_owned(), segments: zone("a"), max_volumes: 0 };
    Driver::new(Settings {
        capabilities: Capability::ALL.into(),
        pools: vec![pool("a"), pool("b")],
        nodes: vec![node("node-1"), node("node-2")],
        ..Settings::default()
    })
}

fn capability(mode: volume_capability::access_mode::Mode) -> VolumeCapability {
    let mount = volume_capability::MountVolume::default();
    VolumeCapability {
        access_type: Some(volume_capability::AccessType::Mount(mount)),
        access_mode: Some(volume_capability::AccessMode { mode: mode.into() }),
    }
}

fn request(name: &str, required_bytes: i64, limit_bytes: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.into(),
        volume_capabilities: vec![capability(volume_capability::access_mode::Mode::SingleNodeWriter)],
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes }),
        ..Default::default()
    }
}

fn within(request: CreateVolumeRequest, requisite: &[&str], preferred: &[&str]) -> CreateVolumeRequest {
    let terms = |names: &[&str]| names.iter().map(|name| term(name)).collect();
    let accessibility_requirements =
        Some(TopologyRequirement { requisite: terms(requisite), preferred: terms(preferred) });
    CreateVolumeRequest { accessibility_requirements, ..request }
}

async fn create(driver: &Driver, request: CreateVolumeRequest) -> Volume {
    driver.create_volume(request).await.unwrap().volume.unwrap()
}

async fn create_error_code(driver: &Driver, request: CreateVolumeRequest) -> Code {
    driver.create_volume(request).await.unwrap_err().code()
}

#[tokio::test]
async fn name_has_one_volume_and_a_different_request_is_refused() {
    let driver = two_zones();
    let first = create(&driver, within(request("one", GI, 2 * GI), &["a"], &[])).await;
    assert_eq!(create(&driver, within(request("one", GI, 0), &["a", "b"], &["b"])).await, first);
    let parameters = BTreeMap::from([("tier".to_owned(), "fast".to_owned())]);
    for other in [
        request("one", 2 * GI, 0),
        within(request("one", GI, 0), &["b"], &[]),
        CreateVolumeRequest { parameters: parameters.clone(), ..request("one", GI, 0) },
        CreateVolumeRequest { mutable_parameters: parameters, ..request("one", GI, 0) },
        CreateVolumeRequest {
            volume_capabilities: vec![capability(volume_capability::access_mode::Mode::MultiNodeMultiWriter)],
            ..request("one", GI, 0)
        },
    ] {
        assert_eq!(create_error_code(&driver, other).await, Code::AlreadyExists);
    }
    assert_eq!(driver.volumes(), [first]);
}

#[tokio::test]
async fn non_idempotent_driver_creates_a_second_volume() {
    let driver = Driver::new(Settings { is_idempotent: false, ..Settings::default() });
    let [first, second] = [create(&driver, request("one", 1, 0)).await, create(&driver, request("one", 1, 0)).await];
    assert_ne!(first.volume_id, second.volume_id);
    let delete =
        || driver.delete_volume(DeleteVolumeRequest { volume_id: first.volume_id.clone(), ..Default::default() });
    delete().await.unwrap();
    assert_eq!(delete().await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn sizes_respect_the_limits() {
    let driver = Driver::new(Settings { granularity: 10, minimum_size: 25, maximum_size: 100, ..Settings::default() });
    for (name, required, limit, size) in
        [("min", 1, 0, 30), ("up", 41, 0, 50), ("whole", 100, 0, 100), ("any", 0, 0, 100), ("limit", 0, 40, 40)]
    {
        assert_eq!(create(&driver, request(name, required, limit)).await.capacity_bytes, size, "{name}");
    }
    for (required, limit, code) in [
        (101, 0, Code::OutOfRange),
        (41, 49, Code::OutOfRange),
        (1, 20, Code::OutOfRange),
        (2, 1, Code::InvalidArgument),
        (-1, 0, Code::InvalidArgument),
    ] {
        assert_eq!(create_error_code(&driver, request("other", required, limit)).await, code, "{required} {limit}");
    }
}

#[tokio::test]
async fn volumes_use_preferred_pools_until_they_are_full() {
    let driver = two_zones();
    let place = |volume: Volume| volume.accessible_topology;
    assert_eq!(place(create(&driver, within(request("one", 6 * GI, 0), &["a", "b"], &["b", "a"])).await), [term("b")]);
    assert_eq!(place(create(&driver, within(request("two", 6 * GI, 0), &["a", "b"], &["b", "a"])).await), [term("a")]);
    assert_eq!(
        create_error_code(&driver, within(request("three", 6 * GI, 0), &["a", "b"], &[])).await,
        Code::ResourceExhausted
    );
    assert_eq!(create_error_code(&driver, within(request("three", 1, 0), &["c"], &[])).await, Code::ResourceExhausted);

    let capacity = async |place: Option<&str>| {
        let accessible_topology = place.map(term);
        driver.get_capacity(GetCapacityRequest { accessible_topology, ..Default::default() }).await.unwrap()
    };
    assert_eq!(capacity(Some("a")).await.available_capacity, 4 * GI);
    assert_eq!(capacity(Some("c")).await.available_capacity, 0);
    let all = capacity(None).await;
    assert_eq!((all.available_capacity, all.maximum_volume_size), (8 * GI, Some(4 * GI)));
}

#[tokio::test]
async fn topology_is_ignored_without_its_capability() {
    let driver = two_zones();
    driver.configure(|settings| settings.capabilities = Capability::without_topology());
    let volume = create(&driver, within(request("one", GI, 0), &["c"], &[])).await;
    assert!(volume.accessible_topology.is_empty());
}

#[tokio::test]
async fn volume_cannot_be_smaller_than_its_source() {
    let driver = two_zones();
    let volume_id = create(&driver, request("one", 2 * GI, 0)).await.volume_id;
    let source = volume_content_source::Type::Volume(volume_content_source::VolumeSource { volume_id });
    let clone = |size| CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: Some(source.clone()) }),
        ..request("two", size, 0)
    };
    assert_eq!(create_error_code(&driver, clone(GI)).await, Code::OutOfRange);
    assert_eq!(create(&driver, clone(2 * GI)).await.content_source, clone(0).volume_content_source);
}

#[tokio::test]
async fn pages_are_complete_although_a_volume_is_deleted() {
    let driver = two_zones();
    for name in ["a", "b", "c", "d", "e"] {
        create(&driver, request(name, 1, 0)).await;
    }
    let list = async |starting_token: &str| {
        let request = ListVolumesRequest { max_entries: 2, starting_token: starting_token.into() };
        let page = driver.list_volumes(request).await.unwrap();
        let ids: Vec<_> = page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect();
        (ids, page.next_token)
    };
    let (first, token) = list("").await;
    driver.delete_volume(DeleteVolumeRequest { volume_id: first[1].clone(), ..Default::default() }).await.unwrap();
    let (second, token) = list(&token).await;
    let (third, token) = list(&token).await;
    assert_eq!((first.len(), second.len(), third.len(), token.as_str()), (2, 2, 1, ""));
    assert_eq!(driver.volumes().len(), 4);
}

#[tokio::test]
async fn published_single_node_volume_refuses_other_nodes_and_deletion() {
    let driver = two_zones();
    let volume_id = create(&driver, request("one", 1, 0)).await.volume_id;
    let publish = |node: &str| ControllerPublishVolumeRequest {
        volume_id: volume_id.clone(),
        node_id: node.into(),
        volume_capability: Some(capability(volume_capability::access_mode::Mode::SingleNodeWriter)),
        ..Default::default()
    };
    driver.controller_publish_volume(publish("node-1")).await.unwrap();
    let error = driver.controller_publish_volume(publish("node-2")).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);

    let delete = || driver.delete_volume(DeleteVolumeRequest { volume_id: volume_id.clone(), ..Default::default() });
    assert_eq!(delete().await.unwrap_err().code(), Code::FailedPrecondition);
    let unpublish = ControllerUnpublishVolumeRequest { volume_id: volume_id.clone(), ..Default::default() };
    driver.controller_unpublish_volume(unpublish).await.unwrap();
    delete().await.unwrap();
}

#[tokio::test]
async fn creates_and_removes_only_target_paths() {
    let folder = tempfile::tempdir().unwrap();
    let driver = Driver::new(Settings { machine: Machine::TargetPaths, ..Settings::default() });
    let volume_id = create(&driver, request("one", 1, 0)).await.volume_id;
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let volume_capability = Some(capability(volume_capability::access_mode::Mode::SingleNodeWriter));
    let stage = NodeStageVolumeRequest {
        volume_id: volume_id.clone(),
        staging_target_path: path("stage"),
        volume_capability: volume_capability.clone(),
        ..Default::default()
    };
    driver.node_stage_volume(stage).await.unwrap();
    let publish = NodePublishVolumeRequest {
        volume_id: volume_id.clone(),
        staging_target_path: path("stage"),
        target_path: path("target"),
        volume_capability,
        ..Default::default()
    };
    driver.node_publish_volume(publish).await.unwrap();
    assert!(folder.path().join("target").is_dir());

    std::fs::create_dir(folder.path().join("other")).unwrap();
    for name in ["target", "other"] {
        let unpublish = NodeUnpublishVolumeRequest { volume_id: volume_id.clone(), target_path: path(name) };
        driver.node_unpublish_volume(unpublish).await.unwrap();
    }
    assert!(!folder.path().join("target").exists() && folder.path().join("other").is_dir());
}
