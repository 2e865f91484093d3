//! An API server that refuses writes of one kind for some time, for example because of a quota, an admission policy or
//! a missing permission.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_sim::{After, Before, Cluster, Interceptor, Request, Status, Verb};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fixture::{CLAIMS, Fixture};

/// The time for which writes are refused.
const REFUSED: Duration = Duration::from_secs(60);

/// The verb, resource and subresource of a write.
type Kind = String;

#[derive(Clone, Default)]
struct Refusals(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// All kinds of writes so far.
    seen: BTreeSet<Kind>,
    /// The kind of writes to refuse, and the time at which the refusals end.
    refused: Option<(Kind, Instant)>,
    count: u32,
    /// All patches, and deletions of ObjectBuckets, that do not name the version that they are based on.
    unversioned: BTreeSet<Kind>,
    /// True if only Secrets with a key are refused.
    keys_only: bool,
}

fn kind(request: &Request) -> Option<Kind> {
    let is_write = matches!(request.verb, Verb::Create | Verb::Patch | Verb::Delete | Verb::Update);
    let subresource = request.subresource.map(|subresource| format!("/{subresource:?}")).unwrap_or_default();
    let of_work = !matches!(request.resource.plural.as_str(), "leases" | "events");
    (is_write && of_work && request.user.starts_with("ours"))
        .then(|| format!("{:?} {}{subresource}", request.verb, request.resource.plural))
}

impl Interceptor for Refusals {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let mut state = self.0.lock().unwrap();
        let mut answer = Before::Handle;
        if let Some(kind) = kind(request) {
            let has_key = || format!("{:?}", request.content).contains("AWS_SECRET_ACCESS_KEY");
            let is_meant = state.refused.as_ref().is_some_and(|(of, end)| *of == kind && Instant::now() < *end);
            if is_meant && (!state.keys_only || has_key()) {
                state.count += 1;
                let status = Status::forbidden(&request.resource, &request.name, "exceeded quota");
                // End a hot loop here.
                answer = if state.count < 1000 { Before::Refuse(status) } else { Before::Hang };
            }
            let is_versioned = match request.verb {
                Verb::Patch => format!("{:?}", request.content).contains("resourceVersion"),
                Verb::Delete if request.resource.plural == "objectbuckets" => request
                    .options
                    .delete
                    .preconditions
                    .as_ref()
                    .is_some_and(|wanted| wanted.resource_version.is_some()),
                _ => true,
            };
            if !is_versioned {
                state.unversioned.insert(kind.clone());
            }
            state.seen.insert(kind);
        }
        Box::pin(async move { answer })
    }

    fn after<'a>(&'a self, _: &'a Request, _: u16) -> BoxFuture<'a, After> {
        Box::pin(async { After::Deliver })
    }
}

impl Refusals {
    fn refuse(&self, kind: &str) {
        self.0.lock().unwrap().refused = Some((kind.to_owned(), Instant::now() + REFUSED));
    }

    fn count(&self) -> u32 {
        self.0.lock().unwrap().count
    }

    fn fixture(&self) -> Fixture {
        let fixture = Fixture::built(Cluster::builder().interceptor(Arc::new(self.clone())));
        fixture.store.state().shows_keys_once = true;
        fixture
    }
}

/// A claim is bound, loses its Secret and its ConfigMap, receives another key, and is deleted.
async fn life(fixture: &Fixture) {
    let keys = || fixture.store.state().users.values().map(Vec::len).sum::<usize>();
    let text = |name: &str| {
        let data = &fixture.get("secrets", "photos").unwrap_or_default()["data"];
        data[name].as_str().unwrap_or_default().to_owned()
    };
    fixture.claim("photos", json!({}));
    fixture.until_bound("photos").await;
    fixture.delete("configmaps", "photos");
    fixture.until("the ConfigMap is back", || fixture.get("configmaps", "photos").is_some()).await;
    let before = text("AWS_ACCESS_KEY_ID");
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    fixture.until("there is a new key", || text("AWS_ACCESS_KEY_ID") != before && keys() == 1).await;
    fixture.patch("secrets", "photos", json!({"data": {"AWS_SECRET_ACCESS_KEY": "eA=="}}));
    fixture.until("the Secret is restored", || text("AWS_SECRET_ACCESS_KEY") != "eA==").await;
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
}

// Rules: Z36, Z37.
/// The pauses never shrink, so there are few refusals, regardless of the writes of earlier attempts.
#[tokio::test(start_paused = true)]
async fn refused_writes_back_off_and_all_patches_name_a_version() {
    let all = Refusals::default();
    let fixture = all.fixture();
    fixture.overlap("10s");
    let running = fixture.start(1);
    life(&fixture).await;
    running.abort();
    let kinds = all.0.lock().unwrap().seen.clone();
    assert_eq!(all.0.lock().unwrap().unversioned, BTreeSet::new(), "a late write could undo a newer one");
    assert!(kinds.len() > 8, "{kinds:?}");
    for kind in kinds {
        let refusals = Refusals::default();
        let fixture = refusals.fixture();
        fixture.overlap("10s");
        let running = fixture.start(1);
        let start = Instant::now();
        refusals.refuse(&kind);
        life(&fixture).await;
        let (took, count) = (start.elapsed(), refusals.count());
        // Each attempt is followed by a status write, which may be refused in turn.
        assert!((1..=17).contains(&count), "{kind} was refused {count} times");
        assert!(took < Duration::from_secs(300), "{kind}: {took:?}");
        running.abort();
    }
}

// Rules: Z44.
#[tokio::test(start_paused = true)]
async fn the_event_of_a_refused_claim_is_sent_again() {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    fixture.claim("photos", json!({"additionalConfig": {"maxObject": "1"}}));
    sleep(Duration::from_secs(4 * 3600)).await;
    let events = fixture.events("photos");
    assert_eq!(events.iter().filter(|event| event.contains("maxObject")).count(), 6, "{events:?}");
}

// Rules: Z36.
#[tokio::test(start_paused = true)]
async fn refused_secret_writes_do_not_accumulate_keys() {
    for keys_only in [false, true] {
        let refusals = Refusals::default();
        let fixture = refusals.fixture();
        refusals.0.lock().unwrap().keys_only = keys_only;
        refusals.refuse("Create secrets");
        fixture.claim("photos", json!({}));
        let _running = fixture.start(1);
        let start = Instant::now();
        let keys = || fixture.store.state().users.values().map(Vec::len).sum::<usize>();
        fixture.until("it is reported", || fixture.ready("photos").1.contains("exceeded quota")).await;
        assert_eq!(
            (fixture.phase("photos").as_str(), fixture.ready("photos").0.as_str()),
            ("Pending", "ProvisioningFailed")
        );
        while start.elapsed() < REFUSED {
            assert!(keys() <= 1, "{:?}", fixture.store.assets());
            sleep(Duration::from_millis(10)).await;
        }
        assert!(refusals.count() <= 8, "{} refusals", refusals.count());
        assert_eq!(fixture.store.calls("grant"), usize::from(keys_only));
        fixture.until_bound("photos").await;
        assert!(start.elapsed() < REFUSED + Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(keys(), 1);
        let made = fixture.store.state().users.values().flatten().next().unwrap().access_key_id.clone();
        assert_eq!(made, if keys_only { "id-2" } else { "id-1" });
    }
}
