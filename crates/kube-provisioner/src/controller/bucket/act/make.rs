//! What the author's code makes for a claim: a bucket, where the claim wants one of its own, and an account that may use it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use provisioner_runtime::controller::FencingToken;

use super::Actions;
use super::attempt::{AccountKey, Inputs, Texts, attempted};
use super::calls::Calls;
use crate::bucket::{Account, Bucket, BucketAccess, BucketRequest, Credentials, Endpoint, GrantRequest, Granted};
use crate::controller::bucket::backend::{UntypedGrant, UntypedRequest};
use crate::controller::bucket::events::slow;
use crate::controller::bucket::facts::{BucketFacts, Facts};
use crate::controller::bucket::outcome::Outcome;
use crate::controller::bucket::record::Source;
use crate::controller::bucket::share::of_author;
use crate::controller::shared::calls::watched;
use crate::error::ProvisionError;
use crate::secrets::Secrets;

/// A bucket and an account that may use it, for `deliver`.
pub(super) struct Made {
    pub(super) endpoint: Endpoint,
    pub(super) credentials: Option<Credentials>,
    pub(super) state: Texts,
    pub(super) config_data: Texts,
    pub(super) secret_data: Texts,
    pub(super) warnings: Vec<String>,
}

/// One of the author's methods has failed.
pub(super) struct NotMade {
    pub(super) error: ProvisionError,
    /// Whether the other one may have left something, in this attempt or before.
    pub(super) others_left: bool,
}

impl Actions {
    /// `create_bucket` and `grant`, or `grant` alone. Nothing is written down between the two: the ObjectBucket has the name of both.
    pub(super) async fn make(
        &self,
        inputs: &Inputs,
        (bucket, facts): (&BucketFacts, &Facts),
        (secrets, key): (Secrets, AccountKey),
        mut calls: Calls<'_>,
    ) -> Result<Result<Made, NotMade>, Outcome> {
        let owner = bucket.owner(inputs.claim.name());
        let mut access = facts.access(bucket, (Some(&inputs.record), inputs.source), &owner);
        let mut made = None;
        if inputs.source == Source::Provisioned {
            let request = self.bucket_request(inputs, bucket, &owner, &secrets, calls.token);
            let answer =
                self.provision(&mut calls, inputs, "create_bucket", || self.backend.create_bucket(request)).await?;
            match answer {
                Ok(answer) => {
                    access.state.clone_from(&answer.state);
                    made = Some(answer);
                }
                Err(error) => {
                    // The ObjectBucket of a first attempt was not there before.
                    let is_first = facts.bucket().is_none();
                    let ends = !error.verdict().may_be_left() && !inputs.record.made && !is_first;
                    let others_left = ends && !self.clean_up(bucket, facts, &mut calls).await?;
                    return Ok(Err(NotMade { error, others_left }));
                }
            }
        }
        let others_left = made.is_some();
        let request = self.grant_request(inputs, (owner, access), (secrets, key), calls.token);
        let answer = self.provision(&mut calls, inputs, "grant", || self.backend.grant(request)).await?;
        Ok(answer.map(|granted| Made::of(made, granted)).map_err(|error| NotMade { error, others_left }))
    }

    /// Removes the account that an attempt may have made whose bucket is refused by now. Whether it is gone.
    async fn clean_up(&self, bucket: &BucketFacts, facts: &Facts, calls: &mut Calls<'_>) -> Result<bool, Outcome> {
        let (_, account) = self.known(bucket, facts, Source::Provisioned, calls.token).await?;
        Ok(matches!(self.end_account(bucket, account, calls).await?, Ok(Ok(()))))
    }

    async fn provision<'a, T: Send + 'a>(
        &'a self,
        calls: &mut Calls<'_>,
        inputs: &'a Inputs,
        method: &'static str,
        run: impl FnOnce() -> BoxFuture<'a, T>,
    ) -> Result<T, Outcome> {
        let limit: Duration = self.limits.provision;
        let answer = calls.call(limit, || {
            let slow = || slow(&self.rules.names.own, &inputs.claim);
            Box::pin(watched(self.context.events(), slow, run()))
        });
        answer.await?.map_err(|aborted| Outcome::ProvisionAborted { method, aborted })
    }

    fn bucket_request(
        &self,
        inputs: &Inputs,
        bucket: &BucketFacts,
        owner: &Account,
        secrets: &Secrets,
        token: &FencingToken,
    ) -> UntypedRequest {
        let applied: Texts = attempted(inputs).into_iter().chain(inputs.record.config.clone()).collect();
        BucketRequest {
            name: inputs.name.clone(),
            owner: owner.clone(),
            parameters: Arc::new(inputs.class.parsed.clone()),
            config: Arc::new(inputs.config.clone()),
            config_texts: of_author(&inputs.claim.config),
            state: bucket.kept_state(),
            secrets: secrets.clone(),
            applied_config: of_author(&applied),
            cluster_id: self.rules.cluster_id.to_string(),
            fencing_token: token.clone(),
        }
    }

    fn grant_request(
        &self,
        inputs: &Inputs,
        (account, access): (Account, BucketAccess),
        (secrets, key): (Secrets, AccountKey),
        token: &FencingToken,
    ) -> UntypedGrant {
        GrantRequest {
            account,
            buckets: vec![access],
            parameters: Arc::new(inputs.class.parsed.clone()),
            config: Arc::new(inputs.config.clone()),
            config_texts: of_author(&inputs.claim.config),
            state: key.state,
            access_key_id: key.access_key_id,
            credentials: key.credentials,
            secrets,
            cluster_id: self.rules.cluster_id.to_string(),
            fencing_token: token.clone(),
        }
    }
}

impl Made {
    fn of(bucket: Option<Bucket>, granted: Granted) -> Self {
        let Granted { endpoint, credentials, state, config_data, secret_data, warning } = granted;
        let (of_bucket, warning_of_bucket, endpoint) = match bucket {
            Some(bucket) => (bucket.state, bucket.warning, bucket.endpoint),
            None => (BTreeMap::new(), None, endpoint),
        };
        let state = of_bucket.into_iter().chain(state).collect();
        let warnings = warning_of_bucket.into_iter().chain(warning).collect();
        Self { endpoint, credentials, state, config_data, secret_data, warnings }
    }
}
