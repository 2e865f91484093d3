//! Media types of answers and bodies.

use super::*;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn cells(table: &Value) -> Vec<Value> {
    table["rows"].as_array().unwrap().iter().map(|row| row["cells"].clone()).collect()
}

fn columns(table: &Value) -> Vec<&str> {
    table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn prints_tables_of_claims_and_volumes() {
    let served = Served::new(Cluster::new()).await;
    served
        .cluster
        .create(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
            "spec": {
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "capacity": {"storage": "1024Mi"},
                "claimRef": {"namespace": "default", "name": "c"}, "storageClassName": "fast",
                "nfs": {"server": "s", "path": "/p"},
            },
        }))
        .unwrap();
    served
        .cluster
        .create(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .unwrap();
    let (_, table) = served.get("/api/v1/persistentvolumes", TABLE).await;
    assert_eq!(table["kind"], "Table");
    let expected =
        json!(["v", "1Gi", "RWO,RWX", "Retain", "Pending", "default/c", "fast", "<unset>", "", "0s", "Filesystem"]);
    assert_eq!(cells(&table), [expected]);
    let expected = [
        "Name",
        "Capacity",
        "Access Modes",
        "Reclaim Policy",
        "Status",
        "Claim",
        "StorageClass",
        "VolumeAttributesClass",
        "Reason",
        "Age",
        "VolumeMode",
    ];
    assert_eq!(columns(&table), expected);
    let (_, table) = served.get("/api/v1/namespaces/default/persistentvolumeclaims/c", TABLE).await;
    assert_eq!(cells(&table), [json!(["c", "Pending", "", "", "", "", "<unset>", "0s", "Filesystem"])]);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "c");
}

#[tokio::test]
async fn custom_resource_tables_have_the_columns_of_their_definition() {
    let served = Served::new(Cluster::new()).await;
    served
        .cluster
        .create(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                    "additionalPrinterColumns": [
                        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[0].status"},
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
                    ],
                }],
            },
        }))
        .unwrap();
    let thing = |name: &str, rest: Value| {
        let mut thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}});
        thing.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        served.cluster.create(&thing).unwrap();
    };
    // Indices are not supported.
    thing("a", json!({"spec": {"color": "red", "size": 3}, "status": {"conditions": [{"status": "True"}]}}));
    thing("b", json!({}));
    let (_, table) = served.get("/apis/example.com/v1/things", TABLE).await;
    assert_eq!(columns(&table), ["Name", "Color", "Ready", "Size"]);
    assert_eq!(cells(&table), [json!(["a", "red", null, 3]), json!(["b", null, null, null])]);
}

#[tokio::test]
async fn only_the_first_table_of_a_watch_has_columns() {
    let served = Served::new(Cluster::new()).await;
    served.cluster.create(&settings("a")).unwrap();
    served.cluster.create(&settings("b")).unwrap();
    let path = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0";
    let (code, _, text) = served.ask(http::Request::get(path).header(ACCEPT, TABLE), "").await;
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, events.len()), (200, 2));
    assert_eq!(columns(&events[0]["object"]), ["Name", "Data", "Age"]);
    assert_eq!(events[1]["object"]["columnDefinitions"], Value::Null);
    assert_eq!(cells(&events[1]["object"]), [json!(["b", 1, "0s"])]);
}

#[tokio::test]
async fn include_object_selects_the_object_of_a_row() {
    let served = Served::new(Cluster::new()).await;
    served.cluster.create(&settings("a")).unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    let (_, table) = served.get(&format!("{path}?includeObject=Object"), TABLE).await;
    let object = &table["rows"][0]["object"];
    assert_eq!(
        (&object["kind"], &object["apiVersion"], &object["data"]),
        (&json!("ConfigMap"), &json!("v1"), &json!({"a": "1"}))
    );
    let (_, table) = served.get(&format!("{path}?includeObject=None"), TABLE).await;
    assert_eq!(table["rows"][0]["object"], Value::Null);
    let (code, refusal) = served.get(&format!("{path}?includeObject=Foo"), TABLE).await;
    let expected = "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', \
                    'Object', 'None', or empty";
    assert_eq!((code, refusal["message"].as_str()), (400, Some(expected)));
}

#[tokio::test]
async fn accepts_and_returns_yaml() {
    let served = Served::new(Cluster::new()).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let yaml = "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\ndata:\n  key: 'yes'\n";
    let request = http::Request::post(path).header(CONTENT_TYPE, "application/yaml").header(ACCEPT, "application/yaml");
    let (code, content_type, text) = served.ask(request, yaml).await;
    assert_eq!((code, content_type.as_str()), (201, "application/yaml"));
    let created: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!((&created["kind"], &created["data"]), (&json!("ConfigMap"), &json!({"key": "yes"})));
    let request = http::Request::patch(format!("{path}/b?fieldManager=me"));
    let request = request.header(CONTENT_TYPE, "application/apply-patch+yaml");
    let (code, _, _) = served.ask(request, &yaml.replace("name: a", "name: b")).await;
    assert_eq!(code, 201);
    assert_eq!(served.cluster.get("", "configmaps", "default", "b").unwrap()["data"], json!({"key": "yes"}));
}

#[tokio::test]
async fn rejects_unsupported_media_types() {
    let served = Served::new(Cluster::new()).await;
    let (code, _, text) =
        served.ask(http::Request::post("/api/v1/namespaces").header(CONTENT_TYPE, "application/cbor"), "x").await;
    let refusal: Value = serde_json::from_str(&text).unwrap();
    let expected = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, \
                    application/vnd.kubernetes.protobuf";
    assert_eq!((code, refusal["message"].as_str()), (415, Some(expected)));
    let (code, refusal) = served.get("/api/v1/namespaces", "application/vnd.kubernetes.protobuf").await;
    let expected = "only the following media types are accepted: application/json, application/yaml";
    assert_eq!((code, refusal["message"].as_str()), (406, Some(expected)));
    let (code, list) = served.get("/api/v1/namespaces", "application/vnd.kubernetes.protobuf,application/json").await;
    assert_eq!((code, &list["kind"]), (200, &json!("NamespaceList")));
}
