//! Secrets and ConfigMaps that do not have their claim's name.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kube_sim::{Request, Verb};
use serde_json::{Value, json};

use super::fixture::{BUCKETS, CLAIMS, Fixture};
use super::refusing::refusing;

fn names(secret: &str, config_map: &str) -> Value {
    json!({"additionalConfig": {"secretName": secret, "configMapName": config_map}})
}

impl Fixture {
    /// The names of the Secrets and of the ConfigMaps of claims.
    fn delivered(&self) -> [Vec<String>; 2] {
        ["secrets", "configmaps"].map(|plural| {
            let objects = self.cluster.list("", plural, None).unwrap();
            let ours = objects.iter().filter(|object| object["metadata"]["labels"]["bucket-provisioner"].is_string());
            ours.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        })
    }

    fn key_in(&self, secret: &str) -> Value {
        self.get("secrets", secret).unwrap_or_default()["data"]["AWS_ACCESS_KEY_ID"].clone()
    }

    pub(super) fn record(&self, claim: &str) -> Value {
        let bucket = self.get(BUCKETS, &format!("obc-default-{claim}")).unwrap_or_default();
        let text = bucket["metadata"]["annotations"]["kube-provisioner/bucket"].as_str().unwrap_or("{}").to_owned();
        serde_json::from_str(&text).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn z32_a_claim_or_its_class_names_them() {
    let fixture = Fixture::new();
    let parameters = json!({"claimSecretName": "${pvc.name}-keys", "claimConfigMapName": "${pvc.namespace}-store"});
    fixture.class("naming", json!({"parameters": parameters}));
    fixture.claim("photos", names("keys", "store"));
    fixture.claim("videos", json!({"storageClassName": "naming", "additionalConfig": {"secretName": "mine"}}));
    fixture.claim("sounds", json!({"storageClassName": "naming", "additionalConfig": {"configMapName": "s"}}));
    let running = fixture.start(1);
    for claim in ["photos", "videos", "sounds"] {
        fixture.bound(claim).await;
    }
    let all = || [vec!["keys", "mine", "sounds-keys"], vec!["default-store", "s", "store"]];
    assert_eq!(fixture.delivered(), all());
    // They are watched by these names, and by a process that knows them from the records alone, too.
    for number in 2..4 {
        let key = fixture.key_in("sounds-keys");
        fixture.delete("secrets", "sounds-keys");
        fixture.delete("configmaps", "default-store");
        fixture.until("both are back", || fixture.delivered() == all()).await;
        assert_eq!(fixture.key_in("sounds-keys"), key);
        fixture.patch("secrets", "mine", json!({"data": {"AWS_SECRET_ACCESS_KEY": "eA=="}}));
        let mended = || fixture.get("secrets", "mine").unwrap()["data"]["AWS_SECRET_ACCESS_KEY"] != "eA==";
        fixture.until("it is mended", mended).await;
        if number == 2 {
            running.abort();
            let _another = fixture.start(number);
        }
    }
    for claim in ["photos", "videos", "sounds"] {
        fixture.delete(CLAIMS, claim);
        fixture.gone(claim).await;
    }
    assert_eq!(fixture.delivered(), [const { Vec::<String>::new() }; 2]);
    assert!(fixture.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z32_a_name_of_somebody_else_is_left_to_him() {
    let fixture = Fixture::new();
    fixture.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"},
        "stringData": {"mine": "x"},
    }));
    let before = fixture.get("secrets", "keys");
    fixture.claim("photos", names("keys", "photos"));
    fixture.claim("videos", json!({}));
    let _running = fixture.start(1);
    fixture.until("it is told", || fixture.ready("photos").0 == "SecretNotOwned").await;
    assert!(fixture.ready("photos").1.contains("The Secret default/keys exists"), "{:?}", fixture.ready("photos"));
    fixture.bound("videos").await;
    assert_eq!(fixture.store.calls("create_bucket"), 1, "nothing was made for the claim that is refused");
    // A claim that lives keeps what it has, also where another claim's object has the name.
    fixture.patch(CLAIMS, "videos", json!({"spec": names("keys", "videos")}));
    fixture.until("it is told", || fixture.ready("videos").0 == "SecretNotOwned").await;
    assert_eq!(fixture.phase("videos"), "Bound");
    assert_eq!(fixture.delivered(), [["videos"], ["videos"]]);
    assert_eq!(fixture.record("videos")["delivered"], Value::Null);
    fixture.patch(CLAIMS, "photos", json!({"spec": names("videos", "photos")}));
    fixture.until("it is told", || fixture.ready("photos").1.contains("The Secret default/videos")).await;
    assert_eq!(fixture.get("secrets", "keys"), before);
    // And one that cannot be a name changes nothing.
    fixture.patch(CLAIMS, "videos", json!({"spec": names("Videos", "videos")}));
    fixture.until("it is told", || fixture.ready("videos").0 == "InvalidObjectName").await;
    assert_eq!(fixture.delivered(), [["videos"], ["videos"]]);
    // The name is free as soon as the other claim has another one.
    fixture.patch(CLAIMS, "videos", json!({"spec": names("others", "videos")}));
    fixture.bound("photos").await;
    assert_eq!(fixture.delivered(), [["others", "videos"], ["photos", "videos"]]);
}

#[tokio::test(start_paused = true)]
async fn z33_other_names_move_the_same_key() {
    let fixture = Fixture::new();
    fixture.store.state().shows_keys_once = true;
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.bound("photos").await;
    let key = fixture.key_in("photos");
    for (secret, map) in [("keys", "photos"), ("keys", "store"), ("photos", "store"), ("photos", "photos")] {
        fixture.patch(CLAIMS, "photos", json!({"spec": names(secret, map)}));
        fixture.until("they have moved", || fixture.delivered() == [[secret], [map]]).await;
        fixture.until("it is recorded", || fixture.record("photos")["formerlyDelivered"].is_null()).await;
        assert_eq!(fixture.key_in(secret), key);
    }
    assert_eq!(fixture.record("photos")["delivered"], Value::Null);
    assert_eq!(fixture.store.state().users.values().map(Vec::len).sum::<usize>(), 1);
    // A rotation goes to the name that there is.
    fixture.patch(CLAIMS, "photos", json!({"spec": names("keys", "store")}));
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    fixture.until("there is another key", || !fixture.key_in("keys").is_null() && fixture.key_in("keys") != key).await;
    fixture.until("they have moved", || fixture.delivered() == [["keys"], ["store"]]).await;
}

/// Both objects exist for some time, and the process that continues knows both.
#[tokio::test(start_paused = true)]
async fn z33_a_move_that_is_cut_short_comes_to_its_end() {
    let creations = |request: &Request| request.resource.plural == "secrets" && request.verb == Verb::Create;
    let deletions = |request: &Request| request.resource.plural == "secrets" && request.verb == Verb::Delete;
    for which in [creations as fn(&Request) -> bool, deletions] {
        let (refused, fixture) = refusing(which);
        fixture.store.state().shows_keys_once = true;
        fixture.claim("photos", json!({}));
        let running = fixture.start(1);
        fixture.bound("photos").await;
        let key = fixture.key_in("photos");
        refused.store(u32::MAX, Ordering::Relaxed);
        fixture.patch(CLAIMS, "photos", json!({"spec": names("keys", "photos")}));
        let both_recorded = || {
            let record = fixture.record("photos");
            record["delivered"]["secret"] == "keys" && record["formerlyDelivered"][0]["secret"] == "photos"
        };
        fixture.until("both names are recorded", both_recorded).await;
        assert_eq!(fixture.key_in("photos"), key, "the old Secret stays until the new one is there");
        running.abort();
        refused.store(0, Ordering::Relaxed);
        let _another = fixture.start(2);
        fixture.until("it has moved", || fixture.delivered() == [["keys"], ["photos"]]).await;
        assert_eq!(fixture.key_in("keys"), key);
        fixture.until("it is recorded", || fixture.record("photos")["formerlyDelivered"].is_null()).await;

        // A claim that is deleted in the middle leaves neither.
        refused.store(u32::MAX, Ordering::Relaxed);
        fixture.patch(CLAIMS, "photos", json!({"spec": names("photos", "photos")}));
        let back = || fixture.record("photos")["formerlyDelivered"][0]["secret"] == "keys";
        fixture.until("both names are recorded", back).await;
        fixture.delete(CLAIMS, "photos");
        refused.store(0, Ordering::Relaxed);
        fixture.gone("photos").await;
        assert_eq!(fixture.delivered(), [const { Vec::<String>::new() }; 2]);
        assert!(fixture.store.is_empty());
    }
}

/// The Secret of the former name may have an older key, which a rotation would remove.
#[tokio::test(start_paused = true)]
async fn z33_a_rotation_waits_for_the_end_of_a_move() {
    let deletions = |request: &Request| request.resource.plural == "secrets" && request.verb == Verb::Delete;
    let (refused, fixture) = refusing(deletions);
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.bound("photos").await;
    refused.store(u32::MAX, Ordering::Relaxed);
    fixture.patch(CLAIMS, "photos", json!({"spec": names("keys", "photos")}));
    fixture.until("there are two Secrets", || fixture.delivered()[0].len() == 2).await;
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(fixture.key_in("photos"), fixture.key_in("keys"));
    assert_eq!(fixture.record("photos")["rotation"], Value::Null);
    refused.store(0, Ordering::Relaxed);
    fixture.until("it has rotated", || fixture.record("photos")["rotation"] == "1").await;
    assert_eq!(fixture.delivered(), [["keys"], ["photos"]]);
}
