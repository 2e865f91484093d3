use super::*;

#[tokio::test(start_paused = true)]
async fn answers_to_a_delete() {
    let cluster = Cluster::new();
    let client = cluster.client("test");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let made = maps.create(&PostParams::default(), &settings("a", &[])).await.unwrap();
    let status = maps.delete("a", &DeleteParams::default()).await.unwrap().right().expect("a status");
    let details = status.details.unwrap();
    assert_eq!((details.name.as_str(), details.kind.as_str(), details.uid), ("a", "configmaps", made.uid().unwrap()));
    assert_eq!(refusal(maps.delete("a", &DeleteParams::default()).await), (404, "configmaps \"a\" not found".into()));
    // A delete in the storage group answers with the object.
    let class = json!({"metadata": {"name": "c"}, "provisioner": "example.com/p"});
    assert_eq!(raw(&client, "POST", "/apis/storage.k8s.io/v1/storageclasses", class).await.0, 201);
    let (code, answer) = raw(&client, "DELETE", "/apis/storage.k8s.io/v1/storageclasses/c", Value::Null).await;
    assert_eq!((code, answer["kind"].as_str()), (200, Some("StorageClass")));
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object() {
    let cluster = Cluster::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    let mut held = settings("a", &[]);
    held.metadata.finalizers = Some(vec!["example.com/a".into(), "example.com/b".into()]);
    maps.create(&PostParams::default(), &held).await.unwrap();
    let marked = maps.delete("a", &DeleteParams::default()).await.unwrap().left().expect("the object");
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(0));
    let since = marked.metadata.deletion_timestamp.clone().unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    let again = maps.delete("a", &DeleteParams::default()).await.unwrap().left().expect("the object");
    assert_eq!(again, marked);
    let finalizers = |list: Value| {
        let maps = maps.clone();
        async move {
            let patch = json!({"metadata": {"finalizers": list}});
            maps.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await
        }
    };
    let half = finalizers(json!(["example.com/b"])).await.unwrap();
    assert_eq!(half.metadata.deletion_timestamp, Some(since));
    let last = finalizers(Value::Null).await.unwrap();
    assert_eq!(last.metadata.resource_version, half.metadata.resource_version);
    assert_eq!(refusal(maps.get("a").await).0, 404);
    assert_eq!(cluster.list("", "configmaps", None).unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn preconditions() {
    let cluster = Cluster::new();
    let volumes: Api<PersistentVolume> = Api::all(cluster.client("test"));
    let made = volumes.create(&PostParams::default(), &volume("v")).await.unwrap();
    let (uid, version) = (made.uid().unwrap(), made.resource_version().unwrap());
    let wanting = |uid: Option<&str>, resource_version: Option<&str>| DeleteParams {
        preconditions: Some(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: resource_version.map(str::to_owned),
        }),
        ..DeleteParams::default()
    };
    assert_eq!(
        refusal(volumes.delete("v", &wanting(Some("x"), None)).await),
        (
            409,
            format!(
                "Operation cannot be fulfilled on PersistentVolume \"v\": the UID in the precondition (x) does not match \
                 the UID in record ({uid}). The object might have been deleted and then recreated"
            )
        )
    );
    assert_eq!(
        refusal(volumes.delete("v", &wanting(Some(&uid), Some("1"))).await),
        (
            409,
            format!(
                "Operation cannot be fulfilled on PersistentVolume \"v\": the ResourceVersion in the precondition (1) does \
                 not match the ResourceVersion in record ({version}). The object might have been modified"
            )
        )
    );
    assert!(volumes.delete("v", &wanting(Some(&uid), Some(&version))).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn pods_are_given_time_once_they_run_somewhere() {
    let cluster = Cluster::new();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client("test"));
    let pod = |name: &str, node: Value| -> Pod {
        from(json!({"metadata": {"name": name},
                    "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}}))
    };
    pods.create(&PostParams::default(), &pod("waiting", Value::Null)).await.unwrap();
    pods.create(&PostParams::default(), &pod("running", json!("n"))).await.unwrap();
    pods.delete("waiting", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(pods.get("waiting").await).0, 404);
    pods.delete("running", &DeleteParams::default()).await.unwrap();
    let marked = pods.get("running").await.unwrap().metadata;
    assert_eq!(marked.deletion_grace_period_seconds, Some(30));
    assert_eq!(marked.deletion_timestamp.unwrap().0.to_string(), "2030-01-01T00:00:30Z");
    pods.delete("running", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(refusal(pods.get("running").await).0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_waits_for_its_finalizers() {
    let cluster = Cluster::new();
    let client = cluster.client("test");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let wanted: Namespace = from(json!({"metadata": {"name": "n"}}));
    namespaces.create(&PostParams::default(), &wanted).await.unwrap();
    let marked = namespaces.delete("n", &DeleteParams::default()).await.unwrap().left().expect("the object");
    assert_eq!(marked.status.unwrap().phase.as_deref(), Some("Terminating"));
    let mut object = cluster.get("", "namespaces", "", "n").unwrap();
    object["spec"]["finalizers"] = json!([]);
    let (code, _) = raw(&client, "PUT", "/api/v1/namespaces/n/finalize", object).await;
    assert_eq!((code, refusal(namespaces.get("n").await).0), (200, 404));
}

#[tokio::test(start_paused = true)]
async fn collections() {
    let cluster = Cluster::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        maps.create(&PostParams::default(), &settings(name, &[("app", app)])).await.unwrap();
    }
    let selected = ListParams::default().labels("app=x");
    let deleted = maps.delete_collection(&DeleteParams::default(), &selected).await.unwrap().left().expect("a list");
    assert_eq!(names(&deleted.items), ["a", "c"]);
    assert_eq!(names(&maps.list(&ListParams::default()).await.unwrap().items), ["b"]);
}
