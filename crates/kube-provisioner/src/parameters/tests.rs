use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};

use super::*;

mod any_map;
mod hostile;

#[derive(Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum OnDelete {
    #[default]
    Delete,
    Archive,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Everything {
    server: String,
    #[serde(default)]
    on_delete: OnDelete,
    #[serde(alias = "bytes")]
    size: u16,
    signed: Option<i64>,
    huge: Option<u128>,
    ratio: Option<f64>,
    read_only: Option<bool>,
    separator: Option<char>,
    #[serde(default)]
    zones: Vec<String>,
    ports: Option<Vec<u16>>,
    policies: Option<BTreeSet<OnDelete>>,
    pair: Option<(u8, u8)>,
    path: Option<PathBuf>,
    address: Option<IpAddr>,
    replicas: Option<NonZeroU16>,
    timeout: Option<Seconds>,
    wrapped: Option<Wrapped>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Wrapped(u8);

/// A typical custom type of a provisioner: `90s`.
#[derive(Debug, PartialEq)]
struct Seconds(u64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = text.strip_suffix('s').and_then(|number| number.parse().ok());
        number.map(Self).ok_or_else(|| D::Error::custom("expected seconds such as 90s"))
    }
}

fn read<T: DeserializeOwned>(pairs: &[(&str, &str)]) -> Result<T, String> {
    let map = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    from_map(&map).map_err(|error| error.to_string())
}

