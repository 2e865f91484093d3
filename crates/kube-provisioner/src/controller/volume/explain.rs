//! Decisions about objects that were not delivered by a watch. See [`crate::explain`].

use std::sync::Arc;

use provisioner_runtime::watch::{Change, FromJson};
use provisioner_runtime::{Cache, Entry};
use serde_json::Value;

use super::cache::VolumeCache;
use super::class::read_class;
use super::decide::{Rules, decide};
use super::decision::Decision;
use super::facts::Facts;
use super::journal_entry;
use super::key::{ClaimUid, Key};
use super::names::VolumeNames;
use super::outcome::Stopped;
use super::report::{Case, report};
use super::safeguards::Safeguards;
use crate::capabilities::Capabilities;
use crate::controller::shared::limits::Thresholds;
use crate::controller::shared::names::ProvisionerNames;
use crate::explain::{AnyProvisioner, AssumedCapabilities, Installation};

/// A claim and its related objects, as the API server's JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects<'a> {
    /// The claim.
    pub claim: Option<&'a Value>,
    /// The claim's class.
    pub class: Option<&'a Value>,
    /// The claim's volume, or the volume with the name that the claim's volume will have.
    pub volume: Option<&'a Value>,
    /// The claim's attempt in the journals.
    pub attempt: Attempt<'a>,
}

/// The attempt for a claim that the journals record.
#[derive(Clone, Copy, Debug, Default)]
pub enum Attempt<'a> {
    /// The journals do not record an attempt.
    #[default]
    None,
    /// An attempt that the holder of the journal continues.
    Recorded(&'a Entry),
    /// An attempt in a journal that was written with another number of shards.
    AwaitsAdoption,
}

/// A decision, and its text for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The decision.
    pub decision: Decision,
    /// The message of the event, if there is one.
    pub message: Option<String>,
}

/// Returns the decision of this installation about the claim, or `None` if the claim lacks a uid.
pub fn about_claim(installation: &Installation, able: AssumedCapabilities, objects: &Objects<'_>) -> Option<Judgement> {
    let uid = objects.claim?["metadata"]["uid"].as_str()?;
    Some(judge(&VolumeNames::Usual.key(&ClaimUid::new(uid)), installation, able, objects))
}

/// Returns the decision of this installation about the volume, or `None` if the volume lacks a name.
pub fn about_volume(
    installation: &Installation,
    able: AssumedCapabilities,
    objects: &Objects<'_>,
) -> Option<Judgement> {
    let name = objects.volume?["metadata"]["name"].as_str()?;
    Some(judge(&Key::of_volume(name), installation, able, objects))
}

/// Reads bytes as a claim, as a volume and as a class, and decides about the results, for the project's fuzz target.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn decide_from_bytes(bytes: &[u8]) {
    let (provisioner, identity) = ("p".to_owned(), "here".to_owned());
    let installation = Installation { provisioner, identity, cluster_id: "this".to_owned(), node: None };
    let rules = Arc::new(rules(&installation, Capabilities::default()));
    let mut cache = VolumeCache::new(rules.clone());
    let mut keys = Vec::new();
    if let Ok(class) = serde_json::from_slice(bytes) {
        keys.extend(cache.class_event(read_class(Change::Applied(class), &rules, &AnyProvisioner)));
    }
    if let Ok(volume) = serde_json::from_slice(bytes) {
        keys.extend(cache.volume_event(Change::Applied(volume), 0));
    }
    if let Ok(claim) = serde_json::from_slice(bytes) {
        keys.extend(cache.claim_event(Change::Applied(claim), 0));
    }
    for key in keys {
        cache.inputs(&key);
        decide(&cache.facts(&key), &rules);
    }
}

