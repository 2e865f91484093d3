//! The IAM user of a claim, and its keys. AWS shows a key's secret only when it creates the key.

use std::collections::BTreeMap;
use std::time::Duration;

use kube_provisioner::bucket::{self as api, ClaimName, Credentials, Owner};
use kube_provisioner::protocol::CLUSTER_ID;
use s3_client::iam::{Identity, NewIdentity};
use sha2::{Digest as _, Sha256};

use crate::dialect::{self, Dialect};
use crate::failure::Failure;
use crate::parameters::Parameters;
use crate::policy;
use crate::store::Store;

/// Keys in an ObjectBucket's state. The provisioner of 2019 used the same keys.
pub(crate) const USER_NAME: &str = "UserName";
const POLICY_ARN: &str = "ARN";
/// The state's key for the role of a claim without an access key.
const ROLE_ARN: &str = "RoleARN";

/// Keys of the tags on users and buckets.
pub(crate) const CLAIM_UID: &str = "kube-provisioner/claim-uid";
const CLAIM: &str = "kube-provisioner/claim";
/// The tag on a user that names the user's bucket.
pub(crate) const BUCKET: &str = "kube-provisioner/bucket";

pub(crate) const PATH: &str = "/kube-provisioner/";
/// IAM's limit for the length of a user name.
const MAX_USER_NAME_LENGTH: usize = 64;
/// The limit for the length of a tag value.
const MAX_VALUE: usize = 256;
/// The permission to look up a user. If the user does not exist, IAM checks it for an ARN without the user's path.
const USER_RIGHT: &str = "iam:GetUser, for arn:aws:iam::*:user/obc* too";
/// The pause between two lookups of a user or bucket that does not exist.
pub(crate) const SECOND_LOOK: Duration = Duration::from_secs(2);

/// A claim's user.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    /// The user's name in earlier versions, which did not name users after buckets. It is set while an attempt of such
    /// a version may be unfinished.
    former_name: Option<String>,
    bucket: String,
    claim: ClaimName,
    cluster_id: String,
    /// The tags that the class and the claim request.
    asked_tags: BTreeMap<String, String>,
    /// The ARN of the policy if the provisioner of 2019 created the user. Such a user has no tags, and a managed
    /// policy.
    policy_of_2019: Option<String>,
    /// No attempt has succeeded yet. After the first success, the bucket has tags.
    pub(crate) unfinished: bool,
    /// The user has no tags, and its name proves that it belongs to the claim.
    pub(crate) proven_by_name: bool,
    /// The claim used a role instead of a key.
    pub(crate) has_role: bool,
}

/// IAM's answer about a user, or about a role with its required properties.
#[derive(Debug)]
pub(crate) enum IamLookup<T = ()> {
    Absent,
    /// It belongs to the claim.
    Own(T),
    /// It belongs to another claim or cluster, or the provisioner did not create it.
    Other,
    /// The administrator has no permission to read it. IAM also gives this answer for a name that does not exist, if
    /// the permission is limited to a path: IAM knows no path for that name.
    Forbidden(Failure),
}

impl<T> IamLookup<T> {
    /// Evaluates IAM's answer. `key` is the name in the lists of recently created and removed objects, and `what` is
    /// the name in errors.
    pub(crate) fn of(
        store: &Store,
        key: &str,
        what: &str,
        found: Result<Option<Identity>, Failure>,
        own: impl FnOnce(Identity) -> Option<T>,
    ) -> Result<Self, Failure> {
        match found {
            Ok(None) if store.recent.has(key) => Err(Failure::NotShownYet(what.to_owned())),
            Ok(None) => Ok(Self::Absent),
            Ok(Some(found)) => Ok(own(found).map_or(Self::Other, Self::Own)),
            Err(failure) if failure.code() != "AccessDenied" => Err(failure),
            Err(_) if store.was_removed(key) => Ok(Self::Absent),
            Err(failure) => Ok(Self::Forbidden(failure)),
        }
    }
}

