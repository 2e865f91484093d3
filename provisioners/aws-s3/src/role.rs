//! The IAM role of a claim without a key. Pods of one service account assume the role with a token that the cluster's
//! OIDC provider has signed.

use std::str::FromStr;

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{Owner, ServiceAccount};
use s3_client::iam::{Identity, NewIdentity};
use serde_json::json;

use crate::account::{Account, IamLookup, PATH};
use crate::failure::Failure;
use crate::parameters::Parameters;
use crate::policy;
use crate::store::Store;

/// The path at which Amazon's webhook mounts the token in pods. Users can also mount it there without the webhook.
pub(crate) const TOKEN_FILE: &str = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token";
/// The audience of the token.
const AUDIENCE: &str = "sts.amazonaws.com";
/// The permission to look up a role. If the role does not exist, IAM checks it for an ARN without the role's path.
const ROLE_RIGHT: &str = "iam:GetRole, for arn:aws:iam::*:role/obc* too";

/// The identity provider in IAM that represents the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OidcProvider {
    arn: String,
}

impl OidcProvider {
    /// Returns the issuer of the tokens, without `https://`.
    fn issuer(&self) -> &str {
        self.arn.split_once(":oidc-provider/").map_or("", |(_, issuer)| issuer)
    }

    /// Returns the trust policy, which allows only the service account to assume the role.
    fn trust_policy(&self, account: &ServiceAccount) -> String {
        let issuer = self.issuer();
        let conditions = json!({
            (format!("{issuer}:sub")): account.to_string(),
            (format!("{issuer}:aud")): AUDIENCE,
        });
        let statement = json!({
            "Effect": "Allow", "Principal": {"Federated": self.arn}, "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {"StringEquals": conditions},
        });
        json!({"Version": "2012-10-17", "Statement": [statement]}).to_string()
    }
}

impl FromStr for OidcProvider {
    type Err = String;

    fn from_str(arn: &str) -> Result<Self, String> {
        let provider = Self { arn: arn.to_owned() };
        if arn.starts_with("arn:") && !provider.issuer().is_empty() {
            Ok(provider)
        } else {
            Err(format!("{arn:?} is not an OIDC provider: expected arn:aws:iam::ACCOUNT:oidc-provider/ISSUER"))
        }
    }
}

kube_provisioner::deserialize_from_str!(OidcProvider);

impl Account {
    /// Creates or updates the role and returns its ARN. It always writes the policies, since a read takes as long as a
    /// write.
    pub(crate) async fn set_role(
        &self,
        store: &Store,
        parameters: &Parameters,
        account: &ServiceAccount,
        document: &str,
    ) -> Result<String, ProvisionError> {
        let provider = store.oidc_provider(parameters).ok_or_else(|| {
            ProvisionError::retry(
                "access without a key needs the cluster's OIDC provider in IAM: set oidcProviderArn in the StorageClass, \
                 or --oidc-provider-arn",
            )
        })?;
        let (name, trust) = (&self.name, provider.trust_policy(account));
        let role = match self.look_up_role(store).await? {
            IamLookup::Absent | IamLookup::Forbidden(_) => self.make_role(store, parameters, &trust).await?,
            seen => seen,
        };
        let role = match role {
            IamLookup::Own(role) => role,
            IamLookup::Absent => return Err(Failure::NotShownYet(format!("IAM role {name}")).into()),
            IamLookup::Forbidden(failure) => return Err(failure.into()),
            IamLookup::Other => {
                let text = format!("the IAM role {name} exists and was not created for this claim: delete it");
                return Err(ProvisionError::retry(text));
            }
        };
        let boundary = store
            .permissions_boundary(parameters)
            .filter(|_| self.unfinished && !store.dialect().supports_all_properties());
        if boundary.is_some() && role.permissions_boundary.as_deref() != boundary {
            let boundary = boundary.unwrap_or_default();
            let text = format!("the IAM role {name} does not have the permissionsBoundary {boundary}: delete the role");
            return Err(ProvisionError::retry(text));
        }
        let set = store.iam.set_role_trust(name, &trust).await;
        set.map_err(Failure::of(format!("set the trust of the IAM role {name}"), "iam:UpdateAssumeRolePolicy"))?;
        let put = store.iam.put_role_policy(name, policy::NAME, document).await;
        put.map_err(Failure::of(format!("set the policy of the IAM role {name}"), "iam:PutRolePolicy"))?;
        Ok(role.arn)
    }

    /// Creates the role and returns its state afterwards.
    async fn make_role(
        &self,
        store: &Store,
        parameters: &Parameters,
        trust: &str,
    ) -> Result<IamLookup<Identity>, Failure> {
        let (name, tags) = (&self.name, self.tags_at_creation());
        let boundary = store.permissions_boundary(parameters);
        let role = NewIdentity { name, path: PATH, tags: &tags, permissions_boundary: boundary };
        match store.iam.create_role(role, trust).await {
            Err(error) if error.code() != "EntityAlreadyExists" => {
                let rights = "iam:CreateRole and iam:TagRole, with the class's permissionsBoundary";
                return Err(Failure::of(format!("create the IAM role {name}"), rights)(error));
            }
            // If the role exists, the answer to an earlier call may have been lost.
            _ => store.recent.created(&role_key(name)),
        }
        self.look_up_role(store).await
    }

