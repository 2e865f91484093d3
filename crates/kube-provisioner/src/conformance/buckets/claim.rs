//! A claim for tests of bucket provisioners.

use std::collections::BTreeMap;
use std::sync::Arc;

use provisioner_runtime::controller::FencingToken;

use crate::bucket::{
    Account, BucketAccess, BucketHooks, BucketRequest, ClaimName, Credentials, GrantRequest, Granted, GrantedAccount,
    ProvisionedBucket,
};
use crate::error::{DeleteError, ProvisionError};
use crate::secrets::Secrets;

/// A claim and its state, for use in tests: it calls the provisioner as the controller does.
///
/// ```
/// # use kube_provisioner::bucket::*;
/// # use kube_provisioner::*;
/// use kube_provisioner::conformance::BucketClaim;
///
/// async fn a_bucket_comes_and_goes(store: &impl BucketHooks<Parameters = (), Config = ()>) {
///     let claim = BucketClaim::new("photos", (), ());
///     let granted = claim.provision(store).await.unwrap();
///     assert_eq!(claim.after(&granted).provision(store).await.unwrap().credentials, granted.credentials);
///     claim.after(&granted).delete(store).await.unwrap();
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct BucketClaim<P, C> {
    /// The bucket's name.
    pub name: String,
    /// The claim.
    pub claim: ClaimName,
    /// True if the bucket is created for the claim, false if it exists independently.
    pub is_own: bool,
    /// The class's parameters.
    pub parameters: Arc<P>,
    /// The claim's `additionalConfig`.
    pub config: Arc<C>,
    /// The `additionalConfig` as strings.
    pub config_texts: BTreeMap<String, String>,
    /// The keys and values of `additionalConfig` that may have been applied.
    pub applied_config: BTreeMap<String, String>,
    /// The state from earlier answers. Empty before the first attempt has finished.
    pub state: BTreeMap<String, String>,
    /// The ID of the account's key.
    pub access_key_id: Option<String>,
    /// The key in the claim's Secret.
    pub credentials: Option<Credentials>,
    /// The Secrets named by the class.
    pub secrets: Secrets,
    /// The cluster ID.
    pub cluster_id: String,
}

impl<P, C> Clone for BucketClaim<P, C> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            claim: self.claim.clone(),
            is_own: self.is_own,
            parameters: self.parameters.clone(),
            config: self.config.clone(),
            config_texts: self.config_texts.clone(),
            applied_config: self.applied_config.clone(),
            state: self.state.clone(),
            access_key_id: self.access_key_id.clone(),
            credentials: self.credentials.clone(),
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
        }
    }
}

impl<P, C> BucketClaim<P, C> {
    /// Creates the claim `test/claim` for a bucket of this name. Its fields can be changed.
    pub fn new(name: impl Into<String>, parameters: P, config: C) -> Self {
        let request = BucketRequest::new(name, parameters, config);
        Self {
            name: request.name,
            claim: request.owner.claim,
            is_own: true,
            parameters: request.parameters,
            config: request.config,
            config_texts: request.config_texts,
            applied_config: request.applied_config,
            state: request.state,
            access_key_id: None,
            credentials: None,
            secrets: request.secrets,
            cluster_id: request.cluster_id,
        }
    }

    /// Makes the bucket one that exists independently of the claim.
    #[must_use]
    pub fn with_existing_bucket(self) -> Self {
        Self { is_own: false, ..self }
    }

    /// Returns the claim's account.
    pub fn account(&self) -> Account {
        Account::of(self.claim.clone())
    }

    /// Returns the claim in its state after this answer.
    #[must_use]
    pub fn after(&self, granted: &Granted) -> Self {
        Self {
            state: granted.state.clone(),
            access_key_id: granted.credentials.as_ref().map(|key| key.access_key_id.clone()),
            credentials: granted.credentials.clone(),
            ..self.clone()
        }
    }

