//! Support for the feature `serde`: recordings of calls, for tests.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Secrets;

impl Serialize for Secrets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_map().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Secrets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<String, String>::deserialize(deserializer).map(Self::from_iter)
    }
}

pub(crate) fn is_empty<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

/// Serialization as text, such as `2026-11-26T11:30:35Z`.
pub(crate) mod time {
    use prost_types::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        time.as_ref().map(ToString::to_string).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::*;
    use crate::Secrets;

    #[test]
    fn recorded_request_has_json_names_and_no_empty_fields() {
        let mount = volume_capability::MountVolume { fs_type: "ext4".into(), ..Default::default() };
        let capability = |access_type| VolumeCapability { access_type: Some(access_type), access_mode: None };
        let request = CreateVolumeRequest {
            name: "pvc-1".into(),
            capacity_range: Some(CapacityRange { required_bytes: 1, limit_bytes: 0 }),
            volume_capabilities: vec![
                capability(volume_capability::AccessType::Mount(mount)),
                capability(volume_capability::AccessType::Block(volume_capability::BlockVolume {})),
            ],
            secrets: Secrets::from_iter([("password", "hunter2")]),
            ..Default::default()
        };
        let recorded = serde_json::to_value(&request).unwrap();
        let expected = json!({
            "name": "pvc-1",
            "capacityRange": {"requiredBytes": 1},
            "volumeCapabilities": [{"mount": {"fsType": "ext4"}}, {"block": {}}],
            "secrets": {"password": "hunter2"},
        });
        assert_eq!(recorded, expected);
        assert_eq!(serde_json::from_value::<CreateVolumeRequest>(recorded).unwrap(), request);
    }

    #[test]
    fn absent_and_false_are_distinguished() {
        for (ready, recorded) in [(None, json!({})), (Some(false), json!({"ready": false}))] {
            let answer = ProbeResponse { ready };
            assert_eq!(serde_json::to_value(answer).unwrap(), recorded);
            assert_eq!(serde_json::from_value::<ProbeResponse>(recorded).unwrap(), answer);
        }
    }

    #[test]
    fn times_are_recorded_as_text() {
        let time = Some(prost_types::Timestamp { seconds: 1_764_156_635, nanos: 0 });
        for creation_time in [time, None] {
            let snapshot = Snapshot { creation_time, ..Default::default() };
            let recorded = serde_json::to_value(&snapshot).unwrap();
            assert_eq!(serde_json::from_value::<Snapshot>(recorded).unwrap(), snapshot);
        }
    }
}
