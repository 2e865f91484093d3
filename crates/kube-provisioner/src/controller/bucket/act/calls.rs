//! Calls of the author's code: fenced, bounded, with the Secrets that the class names.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use provisioner_runtime::controller::{Call, CallAborted, CallPermit, FencingToken, JournalRecord, Refused};
use provisioner_runtime::limiter::Flow;

use super::{Actions, Step};
use crate::bucket::{ClaimName, ProvisionedBucket, Source};
use crate::controller::bucket::backend::UntypedBucket;
use crate::controller::bucket::class::read_parameters;
use crate::controller::bucket::facts::{BucketFacts, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::share::of_author;
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters};
use crate::controller::shared::secret_names::TemplateNames;
use crate::controller::shared::secret_reading::{READING, Unread, read_secrets};
use crate::secrets::Secrets;

impl Actions {
    /// One call of the author's code for this key.
    pub(super) async fn call<'a, T>(
        &'a self,
        step: &Step<'_>,
        (token, flow): (&FencingToken, &Flow),
        limit: Duration,
        run: impl FnOnce() -> BoxFuture<'a, T>,
    ) -> Result<Result<T, CallAborted>, Outcome> {
        let call = Call { permit: CallPermit::Of(flow), limit, token, record: JournalRecord::Exists };
        match step.call(call, |_| true, run).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(Refused::Aborted(aborted)) => Ok(Err(aborted)),
            Err(Refused::Unwanted) => Err(Outcome::Changed),
            Err(Refused::Journal(error)) => Err(Outcome::NotFenced(error)),
        }
    }

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

    /// A bucket as the author gets it when something is to be changed or removed.
    pub(super) async fn provisioned(
        &self,
        bucket: &BucketFacts,
        facts: &Facts,
        source: Source,
        token: &FencingToken,
    ) -> Result<UntypedBucket, Outcome> {
        let claim = facts.claim_name().ok_or(Outcome::Changed)?;
        let record = bucket.record();
        let of_class = match &facts.class {
            crate::controller::bucket::facts::ClassState::Ours(class) => Some(&*class.texts),
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
        let bucket = ProvisionedBucket {
            name: bucket.endpoint.bucket.to_string(),
            claim: bucket.made_for(claim),
            source,
            made_for: record.and_then(|record| facts.made_for(record)),
            parameters: None,
            state: bucket.kept_state(),
            config_texts: of_author(&config.unwrap_or_default()),
            access_key_id: record.and_then(|record| record.access_key_id.clone()),
            secrets,
            cluster_id: self.rules.cluster_id.to_string(),
            fencing_token: token.clone(),
        };
        Ok(UntypedBucket { bucket, parameters: parameters.map(|parameters| parameters.parsed) })
    }
}
