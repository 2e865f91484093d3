use super::*;

#[tokio::test(start_paused = true)]
async fn only_scheduled_pods_receive_a_grace_period() {
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
