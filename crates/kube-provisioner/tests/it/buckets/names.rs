//! Secrets and ConfigMaps with names that differ from their claim's name.

use kube_sim::{PatchKind, Subresource};
use serde_json::{Value, json};

use super::fixture::{BUCKETS, CLAIMS, Fixture, target};

fn names(secret: &str, config_map: &str) -> Value {
    json!({"additionalConfig": {"secretName": secret, "configMapName": config_map}})
}

impl Fixture {
    /// Returns the names of the claims' Secrets and ConfigMaps.
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

// Rules: Z32.
#[tokio::test(start_paused = true)]
async fn a_claim_or_its_class_sets_the_names() {
    let fixture = Fixture::new();
    let parameters = json!({"claimSecretName": "${pvc.name}-keys", "claimConfigMapName": "${pvc.namespace}-store"});
    fixture.class("naming", json!({"parameters": parameters}));
    fixture.claim("photos", names("keys", "store"));
    fixture.claim("videos", json!({"storageClassName": "naming", "additionalConfig": {"secretName": "mine"}}));
    fixture.claim("sounds", json!({"storageClassName": "naming", "additionalConfig": {"configMapName": "s"}}));
    let running = fixture.start(1);
    for claim in ["photos", "videos", "sounds"] {
        fixture.until_bound(claim).await;
    }
    let all = || [vec!["keys", "mine", "sounds-keys"], vec!["default-store", "s", "store"]];
    assert_eq!(fixture.delivered(), all());
    // The objects are watched by these names, including by a process that knows them only from the records.
    for number in 2..4 {
        let key = fixture.key_in("sounds-keys");
        fixture.delete("secrets", "sounds-keys");
        fixture.delete("configmaps", "default-store");
        fixture.until("both are back", || fixture.delivered() == all()).await;
        assert_eq!(fixture.key_in("sounds-keys"), key);
        fixture.patch("secrets", "mine", json!({"data": {"AWS_SECRET_ACCESS_KEY": "eA=="}}));
        let mended = || fixture.get("secrets", "mine").unwrap()["data"]["AWS_SECRET_ACCESS_KEY"] != "eA==";
        fixture.until("it is repaired", mended).await;
        if number == 2 {
            running.abort();
            let _another = fixture.start(number);
        }
    }
    for claim in ["photos", "videos", "sounds"] {
        fixture.delete(CLAIMS, claim);
        fixture.until_gone(claim).await;
    }
    assert_eq!(fixture.delivered(), [const { Vec::<String>::new() }; 2]);
    assert!(fixture.store.is_empty());
}

// Rules: Z32.
#[tokio::test(start_paused = true)]
async fn a_foreign_object_with_the_requested_name_is_left_unchanged() {
    let fixture = Fixture::new();
    fixture.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"},
        "stringData": {"mine": "x"},
    }));
    fixture.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"},
    }));
    let before = fixture.get("secrets", "keys");
    fixture.claim("photos", names("keys", "photos"));
    fixture.claim("clips", names("clips", "settings"));
    fixture.claim("videos", json!({}));
    let _running = fixture.start(1);
    fixture.until("it is reported", || fixture.ready("photos").0 == "SecretNotOwned").await;
    assert!(fixture.ready("photos").1.contains("The Secret default/keys exists"), "{:?}", fixture.ready("photos"));
    fixture.until("the ConfigMap is reported", || fixture.ready("clips").0 == "ConfigMapNotOwned").await;
    fixture.until_bound("videos").await;
    assert_eq!(fixture.store.calls("create_bucket"), 1, "no bucket was created for the refused claims");
    fixture.patch(CLAIMS, "clips", json!({"spec": names("clips", "clips")}));
    fixture.until_bound("clips").await;
    // The claim may request another name until it is bound.
    fixture.patch(CLAIMS, "photos", json!({"spec": names("videos", "photos")}));
    fixture.until("it is reported", || fixture.ready("photos").1.contains("The Secret default/videos")).await;
    assert_eq!(fixture.get("secrets", "keys"), before);
    fixture.patch(CLAIMS, "photos", json!({"spec": names("Photos", "photos")}));
    fixture.until("it is reported", || fixture.ready("photos").0 == "InvalidObjectName").await;
    fixture.patch(CLAIMS, "photos", json!({"spec": names("others", "photos")}));
    fixture.until_bound("photos").await;
    assert_eq!(fixture.delivered(), [["clips", "others", "videos"], ["clips", "photos", "videos"]]);
}

// Rules: Z33.
#[tokio::test(start_paused = true)]
async fn names_are_fixed_once_the_claim_is_bound() {
    let fixture = Fixture::new();
    let uid = fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    let key = fixture.key_in("photos");
    for (secret, map) in [("keys", "photos"), ("photos", "store"), ("Keys", "photos")] {
        fixture.patch(CLAIMS, "photos", json!({"spec": names(secret, map)}));
        let key = if map == "photos" { "secretName" } else { "configMapName" };
        let is_reported =
            || fixture.events("photos").iter().any(|event| event.contains(&format!("The changed key {key} of")));
        fixture.until("it is reported", is_reported).await;
        assert_eq!(fixture.delivered(), [["photos"], ["photos"]]);
    }
    // All other work continues: repairs, rotation, other settings, and the work of another process.
    fixture.delete("secrets", "photos");
    fixture.until("it is back", || fixture.key_in("photos") == key).await;
    running.abort();
    // Simulate a process that ended before it recorded that the claim is bound.
    let bucket = target(BUCKETS, "obc-default-photos");
    let status = Some(Subresource::Status);
    fixture.cluster.patch(&bucket, status, PatchKind::Merge, &json!({"status": {"phase": null}})).unwrap();
    fixture.patch(CLAIMS, "photos", json!({"spec": names("keys", "photos")}));
    let _another = fixture.start(2);
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "3"}}}));
    fixture.until("it is applied", || fixture.store.state().configs[&format!("b-{uid}")] == Some(3)).await;
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    fixture.until("there is another key", || fixture.key_in("photos") != key).await;
    assert_eq!(
        (fixture.delivered(), fixture.ready("photos").0),
        ([["photos"], ["photos"]].map(|names| names.map(str::to_owned).to_vec()), "Bound".to_owned())
    );
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
}
