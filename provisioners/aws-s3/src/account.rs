//! The IAM user of a claim, and its keys. AWS tells a key's secret once, in the answer that makes it.

use std::collections::BTreeMap;

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{Access, ClaimName, Credentials};
use s3_client::iam::{NewUser, User};

use crate::failure::Failure;
use crate::parameters::Parameters;
use crate::policy;
use crate::store::Store;

/// What is kept in an ObjectBucket, as in 2019.
pub(crate) const USER_NAME: &str = "UserName";
const POLICY_ARN: &str = "ARN";

/// Tags of users and buckets.
pub(crate) const CLAIM_UID: &str = "kube-provisioner/claim-uid";
const CLAIM: &str = "kube-provisioner/claim";
/// The bucket that was begun for the claim when there was none of its name.
const BUCKET: &str = "kube-provisioner/bucket";

const PATH: &str = "/kube-provisioner/";
/// IAM's limit for a user's name.
const LONGEST: usize = 64;

/// A claim's user.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    claim: ClaimName,
    /// The provisioner of 2019 has made it: it has no tags, and its policy is the account's.
    policy_of_2019: Option<String>,
    /// No attempt has come to its end yet: from then on the bucket has tags.
    unfinished: bool,
}

impl Account {
    pub(crate) fn of(claim: &ClaimName, state: &BTreeMap<String, String>) -> Self {
        let known = |key| state.get(key).filter(|text| !text.is_empty()).cloned();
        let own = user_name(claim);
        let name = known(USER_NAME).unwrap_or_else(|| own.clone());
        let policy_of_2019 = known(POLICY_ARN).filter(|_| name != own);
        Self { name, claim: claim.clone(), policy_of_2019, unfinished: state.is_empty() }
    }

    /// The tags of what is made for the claim.
    pub(crate) fn tags(&self) -> BTreeMap<String, String> {
        let ClaimName { namespace, name, uid } = &self.claim;
        BTreeMap::from([(CLAIM_UID.to_owned(), uid.clone()), (CLAIM.to_owned(), format!("{namespace}/{name}"))])
    }

    /// What the ObjectBucket keeps.
    pub(crate) fn state(&self) -> Vec<(&'static str, String)> {
        let policy = self.policy_of_2019.clone().map(|arn| (POLICY_ARN, arn));
        [(USER_NAME, self.name.clone())].into_iter().chain(policy).collect()
    }

    /// The claim's user. One of somebody else's is an error.
    pub(crate) async fn find(&self, store: &Store) -> Result<Option<User>, ProvisionError> {
        let user = self.look(store).await?;
        match user {
            Some(user) if !self.owns(&user) => Err(ProvisionError::retry(format!(
                "the IAM user {} exists and was not made for this claim: delete it",
                self.name
            ))),
            user => Ok(user),
        }
    }

    /// Whether a bucket without our tags was begun for the claim, when there was none of its name.
    pub(crate) fn has_begun(&self, user: Option<&User>, bucket: &str) -> bool {
        let begun = |user: &User| user.tags.get(BUCKET).is_some_and(|begun| begun == bucket);
        let is_begun = |user: &User| self.policy_of_2019.is_some() || self.unfinished && begun(user);
        user.is_some_and(|user| self.owns(user) && is_begun(user))
    }

    /// Makes the user, before a bucket that is to be made for it.
    pub(crate) async fn make(
        &self,
        store: &Store,
        parameters: &Parameters,
        bucket: Option<&str>,
    ) -> Result<(), Failure> {
        let mut tags = self.tags();
        tags.extend(bucket.map(|bucket| (BUCKET.to_owned(), bucket.to_owned())));
        let boundary = parameters.permissions_boundary.as_deref().filter(|boundary| !boundary.is_empty());
        let user = NewUser { name: &self.name, path: PATH, tags: &tags, permissions_boundary: boundary };
        match store.iam.create_user(user).await {
            // An answer to an earlier call was lost.
            Err(error) if error.code() == "EntityAlreadyExists" => Ok(()),
            made => made
                .map_err(Failure::of(format!("create the IAM user {}", self.name), "iam:CreateUser and iam:TagUser")),
        }
    }

    /// Lets the user in. Written in any case: it is as quick as looking.
    pub(crate) async fn let_in(
        &self,
        store: &Store,
        bucket: &str,
        access: Access,
        kms_key: Option<&str>,
    ) -> Result<(), Failure> {
        if self.policy_of_2019.is_some() {
            return Ok(());
        }
        let document = policy::document(&store.region, bucket, access, kms_key);
        let put = store.iam.put_user_policy(&self.name, policy::NAME, &document).await;
        put.map_err(Failure::of(format!("set the policy of the IAM user {}", self.name), "iam:PutUserPolicy"))
    }

    /// The claim's key: the one in its Secret while that works, or else a new one. `recorded` is the key that the
    /// ObjectBucket names. Others are of attempts whose answers were lost, and nobody knows their secrets.
    pub(crate) async fn key(
        &self,
        store: &Store,
        recorded: Option<&str>,
        in_secret: Option<Credentials>,
    ) -> Result<Credentials, Failure> {
        if let Some(key) = in_secret {
            let keys = self.keys(store).await?;
            if keys.iter().any(|known| known.active && known.id == key.access_key_id) {
                return Ok(key);
            }
        }
        self.remove_keys_but(store, recorded).await?;
        let made = self.new_key(store).await?;
        // What uses the recorded one went on until now.
        if recorded.is_some() {
            self.remove_keys_but(store, Some(&made.access_key_id)).await?;
        }
        Ok(made)
    }

