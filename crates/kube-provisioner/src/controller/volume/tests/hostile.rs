//! Objects that no controller expects, through the whole controller: clear words, no wrong action, no busy loop, and
//! everybody else is served.

use std::time::Duration;

use super::api::{Api, CLAIMS, CLASSES, VOLUMES};
use super::running::{Running, put_claim, put_released, put_volume, with_class};
use super::*;

/// More than what each object of a test may cost in requests; a loop costs thousands.
const FEW: usize = 100;

/// Bad objects at the start, in the list, and later, through the watch.
async fn listed_and_watched(put: impl Fn(&Api), check: impl Fn(&Running)) {
    for listed in [true, false] {
        beside_others(listed, &put, &check).await;
    }
}

/// Claims before and after the bad objects are served, and then nothing happens for ten minutes that would be a loop.
async fn beside_others(listed: bool, put: &impl Fn(&Api), check: &impl Fn(&Running)) {
    let api = with_class();
    if listed {
        put(&api);
    }
    put_claim(&api, "before", json!({}));
    let running = Running::start(&api);
    running.until_bound("before").await;
    if !listed {
        put(&api);
    }
    put_claim(&api, "after", json!({}));
    running.until_bound("after").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(api.requests() < FEW, "{} requests", api.requests());
    check(&running);
}

fn ten_megabytes() -> Value {
    json!({"metadata": {"annotations": {"note": "x".repeat(10 * 1024 * 1024)}}})
}

#[tokio::test(start_paused = true)]
async fn g29_what_nobody_reads_of_a_claim_does_not_make_it_large() {
    let put = |api: &Api| put_claim(api, "large", ten_megabytes());
    beside_others(true, &put, &|running: &Running| assert_eq!(running.provisions("large"), 1)).await;
}

#[tokio::test(start_paused = true)]
async fn g29_a_claim_that_the_journal_cannot_hold_is_refused_with_the_reason() {
    let labels = json!({"metadata": {"labels": {"note": "x".repeat(10 * 1024 * 1024)}}});
    let put = |api: &Api| put_claim(api, "large", labels.clone());
    let check = |running: &Running| {
        assert_eq!(running.provisions("large"), 0);
        let messages = running.api.messages("large", "ProvisioningFailed").join(" ");
        assert!(messages.contains("shorten the claim's spec or labels"), "{messages}");
    };
    beside_others(true, &put, &check).await;
}

#[tokio::test(start_paused = true)]
async fn g29_a_volume_of_ten_megabytes_is_deleted_like_any_other() {
    let put = |api: &Api| put_volume(api, "large", "Released", ten_megabytes());
    let check = |running: &Running| {
        assert_eq!((running.deletes("large"), running.api.get(VOLUMES, "large")), (1, None));
    };
    beside_others(false, &put, &check).await;
}

#[tokio::test(start_paused = true)]
async fn g30_sizes_are_read_or_refused_with_the_reason() {
    let asks = |text: &str| json!({"spec": {"resources": {"requests": {"storage": text}}}});
    let served = [("1e3", 1000), ("1.5Gi", 1536 << 20), ("9E", 9_000_000_000_000_000_000), ("100m", 1), ("0", 0)];
    let refused = ["-1", "", "9X", "1.5.5", "0x10", "NaN", "１Gi", "1Gi\n"];
    let put = |api: &Api| {
        for (at, (text, _)) in served.iter().enumerate() {
            put_claim(api, &format!("served-{at}"), asks(text));
        }
        for (at, text) in refused.iter().enumerate() {
            put_claim(api, &format!("refused-{at}"), asks(text));
        }
    };
    listed_and_watched(put, |running| {
        for (at, (text, bytes)) in served.iter().enumerate() {
            let volume = running.api.get(VOLUMES, &format!("pvc-uid-served-{at}")).unwrap();
            let capacity = volume["spec"]["capacity"]["storage"].as_str().unwrap();
            assert_eq!(crate::quantity::parse_bytes(capacity), Ok(*bytes), "{text}");
        }
        for (at, text) in refused.iter().enumerate() {
            let name = format!("refused-{at}");
            assert_eq!(running.provisions(&name), 0, "{text:?}");
            let messages = running.api.messages(&name, "ProvisioningFailed");
            assert!(
                messages.len() == 1 && messages[0].contains("cannot read the claim's storage request"),
                "{text:?}: {messages:?}"
            );
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn g31_claims_that_lack_parts_or_have_unknown_ones_harm_nobody() {
    let changes = [
        ("no-spec", json!({"spec": null})),
        ("no-size", json!({"spec": {"resources": null}})),
        ("unknown", json!({"spec": {"future": {"deep": [1, {"x": null}]}}, "alien": true})),
        ("no-uid", json!({"metadata": {"uid": null}})),
        ("odd-spec", json!({"spec": 7})),
        ("odd-modes", json!({"spec": {"accessModes": "ReadWriteOnce"}})),
    ];
    let put = |api: &Api| changes.iter().for_each(|(name, change)| put_claim(api, name, change.clone()));
    listed_and_watched(put, |running| {
        let provisioned = |name: &str| running.provisions(name);
        assert_eq!(changes.iter().map(|(name, _)| provisioned(name)).collect::<Vec<_>>(), [0, 1, 1, 0, 0, 0]);
        let messages = running.api.messages("no-spec", "ProvisioningFailed");
        assert!(messages.len() == 1 && messages[0].contains("names no StorageClass"), "{messages:?}");
        assert_eq!(running.api.all(VOLUMES).len(), 4, "one for each claim that was served");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn g31_volumes_that_lack_parts_or_have_unknown_ones_are_not_deleted() {
    let changes = [
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
    let put = |api: &Api| {
        changes.iter().for_each(|(name, change)| put_volume(api, name, "Released", change.clone()));
        put_released(api, "plain");
    };
    listed_and_watched(put, |running| {
        for (name, _) in &changes {
            assert_eq!(running.deletes(name), 0, "{name}");
            assert!(running.api.get(VOLUMES, name).is_some(), "{name}");
        }
        assert_eq!(running.deletes("plain"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn g31_classes_that_cannot_be_read_harm_only_their_claims() {
    let put = |api: &Api| {
        api.put(CLASSES, class(json!({"metadata": {"name": "odd"}, "parameters": ["a"]})));
        api.put(CLASSES, class(json!({"metadata": {"name": "mute"}, "provisioner": null})));
        put_claim(api, "odd", json!({"spec": {"storageClassName": "odd"}}));
        put_claim(api, "mute", json!({"spec": {"storageClassName": "mute"}}));
    };
    listed_and_watched(put, |running| {
        assert_eq!((running.provisions("odd"), running.provisions("mute")), (0, 0));
        assert!(running.api.get(CLAIMS, "odd").is_some() && running.api.get(CLAIMS, "mute").is_some());
    })
    .await;
}