impl Account {
    /// Returns the user of an account. If the bucket is created for the claim, the user is named after the bucket,
    /// which reserves the bucket's name. If the bucket exists already, the user is named after the claim.
    pub(crate) fn of(
        account: &api::Account,
        cluster_id: &str,
        (bucket, is_own): (&str, bool),
        state: &BTreeMap<String, String>,
    ) -> Self {
        let claim = &account.claim;
        let known = |key| state.get(key).filter(|text| !text.is_empty()).cloned();
        let (own, unfinished) = (user_name_of_account(account), state.is_empty());
        let (new, former_name) =
            if is_own { (user_name_of_bucket(bucket), unfinished.then(|| own.clone())) } else { (own.clone(), None) };
        let policy_of_2019 =
            known(POLICY_ARN).filter(|_| known(USER_NAME).is_some_and(|name| name != own && name != new));
        let proven_by_name = known(USER_NAME) == Some(dialect::user_name(claim, cluster_id));
        Self {
            proven_by_name,
            name: known(USER_NAME).unwrap_or(new),
            former_name,
            bucket: bucket.to_owned(),
            claim: claim.clone(),
            cluster_id: tag_value(cluster_id),
            asked_tags: BTreeMap::new(),
            policy_of_2019,
            unfinished,
            has_role: state.contains_key(ROLE_ARN),
        }
    }

    /// Sets the user's name for this dialect, unless an attempt has succeeded and recorded the name.
    pub(crate) fn for_dialect(self, dialect: Dialect, cluster_id: &str) -> Self {
        match dialect.user_name(&self.claim, cluster_id).filter(|_| self.unfinished) {
            Some(name) => Self { name, former_name: None, proven_by_name: true, ..self },
            None => self,
        }
    }

    /// Adds tags that the class and the claim request.
    pub(crate) fn with_tags(self, asked_tags: BTreeMap<String, String>) -> Self {
        Self { asked_tags, ..self }
    }

    /// Returns all tags for a request that creates a bucket, a user or a role for the claim.
    pub(crate) fn tags_at_creation(&self) -> BTreeMap<String, String> {
        self.asked_tags.clone().into_iter().chain(self.tags()).collect()
    }

    /// Returns the tags that identify the owner of a bucket, a user or a role.
    pub(crate) fn tags(&self) -> BTreeMap<String, String> {
        let ClaimName { namespace, name, uid } = &self.claim;
        let mut claim = format!("{namespace}/{name}");
        claim.truncate(MAX_VALUE);
        let tags = [(CLAIM_UID, uid.clone()), (CLUSTER_ID, self.cluster_id.clone()), (CLAIM, claim)];
        tags.map(|(key, value)| (key.to_owned(), value)).into()
    }

    /// Returns the state to record in the ObjectBucket.
    pub(crate) fn state(&self, role: Option<String>) -> Vec<(&'static str, String)> {
        let policy = self.policy_of_2019.clone().map(|arn| (POLICY_ARN, arn));
        let role = role.map(|arn| (ROLE_ARN, arn));
        [(USER_NAME, self.name.clone())].into_iter().chain(policy).chain(role).collect()
    }

    /// Returns true if the bucket's name proves that it belongs to the claim, since it ends in the claim's uid.
    pub(crate) fn name_proves_ownership_of(&self, bucket: &str) -> bool {
        !self.claim.uid.is_empty() && bucket.ends_with(&self.claim.uid)
    }

    /// Returns true if the record, and not a tag, proves that the bucket belongs to the claim.
    pub(crate) fn is_of_2019(&self) -> bool {
        self.policy_of_2019.is_some()
    }

