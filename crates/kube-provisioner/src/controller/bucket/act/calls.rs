//! Calls of the author's code: fenced, bounded, with the Secrets that the class names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use provisioner_runtime::controller::{Call, CallAborted, CallPermit, FencingToken, JournalRecord, Refused};
use provisioner_runtime::limiter::{Flow, LimiterPermit};

use super::{Actions, Step};
use crate::bucket::{ClaimName, GrantedAccount, ProvisionedBucket};
use crate::controller::bucket::backend::{UntypedAccount, UntypedBucket};
use crate::controller::bucket::class::read_parameters;
use crate::controller::bucket::facts::{BucketFacts, ClassState, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::Source;
use crate::controller::bucket::share::of_author;
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters};
use crate::controller::shared::secret_names::TemplateNames;
use crate::controller::shared::secret_reading::{READING, Unread, read_secrets};
use crate::secrets::Secrets;

/// Calls of the author's code for one key, one after the other: they share a permit, and while they are quick, a fence.
pub(super) struct Calls<'s> {
    step: &'s Step<'s>,
    pub(super) token: &'s FencingToken,
    permit: LimiterPermit,
    begun: bool,
}

impl<'s> Calls<'s> {
    /// Waits for the permit.
    pub(super) async fn begin(step: &'s Step<'s>, token: &'s FencingToken, flow: &Flow) -> Self {
        Self { step, token, permit: step.call_permit(flow).await, begun: false }
    }

    pub(super) async fn call<'a, T>(
        &mut self,
        limit: Duration,
        run: impl FnOnce() -> BoxFuture<'a, T>,
    ) -> Result<Result<T, CallAborted>, Outcome> {
        let record = if self.begun { JournalRecord::Continues } else { JournalRecord::Exists };
        self.begun = true;
        let call = Call { permit: CallPermit::Held(&self.permit), limit, token: self.token, record };
        match self.step.call(call, |_| true, run).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(Refused::Aborted(aborted)) => Ok(Err(aborted)),
            Err(Refused::Unwanted) => Err(Outcome::Changed),
            Err(Refused::Journal(error)) => Err(Outcome::NotFenced(error)),
        }
    }
}

impl Actions {
    /// The class's parameters as they are written down.
    pub(super) fn parameters(&self, texts: &BTreeMap<String, String>) -> Result<ClassParameters, Outcome> {
        read_parameters(texts, &self.rules, &*self.backend).map_err(|bad| match bad {
            BadParameters::Wrong(problem) => Outcome::BadRecord(problem),
            BadParameters::Crashed(panic) => {
                Outcome::ProvisionAborted { method: "Parameters::deserialize", aborted: CallAborted::Panicked(panic) }
            }
        })
    }

    /// The Secrets that a class names for this claim.
    pub(super) async fn secrets(&self, parameters: &ClassParameters, claim: &ClaimName) -> Result<Secrets, Outcome> {
        let names = TemplateNames { claim: &claim.name, namespace: &claim.namespace, volume: "" };
        read_secrets(&self.context, &parameters.secrets, names).await.map_err(|unread| match unread {
            Unread::Unnamed(problem) => Outcome::SecretName(problem),
            Unread::Missing { namespace, name } => Outcome::SecretMissing { namespace, name },
            Unread::Failed(error) => Outcome::CallFailed { doing: READING, error },
        })
    }

    /// A bucket and its claim's account as the author gets them when something is to be changed or removed.
    pub(super) async fn known(
        &self,
        bucket: &BucketFacts,
        facts: &Facts,
        source: Source,
        token: &FencingToken,
    ) -> Result<(UntypedBucket, UntypedAccount), Outcome> {
        let claim = facts.claim_name().ok_or(Outcome::Changed)?;
        let record = bucket.record();
        let of_class = match &facts.class {
            ClassState::Ours(class) => Some(&*class.texts),
            _ => None,
        };
        let texts = record.and_then(|record| record.parameters.as_ref()).or(of_class);
        let parameters = texts.map(|texts| self.parameters(texts)).transpose()?;
        let secrets = match &parameters {
            Some(parameters) => self.secrets(parameters, &claim).await?,
            None => Secrets::default(),
        };
        let config = record.map(|record| record.config.clone());
        let config = config.or_else(|| Some(facts.claim.as_ref()?.config.clone()));
        let owner = bucket.owner(claim);
        let of_bucket = ProvisionedBucket {
            name: bucket.endpoint.bucket.to_string(),
            owner: owner.clone(),
            parameters: parameters.map(|parameters| Arc::new(parameters.parsed)),
            state: bucket.kept_state(),
            config_texts: of_author(&config.unwrap_or_default()),
            secrets,
            cluster_id: self.rules.cluster_id.to_string(),
            fencing_token: token.clone(),
        };
        let of_account = GrantedAccount {
            buckets: vec![facts.access(bucket, (record.map(|record| &**record), source), &owner)],
            account: owner,
            parameters: of_bucket.parameters.clone(),
            state: of_bucket.state.clone(),
            config_texts: of_bucket.config_texts.clone(),
            access_key_id: record
                .filter(|record| record.has_own_account())
                .and_then(|record| record.access_key_id.clone()),
            secrets: of_bucket.secrets.clone(),
            cluster_id: of_bucket.cluster_id.clone(),
            fencing_token: token.clone(),
        };
        Ok((of_bucket, of_account))
    }
}
