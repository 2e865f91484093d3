use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube_sim::{
    After, Attributes, Authorizer, Before, Decision, Interceptor, Request, Status, Stored, Verb, WatchInterceptor,
    WatchStep,
};

use super::*;

/// An interceptor that acts by the name of the object.
struct Disturber;

impl Interceptor for Disturber {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        async move {
            match request.name.as_str() {
                "slow" => {
                    tokio::time::sleep(Duration::from_secs(7)).await;
                    Before::Handle
                }
                "refused" => Before::Refuse(Status::too_many_requests(3)),
                "broken" => Before::Break,
                "hanging" => Before::Hang,
                _ => Before::Handle,
            }
        }
        .boxed()
    }

    fn after<'a>(&'a self, request: &'a Request, _: u16) -> BoxFuture<'a, After> {
        let lost = request.verb == Verb::Delete && request.name == "lost";
        std::future::ready(if lost { After::Break } else { After::Deliver }).boxed()
    }

    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        (request.user.as_ref() == "watched").then(|| Box::new(Steps(0)) as Box<dyn WatchInterceptor>)
    }
}

/// Delays the second event and refuses the fourth.
struct Steps(usize);

impl WatchInterceptor for Steps {
    fn event(&mut self, _: &'static str, _: &Stored) -> WatchStep {
        self.0 += 1;
        match self.0 {
            2 => WatchStep::Delay(Duration::from_secs(5)),
            4 => WatchStep::Refuse(Status::expired("too old resource version: 1 (2)")),
            _ => WatchStep::Deliver,
        }
    }
}

fn disturbed() -> Cluster {
    Cluster::builder().interceptor(Arc::new(Disturber)).build()
}

#[tokio::test(start_paused = true)]
async fn interceptor_delays_refuses_breaks_and_hangs_requests() {
    let cluster = disturbed();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("test"));
    for name in ["slow", "refused", "broken", "lost"] {
        cluster.create(&settings(name)).unwrap();
    }
    let start = Instant::now();
    assert_eq!(maps.get("slow").await.unwrap().name_any(), "slow");
    assert_eq!(start.elapsed(), Duration::from_secs(7));
    assert_eq!(refusal(maps.get("refused").await), (429, "Too many requests, please try again later.".into()));
    assert!(matches!(maps.get("broken").await, Err(kube::Error::Service(_))));
    assert!(tokio::time::timeout(Duration::from_secs(1000), maps.get("hanging")).await.is_err());
    // The client receives no answer, but the object is deleted.
    assert!(matches!(maps.delete("lost", &DeleteParams::default()).await, Err(kube::Error::Service(_))));
    assert_eq!(refusal(maps.get("lost").await).0, 404);
}

#[tokio::test(start_paused = true)]
async fn watch_interceptor_delays_and_refuses_events() {
    let cluster = disturbed();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client("watched"));
    let mut stream = pin!(maps.watch(&WatchParams::default(), "").await.unwrap());
    for name in ["a", "b", "c", "d", "e"] {
        cluster.create(&settings(name)).unwrap();
    }
    let start = Instant::now();
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await {
        let name = match event.unwrap() {
            WatchEvent::Added(map) => map.name_any(),
            WatchEvent::Error(status) => status.code.to_string(),
            other => panic!("{other:?}"),
        };
        seen.push((name, start.elapsed().as_secs()));
    }
    let expected = [("a", 0), ("b", 5), ("c", 5), ("410", 5)];
    assert_eq!(seen, expected.map(|(name, time)| (name.to_owned(), time)));
}

#[tokio::test(start_paused = true)]
async fn edits_objects_for_one_client_only() {
    let cluster = Cluster::new();
    let edit = |object: &mut Value| {
        if object["metadata"]["name"] == "odd" {
            object["data"] = json!({"edited": "yes"});
        }
    };
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(cluster.service("test").edit(edit), "default"));
    for name in ["even", "odd"] {
        cluster.create(&settings(name)).unwrap();
    }
    let is_edited = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data.contains_key("edited"));
    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.iter().map(is_edited).collect::<Vec<_>>(), [false, true]);
    assert!(is_edited(&maps.get("odd").await.unwrap()) && !is_edited(&maps.get("even").await.unwrap()));
    let watch = maps.watch(&WatchParams::default(), "0").await.unwrap();
    let watched: Vec<_> = watch.take(2).try_collect().await.unwrap();
    let edited = |event: &WatchEvent<ConfigMap>| matches!(event, WatchEvent::Added(map) if is_edited(map));
    assert_eq!(watched.iter().filter(|event| edited(event)).count(), 1);
    assert!(cluster.get("", "configmaps", "default", "odd").unwrap()["data"]["edited"].is_null());
}

/// Allows all reads.
struct Readers;

impl Authorizer for Readers {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let reads = matches!(attributes.verb, "get" | "list" | "watch");
        Decision { allowed: reads || attributes.group == "authorization.k8s.io", reason: String::new() }
    }

    fn rules(&self, _: &str, _: &[String], _: &str) -> Value {
        json!({"resourceRules": [{"verbs": ["get", "list", "watch"], "apiGroups": ["*"], "resources": ["*"]}]})
    }
}

#[tokio::test(start_paused = true)]
async fn authorizer_applies_to_requests_and_access_reviews() {
    let cluster = Cluster::builder().authorizer(Arc::new(Readers)).build();
    let client = cluster.client("system:serviceaccount:p:p");
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    assert!(volumes.list(&ListParams::default()).await.is_ok());
    assert_eq!(
        refusal(volumes.delete("v", &DeleteParams::default()).await),
        (
            403,
            "persistentvolumes \"v\" is forbidden: User \"system:serviceaccount:p:p\" cannot delete resource \
             \"persistentvolumes\" in API group \"\" at the cluster scope"
                .into()
        )
    );
    let review = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(raw(&client, "POST", path, review("get")).await.1["status"]["allowed"], true);
    assert_eq!(raw(&client, "POST", path, review("create")).await.1["status"]["allowed"], false);
}