    /// Creates the user, which reserves the name of the bucket that is created next. Returns the owner of the user that
    /// exists afterwards.
    pub(crate) async fn create_user(&self, store: &Store, parameters: &Parameters) -> Result<IamLookup, Failure> {
        self.remove_former(store).await?;
        let mut tags = self.tags_at_creation();
        tags.insert(BUCKET.to_owned(), self.bucket.clone());
        let boundary = store.permissions_boundary(parameters);
        let user = NewIdentity { name: &self.name, path: PATH, tags: &tags, permissions_boundary: boundary };
        match store.iam.create_user(user).await {
            Ok(()) => {
                store.recent.created(&self.name);
                if store.dialect().may_lose_tags_of_users() {
                    self.verify_tags(store).await
                } else {
                    Ok(IamLookup::Own(()))
                }
            }
            // The answer to an earlier call was lost, or another claim has created the user first.
            Err(error) if error.code() == "EntityAlreadyExists" => match self.look_up(store).await? {
                IamLookup::Absent => {
                    store.recent.created(&self.name);
                    Err(Failure::NotShownYet(format!("IAM user {}", self.name)))
                }
                user => Ok(user),
            },
            Err(error) => {
                let doing = format!("create the IAM user {}", self.name);
                Err(Failure::of(doing, "iam:CreateUser and iam:TagUser, with the class's permissionsBoundary")(error))
            }
        }
    }

    /// Deletes the user that was just created if the store ignored its tags, since its owner could not be proved.
    async fn verify_tags(&self, store: &Store) -> Result<IamLookup, Failure> {
        match store.iam.user(&self.name).await {
            Ok(Some(user)) if user.tags.is_empty() => {
                let removed = store.iam.delete_user(&self.name).await;
                removed.map_err(Failure::of(format!("delete the IAM user {}", self.name), "iam:DeleteUser"))?;
                store.recent.removed(&self.name);
                Err(Failure::IgnoresTags)
            }
            Ok(Some(user)) if !self.owns(&user) => Ok(IamLookup::Other),
            _ => Ok(IamLookup::Own(())),
        }
    }

    /// Returns true if the user has this permissions boundary. Some stores silently ignore it in the creation request.
    pub(crate) async fn has_permissions_boundary(&self, store: &Store, boundary: &str) -> Result<bool, Failure> {
        let user = store.iam.user(&self.name).await;
        let user = user.map_err(Failure::of(format!("look up the IAM user {}", self.name), USER_RIGHT))?;
        let user = user.ok_or_else(|| Failure::NotShownYet(format!("IAM user {}", self.name)))?;
        Ok(user.permissions_boundary.as_deref() == Some(boundary))
    }

    /// Returns the claim's key: the key in its Secret if that is active, or else a new key. `recorded` is the ID of the
    /// delivered key.
    pub(crate) async fn key(
        &self,
        store: &Store,
        recorded: Option<&str>,
        in_secret: Option<Credentials>,
    ) -> Result<Credentials, Failure> {
        if let Some(key) = in_secret {
            let keys = self.keys(store).await?;
            let is_active = |id: &str| keys.iter().any(|known| known.active && known.id == id);
            if is_active(&key.access_key_id) || store.recent.has(&key.access_key_id) {
                return Ok(key);
            }
        }
        // Pods may use the recorded key, and earlier keys during their overlap. Without a recorded key, no key was
        // delivered.
        if recorded.is_none() {
            self.remove_keys_except(store, None).await?;
        }
        match self.new_key(store).await {
            Err(failure) if failure.code() == "LimitExceeded" => {
                self.remove_keys_except(store, recorded).await?;
                self.new_key(store).await
            }
            made => made,
        }
    }

    /// Returns the IDs of the active keys. It adds `recorded` if this process has recently created that key, since IAM
    /// may not list it yet.
    pub(crate) async fn key_ids(&self, store: &Store, recorded: Option<String>) -> Result<Vec<String>, Failure> {
        let keys = self.keys(store).await?.into_iter().filter(|key| key.active).map(|key| key.id);
        let mut ids: Vec<String> = keys.collect();
        ids.extend(recorded.filter(|recorded| store.recent.has(recorded) && !ids.contains(recorded)));
        Ok(ids)
    }