    pub(crate) async fn new_key(&self, store: &Store) -> Result<Credentials, Failure> {
        let made = store.iam.create_access_key(&self.name).await;
        let made = made.map_err(Failure::of(format!("create a key of {}", self.name), "iam:CreateAccessKey"))?;
        Ok(Credentials::new(made.access_key_id, made.secret_access_key))
    }

    pub(crate) async fn remove_keys_but(&self, store: &Store, kept: Option<&str>) -> Result<(), Failure> {
        for key in self.keys(store).await?.iter().filter(|key| Some(key.id.as_str()) != kept) {
            let removed = store.iam.delete_access_key(&self.name, &key.id).await;
            removed.map_err(Failure::of(format!("delete a key of {}", self.name), "iam:DeleteAccessKey"))?;
        }
        Ok(())
    }

    /// Removes all keys of the user, if it is the claim's.
    pub(crate) async fn close(&self, store: &Store, user: Option<&User>) -> Result<(), Failure> {
        match user.is_some_and(|user| self.owns(user)) {
            true => self.remove_keys_but(store, None).await,
            false => Ok(()),
        }
    }

    /// Removes the user with its keys and policies, in the order that IAM wants. Somebody else's is left alone.
    pub(crate) async fn remove(&self, store: &Store) -> Result<(), Failure> {
        let Some(user) = self.look(store).await? else { return Ok(()) };
        if !self.owns(&user) {
            tracing::info!(user = self.name, "left an IAM user that is not the claim's");
            return Ok(());
        }
        let name = &self.name;
        self.remove_keys_but(store, None).await?;
        let own = store.iam.user_policies(name).await;
        for policy in own.map_err(Failure::of(format!("list the policies of {name}"), "iam:ListUserPolicies"))? {
            let removed = store.iam.delete_user_policy(name, &policy).await;
            removed.map_err(Failure::of(format!("delete the policy of {name}"), "iam:DeleteUserPolicy"))?;
        }
        let attached = store.iam.attached_policies(name).await;
        for arn in
            attached.map_err(Failure::of(format!("list the policies of {name}"), "iam:ListAttachedUserPolicies"))?
        {
            let detached = store.iam.detach_policy(name, &arn).await;
            detached.map_err(Failure::of(format!("detach a policy of {name}"), "iam:DetachUserPolicy"))?;
        }
        // It was made for this user alone and has its name.
        if let Some(arn) = self.policy_of_2019.as_deref().filter(|arn| arn.ends_with(&format!(":policy/{name}"))) {
            let removed = store.iam.delete_policy(arn).await;
            removed.map_err(Failure::of(format!("delete the policy {arn}"), "iam:DeletePolicy"))?;
        }
        let removed = store.iam.delete_user(name).await;
        removed.map_err(Failure::of(format!("delete the IAM user {name}"), "iam:DeleteUser"))
    }

    /// The user of this name, whosesoever.
    pub(crate) async fn look(&self, store: &Store) -> Result<Option<User>, Failure> {
        let user = store.iam.user(&self.name).await;
        user.map_err(Failure::of(format!("look up the IAM user {}", self.name), "iam:GetUser"))
    }

    fn owns(&self, user: &User) -> bool {
        match user.tags.get(CLAIM_UID) {
            Some(uid) => !uid.is_empty() && *uid == self.claim.uid,
            // In 2019 nothing was tagged. The ObjectBucket names the user and the policy.
            None => self.policy_of_2019.is_some(),
        }
    }

    async fn keys(&self, store: &Store) -> Result<Vec<s3_client::iam::AccessKey>, Failure> {
        let keys = store.iam.access_keys(&self.name).await;
        keys.map_err(Failure::of(format!("list the keys of {}", self.name), "iam:ListAccessKeys"))
    }
}

/// The same in every attempt, and no other claim's ever.
fn user_name(claim: &ClaimName) -> String {
    let mut name = format!("obc-{}-{}", claim.namespace, claim.name);
    name.truncate(LONGEST - 1 - claim.uid.len().min(LONGEST - 5));
    format!("{name}-{}", claim.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(namespace: &str) -> ClaimName {
        let uid = "00000000-0000-4000-8000-000000000001".to_owned();
        ClaimName { namespace: namespace.to_owned(), name: "photos".to_owned(), uid }
    }

    #[test]
    fn names_of_users_are_short_enough_and_have_the_claims_uid() {
        assert_eq!(user_name(&claim("shop")), "obc-shop-photos-00000000-0000-4000-8000-000000000001");
        let long = user_name(&claim(&"n".repeat(63)));
        assert_eq!(long.len(), LONGEST);
        assert!(long.ends_with("-00000000-0000-4000-8000-000000000001"));
    }

    #[test]
    fn a_user_of_2019_is_known_by_what_the_object_bucket_says() {
        let state =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let old = state(&[("UserName", "photos-x1y2z"), ("ARN", "arn:aws:iam::1:policy/photos-x1y2z")]);
        let account = Account::of(&claim("shop"), &old);
        let untagged = User::default();
        assert!(account.owns(&untagged) && account.name == "photos-x1y2z");
        let ours = Account::of(&claim("shop"), &state(&[]));
        assert!(!ours.owns(&untagged));
    }
}
