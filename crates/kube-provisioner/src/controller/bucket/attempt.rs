//! An attempt to provide what a claim requests: a bucket, if it wants its own, and an account with access to it. The
//! ObjectBucket is written first, with all data that deletion needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use provisioner_runtime::Cache as _;
use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::{CallAborted, catch_panic};
use provisioner_runtime::limiter::Purpose;

use super::cache::key_of;
use super::calls::{self, CallFailure, Calls, access};
use super::class::of_author;
use super::decide::{bucket_name, effective_config, object_name, shared_bucket, wanted_names};
use super::decision::Reason;
use super::delivered_names::without_names;
use super::delivery::deliver;
use super::events;
use super::facts::{BucketFacts, ClaimFacts, Facts};
use super::outcome::{Done, Outcome, Stopped};
use super::record::{Record, Source};
use super::safeguards::BucketSafeguard;
use super::{BucketReconciler, Step};
use crate::bucket::{Bucket, BucketRequest, Credentials, GrantRequest, Granted};
use crate::controller::shared::calls::watched;
use crate::controller::shared::class_parameters::{ClassParameters, Parsed};
use crate::error::{ProvisionError, ProvisionVerdict};
use crate::parameters::{ParameterError, Problem};
use crate::secrets::Secrets;

type Texts = BTreeMap<String, String>;

const CREATING: &str = "creating the ObjectBucket";

pub(super) struct Attempt<'a> {
    reconciler: &'a BucketReconciler,
    facts: &'a Facts,
    reason: Reason,
    claim: Arc<ClaimFacts>,
    source: Source,
    record: Record,
    /// The bucket's name.
    name: String,
    class: ClassParameters,
    config: Parsed,
}

/// The known parts of the key of a claim's account.
struct AccountKey {
    access_key_id: Option<String>,
    credentials: Option<Credentials>,
    state: Texts,
}

/// The reason why the provisioner did not create the bucket or the account.
enum NotCreated {
    Stopped(Stopped),
    Failed {
        error: ProvisionError,
        /// True if the other method may have left something, in this attempt or before.
        other_assets_may_remain: bool,
    },
}

impl<'a> Attempt<'a> {
    pub(super) async fn run(
        reconciler: &'a BucketReconciler,
        reason: Reason,
        facts: &'a Facts,
        step: &'a Step<'a>,
    ) -> Outcome {
        let attempt = Self::new(reconciler, reason, facts)?;
        let calls = Calls::begin(reconciler, facts, step, Purpose::Create)?;
        attempt.execute(calls).await
    }

    async fn execute(self, mut calls: Calls<'a>) -> Outcome {
        let (objects, claim) = (&self.reconciler.objects, &*self.claim);
        if self.reason == Reason::Secret {
            objects.confirm_claim(claim).await?;
            objects.set_owner_of_delivered(self.facts, claim).await?;
        }
        // Problems with the Secrets are found before anything is written.
        let secrets = calls::secrets(self.reconciler, &self.class, &claim.name()).await?;
        let key = self.account_key().await?;
        if key.credentials.is_none() && !self.record.keyless {
            let copied = objects.copied_metadata(claim, &self.record).await?;
            objects.confirm_writable(claim, &self.record, &copied).await?;
        }
        let bucket = self.write_object_bucket().await?;
        self.mark_owner_shared().await?;
        let made = self.create_and_grant(&bucket, secrets, key, &mut calls).await;
        calls.end();
        let (made, granted) = match made {
            Ok(answers) => answers,
            Err(NotCreated::Stopped(stopped)) => return Err(stopped),
            Err(NotCreated::Failed { error, other_assets_may_remain }) => {
                return Err(self.not_provisioned(&error, other_assets_may_remain, &bucket).await);
            }
        };
        let replaces_key = deliver(self.reconciler, claim, &bucket, self.delivered_record(), made, granted).await?;
        Ok(match self.reason {
            _ if replaces_key => Done::KeyReplaced,
            Reason::New => {
                if self.has_unused_prefix() {
                    objects.context.events().record(events::unused_prefix(&self.name, claim));
                }
                Done::Provisioned { bucket: self.name }
            }
            Reason::Config => Done::Configured,
            Reason::Secret => Done::Restored,
        })
    }

