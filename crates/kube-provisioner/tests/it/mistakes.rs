//! Mistakes of an application developer, and the text for each of them. A text names the mistake and a remedy that is
//! available to the reader, and contains neither paths nor JSON nor Rust's debug output.

use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use kube_provisioner::{ProvisionError, Volume};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{CLAIMS, Fixture, PROVISIONER, Request, Script, secret, volume};

/// Strings that must not occur in a text for developers.
const FORBIDDEN: [&str; 8] = ["/srv", "os error", "{\"", "Err(", "Some(", "Os {", "panicked", "at line"];

/// Strings of which every text must contain at least one.
const REMEDIES: [&str; 12] = [
    "delete the claim and create it",
    "delete it and create it",
    "delete this claim and create it",
    "administrator",
    "create another claim",
    "correct",
    "remove",
    "name another claim",
    "set bucketClaimName to the claim",
    "delete that Secret, or set",
    "report this to its authors",
    "read the events of that claim",
];

/// Returns the problem with the texts about one mistake.
fn fault(mistake: &str, says: &str, texts: &[String]) -> Option<String> {
    let Some(text) = texts.iter().find(|text| text.contains(says)) else {
        return Some(format!("{mistake}: no text contains {says:?}: {texts:#?}"));
    };
    if !REMEDIES.iter().any(|remedy| text.contains(remedy)) {
        return Some(format!("{mistake}: no remedy: {text}"));
    }
    // Commands may contain JSON.
    let prose = |text: &str| text.split("kubectl ").next().unwrap_or_default().to_owned();
    let is_shown = |part: &&&str| texts.iter().any(|text| prose(text).contains(**part));
    FORBIDDEN.iter().find(is_shown).map(|part| format!("{mistake}: {part:?} in {texts:#?}"))
}

