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

/// Returns the unknown keys that an error names.
fn unknown(error: &ParameterError) -> Vec<&str> {
    let problems = error.problems().iter();
    problems
        .filter_map(|problem| if let Problem::Unknown { key, .. } = problem { Some(&**key) } else { None })
        .collect()
}

/// Returns the error of one pair if all other parameters are valid.
fn error_of_pair(key: &str, value: &str) -> Option<ParameterError> {
    let mut map = BTreeMap::from([("server", ""), ("size", "1")]);
    if key == "bytes" {
        map.remove("size");
    }
    map.insert(key, value);
    from_map::<Everything>(&map.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()).err()
}

proptest! {
    #[test]
    fn no_map_causes_a_panic(map in maps()) {
        let bad: BTreeMap<&str, ParameterError> =
            map.iter().filter_map(|(key, value)| Some((key.as_str(), error_of_pair(key, value)?))).collect();
        let given = |key: &str| map.contains_key(key);
        let incomplete = !given("server") || given("size") == given("bytes");
        let error = from_map::<Everything>(&map).err();
        prop_assert_eq!(error.is_some(), incomplete || !bad.is_empty());
        if let Some(error) = error {
            prop_assert!(!error.to_string().chars().any(char::is_control));
            prop_assert_eq!(unknown(&error), bad.values().flat_map(unknown).collect::<Vec<_>>());
            match &error.problems()[unknown(&error).len()..] {
                [other] if other.key().is_none() => prop_assert!(incomplete),
                wrong => {
                    let is_expected = |one: &Problem| match one {
                        Problem::Malformed { key, .. } => bad.contains_key(key.as_str()),
                        _ => incomplete,
                    };
                    prop_assert!(wrong.iter().all(is_expected));
                }
            }
        }
        let _ = from_map::<()>(&map);
        let _ = from_map::<BTreeMap<u8, Vec<u8>>>(&map);
        let _ = from_map::<serde_json::Value>(&map);
        hostile::read_all(&map);
    }
}
