//! The rules for a Bucket and a BucketAccess, as pure functions. They follow the sidecar in COSI's proposal.
//!
//! They run twice: on the cache to detect work, and on the live objects to choose it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::objects::{AccessContent, AccessFacts, BucketContent, BucketFacts, Object, Policy, S3};
use super::secrets::SecretState;

/// The objects of one key.
#[derive(Clone, Debug)]
pub(super) enum Facts {
    Bucket(BucketView),
    Access(AccessView),
    /// The object does not exist, or belongs to another driver.
    None,
}

#[derive(Clone, Debug)]
pub(super) struct BucketView {
    pub(super) bucket: Arc<BucketFacts>,
    /// Another Bucket that represents the same bucket in the backend.
    pub(super) duplicate: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(super) struct AccessView {
    pub(super) access: Arc<AccessFacts>,
    /// The Bucket of each target.
    pub(super) buckets: Vec<BucketState>,
    /// The Secret of each target.
    pub(super) secrets: Vec<SecretState>,
}

/// The Bucket that an access names.
#[derive(Clone, Debug)]
pub(super) enum BucketState {
    Absent,
    /// The Bucket belongs to another driver.
    Foreign,
    Ours(Arc<BucketFacts>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    NoAction,
    /// Wait until something changes.
    Refuse(Refusal),
    /// Add our finalizer to the object.
    Protect,
    /// Create the bucket, or look it up.
    Provision,
    /// Delete the bucket, and then remove our finalizer.
    Delete,
    /// Only remove our finalizer.
    Release,
    /// Remove the error of an earlier attempt from the status.
    ClearError,
    Grant,
    Revoke,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Unreadable(String),
    /// The protocol is not S3.
    Protocol(String),
    /// The Bucket was created for a claim but does not name it.
    Unbound,
    /// The status contains an unexpected ID.
    OtherId {
        has: String,
        wanted: String,
    },
    /// The Bucket is deleted before its BucketClaim.
    ClaimRemains,
    /// The access requests a service account instead of a key.
    Authentication(String),
    /// Two buckets of an access use the same Secret.
    SameSecret(String),
    /// Two Buckets of an access represent the same bucket.
    SameBucket(String),
    BucketAbsent(String),
    BucketForeign(String),
    BucketDeleting(String),
    BucketNotReady(String),
    SecretForeign(String),
    SecretDeleting(String),
}

impl Facts {
    pub(super) fn object(&self) -> Option<&Object> {
        match self {
            Self::Bucket(view) => Some(&view.bucket.object),
            Self::Access(view) => Some(&view.access.object),
            Self::None => None,
        }
    }
}

pub(super) fn decide(facts: &Facts) -> Decision {
    match facts {
        Facts::Bucket(view) => about_bucket(view),
        Facts::Access(view) => about_access(view),
        Facts::None => Decision::NoAction,
    }
}

fn about_bucket(view: &BucketView) -> Decision {
    let bucket = &*view.bucket;
    let object = &bucket.object;
    // Without our finalizer, nothing was ever created.
    if object.deleting && !object.is_protected() {
        return Decision::NoAction;
    }
    let content = match &bucket.content {
        Ok(content) => content,
        Err(problem) => return Decision::Refuse(Refusal::Unreadable(problem.clone())),
    };
    if object.deleting {
        return about_deletion(view, content);
    }
    let id = bucket.id(content);
    if id != bucket.wanted_id(content) {
        let (has, wanted) = (id.to_owned(), bucket.wanted_id(content).to_owned());
        return Decision::Refuse(Refusal::OtherId { has, wanted });
    }
    // A ready Bucket stays ready. Nothing is created for a claim that is being deleted.
    if object.is_protected() && object.is_ready() && content.id.is_some() || bucket.claim_ends {
        return settled(object);
    }
    if let Some(protocol) = content.protocols.iter().find(|protocol| *protocol != S3) {
        return Decision::Refuse(Refusal::Protocol(protocol.clone()));
    }
    if content.existing.is_none() && content.claim.uid.is_none() {
        return Decision::Refuse(Refusal::Unbound);
    }
    if object.is_protected() { Decision::Provision } else { Decision::Protect }
}

/// Returns the decision for an object that needs no more work.
fn settled(object: &Object) -> Decision {
    if object.is_ready() && object.error.is_some() { Decision::ClearError } else { Decision::NoAction }
}

fn about_deletion(view: &BucketView, content: &BucketContent) -> Decision {
    let is_bound = content.claim.uid.is_some();
    match content.policy {
        _ if is_bound && !view.bucket.claim_ends => Decision::Refuse(Refusal::ClaimRemains),
        // The last of several Buckets decides. A Bucket without a claim only looked up an existing bucket.
        Policy::Delete if is_bound && view.duplicate.is_none() => Decision::Delete,
        Policy::Delete | Policy::Retain => Decision::Release,
    }
}

fn about_access(view: &AccessView) -> Decision {
    let access = &*view.access;
    let object = &access.object;
    if access.overridden || object.deleting && access.cleanup_finished {
        return Decision::NoAction;
    }
    let content = match &access.content {
        Ok(content) => content,
        Err(problem) => return Decision::Refuse(Refusal::Unreadable(problem.clone())),
    };
    if object.deleting {
        return Decision::Revoke;
    }
    let delivered = view.secrets.iter().all(|state| *state == SecretState::Intact);
    if object.is_protected() && object.is_ready() && content.account.is_some() && delivered {
        return settled(object);
    }
    if let Some(refusal) = obstacle(access, content).or_else(|| obstacle_of_related(view, content)) {
        return Decision::Refuse(refusal);
    }
    if object.is_protected() { Decision::Grant } else { Decision::Protect }
}

/// Returns an obstacle in the access itself.
fn obstacle(access: &AccessFacts, content: &AccessContent) -> Option<Refusal> {
    if content.authentication != "Key" {
        return Some(Refusal::Authentication(content.authentication.clone()));
    }
    if content.protocol != S3 {
        return Some(Refusal::Protocol(content.protocol.clone()));
    }
    let wanted = access.wanted_account();
    if let Some(has) = content.account.clone().filter(|has| *has != wanted) {
        return Some(Refusal::OtherId { has, wanted });
    }
    let (mut secrets, mut ids) = (BTreeSet::new(), BTreeSet::new());
    content.targets.iter().find_map(|target| match (secrets.insert(&target.secret), ids.insert(&target.id)) {
        (false, _) => Some(Refusal::SameSecret(target.secret.clone())),
        (_, false) => Some(Refusal::SameBucket(target.id.clone())),
        _ => None,
    })
}

/// Returns an obstacle in the access's Buckets and Secrets.
fn obstacle_of_related(view: &AccessView, content: &AccessContent) -> Option<Refusal> {
    let buckets = content.targets.iter().zip(&view.buckets).find_map(|(target, state)| {
        let name = target.bucket.clone();
        let bucket = match state {
            BucketState::Absent => return Some(Refusal::BucketAbsent(name)),
            BucketState::Foreign => return Some(Refusal::BucketForeign(name)),
            BucketState::Ours(bucket) => bucket,
        };
        let id = match &bucket.content {
            Ok(content) => content.id.as_deref(),
            Err(problem) => return Some(Refusal::Unreadable(format!("Bucket {name}: {problem}"))),
        };
        match id {
            _ if bucket.claim_ends || bucket.object.deleting => Some(Refusal::BucketDeleting(name)),
            Some(id) if id != target.id => {
                Some(Refusal::OtherId { has: target.id.clone(), wanted: format!("{id} of Bucket {name}") })
            }
            Some(_) if bucket.object.is_ready() => None,
            _ => Some(Refusal::BucketNotReady(name)),
        }
    });
    buckets.or_else(|| {
        content.targets.iter().zip(&view.secrets).find_map(|(target, state)| match state {
            SecretState::Foreign => Some(Refusal::SecretForeign(target.secret.clone())),
            // A Secret that is being deleted will be replaced by a new one.
            SecretState::Absent | SecretState::Deleting | SecretState::Changed | SecretState::Intact => None,
        })
    })
}