fn complaints<T: DeserializeOwned>(pairs: &[(&str, &str)]) -> Vec<String> {
    let map = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    match from_map::<T>(&map) {
        Ok(_) => vec![],
        Err(error) => error.problems().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn parses_each_supported_type() {
    let everything: Everything = read(&[
        ("address", "2001:db8::1"),
        ("csi.storage.k8s.io/fstype", "ext4"),
        ("huge", "340282366920938463463374607431768211455"),
        ("onDelete", "archive"),
        ("pair", "1,2"),
        ("path", "/a b"),
        ("policies", "archive, delete"),
        ("ports", " 80 , 443"),
        ("ratio", "-1.5e3"),
        ("readOnly", "true"),
        ("replicas", "3"),
        ("separator", "é"),
        ("server", "nfs, or not"),
        ("signed", "-9223372036854775808"),
        ("size", "65535"),
        ("timeout", "90s"),
        ("wrapped", "7"),
        ("zones", ""),
    ])
    .unwrap();
    assert_eq!(
        everything,
        Everything {
            server: "nfs, or not".into(),
            on_delete: OnDelete::Archive,
            size: 65535,
            signed: Some(i64::MIN),
            huge: Some(u128::MAX),
            ratio: Some(-1500.0),
            read_only: Some(true),
            separator: Some('é'),
            zones: vec![],
            ports: Some(vec![80, 443]),
            policies: Some(BTreeSet::from([OnDelete::Delete, OnDelete::Archive])),
            pair: Some((1, 2)),
            path: Some("/a b".into()),
            address: Some("2001:db8::1".parse().unwrap()),
            replicas: NonZeroU16::new(3),
            timeout: Some(Seconds(90)),
            wrapped: Some(Wrapped(7)),
        }
    );
}

#[test]
fn absent_keys_take_their_defaults() {
    let everything: Everything = read(&[("server", ""), ("bytes", "1")]).unwrap();
    assert_eq!((everything.server.as_str(), everything.size, everything.on_delete), ("", 1, OnDelete::Delete));
    assert_eq!((everything.zones, everything.ports, everything.timeout), (vec![], None, None));
}

#[test]
fn reports_malformed_values() {
    for (key, value, complaint) in [
        ("address", "nowhere", r#""nowhere" is not valid: invalid IP address syntax"#),
        ("huge", "-1", r#""-1" is not a whole number between 0 and 340282366920938463463374607431768211455"#),
        ("onDelete", "keep", r#""keep" is not one of "delete", "archive""#),
        ("onDelete", "", r#""" is not one of "delete", "archive""#),
        ("pair", "1", r#""1" is not a tuple of size 2"#),
        ("pair", "1,2,3", r#""1,2,3" has too many elements"#),
        ("policies", "delete,keep", r#""keep" is not one of "delete", "archive""#),
        ("ports", "80,http", r#""http" is not a whole number between 0 and 65535"#),
        ("ports", "80,,443", r#""80,,443" has an empty element"#),
        ("ports", "80,", r#""80," has an empty element"#),
        ("ratio", "NaN", r#""NaN" is not a number"#),
        ("ratio", "1e999", r#""1e999" is not a number"#),
        ("readOnly", "True", r#""True" is not "true" or "false""#),
        ("replicas", "0", r#""0" is not a nonzero u16"#),
        ("separator", "ab", r#""ab" is not a single character"#),
        ("signed", "", r#""" is not a whole number between -9223372036854775808 and 9223372036854775807"#),
        ("size", "ten", r#""ten" is not a whole number between 0 and 65535"#),
        ("size", " 1", r#"" 1" is not a whole number between 0 and 65535"#),
        ("timeout", "1m", r#""1m" is not valid: expected seconds such as 90s"#),
        ("wrapped", "256", r#""256" is not a whole number between 0 and 255"#),
    ] {
        let mut pairs = vec![("server", "a"), (key, value)];
        if key != "size" {
            pairs.push(("size", "1"));
        }
        assert_eq!(complaints::<Everything>(&pairs), [format!("parameter {key:?}: {complaint}")]);
    }
}

#[test]
fn reports_unknown_keys_before_other_problems() {
    let unknown = [r#"unknown parameter "onDelte" (did you mean "onDelete"?)"#, r#"unknown parameter "zz""#];
    let given = [("csi.storage.k8s.io/fstype", "ext4"), ("onDelte", "archive"), ("zz", "")];
    let with = |more: &[(&str, &str)], last: &str| {
        let expected = unknown.into_iter().chain((!last.is_empty()).then_some(last)).collect::<Vec<_>>();
        assert_eq!(complaints::<Everything>(&[&given, more].concat()), expected);
    };
    with(&[], r#"parameter "server" is required"#);
    with(&[("server", "a")], r#"parameter "size" is required"#);
    with(&[("server", "a"), ("size", "1")], "");
    let number = r#"parameter "ports": "x" is not a whole number between 0 and 65535"#;
    let no_time = complaints::<Everything>(&[("server", "a"), ("size", "1"), ("timeout", "x")]).remove(0);
    let all = complaints::<Everything>(&[&given, &[("timeout", "x"), ("ports", "x")][..]].concat());
    assert_eq!(all[2..], [number.to_owned(), no_time], "every malformed value is named");
    let error = read::<Everything>(&[("a", ""), ("size", "x")]).unwrap_err();
    let expected = r#"unknown parameter "a"; parameter "size": "x" is not a whole number between 0 and 65535"#;
    assert_eq!(error, expected);
}

#[test]
fn reports_problems_under_the_given_alias() {
    assert_eq!(
        complaints::<Everything>(&[("bytes", "x")]),
        [r#"parameter "bytes": "x" is not a whole number between 0 and 65535"#]
    );
    assert_eq!(
        complaints::<Everything>(&[("bytes", "1"), ("server", "a"), ("size", "1")]),
        [r#"parameter "size" is set twice, once under an alias"#]
    );
    #[derive(Debug, Deserialize)]
    struct Short {
        #[serde(alias = "b")]
        _a: u8,
    }
    assert_eq!(
        complaints::<Short>(&[("_a", "1"), ("b", "x")]),
        [r#"parameter "b" is an alias of "_a", which is already set"#]
    );
}

#[test]
fn unit_and_empty_structs_reject_all_parameters() {
    #[derive(Debug, Deserialize)]
    struct Unit;
    #[derive(Debug, Deserialize)]
    struct Braces {}
    let given = [("a", "1"), ("b", "2"), ("csi.storage.k8s.io/fstype", "ext4")];
    let expected = [r#"unknown parameter "a""#, r#"unknown parameter "b""#];
    assert_eq!(complaints::<()>(&given), expected);
    assert_eq!(complaints::<Unit>(&given), expected);
    assert_eq!(complaints::<Braces>(&given), expected);
    assert_eq!(read::<()>(&given[2..]), Ok(()));
    assert_eq!(read::<PhantomData<()>>(&[]), Ok(PhantomData));
}

#[test]
fn maps_accept_all_keys_except_reserved_ones() {
    let given = [("a", "1"), ("csi.storage.k8s.io/fstype", "ext4")];
    let expected = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    assert_eq!(read(&given), Ok(expected.clone()));
    #[derive(Debug, Deserialize, PartialEq)]
    struct Newtype(BTreeMap<String, String>);
    assert_eq!(read(&given), Ok(Newtype(expected.clone())));
    assert_eq!(read(&given), Ok(Some(expected)));
    assert!(read::<IgnoredAny>(&given).is_ok());
    assert_eq!(
        complaints::<BTreeMap<u8, u8>>(&[("1", "1"), ("2", "y"), ("x", "1")]),
        [
            r#"parameter "2": "y" is not a whole number between 0 and 255"#,
            r#"parameter "x": "x" is not a whole number between 0 and 255"#
        ]
    );
    assert_eq!(
        complaints::<BTreeMap<u8, u8>>(&[("x", "1")]),
        [r#"parameter "x": "x" is not a whole number between 0 and 255"#]
    );
}

#[test]
fn a_field_may_ignore_its_value() {
    #[derive(Debug, Deserialize)]
    struct Lenient {
        #[serde(rename = "legacy")]
        _legacy: IgnoredAny,
    }
    assert!(read::<Lenient>(&[("legacy", "x")]).is_ok());
    assert_eq!(complaints::<Lenient>(&[("legacz", "x")]).len(), 2);
}

#[test]
fn deny_unknown_fields_reports_the_same_problems() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        #[serde(rename = "size")]
        _size: u8,
    }
    assert_eq!(
        complaints::<Strict>(&[("a", ""), ("siz", "1"), ("z", "")]),
        [
            r#"unknown parameter "a""#,
            r#"unknown parameter "siz" (did you mean "size"?)"#,
            r#"unknown parameter "z""#,
            r#"parameter "size" is required"#
        ]
    );
}

#[test]
fn rejects_nested_values() {
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Fast,
        Slow(u8),
    }
    #[derive(Debug, Deserialize)]
    struct Nested {
        mode: Option<Mode>,
        #[serde(rename = "map")]
        _map: Option<BTreeMap<String, String>>,
        #[serde(rename = "lists")]
        _lists: Option<Vec<Vec<String>>>,
    }
    assert_eq!(read::<Nested>(&[("mode", "fast")]).unwrap().mode, Some(Mode::Fast));
    for (key, value) in [("lists", "a,b"), ("map", "a=b"), ("mode", "slow")] {
        let complaint = format!(
            "parameter {key:?}: the provisioner expects a nested value, but parameters can only be text, numbers, \
             true or false, names, and comma separated lists of these"
        );
        assert_eq!(complaints::<Nested>(&[(key, value)]), [complaint]);
    }
}

#[test]
fn flattened_fields_receive_strings() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Outer {
        size: u8,
        #[serde(flatten)]
        inner: Inner,
        #[serde(flatten)]
        rest: BTreeMap<String, String>,
    }
    #[derive(Debug, Deserialize, PartialEq)]
    struct Inner {
        server: String,
        on_delete: Option<OnDelete>,
    }
    let inner = Inner { server: "a".into(), on_delete: Some(OnDelete::Archive) };
    let rest = BTreeMap::from([("more".to_owned(), "b".to_owned())]);
    assert_eq!(
        read(&[("more", "b"), ("on_delete", "archive"), ("server", "a"), ("size", "1")]),
        Ok(Outer { size: 1, inner, rest })
    );
    assert_eq!(complaints::<Outer>(&[("server", "a")]), [r#"parameter "size" is required"#]);
}

#[test]
fn reports_the_error_of_a_try_from_conversion() {
    #[derive(Debug, Deserialize)]
    #[serde(try_from = "Bounds")]
    struct Range;
    #[derive(Deserialize)]
    struct Bounds {
        min: u8,
        max: u8,
    }
    impl TryFrom<Bounds> for Range {
        type Error = String;
        fn try_from(Bounds { min, max }: Bounds) -> Result<Self, String> {
            if min < max { Ok(Self) } else { Err(format!("min {min} must be\nbelow max {max}")) }
        }
    }
    assert!(read::<Range>(&[("max", "2"), ("min", "1")]).is_ok());
    assert_eq!(complaints::<Range>(&[("max", "1"), ("min", "2")]), [r"min 2 must be\nbelow max 1"]);
    assert_eq!(complaints::<Range>(&[("max", "1")]), [r#"parameter "min" is required"#]);
}

#[test]
fn messages_stay_short_and_printable() {
    let long = "x".repeat(100_000);
    let of = |more: [(&str, &str); 2]| read::<Everything>(&[&[("server", "a")], &more[..]].concat()).unwrap_err();
    let message = of([(&long, ""), ("size", &long)]);
    assert!(message.len() < 500, "{message}");
    assert!(message.contains(&format!("{:?}", format!("{}…", "x".repeat(64)))), "{message}");
    let message = of([("size", "1"), ("timeout", "\u{1b}[31m\n\u{202e}")]);
    assert!(message.contains(r#""\u{1b}[31m\n\u{202e}""#), "{message}");
}

#[test]
fn limits_the_number_of_reported_problems() {
    let many: BTreeMap<_, _> = (0..20_000).map(|index| (format!("key{index}"), "x".to_owned())).collect();
    assert_eq!(from_map::<()>(&many).unwrap_err().problems().len(), 64);
    assert_eq!(from_map::<BTreeMap<String, u8>>(&many).unwrap_err().problems().len(), 64);
}

#[test]
fn rejects_types_other_than_structs_and_maps() {
    assert_eq!(complaints::<u8>(&[]).len(), 1);
    assert_eq!(complaints::<String>(&[("a", "")]).len(), 1);
    assert_eq!(complaints::<OnDelete>(&[("a", "")]).len(), 1);
    assert_eq!(complaints::<Vec<u8>>(&[("a", "")]).len(), 1);
}