    pub(crate) async fn new_key(&self, store: &Store) -> Result<Credentials, Failure> {
        let made = store.iam.create_access_key(&self.name).await;
        let made = made.map_err(Failure::of(format!("create a key of {}", self.name), "iam:CreateAccessKey"))?;
        store.recent.created(&made.access_key_id);
        Ok(Credentials::new(made.access_key_id, made.secret_access_key))
    }

    pub(crate) async fn remove_keys_except(&self, store: &Store, kept: Option<&str>) -> Result<(), Failure> {
        for key in self.keys(store).await?.iter().filter(|key| Some(key.id.as_str()) != kept) {
            let removed = store.iam.delete_access_key(&self.name, &key.id).await;
            removed.map_err(Failure::of(format!("delete a key of {}", self.name), "iam:DeleteAccessKey"))?;
            store.recent.removed(&key.id);
        }
        Ok(())
    }

    /// Removes all keys of the user if it belongs to the claim, and the claim's role.
    pub(crate) async fn remove_credentials(&self, store: &Store, user: &IamLookup) -> Result<(), Failure> {
        if let IamLookup::Own(()) = user {
            self.remove_keys_except(store, None).await?;
        }
        self.remove_role(store).await
    }

    /// Removes the user with its keys and policies, in the order that IAM requires. A user that does not belong to the
    /// claim is left unchanged.
    pub(crate) async fn remove(&self, store: &Store) -> Result<(), Failure> {
        self.remove_former(store).await?;
        // An unrecorded role can exist if the claim's authentication changed and the process ended before it recorded
        // the role.
        self.remove_role(store).await?;
        match self.look_up(store).await? {
            IamLookup::Absent => return Ok(()),
            IamLookup::Forbidden(failure) => return Err(failure),
            IamLookup::Other => {
                tracing::info!(user = self.name, "left an IAM user that is not the claim's");
                return Ok(());
            }
            IamLookup::Own(()) => {}
        }
        let name = &self.name;
        self.remove_access(store).await?;
        let attached = match store.iam.attached_policies(name).await {
            // An IAM without attached policies has none to detach.
            Err(error) if store.dialect().lacks_operation(&error) => Ok(Vec::new()),
            attached => attached,
        };
        for arn in
            attached.map_err(Failure::of(format!("list the policies of {name}"), "iam:ListAttachedUserPolicies"))?
        {
            let detached = store.iam.detach_policy(name, &arn).await;
            detached.map_err(Failure::of(format!("detach a policy of {name}"), "iam:DetachUserPolicy"))?;
        }
        // This policy was created only for this user, and has the user's name.
        if let Some(arn) = self.policy_of_2019.as_deref().filter(|arn| arn.ends_with(&format!(":policy/{name}"))) {
            let removed = store.iam.delete_policy(arn).await;
            removed.map_err(Failure::of(format!("delete the policy {arn}"), "iam:DeletePolicy"))?;
        }
        let removed = store.iam.delete_user(name).await;
        removed.map_err(Failure::of(format!("delete the IAM user {name}"), "iam:DeleteUser"))?;
        store.record_removal(name);
        Ok(())
    }

    /// Removes the user that an unfinished attempt created under its former name. Every bucket from that attempt has
    /// tags.
    async fn remove_former(&self, store: &Store) -> Result<(), Failure> {
        let Some(name) = &self.former_name else { return Ok(()) };
        let former = Self { name: name.clone(), former_name: None, ..self.clone() };
        match former.look_up(store).await? {
            IamLookup::Own(()) => Box::pin(former.remove(store)).await,
            // IAM also denies access to a user that does not exist, which is nearly always the case here.
            IamLookup::Absent | IamLookup::Other | IamLookup::Forbidden(_) => Ok(()),
        }
    }

