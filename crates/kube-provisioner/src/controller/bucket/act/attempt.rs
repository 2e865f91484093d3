//! An attempt to give a claim what it asks for. The ObjectBucket is written first, with all that deletion needs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use objectbucket_api::names::{AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, generated_bucket_name};
use provisioner_runtime::Cache as _;
use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::limiter::Purpose;

use super::calls::Calls;
use super::deliver::Delivery;
use super::make::NotMade;
use super::{Actions, Step};
use crate::bucket::Credentials;
use crate::controller::bucket::cache::key_of;
use crate::controller::bucket::decide::{bucket_name, object_name};
use crate::controller::bucket::decision::Reason;
use crate::controller::bucket::delivered_names::without_names;
use crate::controller::bucket::events;
use crate::controller::bucket::facts::{BucketFacts, ClaimFacts, ClassState, Delivered, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::{Record, Source};
use crate::controller::bucket::safeguards::BucketSafeguard;
use crate::controller::bucket::share::{of_author, shared_bucket};
use crate::controller::shared::class_parameters::{ClassParameters, Parsed};
use crate::error::ProvisionVerdict;
use crate::parameters::{ParameterError, Problem};

/// What the calls for a claim are made with.
pub(super) struct Inputs {
    pub(super) claim: Arc<ClaimFacts>,
    pub(super) source: Source,
    /// Whether the claim had its Secret and its ConfigMap before.
    pub(super) is_served: bool,
    /// As they are written down.
    pub(super) record: Record,
    pub(super) name: String,
    pub(super) class: ClassParameters,
    pub(super) config: Parsed,
}

/// The key of a claim's account, as far as it is known.
pub(super) struct AccountKey {
    pub(super) access_key_id: Option<String>,
    pub(super) credentials: Option<Credentials>,
    pub(super) state: Texts,
}

pub(super) type Texts = std::collections::BTreeMap<String, String>;

impl Actions {
    pub(super) async fn attempt(&self, reason: Reason, facts: &Facts, step: &Step<'_>) -> Outcome {
        let inputs = match self.inputs(facts) {
            Ok(inputs) => inputs,
            Err(outcome) => return outcome,
        };
        let flow = facts.flow(Purpose::Create);
        let Some(_permit) = step.enter(&flow) else { return Outcome::AwaitsPermit(flow) };
        let (token, _guard) = step.token();
        let made = async {
            if reason == Reason::Secret {
                self.confirm_claim(&inputs.claim).await?;
                self.own_delivered(facts, &inputs.claim).await?;
            }
            // What is wrong with these is known before anything is written.
            let secrets = self.secrets(&inputs.class, &inputs.claim.name()).await?;
            let key = self.account_key(facts, &inputs.record).await?;
            if key.credentials.is_none() && !inputs.record.keyless {
                self.confirm_writable(&inputs.claim, &inputs.record).await?;
            }
            let bucket = self.recorded(&inputs, facts).await?;
            self.join(&inputs.record, facts).await?;
            let calls = Calls::begin(step, &token, &flow).await;
            let made = self.make(&inputs, (&bucket, facts), (secrets, key), calls).await?;
            Ok((bucket, made))
        };
        match made.await {
            Ok((bucket, Ok(made))) => {
                let has_unused_prefix = has_unused_prefix(&inputs);
                let record = Record {
                    config: inputs.record.effective_config(&inputs.claim, facts.is_served()),
                    ..inputs.record
                };
                let record = with_own_account(record, &inputs.claim);
                match self.deliver(&inputs.claim, &bucket, record, made).await {
                    Ok(Delivery::NewKey) => Outcome::KeyReplaced,
                    Ok(Delivery::Complete) => match reason {
                        Reason::New => {
                            if has_unused_prefix {
                                let unused = events::unused_prefix(&inputs.name, &inputs.claim);
                                self.context.events().record(unused);
                            }
                            Outcome::Provisioned { bucket: inputs.name }
                        }
                        Reason::Config => Outcome::Configured,
                        Reason::Secret => Outcome::Restored,
                    },
                    Err(outcome) => outcome,
                }
            }
            Ok((bucket, Err(not_made))) => self.not_provisioned(not_made, &bucket, (&inputs.record, facts)).await,
            Err(outcome) => outcome,
        }
    }

    /// What was written down when the attempt began wins over the class as it is now.
    fn inputs(&self, facts: &Facts) -> Result<Inputs, Outcome> {
        let claim = facts.claim.clone().ok_or(Outcome::Changed)?;
        let known = facts.bucket().and_then(|bucket| Some((bucket, bucket.record()?)));
        let applied = known.filter(|(_, record)| record.made).map(|(_, record)| &record.config);
        let config = self.backend_config(&claim, applied)?;
        let class = match &facts.class {
            ClassState::Ours(class) => Some(class),
            _ => None,
        };
        let of_class = || class.ok_or(Outcome::ClassGone);
        let (record, name) = match known {
            Some((bucket, record)) => {
                let mut record = (**record).clone();
                if record.parameters.is_none() {
                    record.parameters = Some(without_names(&of_class()?.texts));
                }
                (record, bucket.endpoint.bucket.to_string())
            }
            None => {
                let class = of_class()?;
                let shared = shared_bucket(&claim, class, facts, &self.rules).map_err(Outcome::Refused)?;
                let (source, name, owner, parameters) = match shared {
                    Some(shared) => (Source::Granted, Some(shared.bucket), Some(shared.owner), shared.parameters),
                    None => (class.source(), bucket_name(&claim, class), None, None),
                };
                let name = name.ok_or(Outcome::Changed)?;
                let record = Record {
                    source: Some(source),
                    claim: Some(claim.name()),
                    owner,
                    parameters: Some(parameters.unwrap_or_else(|| (*class.texts).clone())),
                    config: claim.config.clone(),
                    // New keys need no rotation.
                    rotation: claim.rotation.as_deref().map(str::to_owned),
                    ..Record::unknown()
                };
                (record, name)
            }
        };
        let record = match facts.wanted_names(&claim) {
            Ok(names) => record.named(&claim.name, names),
            Err(_) => record,
        };
        let source = record.source.or_else(|| class.map(|class| class.source()));
        let source = source.ok_or(Outcome::ClassGone)?;
        let parameters = self.parameters(record.parameters.as_ref().unwrap_or(&Default::default()))?;
        Ok(Inputs { claim, source, is_served: facts.is_served(), record, name, class: parameters, config })
    }

    /// What was applied is never refused later: a claim that was adopted may have keys which only its former provisioner knew,
    /// and another version of this one may know fewer.
    fn backend_config(&self, claim: &ClaimFacts, applied: Option<&Texts>) -> Result<Parsed, Outcome> {
        let mut config = of_author(&claim.config);
        loop {
            let read = match provisioner_runtime::controller::catch_panic(|| self.backend.parse_config(&config)) {
                Ok(read) => read,
                Err(panic) => {
                    let aborted = CallAborted::Panicked(panic);
                    return Err(Outcome::ProvisionAborted { method: "Config::deserialize", aborted });
                }
            };
            let Err(error) = read else { return read.map_err(|error| self.bad_config(&error)) };
            let is_applied = |key: &&str| applied.is_some_and(|applied| applied.get(*key) == config.get(*key));
            let refused = error.problems().iter().filter_map(Problem::key).filter(is_applied);
            let refused: Vec<String> = refused.map(str::to_owned).collect();
            if refused.is_empty() {
                return Err(self.bad_config(&error));
            }
            config.retain(|key, _| !refused.contains(key));
        }
    }

    fn bad_config(&self, error: &ParameterError) -> Outcome {
        let is_unknown = error.problems().iter().any(|problem| matches!(problem, Problem::Unknown { .. }));
        let known = self.rules.known_config.clone().filter(|_| is_unknown).unwrap_or_default();
        Outcome::BadConfig { problem: error.to_string(), known }
    }

    /// The ObjectBucket of the attempt. When this returns, it is written, and the claim stays until we let it go.
    async fn recorded(&self, inputs: &Inputs, facts: &Facts) -> Result<Arc<BucketFacts>, Outcome> {
        if let Some(bucket) = facts.bucket() {
            if bucket.record().is_some_and(|record| !record.made) {
                self.confirm_bucket(bucket).await?;
            }
            let record = Record { attempted: attempted(inputs), ..inputs.record.clone() };
            // Without our finalizer, its removal may have begun, and only the server knows how far that came.
            if bucket.has_finalizer() && bucket.record().is_some_and(|known| **known == record) {
                return Ok(bucket.clone());
            }
            let written = self.write_bucket(bucket, &record, None).await?;
            return Ok(Arc::new(written));
        }
        let ClassState::Ours(class) = &facts.class else { return Err(Outcome::Changed) };
        let object = {
            let cache = self.cache();
            // An earlier attempt has written it, and the watch shows it only now.
            if cache.facts(&key_of(&inputs.claim)).bucket().is_some() {
                return Err(Outcome::Changed);
            }
            object_name(&inputs.claim, |name| cache.is_taken(name))
        };
        self.prepare_claim(&inputs.claim, &object, &inputs.name).await?;
        match self.create_bucket(&object, &inputs.claim, class, &inputs.record, &inputs.name).await {
            Ok(bucket) => {
                self.check_claim(&inputs.claim, &bucket).await?;
                Ok(Arc::new(bucket))
            }
            // Our watch is behind: the object is this claim's already, or another's.
            Err(CallError::AlreadyExists) => {
                self.read_bucket(&object).await?;
                Err(Outcome::Changed)
            }
            Err(error) => Err(Outcome::CallFailed { doing: "writing the ObjectBucket", error }),
        }
    }

    /// The API server looks for finalizers when a deletion begins and not when it ends, so one that began before ours was written
    /// takes the claim away all the same. Nothing has been asked of the backend yet, and the ObjectBucket is removed with the claim.
    async fn check_claim(&self, claim: &ClaimFacts, bucket: &BucketFacts) -> Result<(), Outcome> {
        if self.read_claim(&claim.name()).await?.is_some() {
            return Ok(());
        }
        self.remove_bucket(bucket).await?;
        Err(Outcome::Changed)
    }

    /// Returns what is known of the key of the claim's account.
    async fn account_key(&self, facts: &Facts, record: &Record) -> Result<AccountKey, Outcome> {
        let state = facts.bucket().map(|bucket| bucket.kept_state()).unwrap_or_default();
        if !record.has_own_account() {
            return Ok(AccountKey { access_key_id: None, credentials: None, state });
        }
        let access_key_id = record.newest_key().map(str::to_owned);
        let is_it = |found: &Credentials| access_key_id.as_ref().is_none_or(|known| *known == found.access_key_id);
        let credentials = self.credentials(facts).await?.filter(is_it);
        // A key that the API server did not let us deliver is nobody's.
        let access_key_id = access_key_id.filter(|_| credentials.is_some() || facts.is_served());
        Ok(AccountKey { access_key_id, credentials, state })
    }

    /// The key in the claim's Secret, for backends that show a key only once.
    pub(super) async fn credentials(&self, facts: &Facts) -> Result<Option<Credentials>, Outcome> {
        let is_intact = matches!(facts.secret, Delivered::Intact | Delivered::Unowned);
        let Some(claim) = facts.claim.as_ref().filter(|_| is_intact) else { return Ok(None) };
        let api: Api<Secret> = Api::namespaced(self.context.client().clone(), &claim.namespace);
        let secret = match self.context.request(api.get(&facts.names.secret)).await {
            Ok(secret) => secret,
            Err(CallError::NotFound) => return Ok(None),
            Err(error) => return Err(Outcome::CallFailed { doing: "reading the claim's Secret", error }),
        };
        let owners = secret.metadata.owner_references.iter().flatten();
        if !owners.map(|owner| &*owner.uid).any(|uid| *uid == *claim.uid) {
            return Ok(None);
        }
        let data = secret.data.unwrap_or_default();
        let text = |name: &str| Some(str::from_utf8(&data.get(name)?.0).ok()?.to_owned());
        let credentials = text(AWS_ACCESS_KEY_ID).zip(text(AWS_SECRET_ACCESS_KEY));
        Ok(credentials.map(|(id, secret)| Credentials::new(id, secret)))
    }

    /// A final answer ends the attempt, so its ObjectBucket is removed. After any other it stays.
    async fn not_provisioned(
        &self,
        not_made: NotMade,
        bucket: &BucketFacts,
        (record, facts): (&Record, &Facts),
    ) -> Outcome {
        let NotMade { error, others_left } = not_made;
        let asked_before = others_left || facts.bucket().is_some();
        let verdict = match error.verdict() {
            // The attempt goes on, or its claim would go without what is left.
            verdict if others_left && !verdict.may_be_left() && !record.made => ProvisionVerdict::Retry,
            verdict => verdict,
        };
        let kept = self.rules.safeguards.include(BucketSafeguard::FailedAttempts);
        // Nothing was ever asked of the backend, so the next attempt uses the class as it is then, and a deletion needs no backend.
        let asked_nothing = matches!(verdict, ProvisionVerdict::NoChange | ProvisionVerdict::AlreadyExists);
        let may_be_left = record.made || kept && verdict.may_be_left() && (asked_before || !asked_nothing);
        if !may_be_left && let Err(outcome) = self.remove_bucket(bucket).await {
            return outcome;
        }
        let message = error.event_text(&bucket.name);
        Outcome::NotProvisioned { verdict, message, retry_after: error.retry_after() }
    }
}

/// Returns true if the claim has both a name for its bucket and a prefix. A generated name is on the claim, too.
fn has_unused_prefix(inputs: &Inputs) -> bool {
    let Inputs { claim, source, name, .. } = inputs;
    let is_unused = |prefix: &str| !prefix.is_empty() && generated_bucket_name(prefix, &claim.uid) != *name;
    *source == Source::Provisioned && claim.bucket_name.is_some() && claim.prefix.as_deref().is_some_and(is_unused)
}

/// Records that the claim has left the shared account of an earlier version. Its new key needs no rotation.
fn with_own_account(mut record: Record, claim: &ClaimFacts) -> Record {
    if let Some(shared) = record.account.as_mut().filter(|shared| !shared.left) {
        shared.left = true;
        (record.new_key, record.retire_at) = (None, None);
        record.rotation = claim.rotation.as_deref().map(str::to_owned);
    }
    record
}

/// What this attempt and those before it may apply or take away before they fail, where that differs from what was applied the
/// last time.
pub(super) fn attempted(inputs: &Inputs) -> Texts {
    let Record { config, attempted, .. } = &inputs.record;
    let asked = &inputs.record.effective_config(&inputs.claim, inputs.is_served);
    let differs = |(key, _): &(&String, &String)| asked.get(*key) != config.get(*key);
    let changed = config.iter().chain(asked).filter(differs);
    attempted.iter().chain(changed).map(|(key, value)| (key.clone(), value.clone())).collect()
}
