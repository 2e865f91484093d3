//! Service accounts, by the API of IAM.

use http::Method;
use kube_provisioner::bucket::ClaimName;
use serde_json::{Value, json};

use crate::account::{description, display_name};
use crate::api::{Api, Call, Failure, encoded};

/// The service accounts of one project.
#[derive(Clone)]
pub(crate) struct Iam {
    pub(crate) api: Api,
    pub(crate) project: String,
}

/// What became of a wish for a service account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ensured {
    Found,
    /// Google may not know it everywhere for some time.
    Made,
    /// It is not the claim's.
    Foreign,
}

impl Iam {
    pub(crate) async fn account(&self, email: &str) -> Result<Option<Value>, Failure> {
        let doing = format!("look up the service account {email}");
        self.api.find(Call::new(Method::GET, self.path(email), "iam.serviceAccounts.get", doing)).await
    }

    /// The claim's own service account, made if need be.
    pub(crate) async fn ensure(&self, id: &str, email: &str, claim: &ClaimName) -> Result<Ensured, Failure> {
        let found = match self.account(email).await {
            Ok(found) => found,
            // One that is not there may be one that must not be seen. Making it tells.
            Err(failure) if failure.status() == Some(403) => None,
            Err(failure) => return Err(failure),
        };
        if let Some(account) = found {
            return Ok(if is_of(&account, claim) { Ensured::Found } else { Ensured::Foreign });
        }
        let path = format!("/v1/projects/{}/serviceAccounts", encoded(&self.project));
        let doing = format!("make the service account {email}");
        let account = json!({"displayName": display_name(claim), "description": description(claim)});
        let body = json!({"accountId": id, "serviceAccount": account});
        match self.api.ask(Call::new(Method::POST, path, "iam.serviceAccounts.create", doing).body(body)).await {
            Ok(_) => Ok(Ensured::Made),
            // An answer to an earlier call was lost.
            Err(failure) if failure.status() == Some(409) => match self.account(email).await? {
                Some(account) if !is_of(&account, claim) => Ok(Ensured::Foreign),
                _ => Ok(Ensured::Made),
            },
            Err(failure) => Err(failure),
        }
    }

    /// Deletes a claim's own service account. Others, and none, are left.
    pub(crate) async fn delete(&self, email: &str, claim: &ClaimName) -> Result<(), Failure> {
        match self.account(email).await? {
            Some(account) if is_of(&account, claim) => {
                let doing = format!("delete the service account {email}");
                self.api.find(Call::new(Method::DELETE, self.path(email), "iam.serviceAccounts.delete", doing)).await?;
            }
            Some(_) => tracing::info!(account = email, "left a service account that was not made for the claim"),
            None => {}
        }
        Ok(())
    }

    /// Whether the claim's own service account is there.
    pub(crate) async fn has(&self, email: &str, claim: &ClaimName) -> Result<bool, Failure> {
        Ok(self.account(email).await?.is_some_and(|account| is_of(&account, claim)))
    }

    fn path(&self, email: &str) -> String {
        format!("/v1/projects/{}/serviceAccounts/{}", encoded(&self.project), encoded(email))
    }
}

fn is_of(account: &Value, claim: &ClaimName) -> bool {
    !claim.uid.is_empty() && account["description"].as_str() == Some(&description(claim))
}
