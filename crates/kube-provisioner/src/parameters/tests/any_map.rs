use proptest::prelude::*;

use super::*;

fn maps() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = prop_oneof![
        4 => prop::sample::select(vec![
            "server", "onDelete", "size", "bytes", "signed", "huge", "ratio", "readOnly", "separator", "zones", "ports",
            "policies", "pair", "path", "address", "replicas", "timeout", "wrapped", "csi.storage.k8s.io/fstype",
        ])
        .prop_map(str::to_owned),
        1 => "\\PC{0,12}",
    ];
    let value = prop_oneof!["[0-9]{1,3}", "\\PC{0,20}", "[a-z,= ]{0,10}", Just("true".to_owned()), any::<String>()];
    prop::collection::btree_map(key, value, 0..12)
}

proptest! {
    #[test]
    fn no_map_makes_it_panic(map in maps()) {
        // Every key that is bad alone is named in the message about all of them.
        let names: Vec<String> = match from_map::<Everything>(&map) {
            Ok(_) => vec![],
            Err(error) => {
                prop_assert!(!error.problems().is_empty());
                prop_assert!(!error.to_string().chars().any(char::is_control));
                let key = |problem: &Problem| match problem {
                    Problem::Unknown { key, .. } | Problem::Repeated { key, .. } | Problem::Malformed { key, .. } => Some(key.clone()),
                    _ => None,
                };
                error.problems().iter().filter_map(key).collect()
            }
        };
        for (key, value) in &map {
            let mut alone = BTreeMap::from([(key.clone(), value.clone())]);
            if key != "server" {
                alone.insert("server".into(), String::new());
            }
            if key != "size" && key != "bytes" {
                alone.insert("size".into(), "1".into());
            }
            let both = map.contains_key("size") && map.contains_key("bytes") && ["size", "bytes"].contains(&key.as_str());
            if !both {
                prop_assert_eq!(from_map::<Everything>(&alone).is_err(), names.contains(key), "{:?}", key);
            }
        }
        let _ = from_map::<()>(&map);
        let _ = from_map::<BTreeMap<u8, Vec<u8>>>(&map);
        let _ = from_map::<serde_json::Value>(&map);
        hostile::read_all(&map);
    }
}
