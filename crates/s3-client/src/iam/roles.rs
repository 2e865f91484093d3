//! Roles: identities without keys, which other identities assume.

use super::{Iam, Identity, NewIdentity, once, tags};
use crate::error::Error;

impl Iam {
    /// Returns a role; `None` if it does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn role(&self, name: &str) -> Result<Option<Identity>, Error> {
        let answer = self.unless_absent(self.sdk.get_role().role_name(name).send().await)?;
        Ok(answer.and_then(|answer| answer.role).map(|role| Identity {
            arn: role.arn,
            tags: role.tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect(),
            permissions_boundary: role.permissions_boundary.and_then(|boundary| boundary.permissions_boundary_arn),
        }))
    }

    /// Creates a role that the identities named in this policy may assume. Creation requests are sent only once.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `EntityAlreadyExists` or `MalformedPolicyDocument`, if the request fails.
    pub async fn create_role(&self, role: NewIdentity<'_>, trust: &str) -> Result<(), Error> {
        let boundary = role.permissions_boundary.map(str::to_owned);
        let request = self.sdk.create_role().role_name(role.name).path(role.path).assume_role_policy_document(trust);
        let request = request.set_permissions_boundary(boundary).set_tags(tags(role.tags)?);
        self.read(request.customize().config_override(once()).send().await).map(drop)
    }

    /// Sets the trust policy, which determines who may assume a role.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `NoSuchEntity` or `MalformedPolicyDocument`, if the request fails.
    pub async fn set_role_trust(&self, role: &str, trust: &str) -> Result<(), Error> {
        let set = self.sdk.update_assume_role_policy().role_name(role).policy_document(trust);
        self.read(set.send().await).map(drop)
    }

    /// Deletes a role without policies. Succeeds if it no longer exists.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `DeleteConflict`, if the request fails.
    pub async fn delete_role(&self, name: &str) -> Result<(), Error> {
        self.unless_absent(self.sdk.delete_role().role_name(name).send().await).map(drop)
    }

    /// Sets an inline policy of a role.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `NoSuchEntity`, `LimitExceeded` or `MalformedPolicyDocument`, if the request
    /// fails.
    pub async fn put_role_policy(&self, role: &str, policy: &str, document: &str) -> Result<(), Error> {
        let put = self.sdk.put_role_policy().role_name(role).policy_name(policy).policy_document(document);
        self.read(put.send().await).map(drop)
    }

    /// Returns the names of a role's inline policies; empty if the role does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn role_policies(&self, role: &str) -> Result<Vec<String>, Error> {
        let names = self.sdk.list_role_policies().role_name(role).into_paginator().items().send();
        Ok(self.unless_absent(names.collect::<Result<Vec<_>, _>>().await)?.unwrap_or_default())
    }

    /// Deletes an inline policy of a role. Succeeds if it no longer exists.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn delete_role_policy(&self, role: &str, policy: &str) -> Result<(), Error> {
        self.unless_absent(self.sdk.delete_role_policy().role_name(role).policy_name(policy).send().await).map(drop)
    }

    /// Returns the ARNs of the policies attached to a role; empty if the role does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn attached_role_policies(&self, role: &str) -> Result<Vec<String>, Error> {
        let policies = self.sdk.list_attached_role_policies().role_name(role).into_paginator().items().send();
        let policies = self.unless_absent(policies.collect::<Result<Vec<_>, _>>().await)?.unwrap_or_default();
        Ok(policies.into_iter().filter_map(|policy| policy.policy_arn).collect())
    }

    /// Detaches a policy from a role. Succeeds if it is not attached.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn detach_role_policy(&self, role: &str, arn: &str) -> Result<(), Error> {
        self.unless_absent(self.sdk.detach_role_policy().role_name(role).policy_arn(arn).send().await).map(drop)
    }
}
