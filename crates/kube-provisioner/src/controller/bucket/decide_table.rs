//! The rules of [`decide`] as tables: objects in, decision out.

mod sharing;

use std::sync::Arc;

use kube_sim::merge_patch;
use provisioner_runtime::Cache as _;
use provisioner_runtime::watch::{Change, FromJson as _};
use serde_json::{Value, json};

use super::cache::BucketCache;
use super::class::read_class;
use super::decide::{Rules, decide};
use super::decision::Decision::{self, Adopt, Attempt, Refuse, Release, ReleaseClaim, Restore, Retire, Rotate};
use super::decision::{BucketClaimProblem, ChangeWithoutEffect, NoAction, Reason, Refusal, RefusedConfig, ReleaseMode};
use super::delivered_names::DeliveredNames;
use super::facts::{Delivered, Facts};
use super::inputs::inputs;
use super::key::Key;
use super::partial::{WatchedBucket, WatchedClaim, bucket_facts, claim_facts};
use super::record::{NewKey, Record, Source};
use super::safeguards::Safeguards;
use crate::bucket::BucketCapabilities;
use crate::controller::shared::names::ProvisionerNames;
use crate::controller::shared::watched::WatchedClass;
use crate::explain::AnyProvisioner;

const PROVISIONER: &str = "example.com/b";
const OBJECT: &str = "obc-shop-photos";

/// A claim and its objects.
#[derive(Clone)]
struct Fixture {
    class: Value,
    claim: Value,
    bucket: Value,
    /// The annotation on the ObjectBucket.
    record: Value,
    secret: Delivered,
    config_map: Delivered,
    /// Other claims, and other ObjectBuckets.
    others: Vec<Value>,
    rules: Rules,
}

impl Fixture {
    /// Creates a claim that has not been processed yet.
    fn new() -> Self {
        let rules = Rules {
            names: ProvisionerNames { own: PROVISIONER.to_owned(), additional: Vec::new() },
            capabilities: BucketCapabilities::default().rotation(),
            identity: "storage".into(),
            cluster_id: "this".into(),
            allowed_config: None,
            known_config: None,
            safeguards: Safeguards::default(),
        };
        Self {
            class: json!({"metadata": {"name": "class", "uid": "class"}, "provisioner": PROVISIONER}),
            claim: json!({
                "metadata": {"namespace": "shop", "name": "photos", "uid": "u", "resourceVersion": "2"},
                "spec": {"storageClassName": "class", "bucketName": "photos"},
            }),
            bucket: Value::Null,
            record: Value::Null,
            secret: Delivered::Absent,
            config_map: Delivered::Absent,
            others: Vec::new(),
            rules,
        }
    }

    /// Creates a claim with a usable bucket.
    fn bound() -> Self {
        let finalizers = ["objectbucket.io/finalizer"];
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Bound", "message": "The bucket can be used",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        });
        let new = Self::new().claim(json!({
            "metadata": {"finalizers": finalizers, "labels": {"bucket-provisioner": "example.com-b"}},
            "spec": {"objectBucketName": OBJECT},
            "status": {"phase": "Bound", "conditions": [ready]},
        }));
        Self {
            bucket: json!({
                "metadata": {
                    "name": OBJECT, "uid": "o", "resourceVersion": "3", "finalizers": finalizers,
                    "annotations": {
                        "kube-provisioner/provisioned-by": PROVISIONER, "kube-provisioner/identity": "storage",
                        "kube-provisioner/cluster-id": "this",
                    },
                },
                "spec": {
                    "storageClassName": "class", "reclaimPolicy": "Delete",
                    "claimRef": {"namespace": "shop", "name": "photos", "uid": "u"},
                    "endpoint": {"bucketName": "photos"},
                },
                "status": {"phase": "Bound"},
            }),
            record: json!({"source": "Provisioned", "made": true, "accessKeyId": "id"}),
            secret: Delivered::Intact,
            config_map: Delivered::Intact,
            ..new
        }
    }

    fn class(mut self, change: Value) -> Self {
        merge_patch(&mut self.class, change);
        self
    }

    fn claim(mut self, change: Value) -> Self {
        merge_patch(&mut self.claim, change);
        self
    }

    fn bucket(mut self, change: Value) -> Self {
        merge_patch(&mut self.bucket, change);
        self
    }

