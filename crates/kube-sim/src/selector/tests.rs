use serde_json::json;

use super::*;
use crate::resource::Resource;

#[test]
fn label_selectors_match_like_the_server() {
    let labels = |key: &str| match key {
        "app" => Some("web"),
        "tier" => Some("5"),
        "in" => Some(""),
        _ => None,
    };
    for (selector, matches) in [
        ("other!=web", true),
        (" app notin ( db , web )", false),
        ("other notin (x)", true),
        ("tier>4,tier<6", true),
        ("tier>5", false),
        ("app>1", false),
        ("in in ()", true),
        ("in=", true),
        ("app in (x,)", false),
        ("in in (x,)", true),
    ] {
        let parsed = LabelSelector::parse(selector).unwrap_or_else(|error| panic!("{selector}: {}", error.message));
        assert_eq!(parsed.matches(labels), matches, "{selector}");
    }
}

#[test]
fn rejects_label_selectors_with_server_errors() {
    // Recorded from kube-apiserver 1.37.1.
    for (selector, message) in [
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b,", "found '', expected: identifier after ','"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be \
             an integer",
        ),
        (
            "-a",
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
             'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "a=-b",
            "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be an empty string or \
             consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
             (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a notin (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("/a", "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty"),
        ("(", "found '(', expected: !, identifier, or 'end of string'"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
    ] {
        let error = LabelSelector::parse(selector).expect_err(selector);
        assert_eq!((error.code, error.message.as_str()), (400, message), "{selector}");
    }
}

#[test]
fn converts_label_selector_objects() {
    assert_eq!(LabelSelector::from_object(None), None);
    assert!(LabelSelector::from_object(Some(&json!({}))).is_some_and(|selector| selector.is_empty()));
    let selector = json!({
        "matchLabels": {"a": "1"},
        "matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["x"]}, {"key": "c", "operator": "DoesNotExist"}],
    });
    let selector = LabelSelector::from_object(Some(&selector)).unwrap();
    for (labels, matches) in [
        (json!({"a": "1"}), true),
        (json!({"a": "1", "b": "y"}), true),
        (json!({"a": "1", "b": "x"}), false),
        (json!({"a": "1", "c": ""}), false),
        (json!({}), false),
    ] {
        assert_eq!(selector.matches(|key| labels.get(key)?.as_str()), matches, "{labels}");
    }
}

#[test]
fn field_selectors_match_the_stored_object() {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
    });
    let event = json!({"metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"name": "c"},
                       "reportingComponent": "prov"});
    let (pods, core, newer) =
        (Resource::builtin("", "pods"), Resource::builtin("", "events"), Resource::builtin("events.k8s.io", "events"));
    for (resource, object, selector, matches) in [
        (&pods, &pod, "", true),
        (&pods, &pod, "metadata.name=p,metadata.namespace=n", true),
        (&pods, &pod, "metadata.name!=p", false),
        (&pods, &pod, "spec.nodeName=node-1,status.phase!=Failed", true),
        (&pods, &pod, "spec.host=node-1", true),
        (&pods, &pod, "spec.nodeName=", false),
        (&pods, &pod, "status.nominatedNodeName=", true),
        (&pods, &pod, "spec.hostNetwork=false", true),
        (&pods, &pod, "status.podIP=10.0.0.1", true),
        (&core, &event, "involvedObject.name=c,source=prov", true),
        (&newer, &event, "regarding.name==c,reportingController=prov", true),
        (&newer, &event, "regarding.name=d", false),
    ] {
        let parsed = FieldSelector::parse(selector, resource, &[]).unwrap();
        assert_eq!(parsed.matches(object), matches, "{selector}");
    }
    let named = FieldSelector::parse("metadata.name=a,metadata.namespace!=b", &pods, &[]).unwrap();
    assert_eq!((named.name(), named.namespace(), named.uses_only_names()), (Some("a"), None, true));
    assert!(named.matches_name("c", "a") && !named.matches_name("b", "a") && !named.matches_name("c", "b"));
}

#[test]
fn rejects_field_selectors_with_server_errors() {
    for (group, plural, selector, message) in [
        (
            "",
            "persistentvolumes",
            "spec.x=y",
            r#""spec.x" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
        ("", "persistentvolumes", "x", "invalid selector: 'x'; can't understand 'x'"),
        ("", "persistentvolumes", "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("", "persistentvolumes", r"metadata.name=a\x", r"invalid field selector: invalid escape sequence: \x"),
        ("", "events", "foo=x", "field label not supported: foo"),
        ("events.k8s.io", "events", "source=x", "field label not supported: source"),
        ("", "pods", "spec.x=1", "field label not supported: spec.x"),
        ("", "nodes", "metadata.namespace=1", "field label not supported: metadata.namespace"),
        (
            "apps",
            "deployments",
            "spec.x=1",
            r#""spec.x" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
    ] {
        let error = FieldSelector::parse(selector, &Resource::builtin(group, plural), &[]).expect_err(selector);
        assert_eq!((error.code, error.message.as_str()), (400, message), "{selector}");
    }
}

#[test]
fn custom_resources_declare_selectable_fields() {
    let custom = Resource { custom: true, ..(*Resource::builtin("", "configmaps")).clone() };
    let selectable = ["spec.color".to_owned()];
    let selector = FieldSelector::parse("spec.color=red", &custom, &selectable).unwrap();
    assert!(selector.matches(&json!({"spec": {"color": "red"}})) && !selector.matches(&json!({})));
    let refused = FieldSelector::parse("spec.size=1", &custom, &selectable).unwrap_err();
    assert_eq!(refused.message, "field label not supported: spec.size");
}
