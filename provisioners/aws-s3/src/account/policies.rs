//! Policies of IAM users: one for the owner of a bucket, and one for each bucket of other users.

use super::Account;
use crate::failure::Failure;
use crate::policy;
use crate::store::Store;

impl Account {
    /// Lets the user in. Written in any case: it is as quick as looking.
    pub(crate) async fn grant_access(&self, store: &Store, policy: &str, document: &str) -> Result<(), Failure> {
        if self.policy_of_2019.is_some() {
            return Ok(());
        }
        let user = self.name.clone();
        store.iam.put_user_policy(&user, policy, document).await.map_err(|error| match error.code() {
            "LimitExceeded" => Failure::NoRoom { user, room: policy::ROOM, most: policy::ROOM / document.len() },
            _ => Failure::of(format!("set the policy of the IAM user {user}"), "iam:PutUserPolicy")(error),
        })
    }

    /// Removes the policy that a user had before there was one for each bucket.
    pub(crate) async fn remove_former_policy(&self, store: &Store) -> Result<(), Failure> {
        match self.policies(store).await?.iter().any(|name| name == policy::NAME) {
            true => self.remove_policy(store, policy::NAME).await,
            false => Ok(()),
        }
    }

    async fn policies(&self, store: &Store) -> Result<Vec<String>, Failure> {
        let own = store.iam.user_policies(&self.name).await;
        own.map_err(Failure::of(format!("list the policies of {}", self.name), "iam:ListUserPolicies"))
    }

    async fn remove_policy(&self, store: &Store, policy: &str) -> Result<(), Failure> {
        let removed = store.iam.delete_user_policy(&self.name, policy).await;
        removed.map_err(Failure::of(format!("delete the policy of {}", self.name), "iam:DeleteUserPolicy"))
    }

    /// Takes the user's keys and its own policies away.
    pub(crate) async fn remove_access(&self, store: &Store) -> Result<(), Failure> {
        self.remove_keys_but(store, None).await?;
        for policy in self.policies(store).await? {
            self.remove_policy(store, &policy).await?;
        }
        Ok(())
    }
}
