//! The calls to the provisioner in one operation: fenced, limited, and with the Secrets that the class names.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use provisioner_runtime::controller::{Call, CallAborted, CallPermit, FencingToken, JournalRecord, TokenGuard};
use provisioner_runtime::limiter::{Flow, LimiterPermit, Purpose};
use provisioner_runtime::queue::Permit;

use super::backend::{UntypedAccount, UntypedBucket};
use super::cache::BucketCache;
use super::class::{of_author, read_parameters};
use super::events::unknown_keys;
use super::facts::{BucketFacts, Facts};
use super::key::Key;
use super::outcome::Stopped;
use super::record::{Record, Source};
use super::{BucketReconciler, Step};
use crate::bucket::{Account, BucketAccess, ClaimName, GrantedAccount, ProvisionedBucket};
use crate::controller::shared::calls;
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters};
use crate::controller::shared::secret_names::TemplateNames;
use crate::controller::shared::secret_reading::{READING, SecretReadError, read_secrets};
use crate::secrets::Secrets;

/// A sequence of calls. They share a permit and, while they are quick, a fence.
pub(super) struct Calls<'a> {
    reconciler: &'a BucketReconciler,
    facts: &'a Facts,
    step: &'a Step<'a>,
    flow: Flow,
    pub(super) token: FencingToken,
    _token: TokenGuard,
    /// The operation's slot in its flow.
    _place: Permit<Key>,
    permit: Option<LimiterPermit>,
}

pub(super) type CallFailure<E> = calls::CallFailure<Stopped, E>;

impl<'a> Calls<'a> {
    pub(super) fn begin(
        reconciler: &'a BucketReconciler,
        facts: &'a Facts,
        step: &'a Step<'a>,
        purpose: Purpose,
    ) -> Result<Self, Stopped> {
        let flow = flow(facts, purpose);
        let Some(place) = step.enter(&flow) else { return Err(Stopped::AwaitsPermit(flow)) };
        let (token, guard) = step.token();
        Ok(Self { reconciler, facts, step, flow, token, _token: guard, _place: place, permit: None })
    }

    /// Releases the permit, so that others can call while this operation records the results.
    pub(super) fn end(&mut self) {
        self.permit = None;
    }

    pub(super) async fn call<'b, T, E>(
        &mut self,
        limit: Duration,
        run: impl FnOnce() -> BoxFuture<'b, Result<T, E>>,
    ) -> Result<T, CallFailure<E>> {
        self.call_if(|_| true, limit, run).await
    }

    /// Calls only if the cache agrees after the wait for a permit.
    pub(super) async fn call_if<'b, T, E>(
        &mut self,
        wanted: impl FnOnce(&mut BucketCache) -> bool,
        limit: Duration,
        run: impl FnOnce() -> BoxFuture<'b, Result<T, E>>,
    ) -> Result<T, CallFailure<E>> {
        let (permit, record) = match self.permit.take() {
            Some(permit) => (permit, JournalRecord::Continues),
            None => (self.step.call_permit(&self.flow).await, JournalRecord::Exists),
        };
        let permit = self.permit.insert(permit);
        let call = Call { permit: CallPermit::Held(permit), limit, token: &self.token, record };
        CallFailure::of(self.step.call(call, wanted, run).await, Stopped::Changed, Stopped::NotFenced)
    }

    /// Returns a bucket and its claim's account as the provisioner receives them when something is to be changed or
    /// removed.
    pub(super) async fn bucket_and_account(
        &self,
        bucket: &BucketFacts,
        source: Source,
    ) -> Result<(UntypedBucket, UntypedAccount), Stopped> {
        let Self { reconciler, facts, .. } = self;
        let claim = facts.claim_name().ok_or(Stopped::Changed)?;
        let record = bucket.record();
        let of_class = || facts.class.ours().map(|class| &*class.texts);
        let texts = record.and_then(|record| record.parameters.as_ref()).or_else(of_class);
        let parameters = texts.map(|texts| parameters(reconciler, texts)).transpose()?;
        let secrets = match &parameters {
            Some(parameters) => secrets(reconciler, parameters, &claim).await?,
            None => Secrets::default(),
        };
        let config = record.map(|record| &record.config).or_else(|| Some(&facts.claim.as_ref()?.config));
        let config = config.map(of_author).unwrap_or_default();
        let attempted = record.map(|record| of_author(&record.attempted)).unwrap_or_default();
        let owner = bucket.owner(claim);
        let of_bucket = ProvisionedBucket {
            name: bucket.endpoint.bucket.to_string(),
            owner: owner.clone(),
            parameters: parameters.map(|parameters| Arc::new(parameters.parsed)),
            state: bucket.kept_state(),
            config_texts: attempted.into_iter().chain(config.clone()).collect(),
            secrets,
            cluster_id: reconciler.rules.cluster_id.to_string(),
            fencing_token: self.token.clone(),
        };
        let of_account = GrantedAccount {
            buckets: vec![access(facts, bucket, record, source, &owner)],
            account: owner,
            parameters: of_bucket.parameters.clone(),
            state: of_bucket.state.clone(),
            config_texts: config,
            access_key_id: record.and_then(|record| record.access_key_id.clone()),
            secrets: of_bucket.secrets.clone(),
            cluster_id: of_bucket.cluster_id.clone(),
            fencing_token: self.token.clone(),
        };
        Ok((of_bucket, of_account))
    }

    /// Returns the IDs of the account's keys; `None` if the backend cannot list them.
    pub(super) async fn keys(&mut self, account: UntypedAccount) -> Result<Option<Vec<String>>, Stopped> {
        let reconciler = self.reconciler;
        let unknown = |problem: &dyn Debug| tracing::debug!(?problem, "the keys of an account cannot be listed");
        match self.call(reconciler.limits.delete, || reconciler.backend.list_keys(account)).await {
            Ok(keys) => return Ok(keys),
            Err(CallFailure::Stopped(stopped)) => return Err(stopped),
            Err(CallFailure::Returned(problem)) => unknown(&problem),
            Err(CallFailure::Aborted(aborted)) => unknown(&aborted),
        }
        Ok(None)
    }

    /// Returns the account's keys that the provisioner has not delivered.
    pub(super) async fn unknown_keys(
        &mut self,
        record: &Record,
        account: &UntypedAccount,
    ) -> Result<Vec<String>, Stopped> {
        let keys = self.keys(account.clone()).await?.unwrap_or_default();
        Ok(keys.into_iter().filter(|id| !record.knows_key(id)).collect())
    }

    /// Reports which of these unknown keys a call has removed.
    pub(super) async fn report_removed(
        &mut self,
        mut before: Vec<String>,
        record: &Record,
        account: &UntypedAccount,
    ) -> Result<(), Stopped> {
        if before.is_empty() {
            return Ok(());
        }
        let after = self.unknown_keys(record, account).await?;
        before.retain(|id| !after.contains(id));
        if let Some(claim) = self.facts.claim.as_ref().filter(|_| !before.is_empty()) {
            self.reconciler.objects.context.events().record(unknown_keys(&before, claim));
        }
        Ok(())
    }
}

