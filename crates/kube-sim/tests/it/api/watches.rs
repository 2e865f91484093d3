use super::*;

fn kinds(events: &[WatchEvent<ConfigMap>]) -> Vec<String> {
    let kind = |event: &WatchEvent<ConfigMap>| match event {
        WatchEvent::Added(map) => format!("ADDED {}", map.name_any()),
        WatchEvent::Modified(map) => format!("MODIFIED {}", map.name_any()),
        WatchEvent::Deleted(map) => format!("DELETED {}", map.name_any()),
        WatchEvent::Bookmark(_) => "BOOKMARK".into(),
        WatchEvent::Error(status) => format!("ERROR {} {}", status.code, status.message),
    };
    events.iter().map(kind).collect()
}

#[tokio::test(start_paused = true)]
async fn compacted_version_yields_an_error_event() {
    let cluster = Cluster::builder().history(3).build();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    let version = cluster.resource_version();
    for index in 0..5 {
        cluster.create(&settings(&format!("m{index}"))).unwrap();
    }
    let stream = maps.watch(&WatchParams::default().timeout(5), &version.to_string()).await.unwrap();
    let events: Vec<_> = stream.try_collect().await.unwrap();
    assert_eq!(kinds(&events), [format!("ERROR 410 too old resource version: {version} ({})", version + 2)]);
}

#[tokio::test(start_paused = true)]
async fn sends_bookmarks_every_minute_and_before_the_end() {
    let cluster = Cluster::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    let mut stream = pin!(maps.watch(&WatchParams::default().timeout(150), "").await.unwrap());
    cluster.create(&volume("elsewhere")).unwrap();
    let start = Instant::now();
    let mut times = Vec::new();
    while let Some(event) = stream.next().await {
        let WatchEvent::Bookmark(bookmark) = event.unwrap() else { panic!("no bookmark") };
        assert_eq!(bookmark.metadata.resource_version, cluster.resource_version().to_string());
        times.push(start.elapsed().as_secs());
    }
    assert_eq!((times, start.elapsed().as_secs()), (vec![60, 120, 148], 150));
}

#[tokio::test(start_paused = true)]
async fn watch_times_out_within_an_hour() {
    let cluster = Cluster::new();
    let client = cluster.client("test");
    let request = http::Request::get("/api/v1/configmaps?watch=1&resourceVersion=0").body(kube::client::Body::empty());
    let start = Instant::now();
    let response = client.send(request.unwrap()).await.unwrap();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    assert!(body.to_bytes().is_empty());
    assert!((1800..=3600).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// Runs kube's watcher with both kinds of initial list.
#[tokio::test(start_paused = true)]
async fn kube_watcher_lists_and_then_watches() {
    let start: [fn() -> watcher::Config; 2] =
        [|| watcher::Config::default().page_size(2), || watcher::Config::default().streaming_lists()];
    for config in start {
        let cluster = Cluster::new();
        for name in ["a", "b", "c", "d", "e"] {
            cluster.create(&settings(name)).unwrap();
        }
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
        let mut stream = pin!(watcher(maps, config()));
        let mut seen = Vec::new();
        loop {
            match next(&mut stream).await.unwrap() {
                watcher::Event::InitApply(map) => seen.push(map.name_any()),
                watcher::Event::InitDone => break,
                watcher::Event::Init => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, ["a", "b", "c", "d", "e"]);
        cluster.create(&settings("f")).unwrap();
        let watcher::Event::Apply(map) = next(&mut stream).await.unwrap() else { panic!("no apply") };
        assert_eq!(map.name_any(), "f");
        cluster.create(&settings("g")).unwrap();
        let watcher::Event::Apply(_) = next(&mut stream).await.unwrap() else { panic!("no apply") };
    }
}
