use super::*;

#[tokio::test(start_paused = true)]
async fn a_new_object_gets_what_the_server_gives() {
    let cluster = Cluster::new();
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client("test"));
    let made = claims.create(&PostParams::default(), &claim("a")).await.unwrap();
    assert_eq!(made.namespace().as_deref(), Some("default"));
    assert_eq!(made.uid().unwrap().len(), 36);
    assert_eq!(made.creation_timestamp().unwrap().0.to_string(), "2030-01-01T00:00:00Z");
    assert_eq!(claims.get("a").await.unwrap(), made);
    assert_eq!(
        refusal(claims.create(&PostParams::default(), &claim("a")).await),
        (409, "persistentvolumeclaims \"a\" already exists".into())
    );
    assert_eq!(refusal(claims.get("b").await), (404, "persistentvolumeclaims \"b\" not found".into()));
}

#[tokio::test(start_paused = true)]
async fn what_a_new_object_may_not_say() {
    let cluster = Cluster::new();
    let client = cluster.client("test");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut with_version = settings("a", &[]);
    with_version.metadata.resource_version = Some("5".into());
    assert_eq!(
        refusal(maps.create(&PostParams::default(), &with_version).await),
        (500, "resourceVersion should not be set on objects to be created".into())
    );
    let mut elsewhere = settings("a", &[]);
    elsewhere.metadata.namespace = Some("other".into());
    let wrong = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(refusal(maps.create(&PostParams::default(), &elsewhere).await), (400, wrong.into()));
    let missing: Api<ConfigMap> = Api::namespaced(client, "missing");
    assert_eq!(
        refusal(missing.create(&PostParams::default(), &settings("a", &[])).await),
        (404, "namespaces \"missing\" not found".into())
    );
}