    /// The values recorded when the attempt began take precedence over the current class.
    fn new(reconciler: &'a BucketReconciler, reason: Reason, facts: &'a Facts) -> Result<Self, Stopped> {
        let claim = facts.claim.clone().ok_or(Stopped::Changed)?;
        let known = facts.bucket().and_then(|bucket| Some((bucket, bucket.record()?)));
        let applied = known.filter(|(_, record)| record.made).map(|(_, record)| &record.config);
        let config = read_config(reconciler, &claim, applied)?;
        let class = facts.class.ours();
        let of_class = || class.ok_or(Stopped::ClassGone);
        let (mut record, name) = match known {
            Some((bucket, record)) => {
                let mut record = record.clone();
                if record.parameters.is_none() {
                    record.parameters = Some(without_names(&of_class()?.texts));
                }
                (record, bucket.endpoint.bucket.to_string())
            }
            None => {
                let class = of_class()?;
                let shared = shared_bucket(&claim, class, facts, &reconciler.rules).map_err(Stopped::Refused)?;
                let (source, name, owner, parameters) = match shared {
                    Some(shared) => (Source::Granted, Some(shared.bucket), Some(shared.owner), shared.parameters),
                    None => (class.source(), bucket_name(&claim, class), None, None),
                };
                let record = Record {
                    source,
                    claim: Some(claim.name()),
                    owner,
                    parameters: Some(parameters.unwrap_or_else(|| (*class.texts).clone())),
                    config: claim.config.clone(),
                    // New keys need no rotation.
                    rotation: claim.rotation.as_deref().map(str::to_owned),
                    ..Record::default()
                };
                (record, name.ok_or(Stopped::Changed)?)
            }
        };
        if let Ok(names) = wanted_names(facts, &claim) {
            record = record.named(&claim.name, names);
        }
        let source = match record.source {
            Source::Unknown => of_class()?.source(),
            known => known,
        };
        let class = calls::parameters(reconciler, record.parameters.as_ref().unwrap_or(&Texts::new()))?;
        Ok(Self { reconciler, facts, reason, claim, source, record, name, class, config })
    }

    async fn account_key(&self) -> Result<AccountKey, Stopped> {
        let Self { facts, record, .. } = self;
        let state = facts.bucket().map(|bucket| bucket.kept_state()).unwrap_or_default();
        let access_key_id = record.newest_key().map(str::to_owned);
        let is_it = |found: &Credentials| access_key_id.as_ref().is_none_or(|known| *known == found.access_key_id);
        let credentials = self.reconciler.objects.credentials(facts).await?.filter(is_it);
        // A key that the API server did not allow us to deliver is unused. A rotation begins with a delivered key.
        let is_delivered = credentials.is_some() || facts.is_served() || record.has_rotated();
        let access_key_id = access_key_id.filter(|_| is_delivered);
        Ok(AccountKey { access_key_id, credentials, state })
    }

    /// Writes and returns the ObjectBucket of the attempt. Afterwards the claim has our finalizer, which keeps it until
    /// we remove that.
    async fn write_object_bucket(&self) -> Result<Arc<BucketFacts>, Stopped> {
        let Self { reconciler: BucketReconciler { objects, .. }, facts, claim, .. } = self;
        if let Some(bucket) = facts.bucket() {
            if bucket.record().is_some_and(|record| !record.made) {
                objects.confirm_bucket(bucket).await?;
            }
            let record = Record { attempted: self.attempted_config(), ..self.record.clone() };
            // Without our finalizer, the removal may have begun, and only the API server knows its progress.
            if bucket.has_finalizer() && bucket.record().is_some_and(|known| *known == record) {
                return Ok(bucket.clone());
            }
            return objects.write_bucket(bucket, &record, None).await.map(Arc::new);
        }
        let class = facts.class.ours().ok_or(Stopped::Changed)?;
        let object = {
            let cache = objects.cache();
            // An earlier attempt has written the ObjectBucket, and the watch shows it only now.
            if cache.facts(&key_of(claim)).bucket().is_some() {
                return Err(Stopped::Changed);
            }
            object_name(claim, |name| cache.bucket(name).is_some())
        };
        // Until the bucket is granted, a corrected class or `bucketClaimName` can name another one.
        let final_name = Some(&*self.name).filter(|_| self.source == Source::Provisioned);
        objects.prepare_claim(claim, &object, final_name).await?;
        match objects.create_bucket(&object, claim, class, &self.record, &self.name).await {
            Ok(bucket) => {
                self.check_claim(&bucket).await?;
                Ok(Arc::new(bucket))
            }
            Err(CallError::AlreadyExists) => match objects.read_bucket(&object).await? {
                // Finalizers of other writers keep the object of a former attempt.
                Some(live) if live.has_only_foreign_finalizers() => {
                    Err(Stopped::call_failed(CREATING)(CallError::AlreadyExists))
                }
                // Our watch is behind: the object already belongs to this claim or to another one.
                _ => Err(Stopped::Changed),
            },
            Err(error) => Err(Stopped::call_failed(CREATING)(error)),
        }
    }

    /// Checks that the claim still exists. The API server checks finalizers when a deletion begins and not when it
    /// ends, so a deletion that began before our finalizer was written still removes the claim. The backend has not
    /// been called yet, and the ObjectBucket is removed with the claim.
    async fn check_claim(&self, bucket: &BucketFacts) -> Result<(), Stopped> {
        let objects = &self.reconciler.objects;
        if objects.read_claim(&self.claim.name()).await?.is_some() {
            return Ok(());
        }
        objects.remove_bucket(bucket).await?;
        Err(Stopped::Changed)
    }