#[derive(Debug, thiserror::Error)]
#[error("cannot create the directory; ask the administrator")]
struct Failed(#[source] io::Error);

fn provision(request: Request) -> BoxFuture<'static, Result<Volume, ProvisionError>> {
    let denied = || io::Error::other("/srv/pool/x: Permission denied (os error 13)");
    Box::pin(async move {
        match request.claim.metadata.name.as_deref().unwrap_or_default() {
            "causes" => Err(Failed(denied()))?,
            "own-text" => {
                Err(ProvisionError::invalid(denied()).with_user_text("delete the claim and create it smaller"))
            }
            "panics" => std::panic::resume_unwind(Box::new(format!("Err({:?})", denied()))),
            _ => Ok(volume(&request.name)),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn events_of_volume_claims_name_mistake_and_remedy() {
    let spec = |spec: Value| json!({"spec": spec});
    let parameters = |parameters: Value| json!({"parameters": parameters});
    let asks_us = json!({
        "metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": PROVISIONER}},
        "spec": {"storageClassName": "missing"},
    });
    let copied = json!({"metadata": {"annotations": {
        "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/storage-provisioner": PROVISIONER,
    }}});
    let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
    let topology = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]);
    let (none, missing) = (json!({}), json!({"adminSecretName": "x", "adminSecretNamespace": "default"}));
    // The claim's name, the changes to the claim and to its class, and the expected text.
    let rows: [(&str, Value, Value, &str); 19] = [
        (
            "selector",
            spec(json!({"selector": {"matchLabels": {"a": "b"}}})),
            none.clone(),
            "create it without spec.selector",
        ),
        ("block", spec(json!({"volumeMode": "Block"})), none.clone(), "create it with volumeMode: Filesystem"),
        ("snapshot", spec(json!({"dataSource": snapshot})), none.clone(), "without the data source, or with a class"),
        (
            "clone",
            spec(json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "s"}})),
            none.clone(),
            "cannot fill a volume from PersistentVolumeClaim \"s\"",
        ),
        (
            "populator",
            spec(json!({"dataSourceRef": {"apiGroup": "example.com", "kind": "Backup", "name": "s"}})),
            none.clone(),
            "create it without dataSourceRef",
        ),
        (
            "attributes",
            spec(json!({"volumeAttributesClassName": "gold"})),
            none.clone(),
            "create it without volumeAttributesClassName",
        ),
        ("copied", copied, none.clone(), "create it without this annotation"),
        ("no-class", asks_us, none.clone(), "\"missing\" not found; an administrator can create it"),
        ("topologies", none.clone(), json!({"allowedTopologies": topology}), "administrator has to remove them"),
        ("options", none.clone(), json!({"mountOptions": ["ro"]}), "does not support mountOptions; an administrator"),
        ("misspelt", none.clone(), parameters(json!({"sever": "s"})), "did you mean \"server\"?); an administrator"),
        (
            "unknown",
            none.clone(),
            parameters(json!({"colour": "red"})),
            "unknown parameter \"colour\"; an administrator",
        ),
        ("half", none.clone(), parameters(json!({"adminSecretName": "x"})), "\"adminSecretNamespace\" is required; an"),
        ("no-secret", none.clone(), parameters(missing), "default/x does not exist; an administrator has to create it"),
        (
            "template",
            none.clone(),
            parameters(json!({"adminSecretName": "${pvc.labels}", "adminSecretNamespace": "default"})),
            "unknown template",
        ),
        ("crashes", none.clone(), parameters(json!({"server": "crash"})), "report this to its authors"),
        (
            "causes",
            none.clone(),
            none.clone(),
            "ask the administrator (for the administrator: the provisioner's log has",
        ),
        ("own-text", none.clone(), none.clone(), "create it smaller (for the administrator"),
        ("panics", none.clone(), none.clone(), "crashed in `provision` and will be called again; please report"),
    ];
    let fixture = Fixture::new(Script { provision: Box::new(provision), ..Script::default() });
    for (name, claim, class, _) in &rows {
        fixture.class(name, class.clone());
        fixture.claim_with(name, name, claim.clone());
    }
    fixture.class("growing", json!({"allowVolumeExpansion": true}));
    fixture.claim("grows", "growing");
    let _running = fixture.start(1);
    fixture.until("the claim is bound", || fixture.is_bound("grows")).await;
    fixture.patch(CLAIMS, "grows", json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    sleep(Duration::from_secs(120)).await;
    let grows = ("grows", "create a larger claim and copy the data; an administrator");
    let all = rows.iter().map(|(name, _, _, says)| (*name, *says)).chain([grows]);
    let faults: Vec<_> = all.filter_map(|(name, says)| fault(name, says, &fixture.events(name))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn events_of_bucket_claims_name_mistake_and_remedy() {
    use super::buckets::fixture::{CLAIMS, Fixture};
    let config = |config: Value| json!({"additionalConfig": config});
    let named = |name: &str| json!({"generateBucketName": null, "bucketName": name});
    let of_class = |class: &str, spec: Value| {
        let mut of_class = json!({"storageClassName": class});
        of_class.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        of_class
    };
    let shares = |claim: &str| json!({"generateBucketName": null, "additionalConfig": {"bucketClaimName": claim}});
    let fixture = Fixture::new();
    fixture.create(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"},
        "provisioner": "example.com/disks",
    }));
    for (class, parameters) in [
        ("strict", json!({"allowedAdditionalConfig": ""})),
        ("some", json!({"allowedAdditionalConfig": "maxObjects"})),
        ("misspelt", json!({"hst": "x"})),
        ("half", json!({"adminSecretName": "x"})),
        ("no-secret", json!({"adminSecretName": "x", "adminSecretNamespace": "default"})),
        ("shared", json!({"bucketName": "common"})),
        ("gold", json!({})),
    ] {
        fixture.class(class, json!({"parameters": parameters}));
    }
    fixture.create(secret("taken", &[("a", "b")]));
    for name in ["owner", "renamed", "moved", "reconfigured"] {
        fixture.claim(name, json!({}));
    }
    fixture.claim("user", shares("owner"));
    fixture.claim("keyless", config(json!({"authentication": "ServiceAccount"})));
    let _running = fixture.start(1);
    for name in ["owner", "renamed", "moved", "reconfigured", "user", "keyless"] {
        fixture.until_bound(name).await;
    }
    let rows: [(&str, Value, &str); 28] = [
        ("no-name", json!({"generateBucketName": null}), "delete it and create it with spec.generateBucketName"),
        ("two-names", json!({"bucketName": "mine"}), "spec.generateBucketName has no effect"),
        ("upper-case", named("Photos"), "\"Photos\" is not a valid bucket name"),
        ("short", named("ab"), "it must have 3 to 63 characters; delete the claim and create it with another name"),
        ("long", named(&"a".repeat(64)), "it must have 3 to 63 characters"),
        ("underscore", named("my_photos"), "lower case letters, digits"),
        ("dots", named("my..photos"), "must be between"),
        ("hyphen", named("photos-"), "must begin and end"),
        ("address", named("192.168.0.1"), "IP address"),
        (
            "misspelt-key",
            config(json!({"maxObjets": "1"})),
            "(did you mean \"maxObjects\"?); correct the claim; the keys are \"max",
        ),
        (
            "unknown-key",
            config(json!({"colour": "red"})),
            "the keys are \"maxObjects\", \"accessMode\", \"authentication\", \"bucketClaimName\"",
        ),
        ("bad-value", config(json!({"maxObjects": "many"})), "\"many\" is not"),
        ("bad-variant", config(json!({"authentication": "Password"})), "is not one of \"Key\", \"ServiceAccount\""),
        (
            "strict-key",
            of_class("strict", config(json!({"maxObjects": "1"}))),
            "allows no keys; remove it from the claim's additionalConfig, or ask",
        ),
        (
            "strict-typo",
            of_class("some", config(json!({"maxObjets": "1"}))),
            "not allowed (did you mean \"maxObjects\"?); the class allows",
        ),
        ("class-typo", of_class("misspelt", json!({})), "(did you mean \"host\"?); an administrator"),
        ("class-half", of_class("half", json!({})), "\"adminSecretNamespace\" is required; an administrator"),
        ("class-secret", of_class("no-secret", json!({})), "does not exist; an administrator has to create it"),
        ("class-missing", of_class("missing", json!({})), "\"missing\" does not exist; an administrator can create it"),
        (
            "class-of-disks",
            of_class("disks", json!({})),
            "is for volumes, delete the claim and create it with a class for buckets",
        ),
        ("no-class", of_class("", json!({})), "delete it and create it with spec.storageClassName"),
        ("shares-nothing", shares("nothing"), "does not exist; create it, or correct bucketClaimName"),
        ("shares-itself", shares("shares-itself"), "names this claim itself; name another claim"),
        ("shares-pending", shares("no-name"), "has no bucket yet; read the events of that claim"),
        ("shares-user", shares("user"), "was not created for that claim"),
        ("shares-gold", of_class("gold", shares("owner")), "need the same class; delete this claim and create it"),
        (
            "shares-class",
            of_class("shared", shares("owner")),
            "remove bucketClaimName from the claim's additionalConfig",
        ),
        ("secret-taken", config(json!({"secretName": "taken"})), "exists and does not belong to this claim"),
    ];
    for (name, spec, _) in &rows {
        fixture.claim(name, spec.clone());
    }
    for (name, key) in [("secret-name", "secretName"), ("map-name", "configMapName")] {
        fixture.claim(name, config(json!({key: "Keys"})));
    }
    let renames = json!({"bucketName": "other", "additionalConfig": {"bucketClaimName": "owner"}});
    fixture.claim("shares-other-name", of_class("class", renames));
    fixture.patch(CLAIMS, "renamed", json!({"spec": {"bucketName": "other"}}));
    fixture.patch(CLAIMS, "moved", json!({"spec": {"storageClassName": "gold"}}));
    fixture.patch(CLAIMS, "reconfigured", json!({"spec": {"additionalConfig": {"secretName": "other"}}}));
    fixture.patch(
        CLAIMS,
        "keyless",
        json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}),
    );
    sleep(Duration::from_secs(300)).await;
    let changes = [
        ("secret-name", "correct secretName in the claim's additionalConfig, or ask the administrator"),
        ("map-name", "correct configMapName in the claim's additionalConfig, or ask the administrator"),
        ("shares-other-name", "delete this claim and create it without spec.bucketName"),
        ("renamed", "restore the field, or create another claim"),
        ("moved", "has no effect: the bucket keeps the settings"),
        ("reconfigured", "restore it, or create another claim"),
        ("keyless", "remove the annotation"),
    ];
    let all = rows.iter().map(|(name, _, says)| (*name, *says)).chain(changes);
    let faults: Vec<_> = all.filter_map(|(name, says)| fault(name, says, &fixture.events(name))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let typo = fixture.events("strict-typo").join(" ");
    assert!(!typo.contains("ask the administrator to allow"), "no administrator can allow an unknown key: {typo}");
}
