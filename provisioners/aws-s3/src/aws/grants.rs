//! Grants a claim's account access to buckets.

use std::collections::BTreeMap;

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{
    self as claims, Authentication, BucketAccess, ClaimName, GrantOf, Granted, Owner, RequestFailure, ServiceAccount,
};

use super::{Aws, ensure_user, remove_user, reserved};
use crate::account::{Account, IamLookup};
use crate::bucket::{self, LiveBucket};
use crate::failure::Failure;
use crate::parameters::{Config, Parameters, SETTINGS};
use crate::policy;
use crate::role::TOKEN_FILE;
use crate::store::Store;

/// Returns the service account of the claim's pods if the claim uses a role instead of a key.
pub(super) fn service_account(
    parameters: &Parameters,
    config: &Config,
    claim: &ClaimName,
) -> Result<Option<ServiceAccount>, ProvisionError> {
    let class = (parameters.authentication, parameters.service_account.as_deref());
    let asked = (config.authentication, config.service_account.as_deref());
    Authentication::service_account(class, asked, claim)
}

impl Aws {
    pub(super) async fn grant_access(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        let own = request.buckets.iter().find(|bucket| bucket.belongs_to(&request.account));
        let (name, is_own) = (&own.unwrap_or(request.bucket()).name, own.is_some());
        let store = self.store(&request.parameters, &request.secrets, name).await;
        let store = store.map_err(ProvisionError::before_changes)?;
        let account = Account::of(&request.account, &request.cluster_id, (name, is_own), &request.state);
        let account = account.for_dialect(store.dialect(), &request.cluster_id);
        let account = account.with_tags(request.parameters.asked_tags(&request.config));
        match grant_credentials(&store, &account, &request, (name, is_own)).await {
            Ok(granted) => Ok(granted),
            Err(objection) => {
                let is_known = is_own || !request.state.is_empty() || request.access_key_id.is_some();
                let undone = async { Ok::<_, Failure>(!is_known && remove_user(&store, &account).await?) };
                Err(objection.into_error(undone).await)
            }
        }
    }
}

/// A policy that grants the account access to one bucket.
struct Policy {
    name: String,
    document: String,
}

/// Returns the policy that grants the account access to a bucket, after a check of the bucket's owner.
async fn policy_for(store: &Store, request: &GrantOf<Aws>, bucket: &BucketAccess) -> Result<Policy, RequestFailure> {
    let (name, parameters) = (&bucket.name, &request.parameters);
    let access = bucket.allowed(parameters.access_mode, request.config.access_mode)?;
    request.check_settings(bucket, &SETTINGS)?;
    let tags = match bucket::find(store, name).await? {
        LiveBucket::Tagged(tags) => tags,
        // For COSI, a missing bucket is a final refusal.
        LiveBucket::Absent if store.may_hide(name) => return Err(Failure::NotShownYet(format!("bucket {name}")).into()),
        LiveBucket::Absent => return Err(bucket.missing().into()),
        LiveBucket::Forbidden(failure) | LiveBucket::OtherRegion(failure) => return Err(failure.into()),
    };
    if let Some(owner) = &bucket.owner
        && !belongs_to_owner(bucket, owner, &tags, (store, &request.cluster_id)).await?
    {
        return Err(RequestFailure::Refused(bucket.wrong_owner_message()));
    }
    let document = policy::document(&store.region, name, access, parameters.kms_key());
    let name = if bucket.belongs_to(&request.account) { policy::NAME.to_owned() } else { policy::name(name) };
    Ok(Policy { name, document })
}

/// Grants access to the claim's user with a key, or to its service account with a role. `bucket` is the bucket that the
/// user is named after, or else the first bucket.
async fn grant_credentials(
    store: &Store,
    account: &Account,
    request: &GrantOf<Aws>,
    (bucket, is_own): (&str, bool),
) -> Result<Granted, RequestFailure> {
    let service_account = service_account(&request.parameters, &request.config, &request.account.claim)?;
    store.dialect().check(None, service_account.is_some())?;
    let mut policies = Vec::new();
    for bucket in &request.buckets {
        policies.push(policy_for(store, request, bucket).await?);
    }
    // IAM may not show the user yet that `create_bucket` has just created.
    let user =
        if is_own && store.recent.has(&account.name) { IamLookup::Own(()) } else { account.look_up(store).await? };
    let taken = |user: &str| {
        if is_own {
            reserved(user, bucket)
        } else {
            format!("the IAM user {user} exists and was not created for this claim: delete it")
        }
    };
    ensure_user(account, store, &request.parameters, user, is_own, taken).await?;
    let (granted, role) = match &service_account {
        None => {
            for Policy { name, document } in &policies {
                account.grant_access(store, name, document).await?;
            }
            if policies.iter().all(|policy| policy.name != policy::NAME) {
                account.remove_former_policy(store).await?;
            }
            let key = account.key(store, request.access_key_id.as_deref(), request.credentials.clone()).await?;
            // An interrupted attempt may have created a role before the claim requested a key again.
            if account.has_role || store.oidc_provider(&request.parameters).is_some() {
                account.remove_role(store).await?;
            }
            (Granted::new(store.endpoint.clone(), key), None)
        }
        Some(service_account) => {
            // A claim without a key has only one bucket.
            let document = policies.first().map(|policy| policy.document.as_str()).unwrap_or_default();
            let role = account.set_role(store, &request.parameters, service_account, document).await?;
            account.remove_access(store).await?;
            let granted = Granted::without_key(store.endpoint.clone());
            (granted.config("AWS_ROLE_ARN", &role).config("AWS_WEB_IDENTITY_TOKEN_FILE", TOKEN_FILE), Some(role))
        }
    };
    let granted = account.state(role).into_iter().fold(granted, |granted, (key, value)| granted.state(key, value));
    Ok(store.client_settings().into_iter().fold(granted, |granted, (key, value)| granted.config(key, value)))
}

/// Returns true if a bucket with these tags is still the bucket that was created for its owner.
async fn belongs_to_owner(
    bucket: &BucketAccess,
    owner: &claims::Account,
    tags: &BTreeMap<String, String>,
    (store, cluster): (&Store, &str),
) -> Result<bool, Failure> {
    let owner = Account::of(owner, cluster, (&bucket.name, true), &bucket.state);
    Ok(match owner.owner_of(tags) {
        Owner::Claim => true,
        Owner::Unknown if owner.is_of_2019() => matches!(owner.look_up(store).await?, IamLookup::Own(())),
        Owner::Unknown if store.may_hide(&bucket.name) => {
            return Err(Failure::NotShownYet(format!("tags of the bucket {}", bucket.name)));
        }
        Owner::Unknown | Owner::Other => false,
    })
}