    /// Calls `create_bucket`, if the bucket is the claim's own, and `grant`. The result contains the state of both.
    ///
    /// # Errors
    /// The errors of the provisioner.
    pub async fn provision<B>(&self, author: &B) -> Result<Granted, ProvisionError>
    where
        B: BucketHooks<Parameters = P, Config = C>,
    {
        let mut access = self.access();
        if !self.is_own {
            return author.grant(self.grant(vec![access])).await;
        }
        let made = author.create_bucket(self.request(&self.name)).await?;
        access.state.clone_from(&made.state);
        let granted = author.grant(self.grant(vec![access])).await?;
        let state = made.state.into_iter().chain(granted.state.clone()).collect();
        Ok(Granted { state, warning: made.warning.or(granted.warning.clone()), ..granted })
    }

    /// Calls `delete_bucket` and `revoke`.
    ///
    /// # Errors
    /// The errors of the provisioner.
    pub async fn delete<B>(&self, author: &B) -> Result<(), DeleteError>
    where
        B: BucketHooks<Parameters = P, Config = C>,
    {
        author.delete_bucket(self.bucket(&self.name)).await?;
        self.revoke(author).await
    }

    /// Calls `revoke`.
    ///
    /// # Errors
    /// The errors of the provisioner.
    pub async fn revoke<B>(&self, author: &B) -> Result<(), DeleteError>
    where
        B: BucketHooks<Parameters = P, Config = C>,
    {
        author.revoke(self.granted()).await
    }

    /// Returns the argument of `revoke`, `rotate` and `revoke_old_keys`.
    pub fn granted(&self) -> GrantedAccount<P> {
        self.granted_for(vec![self.access()])
    }

    fn access(&self) -> BucketAccess {
        let access = self.own(&self.name);
        BucketAccess { owner: access.owner.filter(|_| self.is_own), ..access }
    }

    /// Returns the access to the account's own bucket of this name.
    pub(super) fn own(&self, bucket: &str) -> BucketAccess {
        BucketAccess { state: self.state.clone(), ..BucketAccess::new(bucket, Some(self.account())) }
    }

    /// Returns the argument of `create_bucket`.
    pub(super) fn request(&self, bucket: &str) -> BucketRequest<P, C> {
        BucketRequest {
            name: bucket.to_owned(),
            owner: self.account(),
            parameters: self.parameters.clone(),
            config: self.config.clone(),
            config_texts: self.config_texts.clone(),
            state: self.state.clone(),
            secrets: self.secrets.clone(),
            applied_config: self.applied_config.clone(),
            cluster_id: self.cluster_id.clone(),
            fencing_token: FencingToken::unlimited(),
        }
    }

    /// Returns the argument of `delete_bucket`.
    pub(super) fn bucket(&self, name: &str) -> ProvisionedBucket<P> {
        ProvisionedBucket {
            name: name.to_owned(),
            owner: self.account(),
            parameters: Some(self.parameters.clone()),
            state: self.state.clone(),
            config_texts: self.config_texts.clone(),
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
            fencing_token: FencingToken::unlimited(),
        }
    }

    /// Returns the argument of `grant`.
    pub(super) fn grant(&self, buckets: Vec<BucketAccess>) -> GrantRequest<P, C> {
        GrantRequest {
            account: self.account(),
            buckets,
            parameters: self.parameters.clone(),
            config: self.config.clone(),
            config_texts: self.config_texts.clone(),
            state: self.state.clone(),
            access_key_id: self.access_key_id.clone(),
            credentials: self.credentials.clone(),
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
            fencing_token: FencingToken::unlimited(),
        }
    }

    /// Returns the argument of `revoke` for an account with access to these buckets.
    pub(super) fn granted_for(&self, buckets: Vec<BucketAccess>) -> GrantedAccount<P> {
        GrantedAccount {
            account: self.account(),
            buckets,
            parameters: Some(self.parameters.clone()),
            state: self.state.clone(),
            config_texts: self.config_texts.clone(),
            access_key_id: self.access_key_id.clone(),
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
            fencing_token: FencingToken::unlimited(),
        }
    }
}