    /// Looks up the user's name in IAM.
    pub(crate) async fn look_up(&self, store: &Store) -> Result<IamLookup, Failure> {
        let what = format!("IAM user {}", self.name);
        let found = store.iam.user(&self.name).await;
        let found = found.map_err(Failure::of(format!("look up the {what}"), USER_RIGHT));
        IamLookup::of(store, &self.name, &what, found, |user| self.owns(&user).then_some(()))
    }

    /// Returns true if the user exists and belongs to the claim. It is named after the bucket, so it may belong to
    /// another claim that received the bucket's name later.
    pub(crate) async fn has_own_user(&self, store: &Store) -> Result<bool, Failure> {
        match self.look_up(store).await? {
            IamLookup::Own(()) => Ok(true),
            IamLookup::Other | IamLookup::Absent => Ok(false),
            IamLookup::Forbidden(failure) => Err(failure),
        }
    }

    /// Looks up the user before a removal. If an unfinished attempt's user or role is absent, it looks twice: a process
    /// that has just ended may have created it, and IAM may not show it yet.
    pub(crate) async fn look_up_with_retry(
        &self,
        store: &Store,
        parameters: &Parameters,
    ) -> Result<IamLookup, Failure> {
        let user = self.look_up(store).await?;
        let may_be_hidden = match user {
            IamLookup::Absent => self.unfinished,
            // Every role is created after its user.
            IamLookup::Own(()) => self.may_hide_role(store, parameters).await?,
            IamLookup::Other | IamLookup::Forbidden(_) => false,
        };
        if may_be_hidden {
            tokio::time::sleep(SECOND_LOOK).await;
            return self.look_up(store).await;
        }
        Ok(user)
    }

    /// Returns true if a bucket with these tags may be a COSI bucket that has lost the tag of its owner. COSI stores no
    /// state, so an attempt that has succeeded looks unfinished, but its user remains.
    pub(crate) fn may_have_lost_a_tag(&self, tags: &BTreeMap<String, String>, user: &IamLookup) -> bool {
        let is_of_cosi = self.claim.namespace.is_empty();
        is_of_cosi && matches!(user, IamLookup::Own(())) && self.owner_of(tags) == Owner::Unknown
    }

    /// Returns the owner of a bucket, a user or a role with these tags.
    pub(crate) fn owner_of(&self, tags: &BTreeMap<String, String>) -> Owner {
        owner(tags, &self.claim.uid, &self.cluster_id)
    }

    fn owns(&self, user: &Identity) -> bool {
        if self.proven_by_name {
            return true;
        }
        match self.owner_of(&user.tags) {
            Owner::Claim => true,
            Owner::Other => false,
            // The provisioner of 2019 set no tags. The ObjectBucket names the user and the policy.
            Owner::Unknown => self.is_of_2019(),
        }
    }

    /// Grants the user access. It always writes the policy, since a read takes as long as a write.
    pub(crate) async fn grant_access(&self, store: &Store, policy: &str, document: &str) -> Result<(), Failure> {
        if self.policy_of_2019.is_some() {
            return Ok(());
        }
        let user = self.name.clone();
        store.iam.put_user_policy(&user, policy, document).await.map_err(|error| match error.code() {
            "LimitExceeded" => {
                Failure::PolicySizeExceeded { user, room: policy::MAX_POLICIES_SIZE, size: document.len() }
            }
            _ => Failure::of(format!("set the policy of the IAM user {user}"), "iam:PutUserPolicy")(error),
        })
    }