    /// Removes the claim's role with its policies, if it exists.
    pub(crate) async fn remove_role(&self, store: &Store) -> Result<(), Failure> {
        // The provisioner creates no roles on stores whose users have no tags.
        if self.proven_by_name {
            return Ok(());
        }
        let name = &self.name;
        match self.look_up_role(store).await? {
            IamLookup::Absent => return Ok(()),
            // An administrator without permission to read roles has not created one.
            IamLookup::Forbidden(_) if !self.has_role => return Ok(()),
            IamLookup::Forbidden(failure) => return Err(failure),
            IamLookup::Other => {
                tracing::info!(role = name, "left an IAM role that is not the claim's");
                return Ok(());
            }
            IamLookup::Own(_) => {}
        }
        let own = store.iam.role_policies(name).await;
        for policy in own.map_err(Failure::of(format!("list the policies of {name}"), "iam:ListRolePolicies"))? {
            let removed = store.iam.delete_role_policy(name, &policy).await;
            removed.map_err(Failure::of(format!("delete the policy of {name}"), "iam:DeleteRolePolicy"))?;
        }
        let attached = store.iam.attached_role_policies(name).await;
        let attached =
            attached.map_err(Failure::of(format!("list the policies of {name}"), "iam:ListAttachedRolePolicies"))?;
        for arn in attached {
            let detached = store.iam.detach_role_policy(name, &arn).await;
            detached.map_err(Failure::of(format!("detach a policy of {name}"), "iam:DetachRolePolicy"))?;
        }
        let removed = store.iam.delete_role(name).await;
        removed.map_err(Failure::of(format!("delete the IAM role {name}"), "iam:DeleteRole"))?;
        store.record_removal(&role_key(name));
        Ok(())
    }

    /// Returns true if an attempt that failed midway may have created a role that IAM does not show yet. The settings
    /// of such an attempt are not recorded for every call, so each claim that could have a role is checked.
    pub(crate) async fn may_hide_role(&self, store: &Store, parameters: &Parameters) -> Result<bool, Failure> {
        let may_exist = !self.has_role && !self.proven_by_name && store.oidc_provider(parameters).is_some();
        let may_exist = may_exist && !store.was_removed(&role_key(&self.name));
        Ok(may_exist && matches!(self.look_up_role(store).await?, IamLookup::Absent))
    }

    async fn look_up_role(&self, store: &Store) -> Result<IamLookup<Identity>, Failure> {
        let what = format!("IAM role {}", self.name);
        let found = match store.iam.role(&self.name).await {
            Err(error) if !self.has_role && store.dialect().lacks_operation(&error) => Ok(None),
            found => found.map_err(Failure::of(format!("look up the {what}"), ROLE_RIGHT)),
        };
        IamLookup::of(store, &role_key(&self.name), &what, found, |role| {
            Some(role).filter(|role| self.owner_of(&role.tags) == Owner::Claim)
        })
    }
}

/// Returns the role's key in [`Store::recent`]. A role and a user can have the same name.
fn role_key(name: &str) -> String {
    format!("role {name}")
}

#[cfg(test)]
mod tests {
    use kube_provisioner::bucket::{Authentication, BucketRequest};

    use super::*;

    #[test]
    fn trust_policy_allows_one_service_account() {
        let arn = "arn:aws:iam::123456789012:oidc-provider/oidc.eks.eu-central-1.amazonaws.com/id/A1";
        let provider: OidcProvider = arn.parse().unwrap();
        let claim = BucketRequest::new("photos", (), ()).owner.claim;
        let (class, asked) = (Default::default(), (Some(Authentication::ServiceAccount), Some("web")));
        let account = Authentication::service_account(class, asked, &claim).unwrap().unwrap();
        let trust: serde_json::Value = serde_json::from_str(&provider.trust_policy(&account)).unwrap();
        let statement = &trust["Statement"][0];
        assert_eq!(statement["Principal"], json!({"Federated": arn}));
        let issuer = "oidc.eks.eu-central-1.amazonaws.com/id/A1";
        let conditions = json!({
            (format!("{issuer}:sub")): "system:serviceaccount:test:web", (format!("{issuer}:aud")): "sts.amazonaws.com",
        });
        assert_eq!(statement["Condition"], json!({"StringEquals": conditions}));
        for text in ["", "arn:aws:iam::1:role/x", "arn:aws:iam::1:oidc-provider/", "oidc.example.com"] {
            assert!(text.parse::<OidcProvider>().is_err(), "{text}");
        }
    }
}
