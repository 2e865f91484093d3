//! Objects that current API servers never store and controllers do not expect. The controller reports them clearly,
//! takes no wrong action, does not loop, and reconciles all other objects.

use std::collections::HashMap;
use std::time::Duration;

use kube_provisioner::kube::Client;
use kube_provisioner::quantity::parse_bytes;
use kube_sim::{merge_patch, object};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{CLAIMS, Fixture, Script, VOLUMES};

/// Maximum number of requests in a test, including a read of the journal every ten seconds. A loop would send
/// thousands.
const FEW: usize = 120;

/// Names of objects, and the changes that the controller sees in them.
type ObjectChanges<'a> = &'a [(&'a str, Value)];

/// Tests odd objects in the list at startup, and later in the watch.
async fn listed_and_watched(odd: ObjectChanges<'_>, put: impl Fn(&Fixture), check: impl Fn(&Fixture)) {
    for listed in [true, false] {
        with_other_claims(listed, odd, &put, &check).await;
    }
}

/// Checks that claims before and after the odd objects are bound, and that the controller does not loop within ten
/// minutes.
async fn with_other_claims(listed: bool, odd: ObjectChanges<'_>, put: impl Fn(&Fixture), check: impl Fn(&Fixture)) {
    let (outages, fixture) = Fixture::with_outages(Script::default());
    if listed {
        put(&fixture);
        // Wait until the binder has processed them.
        sleep(Duration::from_secs(1)).await;
    }
    let odd: HashMap<String, Value> = odd.iter().map(|(name, change)| ((*name).to_owned(), change.clone())).collect();
    let service = fixture.cluster.service("ours").edit(move |object| {
        if let Some(change) = odd.get(object::name(object)) {
            merge_patch(object, change.clone());
        }
    });
    fixture.claim("before", "class");
    let running = fixture.start_with(1, Client::new(service, "default"));
    fixture.until("the claim before is bound", || fixture.is_bound("before")).await;
    if !listed {
        put(&fixture);
    }
    fixture.claim("after", "class");
    fixture.until("the claim after is bound", || fixture.is_bound("after")).await;
    sleep(Duration::from_secs(600)).await;
    assert!(outages.requests() < FEW, "{} requests", outages.requests());
    check(&fixture);
    running.abort();
}

/// Creates a claim for each odd object.
fn claims(odd: ObjectChanges<'_>) -> impl Fn(&Fixture) {
    move |fixture| odd.iter().for_each(|(name, _)| drop(fixture.claim(name, "class")))
}

fn failures(fixture: &Fixture, claim: &str) -> Vec<String> {
    fixture.events(claim).into_iter().filter(|text| text.contains("ProvisioningFailed")).collect()
}

fn ten_megabytes() -> Value {
    json!({"note": "x".repeat(10 * 1024 * 1024)})
}

// Rules: G29.
#[tokio::test(start_paused = true)]
async fn unread_parts_of_a_claim_do_not_make_it_too_large() {
    let odd = [("large", json!({"metadata": {"annotations": ten_megabytes()}}))];
    with_other_claims(true, &odd, claims(&odd), |fixture| assert_eq!(fixture.calls.count("provision large"), 1)).await;
}

// Rules: G29.
#[tokio::test(start_paused = true)]
async fn a_claim_too_large_for_the_journal_is_refused() {
    let odd = [("large", json!({"metadata": {"labels": ten_megabytes()}}))];
    let check = |fixture: &Fixture| {
        assert_eq!(fixture.calls.count("provision large"), 0);
        let texts = failures(fixture, "large").join(" ");
        assert!(texts.contains("create it with fewer or shorter labels"), "{texts}");
    };
    with_other_claims(true, &odd, claims(&odd), check).await;
}

// Rules: G29.
#[tokio::test(start_paused = true)]
async fn a_volume_of_ten_megabytes_is_deleted_like_any_other() {
    let odd = [("large", json!({"metadata": {"annotations": ten_megabytes()}}))];
    let put = |fixture: &Fixture| fixture.released("large", json!({}));
    let check = |fixture: &Fixture| {
        assert_eq!((fixture.calls.count("delete large"), fixture.get(VOLUMES, "large")), (1, None));
    };
    with_other_claims(false, &odd, put, check).await;
}

// Rules: G30.
#[tokio::test(start_paused = true)]
async fn sizes_are_read_or_refused_with_the_reason() {
    let asks = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let served = [("1e3", 1000), ("1.5Gi", 1536 << 20), ("9E", 9_000_000_000_000_000_000), ("100m", 1)];
    let refused = ["-1", "", "9X", "1.5.5", "0x10", "NaN", "１Gi", "1Gi\n"];
    let names: Vec<String> = (0..refused.len()).map(|at| format!("refused-{at}")).collect();
    let odd: Vec<(&str, Value)> = names.iter().map(String::as_str).zip(refused.map(asks)).collect();
    let put = |fixture: &Fixture| {
        for (at, (size, _)) in served.iter().enumerate() {
            fixture.claim_with(&format!("served-{at}"), "class", asks(size));
        }
        claims(&odd)(fixture);
    };
    listed_and_watched(&odd, put, |fixture| {
        for (at, (size, bytes)) in served.iter().enumerate() {
            let claim = fixture.get(CLAIMS, &format!("served-{at}")).unwrap();
            let volume = fixture.get(VOLUMES, claim["spec"]["volumeName"].as_str().unwrap()).unwrap();
            assert_eq!(parse_bytes(volume["spec"]["capacity"]["storage"].as_str().unwrap()), Ok(*bytes), "{size}");
        }
        for (name, size) in names.iter().zip(refused) {
            assert_eq!(fixture.calls.count(&format!("provision {name}")), 0, "{size:?}");
            let texts = failures(fixture, name);
            assert!(
                texts.len() == 1 && texts[0].contains("cannot read the claim's storage request"),
                "{size:?}: {texts:?}"
            );
        }
    })
    .await;
}

// Rules: G31.
#[tokio::test(start_paused = true)]
async fn claims_with_missing_or_unknown_parts_are_harmless() {
    let odd = [
        ("no-spec", json!({"spec": null})),
        ("no-size", json!({"spec": {"resources": null}})),
        ("unknown", json!({"spec": {"future": {"deep": [1, {"x": null}]}}, "alien": true})),
        ("no-uid", json!({"metadata": {"uid": null}})),
        ("odd-spec", json!({"spec": 7})),
        ("odd-modes", json!({"spec": {"accessModes": "ReadWriteOnce"}})),
        ("odd-annotation", json!({"metadata": {"annotations": {"number": 7}}})),
    ];
    listed_and_watched(&odd, claims(&odd), |fixture| {
        let calls = odd.each_ref().map(|(name, _)| fixture.calls.count(&format!("provision {name}")));
        assert_eq!(calls, [0, 1, 1, 0, 0, 0, 0]);
        for name in ["odd-spec", "odd-modes", "odd-annotation"] {
            let texts = failures(fixture, name);
            assert!(texts.iter().any(|text| text.contains("cannot read this claim")), "{name}: {texts:?}");
        }
        let texts = failures(fixture, "no-spec");
        assert!(texts.len() == 1 && texts[0].contains("names no StorageClass"), "{texts:?}");
        let texts = failures(fixture, "no-size");
        assert!(
            texts.len() == 1 && texts[0].contains("created, but its PersistentVolume is not saved yet"),
            "expected one text: {texts:?}"
        );
        let volumes = fixture.cluster.list("", VOLUMES, None).unwrap();
        assert_eq!(volumes.len(), 3, "expected those of before, after and unknown");
    })
    .await;
}

// Rules: G31.
#[tokio::test(start_paused = true)]
async fn volumes_with_missing_or_unknown_parts_are_not_deleted() {
    let odd = [
        ("no-spec", json!({"spec": null})),
        ("no-uid", json!({"metadata": {"uid": null}})),
        ("no-policy", json!({"spec": {"persistentVolumeReclaimPolicy": null}, "metadata": {"finalizers": null}})),
        (
            "unknown-policy",
            json!({"spec": {"persistentVolumeReclaimPolicy": "Shred"}, "metadata": {"finalizers": null}}),
        ),
        ("unknown-phase", json!({"status": {"phase": "Melted"}})),
        ("odd-spec", json!({"spec": 7})),
    ];
    let put = |fixture: &Fixture| {
        odd.iter().for_each(|(name, _)| fixture.released(name, json!({})));
        fixture.released("plain", json!({}));
    };
    listed_and_watched(&odd, put, |fixture| {
        for (name, _) in &odd {
            assert_eq!(fixture.calls.count(&format!("delete {name}")), 0, "{name}");
            assert!(fixture.get(VOLUMES, name).is_some(), "{name}");
        }
        assert_eq!(fixture.calls.count("delete plain"), 1);
    })
    .await;
}

// Rules: G31.
#[tokio::test(start_paused = true)]
async fn unreadable_classes_affect_only_their_claims() {
    let odd = [("odd", json!({"parameters": ["a"]})), ("mute", json!({"provisioner": null}))];
    let put = |fixture: &Fixture| {
        for (class, _) in &odd {
            fixture.class(class, json!({}));
            fixture.claim(&format!("of-{class}"), class);
        }
    };
    listed_and_watched(&odd, put, |fixture| {
        assert_eq!(fixture.calls.count("provision of-"), 0);
        assert!(fixture.get(CLAIMS, "of-odd").is_some() && fixture.get(CLAIMS, "of-mute").is_some());
    })
    .await;
}