    fn record(mut self, change: Value) -> Self {
        merge_patch(&mut self.record, change);
        self
    }

    fn delivered(self, secret: Delivered, config_map: Delivered) -> Self {
        Self { secret, config_map, ..self }
    }

    fn deleted(self) -> Self {
        self.claim(json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}}))
    }

    fn bucket_deleted(self) -> Self {
        self.bucket(json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}}))
    }

    fn annotated(self, annotation: &str, value: &str) -> Self {
        self.bucket(json!({"metadata": {"annotations": {annotation: value}}}))
    }

    fn without_claim(self) -> Self {
        Self { claim: Value::Null, ..self }
    }

    fn decision(&self) -> Decision {
        self.decision_about(&Key::of("shop", "photos", "u"))
    }

    fn decision_about(&self, key: &Key) -> Decision {
        decide(&self.facts(key), &self.rules)
    }

    fn inputs(&self) -> u64 {
        inputs(&self.facts(&Key::of("shop", "photos", "u")))
    }

    fn facts(&self, key: &Key) -> Facts {
        let mut cache = BucketCache::new(Arc::new(self.rules.clone()));
        if !self.class.is_null() {
            let class = WatchedClass::from_json(&self.class.to_string()).unwrap();
            cache.class_event(read_class(Change::Applied(class), &self.rules, &AnyProvisioner));
        }
        if !self.claim.is_null() {
            let claim = WatchedClaim::from_json(&self.claim.to_string()).unwrap();
            cache.claim_event(Change::Applied(claim_facts(&claim)));
        }
        let mut bucket = self.bucket.clone();
        if !bucket.is_null() {
            if !self.record.is_null() {
                merge_patch(
                    &mut bucket,
                    json!({"metadata": {"annotations": {"kube-provisioner/bucket": self.record.to_string()}}}),
                );
            }
            let bucket = WatchedBucket::from_json(&bucket.to_string()).unwrap();
            cache.bucket_event(Change::Applied(bucket_facts(&bucket)));
        }
        for other in &self.others {
            let text = other.to_string();
            if other["metadata"]["namespace"].is_string() {
                cache.claim_event(Change::Applied(claim_facts(&WatchedClaim::from_json(&text).unwrap())));
            } else {
                cache.bucket_event(Change::Applied(bucket_facts(&WatchedBucket::from_json(&text).unwrap())));
            }
        }
        let mut facts = cache.facts(key);
        (facts.secret, facts.config_map) = (self.secret, self.config_map);
        facts
    }
}

