use super::*;

async fn filled(count: usize) -> (Cluster, Api<ConfigMap>) {
    let cluster = Cluster::new();
    for index in 0..count {
        cluster
            .create(&settings(&format!("m{index:02}"), &[("even", if index % 2 == 0 { "yes" } else { "no" })]))
            .unwrap();
    }
    let maps = Api::default_namespaced(cluster.client("test"));
    (cluster, maps)
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_moment() {
    let (cluster, maps) = filled(5).await;
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!((names(&first.items), first.metadata.remaining_item_count), (vec!["m00".into(), "m01".into()], Some(3)));
    cluster.create(&settings("m02x", &[])).unwrap();
    maps.delete("m03", &DeleteParams::default()).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let second = maps.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!(names(&second.items), ["m02", "m03"]);
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
    let token = second.metadata.continue_.unwrap();
    let third = maps.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!((names(&third.items), third.metadata.continue_), (vec!["m04".into()], None));
    assert_eq!(names(&maps.list(&ListParams::default()).await.unwrap().items), ["m00", "m01", "m02", "m02x", "m04"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_says_how_to_go_on() {
    let (cluster, maps) = filled(3).await;
    let client = cluster.client("test");
    let first = maps.list(&ListParams::default().limit(1)).await.unwrap();
    maps.delete("m01", &DeleteParams::default()).await.unwrap();
    cluster.forget_history();
    let path = |token: &str| format!("/api/v1/namespaces/default/configmaps?limit=5&continue={token}");
    let (code, status) = raw(&client, "GET", &path(&first.metadata.continue_.unwrap()), Value::Null).await;
    assert_eq!((code, status["reason"].as_str()), (410, Some("Expired")));
    assert!(status["message"].as_str().unwrap().starts_with("The provided continue parameter is too old"));
    let (code, rest) = raw(&client, "GET", &path(status["metadata"]["continue"].as_str().unwrap()), Value::Null).await;
    assert_eq!((code, rest["items"][0]["metadata"]["name"].as_str()), (200, Some("m02")));
}

#[tokio::test(start_paused = true)]
async fn resource_versions_of_lists() {
    let (cluster, maps) = filled(3).await;
    let client = cluster.client("test");
    let middle = maps.get("m01").await.unwrap().resource_version().unwrap();
    let list = |query: String| {
        let client = client.clone();
        async move { raw(&client, "GET", &format!("/api/v1/configmaps?{query}"), Value::Null).await }
    };
    let count = |answer: &Value| answer["items"].as_array().map(Vec::len);
    let (_, exact) = list(format!("resourceVersion={middle}&resourceVersionMatch=Exact")).await;
    assert_eq!((count(&exact), exact["metadata"]["resourceVersion"].as_str()), (Some(2), Some(middle.as_str())));
    let (_, fresh) = list(format!("resourceVersion={middle}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(count(&fresh), Some(3));
    // The watch cache answers for version 0, and does not paginate.
    assert_eq!(count(&list("resourceVersion=0&limit=1".into()).await.1), Some(3));
    let before = Instant::now();
    let (code, status) = list("resourceVersion=1000000".into()).await;
    assert_eq!((code, before.elapsed()), (504, Duration::from_secs(3)));
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    cluster.forget_history();
    cluster.create(&settings("later", &[])).unwrap();
    let (code, status) = list(format!("resourceVersion={middle}&resourceVersionMatch=Exact")).await;
    assert_eq!(
        (code, status["message"].as_str()),
        (410, Some("The resourceVersion for the provided list is too old."))
    );
    let (code, status) = list("resourceVersionMatch=Exact".into()).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden \
             unless resourceVersion is provided"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn selectors() {
    let (cluster, maps) = filled(4).await;
    let even = maps.list(&ListParams::default().labels("even=yes").limit(1)).await.unwrap();
    assert_eq!((names(&even.items), even.metadata.remaining_item_count), (vec!["m00".into()], None));
    assert!(even.metadata.continue_.is_some());
    assert_eq!(names(&maps.list(&ListParams::default().fields("metadata.name=m03")).await.unwrap().items), ["m03"]);
    let all: Api<ConfigMap> = Api::all(cluster.client("test"));
    assert_eq!(all.list(&ListParams::default().fields("metadata.namespace=default")).await.unwrap().items.len(), 4);
    assert_eq!(all.list(&ListParams::default().fields("metadata.namespace=other")).await.unwrap().items.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_metadata() {
    let (cluster, _) = filled(2).await;
    let maps: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(cluster.client("test"));
    let list = maps.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!((list.items.len(), list.items[0].labels()["even"].as_str()), (2, "yes"));
    assert_eq!(maps.get_metadata("m01").await.unwrap().name_any(), "m01");
}