#[tokio::test(start_paused = true)]
async fn names_are_generated_from_the_seed() {
    let made = |seed| async move {
        let cluster = Cluster::builder().seed(seed).build();
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
        let mut wanted = settings("", &[]);
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
async fn updates_are_checked_against_the_newest_state() {
    let cluster = Cluster::new();
    let client = cluster.client("test");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let first = maps.create(&PostParams::default(), &settings("a", &[])).await.unwrap();
    let mut second = first.clone();
    second.data.get_or_insert_default().insert("b".into(), "2".into());
    let second = maps.replace("a", &PostParams::default(), &second).await.unwrap();
    assert!(second.resource_version() > first.resource_version());
    assert_eq!(
        refusal(maps.replace("a", &PostParams::default(), &first).await),
        (
            409,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to \
             the latest version and try again"
                .into()
        )
    );
    // An update without changes does not write.
    let same = maps.replace("a", &PostParams::default(), &second).await.unwrap();
    assert_eq!(same.resource_version(), second.resource_version());
    // An update without a resourceVersion is unconditional, if the resource allows it.
    let mut blind = first.clone();
    blind.metadata.resource_version = None;
    assert!(maps.replace("a", &PostParams::default(), &blind).await.is_ok());
    blind.metadata.uid = Some("x".into());
    let (code, message) = refusal(maps.replace("a", &PostParams::default(), &blind).await);
    assert_eq!(code, 409);
    assert!(
        message.ends_with(&format!("UID in precondition: x, UID in object meta: {}", first.uid().unwrap())),
        "{message}"
    );
    let lease = json!({"metadata": {"name": "l"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    assert_eq!(raw(&client, "POST", path, lease.clone()).await.0, 201);
    let (code, status) = raw(&client, "PUT", &format!("{path}/l"), lease).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (
            422,
            "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified \
             for an update"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn patches_meet_conflicts_only_if_they_ask_for_them() {
    let cluster = Cluster::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    let first = maps.create(&PostParams::default(), &settings("a", &[])).await.unwrap();
    let merge = |patch: Value| {
        let maps = maps.clone();
        async move { maps.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await }
    };
    let second = merge(json!({"data": {"b": "2"}})).await.unwrap();
    assert_eq!(second.data.unwrap().len(), 2);
    let version = first.resource_version();
    let (code, _) = refusal(merge(json!({"metadata": {"resourceVersion": version}, "data": {"c": "3"}})).await);
    assert_eq!(code, 409);
    let (code, message) = refusal(merge(json!({"metadata": {"name": "b"}})).await);
    assert_eq!((code, message.as_str()), (400, "the name of the object (b) does not match the name on the URL (a)"));
    let nothing = merge(json!({"data": {"b": "2"}})).await.unwrap();
    assert_eq!(nothing.resource_version(), second.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn the_status_has_its_own_path() {
    let cluster = Cluster::new();
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client("test"));
    claims.create(&PostParams::default(), &claim("a")).await.unwrap();
    let patch = json!({"metadata": {"labels": {"l": "v"}}, "status": {"phase": "Bound"}});
    let by_object = claims.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(by_object.status.unwrap().phase.as_deref(), Some("Pending"));
    let by_status = claims.patch_status("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(by_status.status.unwrap().phase.as_deref(), Some("Bound"));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing() {
    let cluster = Cluster::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    let before = cluster.resource_version();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    assert_eq!(maps.create(&dry, &settings("a", &[])).await.unwrap().name_any(), "a");
    assert_eq!((refusal(maps.get("a").await).0, cluster.resource_version()), (404, before));
}

#[tokio::test(start_paused = true)]
async fn events_are_one_set_under_two_names() {
    let cluster = Cluster::new();
    let client = cluster.client("test");
    let new: Api<NewEvent> = Api::default_namespaced(client.clone());
    let event: NewEvent = from(json!({
        "metadata": {"name": "e"}, "eventTime": "2030-01-01T00:00:00.000000Z", "reason": "Provisioned", "note": "done",
        "action": "Provision", "type": "Normal", "reportingController": "example.com/p", "reportingInstance": "p-0",
        "regarding": {"kind": "PersistentVolumeClaim", "name": "a", "namespace": "default"},
    }));
    assert_eq!(new.create(&PostParams::default(), &event).await.unwrap().note.as_deref(), Some("done"));
    let old: Api<Event> = Api::default_namespaced(client);
    let selected = old.list(&ListParams::default().fields("involvedObject.name=a,reason=Provisioned")).await.unwrap();
    assert_eq!(selected.items[0].message.as_deref(), Some("done"));
    let series = json!({"series": {"count": 2, "lastObservedTime": "2030-01-01T00:00:01.000000Z"}});
    let patched = new.patch("e", &PatchParams::default(), &Patch::Merge(series)).await.unwrap();
    assert_eq!(patched.series.unwrap().count, 2);
    assert_eq!(old.get("e").await.unwrap().series.unwrap().count, Some(2));
    // Only core/v1 allows changes of other fields of an event.
    let refused = refusal(new.patch("e", &PatchParams::default(), &Patch::Merge(json!({"note": "again"}))).await);
    assert_eq!(refused, (422, "Event \"e\" is invalid: message: Invalid value: \"again\": field is immutable".into()));
    let patched = old.patch("e", &PatchParams::default(), &Patch::Merge(json!({"message": "again"}))).await.unwrap();
    assert_eq!(patched.message.as_deref(), Some("again"));
}

#[tokio::test(start_paused = true)]
async fn paths_that_lead_nowhere() {
    let cluster = Cluster::new();
    let client = cluster.client("test");
    let cases = [
        ("GET", "/api/v1/nonsense", 404, "the server could not find the requested resource"),
        ("GET", "/api/v1/persistentvolumes/a/nonsense", 404, "the server could not find the requested resource"),
        ("POST", "/api/v1/configmaps", 405, "the server does not allow this method on the requested resource"),
        ("DELETE", "/api/v1/namespaces", 405, "the server does not allow this method on the requested resource"),
        (
            "GET",
            "/apis/apps/v1/namespaces/d/deployments/a/scale",
            501,
            "not implemented by kube-sim: the subresource deployments/scale",
        ),
        ("GET", "/metrics", 501, "not implemented by kube-sim: the path /metrics"),
    ];
    for (method, path, code, message) in cases {
        let (actual, status) = raw(&client, method, path, Value::Null).await;
        assert_eq!((actual, status["message"].as_str().unwrap()), (code, message), "{method} {path}");
    }
    assert_eq!(raw(&client, "GET", "/apis/x.io/v1/things", Value::Null).await, (404, "404 page not found\n".into()));
    assert_eq!(raw(&client, "GET", "/readyz", Value::Null).await, (200, "ok".into()));
    assert_eq!(raw(&client, "GET", "/version", Value::Null).await.1["minor"], "37");
    let large = json!({"metadata": {"name": "a"}, "data": {"a": "x".repeat(4 << 20)}});
    let (code, status) = raw(&client, "POST", "/api/v1/namespaces/default/configmaps", large).await;
    assert_eq!((code, status["message"].as_str().unwrap()), (413, "Request entity too large: limit is 3145728"));
}

#[tokio::test(start_paused = true)]
async fn access_reviews_say_yes_where_nobody_says_no() {
    let cluster = Cluster::new();
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, answer) = raw(&cluster.client("test"), "POST", path, review).await;
    assert_eq!((code, answer["status"]["allowed"].as_bool()), (201, Some(true)));
}

#[tokio::test(start_paused = true)]
async fn direct_calls_and_subscriptions_see_the_same_cluster() {
    let cluster = Cluster::new();
    let mut changes = cluster.subscribe(&[("", "configmaps")]);
    cluster.create(&settings("a", &[])).unwrap();
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
async fn who_owns_which_fields_is_shown_unless_it_is_hidden() {
    for (cluster, shown) in [(Cluster::new(), true), (Cluster::builder().hide_managed_fields().build(), false)] {
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
        let by = |manager: &str| PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        maps.create(&PostParams { field_manager: Some("maker".into()), ..PostParams::default() }, &settings("a", &[]))
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
async fn owners_outlive_the_states_they_follow_from() {
    let cluster = Cluster::builder().history(2).build();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    let by = |manager: &str| PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    maps.create(&PostParams { field_manager: Some("maker".into()), ..PostParams::default() }, &settings("a", &[]))
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
async fn a_source_of_another_namespace_is_dropped_unless_its_gate_is_on() {
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