fn check(rows: impl IntoIterator<Item = (&'static str, Fixture, Decision)>) {
    for (what, fixture, expected) in rows {
        assert_eq!(fixture.decision(), expected, "{what}");
    }
}

fn not_allowed(keys: &[&str], allowed: &[&str]) -> Decision {
    let owned = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect();
    Refuse(Refusal::ConfigNotAllowed(RefusedConfig { keys: owned(keys), allowed: owned(allowed), are_known: true }))
}

fn rest(why: NoAction) -> Decision {
    Decision::NoAction(why)
}

/// Returns a record in which attempts have written all possible fields. A new field must be considered here.
fn after_attempts(text: &str) -> Record {
    let texts = || [(text.to_owned(), text.to_owned())].into();
    let names = || DeliveredNames { secret: text.to_owned(), config_map: text.to_owned() };
    Record {
        // An attempt never changes these fields.
        source: Source::Provisioned,
        claim: None,
        made_for_uid: None,
        owner: None,
        parameters: None,
        made: true,
        // An attempt may change these fields.
        config: texts(),
        attempted: texts(),
        assigned: text == "first",
        tls: text == "first",
        data: texts(),
        access_key_id: Some(text.to_owned()),
        keyless: text == "first",
        delivered: Some(names()),
        rotation: Some(text.to_owned()),
        new_key: Some(NewKey { access_key_id: text.to_owned(), rotation: None }),
        former_keys: vec![text.to_owned()],
        retire_at: Some(text.to_owned()),
    }
}

// Rules: Z36.
#[test]
fn an_attempt_does_not_change_the_inputs() {
    let recorded = |text: &str, made: bool| {
        let record = serde_json::to_value(Record { made, ..after_attempts(text) }).unwrap();
        let written = json!({
            "metadata": {"resourceVersion": text.len().to_string(), "uid": if made { "o" } else { text }},
            "spec": {"endpoint": {"bucketHost": text, "region": text}, "additionalState": {"state": text}},
        });
        Fixture { record, ..Fixture::bound().bucket(written) }.inputs()
    };
    for made in [false, true] {
        assert_eq!(recorded("first", made), recorded("second", made), "made: {made}");
    }
    // An unfinished attempt creates its ObjectBucket, and may remove it.
    let new = Fixture::new().claim(json!({"spec": {"bucketName": null, "generateBucketName": "b"}}));
    let prepared = Fixture { bucket: Fixture::bound().bucket, record: json!({"source": "Provisioned"}), ..new.clone() };
    let name = objectbucket_api::names::generated_bucket_name("b", "u");
    let metadata =
        json!({"finalizers": ["objectbucket.io/finalizer"], "labels": {"bucket-provisioner": "example.com-b"}});
    let prepared =
        prepared.claim(json!({"metadata": metadata, "spec": {"bucketName": name, "objectBucketName": OBJECT}}));
    assert_eq!(new.inputs(), prepared.inputs());
    // Corrections by an administrator are inputs.
    let bound = Fixture::bound;
    assert_ne!(bound().inputs(), bound().record(json!({"parameters": {"host": "x"}})).inputs());
    assert_ne!(bound().inputs(), bound().bucket(json!({"spec": {"reclaimPolicy": "Retain"}})).inputs());
}

// Rules: Z38.
#[test]
fn restores_the_protection_of_a_bound_claim() {
    let bound = || Fixture::bound();
    let lost = [
        ("finalizer", json!({"metadata": {"finalizers": null}})),
        ("label", json!({"metadata": {"labels": null}})),
        ("bucketName", json!({"spec": {"bucketName": null}})),
        ("objectBucketName", json!({"spec": {"objectBucketName": null}})),
        ("another objectBucketName", json!({"spec": {"objectBucketName": "obc-other"}})),
    ];
    for (what, change) in lost {
        check([(what, bound().claim(change.clone()), Restore)]);
        assert_ne!(bound().claim(change).inputs(), bound().inputs(), "{what}: a claim that waits is woken");
    }
}

// Rules: Z39.
#[test]
fn reports_changes_without_effect() {
    let told = |change| Refuse(Refusal::ChangeWithoutEffect(change));
    let spec = |spec: Value| Fixture::bound().claim(json!({"spec": spec}));
    let class = ChangeWithoutEffect::Class { class: "class".to_owned(), policy: "Delete", object: OBJECT.to_owned() };
    check([
        (
            "name",
            spec(json!({"bucketName": "x"})),
            told(ChangeWithoutEffect::BucketName { bucket: "photos".to_owned() }),
        ),
        ("class", spec(json!({"storageClassName": "gold"})), told(class)),
        (
            "Secret",
            spec(json!({"additionalConfig": {"secretName": "keys"}})),
            told(ChangeWithoutEffect::Config { key: "secretName" }),
        ),
        ("other settings apply", spec(json!({"additionalConfig": {"maxSize": "1G"}})), Attempt(Reason::Config)),
        (
            "a lost Secret comes first",
            spec(json!({"bucketName": "x"})).delivered(Delivered::Absent, Delivered::Intact),
            Attempt(Reason::Secret),
        ),
    ]);
    // Another class allows nothing beyond what the claim's own class allows.
    let gold = || spec(json!({"storageClassName": "gold", "additionalConfig": {"maxSize": "1G"}}));
    let allows = || json!({"parameters": {"allowedAdditionalConfig": ""}});
    let refused = || not_allowed(&["maxSize"], &[]);
    check([
        ("config", gold().class(allows()), refused()),
        ("an unowned Secret", gold().class(allows()).delivered(Delivered::Unowned, Delivered::Intact), refused()),
        ("an absent class", Fixture { class: Value::Null, ..gold().record(allows()) }, refused()),
    ]);
}

#[test]
fn decides_about_a_new_claim() {
    let new = Fixture::new;
    let named = |spec: Value| new().claim(json!({"spec": {"bucketName": null}})).claim(json!({"spec": spec}));
    let limited = Fixture {
        rules: Rules { allowed_config: Some(vec!["maxSize".to_owned()]), ..new().rules },
        ..new().claim(json!({"spec": {"additionalConfig": {"maxSize": "1G", "maxObjects": "9"}}}))
    };
    let by_class = |allowed: &str| {
        let rules = Rules { allowed_config: Some(vec!["maxSize".to_owned()]), ..new().rules };
        let asking = new().claim(json!({"spec": {"additionalConfig": {"maxSize": "1G", "maxObjects": "9"}}}));
        Fixture { rules, ..asking }.class(json!({"parameters": {"allowedAdditionalConfig": allowed}}))
    };
    let held = json!({"metadata": {"finalizers": ["objectbucket.io/finalizer"]}});
    check([
        ("the class allows more than the process", by_class("maxObjects, maxSize"), Attempt(Reason::New)),
        ("the class allows less", by_class("maxObjects"), not_allowed(&["maxSize"], &["maxObjects"])),
        ("the class allows nothing", by_class(""), not_allowed(&["maxObjects", "maxSize"], &[])),
        ("its class is ours", new(), Attempt(Reason::New)),
        ("its class is absent", Fixture { class: Value::Null, ..new() }, rest(NoAction::ClassMissing)),
        ("its class is foreign", new().class(json!({"provisioner": "other"})), rest(NoAction::ForeignClass)),
        ("its name is generated", named(json!({"generateBucketName": "photos"})), Attempt(Reason::New)),
        ("it has no name", named(json!({})), Refuse(Refusal::NoName)),
        (
            "the class names the bucket",
            named(json!({})).class(json!({"parameters": {"bucketName": "shared"}})),
            Attempt(Reason::New),
        ),
        ("a key that is not allowed", limited, not_allowed(&["maxObjects"], &["maxSize"])),
        (
            "a foreign Secret",
            new().delivered(Delivered::Unmanaged, Delivered::Absent),
            Refuse(Refusal::NotOwned { kind: "Secret" }),
        ),
        (
            "a foreign ConfigMap",
            new().delivered(Delivered::Absent, Delivered::Unmanaged),
            Refuse(Refusal::NotOwned { kind: "ConfigMap" }),
        ),
        ("deleted before anything was created", new().deleted(), rest(NoAction::Unrelated)),
        ("deleted with our finalizer", new().claim(held).deleted(), ReleaseClaim),
        ("it is absent", new().without_claim(), rest(NoAction::Unrelated)),
    ]);
    let unreadable = new().claim(json!({"spec": "text"})).decision();
    assert!(!matches!(unreadable, Attempt(_) | ReleaseClaim), "{unreadable:?}");
}

// Rules: Z32.
#[test]
fn claim_and_class_can_name_secret_and_config_map() {
    use Delivered::{Absent, Intact, Unmanaged};
    let asks = |config: Value| json!({"spec": {"additionalConfig": config}});
    let (new, bound) = (|config: Value| Fixture::new().claim(asks(config)), Fixture::bound);
    let class = |template: &str| json!({"parameters": {"claimSecretName": template}});
    let bad = |kind, name: &str| Refuse(Refusal::BadObjectName { kind, name: name.to_owned() });
    let (secret, map) = (|| json!({"secretName": "keys"}), || json!({"configMapName": "Keys"}));
    let own = || bound().claim(asks(secret())).record(json!({"config": secret()}));
    let delivered = |secret: &str| json!({"secret": secret, "configMap": "photos"});
    let named = || own().record(json!({"delivered": delivered("keys")}));
    let limited =
        Fixture { rules: Rules { allowed_config: Some(Vec::new()), ..Fixture::new().rules }, ..new(secret()) };
    let long = "${pvc.name}".repeat(50);
    let unsaid = || bound().claim(json!({"status": {"phase": "Pending"}})).bucket(json!({"status": {"phase": null}}));
    let pending = || unsaid().delivered(Absent, Absent);
    let told = |key| Refuse(Refusal::ChangeWithoutEffect(ChangeWithoutEffect::Config { key }));
    check([
        ("the claim names the Secret", new(secret()), Attempt(Reason::New)),
        ("an invalid ConfigMap name", new(map()), bad("ConfigMap", "Keys")),
        ("an empty Secret name", new(json!({"secretName": ""})), bad("Secret", "")),
        ("a key that is not allowed", limited, not_allowed(&["secretName"], &[])),
        ("the class names the Secret", Fixture::new().class(class("s3-${pvc.name}")), Attempt(Reason::New)),
        ("a name too long for this claim", Fixture::new().class(class(&long)), bad("Secret", &"photos".repeat(50))),
        ("another name for a bound claim", bound().claim(asks(secret())), told("secretName")),
        ("another name for an unbound claim", pending().claim(asks(secret())), Attempt(Reason::Config)),
        ("another name after the delivery", unsaid().claim(asks(secret())), Restore),
        ("another name, which is invalid", pending().claim(asks(map())), bad("ConfigMap", "Keys")),
        ("the Secret is delivered", named(), rest(NoAction::Bound)),
        ("the class has changed", named().class(class("other")), rest(NoAction::Bound)),
        ("another provisioner named it after the claim", own(), rest(NoAction::Bound)),
        ("a foreign Secret", named().delivered(Unmanaged, Intact), Refuse(Refusal::NotOwned { kind: "Secret" })),
        (
            "a foreign Secret, and the unbound claim requests another name",
            pending().claim(asks(json!({"secretName": "mine"}))).delivered(Unmanaged, Intact),
            Attempt(Reason::Config),
        ),
        ("its Secret was deleted", named().delivered(Absent, Intact), Attempt(Reason::Secret)),
        ("deleted", named().deleted(), Release(ReleaseMode::Delete)),
    ]);
    let wrong = Fixture::new().class(class("${pvc.uid}")).decision();
    assert!(matches!(wrong, Refuse(Refusal::Parameters(_))), "{wrong:?}");
}

#[test]
fn refuses_invalid_bucket_names() {
    for name in ["ab", "Photos", "-photos", "photos-", "a..b", "a.-b", "192.168.0.1", &"a".repeat(64)] {
        let decision = Fixture::new().claim(json!({"spec": {"bucketName": name}})).decision();
        assert!(matches!(decision, Refuse(Refusal::BadName { .. })), "{name}: {decision:?}");
    }
    for name in ["abc", "a.b-c", "1photos", &"a".repeat(63)] {
        let decision = Fixture::new().claim(json!({"spec": {"bucketName": name}})).decision();
        assert_eq!(decision, Attempt(Reason::New), "{name}");
    }
}

#[test]
fn decides_about_a_claim_with_a_bucket() {
    use Delivered::{Absent, Changed, Intact, Unmanaged, Unowned};
    let bound = Fixture::bound;
    let rotated = |value: &str| bound().claim(json!({"metadata": {"annotations": {ROTATE: value}}}));
    const ROTATE: &str = "kube-provisioner/rotate-credentials";
    let new_key = json!({"newKey": {"accessKeyId": "new"}});
    let unable =
        Fixture { rules: Rules { capabilities: BucketCapabilities::default(), ..bound().rules }, ..rotated("again") };
    check([
        ("everything exists", bound(), rest(NoAction::Bound)),
        ("the class was deleted", Fixture { class: Value::Null, ..bound() }, rest(NoAction::Bound)),
        ("no Secret", bound().delivered(Absent, Intact), Attempt(Reason::Secret)),
        ("an edited Secret", bound().delivered(Changed, Intact), Attempt(Reason::Secret)),
        ("a restored bucket", bound().record(json!({"assigned": true})), Attempt(Reason::Secret)),
        (
            "a restored bucket in the middle of a rotation",
            bound().record(json!({"assigned": true, "newKey": {"accessKeyId": "new"}})),
            Attempt(Reason::Secret),
        ),
        ("a restored Secret", bound().delivered(Unowned, Intact), Attempt(Reason::Secret)),
        ("a foreign Secret", bound().delivered(Unmanaged, Intact), Refuse(Refusal::NotOwned { kind: "Secret" })),
        ("no ConfigMap", bound().delivered(Intact, Absent), Restore),
        ("an edited ConfigMap", bound().delivered(Intact, Changed), Restore),
        ("a restored ConfigMap", bound().delivered(Intact, Unowned), Restore),
        ("a foreign ConfigMap", bound().delivered(Intact, Unmanaged), Refuse(Refusal::NotOwned { kind: "ConfigMap" })),
        ("the claim's status is lost", bound().claim(json!({"status": null})), Restore),
        ("the ObjectBucket's status is lost", bound().bucket(json!({"status": null})), Restore),
        (
            "other settings",
            bound().claim(json!({"spec": {"additionalConfig": {"maxObjects": "9"}}})),
            Attempt(Reason::Config),
        ),
        (
            "settings that a failed attempt may have applied",
            bound().record(json!({"attempted": {"maxObjects": "9"}})),
            Attempt(Reason::Config),
        ),
        ("a rotation", rotated("again"), Rotate),
        ("a finished rotation", rotated("again").record(json!({"rotation": "again"})), rest(NoAction::Bound)),
        ("an unsupported rotation", unable, Refuse(Refusal::NoRotation)),
        (
            "a rotation of a claim without a key",
            rotated("again").record(json!({"keyless": true})),
            Refuse(Refusal::NoRotation),
        ),
        ("a rotation that has begun", bound().record(new_key.clone()), Rotate),
        ("a rotation without its Secret", bound().record(new_key).delivered(Absent, Intact), Attempt(Reason::Secret)),
        ("keys to remove", bound().record(json!({"retireAt": "2024-01-01T00:00:00Z"})), Retire),
        ("an unfinished attempt", bound().record(json!({"made": false})), Attempt(Reason::New)),
        ("the ObjectBucket is being deleted", bound().bucket_deleted(), Refuse(Refusal::ObjectDeleted)),
        (
            "a terminating ObjectBucket without finalizers",
            bound().bucket_deleted().bucket(json!({"metadata": {"finalizers": null}})),
            rest(NoAction::ObjectBeingDeleted),
        ),
        (
            "the process ended before it released the claim",
            bound().deleted().bucket_deleted().bucket(json!({"metadata": {"finalizers": ["other"]}})),
            ReleaseClaim,
        ),
        ("assigned by an administrator", bound().annotated("kube-provisioner/adopt-for", "shop/photos"), Adopt),
    ]);
    let garbled = bound().annotated("kube-provisioner/bucket", "garbled");
    assert!(matches!(Fixture { record: Value::Null, ..garbled }.decision(), Refuse(Refusal::Record(_))));
    let unreadable = bound().bucket(json!({"spec": "text"})).decision();
    assert!(matches!(unreadable, Refuse(Refusal::Unreadable { kind: "ObjectBucket", .. })), "{unreadable:?}");
}

#[test]
fn counts_a_claim_under_the_class_of_its_bucket() {
    let changed = |fixture: Fixture| {
        let changed = fixture.claim(json!({"spec": {"storageClassName": "other"}}));
        changed.facts(&Key::of("shop", "photos", "u"))
    };
    let (bound, new) = (changed(Fixture::bound()), changed(Fixture::new()));
    assert_eq!((bound.class_name(), bound.effective_class()), ("other", "class"));
    // Each text of a user would be another label in the metrics.
    assert_eq!((new.class_name(), new.effective_class()), ("other", ""));
}

#[test]
fn decides_about_buckets_of_other_creators() {
    let bound = Fixture::bound;
    let waiting = || bound().claim(json!({"status": null}));
    let [cluster, identity, creator] =
        ["kube-provisioner/cluster-id", "kube-provisioner/identity", "kube-provisioner/provisioned-by"];
    let of_library = || Fixture { record: Value::Null, ..bound().bucket(json!({"metadata": {"annotations": null}})) };
    let created = json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"}});
    let named_alone = || of_library().claim(created.clone()).bucket(created.clone());
    check([
        ("another provisioner's", bound().annotated(creator, "other"), rest(NoAction::OtherProvisioner)),
        ("another cluster's", bound().annotated(cluster, "that"), rest(NoAction::OtherCluster)),
        (
            "another cluster's, and the claim waits",
            waiting().annotated(cluster, "that"),
            Refuse(Refusal::OtherCluster { creator: "that".to_owned() }),
        ),
        ("another installation's", bound().annotated(identity, "other"), rest(NoAction::OtherInstallation)),
        (
            "another installation's, and the claim waits",
            waiting().annotated(identity, "other"),
            Refuse(Refusal::OtherInstallation { creator: "other".to_owned() }),
        ),
        (
            "another installation's, and an administrator abandons it",
            bound().annotated(identity, "other").annotated("kube-provisioner/abandon", "true").deleted(),
            Release(ReleaseMode::Abandon),
        ),
        ("created by the Go library", of_library(), Adopt),
        (
            "created by the Go library under a CRD that drops the claim's uid",
            of_library().bucket(json!({"spec": {"claimRef": {"uid": null}}})),
            Adopt,
        ),
        (
            "created by the Go library under a CRD that drops the claim",
            named_alone().bucket(json!({"spec": {"claimRef": null}})),
            Adopt,
        ),
        (
            "the same name, but another bucket",
            named_alone().bucket(json!({"spec": {"claimRef": null, "endpoint": {"bucketName": "other"}}})),
            Refuse(Refusal::UnprovenOwner { object: OBJECT.to_owned() }),
        ),
        (
            "created by the Go library, and its class was deleted",
            Fixture {
                class: Value::Null,
                ..of_library().bucket(json!({"metadata": {"labels": {LABEL: LABEL_VALUE}}}))
            },
            rest(NoAction::Bound),
        ),
    ]);
    const LABEL: &str = "bucket-provisioner";
    const LABEL_VALUE: &str = "example.com-b";
}

#[test]
fn chooses_how_to_remove_a_bucket() {
    let rows = [
        ("Provisioned", "Delete", true, ReleaseMode::Delete),
        ("Provisioned", "Retain", true, ReleaseMode::Revoke),
        ("Granted", "Delete", true, ReleaseMode::Revoke),
        ("Unknown", "Delete", true, ReleaseMode::RevokeUnknown),
        ("Provisioned", "Delete", false, ReleaseMode::CleanUp),
        ("Granted", "Delete", false, ReleaseMode::CleanUp),
    ];
    for (source, policy, made, release_mode) in rows {
        let bound = Fixture::bound().record(json!({"source": source, "made": made}));
        let bound = bound.bucket(json!({"spec": {"reclaimPolicy": policy}}));
        let what = format!("{source} {policy} {made}");
        assert_eq!(bound.clone().deleted().decision(), Release(release_mode), "{what}");
        assert_eq!(bound.clone().without_claim().bucket_deleted().decision(), Release(release_mode), "{what}");
        let abandoned = bound.annotated("kube-provisioner/abandon", "true").deleted();
        assert_eq!(abandoned.decision(), Release(ReleaseMode::Abandon), "{what}");
    }
}

#[test]
fn a_bound_claim_whose_object_bucket_was_lost_keeps_its_data() {
    let policy = |policy: &str| json!({"spec": {"reclaimPolicy": policy}});
    let lost = |of: &str| Fixture::bound().record(json!({"made": false})).bucket(policy(of));
    let asks = json!({"spec": {"additionalConfig": {"bucketClaimName": "first"}}});
    check([
        ("its class retains it", lost("Retain").deleted(), Release(ReleaseMode::Revoke)),
        ("its class deletes it", lost("Delete").deleted(), Release(ReleaseMode::CleanUp)),
        ("the claim was deleted", lost("Retain").without_claim().bucket_deleted(), Release(ReleaseMode::Revoke)),
        ("never bound", lost("Retain").claim(json!({"status": null})).deleted(), Release(ReleaseMode::CleanUp)),
        ("it requests another bucket", lost("Delete").claim(asks.clone()), Attempt(Reason::New)),
        (
            "never bound, and it requests another bucket",
            lost("Delete").claim(asks).claim(json!({"status": null})),
            Release(ReleaseMode::CleanUp),
        ),
    ]);
}

#[test]
fn does_not_delete_because_the_claim_is_absent() {
    let gone = || Fixture::bound().without_claim();
    let object = || OBJECT.to_owned();
    let unknown = Fixture { record: Value::Null, ..gone().annotated("kube-provisioner/cluster-id", "this") };
    let unknown = unknown.bucket(json!({"metadata": {"annotations": {"kube-provisioner/cluster-id": null}}}));
    check([
        ("the deletion was not observed", gone(), Refuse(Refusal::NoClaim { object: object() })),
        ("its cluster is unknown", unknown, Refuse(Refusal::NoCluster { object: object() })),
        (
            "it was created in another cluster",
            gone().annotated("kube-provisioner/cluster-id", "that"),
            Refuse(Refusal::OtherCluster { creator: "that".to_owned() }),
        ),
    ]);
    let unclaimed = gone().bucket(json!({"spec": {"claimRef": null}}));
    let key = Key::of("", OBJECT, "o");
    assert_eq!(unclaimed.decision_about(&key), Refuse(Refusal::Unclaimed { object: object() }));
    let abandoned = unclaimed.annotated("kube-provisioner/abandon", "true");
    assert_eq!(abandoned.decision_about(&key), Release(ReleaseMode::Abandon));
}

#[test]
fn other_object_buckets_block_a_new_claim() {
    let of_former = |fixture: Fixture| fixture.bucket(json!({"spec": {"claimRef": {"uid": "former"}}}));
    let new = || of_former(Fixture { claim: Fixture::new().claim, ..Fixture::bound() });
    let object = || OBJECT.to_owned();
    let pointing = Fixture { record: Value::Null, ..Fixture::bound().claim(json!({"status": null})) };
    check([
        ("the former claim's bucket exists", new(), Refuse(Refusal::OrphanedBucket { object: object() })),
        ("the former claim's bucket is being removed", new().bucket_deleted(), Refuse(Refusal::FormerBucket)),
        (
            "the former claim's bucket is another cluster's",
            new().annotated("kube-provisioner/cluster-id", "that"),
            Refuse(Refusal::OtherCluster { creator: "that".to_owned() }),
        ),
        ("it is assigned the former bucket", new().annotated("kube-provisioner/adopt-for", "shop/photos"), Adopt),
        (
            "the class that determines the owner does not exist",
            Fixture {
                record: Value::Null,
                class: Value::Null,
                ..new().annotated("kube-provisioner/adopt-for", "shop/photos")
            },
            rest(NoAction::Bound),
        ),
        (
            "it points at an ObjectBucket without a claim",
            pointing.clone().bucket(json!({"spec": {"claimRef": null}})),
            Refuse(Refusal::UnprovenOwner { object: object() }),
        ),
        (
            "it points at an ObjectBucket without a uid and with another bucket",
            pointing.bucket(json!({"spec": {"claimRef": {"uid": null}, "endpoint": {"bucketName": "other"}}})),
            Refuse(Refusal::UnprovenOwner { object: object() }),
        ),
    ]);
    let of_another_name = new().bucket(json!({"spec": {"claimRef": {"name": "other"}}}));
    assert_ne!(of_another_name.annotated("kube-provisioner/adopt-for", "shop/photos").decision(), Adopt);
}

/// Users can edit the class of a bound claim.
#[test]
fn uses_the_object_buckets_class_without_a_record() {
    let edited = Fixture::bound().claim(json!({"spec": {"storageClassName": "other"}}));
    let edited = Fixture { record: Value::Null, ..edited };
    assert_eq!(edited.decision(), Adopt);
    let class = edited.facts(&Key::of("shop", "photos", "u")).class;
    assert_eq!(class.ours().map(|class| &*class.name), Some("class"));
}

/// Returns the claim `shop/first`.
fn first(change: Value) -> Value {
    let mut claim = json!({
        "metadata": {"namespace": "shop", "name": "first", "uid": "f", "resourceVersion": "1"},
        "spec": {"storageClassName": "class", "bucketName": "of-first", "objectBucketName": "obc-shop-first"},
    });
    merge_patch(&mut claim, change);
    claim
}

/// Returns the ObjectBucket of the claim `shop/first`.
fn of_first(change: Value, record: Value) -> Value {
    let mut recorded = json!({"source": "Provisioned", "made": true, "accessKeyId": "id"});
    merge_patch(&mut recorded, record);
    let mut bucket = Fixture::bound().bucket;
    merge_patch(
        &mut bucket,
        json!({
            "metadata": {"name": "obc-shop-first", "uid": "of", "annotations": {"kube-provisioner/bucket": recorded.to_string()}},
            "spec": {"claimRef": {"name": "first", "uid": "f"}, "endpoint": {"bucketName": "of-first"}},
        }),
    );
    merge_patch(&mut bucket, change);
    bucket
}