    /// Protects the bucket of another claim that this one is about to use. After success, that bucket is kept as long
    /// as this claim's ObjectBucket, which already names the other claim: a deletion first marks its ObjectBucket and
    /// then looks for users of the bucket.
    async fn mark_owner_shared(&self) -> Result<(), Stopped> {
        if self.record.made || self.record.owner.is_none() {
            return Ok(());
        }
        let owner = self.facts.owner.bucket.as_ref().ok_or(Stopped::Changed)?;
        let live = self.reconciler.objects.mark_shared(owner).await?;
        let is_being_deleted = live.deleting && self.reconciler.rules.safeguards.include(BucketSafeguard::Shared);
        if is_being_deleted { Err(Stopped::Changed) } else { Ok(()) }
    }

    /// Calls `create_bucket` and `grant`, or only `grant`. Nothing is recorded between the two calls: the ObjectBucket
    /// names bucket and account.
    async fn create_and_grant(
        &self,
        bucket: &BucketFacts,
        secrets: Secrets,
        key: AccountKey,
        calls: &mut Calls<'_>,
    ) -> Result<(Option<Bucket>, Granted), NotCreated> {
        let Self { reconciler: BucketReconciler { backend, rules, .. }, facts, claim, source, record, .. } = self;
        let owner = bucket.owner(claim.name());
        let mut access = access(facts, bucket, Some(record), *source, &owner);
        let (parameters, config) = (Arc::new(self.class.parsed.clone()), Arc::new(self.config.clone()));
        let (config_texts, cluster_id) = (of_author(&claim.config), rules.cluster_id.to_string());
        let fencing_token = calls.token.clone();
        let mut made = None;
        if *source == Source::Provisioned {
            let applied = self.attempted_config().into_iter().chain(record.config.clone()).collect();
            let request = BucketRequest {
                name: self.name.clone(),
                owner: owner.clone(),
                parameters: parameters.clone(),
                config: config.clone(),
                config_texts: config_texts.clone(),
                state: bucket.kept_state(),
                secrets: secrets.clone(),
                applied_config: of_author(&applied),
                cluster_id: cluster_id.clone(),
                fencing_token: fencing_token.clone(),
            };
            match self.call(calls, "create_bucket", || backend.create_bucket(request)).await {
                Ok(bucket) => {
                    access.state.clone_from(&bucket.state);
                    made = Some(bucket);
                }
                Err(NotCreated::Failed { error, .. }) => {
                    // The ObjectBucket of a first attempt did not exist before.
                    let is_first = facts.bucket().is_none();
                    let ends = !error.verdict().may_be_left() && !record.made && !is_first;
                    let other_assets_may_remain = ends && !self.clean_up(bucket, calls).await?;
                    return Err(NotCreated::Failed { error, other_assets_may_remain });
                }
                Err(stopped) => return Err(stopped),
            }
        }
        let other_assets_may_remain = made.is_some();
        let request = GrantRequest {
            account: owner,
            buckets: vec![access],
            parameters,
            config,
            config_texts,
            state: key.state,
            access_key_id: key.access_key_id,
            credentials: key.credentials,
            secrets,
            cluster_id,
            fencing_token,
        };
        match self.call(calls, "grant", || backend.grant(request)).await {
            Ok(granted) => Ok((made, granted)),
            Err(NotCreated::Failed { error, .. }) => Err(NotCreated::Failed { error, other_assets_may_remain }),
            Err(stopped) => Err(stopped),
        }
    }

    async fn call<'b, T: Send + 'b>(
        &'b self,
        calls: &mut Calls<'_>,
        method: &'static str,
        run: impl FnOnce() -> BoxFuture<'b, Result<T, ProvisionError>>,
    ) -> Result<T, NotCreated> {
        let BucketReconciler { objects, limits, rules, .. } = self.reconciler;
        let answer = calls.call(limits.provision, || {
            let slow = || events::slow(&rules.names.own, &self.claim);
            Box::pin(watched(objects.context.events(), slow, run()))
        });
        answer.await.map_err(|failure| match failure {
            CallFailure::Stopped(stopped) => NotCreated::Stopped(stopped),
            CallFailure::Aborted(aborted) => NotCreated::Stopped(Stopped::ProvisionAborted { method, aborted }),
            CallFailure::Returned(error) => NotCreated::Failed { error, other_assets_may_remain: false },
        })
    }

