use super::*;

#[tokio::test(start_paused = true)]
async fn names_are_generated_from_the_seed() {
    let made = |seed| async move {
        let cluster = Cluster::builder().seed(seed).build();
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
        let mut wanted = settings("");
        wanted.metadata.name = None;
        wanted.metadata.generate_name = Some("map-".into());
        let made = maps.create(&PostParams::default(), &wanted).await.unwrap();
        (made.name_any(), made.uid())
    };
    let (name, uid) = made(1).await;
    assert_eq!((name.len(), &name[..4]), (9, "map-"));
    assert_eq!(made(1).await, (name.clone(), uid));
    assert_ne!(made(2).await.0, name);
}

#[tokio::test(start_paused = true)]
async fn direct_calls_and_subscriptions_see_the_same_cluster() {
    let cluster = Cluster::new();
    let mut changes = cluster.subscribe(&[("", "configmaps")]);
    cluster.create(&settings("a")).unwrap();
    cluster.create(&volume("v")).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let created = changes.next().await;
    assert_eq!((created.kind, created.object().name()), (ChangeKind::Created, "a"));
    let deleted = changes.next().await;
    assert_eq!((deleted.kind, deleted.after.is_none()), (ChangeKind::Deleted, true));
    assert!(deleted.resource_version > created.resource_version);
    assert!(changes.try_next().is_none());
    let mut existing = cluster.subscribe_with_existing(&[("", "persistentvolumes")]);
    assert_eq!(existing.try_next().unwrap().object().name(), "v");
}

#[tokio::test(start_paused = true)]
async fn shows_field_owners_unless_hidden() {
    for (cluster, shown) in [(Cluster::new(), true), (Cluster::builder().hide_managed_fields().build(), false)] {
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
        let by = |manager: &str| PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        maps.create(&PostParams { field_manager: Some("maker".into()), ..PostParams::default() }, &settings("a"))
            .await
            .unwrap();
        maps.patch("a", &by("other"), &Patch::Merge(json!({"data": {"b": "2"}}))).await.unwrap();
        let managers = |map: &ConfigMap| -> Vec<String> {
            map.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect()
        };
        let listed = maps.list(&ListParams::default()).await.unwrap();
        let got = maps.get("a").await.unwrap();
        for map in [&listed.items[0], &got] {
            assert_eq!(managers(map), if shown { vec!["maker", "other"] } else { Vec::new() });
        }
        // Writing back an unchanged object does not change the owners.
        let same = maps.replace("a", &PostParams::default(), &got).await.unwrap();
        assert_eq!(same.resource_version(), got.resource_version());
        // Apply also conflicts with hidden owners.
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "9", "b": "9"}});
        let (code, message) = refusal(maps.patch("a", &PatchParams::apply("applier"), &Patch::Apply(&config)).await);
        assert_eq!(
            (code, message.as_str()),
            (
                409,
                "Apply failed with 2 conflicts: conflicts with \"maker\" using v1:\n- .data.a\nconflicts with \"other\" \
                 using v1:\n- .data.b"
            )
        );
        let forced = maps.patch("a", &PatchParams::apply("applier").force(), &Patch::Apply(&config)).await.unwrap();
        assert_eq!(managers(&forced), if shown { vec!["applier", "maker"] } else { Vec::new() });
        // An empty list resets the owners.
        let emptied = json!({"metadata": {"managedFields": []}});
        let emptied = maps.patch("a", &PatchParams::default(), &Patch::Merge(emptied)).await.unwrap();
        assert_eq!(managers(&emptied), [""; 0]);
        let (_, message) = refusal(
            maps.patch(
                "a",
                &PatchParams::apply("late"),
                &Patch::Apply(&json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"},
                })),
            )
            .await,
        );
        assert!(message.contains("before-first-apply"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn field_owners_survive_compaction_of_old_states() {
    let cluster = Cluster::builder().history(2).build();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    let by = |manager: &str| PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    maps.create(&PostParams { field_manager: Some("maker".into()), ..PostParams::default() }, &settings("a"))
        .await
        .unwrap();
    for number in 0..10 {
        let patch = json!({"data": {format!("k{number}"): "v"}});
        maps.patch("a", &by(&format!("m{number}")), &Patch::Merge(patch)).await.unwrap();
    }
    let map = maps.get("a").await.unwrap();
    let managers: Vec<&str> = map.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    // The server keeps at most ten managers with operation `Update`.
    assert_eq!(managers, ["ancient-changes", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "maker"]);
}

#[tokio::test(start_paused = true)]
async fn drops_cross_namespace_source_unless_gate_is_enabled() {
    let source = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "b", "namespace": "other"});
    let sources = |cluster: Cluster| {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "dataSourceRef": source,
            },
        });
        let spec = cluster.create(&claim).unwrap()["spec"].clone();
        ["dataSourceRef", "dataSource"].map(|field| spec.get(field).cloned())
    };
    assert_eq!(sources(Cluster::new()), [None, None]);
    let on = Cluster::builder().cross_namespace_data_sources().build();
    assert_eq!(sources(on), [Some(source.clone()), None]);
}