fn judge(key: &Key, installation: &Installation, able: AssumedCapabilities, objects: &Objects<'_>) -> Judgement {
    let rules = rules(installation, Capabilities::default());
    let facts = facts(key, Arc::new(rules.clone()), objects);
    let rules = match able {
        AssumedCapabilities::Least => rules,
        AssumedCapabilities::All => Rules { capabilities: everything(&facts), ..rules },
    };
    let decision = decide(&facts, &rules);
    let message = match &decision {
        Decision::Refuse(refusal) => {
            let (provisioner, volume) = (&*installation.provisioner, &*key.to_string());
            // Use the second attempt, because the first one reports no event for a missing class.
            let thresholds = Thresholds::default();
            let case = Case { provisioner, volume, facts: &facts, attempt: 2, repeats: 0, waits: 0, thresholds };
            report(Err(Stopped::Refused(refusal.clone())), &case).event.map(|event| event.text)
        }
        _ => None,
    };
    Judgement { decision, message }
}

fn rules(installation: &Installation, capabilities: Capabilities) -> Rules {
    let Installation { provisioner, identity, cluster_id, node } = installation;
    Rules {
        names: ProvisionerNames { own: provisioner.clone(), additional: Vec::new() },
        volume_names: VolumeNames::Usual,
        capabilities,
        finalizer: true,
        identity: Some(identity.as_str().into()),
        cluster_id: cluster_id.as_str().into(),
        node: node.as_deref().map(Into::into),
        node_topology: None,
        bids: None,
        safeguards: Safeguards::default(),
    }
}

fn facts(key: &Key, rules: Arc<Rules>, objects: &Objects<'_>) -> Facts {
    let mut cache = VolumeCache::new(rules.clone());
    if let Some(class) = read(objects.class) {
        cache.class_event(read_class(Change::Applied(class), &rules, &AnyProvisioner));
    }
    if let Some(volume) = read(objects.volume) {
        cache.volume_event(Change::Applied(volume), 0);
    }
    if let Some(claim) = read(objects.claim) {
        cache.claim_event(Change::Applied(claim), 0);
    }
    match objects.attempt {
        Attempt::None => {}
        Attempt::AwaitsAdoption => cache.await_adoption(std::slice::from_ref(key)),
        Attempt::Recorded(entry) => {
            if let Ok(pending) = journal_entry::read(entry, (&AnyProvisioner, &rules.capabilities)) {
                cache.adopt(key, pending);
            }
        }
    }
    cache.facts(key)
}

fn read<T: FromJson>(object: Option<&Value>) -> Option<T> {
    T::from_json(&object?.to_string()).ok()
}

/// Returns all capabilities that this claim may require.
fn everything(facts: &Facts) -> Capabilities {
    let source = facts.claim_at_work().and_then(|claim| claim.data_source.as_ref());
    Capabilities::default()
        .block()
        .selectors()
        .data_sources(source.map(|source| source.type_name()))
        .sources_of_other_namespaces()
        .volume_attributes_classes()
        .allowed_topologies()
        .mount_options()
        .expansion()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::decision::{NoAction, Refusal};
    use super::*;

    fn installation() -> Installation {
        let (provisioner, identity) = ("example.com/p".to_owned(), "storage".to_owned());
        Installation { provisioner, identity, cluster_id: "this".to_owned(), node: None }
    }

    #[test]
    fn the_decision_depends_on_the_assumed_capabilities() {
        let claim = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u",
                "annotations": {"volume.kubernetes.io/storage-provisioner": "example.com/p"}},
            "spec": {"storageClassName": "k", "volumeMode": "Block"},
        });
        let class = json!({"metadata": {"name": "k", "uid": "k"}, "provisioner": "example.com/p"});
        let objects = Objects { claim: Some(&claim), class: Some(&class), ..Objects::default() };
        let judgement = |able, objects| about_claim(&installation(), able, objects).unwrap();
        assert_eq!(judgement(AssumedCapabilities::All, &objects).decision, Decision::Provision);
        let refused = judgement(AssumedCapabilities::Least, &objects);
        assert_eq!(refused.decision, Decision::Refuse(Refusal::Block));
        assert!(refused.message.unwrap().contains("does not support block volume"));
        let without = Objects { class: None, ..objects };
        let missing = Decision::Refuse(Refusal::ClassMissing(Some("k".to_owned())));
        assert_eq!(judgement(AssumedCapabilities::All, &without).decision, missing);
        let moving = Objects { attempt: Attempt::AwaitsAdoption, ..objects };
        assert_eq!(judgement(AssumedCapabilities::All, &moving).decision, Decision::NoAction(NoAction::AwaitsAdoption));
    }
}