    /// Removes an account that may have been created although the bucket is refused now. Returns true if the account no
    /// longer exists.
    async fn clean_up(&self, bucket: &BucketFacts, calls: &mut Calls<'_>) -> Result<bool, Stopped> {
        // The record of an earlier attempt may have arrived during the call: then the account is in use.
        self.reconciler.objects.confirm_bucket(bucket).await?;
        let (_, account) = calls.bucket_and_account(bucket, Source::Provisioned).await?;
        let BucketReconciler { backend, limits, .. } = self.reconciler;
        match calls.call(limits.delete, || backend.revoke(account)).await {
            Ok(()) => Ok(true),
            Err(CallFailure::Stopped(stopped)) => Err(stopped),
            Err(_) => Ok(false),
        }
    }

    /// Ends the attempt after a final answer by removing its ObjectBucket. After any other answer it is kept.
    async fn not_provisioned(
        &self,
        error: &ProvisionError,
        other_assets_may_remain: bool,
        bucket: &BucketFacts,
    ) -> Stopped {
        let Self { reconciler: BucketReconciler { objects, rules, .. }, facts, record, .. } = self;
        let asked_before = other_assets_may_remain || facts.bucket().is_some();
        let verdict = match error.verdict() {
            // Continue the attempt, because otherwise the claim could be deleted while something is left.
            verdict if other_assets_may_remain && !verdict.may_be_left() && !record.made => ProvisionVerdict::Retry,
            verdict => verdict,
        };
        let kept = rules.safeguards.include(BucketSafeguard::FailedAttempts);
        // The backend was never called, so the next attempt uses the class as it is then, and a deletion needs no
        // backend.
        let asked_nothing = matches!(verdict, ProvisionVerdict::NoChange | ProvisionVerdict::AlreadyExists);
        let may_be_left = record.made || kept && verdict.may_be_left() && (asked_before || !asked_nothing);
        if !may_be_left && let Err(stopped) = objects.remove_bucket(bucket).await {
            return stopped;
        }
        let message = error.event_text(&bucket.name);
        Stopped::NotProvisioned { verdict, message, retry_after: error.retry_after() }
    }

    /// Returns the record of a successful attempt without the provisioner's answers.
    fn delivered_record(&self) -> Record {
        let Self { facts, claim, record, .. } = self;
        let config = effective_config(record, claim, facts.is_served());
        Record { config, ..record.clone() }
    }

    /// Returns the settings that this attempt and earlier ones may apply or remove before they fail, as far as they
    /// differ from the last applied settings.
    fn attempted_config(&self) -> Texts {
        let Record { config, attempted, .. } = &self.record;
        let asked = &effective_config(&self.record, &self.claim, self.facts.is_served());
        let differs = |(key, _): &(&String, &String)| asked.get(*key) != config.get(*key);
        let changed = config.iter().chain(asked).filter(differs);
        attempted.iter().chain(changed).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Returns true if the claim has both a prefix and a bucket name that was not generated from it. The controller
    /// also writes generated names to the claim.
    fn has_unused_prefix(&self) -> bool {
        let Self { claim, source, name, .. } = self;
        let has_prefix = claim.prefix.as_deref().is_some_and(|prefix| !prefix.is_empty());
        let is_unused = has_prefix && claim.generated_name().as_ref() != Some(name);
        *source == Source::Provisioned && claim.bucket_name.is_some() && is_unused
    }
}

/// Reads the claim's `additionalConfig`, and drops applied keys that the provisioner rejects: an adopted claim may have
/// keys that only its former provisioner knew, and another version of this one may know fewer.
fn read_config(reconciler: &BucketReconciler, claim: &ClaimFacts, applied: Option<&Texts>) -> Result<Parsed, Stopped> {
    let bad_config = |error: &ParameterError| {
        let is_unknown = error.problems().iter().any(|problem| matches!(problem, Problem::Unknown { .. }));
        let known = reconciler.rules.known_config.clone().filter(|_| is_unknown).unwrap_or_default();
        Stopped::BadConfig { problem: error.to_string(), known }
    };
    let mut config = of_author(&claim.config);
    loop {
        let error = match catch_panic(|| reconciler.backend.parse_config(&config)) {
            Ok(Ok(config)) => return Ok(config),
            Ok(Err(error)) => error,
            Err(panic) => {
                let aborted = CallAborted::Panicked(panic);
                return Err(Stopped::ProvisionAborted { method: "Config::deserialize", aborted });
            }
        };
        // Each round drops a key of `config`, so the loop ends even if the provisioner's code names another key.
        let is_applied = |key: &&str| {
            let known = applied.and_then(|applied| applied.get(*key));
            known.is_some() && known == config.get(*key)
        };
        let refused = error.problems().iter().filter_map(Problem::key).filter(is_applied);
        let refused: Vec<String> = refused.map(str::to_owned).collect();
        if refused.is_empty() {
            return Err(bad_config(&error));
        }
        config.retain(|key, _| !refused.contains(key));
    }
}

impl From<Stopped> for NotCreated {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped)
    }
}
