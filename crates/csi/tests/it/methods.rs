//! Each call with a request and an answer of its own, which arrive as they were sent.

use std::collections::BTreeMap;

use csi::messages::*;
use csi::{Client, Controller, Error, Identity, Node, Secrets, Server};
use prost_types::Timestamp;

struct Driver;

/// The services of the driver, which expect these requests and have these answers, and a test that makes the calls.
macro_rules! calls {
    ($($service:ident { $($method:ident($request:ident $asked:tt) -> $response:ident $answer:tt)* })*) => {
        $(
            impl $service for Driver {
                $(
                    async fn $method(&self, request: $request) -> Result<$response, Error> {
                        assert_eq!(request, $request $asked);
                        Ok($response $answer)
                    }
                )*
            }
        )*

        #[tokio::test]
        async fn requests_and_answers_arrive_whole() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("csi.sock");
            tokio::spawn(Server::bind(&path).unwrap().serve(Driver));
            let client = Client::new(path.to_str().unwrap().parse().unwrap());
            let mut calls = 0;
            $($(
                let answer = client.$method($request $asked).await.expect(stringify!($method));
                assert_eq!(answer, $response $answer);
                calls += 1;
            )*)*
            assert_eq!(calls, 26);
        }
    };
}

calls! {
    Identity {
        get_plugin_info(GetPluginInfoRequest {}) -> GetPluginInfoResponse { name: "example.com".into(), vendor_version: "1.2".into(), manifest: map() }
        get_plugin_capabilities(GetPluginCapabilitiesRequest {}) -> GetPluginCapabilitiesResponse { capabilities: vec![plugin_capability()] }
        probe(ProbeRequest {}) -> ProbeResponse { ready: Some(false) }
    }
    Controller {
        create_volume(CreateVolumeRequest {
            name: "pvc-1".into(),
            capacity_range: range(),
            volume_capabilities: vec![mounted(), block()],
            parameters: map(),
            secrets: secrets(),
            volume_content_source: source(),
            accessibility_requirements: requirements(),
            mutable_parameters: map(),
        }) -> CreateVolumeResponse { volume: volume() }
        delete_volume(DeleteVolumeRequest { volume_id: id(), secrets: secrets() }) -> DeleteVolumeResponse {}
        controller_publish_volume(ControllerPublishVolumeRequest {
            volume_id: id(),
            node_id: "node-1".into(),
            volume_capability: Some(block()),
            readonly: true,
            secrets: secrets(),
            volume_context: map(),
        }) -> ControllerPublishVolumeResponse { publish_context: map() }
        controller_unpublish_volume(ControllerUnpublishVolumeRequest { volume_id: id(), node_id: "node-1".into(), secrets: secrets() })
            -> ControllerUnpublishVolumeResponse {}
        validate_volume_capabilities(ValidateVolumeCapabilitiesRequest {
            volume_id: id(),
            volume_context: map(),
            volume_capabilities: vec![mounted()],
            parameters: map(),
            secrets: secrets(),
            mutable_parameters: map(),
        }) -> ValidateVolumeCapabilitiesResponse {
            confirmed: Some(validate_volume_capabilities_response::Confirmed {
                volume_context: map(),
                volume_capabilities: vec![mounted()],
                parameters: map(),
                mutable_parameters: map(),
            }),
            message: "yes".into(),
        }
        list_volumes(ListVolumesRequest { max_entries: 7, starting_token: "a".into() }) -> ListVolumesResponse {
            entries: vec![list_volumes_response::Entry {
                volume: volume(),
                status: Some(list_volumes_response::VolumeStatus { published_node_ids: vec!["node-1".into(), "node-2".into()] }),
            }],
            next_token: "b".into(),
        }
        get_capacity(GetCapacityRequest { volume_capabilities: vec![block()], parameters: map(), accessible_topology: Some(zone("a")) })
            -> GetCapacityResponse { available_capacity: 1 << 40, maximum_volume_size: Some(0), minimum_volume_size: Some(1) }
        controller_get_capabilities(ControllerGetCapabilitiesRequest {}) -> ControllerGetCapabilitiesResponse {
            capabilities: vec![ControllerServiceCapability {
                r#type: Some(controller_service_capability::Type::Rpc(controller_service_capability::Rpc {
                    r#type: controller_service_capability::rpc::Type::ModifyVolume.into(),
                })),
            }],
        }
        create_snapshot(CreateSnapshotRequest {
            source_volume_id: id(),
            name: "snapshot-1".into(),
            secrets: secrets(),
            parameters: map(),
            accessibility_requirements: requirements(),
        }) -> CreateSnapshotResponse { snapshot: snapshot() }
        delete_snapshot(DeleteSnapshotRequest { snapshot_id: "s-1".into(), secrets: secrets() }) -> DeleteSnapshotResponse {}
        list_snapshots(ListSnapshotsRequest {
            max_entries: -1,
            starting_token: "a".into(),
            source_volume_id: id(),
            snapshot_id: "s-1".into(),
            secrets: secrets(),
        }) -> ListSnapshotsResponse { entries: vec![list_snapshots_response::Entry { snapshot: snapshot() }], next_token: "b".into() }
        get_snapshot(GetSnapshotRequest { snapshot_id: "s-1".into(), secrets: secrets() }) -> GetSnapshotResponse { snapshot: snapshot() }
        controller_expand_volume(ControllerExpandVolumeRequest {
            volume_id: id(),
            capacity_range: range(),
            secrets: secrets(),
            volume_capability: Some(mounted()),
        }) -> ControllerExpandVolumeResponse { capacity_bytes: 1 << 33, node_expansion_required: true }
        controller_get_volume(ControllerGetVolumeRequest { volume_id: id() }) -> ControllerGetVolumeResponse {
            volume: volume(),
            status: Some(controller_get_volume_response::VolumeStatus { published_node_ids: vec!["node-1".into()] }),
        }
        controller_modify_volume(ControllerModifyVolumeRequest { volume_id: id(), secrets: secrets(), mutable_parameters: map() })
            -> ControllerModifyVolumeResponse {}
    }
    Node {
        node_stage_volume(NodeStageVolumeRequest {
            volume_id: id(),
            publish_context: map(),
            staging_target_path: "/stage".into(),
            volume_capability: Some(mounted()),
            secrets: secrets(),
            volume_context: map(),
        }) -> NodeStageVolumeResponse {}
        node_unstage_volume(NodeUnstageVolumeRequest { volume_id: id(), staging_target_path: "/stage".into() }) -> NodeUnstageVolumeResponse {}
        node_publish_volume(NodePublishVolumeRequest {
            volume_id: id(),
            publish_context: map(),
            staging_target_path: "/stage".into(),
            target_path: "/target".into(),
            volume_capability: Some(mounted()),
            readonly: true,
            secrets: secrets(),
            volume_context: map(),
        }) -> NodePublishVolumeResponse {}
        node_unpublish_volume(NodeUnpublishVolumeRequest { volume_id: id(), target_path: "/target".into() }) -> NodeUnpublishVolumeResponse {}
        node_get_volume_stats(NodeGetVolumeStatsRequest {
            volume_id: id(),
            volume_path: "/target".into(),
            staging_target_path: "/stage".into(),
        }) -> NodeGetVolumeStatsResponse {
            usage: vec![VolumeUsage { available: 3, total: 5, used: 2, unit: volume_usage::Unit::Inodes.into() }],
        }
        node_expand_volume(NodeExpandVolumeRequest {
            volume_id: id(),
            volume_path: "/target".into(),
            capacity_range: range(),
            staging_target_path: "/stage".into(),
            volume_capability: Some(mounted()),
            secrets: secrets(),
        }) -> NodeExpandVolumeResponse { capacity_bytes: 1 << 33 }
        node_get_capabilities(NodeGetCapabilitiesRequest {}) -> NodeGetCapabilitiesResponse {
            capabilities: vec![NodeServiceCapability {
                r#type: Some(node_service_capability::Type::Rpc(node_service_capability::Rpc {
                    r#type: node_service_capability::rpc::Type::VolumeMountGroup.into(),
                })),
            }],
        }
        node_get_info(NodeGetInfoRequest {}) -> NodeGetInfoResponse {
            node_id: "node-1".into(),
            max_volumes_per_node: 9,
            accessible_topology: Some(zone("a")),
        }
    }
}

