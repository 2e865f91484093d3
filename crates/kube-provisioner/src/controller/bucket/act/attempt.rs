//! Calls the author's `provision` or `grant`. The ObjectBucket is written first, with all that deletion needs.

use std::pin::pin;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use objectbucket_api::names::{AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY};
use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::{FencingToken, NoAnswer};
use tokio::time::sleep;

use super::{Actions, Step};
use crate::bucket::{Bucket, BucketRequest, Credentials, Source};
use crate::controller::bucket::backend::UntypedRequest;
use crate::controller::bucket::decide::{Reason, bucket_name, object_name};
use crate::controller::bucket::events::{SLOW, slow};
use crate::controller::bucket::facts::{BucketFacts, ClaimFacts, ClassState, Delivered, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::Record;
use crate::controller::bucket::safeguards::BucketSafeguard;
use crate::controller::class_parameters::ClassParameters;
use crate::error::{ProvisionError, Verdict};
use crate::secrets::Secrets;

/// What a call for a claim is made with.
struct Inputs {
    claim: Arc<ClaimFacts>,
    source: Source,
    /// As they are written down.
    record: Record,
    name: String,
    class: ClassParameters,
    config: crate::controller::class_parameters::Parsed,
}

impl Actions {
    pub(super) async fn attempt(&self, reason: Reason, facts: &Facts, step: &Step<'_>) -> Outcome {
        let inputs = match self.inputs(facts) {
            Ok(inputs) => inputs,
            Err(outcome) => return outcome,
        };
        let class = facts.class_name();
        let Some(_permit) = step.enter(class) else { return Outcome::AwaitsPermit(class.into()) };
        let (token, _guard) = step.token(None::<fn() -> bool>);
        let answer = async {
            // What is wrong with these is known before anything is written.
            let secrets = self.secrets(&inputs.class, &inputs.claim.name()).await?;
            let credentials = self.credentials(facts).await?;
            let bucket = self.recorded(&inputs, facts).await?;
            let request = request(&inputs, &bucket, secrets, credentials, &token);
            let limit = self.limits.provision;
            let answer = self
                .call(step, (&token, class), limit, || {
                    let call = match inputs.source {
                        Source::Provisioned => self.backend.provision(request),
                        Source::Granted => self.backend.grant(request),
                    };
                    Box::pin(self.watched(&inputs.claim, call))
                })
                .await?;
            Ok((bucket, answer))
        };
        match answer.await {
            Ok((bucket, Ok(Ok(made)))) => {
                let record = Record { config: inputs.claim.config.clone(), ..inputs.record };
                match self.deliver(&inputs.claim, &bucket, record, made).await {
                    Ok(()) => match reason {
                        Reason::New => Outcome::Provisioned { bucket: inputs.name },
                        Reason::Config => Outcome::Configured,
                        Reason::Secret => Outcome::Restored,
                    },
                    Err(outcome) => outcome,
                }
            }
            Ok((bucket, Ok(Err(error)))) => self.not_provisioned(&error, &bucket, &inputs.record).await,
            Ok((_, Err(no_answer))) => {
                let method = if inputs.source == Source::Granted { "grant" } else { "provision" };
                Outcome::Broke { method, no_answer }
            }
            Err(outcome) => outcome,
        }
    }

    /// What was written down when the attempt began wins over the class as it is now.
    fn inputs(&self, facts: &Facts) -> Result<Inputs, Outcome> {
        let claim = facts.claim.clone().ok_or(Outcome::Changed)?;
        let config = self.backend_config(&claim)?;
        let known = facts.bucket().and_then(|bucket| Some((bucket, bucket.record()?)));
        let class = match &facts.class {
            ClassState::Ours(class) => Some(class),
            _ => None,
        };
        let of_class = || class.ok_or(Outcome::ClassGone);
        let (record, name) = match known {
            Some((bucket, record)) => {
                let mut record = (**record).clone();
                if record.parameters.is_none() {
                    record.parameters = Some((*of_class()?.texts).clone());
                }
                (record, bucket.endpoint.bucket.to_string())
            }
            None => {
                let class = of_class()?;
                let name = bucket_name(&claim, class).ok_or(Outcome::Changed)?;
                let record = Record {
                    source: Some(class.source()),
                    parameters: Some((*class.texts).clone()),
                    config: claim.config.clone(),
                    made: false,
                    tls: false,
                    data: Default::default(),
                    access_key_id: None,
                    // New keys need no rotation.
                    rotation: claim.rotation.as_deref().map(str::to_owned),
                    retire_at: None,
                };
                (record, name)
            }
        };
        let source = record.source.or_else(|| class.map(|class| class.source()));
        let source = source.ok_or(Outcome::ClassGone)?;
        let parameters = self.parameters(record.parameters.as_ref().unwrap_or(&Default::default()))?;
        Ok(Inputs { claim, source, record, name, class: parameters, config })
    }

    fn backend_config(&self, claim: &ClaimFacts) -> Result<crate::controller::class_parameters::Parsed, Outcome> {
        match provisioner_runtime::controller::unpanicked(|| self.backend.parse_config(&claim.config)) {
            Ok(config) => config.map_err(|error| Outcome::BadConfig(error.to_string())),
            Err(panic) => Err(Outcome::Broke { method: "Config::deserialize", no_answer: NoAnswer::Panicked(panic) }),
        }
    }

    /// The ObjectBucket of the attempt. When this returns, it is written, and the claim stays until we let it go.
    async fn recorded(&self, inputs: &Inputs, facts: &Facts) -> Result<Arc<BucketFacts>, Outcome> {
        if let Some(bucket) = facts.bucket() {
            if bucket.record().is_some() {
                return Ok(bucket.clone());
            }
            let written = self.write_bucket(bucket, &inputs.record, None).await?;
            return Ok(Arc::new(written));
        }
        let ClassState::Ours(class) = &facts.class else { return Err(Outcome::Changed) };
        let object = object_name(&inputs.claim, |name| self.cache().is_taken(name));
        self.prepare_claim(&inputs.claim, &object, &inputs.name).await?;
        match self.create_bucket(&object, &inputs.claim, class, &inputs.record, &inputs.name).await {
            Ok(bucket) => Ok(Arc::new(bucket)),
            // Our watch is behind: the object is this claim's already, or another's.
            Err(CallError::AlreadyExists) => {
                self.read_bucket(&object).await?;
                Err(Outcome::Changed)
            }
            Err(error) => Err(Outcome::CallFailed { doing: "writing the ObjectBucket", error }),
        }
    }

    /// The key in the claim's Secret, for backends that show a key only once.
    async fn credentials(&self, facts: &Facts) -> Result<Option<Credentials>, Outcome> {
        let (Some(claim), Delivered::Intact) = (&facts.claim, facts.secret) else { return Ok(None) };
        let api: Api<Secret> = Api::namespaced(self.context.client().clone(), &claim.namespace);
        let secret = match self.context.request(api.get(&claim.name)).await {
            Ok(secret) => secret,
            Err(CallError::NotFound) => return Ok(None),
            Err(error) => return Err(Outcome::CallFailed { doing: "reading the claim's Secret", error }),
        };
        let owners = secret.metadata.owner_references.iter().flatten();
        if !owners.map(|owner| &*owner.uid).any(|uid| uid == &*claim.uid) {
            return Ok(None);
        }
        let data = secret.data.unwrap_or_default();
        let text = |name: &str| Some(str::from_utf8(&data.get(name)?.0).ok()?.to_owned());
        let credentials = text(AWS_ACCESS_KEY_ID).zip(text(AWS_SECRET_ACCESS_KEY));
        Ok(credentials.map(|(id, secret)| Credentials::new(id, secret)))
    }

    /// Runs a call and sends an event if it is slow.
    async fn watched<T>(&self, claim: &ClaimFacts, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = sleep(SLOW) => self.context.events().record(slow(&self.rules.names.own, claim)),
        }
        call.await
    }

    /// A final answer ends the attempt, so its ObjectBucket goes. After any other it stays.
    async fn not_provisioned(&self, error: &ProvisionError, bucket: &BucketFacts, record: &Record) -> Outcome {
        let verdict = error.verdict();
        let kept = self.rules.safeguards.include(BucketSafeguard::FailedAttempts);
        let may_be_left = record.made || kept && matches!(verdict, Verdict::Retry | Verdict::InProgress);
        if !may_be_left && let Err(outcome) = self.remove_bucket(bucket).await {
            return outcome;
        }
        Outcome::NotProvisioned { verdict, message: error.to_string(), retry_after: error.retry_after() }
    }
}

fn request(
    inputs: &Inputs,
    bucket: &BucketFacts,
    secrets: Secrets,
    credentials: Option<Credentials>,
    token: &FencingToken,
) -> UntypedRequest {
    let access_key_id = inputs.record.access_key_id.clone();
    let credentials = credentials
        .filter(|credentials| access_key_id.as_ref().is_none_or(|known| *known == credentials.access_key_id));
    let request = BucketRequest {
        name: inputs.name.clone(),
        claim: inputs.claim.name(),
        parameters: Arc::new(()),
        config: Arc::new(()),
        config_texts: inputs.claim.config.clone(),
        state: bucket.state.clone(),
        access_key_id,
        credentials,
        secrets,
        fencing_token: token.clone(),
    };
    UntypedRequest { request, parameters: inputs.class.parsed.clone(), config: inputs.config.clone() }
}

/// The answer of the author's code, for `deliver`.
pub(super) type Made = Bucket;
