//! Lets a claim's account into a bucket.

use std::collections::BTreeMap;

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{Authentication, BucketAccess, ClaimName, GrantOf, Granted, ServiceAccount};

use super::{Aws, is_removed};
use crate::account::{Account, Sight};
use crate::failure::Failure;
use crate::ownership::Owner;
use crate::parameters::{Config, Parameters};
use crate::role::TOKEN_FILE;
use crate::store::Store;

/// How the claim's pods identify themselves, if they have no key.
pub(super) fn service_account(
    parameters: &Parameters,
    config: &Config,
    claim: &ClaimName,
) -> Result<Option<ServiceAccount>, ProvisionError> {
    let class = (parameters.authentication, parameters.service_account.as_deref());
    let asked = (config.authentication, config.service_account.as_deref());
    Authentication::service_account(class, asked, claim)
}

/// Lets the claim's user in with a key, or its service account by a role.
pub(super) async fn give_access(
    store: &Store,
    account: &Account,
    request: &GrantOf<Aws>,
    service_account: Option<ServiceAccount>,
    document: &str,
) -> Result<Granted, ProvisionError> {
    let (granted, role) = match &service_account {
        None => {
            account.grant_access(store, document).await?;
            let key = account.key(store, request.access_key_id.as_deref(), request.credentials.clone()).await?;
            if account.has_role {
                account.remove_role(store).await?;
            }
            (Granted::new(store.endpoint.clone(), key), None)
        }
        Some(service_account) => {
            let role = account.set_role(store, &request.parameters, service_account, document).await?;
            account.remove_access(store).await?;
            let granted = Granted::without_key(store.endpoint.clone());
            (granted.config("AWS_ROLE_ARN", &role).config("AWS_WEB_IDENTITY_TOKEN_FILE", TOKEN_FILE), Some(role))
        }
    };
    let granted = account.state(role).into_iter().fold(granted, |granted, (key, value)| granted.state(key, value));
    Ok(store.client_settings().into_iter().fold(granted, |granted, (key, value)| granted.config(key, value)))
}

/// Whether a bucket with these tags is still the one that was made for its owner.
pub(super) async fn is_its_owners(
    bucket: &BucketAccess,
    tags: Option<&BTreeMap<String, String>>,
    store: &Store,
    cluster: &str,
) -> Result<bool, Failure> {
    let (Some(owner), Some(tags)) = (&bucket.owner, tags) else { return Ok(false) };
    let owner = Account::of(owner, cluster, (&bucket.name, true), &bucket.state);
    Ok(match owner.owner_of(tags) {
        Owner::Claim => true,
        Owner::Unknown if owner.is_of_2019() => matches!(owner.look(store).await?, Sight::Own),
        Owner::Unknown | Owner::Other => false,
    })
}

/// As [`refuse`](super::refuse). The user of the claim's own bucket goes with that.
pub(super) async fn refuse_grant(
    store: &Store,
    account: &Account,
    request: &GrantOf<Aws>,
    text: String,
) -> Result<Granted, ProvisionError> {
    let is_own = request.bucket().belongs_to(&request.account);
    match request.state.is_empty() && !is_own && is_removed(store, account).await? {
        true => Err(ProvisionError::invalid(text)),
        false => Err(ProvisionError::retry(text)),
    }
}