fn id() -> String {
    "volume-1".into()
}

fn map() -> BTreeMap<String, String> {
    BTreeMap::from([("tier".into(), "fast".into()), ("empty".into(), String::new())])
}

fn secrets() -> Secrets {
    Secrets::from_iter([("password", "hunter2")])
}

fn range() -> Option<CapacityRange> {
    Some(CapacityRange { required_bytes: 1 << 33, limit_bytes: 1 << 34 })
}

fn mounted() -> VolumeCapability {
    let mount = volume_capability::MountVolume {
        fs_type: "ext4".into(),
        mount_flags: vec!["noatime".into()],
        volume_mount_group: "1000".into(),
    };
    capability(volume_capability::AccessType::Mount(mount))
}

fn block() -> VolumeCapability {
    capability(volume_capability::AccessType::Block(volume_capability::BlockVolume {}))
}

fn capability(access_type: volume_capability::AccessType) -> VolumeCapability {
    let mode = volume_capability::access_mode::Mode::SingleNodeSingleWriter.into();
    VolumeCapability { access_type: Some(access_type), access_mode: Some(volume_capability::AccessMode { mode }) }
}

fn plugin_capability() -> PluginCapability {
    let r#type = plugin_capability::volume_expansion::Type::Offline.into();
    let expansion = plugin_capability::VolumeExpansion { r#type };
    PluginCapability { r#type: Some(plugin_capability::Type::VolumeExpansion(expansion)) }
}

fn source() -> Option<VolumeContentSource> {
    let snapshot = volume_content_source::SnapshotSource { snapshot_id: "s-1".into() };
    Some(VolumeContentSource { r#type: Some(volume_content_source::Type::Snapshot(snapshot)) })
}

fn zone(name: &str) -> Topology {
    Topology { segments: BTreeMap::from([("zone".into(), name.into())]) }
}

fn requirements() -> Option<TopologyRequirement> {
    Some(TopologyRequirement { requisite: vec![zone("a"), zone("b")], preferred: vec![zone("b")] })
}

fn volume() -> Option<Volume> {
    Some(Volume {
        capacity_bytes: 1 << 33,
        volume_id: id(),
        volume_context: map(),
        content_source: source(),
        accessible_topology: vec![zone("a")],
    })
}

fn snapshot() -> Option<Snapshot> {
    Some(Snapshot {
        size_bytes: 1 << 33,
        snapshot_id: "s-1".into(),
        source_volume_id: id(),
        creation_time: Some(Timestamp { seconds: 1_700_000_000, nanos: 5 }),
        ready_to_use: true,
        group_snapshot_id: "g-1".into(),
        accessible_topology: vec![zone("a")],
    })
}
