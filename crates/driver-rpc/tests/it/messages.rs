//! Tests that messages with all fields set arrive intact, and that their `Debug` shows no secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use protox::prost::Message;
use protox::prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};

use crate::generated::{SPECIFICATIONS, is_hidden, is_left_out, read};

const OPEN: &str = "open";
const SECRET: &str = "hunter2";

/// Decodes a message; returns its `Debug` text and the message encoded again.
type Copy = fn(&[u8]) -> (String, Vec<u8>);

fn copy<M: Message + Debug + Default>(bytes: &[u8]) -> (String, Vec<u8>) {
    let message = M::decode(bytes).unwrap();
    (format!("{message:?} {message:#?}"), message.encode_to_vec())
}

/// Returns the requests and responses of each package.
fn known() -> BTreeMap<String, Copy> {
    macro_rules! known {
        ($package:literal $module:path: $($call:ident)*) => {{
            use $module::*;
            [$((concat!($package, ".", stringify!($call)).to_owned(), copy::<$call> as Copy)),*]
        }};
    }
    let csi = known! { "csi.v1" driver_rpc::csi:
        GetPluginInfoRequest GetPluginInfoResponse GetPluginCapabilitiesRequest GetPluginCapabilitiesResponse ProbeRequest ProbeResponse
        CreateVolumeRequest CreateVolumeResponse DeleteVolumeRequest DeleteVolumeResponse
        ControllerPublishVolumeRequest ControllerPublishVolumeResponse ControllerUnpublishVolumeRequest ControllerUnpublishVolumeResponse
        ValidateVolumeCapabilitiesRequest ValidateVolumeCapabilitiesResponse ListVolumesRequest ListVolumesResponse
        GetCapacityRequest GetCapacityResponse ControllerGetCapabilitiesRequest ControllerGetCapabilitiesResponse
        CreateSnapshotRequest CreateSnapshotResponse DeleteSnapshotRequest DeleteSnapshotResponse
        ListSnapshotsRequest ListSnapshotsResponse GetSnapshotRequest GetSnapshotResponse
        ControllerExpandVolumeRequest ControllerExpandVolumeResponse ControllerGetVolumeRequest ControllerGetVolumeResponse
        ControllerModifyVolumeRequest ControllerModifyVolumeResponse
        NodeStageVolumeRequest NodeStageVolumeResponse NodeUnstageVolumeRequest NodeUnstageVolumeResponse
        NodePublishVolumeRequest NodePublishVolumeResponse NodeUnpublishVolumeRequest NodeUnpublishVolumeResponse
        NodeGetVolumeStatsRequest NodeGetVolumeStatsResponse NodeExpandVolumeRequest NodeExpandVolumeResponse
        NodeGetCapabilitiesRequest NodeGetCapabilitiesResponse NodeGetInfoRequest NodeGetInfoResponse
    };
    let v1alpha1 = known! { "cosi.v1alpha1" driver_rpc::cosi::v1alpha1:
        DriverGetInfoRequest DriverGetInfoResponse DriverCreateBucketRequest DriverCreateBucketResponse
        DriverDeleteBucketRequest DriverDeleteBucketResponse DriverGrantBucketAccessRequest DriverGrantBucketAccessResponse
        DriverRevokeBucketAccessRequest DriverRevokeBucketAccessResponse
    };
    let v1alpha2 = known! { "sigs.k8s.io.cosi.v1alpha2" driver_rpc::cosi::v1alpha2:
        DriverGetInfoRequest DriverGetInfoResponse DriverCreateBucketRequest DriverCreateBucketResponse
        DriverGetExistingBucketRequest DriverGetExistingBucketResponse DriverDeleteBucketRequest DriverDeleteBucketResponse
        DriverGrantBucketAccessRequest DriverGrantBucketAccessResponse DriverRevokeBucketAccessRequest DriverRevokeBucketAccessResponse
    };
    csi.into_iter().chain(v1alpha1).chain(v1alpha2).collect()
}

#[test]
fn messages_arrive_intact_and_show_no_secret() {
    let mut known = known();
    let mut secrets = BTreeSet::new();
    for (file, _) in SPECIFICATIONS {
        let pool = read(file);
        let services = pool.services().filter(|service| !is_left_out(service.name()));
        let methods: Vec<_> = services.flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
        for method in methods.iter().filter(|method| !is_left_out(method.name())) {
            for descriptor in [method.input(), method.output()] {
                let name = descriptor.full_name().to_owned();
                let copy = known.remove(&name).unwrap_or_else(|| panic!("{name} is not known here"));
                for variant in 0..3 {
                    let message = filled(&descriptor, variant, false, &mut secrets);
                    let (shown, copied) = copy(&message.encode_to_vec());
                    assert_eq!(DynamicMessage::decode(descriptor.clone(), copied.as_slice()).unwrap(), message);
                    assert!(!shown.contains(SECRET), "{shown}");
                    let says_something =
                        message.encode_to_vec().windows(OPEN.len()).any(|text| text == OPEN.as_bytes());
                    assert!(shown.contains(OPEN) || !says_something, "{shown}");
                }
            }
        }
        let marked = pool.all_messages().filter(|message| !is_left_out(message.full_name()));
        let marked = marked.flat_map(|message| message.fields().filter(is_hidden).collect::<Vec<_>>());
        let missed: Vec<_> =
            marked.map(|field| field.full_name().to_owned()).filter(|name| !secrets.contains(name)).collect();
        assert!(missed.is_empty(), "{missed:?}");
    }
    assert!(known.is_empty(), "{:?}", known.keys());
    assert!(secrets.contains("csi.v1.NodeStageVolumeRequest.secrets"), "{secrets:?}");
}

/// Returns a message with all fields set, using the `variant`th field of each oneof. Collects the secret fields.
fn filled(
    descriptor: &MessageDescriptor,
    variant: usize,
    is_inside_secret: bool,
    secrets: &mut BTreeSet<String>,
) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    let is_left = |field: &FieldDescriptor| {
        field.containing_oneof().is_none_or(|oneof| {
            let wanted = variant % oneof.fields().len();
            oneof.fields().nth(wanted).is_some_and(|chosen| chosen == *field)
        })
    };
    for field in descriptor.fields().filter(is_left) {
        if is_hidden(&field) {
            secrets.insert(field.full_name().to_owned());
        }
        let is_secret = is_inside_secret || is_hidden(&field);
        let text = if is_secret { SECRET } else { OPEN };
        let mut one = |kind: Kind| match kind {
            Kind::String => Value::String(text.to_owned()),
            Kind::Bool => Value::Bool(true),
            Kind::Int32 => Value::I32(7),
            Kind::Int64 => Value::I64(1 << 40),
            // An unknown value, which no version of the specification contains, also arrives.
            Kind::Enum(_) => Value::EnumNumber(99),
            Kind::Message(inner) => Value::Message(filled(&inner, variant, is_secret, secrets)),
            other => panic!("{other:?}"),
        };
        let value = match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                let value = one(entry.map_entry_value_field().kind());
                Value::Map([(MapKey::String(text.to_owned()), value)].into())
            }
            kind if field.is_list() => Value::List(vec![one(kind)]),
            kind => one(kind),
        };
        message.set_field(&field, value);
    }
    message
}
