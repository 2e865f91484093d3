//! Decisions about objects that do not come from a watch. See [`crate::explain`].

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use provisioner_runtime::Cache;
use provisioner_runtime::watch::{Change, FromJson};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cache::BucketCache;
use super::class::read_class;
use super::decide::{Rules, decide};
use super::decision::Decision;
use super::delivered::Deliverable;
use super::delivered_names::DeliveredNames;
use super::facts::{Delivered, Facts};
use super::key::Key;
use super::messages::user_message;
use super::outcome::Stopped;
use super::partial::{bucket_facts, claim_facts};
use super::safeguards::Safeguards;
use crate::bucket::BucketCapabilities;
use crate::controller::shared::names::ProvisionerNames;
use crate::explain::{AnyProvisioner, AssumedCapabilities, Installation};

/// An ObjectBucketClaim and its objects, as the API server's JSON.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    /// The claim.
    pub claim: &'a Value,
    /// The claim's class.
    pub class: Option<&'a Value>,
    /// The claim whose bucket the claim requests.
    pub owner: Option<&'a Value>,
    /// The ObjectBuckets with the names of the claim and of its owner, and the ObjectBuckets of claims that use its
    /// bucket.
    pub buckets: &'a [Value],
    /// The metadata of the claim's Secret, by [its name](delivered_names). Its data is not needed.
    pub secret: Delivery<'a>,
    /// The claim's ConfigMap.
    pub config_map: Delivery<'a>,
}

/// A Secret or a ConfigMap.
#[derive(Clone, Copy, Debug)]
pub enum Delivery<'a> {
    /// The object may not be read, and is assumed to be intact.
    Unknown,
    /// The object does not exist.
    Absent,
    /// The object exists.
    Present(&'a Value),
}

/// A decision, and its text for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The decision.
    pub decision: Decision,
    /// The message of the event or of the condition `Ready`, if there is one.
    pub message: Option<String>,
}

/// Returns the decision of this installation about the claim, or `None` if the value is not an API object.
pub fn about_claim(installation: &Installation, able: AssumedCapabilities, objects: &Objects<'_>) -> Option<Judgement> {
    let text = |field: &str| objects.claim["metadata"][field].as_str();
    let key = Key::of(text("namespace")?, text("name")?, text("uid")?);
    let capabilities = match able {
        AssumedCapabilities::Least => BucketCapabilities::default(),
        AssumedCapabilities::All => BucketCapabilities::default().rotation(),
    };
    let rules = Rules {
        names: ProvisionerNames { own: installation.provisioner.clone(), additional: Vec::new() },
        capabilities,
        identity: installation.identity.as_str().into(),
        cluster_id: installation.cluster_id.as_str().into(),
        allowed_config: None,
        known_config: None,
        safeguards: Safeguards::default(),
    };
    let facts = facts(&key, &Arc::new(rules.clone()), objects);
    let decision = decide(&facts, &rules);
    let message = match &decision {
        Decision::Refuse(refusal) => {
            let message =
                user_message(&Err(Stopped::Refused(refusal.clone())), &facts, &installation.provisioner, None);
            message.map(|message| message.text)
        }
        _ => None,
    };
    Some(Judgement { decision, message })
}

/// Returns the names of the claim's Secret and ConfigMap.
pub fn delivered_names(claim: &Value, class: Option<&Value>, buckets: &[Value]) -> [String; 2] {
    let names = || {
        let claim = claim_facts(&read(Some(claim))?)?;
        let mut of_claim = buckets.iter().filter_map(|bucket| bucket_facts(&read(Some(bucket))?));
        let bucket = of_claim.find(|bucket| bucket.claim().is_some_and(|of| *of.uid == *claim.uid));
        if let Some(record) = bucket.as_ref().and_then(|bucket| bucket.record()) {
            return Some(record.delivered_names(&claim.name));
        }
        let parameters = class.and_then(|class| typed(&class["parameters"]));
        DeliveredNames::wanted(claim.template_names(), &claim.config, parameters.as_ref()).ok()
    };
    let own = || DeliveredNames::of(claim["metadata"]["name"].as_str().unwrap_or_default());
    let DeliveredNames { secret, config_map } = names().unwrap_or_else(own);
    [secret, config_map]
}