/// Returns the flow in which a call takes its permits: classes share them, and so do the namespaces of a class.
fn flow(facts: &Facts, purpose: Purpose) -> Flow {
    let flow = Flow { purpose, group: facts.effective_class().into(), tenant: None };
    match facts.claim_name() {
        Some(claim) => flow.of_tenant(claim.namespace),
        None => flow,
    }
}

/// Returns the claim's bucket, as provisioners receive it together with the claim's account.
pub(super) fn access(
    facts: &Facts,
    bucket: &BucketFacts,
    record: Option<&Record>,
    source: Source,
    account: &Account,
) -> BucketAccess {
    let shared = record.and_then(|record| record.owner.clone());
    let (owner, state) = match (shared, source) {
        (Some(claim), _) => {
            let state = facts.owner.bucket.as_ref().map(|bucket| bucket.kept_state());
            (Some(Account::of(claim)), state.unwrap_or_default())
        }
        (None, Source::Provisioned) => (Some(account.clone()), bucket.kept_state()),
        (None, Source::Granted | Source::Unknown) => (None, BTreeMap::new()),
    };
    BucketAccess { state, ..BucketAccess::new(&*bucket.endpoint.bucket, owner) }
}

/// Reads the class's parameters from their recorded form.
pub(super) fn parameters(
    reconciler: &BucketReconciler,
    texts: &BTreeMap<String, String>,
) -> Result<ClassParameters, Stopped> {
    read_parameters(texts, &reconciler.rules, &*reconciler.backend).map_err(|bad| match bad {
        BadParameters::Invalid(problem) => Stopped::BadRecord(problem),
        BadParameters::Crashed(panic) => {
            Stopped::ProvisionAborted { method: "Parameters::deserialize", aborted: CallAborted::Panicked(panic) }
        }
    })
}

/// Reads the Secrets that a class names for this claim.
pub(super) async fn secrets(
    reconciler: &BucketReconciler,
    parameters: &ClassParameters,
    claim: &ClaimName,
) -> Result<Secrets, Stopped> {
    let names = TemplateNames { claim: &claim.name, namespace: &claim.namespace, volume: "" };
    read_secrets(&reconciler.objects.context, &parameters.secrets, names).await.map_err(|unread| match unread {
        SecretReadError::Unnamed(problem) => Stopped::SecretName(problem),
        SecretReadError::Missing { namespace, name } => Stopped::SecretMissing { namespace, name },
        SecretReadError::Failed(error) => Stopped::CallFailed { doing: READING, error },
    })
}