    /// Removes the policy from earlier versions, which had one policy for each user instead of each bucket.
    pub(crate) async fn remove_former_policy(&self, store: &Store) -> Result<(), Failure> {
        if self.policies(store).await?.iter().any(|name| name == policy::NAME) {
            self.remove_policy(store, policy::NAME).await
        } else {
            Ok(())
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

    /// Removes the user's keys and inline policies.
    pub(crate) async fn remove_access(&self, store: &Store) -> Result<(), Failure> {
        self.remove_keys_except(store, None).await?;
        for policy in self.policies(store).await? {
            self.remove_policy(store, &policy).await?;
        }
        Ok(())
    }

    async fn keys(&self, store: &Store) -> Result<Vec<s3_client::iam::AccessKey>, Failure> {
        let keys = store.iam.access_keys(&self.name).await;
        keys.map_err(Failure::of(format!("list the keys of {}", self.name), "iam:ListAccessKeys"))
    }
}

/// Returns the owner that the tags identify. Earlier versions set no tag with the cluster's id, so a missing one
/// matches every cluster.
fn owner(tags: &BTreeMap<String, String>, claim_uid: &str, cluster_id: &str) -> Owner {
    let of_cluster = tags.get(CLUSTER_ID).is_none_or(|id| id == cluster_id);
    match tags.get(CLAIM_UID) {
        None if of_cluster => Owner::Unknown,
        Some(uid) if !uid.is_empty() && uid == claim_uid && of_cluster => Owner::Claim,
        _ => Owner::Other,
    }
}

/// Returns the claim and the cluster that the tags identify.
pub(crate) fn claim_from_tags(
    tags: &BTreeMap<String, String>,
    cluster_id: &str,
) -> Option<(ClaimName, api::MarkedCluster)> {
    let uid = tags.get(CLAIM_UID).filter(|uid| !uid.is_empty())?.clone();
    let (namespace, name) = tags.get(CLAIM).and_then(|claim| claim.split_once('/')).unwrap_or_default();
    let claim = ClaimName { namespace: namespace.to_owned(), name: name.to_owned(), uid };
    let marked = tags.get(CLUSTER_ID).map(String::as_str);
    Some((claim, api::MarkedCluster::of(marked, &tag_value(cluster_id))))
}

/// Returns the tag value for a cluster's id. The id can be any text, but AWS restricts the characters of tag values.
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/id_tags.html#id_tags_rules>
fn tag_value(cluster_id: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "+-=._:/@".contains(letter);
    if cluster_id.chars().all(allowed) { cluster_id.to_owned() } else { sha256_hex(cluster_id.as_bytes()) }
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the account's name or, if that is too long, a part of it with the claim's uid, which keeps the name unique.
fn user_name_of_account(api::Account { name, claim, .. }: &api::Account) -> String {
    const DIGITS: usize = 32;
    if name.len() <= MAX_USER_NAME_LENGTH {
        return name.clone();
    }
    // The uid of a COSI bucket contains its name, which can be long.
    let uid = if claim.uid.len() < MAX_USER_NAME_LENGTH / 2 + DIGITS / 2 {
        claim.uid.clone()
    } else {
        sha256_hex(claim.uid.as_bytes())[..DIGITS].to_owned()
    };
    let mut name = name.clone();
    name.truncate(MAX_USER_NAME_LENGTH - 1 - uid.len());
    format!("{name}-{uid}")
}

/// Returns the name of a bucket's user. It is the same for every claim that requests the bucket, and it differs from
/// the names for other buckets and from all user names that are derived from claims.
fn user_name_of_bucket(bucket: &str) -> String {
    const DIGITS: usize = 16;
    let name = format!("obc.{bucket}");
    if name.len() <= MAX_USER_NAME_LENGTH {
        name
    } else {
        format!("{}.{}", &name[..MAX_USER_NAME_LENGTH - 1 - DIGITS], &sha256_hex(bucket.as_bytes())[..DIGITS])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn claim(namespace: &str) -> ClaimName {
        let uid = "00000000-0000-4000-8000-000000000001".to_owned();
        ClaimName { namespace: namespace.to_owned(), name: "photos".to_owned(), uid }
    }

    fn account(claim: &ClaimName, state: &[(&str, &str)]) -> Account {
        let state = state.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Account::of(&api::Account::of(claim.clone()), "c", ("photos", true), &state)
    }

    fn user_name_of_claim(claim: ClaimName) -> String {
        user_name_of_account(&api::Account::of(claim))
    }

    #[test]
    fn user_names_fit_the_limit_of_iam() {
        assert_eq!(user_name_of_claim(claim("shop")), "obc-shop-photos-00000000-0000-4000-8000-000000000001");
        let long = user_name_of_claim(claim(&"n".repeat(63)));
        assert_eq!(long.len(), MAX_USER_NAME_LENGTH);
        assert!(long.ends_with("-00000000-0000-4000-8000-000000000001"));
        assert_eq!(user_name_of_bucket("photos"), "obc.photos");
        let [one, other] =
            ["a", "b"].map(|end| user_name_of_account(&cosi("bucket", &format!("{}{end}", "n".repeat(62)))));
        assert!(one.len() == MAX_USER_NAME_LENGTH && other.len() == MAX_USER_NAME_LENGTH && one != other);
        let [one, other] = ["a", "b"].map(|end| user_name_of_bucket(&format!("{}{end}", "n".repeat(62))));
        assert!(one.len() == MAX_USER_NAME_LENGTH && other.len() == MAX_USER_NAME_LENGTH && one != other);
    }

    #[test]
    fn user_names_are_unique() {
        let (long, uid) = ("n".repeat(63), "00000000-0000-4000-8000-000000000001");
        let names = ["a", "a-b", "a.b", "photos", &long, &format!("{long}n"), &format!("{long}m"), uid];
        let of_cosi = names.iter().flat_map(|name| [cosi("bucket", name), cosi("access", name)]);
        let mut accounts: Vec<api::Account> = of_cosi.collect();
        for (number, namespace) in names.iter().enumerate() {
            for (other, name) in names.iter().enumerate() {
                let uid = format!("00000000-0000-4000-8000-{number:06}{other:06}");
                let claim = ClaimName { namespace: (*namespace).to_owned(), name: (*name).to_owned(), uid };
                accounts.push(api::Account::of(claim));
            }
        }
        let of = |name: &dyn Fn(&api::Account) -> String| accounts.iter().map(name).collect::<BTreeSet<_>>().len();
        assert_eq!(of(&user_name_of_account), accounts.len());
        assert_eq!(of(&|account| dialect::user_name(&account.claim, "c")), accounts.len());
        // The user of a new bucket is named after the bucket.
        let all: BTreeSet<String> = names.iter().map(|name| user_name_of_bucket(name)).collect();
        assert_eq!(all.len(), names.len());
        assert!(accounts.iter().all(|account| !all.contains(&user_name_of_account(account))));
        assert_ne!(dialect::user_name(&claim("shop"), "c"), dialect::user_name(&claim("shop"), "d"));
    }

    /// Returns the account that the library creates for a COSI object.
    fn cosi(kind: &str, name: &str) -> api::Account {
        let (namespace, uid) = (String::new(), format!("{}.{name}", &kind[..1]));
        let mut account = api::Account::of(ClaimName { namespace, name: name.to_owned(), uid });
        account.name = format!("obc-{kind}.{name}");
        account
    }

    #[test]
    fn users_of_claims_and_of_cosi_never_collide() {
        let access = cosi("access", "ba-00000000-0000-4000-8000-000000000001");
        assert_eq!(user_name_of_account(&access), access.name);
        let accounts = [
            cosi("bucket", "photos"),
            cosi("access", "photos"),
            api::Account::of(claim("shop")),
            api::Account::of(ClaimName { uid: "photos".to_owned(), ..claim("shop") }),
        ];
        for (at, one) in accounts.iter().enumerate() {
            let own = Account::of(one, "c", ("photos", true), &BTreeMap::new());
            let mut user = Identity::default();
            user.tags = own.tags();
            for (other_at, other) in accounts.iter().enumerate() {
                let other = Account::of(other, "c", ("photos", true), &BTreeMap::new());
                assert_eq!(other.owns(&user), at == other_at, "{at} {other_at}");
                assert_eq!(other.owner_of(&own.tags()) == Owner::Claim, at == other_at, "{at} {other_at}");
            }
        }
    }

    #[test]
    fn detects_cosi_buckets_that_may_have_lost_their_tag() {
        let tags = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let of = |account: &api::Account| Account::of(account, "c", ("photos", true), &BTreeMap::new());
        let (bucket, none) = (of(&cosi("bucket", "photos")), tags(&[("team", "shop")]));
        assert!(bucket.may_have_lost_a_tag(&none, &IamLookup::Own(())));
        assert!(!bucket.may_have_lost_a_tag(&none, &IamLookup::Absent), "no attempt has reserved the name");
        assert!(!bucket.may_have_lost_a_tag(&tags(&[(CLAIM_UID, "keep")]), &IamLookup::Own(())), "changed manually");
        let of_claim = of(&api::Account::of(claim("shop")));
        assert!(!of_claim.may_have_lost_a_tag(&none, &IamLookup::Own(())), "an ObjectBucket records its state");
    }

    #[test]
    fn recognizes_users_created_by_the_2019_provisioner() {
        let untagged = Identity::default();
        let old = [("UserName", "photos-x1y2z"), ("ARN", "arn:aws:iam::1:policy/photos-x1y2z")];
        let old = account(&claim("shop"), &old);
        assert!(old.owns(&untagged) && old.name == "photos-x1y2z");
        assert!(!account(&claim("shop"), &[]).owns(&untagged));
    }

    #[test]
    fn uses_the_user_name_recorded_in_the_object_bucket() {
        let before = "obc-shop-photos-00000000-0000-4000-8000-000000000001";
        assert_eq!(account(&claim("shop"), &[("UserName", before)]).name, before);
        assert_eq!(account(&claim("shop"), &[]).name, "obc.photos");
    }

    #[test]
    fn requested_tags_do_not_override_ownership_tags() {
        let own = account(&claim("shop"), &[]);
        let asked = BTreeMap::from([("team".to_owned(), "a".to_owned()), (CLAIM_UID.to_owned(), "other".to_owned())]);
        let all = own.clone().with_tags(asked).tags_at_creation();
        assert_eq!(all["team"], "a");
        assert!(own.tags().iter().all(|(key, value)| all[key] == *value));
    }

    #[test]
    fn tags_satisfy_the_limits_of_aws() {
        let longest = ClaimName { name: "n".repeat(253), ..claim(&"n".repeat(63)) };
        assert!(account(&longest, &[]).tags().values().all(|value| value.len() <= MAX_VALUE));
        assert_eq!(tag_value("east-1"), "east-1");
        assert_eq!(tag_value("east#1"), sha256_hex(b"east#1"));
    }

    #[test]
    fn determines_the_owner_from_claim_and_cluster_tags() {
        let of = |uid: &str, cluster: Option<&str>| {
            let mut tags = BTreeMap::from([(CLAIM_UID.to_owned(), uid.to_owned())]);
            tags.extend(cluster.map(|cluster| (CLUSTER_ID.to_owned(), cluster.to_owned())));
            owner(&tags, "u", "c")
        };
        assert_eq!(of("u", Some("c")), Owner::Claim);
        assert_eq!(of("u", None), Owner::Claim, "an earlier version set the tag");
        assert_eq!([of("u", Some("d")), of("v", Some("c")), of("v", None), of("", None)], [Owner::Other; 4]);
        assert_eq!(owner(&BTreeMap::new(), "u", "c"), Owner::Unknown);
        let only_cluster = BTreeMap::from([(CLUSTER_ID.to_owned(), "d".to_owned())]);
        assert_eq!(owner(&only_cluster, "u", "c"), Owner::Other);
    }
}