fn facts(key: &Key, rules: &Arc<Rules>, objects: &Objects<'_>) -> Facts {
    let mut cache = BucketCache::new(rules.clone());
    if let Some(class) = read(objects.class) {
        cache.class_event(read_class(Change::Applied(class), rules, &AnyProvisioner));
    }
    cache.claim_event(Change::Applied(read(Some(objects.claim)).as_ref().and_then(claim_facts)));
    cache.claim_event(Change::Applied(read(objects.owner).as_ref().and_then(claim_facts)));
    for bucket in objects.buckets {
        cache.bucket_event(Change::Applied(read(Some(bucket)).as_ref().and_then(bucket_facts)));
    }
    if let Delivery::Present(secret) = objects.secret {
        // Use only the metadata, even if the caller passes more.
        let secret = typed::<Secret>(&json!({"metadata": secret["metadata"]}));
        cache.delivered_event::<Secret>(Change::Applied(secret.as_ref().and_then(Deliverable::to_watched)));
    }
    if let Delivery::Present(map) = objects.config_map {
        cache.delivered_event::<ConfigMap>(Change::Applied(
            typed::<ConfigMap>(map).as_ref().and_then(Deliverable::to_watched),
        ));
    }
    let mut facts = cache.facts(key);
    // Without its data, it is unknown whether a Secret was edited.
    if !matches!(objects.secret, Delivery::Absent) && facts.secret != Delivered::Unmanaged {
        facts.secret = Delivered::Intact;
    }
    if matches!(objects.config_map, Delivery::Unknown) {
        facts.config_map = Delivered::Intact;
    }
    facts
}

fn read<T: FromJson>(object: Option<&Value>) -> Option<T> {
    T::from_json(&object?.to_string()).ok()
}

fn typed<T: DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(object.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::super::decision::{NoAction, Reason, Refusal};
    use super::*;

    #[test]
    fn applies_the_rules_of_the_controller() {
        let (provisioner, identity) = ("example.com/b".to_owned(), "storage".to_owned());
        let installation = Installation { provisioner, identity, cluster_id: "this".to_owned(), node: None };
        let claim = |name: &str| {
            json!({
                "metadata": {"name": "c", "namespace": "n", "uid": "u"},
                "spec": {"storageClassName": "k", "bucketName": name},
            })
        };
        let class = json!({"metadata": {"name": "k", "uid": "k"}, "provisioner": "example.com/b"});
        let (good, bad) = (claim("photos"), claim("X"));
        let (secret, config_map) = (Delivery::Absent, Delivery::Absent);
        let objects = Objects { claim: &good, class: Some(&class), owner: None, buckets: &[], secret, config_map };
        let judge = |objects: &Objects<'_>| about_claim(&installation, AssumedCapabilities::All, objects).unwrap();
        assert_eq!(judge(&objects).decision, Decision::Attempt(Reason::New));
        let refused = judge(&Objects { claim: &bad, ..objects });
        assert!(matches!(refused.decision, Decision::Refuse(Refusal::BadName { .. })));
        assert!(refused.message.unwrap().contains("\"X\" is not a valid bucket name"));
        let without = judge(&Objects { class: None, ..objects });
        assert_eq!(without.decision, Decision::NoAction(NoAction::ClassMissing));
        let foreign = json!({"metadata": {"name": "c", "namespace": "n", "uid": "s", "resourceVersion": "1"}});
        let refused = judge(&Objects { secret: Delivery::Present(&foreign), ..objects });
        assert_eq!(refused.decision, Decision::Refuse(Refusal::NotOwned { kind: "Secret" }));
    }
}
