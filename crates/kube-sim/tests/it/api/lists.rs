use super::*;

async fn filled(count: usize) -> (Cluster, Api<ConfigMap>) {
    let cluster = Cluster::new();
    for index in 0..count {
        cluster.create(&settings(&format!("m{index:02}"))).unwrap();
    }
    let maps = Api::default_namespaced(cluster.client("test"));
    (cluster, maps)
}

#[tokio::test(start_paused = true)]
async fn expired_page_returns_a_new_continue_token() {
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
async fn rejects_future_and_compacted_resource_versions() {
    let (cluster, maps) = filled(3).await;
    let client = cluster.client("test");
    let middle = maps.get("m01").await.unwrap().resource_version().unwrap();
    let list = |query: String| {
        let client = client.clone();
        async move { raw(&client, "GET", &format!("/api/v1/configmaps?{query}"), Value::Null).await }
    };
    let before = Instant::now();
    let (code, status) = list("resourceVersion=1000000".into()).await;
    assert_eq!((code, before.elapsed()), (504, Duration::from_secs(3)));
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    cluster.forget_history();
    cluster.create(&settings("later")).unwrap();
    let (code, status) = list(format!("resourceVersion={middle}&resourceVersionMatch=Exact")).await;
    assert_eq!(
        (code, status["message"].as_str()),
        (410, Some("The resourceVersion for the provided list is too old."))
    );
}
