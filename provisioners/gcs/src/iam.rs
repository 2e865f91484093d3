//! Service accounts, managed through the IAM API.

use std::sync::Arc;

use http::Method;
use kube_provisioner::bucket::{ClaimName, RecentlyCreated};
use serde_json::{Value, json};

use crate::account::{describes, description, display_name};
use crate::api::{Api, Call, Failure, encoded};

/// The service accounts of one project.
#[derive(Clone)]
pub(crate) struct Iam {
    pub(crate) api: Api,
    pub(crate) project: String,
    pub(crate) recent: Arc<RecentlyCreated>,
}

/// The claim and cluster for which a service account was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccountClaim<'a> {
    pub(crate) claim: &'a ClaimName,
    pub(crate) cluster: &'a str,
}

/// Ownership of a service account's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressOwner {
    Absent,
    Ours,
    Foreign,
}

impl Iam {
    pub(crate) async fn account(&self, email: &str) -> Result<Option<Value>, Failure> {
        let doing = format!("look up the service account {email}");
        self.api.find(Call::new(Method::GET, self.path(email), "iam.serviceAccounts.get", doing)).await
    }

    /// Returns all service accounts of the project.
    pub(crate) async fn accounts(&self) -> Result<Vec<Value>, Failure> {
        let path = format!("/v1/projects/{}/serviceAccounts?pageSize=100", encoded(&self.project));
        let call = |path| Call::new(Method::GET, path, "iam.serviceAccounts.list", "list the service accounts");
        self.api.list(&path, "accounts", call).await
    }

    /// Creates the claim's own service account if it does not exist. Returns false if it does not belong to the claim.
    pub(crate) async fn ensure(&self, id: &str, email: &str, identity: AccountClaim<'_>) -> Result<bool, Failure> {
        let found = match self.account(email).await {
            Ok(found) => found,
            // The account may exist, but the administrator cannot read it. Creation fails with 409 in this case.
            Err(failure) if failure.status() == Some(403) => None,
            Err(failure) => return Err(failure),
        };
        if let Some(account) = found {
            return Ok(is_of(&account, identity));
        }
        let path = format!("/v1/projects/{}/serviceAccounts", encoded(&self.project));
        let doing = format!("create the service account {email}");
        let AccountClaim { claim, cluster } = identity;
        let account = json!({"displayName": display_name(claim), "description": description(claim, cluster)});
        let body = json!({"accountId": id, "serviceAccount": account});
        match self.api.execute(Call::new(Method::POST, path, "iam.serviceAccounts.create", doing).body(body)).await {
            Ok(_) => {
                self.recent.created(email);
                Ok(true)
            }
            // The response to an earlier call was lost. The account exists, even if it is not shown yet.
            Err(failure) if failure.status() == Some(409) => {
                self.recent.created(email);
                Ok(self.address_owner(email, identity).await? == AddressOwner::Ours)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Deletes a claim's own service account. Succeeds without effect if the account is foreign or absent.
    pub(crate) async fn delete(&self, email: &str, identity: AccountClaim<'_>) -> Result<(), Failure> {
        match self.address_owner(email, identity).await? {
            AddressOwner::Ours => {
                let doing = format!("delete the service account {email}");
                self.api.find(Call::new(Method::DELETE, self.path(email), "iam.serviceAccounts.delete", doing)).await?;
                self.recent.removed(email);
            }
            AddressOwner::Foreign => {
                tracing::info!(account = email, "left a service account that was not created for the claim");
            }
            AddressOwner::Absent => {}
        }
        Ok(())
    }

    /// Looks up the service account and checks that it belongs to the claim.
    pub(crate) async fn address_owner(&self, email: &str, identity: AccountClaim<'_>) -> Result<AddressOwner, Failure> {
        Ok(match self.account(email).await? {
            None if self.recent.has(email) => {
                return Err(Failure::NoResponse {
                    doing: format!("look up the service account {email}"),
                    reason: "it was created a moment ago and is not shown yet".to_owned(),
                });
            }
            None => AddressOwner::Absent,
            Some(account) if is_of(&account, identity) => AddressOwner::Ours,
            Some(_) => AddressOwner::Foreign,
        })
    }

    fn path(&self, email: &str) -> String {
        format!("/v1/projects/{}/serviceAccounts/{}", encoded(&self.project), encoded(email))
    }
}

fn is_of(account: &Value, AccountClaim { claim, cluster }: AccountClaim<'_>) -> bool {
    describes(account["description"].as_str().unwrap_or_default(), claim, cluster)
}
